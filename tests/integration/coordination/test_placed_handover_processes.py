"""Entries that a leader moves from node to node; whoever it is, harm comes to it at each step.

Six entries stand still at six steps at the same time. Who comes to harm is a process: the old owner, the new
one, the leader, or the store; the others are here. All reach the store through proxies of their own. Whoever
is stopped or cut off is so until the others have come to an end without it, and longer than its lease: then
it sends what it was about to send. Whoever asks has no part in it once it has asked, in one transaction.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from hansa.coordination import Placement, Placer
from hansa.coordination.handover import Handover, HandoverStep
from hansa.keys import Keys
from hansa.store import Store, open_store
from tests.support.handover_stage import End, Harm, within
from tests.support.peer_process import PeerProcess
from tests.support.placed_cast import (
    ENTRIES,
    HELD,
    KIND,
    LOOK_S,
    STEPS,
    again,
    play,
    prefix_of,
)
from tests.support.store_process import StoreProcess
from tests.support.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.spec("OWN-05"), pytest.mark.timeout(180)]

OFFERED, PREPARED, SEALED, TAKEN, DONE, WITHDRAWN = ENTRIES
NAMES: Final = ("old", "new", "heir", "leader", "successor")
NODES: Final = ("old", "new", "heir")
LEASE_S, LONG_LEASE_S = 4.0, 60.0
STOP_S: Final = 5.0
DOWN_S: Final = 1.0
WAIT_S_MAX: Final = 90.0
STARTS_AT_ONCE: Final = 3
# Whoever can make but one step at a time is asked for that one last.
OFFERS: Final = (WITHDRAWN, DONE, TAKEN, PREPARED, SEALED, OFFERED)

Ends = Mapping[HandoverStep, End]

OLD_GONE: Final = {
    OFFERED: End("heir", WITHDRAWN),
    PREPARED: End("heir", WITHDRAWN),
    SEALED: End("new", DONE, "new"),
    TAKEN: End("new", DONE, "new"),
    DONE: End("new", DONE, "new"),
    WITHDRAWN: End("heir", WITHDRAWN),
}
NEW_GONE: Final = {
    OFFERED: End("old", WITHDRAWN),
    PREPARED: End("old", WITHDRAWN),
    SEALED: End("old", WITHDRAWN),
    TAKEN: End("heir", DONE, "heir"),
    DONE: End("heir", DONE, "new"),
    WITHDRAWN: End("old", WITHDRAWN),
}
# The successor goes on; and a store that comes back while all leases live has cost nothing.
NONE_GONE: Final[Ends] = {**dict.fromkeys(STEPS, End("new", DONE, "new")), WITHDRAWN: End("old", WITHDRAWN)}
# Without a store both nodes lose what they have, and the leader's lease is longer.
BOTH_GONE: Final = {
    OFFERED: End("heir", WITHDRAWN),
    PREPARED: End("heir", WITHDRAWN),
    SEALED: End("heir", DONE, "heir"),
    TAKEN: End("heir", DONE, "heir"),
    DONE: End("heir", DONE, "new"),
    WITHDRAWN: End("heir", WITHDRAWN),
}
ENDS: Final[Mapping[str, Ends]] = {"old": OLD_GONE, "new": NEW_GONE, "leader": NONE_GONE}


class Player:
    """Somebody who takes part, here or in a process, and what it has told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[dict[str, Any]] = []
        self.peer: PeerProcess | None = None
        self._orders: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def begin(
        self, stack: AsyncExitStack, address: str, cluster: str, lease_s: float, *, is_process: bool
    ) -> None:
        arguments = address, cluster, self.name
        if is_process:
            self.peer = PeerProcess("coordination/placed_peer.py", *arguments, str(lease_s))
            await stack.enter_async_context(self.peer)
            self._task = asyncio.create_task(self._listen(self.peer))
        else:
            self._task = asyncio.create_task(play(*arguments, lease_s, self._tell, self._orders))
        stack.push_async_callback(self._end)

    async def until(self, event: str, entry: HandoverStep | None = None) -> dict[str, Any]:
        """The last event of this kind, of this entry."""
        wanted = event, "" if entry is None else entry.value
        while True:
            found = [one for one in self.told if (one["event"], one["entry"]) == wanted]
            if found:
                return found[-1]
            assert self._task is not None
            assert not self._task.done(), f"{self.name} has ended, and waited for is {wanted}"
            await asyncio.sleep(LOOK_S)

    async def say(self, order: str) -> None:
        if self.peer is None:
            self._orders.put_nowait(order)
        else:
            await self.peer.say(order)

    async def kill(self) -> None:
        assert self.peer is not None
        await self._end()
        await self.peer.kill()

    def _tell(self, event: str, entry: str = "", **found: Any) -> None:
        self.told.append({"event": event, "entry": entry} | found)

    async def _listen(self, peer: PeerProcess) -> None:
        assert peer.process.stdout is not None
        while line := await peer.process.stdout.readline():
            self.told.append(json.loads(line))

    async def _end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait((self._task,))


