"""Leaving the block: everything is gone, and what was accepted has left."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import pytest

from hansa.errors import AlreadyClosed, Unavailable
from hansa.transport import CloseReason, Connected, Disconnected, Message
from tests.support.lanes import Lane, quick
from tests.support.leftovers import alive
from tests.support.recorder import Recorder

PATIENT = quick(linger=8.0)

Scenario = Callable[[Lane], Awaitable[None]]


async def a_conversation(lane: Lane) -> None:
    """Two peers talk and leave in order."""
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        await leaf.send([b"hello"])
        await hub.recv()
        await hub.send(b"leaf", [b"bye"])
        await leaf.recv()


async def the_bound_side_leaves_first(lane: Lane) -> None:
    """The dialling side is left redialling, then closes."""
    seen = Recorder()
    async with lane.dealer(b"leaf", on_event=seen) as leaf:
        async with lane.router(b"hub") as hub:
            await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
        await seen.wait(Disconnected)


async def an_error_in_the_block(lane: Lane) -> None:
    """The block ends with an exception."""
    with pytest.raises(ZeroDivisionError):
        async with lane.router(b"hub") as hub, lane.router(b"leaf") as leaf:
            await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
            raise ZeroDivisionError


async def closed_while_dialling(lane: Lane) -> None:
    """Nobody ever listened."""
    async with lane.dealer(b"leaf", options=quick(away="wait")) as leaf:
        async with lane.router() as placeholder:
            endpoint = str(await placeholder.bind(lane.endpoint()))
        leaf.connect(endpoint)
        await asyncio.sleep(0)


async def closed_during_handshakes(lane: Lane) -> None:
    """Peers that have not finished shaking hands, on both sides."""
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.read(64)
        listener = await lane.listen_raw()
        leaf.connect(listener.endpoint)
        accepted = await listener.accept()
        await accepted.read(64)
    await raw.lost
    await accepted.lost
    await listener.close()


async def a_stalled_peer(lane: Lane) -> None:
    """A peer that reads nothing while much waits for it: given up after the linger time."""
    seen = Recorder()
    options = quick(linger=0.1, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"slow")
        await seen.wait(Connected)
        raw.stop_reading()
        for _ in range(500):
            hub.post(b"slow", [bytes(64 * 1024)])
    raw.abort()
    await raw.lost


async def cancelled_while_it_lingers(lane: Lane) -> None:
    """Whoever closes loses patience: then it ends at once, and just as completely."""
    seen = Recorder()
    options = quick(linger=60.0, heartbeat_interval=None)
    hub = lane.router(b"hub", on_event=seen, options=options)
    raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
    await raw.shake_hands(b"DEALER", b"slow")
    await seen.wait(Connected)
    raw.stop_reading()
    for _ in range(500):
        hub.post(b"slow", [bytes(64 * 1024)])
    closing = asyncio.ensure_future(hub.close())
    await asyncio.wait({closing}, timeout=0.05)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()
    raw.abort()
    await raw.lost


async def publishing(lane: Lane) -> None:
    """A publisher with subscribers."""
    async with lane.pub() as pub, lane.sub() as one, lane.sub() as two:
        endpoint = str(await pub.bind(lane.endpoint()))
        for sub in (one, two):
            sub.subscribe(b"")
            sub.connect(endpoint)
        while pub.post([b"news"]) < 2:
            await asyncio.sleep(0)
        await one.recv()


async def everything_left_to_the_block(lane: Lane) -> None:
    """Tasks that wait inside a socket when it closes."""
    async with lane.router(b"hub") as hub:
        await hub.bind(lane.endpoint())
        waiting = asyncio.ensure_future(hub.recv())
        listening = asyncio.ensure_future(anext(aiter(hub.events())))
        await asyncio.sleep(0)
    await asyncio.wait({waiting, listening})
    assert isinstance(waiting.exception(), AlreadyClosed)
    listening.exception()


async def accepted_at_the_last_moment(lane: Lane) -> None:
    """A connection on its way in while the socket closes, caught at every turn of the loop."""
    for turns in range(12):
        async with lane.router(b"hub") as hub:
            dialling = asyncio.ensure_future(lane.dial_raw(await hub.bind(lane.endpoint())))
            for _ in range(turns):
                await asyncio.sleep(0)
        with contextlib.suppress(OSError, Unavailable):
            await (await dialling).lost


async def dialled_at_the_last_moment(lane: Lane) -> None:
    """The same for a connection on its way out."""
    listener = await lane.listen_raw()
    for turns in range(12):
        async with lane.dealer(b"leaf") as leaf:
            leaf.connect(listener.endpoint)
            for _ in range(turns):
                await asyncio.sleep(0)
    await listener.close()
    await settled()
    for raw in listener.accepted:
        if raw.made.done():
            await raw.lost


SCENARIOS = [
    accepted_at_the_last_moment,
    dialled_at_the_last_moment,
    a_conversation,
    the_bound_side_leaves_first,
    an_error_in_the_block,
    closed_while_dialling,
    closed_during_handshakes,
    a_stalled_peer,
    cancelled_while_it_lingers,
    publishing,
    everything_left_to_the_block,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_nothing_is_left_alive(lane: Lane, scenario: Scenario) -> None:
    await scenario(lane)  # once for what loops and libraries make on first use
    await settled()
    before = alive()
    await scenario(lane)
    await settled()
    after = alive()
    assert after.tasks == before.tasks
    assert after.timers == before.timers
    assert after.threads == before.threads
    assert len(after.descriptors) == len(before.descriptors), after.descriptors ^ before.descriptors


async def settled() -> None:
    """Let the raw peers of a scenario, which are ours, see their ends."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_closing_flushes_what_was_accepted(lane: Lane) -> None:
    count = 2_000
    async with lane.router(b"hub") as hub:
        async with lane.dealer(b"leaf", options=PATIENT) as leaf:
            await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
            for number in range(count):
                leaf.post([b"%d" % number, bytes(1000)])
        for number in range(count):
            assert (await hub.recv()).parts[0] == b"%d" % number


