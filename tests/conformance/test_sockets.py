"""Which sockets talk to which, whoever binds."""

import asyncio

import pytest

from hansa.endpoint import Endpoint
from hansa.errors import AddressInUse, BadEndpoint, WouldBlock
from hansa.transport import Connected, Dealer, Message
from tests.support.lanes import Lane
from tests.support.recorder import Recorder

BINDS = pytest.mark.parametrize("binds", ["first", "second"])


@BINDS
async def test_router_and_dealer_talk(lane: Lane, binds: str) -> None:
    async with lane.router(b"server") as router, lane.dealer(b"client") as dealer:
        bound, connecting = (router, dealer) if binds == "first" else (dealer, router)
        endpoint = await bound.bind(lane.endpoint())
        outbound = connecting.connect(str(endpoint))
        assert await outbound.up() == (b"server" if binds == "first" else b"client")
        await dealer.send([b"question", b"1"])
        assert await router.recv() == Message(b"client", [b"question", b"1"])
        await router.send(b"client", [b"answer", b"42"])
        assert await dealer.recv() == Message(b"server", [b"answer", b"42"])


@BINDS
async def test_two_routers_talk(lane: Lane, binds: str) -> None:
    seen = Recorder()
    async with lane.router(b"left", on_event=seen) as left, lane.router(b"right", on_event=seen) as right:
        bound, connecting = (left, right) if binds == "first" else (right, left)
        endpoint = await bound.bind(lane.endpoint())
        connecting.connect(str(endpoint))
        await seen.wait(Connected, peer=b"left")
        await seen.wait(Connected, peer=b"right")
        assert (left.peers, right.peers) == ((b"right",), (b"left",))
        await left.send(b"right", [b"from left"])
        await right.send(b"left", [b"from right"])
        assert await right.recv() == Message(b"left", [b"from left"])
        assert await left.recv() == Message(b"right", [b"from right"])


@BINDS
async def test_two_dealers_talk(lane: Lane, binds: str) -> None:
    async with lane.dealer(b"left") as left, lane.dealer(b"right") as right:
        bound, connecting = (left, right) if binds == "first" else (right, left)
        endpoint = await bound.bind(lane.endpoint())
        connecting.connect(str(endpoint))
        await left.send([b"ping"])
        assert await right.recv() == Message(b"left", [b"ping"])
        await right.send([b"pong"])
        assert await left.recv() == Message(b"right", [b"pong"])


@BINDS
async def test_pub_reaches_sub(lane: Lane, binds: str) -> None:
    seen = Recorder()
    async with lane.pub(on_event=seen) as pub, lane.sub() as sub:
        sub.subscribe(b"news")
        bound, connecting = (pub, sub) if binds == "first" else (sub, pub)
        endpoint = await bound.bind(lane.endpoint())
        connecting.connect(str(endpoint))
        await seen.wait(Connected)
        while pub.post([b"news", b"hello"]) == 0:  # until the subscription has arrived
            await asyncio.sleep(0)
        assert (await sub.recv()).parts == [b"news", b"hello"]


async def test_one_socket_binds_and_connects_at_once(lane: Lane) -> None:
    async with lane.router(b"a") as a, lane.router(b"b") as b, lane.router(b"c") as c:
        outbound_b = b.connect(str(await a.bind(lane.endpoint())))
        outbound_c = c.connect(str(await b.bind(lane.endpoint())))
        await outbound_b.up()
        await outbound_c.up()
        await b.send(b"a", [b"up"])
        await c.send(b"b", [b"down"])
        assert await a.recv() == Message(b"b", [b"up"])
        assert await b.recv() == Message(b"c", [b"down"])


async def test_a_socket_may_bind_several_endpoints(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"one") as one, lane.dealer(b"two") as two:
        endpoints = [await hub.bind(lane.endpoint()), await hub.bind(lane.endpoint())]
        assert len({str(endpoint) for endpoint in endpoints}) == 2
        one.connect(str(endpoints[0]))
        two.connect(str(endpoints[1]))
        await one.send([b"1"])
        await two.send([b"2"])
        got = sorted([await hub.recv(), await hub.recv()])
        assert got == [Message(b"one", [b"1"]), Message(b"two", [b"2"])]


