"""A hundred thousand messages between hansa and libzmq, each way, none lost and none out of order."""

import asyncio

import pytest

from hansa.transport import Connected, Dealer, Environment, Pub, Router, Sub
from tests.support.interop import ROOMY, paired
from tests.support.recorder import Recorder

COUNT = 100_000
SIZE = 64
BINDS = pytest.mark.parametrize("hansa_binds", [True, False], ids=["hansa binds", "libzmq binds"])
PAYLOAD = b"x" * SIZE
ANY = "tcp://127.0.0.1:*"

pytestmark = pytest.mark.timeout(60)


async def received_in_order(socket: Router | Dealer | Sub) -> None:
    """All numbers, one after the other."""
    expected = 0
    async with asyncio.timeout(40):
        while expected < COUNT:
            parts = (await socket.recv()).parts
            if parts != [b"hello"]:
                assert parts == [b"%d" % expected, PAYLOAD]
                expected += 1


@BINDS
@pytest.mark.parametrize("kind", ["router", "dealer"])
async def test_hansa_router_sends_to_libzmq(kind: str, hansa_binds: bool) -> None:
    seen = Recorder()
    async with (
        Router(b"hansa", environment=Environment(options=ROOMY), on_event=seen) as router,
        paired(
            router, kind, "sink", hansa_binds=hansa_binds, endpoint=ANY, id="zmq", count=COUNT, size=SIZE
        ) as peer,
    ):
        await seen.wait(Connected, peer=b"zmq")
        for number in range(COUNT):
            await router.send(b"zmq", [b"%d" % number, PAYLOAD])
        assert await peer.hear() == {"received": COUNT, "wrong": None}


@BINDS
@pytest.mark.parametrize("kind", ["router", "dealer"])
async def test_libzmq_sends_to_hansa_router(kind: str, hansa_binds: bool) -> None:
    seen = Recorder()
    to = {"to": "hansa"} if kind == "router" else {}
    async with (
        Router(b"hansa", environment=Environment(options=ROOMY), on_event=seen) as router,
        paired(
            router,
            kind,
            "source",
            hansa_binds=hansa_binds,
            endpoint=ANY,
            id="zmq",
            count=COUNT,
            size=SIZE,
            **to,
        ) as peer,
    ):
        await peer.say()
        await received_in_order(router)


@BINDS
async def test_hansa_dealer_sends_to_libzmq_router(hansa_binds: bool) -> None:
    async with (
        Dealer(b"hansa", environment=Environment(options=ROOMY)) as dealer,
        paired(
            dealer, "router", "sink", hansa_binds=hansa_binds, endpoint=ANY, id="zmq", count=COUNT, size=SIZE
        ) as peer,
    ):
        for number in range(COUNT):
            await dealer.send([b"%d" % number, PAYLOAD])
        assert await peer.hear() == {"received": COUNT, "wrong": None}


@BINDS
async def test_libzmq_router_sends_to_hansa_dealer(hansa_binds: bool) -> None:
    async with (
        Dealer(b"hansa", environment=Environment(options=ROOMY)) as dealer,
        paired(
            dealer,
            "router",
            "source",
            hansa_binds=hansa_binds,
            endpoint=ANY,
            to="hansa",
            count=COUNT,
            size=SIZE,
        ) as peer,
    ):
        await peer.say()
        await received_in_order(dealer)


@BINDS
async def test_hansa_publishes_to_libzmq(hansa_binds: bool) -> None:
    async with (
        Pub(environment=Environment(options=ROOMY)) as pub,
        paired(
            pub, "sub", "sink", hansa_binds=hansa_binds, endpoint=ANY, subscribe="", count=COUNT, size=SIZE
        ) as peer,
    ):
        while not pub.post([b"hello"]):
            await asyncio.sleep(0.001)
        assert await peer.hear() == {"heard": "hello"}
        for number in range(COUNT):
            assert await pub.send([b"%d" % number, PAYLOAD]) == 1
        while "heard" in (heard := await peer.hear()):
            pass
        assert heard == {"received": COUNT, "wrong": None}
        assert pub.stats.dropped_count == 0


@BINDS
async def test_libzmq_publishes_to_hansa(hansa_binds: bool) -> None:
    async with Sub(environment=Environment(options=ROOMY)) as sub:
        sub.subscribe(b"")
        async with paired(
            sub, "pub", "source", hansa_binds=hansa_binds, endpoint=ANY, count=COUNT, size=SIZE
        ) as peer:
            assert (await sub.recv()).parts == [b"hello"]
            await peer.say()
            await received_in_order(sub)
