"""A registry played by hand: a publisher that says what registries say, and a Discovery that hears it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hansa.services.discovery import Discovery
from hansa.transport import Environment, Pub
from hansa.wire.listing import ProviderEntry, ServiceList, encode_list
from tests.support.lanes import Lane, quick


def entry(name: str, weight: int = 1) -> ProviderEntry:
    return ProviderEntry(endpoint=f"tcp://{name}:1", routing_id=name.encode(), weight=weight)


class HandRegistry:
    """Publishes lists as a registry does: to all when told so, and the last one to each newcomer."""

    def __init__(self, pub: Pub, registry_id: int, endpoint: str, seq: int) -> None:
        self.pub = pub
        self.registry_id = registry_id
        self.endpoint = endpoint
        self.seq = seq
        self.frames: list[bytes] = []

    def tell(self, *names: str, seq: int | None = None, **services: list[ProviderEntry]) -> int:
        """A new list: `names` provide "pay", and other services as given. To how many it went."""
        self.seq = self.seq + 1 if seq is None else seq
        listed = {"pay": [entry(name) for name in names], **services}
        self.frames = encode_list(
            ServiceList(
                registry_id=self.registry_id,
                list_seq=self.seq,
                services={service: tuple(entries) for service, entries in listed.items()},
            )
        )
        return self.pub.post(self.frames)


@asynccontextmanager
async def registry(
    lane: Lane, *names: str, registry_id: int = 1, endpoint: str = "", seq: int = 100, **settings: Any
) -> AsyncIterator[HandRegistry]:
    """A registry that tells newcomers that `names` provide "pay"."""

    def subscribed(peer: bytes, prefix: bytes, wanted: bool) -> None:
        if wanted:
            assert prefix == b"\x05\x00"
            hand.pub.post(hand.frames)

    async with lane.pub(on_subscription=subscribed, **settings) as pub:
        where = str(await pub.bind(endpoint or lane.endpoint()))
        hand = HandRegistry(pub, registry_id, where, seq - 1)
        hand.tell(*names)
        yield hand


def discovery(lane: Lane, *registries: HandRegistry | str, **settings: Any) -> Discovery:
    endpoints = [each if isinstance(each, str) else each.endpoint for each in registries]
    return Discovery(
        endpoints, environment=Environment(tls=lane.tls, options=quick(), network=lane.memory), **settings
    )


def names(found: Discovery, service: str = "pay") -> list[str]:
    return [provider.endpoint[6:-2] for provider in found.providers(service)]