async def test_closing_flushes_large_messages(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        async with lane.dealer(b"leaf", options=PATIENT) as leaf:
            await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
            leaf.post([bytes(8 * 1024 * 1024)])
        assert [len(part) for part in (await hub.recv()).parts] == [8 * 1024 * 1024]


async def test_closing_one_connection_flushes_it(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf", options=PATIENT) as leaf:
        outbound = leaf.connect(str(await hub.bind(lane.endpoint())))
        await outbound.up()
        for number in range(1_000):
            leaf.post([b"%d" % number, bytes(1000)])
        await outbound.close()
        for number in range(1_000):
            assert (await hub.recv()).parts[0] == b"%d" % number


async def test_closing_waits_no_longer_than_the_linger_time_and_says_what_was_lost(lane: Lane) -> None:
    seen = Recorder()
    count = 600
    options = quick(linger=0.2, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"slow")
        await seen.wait(Connected)
        raw.stop_reading()
        for _ in range(count):
            hub.post(b"slow", [bytes(64 * 1024)])
        began = time.monotonic()
    assert time.monotonic() - began < 2.0
    gone = await seen.wait(Disconnected, peer=b"slow")
    assert gone.reason == CloseReason.CLOSED_BY_US
    assert gone.unsent_count > 0
    assert gone.unsent_count + gone.in_doubt_count == count


async def test_closing_with_nothing_to_flush_does_not_linger(lane: Lane) -> None:
    began = time.monotonic()
    async with lane.router(b"hub", options=quick(linger=20.0)) as hub, lane.dealer(b"leaf") as leaf:
        await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
    assert time.monotonic() - began < 5.0


async def test_the_peer_sees_an_orderly_end(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        async with lane.dealer(b"leaf") as leaf:
            await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
            await seen.wait(Connected)
        gone = await seen.wait(Disconnected)
        assert gone.reason == CloseReason.CLOSED_BY_PEER


async def test_a_closed_socket_says_so(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        endpoint = await hub.bind(lane.endpoint())
        await leaf.connect(str(endpoint)).up()
    with pytest.raises(AlreadyClosed):
        await hub.bind(lane.endpoint())
    with pytest.raises(AlreadyClosed):
        hub.connect(str(endpoint))
    with pytest.raises(AlreadyClosed):
        await hub.recv()
    with pytest.raises(AlreadyClosed):
        hub.recv_nowait()
    with pytest.raises(AlreadyClosed):
        await leaf.send([b"x"])
    with pytest.raises(AlreadyClosed):
        leaf.post([b"x"])
    with pytest.raises(AlreadyClosed):
        await hub.send(b"leaf", [b"x"])


async def test_what_had_arrived_can_still_be_taken_after_the_end(lane: Lane) -> None:
    async with lane.dealer(b"leaf") as leaf:
        async with lane.router(b"hub") as hub:
            await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
            await leaf.send([b"1"])
            await leaf.send([b"2"])
            assert await hub.recv() == Message(b"leaf", [b"1"])
        assert await hub.recv() == Message(b"leaf", [b"2"])
        with pytest.raises(AlreadyClosed):
            await hub.recv()


async def test_iteration_ends_with_the_socket(lane: Lane) -> None:
    got: list[Message] = []

    async def collect() -> None:
        async for message in hub:
            got.append(message)

    async with lane.router(b"hub") as hub:
        endpoint = str(await hub.bind(lane.endpoint()))
        collecting = asyncio.ensure_future(collect())
        async with lane.dealer(b"leaf", options=PATIENT) as leaf:
            leaf.connect(endpoint)
            await leaf.send([b"1"])
    await collecting
    assert got == [Message(b"leaf", [b"1"])]


async def test_a_blocked_sender_is_told_when_the_socket_closes(lane: Lane) -> None:
    seen = Recorder()
    options = quick(outgoing_bytes_max=64 * 1024, linger=0.05, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"slow")
        await seen.wait(Connected)
        raw.stop_reading()

        async def flood() -> None:
            while True:
                await hub.send(b"slow", [bytes(16 * 1024)])

        flooding = asyncio.ensure_future(flood())
        await asyncio.wait({flooding}, timeout=0.1)
    with pytest.raises(AlreadyClosed):
        await flooding


async def test_a_blocked_sender_is_told_when_the_peer_goes(lane: Lane) -> None:
    seen = Recorder()
    options = quick(outgoing_bytes_max=64 * 1024, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"slow")
        await seen.wait(Connected)
        raw.stop_reading()

        async def flood() -> None:
            while True:
                await hub.send(b"slow", [bytes(16 * 1024)])

        flooding = asyncio.ensure_future(flood())
        await asyncio.wait({flooding}, timeout=0.1)
        raw.abort()
        await seen.wait(Disconnected)
        with pytest.raises(Unavailable):
            await flooding


async def test_a_socket_closes_only_once_and_from_inside_too(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        await hub.bind(lane.endpoint())
        await hub.close()
        await hub.close()
    with pytest.raises(AlreadyClosed):
        await hub.recv()


async def test_whoever_closes_second_waits_for_the_end_too(lane: Lane) -> None:
    seen = Recorder()
    hub = lane.router(b"hub", on_event=seen, options=quick(linger=0.2))
    raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
    await raw.shake_hands(b"DEALER", b"raw")
    await seen.wait(Connected)
    hub.post(b"raw", [b"never confirmed, so that closing takes its time"])
    first = asyncio.ensure_future(hub.close())
    await asyncio.sleep(0)
    await hub.close()
    assert hub.peers == ()
    await first


async def test_an_address_is_free_after_closing(lane: Lane) -> None:
    endpoint = lane.endpoint()
    for _ in range(3):
        async with lane.router(b"hub") as hub:
            endpoint = str(await hub.bind(endpoint))
