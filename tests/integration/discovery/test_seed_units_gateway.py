"""The unit tests that the specification names (seed 001, 11.1): the gateway, on TCP."""

import asyncio
import errno
import threading
from collections import Counter
from functools import partial

import pytest

from hansa import Environment, NoProvider, Provider, Request, TimedOut, Weighted, sync
from hansa.errors import BadArgument
from hansa.services.discovery import ProviderRemoved
from hansa.services.gateway import Completion
from tests.support.discovery_cast import OPTIONS, PAY, WITHIN_S, Cast, Heard, LastByName, shares, until

pytestmark = pytest.mark.timeout(60)


def held(provider: Provider, msg_id: int = 1) -> asyncio.Event:
    """Requests with this msgId are answered when the event is set."""
    released = asyncio.Event()

    @provider.handler(msg_id)
    async def wait(request: Request) -> list[bytes]:
        await released.wait()
        return [provider.routing_id, *request.parts]

    return released


# ---- the ways to ask -------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-19")
async def test_gateway_send_recv() -> None:
    async with Cast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        await cast.offering(registry, PAY, routing_id=b"ann")
        await cast.offering(registry, "user", routing_id=b"bob")
        gateway = await cast.gateway(await cast.discovery(registry, services=(PAY, "user")))
        for service in (PAY, "user"):
            await gateway.wait_connected(service)
        parts = [b"", b"one", b"\x00" * 1000, b""]
        sent = {await gateway.send(PAY, parts): b"ann", await gateway.send("user", parts): b"bob"}
        assert len(sent) == 2
        for _ in range(2):
            got = await gateway.recv()
            who = sent.pop(got.request_id)
            assert got.service == (PAY if who == b"ann" else "user")
            assert got.result() == [who, *parts]
        assert sent == {}


@pytest.mark.spec("DIS-20")
async def test_gateway_request_callback() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        await cast.offering(registry, routing_id=b"ann")
        gateway = await cast.calling(registry)
        told: list[Completion] = []
        ids = [gateway.submit(PAY, [b"%d" % number], told.append) for number in range(50)]
        assert told == []  # Never from within the call.
        await until(lambda: len(told) == 50, "every callback was called")
        assert {one.request_id: one.parts for one in told} == {
            request_id: [b"ann", b"%d" % number] for number, request_id in enumerate(ids)
        }
        assert {(one.service, one.error) for one in told} == {(PAY, None)}
        # The awaitable form, and proof that no callback was called twice meanwhile.
        assert await gateway.request(PAY, b"last") == [b"ann", b"last"]
        assert len(told) == 50


@pytest.mark.spec("DIS-21")
async def test_gateway_request_send_recv() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        provider = await cast.offering(registry, routing_id=b"ann")
        held(provider)
        gateway = await cast.calling(registry)
        request_id = await gateway.request_send(PAY, [b"one", b"two"])
        got = await gateway.request_recv(timeout=WITHIN_S)
        assert got == Completion(service=PAY, request_id=request_id, parts=[b"ann", b"one", b"two"])
        with pytest.raises(TimedOut):
            await gateway.request_recv(timeout=0.01)

        late_id = await gateway.request_send(PAY, b"slow", msg_id=1, timeout=0.05)
        failed = await gateway.request_recv(timeout=WITHIN_S)
        assert (failed.service, failed.request_id, failed.parts) == (PAY, late_id, [])
        assert isinstance(failed.error, TimedOut)
        with pytest.raises(TimedOut):
            failed.result()


@pytest.mark.spec("DIS-20")
async def test_gateway_request_timeout() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        provider = await cast.provider(registry, routing_id=b"ann")
        asked: list[Request] = []

        @provider.handler(1)
        async def keep(request: Request) -> bytes:
            asked.append(request)
            await asyncio.Event().wait()
            return b"never"

        await provider.register(PAY)
        gateway = await cast.calling(registry)
        began_at = asyncio.get_running_loop().time()
        with pytest.raises(TimedOut) as error:
            await gateway.request(PAY, b"slow", msg_id=1, timeout=0.2)
        assert error.value.errno == errno.ETIMEDOUT
        assert asyncio.get_running_loop().time() - began_at >= 0.2

        told: list[Completion] = []
        request_id = gateway.submit(PAY, b"slow", told.append, msg_id=1, timeout=0.05)
        await until(lambda: len(told) == 1, "the callback is told")
        assert told[0].request_id == request_id
        assert isinstance(told[0].error, TimedOut)

        # Their replies come when nobody waits any more.
        for request in asked:
            late = [request.request_id.to_bytes(8, "little"), b"\x01\x00", b"late"]
            await provider.router.send(request.peer, late)
        await until(
            lambda: gateway.stats.late_replies_count == 2, "both late replies are dropped and counted"
        )
        assert len(told) == 1
        assert gateway.stats.failed == {"timed-out": 2}
        assert gateway.stats.in_flight_count == 0

        # Without a deadline it waits for as long as it takes: the reply comes by hand.
        async with asyncio.TaskGroup() as group:
            patient = group.create_task(gateway.request(PAY, b"slow", msg_id=1, timeout=None), name="patient")
            forever = group.create_task(gateway.request(PAY, b"slow", msg_id=1, timeout=-1), name="forever")
            await until(lambda: len(asked) == 4, "both requests are there")
            assert [request.deadline for request in asked[2:]] == [None, None]
            for request in asked[2:]:
                reply = [request.request_id.to_bytes(8, "little"), b"\x01\x00", b"at last"]
                await provider.router.send(request.peer, reply)
        assert patient.result() == forever.result() == [b"at last"]


