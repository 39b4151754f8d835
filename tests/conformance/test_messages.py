"""What goes in comes out: sizes, parts, order."""

import hashlib

import pytest

from hansa.transport import Connected, Message
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane
from tests.support.recorder import Recorder

KIB, MIB = 1024, 1024 * 1024
# Both lengths of a frame's length, the border between joined and separate writes, the chunks of the loops.
BORDER_SIZES = [
    *(0, 1, 2, 254, 255, 256, 257, 4095, 4096, 8191, 8192),
    *(32 * KIB - 1, 32 * KIB, 32 * KIB + 1, 65535, 65536, 65537),
    *(256 * KIB - 1, 256 * KIB, 256 * KIB + 1, MIB),
]


def payload(size: int, seed: int = 0) -> bytes:
    """Bytes in which every stretch differs, so that a shifted or repeated piece is noticed."""
    block = hashlib.shake_128(b"%d" % seed).digest(min(size, 64 * KIB + 13))
    return (block * (size // len(block) + 1))[:size] if size else b""


async def test_sizes_at_the_borders_arrive_unchanged(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        for size in BORDER_SIZES:
            await leaf.send([payload(size)])
        for size in BORDER_SIZES:
            assert (await hub.recv()).parts == [payload(size)]


async def test_border_sizes_mix_with_small_frames_in_one_message(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        await leaf.connect(str(await hub.bind(lane.endpoint()))).up()
        for size in BORDER_SIZES:
            parts = [b"", payload(size, 1), b"x", payload(size, 2), b""]
            await leaf.send(parts)
            assert await hub.recv() == Message(b"leaf", parts)
            await hub.send(b"leaf", parts)
            assert await leaf.recv() == Message(b"hub", parts)


@pytest.mark.parametrize("size", [4 * MIB, 16 * MIB])
async def test_large_messages_arrive_unchanged(lane: Lane, size: int) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        sent = payload(size)
        await leaf.send([b"head", sent, b"tail"])
        got = await hub.recv()
        assert got.parts[0] == b"head"
        assert got.parts[1] == sent
        assert got.parts[2] == b"tail"


@pytest.mark.parametrize("count", [1, 2, 3, 99, 100])
async def test_messages_keep_their_parts(lane: Lane, count: int) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        parts = [payload(index * 7 % 400, index) for index in range(count)]
        await leaf.send(parts)
        assert await hub.recv() == Message(b"leaf", parts)


@pytest.mark.parametrize("parts", [[b""], [b"", b""], [b"", b"x", b""], [b""] * 100])
async def test_empty_frames_are_kept(lane: Lane, parts: list[bytes]) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        await leaf.send(parts)
        await leaf.send([b"end"])
        assert await hub.recv() == Message(b"leaf", parts)
        assert await hub.recv() == Message(b"leaf", [b"end"])


async def test_parts_may_be_any_buffer(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        changing = bytearray(b"as it was when sent")
        await leaf.send([bytes(changing), b"second"])
        changing[:] = b"something else here"
        assert await hub.recv() == Message(b"leaf", [b"as it was when sent", b"second"])


async def test_order_is_kept_over_many_messages(lane: Lane) -> None:
    count = 20_000
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        for number in range(count):
            await leaf.send([b"%d" % number])
            if number % 1000 == 999:
                for expected in range(number - 999, number + 1):
                    assert (await hub.recv()).parts == [b"%d" % expected]


async def test_order_is_kept_between_small_and_large_messages(lane: Lane) -> None:
    sizes = [10, 40 * KIB, 0, 33 * KIB, 300 * KIB, 5, 5, 32 * KIB, 255, 256] * 20
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        for number, size in enumerate(sizes):
            leaf.post([b"%d" % number, payload(size, number)]) if leaf.peers else await leaf.send(
                [b"%d" % number, payload(size, number)]
            )
        for number, size in enumerate(sizes):
            assert (await hub.recv()).parts == [b"%d" % number, payload(size, number)]


async def test_both_directions_at_once_do_not_disturb_each_other(lane: Lane) -> None:
    count = 2_000
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        await seen.wait(Connected, peer=b"leaf")
        for number in range(count):
            await leaf.send([b"up %d" % number, payload(number % 700)])
            await hub.send(b"leaf", [b"down %d" % number, payload(number % 600)])
        for number in range(count):
            assert (await hub.recv()).parts == [b"up %d" % number, payload(number % 700)]
            assert (await leaf.recv()).parts == [b"down %d" % number, payload(number % 600)]


async def test_input_in_single_bytes_gives_the_same_messages(lane: Lane) -> None:
    messages = [[b""], [b"a", b"", b"bcd"], [payload(300)], [payload(255), payload(256), b"end"]]
    stream = zmtp.greeting() + zmtp.ready(b"DEALER", b"drip") + zmtp.ping(context=b"here")
    stream += b"".join(zmtp.message(*parts) for parts in messages)
    async with lane.router(b"hub") as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.send_bytewise(stream)
        for parts in messages:
            assert await hub.recv() == Message(b"drip", parts)


async def test_the_long_form_of_a_short_frame_is_understood(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        raw.send(zmtp.frame(b"one", more=True, long=True) + zmtp.frame(b"", long=True))
        assert await hub.recv() == Message(b"raw", [b"one", b""])


async def test_frames_on_the_wire_have_the_shortest_form(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        raw.send(zmtp.message(b"hello"))
        await hub.recv()
        parts = [b"", b"abc", payload(255), payload(256), payload(40 * KIB)]
        await hub.send(b"raw", parts)
        expected = zmtp.message(*parts)
        assert await raw.read(len(expected)) == expected
