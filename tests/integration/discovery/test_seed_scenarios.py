"""The scenarios of the specification (seed 001, 11.2), step by step, on TCP.

Those in which somebody crashes run registries and providers as processes, and kill them with SIGKILL.
"""

import asyncio
from contextlib import AsyncExitStack

import pytest

from hansa import Request, Weighted
from hansa.services.discovery import ProviderAdded, ProviderRemoved
from hansa.services.gateway import Completion
from hansa.services.provider import AckStatus, ProviderState
from hansa.transport import Environment, Sub
from tests.support.discovery_cast import (
    OPTIONS,
    PAY,
    WITHIN_S,
    Cast,
    Heard,
    LastByName,
    endpoints,
    shares,
    until,
)
from tests.support.discovery_processes import ProviderProcess, RegistryProcess
from tests.support.registry_callers import Listener
from tests.support.reserved_ports import reserved_endpoints

TIMEOUT_S = 2.0

pytestmark = pytest.mark.timeout(100)


# ---- without crashes -------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-04")
@pytest.mark.spec("DIS-18")
@pytest.mark.spec("DIS-19")
@pytest.mark.spec("DIS-22")
async def test_scenario_01_basic_flow() -> None:
    async with Cast() as cast, asyncio.timeout(WITHIN_S):
        # 1. The registry starts.
        registry = await cast.registry()
        assert registry.is_running
        # 2. Three providers register; 3. each is told that it succeeded.
        names = (b"ann", b"bob", b"cyd")
        providers = [await cast.provider(registry, routing_id=name) for name in names]
        for provider in providers:
            registration = await provider.register(PAY)
            assert registration.status is AckStatus.OK
            assert provider.state(PAY) is ProviderState.REGISTERED
        # 4. A discovery subscribes; 5. it gets the list.
        discovery = await cast.discovery(registry)
        await until(lambda: discovery.provider_count(PAY) == 3, "the list has come")
        assert endpoints(discovery) == sorted(str(provider.endpoint) for provider in providers)
        # 6. A gateway is made with the discovery; 7. it connects by itself.
        gateway = await cast.gateway(discovery)
        await gateway.wait_connected(PAY, 3)
        assert [len(provider.router.peers) for provider in providers] == [1, 1, 1]
        # 8. Messages go round.
        sent = {await gateway.send(PAY, b"%d" % number): b"%d" % number for number in range(30)}
        # 9. Replies find their requests by the request id.
        answered = []
        while sent:
            got = await gateway.recv()
            who, payload = got.result()
            assert payload == sent.pop(got.request_id)
            answered.append(who)
        assert {name: answered.count(name) for name in names} == dict.fromkeys(names, 10)


@pytest.mark.spec("DIS-11")
async def test_scenario_03_cluster() -> None:
    async with Cast() as cast:
        # 1. Three registries start.
        first, second, third = await cast.cluster(3)
        # 2. A provider registers with the first.
        provider = await cast.offering(first)
        here = str(provider.endpoint)
        # 3. The second and the third hear of it.
        await until(lambda: PAY in second.services and PAY in third.services, "the others know it")
        assert first.services == second.services == third.services
        assert [one.stats.direct_count for one in (first, second, third)] == [1, 0, 0]
        # 4. A discovery on the second sees the same list.
        near, far = await cast.discovery(first), await cast.discovery(second)
        await until(lambda: endpoints(near) == endpoints(far) == [here], "both see the same list")
        assert near.providers(PAY) == far.providers(PAY)


@pytest.mark.spec("DIS-19")
async def test_scenario_04_many_requests_at_once() -> None:
    async with Cast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        waiting: list[tuple[Request, asyncio.Future[None]]] = []
        names = {b"ann", b"bob", b"cyd"}
        for name in sorted(names):
            provider = await cast.offering(registry, routing_id=name)

            @provider.handler(1)
            async def answer(request: Request, name: bytes = name) -> bytes:
                turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                waiting.append((request, turn))
                await turn
                return b"%s: %s" % (name, request.payload)

        # 1. The gateway asks all three providers at once.
        gateway = await cast.calling(registry, count=3)
        sent = {await gateway.send(PAY, b"%d" % number, msg_id=1): b"%d" % number for number in range(3)}
        await until(lambda: len(waiting) == 3, "each provider has one")
        # 2. Each has a request id of its own.
        assert {request.request_id for request, _ in waiting} == sent.keys()
        # 3. Whatever the order of the answers, each reaches its request.
        arrived = [request.request_id for request, _ in waiting]
        for request, turn in reversed(waiting):
            turn.set_result(None)
            got = await gateway.recv()
            assert got.request_id == request.request_id == arrived.pop()
            name, _, payload = got.result()[0].partition(b": ")
            assert payload == sent[got.request_id]
            names.remove(name)
        assert names == set()