class Stage:
    """A cluster of its own in a store: three nodes, two who lead, six entries."""

    def __init__(self, stack: AsyncExitStack, store: Store, cluster: str) -> None:
        self._stack = stack
        self._store = store
        self._cluster = cluster
        self._keys = Keys(cluster)
        self._asker = Placer(store, prefix_of(cluster), kind=KIND, guard=None, node="asker", cluster=cluster)
        self.players = {name: Player(name) for name in NAMES}
        self.proxies: dict[str, TcpProxy] = {}
        self.doing = f"{cluster}: all begin"

    async def begin(
        self, address: str, starts: asyncio.Semaphore, *, victim: str = "", short: tuple[str, ...] = ()
    ) -> None:
        """Each entry stands at the step by which it is called. `starts` has few stages begin at one time."""
        async with starts:
            await self._begin(address, victim, short)

    async def _begin(self, address: str, victim: str, short: tuple[str, ...]) -> None:
        for name, player in self.players.items():
            way = await self._stack.enter_async_context(TcpProxy(address.removeprefix("etcd://")))
            self.proxies[name] = way
            reached = f"etcd://{way.endpoint.removeprefix('tcp://')}"
            lease_s = LEASE_S if name in short else LONG_LEASE_S
            await player.begin(self._stack, reached, self._cluster, lease_s, is_process=name == victim)
            await player.until("ready" if name != "leader" else "leads")
        for entry in ENTRIES:
            await self.players["old"].until("owns", entry)
        for entry in OFFERS:
            await self._offer(entry)

    async def _offer(self, entry: HandoverStep) -> None:
        """Ask for one, and wait until it stands."""
        key = prefix_of(self._cluster) + entry.value.encode()
        await again(partial(self._asker.offer, key, "new", timeout=WAIT_S_MAX))
        for name, held in HELD.items():
            if entry.value in held:
                await self.players[name].until("held", entry)
        while (await self.record(entry)).step is not entry:
            await asyncio.sleep(LOOK_S)

    async def open(self, *names: str) -> None:
        """Let what these hold back go on."""
        for name in names:
            await self.players[name].say("open")

    async def gone(self, name: str) -> None:
        """Wait until somebody's lease has ended."""
        if name == "leader":
            await self.players["successor"].until("leads")
        while name in await self._asker.nodes():
            await asyncio.sleep(LOOK_S)

    async def record(self, entry: HandoverStep) -> Handover:
        item = await again(partial(self._store.get, self._keys.handover(KIND, entry.value)))
        assert item is not None
        return Handover.decode(item.value)

    async def ended(self, ends: Ends) -> list[tuple[Handover, Placement]]:
        """Wait until each entry has come to its end, and judge that; gives the records and placements."""
        found = []
        for entry, end in ends.items():
            self.doing = f"{self._cluster}: {entry.value} comes to its end, {end}"
            while (record := await self.record(entry)).is_open or (
                placement := await self._placement(entry)
            ).node != end.owner:
                await asyncio.sleep(LOOK_S)
            self._check(entry, end, record, placement)
            owns = await self.players[end.owner].until("owns", entry)
            assert owns["epoch"] == placement.epoch, (entry, owns, placement)
            before = "" if end.owner == "old" else "new" if end.owner == "heir" and entry is DONE else "old"
            assert owns["before"] == before, (entry, owns)
            found.append((record, placement))
        return found

    async def _placement(self, entry: HandoverStep) -> Placement:
        key = prefix_of(self._cluster) + entry.value.encode()
        item = await again(partial(self._store.get, key))
        assert item is not None
        return Placement.decode(item.value)

    def _check(self, entry: HandoverStep, end: End, record: Handover, placement: Placement) -> None:
        """What, from whom, to whom, who asked, both epochs, each step, and why, if it was withdrawn."""
        assert (record.step, record.number, record.state) == (end.step, 1, b""), record
        assert (record.source, record.target, record.asked_by) == ("old", "new", "asker"), record
        owned = [
            one for one in self.players["old"].told if (one["event"], one["entry"]) == ("owns", entry.value)
        ]
        assert record.epoch == owned[0]["epoch"], record
        if end.step is DONE:
            assert (list(record.times), record.trouble, record.taken_by) == (list(STEPS), "", end.reader), (
                record
            )
            assert record.epoch < record.next_epoch <= placement.epoch, record
            assert end.reader != end.owner or record.next_epoch == placement.epoch, record
        else:
            early = STEPS[: STEPS.index(record.reached) + 1]
            assert (list(record.times), bool(record.trouble)) == ([*early, WITHDRAWN], True), record
            assert entry is WITHDRAWN or entry in early, record
            assert TAKEN not in early, record

    async def judge(self, ends: Ends, living: list[str]) -> None:
        """Only its owner believes to own an entry, and can write; each state has one reader."""
        owners: dict[HandoverStep, list[str]] = {entry: [] for entry in ENTRIES}
        for name in living:
            if name in NODES:
                await self.players[name].say("write")
                wrote = await self.players[name].until("wrote")
                assert wrote["could"] == wrote["held"], (name, wrote)
                for entry, _ in wrote["could"]:
                    owners[HandoverStep(entry)].append(name)
        assert owners == {entry: [end.owner] for entry, end in ends.items()}
        for entry, end in ends.items():
            reads = [
                (name, one["state"])
                for name, player in self.players.items()
                for one in player.told
                if (one["event"], one["entry"]) == ("owns", entry.value) and one["state"]
            ]
            assert reads == ([(end.reader, f"state of {entry.value}")] if end.reader else []), entry


