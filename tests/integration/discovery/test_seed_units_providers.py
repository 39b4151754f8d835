"""The unit tests that the specification names (seed 001, 11.1): registry and providers, on TCP."""

import asyncio
import socket

import pytest

from hansa import BadEndpoint, Provider, Registry, TimedOut, Unavailable, UsageError
from hansa.errors import AddressInUse, NotRegistered, RegistrationRefused
from hansa.services.discovery import ProviderRemoved, WeightChanged
from hansa.services.provider import AckStatus, ProviderState
from hansa.transport import Dealer, Environment, Sub
from tests.support.discovery_cast import ANY, OPTIONS, PAY, WITHIN_S, Cast, Heard, endpoints, entry, until
from tests.support.registry_callers import Caller, Listener

GHOST = "tcp://127.0.0.1:9"


def is_free(port: int) -> bool:
    """Whether somebody else could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
    return True


# ---- the registry --------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-01")
@pytest.mark.spec("DIS-02")
async def test_registry_basic() -> None:
    registry = Registry(ANY, ANY, environment=Environment(options=OPTIONS))
    assert not registry.is_running
    assert (registry.pub.port, registry.router.port) == (0, 0)

    await registry.start()
    ports = [registry.pub.port, registry.router.port]
    first_id = registry.registry_id
    assert registry.is_running
    assert 0 <= first_id <= 0xFFFF_FFFF
    assert 0 not in ports
    assert len(set(ports)) == 2
    assert [is_free(port) for port in ports] == [False, False]
    with pytest.raises(UsageError, match="running already"):
        await registry.start()
    with pytest.raises(AddressInUse):
        await Registry(str(registry.pub), ANY).start()

    await registry.stop()
    assert not registry.is_running
    assert [is_free(port) for port in ports] == [True, True]
    await registry.stop()

    await registry.start()
    assert registry.is_running
    assert registry.registry_id != first_id  # One in four thousand million that it is drawn twice.
    await registry.stop()

    async with Registry(
        ANY, ANY, registry_id=0xFFFF_FFFF, environment=Environment(options=OPTIONS)
    ) as chosen:
        assert chosen.registry_id == 0xFFFF_FFFF


# ---- one provider ---------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-25")
async def test_provider_bind() -> None:
    provider = Provider(ANY, routing_id=b"ann", environment=Environment(options=OPTIONS))

    @provider.handler(7)
    async def answer(request: object) -> bytes:
        return b"answered"

    assert provider.state(PAY) is ProviderState.INIT
    async with provider:
        assert provider.state(PAY) is ProviderState.BOUND
        assert provider.endpoint.port != 0
        with pytest.raises(AddressInUse):
            await Provider(str(provider.endpoint)).__aenter__()
        async with (
            Dealer(b"caller", environment=Environment(options=OPTIONS)) as caller,
            asyncio.timeout(WITHIN_S),
        ):
            await caller.connect(provider.endpoint).up()
            await caller.send([b"\x01" + bytes(7), b"\x07\x00", b"question"])
            assert await caller.recv() == (b"ann", [b"\x01" + bytes(7), b"\x07\x00", b"answered"])
            # The socket itself is the program's, too.
            assert provider.router.peers == (b"caller",)
            await provider.router.send(b"caller", [b"by hand"])
            assert await caller.recv() == (b"ann", [b"by hand"])
    assert is_free(provider.endpoint.port)


@pytest.mark.spec("DIS-03")
@pytest.mark.spec("DIS-05")
@pytest.mark.spec("DIS-25")
async def test_provider_register() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        provider = await cast.provider(registry, routing_id=b"ann")
        here = str(provider.endpoint)
        await until(lambda: provider.state(PAY) is ProviderState.CONNECTED, "the registry is connected")
        await provider.register(PAY, weight=3)
        await provider.register("user")
        assert provider.state(PAY) is provider.state("user") is ProviderState.REGISTERED
        (info,) = registry.services[PAY]
        assert (info.service, info.endpoint, info.routing_id, info.weight) == (PAY, here, b"ann", 3)

        # The same key once more is the same entry.
        await provider.register(PAY, weight=4)
        assert [(one.endpoint, one.weight) for one in registry.services[PAY]] == [(here, 4)]

        await provider.unregister(PAY)
        assert list(registry.services) == ["user"]
        assert provider.state(PAY) is ProviderState.UNREGISTERED
        assert provider.state("user") is ProviderState.REGISTERED
        with pytest.raises(NotRegistered):
            await provider.unregister(PAY)

        # Who is destroyed has unregistered before.
        async with Provider(ANY, [str(registry.router)], environment=Environment(options=OPTIONS)) as brief:
            await brief.register(PAY)
            assert [one.endpoint for one in registry.services[PAY]] == [str(brief.endpoint)]
        assert PAY not in registry.services
        assert (registry.stats.unregistered_count, registry.stats.expired_count) == (2, 0)


@pytest.mark.spec("DIS-08")
@pytest.mark.spec("DIS-25")
async def test_provider_update_weight() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        provider = await cast.offering(registry)
        assert registry.services[PAY][0].weight == 1
        await provider.update_weight(PAY, 5)
        assert registry.services[PAY][0].weight == 5
        assert entry(provider.registration(PAY)).weight == 5
        await provider.update_weight(PAY, 0)
        assert registry.services[PAY][0].weight == 1
        assert registry.stats.registered_count == 1
        with pytest.raises(NotRegistered):
            await provider.update_weight("user", 5)


@pytest.mark.spec("DIS-08")
@pytest.mark.spec("DIS-09")
async def test_update_weight_broadcast() -> None:
    # Nothing is told for want of news within this test: what arrives was told because of the change.
    async with Cast() as cast:
        registry = await cast.registry(broadcast_interval=600.0, heartbeat_timeout=600.0)
        provider = await cast.offering(registry)
        discovery = await cast.discovery(registry)
        heard = Heard(discovery)
        await discovery.wait_available(PAY, timeout=WITHIN_S)
        seq = discovery.lists_heard[registry.registry_id]
        count = registry.stats.broadcasts_count
        await provider.update_weight(PAY, 5)
        await until(lambda: discovery.providers(PAY)[0].weight == 5, "the discovery sees the new weight")
        assert discovery.lists_heard[registry.registry_id] == seq + 1
        assert registry.stats.broadcasts_count == count + 1
        assert [type(event) for event in heard.events[-1:]] == [WeightChanged]


@pytest.mark.spec("DIS-08")
async def test_update_weight_invalid_target() -> None:
    async with Cast() as cast:
        registry = await cast.registry(broadcast_interval=600.0, heartbeat_timeout=600.0)
        provider = await cast.offering(registry)
        here = str(provider.endpoint)
        async with (
            Caller(Dealer(b"stranger", environment=Environment(options=OPTIONS))) as stranger,
            Listener(Sub(environment=Environment(options=OPTIONS))) as listener,
            asyncio.timeout(WITHIN_S),
        ):
            await listener.dial(registry.pub)
            last = await listener.until_endpoints(here)
            await stranger.dial(registry.router)
            await stranger.register(GHOST, service="user")
            last = await listener.until(lambda told: "user" in told.services)
            before, count = registry.services, registry.stats.broadcasts_count
            for service, endpoint in [("ghost", here), (PAY, GHOST), ("user", here), (PAY, here)]:
                ack = await stranger.reweigh(9, endpoint, service=service)
                assert (ack.status, ack.endpoint) == (AckStatus.OTHER, endpoint)
                assert ack.error.startswith("not registered")
            assert registry.services == before
            assert registry.stats.broadcasts_count == count
            # The next list is that of the next real change: nothing was told in between.
            await provider.update_weight(PAY, 2)
            told = await listener.next()
            assert told.list_seq == last.list_seq + 1
            assert [one.weight for one in told.services[PAY]] == [2]
            assert [one.weight for one in told.services["user"]] == [1]


@pytest.mark.spec("DIS-04")
async def test_provider_register_ack() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        provider = await cast.provider(registry, routing_id=b"ann")
        done = await provider.register(PAY)
        assert (done.status, done.error) == (AckStatus.OK, "")
        assert (done.endpoint, done.registry) == (str(provider.endpoint), str(registry.router))

        second = await cast.provider(registry, routing_id=b"bob")
        with pytest.raises(RegistrationRefused) as duplicate:
            await second.register(PAY, advertise=str(provider.endpoint))
        assert duplicate.value.status == 0x01
        assert entry(second.registration(PAY)).status is AckStatus.DUPLICATE
        assert "alive" in entry(second.registration(PAY)).error
        assert second.state(PAY) is ProviderState.CONNECTED

        # What cannot be dialled is refused before it is sent; who sends it all the same is told 0x02.
        with pytest.raises(BadEndpoint):
            await second.register(PAY, advertise="tcp://*:5555")
        async with (
            Caller(Dealer(b"careless", environment=Environment(options=OPTIONS))) as careless,
            asyncio.timeout(WITHIN_S),
        ):
            await careless.dial(registry.router)
            for wrong in ("tcp://*:5555", "tcp://127.0.0.1:0", "payment-server", ""):
                ack = await careless.register(wrong)
                assert (ack.status, ack.endpoint) == (AckStatus.BAD_ENDPOINT, wrong)
                assert ack.error
        assert registry.services.keys() == {PAY}
        assert [one.routing_id for one in registry.services[PAY]] == [b"ann"]

        # A registry that never answers: the call has a deadline.
        with socket.create_server(("127.0.0.1", 0)) as mute:
            nowhere = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
            async with Provider(ANY, [nowhere], environment=Environment(options=OPTIONS)) as lonely:
                with pytest.raises(TimedOut, match=nowhere):
                    await lonely.register(PAY, timeout=0.1)
                assert lonely.registration(PAY) is None


# ---- silence --------------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-06")
async def test_heartbeat_timeout() -> None:
    timeout_s = 1.0
    async with Cast() as cast:
        registry = await cast.registry(heartbeat_timeout=timeout_s, broadcast_interval=600.0)
        beating = await cast.offering(registry)
        async with (
            Caller(Dealer(b"silent", environment=Environment(options=OPTIONS))) as silent,
            asyncio.timeout(WITHIN_S),
        ):
            await silent.dial(registry.router)
            discovery = await cast.discovery(registry)
            heard = Heard(discovery)
            asked_at = asyncio.get_running_loop().time()
            assert (await silent.register(GHOST)).status is AckStatus.OK
            await until(lambda: GHOST in endpoints(discovery), "the silent one is listed")
            # It stays connected and says nothing more.
            await until(lambda: GHOST not in endpoints(discovery), "the silent one is removed")
            assert asyncio.get_running_loop().time() - asked_at >= timeout_s
        assert endpoints(discovery) == [str(beating.endpoint)]
        assert registry.stats.expired_count == 1
        removed = [e.provider.endpoint for e in heard.events if isinstance(e, ProviderRemoved)]
        assert removed == [GHOST]
        # The other one is there because it beats, for longer than the timeout by now.
        assert registry.stats.heartbeats_count > 0


# ---- where a provider says it is ------------------------------------------------------------------------


def default_route_address() -> str | None:
    """This machine's address on its default route, asked of the kernel; None when there is no such route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:
            return None
        host: str = probe.getsockname()[0]
        return host


@pytest.mark.spec("DIS-27")
async def test_endpoint_auto_detect() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        wild = await cast.provider(registry, bind="tcp://*:0")
        port = wild.endpoint.port
        host = default_route_address()
        if host is None or host.startswith("127."):
            with pytest.raises(Unavailable, match="advertise"):
                await wild.register(PAY)
        else:
            done = await wild.register(PAY)
            assert done.endpoint == f"tcp://{host}:{port}"
            gateway = await cast.calling(registry)
            assert await gateway.request(PAY, b"hello") == [wild.routing_id, b"hello"]
        named = await wild.register("named", advertise="tcp://payment-server:5555")
        assert named.endpoint == "tcp://payment-server:5555"
        concrete = await cast.provider(registry, bind="tcp://127.0.0.1:0")
        as_bound = await concrete.register("bound")
        assert as_bound.endpoint == f"tcp://127.0.0.1:{concrete.endpoint.port}"
        told = [one.endpoint for entries in registry.services.values() for one in entries]
        assert not [endpoint for endpoint in told if "*" in endpoint or "0.0.0.0" in endpoint]