@pytest.mark.spec("DIS-17")
async def test_scenario_05_discovery_without_gateway() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        for name in (b"ann", b"bob"):
            await cast.offering(registry, routing_id=name)
        # 1. A discovery alone lists the services.
        discovery = await cast.discovery(registry, services=())
        discovery.subscribe_all()
        await until(lambda: discovery.provider_count(PAY) == 2, "the list has come")
        assert list(discovery.services) == [PAY]
        # 2. Several gateways share it.
        one, other, third = [await cast.gateway(discovery) for _ in range(3)]
        for gateway in (one, other, third):
            await gateway.wait_connected(PAY, 2, timeout=WITHIN_S)
        # 3. Each balances on its own: what one asks does not shift another's turn.
        other.set_balancer(PAY, LastByName())
        order = []
        for _ in range(6):
            order.append((await one.request(PAY, b""))[0])
            await third.request(PAY, b"")
            await other.request(PAY, b"")
        assert order == order[:2] * 3
        assert set(order) == {b"ann", b"bob"}
        assert len(await shares(other, 6)) == 1


@pytest.mark.spec("DIS-08")
@pytest.mark.spec("DIS-22")
async def test_scenario_06_weight_update() -> None:
    async with Cast() as cast:
        registry = await cast.registry(broadcast_interval=600.0)
        # 1. A provider registers with weight 1, beside another one.
        ann = await cast.offering(registry, weight=1, routing_id=b"ann")
        await cast.offering(registry, weight=1, routing_id=b"bob")
        discovery = await cast.discovery(registry)
        gateway = await cast.gateway(discovery)
        gateway.set_balancer(PAY, Weighted())
        await gateway.wait_connected(PAY, 2, timeout=WITHIN_S)
        assert await shares(gateway, 12) == {b"ann": 6, b"bob": 6}
        # 2. It changes its weight to 5.
        count, seq = registry.stats.broadcasts_count, discovery.lists_heard
        await ann.update_weight(PAY, 5)
        # 3. The registry tells the new list; 4. the discovery has the new weight.
        await until(
            lambda: (
                {one.routing_id: one.weight for one in discovery.providers(PAY)} == {b"ann": 5, b"bob": 1}
            ),
            "the new weight has come",
        )
        assert registry.stats.broadcasts_count > count
        assert discovery.lists_heard[registry.registry_id] > seq[registry.registry_id]
        # 5. The gateway asks it five times as often.
        assert await shares(gateway, 60) == {b"ann": 50, b"bob": 10}


@pytest.mark.spec("DIS-20")
async def test_scenario_07_gateway_callback() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        await cast.offering(registry, routing_id=b"ann")
        gateway = await cast.calling(registry)
        # 1. Requests with a callback; 2. the provider answers.
        told: list[Completion] = []
        ids = [gateway.submit(PAY, [b"question", b"%d" % number], told.append) for number in range(3)]
        # 3. The callback is called for each, with its request id.
        await until(lambda: len(told) == 3, "all are told")
        assert {one.request_id: one.result() for one in told} == {
            request_id: [b"ann", b"question", b"%d" % number] for number, request_id in enumerate(ids)
        }


