"""Cancelling a wait loses nothing and repeats nothing."""

import asyncio
import contextlib
from typing import Any

import pytest

from hansa.transport import Connected, Message
from tests.support.lanes import Lane, quick
from tests.support.recorder import Recorder


async def cancelled(task: asyncio.Future[Any]) -> bool:
    """Cancel and wait; True when it did not finish before."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return task.cancelled()


async def test_a_cancelled_recv_takes_no_message(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        waiting = asyncio.ensure_future(hub.recv())
        await asyncio.sleep(0)
        assert await cancelled(waiting)
        await leaf.send([b"for the next one"])
        assert await hub.recv() == Message(b"leaf", [b"for the next one"])


@pytest.mark.parametrize("turns", range(4))
async def test_receiving_under_constant_cancellation_gets_each_message_once(lane: Lane, turns: int) -> None:
    """The receiver is cancelled after a few turns, so that wake-up and cancellation meet in all ways."""
    count = 300
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
        got: list[int] = []
        for number in range(count):
            waiting = asyncio.ensure_future(hub.recv())
            await asyncio.sleep(0)
            leaf.post([b"%d" % number])
            for _ in range(turns + number % 5):
                await asyncio.sleep(0)
            if not await cancelled(waiting):
                got.append(int(waiting.result().parts[0]))
        leaf.post([b"-1"])
        while (value := int((await hub.recv()).parts[0])) >= 0:
            got.append(value)
        assert got == list(range(count))


async def test_the_wake_up_of_a_cancelled_receiver_goes_to_another(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
        for number in range(100):
            first, second = asyncio.ensure_future(hub.recv()), asyncio.ensure_future(hub.recv())
            await asyncio.sleep(0)
            leaf.post([b"%d" % number])
            for _ in range(number % 6):
                await asyncio.sleep(0)
            if await cancelled(first):
                assert await second == Message(b"leaf", [b"%d" % number])
            else:
                assert first.result() == Message(b"leaf", [b"%d" % number])
                assert await cancelled(second)


async def test_a_cancelled_send_takes_nothing_and_the_others_go_on(lane: Lane) -> None:
    """What `send` returned for arrives once; what was cancelled in it never does."""
    count = 400
    seen = Recorder()
    options = quick(outgoing_bytes_max=64 * 1024, heartbeat_interval=None)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"slow")
        await seen.wait(Connected)
        raw.stop_reading()
        accepted: list[int] = []
        for number in range(count):
            sending = asyncio.ensure_future(hub.send(b"slow", [b"%d" % number, bytes(40 * 1024)]))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            if not await cancelled(sending):
                accepted.append(number)
        assert len(accepted) < count, "nothing was ever blocked"
        raw.go_on_reading()
        await hub.send(b"slow", [b"-1"])
        got: list[int] = []
        while (value := int((await raw.read_message())[0])) >= 0:
            got.append(value)
        assert got == accepted


async def test_cancelling_the_wait_for_a_connection_leaves_it_dialling(lane: Lane) -> None:
    async with lane.dealer(b"leaf") as leaf:
        async with lane.router() as placeholder:
            endpoint = str(await placeholder.bind(lane.endpoint()))
        outbound = leaf.connect(endpoint)
        waiting = asyncio.ensure_future(outbound.up())
        await asyncio.sleep(0)
        assert await cancelled(waiting)
        async with lane.router(b"hub") as hub:
            await hub.bind(endpoint)
            assert await outbound.up() == b"hub"


async def test_cancelling_a_block_closes_the_socket(lane: Lane) -> None:
    entered = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with lane.router(b"hub") as hub:
            entered.set_result(str(await hub.bind(lane.endpoint())))
            await hub.recv()

    serving = asyncio.ensure_future(serve())
    endpoint = await entered
    assert await cancelled(serving)
    async with lane.router(b"hub") as hub:
        await hub.bind(endpoint)
