"""What the registry's driver owes to its machines: it tells them all, and rings when something is due."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hansa.limits import STRIKES_MAX
from hansa.services.registry import Registry
from hansa.services.registry.server import RegistryRun
from hansa.transport import CloseReason, Disconnected
from hansa.transport.memory_network import MemoryNetwork
from hansa.wire.listing import RegistrySync
from hansa.wire.registry import Heartbeat, encode
from tests.support.lanes import Lane
from tests.support.registry_callers import ANN, HERE, PAY, caller, listener, registry
from tests.support.scripted import until

GONE = Disconnected(
    peer=ANN, address="", reason=CloseReason.CLOSED_BY_PEER, detail="", unsent_count=0, in_doubt_count=0
)
BEAT = encode(Heartbeat(service=PAY, endpoint=HERE))
LIST = encode(RegistrySync(registry_id=9, list_seq=1, services={}))


@pytest.fixture
async def lane(tmp_path: Path) -> AsyncIterator[Lane]:
    lane = Lane(name="inproc", folder=tmp_path, memory=MemoryNetwork())
    yield lane
    await lane.end()


def run_of(one: Registry) -> RegistryRun:
    assert one._run is not None
    return one._run


@pytest.mark.parametrize(
    "happens",
    [
        lambda run: run._on_requests(ANN, [BEAT]),
        lambda run: run._on_provider_event(GONE),
        lambda run: run._on_lists(ANN, [LIST]),
        lambda run: run._on_registry_event(GONE),
        lambda run: run._on_subscription(ANN, b"\x05\x00", True),
    ],
    ids=["a message", "a provider's end", "a list", "a registry's end", "a subscription"],
)
@pytest.mark.parametrize("what", ["a broadcast", "an expiry"])
async def test_whatever_happens_the_timer_rings_when_something_is_due(
    lane: Lane, monkeypatch: pytest.MonkeyPatch, happens: Callable[[RegistryRun], None], what: str
) -> None:
    async with registry(lane) as one:
        run = run_of(one)
        run._arm(run._loop.time())
        soon = run._loop.time() + 1.0
        machine = run.announcer if what == "a broadcast" else run.catalogue
        monkeypatch.setattr(machine, "deadline", lambda: soon)
        # So that somebody new is told the last list rather than a new one.
        run.announcer.latest = run.announcer.latest or run.announcer.announce(now=run._loop.time())
        assert run._timer_at > soon
        happens(run)
        assert run._timer_at == soon


async def test_a_timer_that_rang_is_armed_again_and_one_that_rings_too_late_is_replaced(lane: Lane) -> None:
    async with registry(lane) as one:
        run = run_of(one)
        run._tick()
        first = run._timer
        assert first is not None
        run._timer_at += 1.0
        run._arm(run._loop.time())
        assert first.cancelled()
        assert run._timer is not first


async def test_from_the_start_on_it_looks_at_the_clock_often_enough_to_notice_a_stop(lane: Lane) -> None:
    async with registry(lane) as one:
        run = run_of(one)
        assert run._timer is not None
        assert run._timer_at <= run._loop.time() + run._stopped_s / 2


@pytest.mark.spec("DIS-06")
async def test_who_subscribes_after_a_short_stall_is_not_told_what_expired_meanwhile(lane: Lane) -> None:
    settings: dict[str, Any] = {"heartbeat_interval": 0.1, "heartbeat_timeout": 0.6}
    async with registry(lane, **settings) as one, caller(lane) as ann, listener(lane, b"none") as heard:
        await heard.dial(one.pub)
        await (await ann.dial(one.router)).register()
        await asyncio.sleep(0.3)
        heard.sub.subscribe(b"\x05")
        # Not long enough to count as a stop of the process, and longer than the entry has left.
        time.sleep(0.4)  # noqa: ASYNC251
        assert (await heard.next()).services == {}


@pytest.mark.spec("DIS-11")
async def test_what_is_overdue_after_a_stop_of_the_process_goes_without_a_tombstone(lane: Lane) -> None:
    settings: dict[str, Any] = {"heartbeat_interval": 0.1, "heartbeat_timeout": 0.3}
    async with registry(lane, **settings) as one, caller(lane) as ann:
        await (await ann.dial(one.router)).register()
        time.sleep(0.4)  # noqa: ASYNC251
        await until(lambda: one.stats.direct_count == 0)
        assert one.stats.expired_count == 1
        assert one.stats.tombstones_count == 0
        # Whoever lives has the time to say so before the next list.
        assert run_of(one).announcer.is_held


@pytest.mark.spec("DIS-26")
async def test_a_provider_that_leaves_and_returns_starts_without_strikes(lane: Lane) -> None:
    async with registry(lane) as one:
        for _ in range(2):
            async with caller(lane) as ann:
                await ann.dial(one.router)
                for _ in range(STRIKES_MAX - 1):
                    await ann.dealer.send([b"nonsense"])
                for _ in range(STRIKES_MAX - 1):
                    assert (await ann.answer()).error.startswith("not understood")
            await until(lambda: not run_of(one)._router.peers)
        assert one.stats.expelled_count == 0


async def test_what_was_read_over_a_connection_goes_with_it(lane: Lane) -> None:
    async with registry(lane) as two, registry(lane, peers=[str(two.pub)]) as one:
        await until(lambda: bool(run_of(one)._readers))
        await two.stop()
        await until(lambda: not run_of(one)._readers)


async def test_a_peer_that_only_talks_nonsense_is_sent_away(lane: Lane) -> None:
    async with registry(lane) as one, caller(lane) as ann:
        await ann.dial(one.router)
        for _ in range(STRIKES_MAX):
            await ann.dealer.send([b"nonsense"])
        await until(lambda: one.stats.ended.get(CloseReason.PROTOCOL_VIOLATION) == 1)
        assert one.stats.expelled_count == 1


async def test_a_registry_begins_by_settling_and_follows_who_is_added_while_it_runs(lane: Lane) -> None:
    async with registry(lane) as one, registry(lane) as two, listener(lane) as heard:
        assert (await (await heard.dial(one.pub)).next()).is_settling
        one.add_peer(str(two.pub))
        await until(lambda: one.peers_heard == (two.registry_id,))


async def test_the_last_counts_stay_after_the_stop_and_have_what_the_stop_ended(lane: Lane) -> None:
    one = registry(lane)
    async with caller(lane) as ann:
        async with one:
            await (await ann.dial(one.router)).register()
        assert one.stats.registered_count == 1
        assert sum(one.stats.ended.values()) == 1
