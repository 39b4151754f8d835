"""hansa and libzmq, in two processes: every pair of sockets, whoever binds, every shape of message."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hansa.transport import Connected, Dealer, Environment, Pub, Router, Sub
from tests.support.interop import ROOMY, any_endpoint, paired
from tests.support.peer_process import zmq_peer
from tests.support.recorder import Recorder

KIB, MIB = 1024, 1024 * 1024
BINDS = pytest.mark.parametrize("hansa_binds", [True, False], ids=["hansa binds", "libzmq binds"])
TRANSPORTS = pytest.mark.parametrize("transport", ["tcp", "ipc"])

pytestmark = pytest.mark.timeout(60)


def payload(size: int) -> bytes:
    """Bytes in which every stretch differs."""
    block = hashlib.shake_128(b"%d" % size).digest(min(size, 64 * KIB + 13))
    return (block * (size // len(block) + 1))[:size] if size else b""


MESSAGES: list[list[bytes]] = [
    [b""],
    [b"", b""],
    [b"", b"x", b""],
    [b"one part"],
    [b"%d" % number for number in range(100)],
    [b""] * 100,
    *([payload(size)] for size in (1, 254, 255, 256, 257, 32 * KIB - 1, 32 * KIB, 32 * KIB + 1)),
    *([payload(size), b"tail"] for size in (65_535, 65_536, 65_537, MIB, 16 * MIB)),
    [payload(300 * number) for number in range(100)],
]

Send = Callable[[list[bytes]], Awaitable[object]]


async def check_echoes(send: Send, recv: Callable[[], Awaitable[list[bytes]]]) -> None:
    """Each message alone, then all of them at once."""
    async with asyncio.timeout(30):
        for parts in MESSAGES:
            await send(parts)
            assert await recv() == parts
        small = [parts for parts in MESSAGES if sum(map(len, parts)) < MIB]
        for parts in small:
            await send(parts)
        for parts in small:
            assert await recv() == parts


@TRANSPORTS
@BINDS
async def test_hansa_dealer_with_zmq_router(transport: str, hansa_binds: bool, tmp_path: Path) -> None:
    async with Dealer(b"hansa", environment=Environment(options=ROOMY)) as dealer:
        where = any_endpoint(transport, tmp_path)
        async with paired(dealer, "router", "echo", hansa_binds=hansa_binds, endpoint=where, id="zmq"):

            async def recv() -> list[bytes]:
                peer, parts = await dealer.recv()
                assert peer == b"zmq"
                return parts

            await check_echoes(dealer.send, recv)


@TRANSPORTS
@BINDS
async def test_hansa_dealer_with_zmq_dealer(transport: str, hansa_binds: bool, tmp_path: Path) -> None:
    async with Dealer(b"hansa", environment=Environment(options=ROOMY)) as dealer:
        where = any_endpoint(transport, tmp_path)
        async with paired(dealer, "dealer", "echo", hansa_binds=hansa_binds, endpoint=where):

            async def recv() -> list[bytes]:
                return (await dealer.recv()).parts

            await check_echoes(dealer.send, recv)


@TRANSPORTS
@BINDS
@pytest.mark.parametrize("kind", ["dealer", "router"])
async def test_hansa_router_with_zmq_dealer_and_router(
    transport: str, hansa_binds: bool, kind: str, tmp_path: Path
) -> None:
    seen = Recorder()
    async with Router(b"hansa", environment=Environment(options=ROOMY), on_event=seen) as router:
        where = any_endpoint(transport, tmp_path)
        async with paired(router, kind, "echo", hansa_binds=hansa_binds, endpoint=where, id="zmq"):
            await seen.wait(Connected, peer=b"zmq")

            async def send(parts: list[bytes]) -> None:
                await router.send(b"zmq", parts)

            async def recv() -> list[bytes]:
                peer, parts = await router.recv()
                assert peer == b"zmq"
                return parts

            await check_echoes(send, recv)


async def test_hansa_router_with_anonymous_zmq_dealers() -> None:
    seen = Recorder()
    async with Router(b"hansa", environment=Environment(options=ROOMY), on_event=seen) as router:
        where = str(await router.bind("tcp://127.0.0.1:0"))
        async with (
            zmq_peer("dealer", "echo", connect=where) as first,
            zmq_peer("dealer", "echo", connect=where) as second,
        ):
            await first.where()
            await second.where()
            await seen.wait(Connected, count=2)
            assert len(set(router.peers)) == 2
            for peer in router.peers:
                await router.send(peer, [b"hello", peer])
            got = [await router.recv(), await router.recv()]
            assert sorted(got) == sorted((peer, [b"hello", peer]) for peer in router.peers)


@pytest.mark.parametrize("kind", ["req", "rep"])
async def test_request_and_reply_sockets_of_libzmq_are_understood(kind: str) -> None:
    """REQ and REP put an empty frame in front."""
    if kind == "req":
        async with Router(b"hansa", environment=Environment(options=ROOMY)) as router:
            where = str(await router.bind("tcp://127.0.0.1:0"))
            async with zmq_peer("req", "ask", connect=where, id="zmq") as peer:
                await peer.where()
                await peer.say("question")
                message = await router.recv()
                assert message == (b"zmq", [b"", b"question"])
                await router.send(b"zmq", message.parts)
                assert (await peer.hear())["answer"] == "question"
    else:
        async with (
            Dealer(b"hansa", environment=Environment(options=ROOMY)) as dealer,
            paired(dealer, "rep", "echo", hansa_binds=True, endpoint="tcp://127.0.0.1:0"),
        ):
            await dealer.send([b"", b"question"])
            assert (await dealer.recv()).parts == [b"", b"question"]


@TRANSPORTS
@BINDS
async def test_hansa_pub_with_zmq_sub(transport: str, hansa_binds: bool, tmp_path: Path) -> None:
    async with Pub(environment=Environment(options=ROOMY)) as pub:
        where = any_endpoint(transport, tmp_path)
        prefixes = ["hello", "zone:12:", "n"]
        count = 4
        async with paired(
            pub, "sub", "topics", hansa_binds=hansa_binds, endpoint=where, subscribe=prefixes, count=count
        ) as peer:
            while not pub.post([b"hello"]):
                await asyncio.sleep(0.001)
            assert await peer.hear() == {"heard": "hello"}
            for topic in (b"zone:12:a", b"zone:12", b"zone:13:", b"news", b"", b"m", b"n", b"zone:12:"):
                await pub.send([topic, b"payload"])
            assert (await peer.hear())["topics"] == ["zone:12:a", "news", "n", "zone:12:"]


@TRANSPORTS
@BINDS
async def test_hansa_sub_with_zmq_pub(transport: str, hansa_binds: bool, tmp_path: Path) -> None:
    async with Sub(environment=Environment(options=ROOMY)) as sub:
        where = any_endpoint(transport, tmp_path)
        sub.subscribe(b"hello")
        sub.subscribe(b"1")
        async with paired(sub, "pub", "source", hansa_binds=hansa_binds, endpoint=where, count=200) as peer:
            assert (await sub.recv()).parts == [b"hello"]
            sub.unsubscribe(b"hello")
            await peer.say()
            expected = [number for number in range(200) if str(number).startswith("1")]
            got: list[int] = []
            async with asyncio.timeout(20):
                while len(got) < len(expected):
                    parts = (await sub.recv()).parts
                    if parts != [b"hello"]:
                        got.append(int(parts[0]))
            assert got == expected


@pytest.mark.parametrize("size", [0, 255, 256, 32 * KIB + 1, 65_536, MIB, 16 * MIB])
async def test_published_sizes_arrive_unchanged(size: int) -> None:
    async with Pub(environment=Environment(options=ROOMY)) as pub:
        where = str(await pub.bind("tcp://127.0.0.1:0"))
        async with zmq_peer("sub", "sink", connect=where, subscribe="", count=3, size=size) as peer:
            await peer.where()
            while not pub.post([b"hello"]):
                await asyncio.sleep(0.001)
            while (await peer.hear()) != {"heard": "hello"}:
                pass
            for number in range(3):
                await pub.send([b"%d" % number, payload(size)])
            while "heard" in (heard := await peer.hear()):
                pass
            assert heard == {"received": 3, "wrong": None}