# ---- the direct router -----------------------------------------------------------------------------------


@pytest.mark.spec("DIS-23")
@pytest.mark.spec("DIS-28")
async def test_gateway_threadsafe_router() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        names = {(await cast.offering(registry, routing_id=name)).routing_id for name in (b"ann", b"bob")}
        gateway = await cast.calling(registry, count=2)
        router = gateway.router(PAY)
        assert set(router.peers) == names
        for request_id, name in enumerate((b"bob", b"bob", b"ann", b"bob"), 1):
            await router.send(name, request_id, [b"to", name])
            got = await gateway.recv()
            assert (got.request_id, got.result()) == (request_id, [name, b"to", name])
        with pytest.raises(NoProvider):
            await router.send(b"nobody", 99, b"lost")
        await asyncio.to_thread(check_from_threads, str(registry.pub))


def check_from_threads(pub: str) -> None:
    """One router, four threads that send through it at once, and one that receives."""
    threads_count, each = 4, 50
    with sync.Discovery([pub], environment=Environment(options=OPTIONS)) as discovery:
        discovery.subscribe(PAY)
        with sync.Gateway(discovery, environment=Environment(options=OPTIONS)) as gateway:
            gateway.wait_connected(PAY, 2, timeout=WITHIN_S)
            router = gateway.router(PAY)
            peers = sorted(router.peers)

            def send(thread: int) -> None:
                for number in range(each):
                    request_id = thread * 1000 + number
                    router.send(peers[thread % 2], request_id, b"%d" % request_id)

            senders = [threading.Thread(target=send, args=(number,)) for number in range(threads_count)]
            for sender in senders:
                sender.start()
            got = [gateway.request_recv(timeout=WITHIN_S) for _ in range(threads_count * each)]
            for sender in senders:
                sender.join()
    wanted = {
        thread * 1000 + number: [peers[thread % 2], b"%d" % (thread * 1000 + number)]
        for thread in range(threads_count)
        for number in range(each)
    }
    assert {one.request_id: one.result() for one in got} == wanted


@pytest.mark.spec("DIS-23")
async def test_gateway_router_mixing_guard() -> None:
    async with Cast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        provider = await cast.offering(registry, routing_id=b"ann")
        released = held(provider)
        gateway = await cast.calling(registry)
        router = gateway.router(PAY)
        # Both ways at once, all of them answered in one go: what counts is the request id.
        wanted = {}
        for number in range(1, 21):
            await router.send(b"ann", number, b"direct %d" % number, msg_id=1)
            wanted[number] = b"direct %d" % number
            request_id = await gateway.send(PAY, b"balanced %d" % number, msg_id=1)
            assert request_id not in wanted
            wanted[request_id] = b"balanced %d" % number
        # An id that is under way cannot be used again, so no reply can go to the wrong one.
        with pytest.raises(BadArgument):
            await router.send(b"ann", 5, b"twice", msg_id=1)
        released.set()
        for _ in range(40):
            got = await gateway.recv()
            assert got.result() == [b"ann", wanted.pop(got.request_id)]
        assert wanted == {}
        # Replies of direct requests reach `recv` only, never somebody who awaits a request.
        await router.send(b"ann", 5, b"again")
        assert await gateway.request(PAY, b"own") == [b"ann", b"own"]
        assert (await gateway.recv()).request_id == 5


# ---- connections -----------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-18")
async def test_gateway_auto_connect() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        gateway = await cast.gateway(await cast.discovery(registry))
        assert gateway.connection_count(PAY) == 0
        with pytest.raises(NoProvider):
            await gateway.request(PAY, b"early")
        for count in (1, 2, 3):
            provider = await cast.offering(registry)
            await gateway.wait_connected(PAY, count, timeout=WITHIN_S)
            assert gateway.connection_count(PAY) == count
            assert len(provider.router.peers) == 1
        assert sum((await shares(gateway, 9)).values()) == 9
        # A service that nobody asked the discovery for is none of its business.
        await cast.offering(registry, "user")
        assert gateway.connection_count("user") == 0
        # One that comes later finds all of them.
        assert (await cast.calling(registry, count=3)).connection_count(PAY) == 3


