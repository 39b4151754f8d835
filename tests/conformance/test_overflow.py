"""Full buffers: who waits, who fails, what is dropped, and that each is exact."""

import asyncio

import pytest

from hansa.errors import Backlogged
from hansa.transport import Connected, Dealer, Message, Overflow, Router
from tests.support.lanes import Lane, quick
from tests.support.raw_peer import RawPeer
from tests.support.recorder import Recorder

KIB = 1024
BLOCK_BYTES = 16 * KIB
# More than the kernel takes for one connection, so that the rest must stand with us.
FLOOD_COUNT = 2_000


def numbered(number: int) -> list[bytes]:
    """A message that carries its number and some weight."""
    return [b"%d" % number, bytes(BLOCK_BYTES)]


async def hub_and_stalled_peer(lane: Lane, hub: Router, seen: Recorder) -> RawPeer:
    """A peer that shakes hands and then reads nothing."""
    raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
    await raw.shake_hands(b"DEALER", b"slow")
    await seen.wait(Connected, peer=b"slow")
    raw.stop_reading()
    return raw


async def test_block_waits_and_resumes_without_loss(lane: Lane) -> None:
    seen = Recorder()
    options = quick(outgoing_bytes_max=256 * KIB, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await hub_and_stalled_peer(lane, hub, seen)

        async def flood() -> None:
            for number in range(FLOOD_COUNT):
                await hub.send(b"slow", numbered(number))

        flooding = asyncio.ensure_future(flood())
        done, _ = await asyncio.wait({flooding}, timeout=0.2)
        assert not done, "32 MiB cannot have fitted into a buffer of 256 KiB"
        with pytest.raises(Backlogged):
            hub.post(b"slow", numbered(0))
        raw.go_on_reading()
        for number in range(FLOOD_COUNT):
            assert (await raw.read_message())[0] == b"%d" % number
        await flooding
        assert hub.stats.dropped_count == 0


async def test_blocked_senders_go_on_in_the_order_they_came(lane: Lane) -> None:
    count = 500
    seen = Recorder()
    options = quick(outgoing_bytes_max=64 * KIB, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await hub_and_stalled_peer(lane, hub, seen)
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(hub.send(b"slow", numbered(number)), name=f"sender {number}")
            await asyncio.sleep(0)
            raw.go_on_reading()
            for number in range(count):
                assert (await raw.read_message())[0] == b"%d" % number


async def test_a_blocked_sender_does_not_block_messages_to_others(lane: Lane) -> None:
    seen = Recorder()
    options = quick(outgoing_bytes_max=64 * KIB, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub, lane.dealer(b"quick") as other:
        raw = await hub_and_stalled_peer(lane, hub, seen)
        other.connect(str(await hub.bind(lane.endpoint())))
        await seen.wait(Connected, peer=b"quick")

        async def flood() -> None:
            for number in range(FLOOD_COUNT):
                await hub.send(b"slow", numbered(number))

        flooding = asyncio.ensure_future(flood())
        for number in range(1_000):
            await hub.send(b"quick", [b"%d" % number])
            assert await other.recv() == Message(b"hub", [b"%d" % number])
        assert not flooding.done()
        raw.go_on_reading()
        for _ in range(FLOOD_COUNT):
            await raw.read_message()
        await flooding


async def test_fail_raises_and_keeps_what_was_accepted(lane: Lane) -> None:
    seen = Recorder()
    options = quick(outgoing_bytes_max=256 * KIB, overflow=Overflow.FAIL, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await hub_and_stalled_peer(lane, hub, seen)
        accepted = 0
        with pytest.raises(Backlogged):
            while accepted < FLOOD_COUNT:
                await hub.send(b"slow", numbered(accepted))
                accepted += 1
        assert 256 * KIB // (BLOCK_BYTES + 100) <= accepted < FLOOD_COUNT
        raw.go_on_reading()
        for number in range(accepted):
            assert (await raw.read_message())[0] == b"%d" % number
        await hub.send(b"slow", [b"room again"])
        assert await raw.read_message() == [b"room again"]


async def test_the_bound_in_messages_counts_too(lane: Lane) -> None:
    seen = Recorder()
    options = quick(outgoing_count_max=100, overflow=Overflow.FAIL)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await hub_and_stalled_peer(lane, hub, seen)
        for number in range(100):
            hub.post(b"slow", [b"%d" % number])
        with pytest.raises(Backlogged):
            hub.post(b"slow", [b"one too many"])
        raw.go_on_reading()
        for number in range(100):
            assert await raw.read_message() == [b"%d" % number]


@pytest.mark.parametrize("way", ["send", "post"])
async def test_drop_counts_exactly_what_did_not_leave(lane: Lane, way: str) -> None:
    seen = Recorder()
    options = quick(outgoing_bytes_max=256 * KIB, overflow=Overflow.DROP, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await hub_and_stalled_peer(lane, hub, seen)
        for number in range(FLOOD_COUNT):
            if way == "send":
                await hub.send(b"slow", numbered(number))
            else:
                hub.post(b"slow", numbered(number))
        dropped = hub.stats.dropped_count
        assert 0 < dropped < FLOOD_COUNT
        raw.go_on_reading()
        arrived = [int((await raw.read_message())[0]) for _ in range(FLOOD_COUNT - dropped)]
        assert arrived == sorted(set(arrived))
        await hub.send(b"slow", [b"end"])
        assert await raw.read_message() == [b"end"]
        assert hub.stats.dropped_count == dropped


@pytest.mark.parametrize("bound", [{"incoming_count_max": 10}, {"incoming_bytes_max": 256 * KIB}])
async def test_a_full_inbox_holds_the_sender_back_and_loses_nothing(
    lane: Lane, bound: dict[str, int]
) -> None:
    options = quick(outgoing_bytes_max=256 * KIB)
    async with (
        lane.router(b"hub", options=quick(**bound)) as hub,
        lane.dealer(b"leaf", options=options) as leaf,
    ):
        leaf.connect(str(await hub.bind(lane.endpoint())))

        async def flood() -> None:
            for number in range(FLOOD_COUNT):
                await leaf.send(numbered(number))

        flooding = asyncio.ensure_future(flood())
        done, _ = await asyncio.wait({flooding}, timeout=0.2)
        assert not done, "32 MiB cannot have fitted into the inbox"
        for number in range(FLOOD_COUNT):
            got = await hub.recv()
            assert got.parts[0] == b"%d" % number
        await flooding


async def test_a_full_inbox_of_tiny_messages_loses_nothing(lane: Lane) -> None:
    count = 20_000
    async with (
        lane.router(b"hub", options=quick(incoming_count_max=7)) as hub,
        lane.dealer(b"leaf") as leaf,
    ):
        leaf.connect(str(await hub.bind(lane.endpoint())))
        async with asyncio.TaskGroup() as group:

            async def flood() -> None:
                for number in range(count):
                    await leaf.send([b"%d" % number])

            group.create_task(flood(), name="flood")
            for number in range(count):
                assert (await hub.recv()).parts == [b"%d" % number]


async def test_a_full_inbox_does_not_starve_one_peer_for_another(lane: Lane) -> None:
    count = 300
    async with lane.router(b"hub", options=quick(incoming_count_max=5)) as hub:
        endpoint = str(await hub.bind(lane.endpoint()))
        async with lane.dealer(b"a") as a, lane.dealer(b"b") as b:
            a.connect(endpoint)
            b.connect(endpoint)
            async with asyncio.TaskGroup() as group:
                for leaf in (a, b):

                    async def flood(sender: Dealer = leaf) -> None:
                        for number in range(count):
                            await sender.send([b"%d" % number, bytes(1000)])

                    group.create_task(flood(), name="flood")
                numbers: dict[bytes, list[int]] = {b"a": [], b"b": []}
                for _ in range(2 * count):
                    got = await hub.recv()
                    numbers[got.peer].append(int(got.parts[0]))
            assert numbers == {b"a": list(range(count)), b"b": list(range(count))}


async def test_a_slow_subscriber_slows_nobody_and_its_drops_are_counted(lane: Lane) -> None:
    seen = Recorder()
    options = quick(outgoing_bytes_max=256 * KIB, heartbeat_interval=None)
    async with lane.pub(on_event=seen, options=options) as pub, lane.sub() as quick_sub:
        endpoint = await pub.bind(lane.endpoint())
        slow = await lane.dial_raw(endpoint)
        await slow.shake_hands(b"SUB", b"slow")
        slow.send(b"\x04\x0a\x09SUBSCRIBE")
        quick_sub.subscribe(b"")
        quick_sub.connect(str(endpoint))
        await seen.wait(Connected, count=2)
        while pub.post([b"warm-up"]) < 2:
            await asyncio.sleep(0)
        await quick_sub.recv()
        slow.stop_reading()
        deliveries = 0
        for number in range(FLOOD_COUNT):
            deliveries += await pub.send(numbered(number))
            while (got := await quick_sub.recv()).parts == [b"warm-up"]:
                pass
            assert got.parts[0] == b"%d" % number  # each one, as soon as it was published
        dropped = pub.stats.dropped_count
        assert 0 < dropped < FLOOD_COUNT
        assert deliveries == 2 * FLOOD_COUNT - dropped
        slow.go_on_reading()
        arrived: list[int] = []
        while len(arrived) < FLOOD_COUNT - dropped:
            parts = await slow.read_message()
            if parts != [b"warm-up"]:
                arrived.append(int(parts[0]))
        assert arrived == sorted(set(arrived))
        assert await pub.send([b"end"]) == 2
        assert await slow.read_message() == [b"end"]
