"""What a socket tells about its peers."""

import asyncio

import pytest

from hansa.transport import CloseReason, Connected, Disconnected, HandshakeFailed
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane, quick
from tests.support.recorder import Recorder


async def test_both_sides_see_the_coming_and_going_with_id_and_address(lane: Lane) -> None:
    at_hub, at_leaf = Recorder(), Recorder()
    async with lane.router(b"hub", on_event=at_hub) as hub:
        endpoint = str(await hub.bind(lane.endpoint()))
        async with lane.dealer(b"leaf", on_event=at_leaf) as leaf:
            leaf.connect(endpoint)
            came = await at_hub.wait(Connected)
            went_out = await at_leaf.wait(Connected)
            assert (came.peer, came.outbound) == (b"leaf", False)
            assert (went_out.peer, went_out.outbound) == (b"hub", True)
            assert came.address
            assert went_out.address
            if lane.name in ("tcp", "tls"):
                assert went_out.address == endpoint.split("//")[1]
                assert came.address.startswith("127.0.0.1:")
        left = await at_hub.wait(Disconnected)
        assert (left.peer, left.address, left.reason) == (b"leaf", came.address, CloseReason.CLOSED_BY_PEER)
        closed = await at_leaf.wait(Disconnected)
        assert (closed.peer, closed.reason) == (b"hub", CloseReason.CLOSED_BY_US)
        assert at_hub.events == [came, left]
        assert at_leaf.events == [went_out, closed]


async def test_events_can_be_iterated(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        endpoint = await hub.bind(lane.endpoint())
        events = aiter(hub.events())
        raw = await lane.dial_raw(endpoint)
        await raw.shake_hands(b"DEALER", b"raw")
        came = await anext(events)
        assert isinstance(came, Connected)
        assert came.peer == b"raw"
        await raw.close()
        left = await anext(events)
        assert isinstance(left, Disconnected)
        assert left.peer == b"raw"


async def test_events_that_nobody_reads_are_bounded_and_counted(lane: Lane) -> None:
    async with lane.router(b"hub", options=quick(events_count_max=4)) as hub:
        endpoint = await hub.bind(lane.endpoint())
        events = aiter(hub.events())
        for number in range(10):
            raw = await lane.dial_raw(endpoint)
            await raw.shake_hands(b"DEALER", b"%d" % number)
            while not hub.peers:
                await asyncio.sleep(0)
            await raw.close()
            while hub.peers:
                await asyncio.sleep(0)
        kept = [await anext(events) for _ in range(4)]
        assert [event.peer for event in kept] == [b"8", b"8", b"9", b"9"]
        assert hub.stats.events_dropped_count == 16


async def test_an_abrupt_end_is_told_from_an_orderly_one(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        endpoint = await hub.bind(lane.endpoint())
        raw = await lane.dial_raw(endpoint)
        await raw.shake_hands(b"DEALER", b"orderly")
        await seen.wait(Connected)
        await raw.close()
        assert (await seen.wait(Disconnected, peer=b"orderly")).reason == CloseReason.CLOSED_BY_PEER


async def test_messages_in_doubt_are_counted(lane: Lane) -> None:
    """Confirmed by a PONG or in doubt: of what was handed over, exactly the unconfirmed are reported."""
    seen = Recorder()
    options = quick(heartbeat_interval=0.05, heartbeat_timeout=10.0)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        await seen.wait(Connected)
        for number in range(7):
            await hub.send(b"raw", [b"%d" % number])
        for _ in range(7):
            await raw.read_message()
        name, data = await raw.read_command()
        assert name == b"PING"
        raw.send(zmtp.pong(data[2:]) + zmtp.message(b"answered"))
        await hub.recv()
        for number in range(3):
            await hub.send(b"raw", [b"%d" % number])
        for _ in range(3):
            await raw.read_message()
        raw.abort()
        gone = await seen.wait(Disconnected)
        assert (gone.in_doubt_count, gone.unsent_count) == (3, 0)


async def test_unsent_messages_of_a_lost_peer_are_counted(lane: Lane) -> None:
    seen = Recorder()
    count = 600
    async with lane.router(b"hub", on_event=seen, options=quick(heartbeat_interval=None)) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"slow")
        await seen.wait(Connected)
        raw.stop_reading()
        for _ in range(count):
            await hub.send(b"slow", [bytes(64 * 1024)])
        raw.abort()
        gone = await seen.wait(Disconnected)
        assert gone.unsent_count > 0
        assert gone.unsent_count + gone.in_doubt_count == count


async def test_statistics_add_up(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        for number in range(10):
            await leaf.send([b"%d" % number, b"x" * number])
        for _ in range(10):
            await hub.recv()
        await hub.send(b"leaf", [b"thanks"])
        await leaf.recv()
        assert (leaf.stats.sent_count, hub.stats.received_count) == (10, 10)
        assert (hub.stats.sent_count, leaf.stats.received_count) == (1, 1)
        assert (hub.stats.dropped_count, leaf.stats.dropped_count) == (0, 0)
        assert hub.stats.connections_count == 1


async def test_a_failing_event_callback_harms_neither_socket_nor_peer(lane: Lane) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(event: object) -> None:
        raise ValueError(f"cannot bear {event}")

    async with lane.router(b"hub", on_event=fail) as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        await leaf.send([b"1"])
        assert (await hub.recv()).parts == [b"1"]
    assert reported


@pytest.mark.parametrize("reason", [CloseReason.ID_IN_USE])
async def test_a_failed_handshake_names_the_peer_and_where_it_came_from(
    lane: Lane, reason: CloseReason
) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        endpoint = await hub.bind(lane.endpoint())
        first, second = await lane.dial_raw(endpoint), await lane.dial_raw(endpoint)
        await first.shake_hands(b"DEALER", b"one")
        await seen.wait(Connected)
        second.send(zmtp.greeting() + zmtp.ready(b"DEALER", b"one"))
        failed = await seen.wait(HandshakeFailed)
        assert (failed.peer, failed.reason) == (b"one", reason)
        assert failed.address
        assert failed.detail
        assert failed.address != seen.of(Connected)[0].address or lane.name == "ipc"