@pytest.mark.spec("DIS-18")
async def test_gateway_auto_disconnect() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        ann = await cast.offering(registry, routing_id=b"ann")
        bob = await cast.offering(registry, routing_id=b"bob")
        discovery = await cast.discovery(registry)
        heard = Heard(discovery)
        gateway = await cast.gateway(discovery)
        await gateway.wait_connected(PAY, 2, timeout=WITHIN_S)
        await ann.unregister(PAY)
        await until(lambda: ann.router.peers == (), "the gateway has hung up")
        assert gateway.connection_count(PAY) == 1
        assert len(heard.of(ProviderRemoved)) == 1
        assert await shares(gateway, 4) == {b"bob": 4}
        await bob.unregister(PAY)
        await until(lambda: bob.router.peers == (), "the gateway has hung up here, too")
        assert gateway.connection_count(PAY) == 0
        with pytest.raises(NoProvider):
            await gateway.request(PAY, b"nobody")


# ---- which reply belongs to which request ----------------------------------------------------------------


@pytest.mark.spec("DIS-19")
async def test_request_id() -> None:
    async with Cast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        seen: dict[bytes, int] = {}
        kept: list[tuple[asyncio.Future[None], bytes]] = []
        for _ in range(2):
            provider = await cast.offering(registry)

            @provider.handler(1)
            async def keep(request: Request) -> bytes:
                seen[request.payload] = request.request_id
                turn = asyncio.get_running_loop().create_future()
                kept.append((turn, request.payload))
                await turn
                return b"reply to " + request.payload

        gateway = await cast.calling(registry, count=2)
        sent = {await gateway.send(PAY, b"%d" % number, msg_id=1): b"%d" % number for number in range(100)}
        assert len(sent) == 100
        assert all(0 <= request_id < 2**64 for request_id in sent)
        await until(lambda: len(kept) == 100, "all are with the providers")
        # The provider saw the number that the caller was given.
        assert {request_id: payload for payload, request_id in seen.items()} == sent
        # They are answered in another order than they were asked.
        order = sorted(kept, key=lambda one: one[1][::-1])
        assert [payload for _, payload in order] != [payload for _, payload in kept]
        for turn, _ in order:
            turn.set_result(None)
        for _ in range(100):
            got = await gateway.recv()
            assert got.result() == [b"reply to " + sent.pop(got.request_id)]


# ---- who is asked ----------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-22")
async def test_load_balancing() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        weights = {b"ann": 1, b"bob": 2, b"cyd": 3}
        where = {}
        for name, weight in weights.items():
            provider = await cast.offering(registry, weight=weight, routing_id=name)
            where[str(provider.endpoint)] = name
        gateway = await cast.calling(registry, count=3)
        # Round robin is the default: whatever their weights, each in its turn.
        order = [(await gateway.request(PAY, b""))[0] for _ in range(12)]
        assert Counter(order) == {b"ann": 4, b"bob": 4, b"cyd": 4}
        assert order[:3] * 4 == order
        gateway.set_balancer(PAY, Weighted())
        assert await shares(gateway, 60) == {b"ann": 10, b"bob": 20, b"cyd": 30}
        gateway.set_balancer(PAY, LastByName())
        assert await shares(gateway, 5) == {where[max(where)]: 5}


@pytest.mark.spec("DIS-08")
@pytest.mark.spec("DIS-22")
async def test_weighted_lb_update() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        ann = await cast.offering(registry, routing_id=b"ann")
        await cast.offering(registry, routing_id=b"bob")
        discovery = await cast.discovery(registry)
        gateway = await cast.gateway(discovery)
        await gateway.wait_connected(PAY, 2, timeout=WITHIN_S)
        gateway.set_balancer(PAY, Weighted())
        assert await shares(gateway, 20) == {b"ann": 10, b"bob": 10}

        def changed_from(weight: int) -> bool:
            return weight not in {one.weight for one in discovery.providers(PAY) if one.routing_id == b"ann"}

        before = 1
        for weight, share in ((4, 4), (9, 9), (0, 1)):
            await ann.update_weight(PAY, weight)
            await until(partial(changed_from, before), "the new weight is known")
            before = share
            got = await shares(gateway, (share + 1) * 10)
            # Smooth: not more than one round is left over from the weights before.
            assert got[b"ann"] == pytest.approx(share * 10, abs=share)
            assert got[b"bob"] == pytest.approx(10, abs=share)