@pytest.mark.spec("DIS-23")
async def test_scenario_08_custom_routing() -> None:
    async with Cast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        for name in (b"ann", b"bob", b"cyd"):
            await cast.offering(registry, routing_id=name)
        discovery = await cast.discovery(registry)
        gateway = await cast.gateway(discovery)
        await gateway.wait_connected(PAY, 3)
        # 1. The providers, from the discovery.
        chosen = max(discovery.providers(PAY), key=lambda provider: provider.routing_id)
        assert chosen.routing_id == b"cyd"
        # 2. The service's ROUTER.
        router = gateway.router(PAY)
        # 3. Straight to the chosen one, under ids of our own.
        for request_id in (101, 102, 103):
            await router.send(chosen.routing_id, request_id, b"order %d" % request_id)
        # 4. The replies come, matched by these ids.
        got = {(one := await gateway.recv()).request_id: one.result() for _ in range(3)}
        assert got == {number: [b"cyd", b"order %d" % number] for number in (101, 102, 103)}


# ---- with crashes ----------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-06")
@pytest.mark.spec("DIS-16")
@pytest.mark.spec("DIS-18")
async def test_scenario_02_recovery() -> None:
    async with AsyncExitStack() as stack, Cast() as cast:
        registry = RegistryProcess(heartbeat_interval=0.1, heartbeat_timeout=TIMEOUT_S)
        await (await stack.enter_async_context(registry)).ready()
        providers = [ProviderProcess(name, registry.router, service=PAY) for name in ("ann", "bob", "cyd")]
        for provider in providers:
            await stack.enter_async_context(provider)
        for provider in providers:
            await provider.registered()
        discovery = await cast.discovery(registry.pub)
        heard = Heard(discovery)
        gateway = await cast.gateway(discovery)
        await gateway.wait_connected(PAY, 3, timeout=WITHIN_S)
        # 1. One provider dies.
        await providers[0].kill()
        died_at = asyncio.get_running_loop().time()
        # 2. After the heartbeat timeout, and not before, it is listed no more; 3. the gateway is told.
        await until(lambda: heard.of(ProviderRemoved) != [], "the dead one is removed")
        assert asyncio.get_running_loop().time() - died_at > TIMEOUT_S / 2
        assert endpoints(discovery) == sorted(provider.endpoint for provider in providers[1:])
        (removed,) = heard.of(ProviderRemoved)
        assert isinstance(removed, ProviderRemoved)
        assert removed.provider.endpoint == providers[0].endpoint
        assert (await registry.event("provider-removed"))["endpoint"] == providers[0].endpoint
        # 4. The gateway has let it go.
        assert gateway.connection_count(PAY) == 2
        # 5. Messages go to those that are left.
        assert await shares(gateway, 10) == {b"bob": 5, b"cyd": 5}


