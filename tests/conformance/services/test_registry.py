"""The registry on real sockets and in memory: its life, its answers, its lists."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hansa.clock import ManualClock
from hansa.errors import AddressInUse, BadArgument, BadEndpoint, UsageError
from hansa.limits import STRIKES_MAX
from hansa.transport.memory_network import MemoryNetwork
from hansa.wire.listing import RegistrySync, ServiceList
from hansa.wire.registry import AckStatus, Register
from tests.support.lanes import Lane
from tests.support.leftovers import alive
from tests.support.registry_callers import (
    ANN,
    BOB,
    HERE,
    PAY,
    THERE,
    caller,
    listener,
    registry,
)


@pytest.fixture(params=["tcp", "inproc"])
async def lane(request: pytest.FixtureRequest, socket_folder: Path) -> AsyncIterator[Lane]:
    """Sockets are proved on all transports elsewhere; two are enough here."""
    memory = MemoryNetwork() if request.param == "inproc" else None
    lane = Lane(name=request.param, folder=socket_folder, memory=memory)
    yield lane
    await lane.end()


# ---- life -----------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-01")
async def test_leaving_the_block_leaves_nothing(lane: Lane) -> None:
    await a_whole_life(lane)  # What a loop makes for its first connections stays.
    before = alive()
    await a_whole_life(lane)
    assert alive() == before


async def a_whole_life(lane: Lane) -> None:
    """Two registries, a provider and a listener come and go."""
    async with (
        registry(lane) as one,
        registry(lane, peers=[str(one.pub)]) as two,
        caller(lane) as ann,
        listener(lane) as heard,
    ):
        await heard.dial(two.pub)
        await (await ann.dial(one.router)).register()
        await heard.until_endpoints(HERE)


@pytest.mark.spec("DIS-01")
async def test_a_stopped_registry_starts_again_empty_on_the_same_ports(lane: Lane) -> None:
    one = registry(lane)
    assert not one.is_running
    await one.start()
    assert one.is_running
    pub, router = one.pub, one.router
    async with caller(lane) as ann:
        await (await ann.dial(router)).register()
        assert list(one.services) == [PAY]
        await one.stop()
        assert not one.is_running
        assert one.services == {}
        assert one.stats.registered_count == 1
        await one.stop()
    # The ports are free: somebody else may have them.
    async with registry(lane, str(pub), str(router)) as other:
        assert (other.pub, other.router) == (pub, router)
    await one.start()
    try:
        assert one.services == {}
        assert one.stats.registered_count == 0
        async with caller(lane) as ann:
            assert (await (await ann.dial(one.router)).register()).status is AckStatus.OK
    finally:
        await one.stop()


@pytest.mark.spec("DIS-01")
async def test_when_the_second_port_is_taken_the_first_is_freed(lane: Lane) -> None:
    async with registry(lane) as one, registry(lane) as placeholder:
        pub = str(placeholder.pub)
        await placeholder.stop()
        broken = registry(lane, pub, str(one.router))
        with pytest.raises(AddressInUse):
            await broken.start()
        assert not broken.is_running
        async with registry(lane, pub):
            pass


@pytest.mark.spec("DIS-01")
async def test_starting_twice_is_an_error_and_harms_nothing(lane: Lane) -> None:
    async with registry(lane) as one, caller(lane) as ann:
        with pytest.raises(UsageError, match="running already"):
            await one.start()
        assert (await (await ann.dial(one.router)).register()).status is AckStatus.OK


async def test_starts_and_stops_at_once_take_their_turns(lane: Lane) -> None:
    before = alive()
    one = registry(lane)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            await asyncio.sleep(0)
            group.create_task(one.start())
            group.create_task(one.stop())
    assert not one.is_running
    assert alive() == before


async def test_a_cancelled_start_leaves_nothing(lane: Lane) -> None:
    before = alive()
    one = registry(lane)
    for steps in range(4):
        start = asyncio.get_running_loop().create_task(one.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        start.cancel()
        await asyncio.wait([start])
        await one.stop()
        await asyncio.sleep(0)
        assert not one.is_running
    del start
    assert alive() == before


@pytest.mark.spec("DIS-02")
async def test_the_id_is_drawn_at_each_start_unless_it_is_given(lane: Lane) -> None:
    drawn = registry(lane)
    seen = set()
    for _ in range(3):
        async with drawn:
            seen.add(drawn.registry_id)
            assert 0 <= drawn.registry_id <= 0xFFFF_FFFF
    assert len(seen) == 3
    given = registry(lane, registry_id=77)
    assert given.registry_id == 77
    async with given, listener(lane) as heard:
        await heard.dial(given.pub)
        assert (await heard.next()).registry_id == 77


@pytest.mark.spec("DIS-02")
@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"registry_id": -1}, BadArgument),
        ({"registry_id": 1 << 32}, BadArgument),
        ({"heartbeat_interval": 0.0}, BadArgument),
        ({"broadcast_interval": -1.0}, BadArgument),
        ({"heartbeat_interval": 5.0, "heartbeat_timeout": 4.0}, BadArgument),
        ({"heartbeat_interval": 4.0, "heartbeat_timeout": 4.0}, BadArgument),
        ({"heartbeat_timeout": float("nan")}, BadArgument),
        ({"peers": ["tcp://*:5550"]}, BadEndpoint),
        ({"peers": ["nonsense"]}, BadEndpoint),
        ({"pub": "nonsense"}, BadEndpoint),
        ({"router": "nonsense"}, BadEndpoint),
    ],
)
async def test_what_cannot_be_is_refused_at_once(
    lane: Lane, settings: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        registry(lane, **settings)


# ---- providers ------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-03")
@pytest.mark.spec("DIS-04")
@pytest.mark.spec("DIS-05")
@pytest.mark.spec("DIS-08")
@pytest.mark.spec("DIS-09")
async def test_every_change_is_answered_and_told(lane: Lane) -> None:
    async with registry(lane) as one, caller(lane) as ann, listener(lane) as heard:
        await heard.dial(one.pub)
        assert (await heard.next()).services == {}
        await ann.dial(one.router)
        ack = await ann.register("TCP://10.0.0.1:5000", weight=2)
        assert (ack.status, ack.endpoint) == (AckStatus.OK, HERE)
        told = await heard.until_endpoints(HERE)
        (entry,) = told.services[PAY]
        assert (entry.routing_id, entry.weight) == (ANN, 2)
        assert (await ann.reweigh(7)).status is AckStatus.OK
        told = await heard.until(lambda found: found.services[PAY][0].weight == 7)
        assert len(told.services[PAY]) == 1
        assert (await ann.reweigh(0)).status is AckStatus.OK
        await heard.until(lambda found: found.services[PAY][0].weight == 1)
        assert await ann.unregister() is AckStatus.OK
        told = await heard.until_endpoints()
        assert told.services == {}
        assert [stone.endpoint for stone in told.tombstones] == [HERE]
        assert all(isinstance(found, ServiceList) for found in heard.lists)


@pytest.mark.spec("DIS-04")
async def test_what_is_wrong_with_a_registration_is_said_in_words(lane: Lane) -> None:
    async with registry(lane) as one, caller(lane) as ann, caller(lane, BOB) as bob:
        await ann.dial(one.router)
        await bob.dial(one.router)
        bad = await ann.register("tcp://*:1")
        assert bad.status is AckStatus.BAD_ENDPOINT
        assert "advertise the host and port" in bad.error
        await ann.register()
        twice = await bob.register()
        assert twice.status is AckStatus.DUPLICATE
        assert "01:0000000a" in twice.error
        other = await bob.reweigh(3)
        assert other.status is AckStatus.OTHER
        assert other.error.startswith("not registered")
        stats = one.stats
        assert (stats.refused_count, stats.duplicates_count, stats.direct_count) == (1, 1, 1)


@pytest.mark.spec("DIS-08")
async def test_a_weight_for_nobody_is_not_told(lane: Lane) -> None:
    async with registry(lane) as one, caller(lane) as ann, listener(lane) as heard:
        await heard.dial(one.pub)
        await ann.dial(one.router)
        await ann.register()
        await heard.until_endpoints(HERE)
        before = one.stats.broadcasts_count
        await ann.reweigh(9, THERE)
        await ann.register(THERE)
        told = await heard.until_endpoints(HERE, THERE)
        assert told.list_seq == heard.lists[-2].list_seq + 1
        assert one.stats.broadcasts_count == before + 1


@pytest.mark.spec("DIS-06")
async def test_a_silent_provider_is_removed_and_that_is_told(lane: Lane) -> None:
    settings: dict[str, Any] = {"heartbeat_interval": 0.05, "heartbeat_timeout": 0.15}
    async with registry(lane, **settings) as one, caller(lane) as ann, listener(lane) as heard:
        await heard.dial(one.pub)
        await ann.dial(one.router)
        began = asyncio.get_running_loop().time()
        await ann.register()
        await heard.until_endpoints(HERE)
        await heard.until_endpoints()
        assert asyncio.get_running_loop().time() - began > 0.149
        assert one.stats.expired_count == 1
        await ann.beat()
        assert (await ann.answer()).error.startswith("not registered")
        assert (await ann.register()).status is AckStatus.OK


@pytest.mark.spec("DIS-07")
async def test_a_restarted_registry_tells_a_provider_that_it_is_not_registered(lane: Lane) -> None:
    one = registry(lane, lane.endpoint(), lane.endpoint())
    async with one, caller(lane) as ann:
        router = one.router
        await ann.dial(router)
        await ann.register()
        await one.stop()
        async with registry(lane, router=str(router)) as again:
            await ann.beat()
            ack = await ann.answer()
            assert (ack.status, ack.endpoint) == (AckStatus.OTHER, HERE)
            assert ack.error.startswith("not registered")
            assert (await ann.register()).status is AckStatus.OK
            assert list(again.services) == [PAY]


@pytest.mark.spec("DIS-03")
async def test_a_provider_that_comes_back_over_a_new_connection_gets_in_under_its_id(lane: Lane) -> None:
    async with registry(lane) as one, caller(lane) as ann, caller(lane) as again:
        await ann.dial(one.router)
        await ann.register()
        await again.dial(one.router)
        await again.beat()
        assert (await again.reweigh(3)).status is AckStatus.OK
        assert [info.weight for info in one.services[PAY]] == [3]


@pytest.mark.spec("DIS-03")
async def test_a_restarted_provider_takes_its_endpoint_back_at_once(lane: Lane) -> None:
    async with registry(lane) as one, caller(lane, BOB) as bob:
        async with caller(lane) as ann:
            await ann.dial(one.router)
            await ann.register()
        await bob.dial(one.router)
        assert (await bob.register()).status is AckStatus.OK
        assert [info.routing_id for info in one.services[PAY]] == [BOB]


# ---- lists ----------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-09")
async def test_the_list_is_repeated_every_interval(lane: Lane) -> None:
    async with registry(lane, broadcast_interval=0.05) as one, listener(lane) as heard:
        await heard.dial(one.pub)
        lists = [await heard.next() for _ in range(4)]
        numbers = [found.list_seq for found in lists]
        assert numbers == list(range(numbers[0], numbers[0] + 4))


@pytest.mark.spec("DIS-09")
async def test_a_newcomer_is_told_at_once_what_the_others_know(lane: Lane) -> None:
    async with registry(lane) as one, caller(lane) as ann, listener(lane) as first:
        await first.dial(one.pub)
        await ann.dial(one.router)
        await ann.register()
        known = await first.until_endpoints(HERE)
        count = one.stats.broadcasts_count
        async with listener(lane) as second, listener(lane, b"\x06\x00") as peer, listener(lane, b"") as both:
            assert await (await second.dial(one.pub)).next() == known
            synced = await (await peer.dial(one.pub)).next()
            assert isinstance(synced, RegistrySync)
            assert synced.list_seq == known.list_seq
            kinds = {type(await (await both.dial(one.pub)).next()), type(await both.next())}
            assert kinds == {ServiceList, RegistrySync}
        assert one.stats.broadcasts_count == count


@pytest.mark.spec("DIS-06")
async def test_who_asks_while_the_process_is_stopped_is_told_nothing_stale(lane: Lane) -> None:
    settings: dict[str, Any] = {"heartbeat_interval": 0.1, "heartbeat_timeout": 0.3}
    async with registry(lane, **settings) as one, caller(lane) as ann, listener(lane) as heard:
        await heard.dial(one.pub)
        await ann.dial(one.router)
        await ann.register()
        await heard.until_endpoints(HERE)
        heard.sub.subscribe(b"\x05")
        # Nothing runs for longer than the timeout; what arrived meanwhile is read before any timer rings.
        time.sleep(0.4)  # noqa: ASYNC251
        assert (await heard.next()).services == {}


@pytest.mark.spec("DIS-32")
async def test_a_provider_beyond_its_share_is_told_so_and_stays_connected(lane: Lane) -> None:
    async with registry(lane, provider_entries_max=2) as one, caller(lane) as ann, caller(lane, BOB) as bob:
        await ann.dial(one.router)
        await bob.dial(one.router)
        answers = [await ann.register(service=f"s{number}") for number in range(STRIKES_MAX + 10)]
        assert [ack.status for ack in answers[:3]] == [AckStatus.OK, AckStatus.OK, AckStatus.OTHER]
        assert "has 2 entries" in answers[-1].error
        assert (await bob.register(endpoint=THERE)).status is AckStatus.OK
        assert one.stats.beyond_share_count == STRIKES_MAX + 8
        assert one.stats.direct_count == 3
        assert one.stats.expelled_count == 0
    with pytest.raises(BadArgument, match="provider_entries_max is 0"):
        registry(lane, provider_entries_max=0)


@pytest.mark.spec("DIS-09")
async def test_a_burst_of_registrations_is_told_in_few_lists(lane: Lane) -> None:
    async with registry(lane) as one, caller(lane) as ann, listener(lane) as heard:
        await heard.dial(one.pub)
        await ann.dial(one.router)
        for number in range(500):
            await ann.say(Register(service=f"s{number}", endpoint=HERE))
        told = await heard.until(lambda found: len(found.services) == 500)
        assert sum(len(entries) for entries in told.services.values()) == 500
        assert one.stats.broadcasts_count < 50
        assert one.stats.broadcast_bytes_count > 500 * 40


@pytest.mark.spec("DIS-10")
async def test_a_restart_under_the_same_id_goes_on_with_higher_numbers(lane: Lane) -> None:
    clock = ManualClock()
    one = registry(lane, registry_id=5, clock=clock)
    numbers = []
    for _ in range(3):
        async with one, listener(lane) as heard:
            await heard.dial(one.pub)
            numbers.append((await heard.next()).list_seq)
    # Within one millisecond of its clock, and even so after what it said before.
    assert numbers == sorted(set(numbers))
    assert numbers[0] > int(clock.wall() * 1000) << 16