async def test_a_bound_endpoint_can_be_parsed_and_connected_to(lane: Lane) -> None:
    async with lane.router() as router:
        endpoint = await router.bind(lane.endpoint())
        assert Endpoint.parse(str(endpoint)) == endpoint
        assert endpoint.scheme == lane.name
        if lane.name in ("tcp", "tls"):
            assert endpoint.port not in (None, 0)


async def test_an_endpoint_in_use_is_refused(lane: Lane) -> None:
    async with lane.router() as first, lane.router() as second:
        endpoint = await first.bind(lane.endpoint())
        with pytest.raises(AddressInUse):
            await second.bind(str(endpoint))


async def test_unbinding_keeps_the_connected_and_admits_nobody_new(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"old") as old, lane.dealer(b"new") as new:
        endpoint = await hub.bind(lane.endpoint())
        await old.connect(str(endpoint)).up()
        await hub.unbind(endpoint)
        late = new.connect(str(endpoint))
        await old.send([b"still here"])
        assert await hub.recv() == Message(b"old", [b"still here"])
        assert not late.is_up
        await hub.bind(str(endpoint))
        assert await late.up() == b"hub"


async def test_a_closed_connection_is_not_dialled_again(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub, lane.dealer(b"leaf") as leaf:
        outbound = leaf.connect(str(await hub.bind(lane.endpoint())))
        await outbound.up()
        await seen.wait(Connected, peer=b"leaf")
        await outbound.close()
        assert not outbound.is_up
        assert leaf.peers == ()


async def test_an_empty_inbox_would_block(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        with pytest.raises(WouldBlock):
            hub.recv_nowait()
        leaf.connect(str(await hub.bind(lane.endpoint())))
        await leaf.send([b"1"])
        await leaf.send([b"2"])
        assert await hub.recv() == Message(b"leaf", [b"1"])
        assert await hub.recv() == Message(b"leaf", [b"2"])
        with pytest.raises(WouldBlock):
            hub.recv_nowait()


async def test_messages_can_be_iterated(lane: Lane) -> None:
    async with lane.router(b"hub") as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        for number in range(10):
            await leaf.send([b"%d" % number])
        got = []
        async for message in hub:
            got.append(message.parts)
            if len(got) == 10:
                break
        assert got == [[b"%d" % number] for number in range(10)]


async def test_messages_may_be_taken_by_callback(lane: Lane) -> None:
    taken: list[tuple[bytes, list[bytes]]] = []
    done = asyncio.get_running_loop().create_future()

    def take(peer: bytes, messages: list[list[bytes]]) -> None:
        taken.extend((peer, parts) for parts in messages)
        if len(taken) == 100:
            done.set_result(None)

    async with lane.router(b"hub", on_messages=take) as hub, lane.dealer(b"leaf") as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        for number in range(100):
            await leaf.send([b"%d" % number])
        await done
        assert taken == [(b"leaf", [b"%d" % number]) for number in range(100)]


async def test_a_dealer_takes_turns_among_its_peers(lane: Lane) -> None:
    seen = Recorder()
    async with (
        lane.router(b"a") as a,
        lane.router(b"b") as b,
        lane.router(b"c") as c,
        lane.dealer(b"d", on_event=seen) as dealer,
    ):
        hubs = [a, b, c]
        for hub in hubs:
            dealer.connect(str(await hub.bind(lane.endpoint())))
        await seen.wait(Connected, count=3)
        for number in range(30):
            await dealer.send([b"%d" % number])
        for hub in hubs:
            numbers = [int((await hub.recv()).parts[0]) for _ in range(10)]
            assert numbers == sorted(numbers)
            with pytest.raises(WouldBlock):
                hub.recv_nowait()


@pytest.mark.parametrize("endpoint", ["tcp://*:5555", "tcp://127.0.0.1:0"])
async def test_what_cannot_be_dialled_is_refused_at_once(endpoint: str) -> None:
    async with Dealer() as leaf:
        with pytest.raises(BadEndpoint, match="where to listen"):
            leaf.connect(endpoint)