class Cluster:
    """Three registries as processes that follow each other, at ports kept for them. Use `async with`."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.registries: list[RegistryProcess] = []

    async def __aenter__(self) -> list[RegistryProcess]:
        await self._stack.__aenter__()
        pubs = self._stack.enter_context(reserved_endpoints(3))
        routers = self._stack.enter_context(reserved_endpoints(3))
        for number in range(3):
            peers = tuple(pub for pub in pubs if pub != pubs[number])
            self.registries.append(
                RegistryProcess(pubs[number], routers[number], peers=peers, registry_id=number + 1)
            )
        for registry in self.registries:
            await self._stack.enter_async_context(registry)
        for registry in self.registries:
            await registry.ready()
        for number, registry in enumerate(self.registries, 1):
            for _ in range(2):
                assert (await registry.event("peer-heard"))["peer"] != number
        return self.registries

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()


@pytest.mark.spec("DIS-11")
@pytest.mark.spec("DIS-12")
async def test_scenario_09_registry_failure() -> None:
    # 1. Three registries that follow each other.
    async with Cluster() as (first, second, third), Cast() as cast:
        routers = (first.router, second.router, third.router)
        # 2. A provider registers with the first and sends heartbeats.
        async with ProviderProcess("ann", *routers, service=PAY) as provider:
            assert (await provider.registered())["registry"] == first.router
            watching = [await cast.discovery(registry.pub) for registry in (second, third)]
            await until(lambda: all(d.is_available(PAY) for d in watching), "the others know it")
            since = [discovery.providers(PAY)[0].registered_at for discovery in watching]
            assert since[0] == since[1]
            # 3. The first is killed.
            await first.kill()
            # 4. The provider goes to the second and registers again.
            assert (await provider.registered())["registry"] == second.router
            # 5. The second and the third tell a newer list; 6. a discovery at each of them has it.
            await until(
                lambda: all(d.providers(PAY)[0].registered_at > since[0] for d in watching), "it is news"
            )
            assert watching[0].providers(PAY) == watching[1].providers(PAY)
            assert endpoints(watching[0]) == [provider.endpoint]
            assert [discovery.registries_heard for discovery in watching] == [(2,), (3,)]
            # And it can be called.
            gateway = await cast.gateway(watching[1])
            await gateway.wait_connected(PAY, timeout=WITHIN_S)
            assert await gateway.request(PAY, b"hello") == [b"ann", b"hello"]


@pytest.mark.spec("DIS-10")
@pytest.mark.spec("DIS-14")
async def test_scenario_10_discovery_outlives_registries() -> None:
    async with Cluster() as (first, second, third), Cast() as cast:
        # 1. A discovery listens to all three.
        discovery = await cast.discovery(first.pub, second.pub, third.pub)
        heard = Heard(discovery)
        await until(lambda: discovery.registries_heard == (1, 2, 3), "all three are heard")
        async with ProviderProcess("ann", first.router, second.router, service=PAY) as ann:
            await ann.registered(registry=first.router)
            # From all three: what only the first has told would go with it.
            await cast.told_by_each(discovery, first.pub, second.pub, third.pub)
            assert endpoints(discovery) == [ann.endpoint]
            last = discovery.lists_heard[1]
            # 2. The first dies.
            await first.kill()
            await until(lambda: discovery.registries_heard == (2, 3), "it is not heard any more")
            # 3. Lists go on coming from the others: of those who move, and of those who are new.
            await ann.registered(registry=second.router)
            async with ProviderProcess("bob", third.router, service=PAY) as bob:
                await bob.registered()
                both = sorted([ann.endpoint, bob.endpoint])
                await until(lambda: endpoints(discovery) == both, "the new one is listed")
                # 4. The first is back under its id. It is believed again, nothing is there twice, nothing
                # that is old takes the place of what is new.
                async with first.again() as back:
                    await back.ready()
                    await until(lambda: discovery.registries_heard == (1, 2, 3), "it is heard again")
                    assert discovery.lists_heard[1] > last
                    await back.event("provider-added", endpoint=ann.endpoint)
                    alone = await cast.discovery(back.pub)
                    await until(lambda: endpoints(alone) == both, "it has learnt everything")
                    assert endpoints(discovery) == both
                    assert alone.providers(PAY) == discovery.providers(PAY)
                    assert heard.of(ProviderRemoved) == []
                    assert len(heard.of(ProviderAdded)) == 2
                    assert discovery.stats.lists_older_count == 0


@pytest.mark.spec("DIS-03")
@pytest.mark.spec("DIS-13")
async def test_scenario_11_no_duplicate_after_reregistration() -> None:
    async with Cluster() as (first, second, third), Cast() as cast:
        routers = (first.router, second.router, third.router)
        # 1. A provider registers with the first.
        async with ProviderProcess("ann", *routers, service=PAY) as provider:
            assert (await provider.registered())["registry"] == first.router
            discovery = await cast.discovery(second.pub, third.pub)
            await until(lambda: discovery.is_available(PAY), "the others know it")
            # 2. The first dies, and it registers with the second.
            await first.kill()
            assert (await provider.registered())["registry"] == second.router
            # 3. The first comes back, too. When all have heard each other there is one entry everywhere.
            async with first.again() as back, asyncio.timeout(WITHIN_S):
                await back.ready()
                async with Listener(Sub(environment=Environment(options=OPTIONS))) as listener:
                    listener.sub.connect(second.pub)
                    entries = (await listener.until(lambda told: PAY in told.services)).services[PAY]
                assert [one.endpoint for one in entries] == [provider.endpoint]
                for registry in (back, third):
                    async with Listener(Sub(environment=Environment(options=OPTIONS))) as listener:
                        listener.sub.connect(registry.pub)
                        told = await listener.until(lambda told: told.services.get(PAY) == entries)
                        assert told.registry_id == registry.registry_id
            assert endpoints(discovery) == [provider.endpoint]