async def strike(address: str, victim: str, how: Harm, starts: asyncio.Semaphore) -> None:
    """One kill, stop or cut of a process; and what is true afterwards."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(address))
        stage = Stage(stack, store, f"{victim}-{how}")
        async with within(WAIT_S_MAX, lambda: stage.doing):
            await stage.begin(address, starts, victim=victim, short=(victim,))
            struck = stage.players[victim]
            assert struck.peer is not None
            struck_s = asyncio.get_running_loop().time()
            match how:
                case Harm.KILL:
                    await struck.kill()
                case Harm.STOP:
                    struck.peer.freeze()
                case Harm.CUT:
                    stage.proxies[victim].hold()
                    await stage.open(victim)
            await stage.gone(victim)
            await stage.open(*(name for name in NAMES if name != victim))
            found = await stage.ended(ENDS[victim])
            living = [name for name in NAMES if name != victim]
            if how is not Harm.KILL:
                await asyncio.sleep(struck_s + STOP_S - asyncio.get_running_loop().time())
                if how is Harm.CUT:
                    stage.proxies[victim].forward()
                else:
                    struck.peer.process.send_signal(signal.SIGCONT)
                    await stage.open(victim)
                for entry in HELD[victim]:
                    late = await struck.until("late", HandoverStep(entry))
                    assert late["outcome"] != "done", (victim, late)
                if victim == "leader":
                    await struck.until("over")
                living.append(victim)
                assert await stage.ended(ENDS[victim]) == found
            await stage.judge(ENDS[victim], living)


async def cut_all(address: str, starts: asyncio.Semaphore) -> None:
    """The ways of all to the store are cut for longer than the leases of both nodes."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(address))
        stage = Stage(stack, store, "store-cut")
        async with within(WAIT_S_MAX, lambda: stage.doing):
            await stage.begin(address, starts, short=("old", "new"))
            for way in stage.proxies.values():
                way.hold()
            await stage.open(*NAMES)
            await asyncio.sleep(STOP_S)
            await stage.gone("old")
            await stage.gone("new")
            for way in stage.proxies.values():
                way.forward()
            await stage.ended(BOTH_GONE)
            await stage.judge(BOTH_GONE, list(NAMES))


async def strike_store(served: StoreProcess, how: Harm, starts: asyncio.Semaphore) -> None:
    """The store is killed and starts again, or it stands still; all leases are longer than that."""
    address = f"etcd://{served.address}"
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(address))
        stage = Stage(stack, store, f"store-{how}")
        async with within(WAIT_S_MAX, lambda: stage.doing):
            await stage.begin(address, starts)
            if how is Harm.KILL:
                served.kill()
            else:
                served.freeze()
            await stage.open(*NAMES)
            await asyncio.sleep(DOWN_S if how is Harm.KILL else STOP_S)
            if how is Harm.KILL:
                await asyncio.to_thread(served.start)
            else:
                served.thaw()
            await stage.ended(NONE_GONE)
            await stage.judge(NONE_GONE, list(NAMES))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[StoreProcess]:
    with StoreProcess(tmp_path) as store:
        yield store


async def test_whoever_is_killed_stopped_or_cut_off_while_a_leader_moves_entries_each_has_one_owner(
    served: StoreProcess,
) -> None:
    starts = asyncio.Semaphore(STARTS_AT_ONCE)
    address = f"etcd://{served.address}"
    async with asyncio.TaskGroup() as runs:
        for victim in ENDS:
            for how in Harm:
                runs.create_task(strike(address, victim, how, starts))
        runs.create_task(cut_all(address, starts))


async def test_a_store_that_is_killed_or_stands_still_while_a_leader_moves_entries_costs_nothing(
    tmp_path: Path,
) -> None:
    starts = asyncio.Semaphore(STARTS_AT_ONCE)
    with StoreProcess(tmp_path / "killed") as killed, StoreProcess(tmp_path / "stopped") as stopped:
        async with asyncio.TaskGroup() as runs:
            runs.create_task(strike_store(killed, Harm.KILL, starts))
            runs.create_task(strike_store(stopped, Harm.STOP, starts))
