"""Everything that a gateway plays with: a hand-made registry, a real discovery, scripted providers."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Self

from hansa.chance import Chance
from hansa.services.discovery import Discovery
from hansa.services.gateway import Gateway
from hansa.transport import Environment, Pub
from hansa.wire.listing import ProviderEntry, ServiceList, encode_list
from tests.support.lanes import Lane, RawListener, gathered, quick
from tests.support.raw_peer import RawPeer
from tests.support.scripted_provider import Answer, ScriptedProvider, echo

REGISTRY_ID = 7


async def until(condition: Callable[[], bool]) -> None:
    """Look again and again; the test's own deadline ends what never comes true."""
    while not condition():
        await asyncio.sleep(0.001)


class Stage:
    """One lane's network with a registry that says what the test wants. Use `async with`."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.lists: dict[str, dict[str, ProviderEntry]] = {}
        self._list_seq = 0
        self._chance = Chance.seeded(1)
        self._gateways_count = 0
        self._pub: Pub = lane.pub(on_subscription=self._subscribed)
        self._stack = AsyncExitStack()
        self.discovery: Discovery

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self._stack.enter_async_context(self._pub)
        where = str(await self._pub.bind(self.lane.endpoint()))
        self.discovery = Discovery(
            [where],
            environment=Environment(
                tls=self.lane.tls, options=quick(), network=self.lane.memory, chance=self._chance
            ),
        )
        self.discovery.subscribe_all()
        await self._stack.enter_async_context(self.discovery)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def gateway(self, **settings: Any) -> Gateway:
        """A gateway that closes with the stage, or earlier."""
        self._gateways_count += 1
        filled = gathered(
            {
                "network": self.lane.memory,
                "tls": self.lane.tls,
                "options": quick(),
                "chance": self._chance.fork(f"gateway {self._gateways_count}"),
                **settings,
            }
        )
        return await self._stack.enter_async_context(Gateway(self.discovery, **filled))

    async def provider(
        self, name: str, *services: str, answer: Answer = echo, weight: int = 1, **settings: Any
    ) -> ScriptedProvider:
        """A scripted provider that runs, listed for these services; its routing id is its name."""
        provider = ScriptedProvider(self.lane, name.encode(), answer, **settings)
        await self._stack.enter_async_context(provider)
        for service in services:
            self.offer(service, provider.entry(weight))
        return provider

    async def echo_service(self, *names: str) -> tuple[Gateway, list[ScriptedProvider]]:
        """The usual beginning: a gateway connected to providers of "echo"."""
        providers = [await self.provider(name, "echo") for name in names]
        gateway = await self.gateway()
        await gateway.wait_connected("echo", len(names))
        return gateway, providers

    async def raw_provider(self, service: str, routing_id: bytes) -> tuple[RawListener, ProviderEntry]:
        """A listed endpoint behind which the test speaks ZMTP by hand."""
        listener = await self.lane.listen_raw()
        entry = ProviderEntry(endpoint=listener.endpoint, routing_id=routing_id)
        self.offer(service, entry)
        return listener, entry

    async def stalled_provider(self, service: str, routing_id: bytes) -> RawPeer:
        """A listed provider that shakes hands when the gateway dials, and then reads nothing."""
        listener, _ = await self.raw_provider(service, routing_id)
        raw = await listener.accept()
        await raw.shake_hands(b"ROUTER", routing_id)
        raw.stop_reading()
        return raw

    def offer(self, service: str, entry: ProviderEntry) -> None:
        """The registry lists this entry from now on."""
        self.lists.setdefault(service, {})[entry.endpoint] = entry
        self.publish()

    def retract(self, service: str, endpoint: str) -> None:
        """The registry lists it no more."""
        del self.lists[service][endpoint]
        self.publish()

    def publish(self) -> None:
        """Tell the list as it is now."""
        self._list_seq += 1
        self._pub.post(self._frames())

    async def listed(self, service: str, count: int) -> None:
        """Wait until the discovery shows so many providers."""
        await until(lambda: self.discovery.provider_count(service) == count)

    def _frames(self) -> list[bytes]:
        services = {name: tuple(entries.values()) for name, entries in self.lists.items() if entries}
        return encode_list(ServiceList(registry_id=REGISTRY_ID, list_seq=self._list_seq, services=services))

    def _subscribed(self, peer: bytes, prefix: bytes, wanted: bool) -> None:
        if wanted and self._list_seq:
            self._pub.post(self._frames())
