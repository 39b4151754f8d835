"""The unit tests that the specification names (seed 001, 11.1): discovery and cluster, on TCP."""

import asyncio

import pytest

from hansa import Discovery, ProviderInfo
from hansa.services.discovery import (
    ProviderAdded,
    ProviderRemoved,
    ServiceAvailable,
    ServiceState,
    ServiceUnavailable,
)
from hansa.services.provider import ProviderState
from hansa.transport import Environment, Pub
from hansa.wire.listing import ProviderEntry, ServiceList, encode_list
from tests.support.discovery_cast import ANY, OPTIONS, PAY, WITHIN_S, Cast, Heard, endpoints, entry, until
from tests.support.reserved_ports import reserved_endpoints

HERE = "tcp://127.0.0.1:1"


@pytest.mark.spec("DIS-15")
@pytest.mark.spec("DIS-16")
async def test_discovery_subscribe() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        discovery = await cast.discovery(registry, services=())
        heard, also = Heard(discovery), Heard(discovery)
        pay = await cast.offering(registry)
        user = await cast.offering(registry, "user")
        await until(lambda: discovery.stats.providers_count == 2, "the list has come")
        # It is known, but nobody asked for it.
        assert heard.events == []
        assert discovery.services == {}
        assert discovery.state(PAY) is ServiceState.EMPTY

        discovery.subscribe(PAY)
        (info,) = discovery.providers(PAY)
        assert info.endpoint == str(pay.endpoint)
        assert heard.events == [ProviderAdded(provider=info), ServiceAvailable(service=PAY)]
        assert discovery.state(PAY) is ServiceState.AVAILABLE
        assert list(discovery.services) == [PAY]

        heard.events.clear()
        await user.unregister("user")
        await pay.unregister(PAY)
        await until(lambda: not discovery.is_available(PAY), "the provider is gone")
        assert heard.events == [ProviderRemoved(provider=info), ServiceUnavailable(service=PAY)]
        assert discovery.state(PAY) is ServiceState.UNAVAILABLE

        await pay.register(PAY)
        await discovery.wait_available(PAY, timeout=WITHIN_S)
        heard.events.clear()
        discovery.unsubscribe(PAY)
        assert [type(event) for event in heard.events] == [ProviderRemoved, ServiceUnavailable]
        assert discovery.providers(PAY) == ()
        assert discovery.state(PAY) is ServiceState.EMPTY
        assert also.events[-2:] == heard.events  # Any number of listeners.


@pytest.mark.spec("DIS-15")
@pytest.mark.spec("DIS-17")
async def test_discovery_get_providers() -> None:
    async with Cast() as cast:
        registry = await cast.registry()
        discovery = await cast.discovery(registry)
        assert (discovery.providers(PAY), discovery.provider_count(PAY)) == ((), 0)
        assert not discovery.is_available(PAY)
        ann = await cast.offering(registry, weight=2, routing_id=b"ann")
        bob = await cast.offering(registry, weight=3, routing_id=b"bob")
        await until(lambda: discovery.provider_count(PAY) == 2, "both are listed")
        assert discovery.is_available(PAY)
        found = {provider.routing_id: provider for provider in discovery.providers(PAY)}
        for provider, weight in ((ann, 2), (bob, 3)):
            info = found[provider.routing_id]
            assert isinstance(info, ProviderInfo)
            assert (info.service, info.endpoint, info.weight) == (PAY, str(provider.endpoint), weight)
            assert info.registered_at > 1_700_000_000  # Wall time, in seconds.
        assert endpoints(discovery) == sorted(map(str, (ann.endpoint, bob.endpoint)))
        assert discovery.services == {PAY: discovery.providers(PAY)}


@pytest.mark.spec("DIS-11")
async def test_registry_cluster() -> None:
    async with Cast() as cast:
        registries = await cast.cluster(3)
        discoveries = [await cast.discovery(registry) for registry in registries]
        providers = [await cast.offering(registry) for registry in registries]
        expected = sorted(str(provider.endpoint) for provider in providers)
        await until(lambda: all(endpoints(d) == expected for d in discoveries), "everybody sees all three")
        assert all(registry.services == registries[0].services for registry in registries)
        # Each was registered with one of them; the others know it from that one.
        assert [registry.stats.direct_count for registry in registries] == [1, 1, 1]
        assert [registry.stats.synced_count for registry in registries] == [2, 2, 2]

        await providers[0].unregister(PAY)
        await providers[1].update_weight(PAY, 7)
        weights = {str(providers[1].endpoint): 7, str(providers[2].endpoint): 1}
        await until(
            lambda: all({p.endpoint: p.weight for p in d.providers(PAY)} == weights for d in discoveries),
            "everybody sees what changed",
        )


