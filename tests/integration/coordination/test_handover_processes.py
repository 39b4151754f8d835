"""Locks that are handed over between processes; whoever it is, harm comes to it at each step.

See `HandoverStage`: six locks stand still at six steps at the same time, so that one kill -9 hits all of
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from hansa.coordination.handover import HandoverStep
from hansa.store import open_store
from tests.support.etcd_servers import EtcdGroup
from tests.support.handover_stage import HOLDERS, STEPS, STOP_S, End, HandoverStage, Harm, within
from tests.support.store_process import StoreProcess

pytestmark = [pytest.mark.spec("OWN-04", "OWN-05"), pytest.mark.timeout(180)]

OFFERED, PREPARED, SEALED, TAKEN, DONE = STEPS
WITHDRAWN: Final = HandoverStep.WITHDRAWN
WAIT_S_MAX: Final = 90.0
# Longer than a stop, and than what it takes until all stand still.
TIMEOUT_S: Final = 10.0
DOWN_S: Final = 1.0
STARTS_AT_ONCE: Final = 3

Ends = Mapping[HandoverStep, End]

# By who comes to harm, what becomes of each lock.
OLD_GONE: Final = {
    OFFERED: End("new", WITHDRAWN),
    PREPARED: End("new", WITHDRAWN),
    SEALED: End("new", DONE, "new"),
    TAKEN: End("new", DONE, "new"),
    DONE: End("new", DONE, "new"),
    WITHDRAWN: End("new", WITHDRAWN),
}
NEW_GONE: Final = {
    OFFERED: End("old", WITHDRAWN),
    PREPARED: End("old", WITHDRAWN),
    SEALED: End("old", WITHDRAWN),
    TAKEN: End("heir", DONE, "heir"),
    # The one that is gone has read it.
    DONE: End("heir", DONE, "new"),
    WITHDRAWN: End("old", WITHDRAWN),
}
# Nobody needs who asked for it; and a store that comes back while all leases live has cost nothing.
NONE_GONE: Final = {
    **dict.fromkeys(STEPS, End("new", DONE, "new")),
    WITHDRAWN: End("old", WITHDRAWN),
}
# Without a store both lose what they have: as if both were gone.
BOTH_GONE: Final = {
    OFFERED: End("heir", WITHDRAWN),
    PREPARED: End("heir", WITHDRAWN),
    SEALED: End("heir", DONE, "heir"),
    TAKEN: End("heir", DONE, "heir"),
    DONE: End("heir", DONE, "new"),
    WITHDRAWN: End("heir", WITHDRAWN),
}
ENDS: Final[Mapping[str, Ends]] = {"old": OLD_GONE, "new": NEW_GONE, "asker": NONE_GONE}


async def play(address: str, victim: str, how: Harm, starts: asyncio.Semaphore) -> None:
    """One kill, stop or cut of a process, or of the way of all to the store; and what is true afterwards."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(address))
        short = ("old", "new") if victim == "store" else (victim,)
        stage = HandoverStage(
            stack, store, f"{victim}-{how}", starts=starts, short=short, timeout_s=TIMEOUT_S
        )
        async with within(WAIT_S_MAX, lambda: stage.doing):
            await stage.begin(address, is_asked=victim == "asker")
            living = await stage.strike(victim, how)
            await stage.judge(ENDS.get(victim, BOTH_GONE), living)


async def kill_store(served: StoreProcess, starts: asyncio.Semaphore) -> None:
    """Of each step the request was not sent yet; and of each the store has it, and has not answered."""
    address = f"etcd://{served.address}"
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(address))
        stages = unsent, unanswered = [
            HandoverStage(stack, store, cluster, starts=starts, timeout_s=WAIT_S_MAX)
            for cluster in ("unsent", "unanswered")
        ]
        async with within(WAIT_S_MAX, lambda: f"{unsent.doing}; {unanswered.doing}"):
            await asyncio.gather(*(stage.begin(address, is_asked=False) for stage in stages))
            for way in unanswered.proxies.values():
                way.hold_answers()
            await unanswered.open()
            await unanswered.reached({step: STEPS[STEPS.index(step) + 1] for step in HOLDERS})
            served.kill()
            for way in unanswered.proxies.values():
                way.refuse()
                way.forward()
            await unsent.open()
            await asyncio.sleep(DOWN_S)
            await asyncio.to_thread(served.start)
            for stage in stages:
                await stage.judge(NONE_GONE, list(stage.nodes))


async def stop_store(served: StoreProcess, starts: asyncio.Semaphore) -> None:
    """It stands still, for less than a lease."""
    address = f"etcd://{served.address}"
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(address))
        stage = HandoverStage(stack, store, "stopped", starts=starts, timeout_s=WAIT_S_MAX)
        async with within(WAIT_S_MAX, lambda: stage.doing):
            await stage.begin(address, is_asked=True)
            served.freeze()
            await stage.open()
            await asyncio.sleep(STOP_S)
            served.thaw()
            await stage.judge(NONE_GONE, list(stage.nodes))


@pytest.fixture
async def starts() -> asyncio.Semaphore:
    return asyncio.Semaphore(STARTS_AT_ONCE)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[StoreProcess]:
    with StoreProcess(tmp_path) as store:
        yield store


async def test_whoever_is_killed_stopped_or_cut_off_at_whichever_step_one_owns_and_what_was_sealed_is_there(
    served: StoreProcess, starts: asyncio.Semaphore
) -> None:
    async with asyncio.TaskGroup() as runs:
        for victim in ENDS:
            for how in Harm:
                runs.create_task(play(f"etcd://{served.address}", victim, how, starts))
        runs.create_task(play(f"etcd://{served.address}", "store", Harm.CUT, starts))


async def test_a_store_that_is_killed_and_starts_again_or_stands_still_at_each_step_costs_nothing(
    tmp_path: Path, starts: asyncio.Semaphore
) -> None:
    with StoreProcess(tmp_path / "killed") as killed, StoreProcess(tmp_path / "stopped") as stopped:
        async with asyncio.TaskGroup() as runs:
            runs.create_task(kill_store(killed, starts))
            runs.create_task(stop_store(stopped, starts))


async def test_the_same_on_etcd(starts: asyncio.Semaphore) -> None:
    with EtcdGroup() as group:
        async with asyncio.TaskGroup() as runs:
            runs.create_task(play(group.address, "old", Harm.STOP, starts))
            runs.create_task(play(group.address, "new", Harm.KILL, starts))
            runs.create_task(play(group.address, "old", Harm.CUT, starts))
