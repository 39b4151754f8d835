"""Registries, providers, discoveries and gateways of one process, on TCP, with intervals that suit a test."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from hansa import Choice, Discovery, Gateway, Provider, Registry, Request
from hansa.chance import Chance
from hansa.services.discovery import DiscoveryEvent
from hansa.services.provider import Registration
from hansa.transport import Environment, SocketOptions
from tests.support.lanes import gathered

M = TypeVar("M", bound=Choice)

ANY = "tcp://127.0.0.1:0"
PAY = "payment"
# Far more than anything here takes: only what never happens waits for so long.
WITHIN_S = 20.0
BEAT_S = 0.1
OPTIONS = SocketOptions(reconnect_s_min=0.02, reconnect_s_max=0.1, linger=0.5)
ENVIRONMENT = Environment(options=OPTIONS)


async def until(holds: Callable[[], bool], what: str) -> None:
    """Let the loop run until something holds."""
    try:
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"within {WITHIN_S} s it did not happen that {what}") from None


class Cast:
    """Makes the players and closes them in the reverse order. Use `async with`."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def registry(self, pub: str = ANY, router: str = ANY, **settings: Any) -> Registry:
        filled = gathered({"heartbeat_interval": BEAT_S, "options": OPTIONS, **settings})
        return await self._stack.enter_async_context(Registry(pub, router, **filled))

    async def cluster(self, count: int, *, routers: Sequence[str] = (), **settings: Any) -> list[Registry]:
        """Registries that all follow each other; with `routers`, at these endpoints."""
        registries = []
        for number in range(count):
            router = routers[number] if routers else ANY
            registries.append(await self.registry(router=router, name=f"registry {number + 1}", **settings))
        for one in registries:
            for other in registries:
                if one is not other:
                    one.add_peer(str(other.pub))
        await until(
            lambda: all(len(one.peers_heard) == count - 1 for one in registries), "all hear each other"
        )
        return registries

    async def provider(self, *registries: Registry, bind: str = ANY, **settings: Any) -> Provider:
        """A bound provider that answers with its routing id and what was asked."""
        filled = gathered({"heartbeat_interval": BEAT_S, "options": OPTIONS, **settings})
        routers = [str(registry.router) for registry in registries]
        provider = await self._stack.enter_async_context(Provider(bind, routers, **filled))

        @provider.handler()
        async def echo(request: Request) -> list[bytes]:
            return [provider.routing_id, *request.parts]

        return provider

    async def offering(
        self, registry: Registry, service: str = PAY, *, weight: int = 1, **settings: Any
    ) -> Provider:
        """A provider that is registered."""
        provider = await self.provider(registry, **settings)
        await provider.register(service, weight=weight)
        return provider

    async def discovery(self, *registries: Registry | str, services: tuple[str, ...] = (PAY,)) -> Discovery:
        pubs = [one if isinstance(one, str) else str(one.pub) for one in registries]
        discovery = Discovery(pubs, environment=ENVIRONMENT)
        for service in services:
            discovery.subscribe(service)
        return await self._stack.enter_async_context(discovery)

    async def told_by_each(self, discovery: Discovery, *registries: Registry | str) -> None:
        """Wait until the discovery has heard of providers from each of these registries, and not from one."""
        watching = [await self.discovery(registry) for registry in registries]
        await until(lambda: all(one.is_available(PAY) for one in watching), "each registry lists a provider")
        since = {number: seq for one in watching for number, seq in one.lists_heard.items()}
        await until(
            lambda: all(discovery.lists_heard.get(number, 0) >= seq for number, seq in since.items()),
            "the discovery has heard so from each",
        )

    async def gateway(self, discovery: Discovery, **settings: Any) -> Gateway:
        return await self._stack.enter_async_context(Gateway(discovery, environment=ENVIRONMENT, **settings))

    async def calling(self, registry: Registry, service: str = PAY, *, count: int = 1) -> Gateway:
        """A gateway that is connected to so many providers."""
        gateway = await self.gateway(await self.discovery(registry, services=(service,)))
        await gateway.wait_connected(service, count, timeout=WITHIN_S)
        return gateway


class LastByName:
    """A user's own strategy: always the same provider."""

    def choose(self, members: Sequence[M], key: bytes | None, chance: Chance) -> M:
        return max(members, key=lambda member: member.endpoint)


class Heard:
    """Every event of a discovery, in order."""

    def __init__(self, discovery: Discovery) -> None:
        self.events: list[DiscoveryEvent] = []
        discovery.listen(self.events.append)

    def of(self, kind: type[DiscoveryEvent]) -> list[DiscoveryEvent]:
        return [event for event in self.events if isinstance(event, kind)]


async def shares(gateway: Gateway, count: int, service: str = PAY) -> Counter[bytes]:
    """How many of so many requests, one after another, each provider got; they answer with their ids."""
    answered = [(await gateway.request(service, b"%d" % number))[0] for number in range(count)]
    return Counter(answered)


def endpoints(discovery: Discovery, service: str = PAY) -> list[str]:
    return [provider.endpoint for provider in discovery.providers(service)]


def entry(registration: Registration | None) -> Registration:
    assert registration is not None
    return registration