@pytest.mark.spec("DIS-12")
@pytest.mark.spec("DIS-13")
@pytest.mark.spec("DIS-14")
async def test_registry_failover() -> None:
    with reserved_endpoints(3) as routers:
        await check_failover(routers)


async def check_failover(routers: list[str]) -> None:
    async with Cast() as cast:
        first, second, third = await cast.cluster(3, routers=routers)
        discovery = await cast.discovery(first, second, third)
        heard = Heard(discovery)
        provider = await cast.provider(first, second, third)
        await provider.register(PAY)
        here = str(provider.endpoint)
        assert provider.registry == str(first.router)
        await cast.told_by_each(discovery, first, second, third)

        await first.stop()
        await until(lambda: provider.registry == str(second.router), "the next in line is active")
        await until(lambda: provider.state(PAY) is ProviderState.REGISTERED, "it is registered again")
        assert entry(provider.registration(PAY)).registry == str(second.router)
        assert provider.stats.failovers_count == 1
        assert provider.stats.reregistrations_count == 1
        assert second.stats.direct_count == 1
        for registry in (second, third):
            assert [one.endpoint for one in registry.services[PAY]] == [here]

        await second.stop()
        await until(lambda: provider.registry == str(third.router), "and the one after")
        await until(lambda: third.stats.direct_count == 1, "it is registered there")
        assert [one.endpoint for one in third.services[PAY]] == [here]
        # Nobody who looked on has seen it go.
        assert endpoints(discovery) == [here]
        assert heard.of(ProviderRemoved) == []

        # Round robin: after the last the first again, which has started meanwhile at its old port.
        back = await cast.registry(router=routers[0])
        await third.stop()
        await until(lambda: provider.registry == str(back.router), "the first is back in its turn")
        await until(lambda: back.stats.direct_count == 1, "and has the entry")


@pytest.mark.spec("DIS-10")
async def test_service_list_seq() -> None:
    def told(seq: int, weight: int, registry_id: int = 7) -> list[bytes]:
        entries = (ProviderEntry(endpoint=HERE, routing_id=b"ann", weight=weight),)
        return encode_list(ServiceList(registry_id=registry_id, list_seq=seq, services={PAY: entries}))

    joined = asyncio.Event()
    async with Pub(environment=Environment(options=OPTIONS), on_subscription=lambda *_: joined.set()) as pub:
        where = str(await pub.bind(ANY))
        async with (
            Discovery([where], environment=Environment(options=OPTIONS)) as discovery,
            asyncio.timeout(WITHIN_S),
        ):
            discovery.subscribe(PAY)
            await joined.wait()

            async def tell(seq: int, weight: int) -> int:
                """The weight that is believed after a list."""
                before = discovery.stats
                pub.post(told(seq, weight))
                await until(lambda: discovery.stats != before, "the list has come")
                return discovery.providers(PAY)[0].weight

            assert await tell(10, 1) == 1
            assert await tell(11, 2) == 2
            assert await tell(9, 3) == 2  # Older.
            assert await tell(11, 4) == 2  # The same number once more.
            assert await tell(12, 5) == 5
            assert await tell(2**64 - 1, 6) == 6
            assert await tell(13, 7) == 6
            stats = discovery.stats
            assert (stats.lists_count, stats.lists_older_count, stats.lists_repeated_count) == (4, 2, 1)
            assert discovery.lists_heard == {7: 2**64 - 1}

    # A registry that starts again under its id begins above what it said before.
    with reserved_endpoints(2) as (pub_at, router_at):
        await check_restart(pub_at, router_at)


async def check_restart(pub_at: str, router_at: str) -> None:
    async with Cast() as cast:
        registry = await cast.registry(pub_at, router_at, registry_id=7)
        discovery = await cast.discovery(registry)
        provider = await cast.offering(registry)
        await discovery.wait_available(PAY, timeout=WITHIN_S)
        last = discovery.lists_heard[7]
        await registry.stop()
        again = await cast.registry(pub_at, router_at, registry_id=7)
        await provider.update_weight(PAY, 5, timeout=WITHIN_S)
        await until(lambda: discovery.providers(PAY)[0].weight == 5, "it is believed again at once")
        assert discovery.lists_heard[7] > last
        assert discovery.stats.lists_older_count == 0
        assert again.registry_id == 7
