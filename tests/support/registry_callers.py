"""A provider and a listener that speak to a registry in plain messages, without the classes under test."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self

from hansa.endpoint import Endpoint
from hansa.services.registry import Registry
from hansa.transport import Dealer, Sub
from hansa.wire.listing import ProviderEntry, RegistrySync, ServiceList, decode_list
from hansa.wire.registry import (
    AckStatus,
    Heartbeat,
    Register,
    RegisterAck,
    RegistryMessage,
    Unregister,
    UpdateWeight,
    decode,
    encode,
)
from tests.support.lanes import Lane, gathered, quick

ANN = b"\x01\x00\x00\x00\x0a"
BOB = b"\x01\x00\x00\x00\x0b"
HERE = "tcp://10.0.0.1:5000"
THERE = "tcp://10.0.0.2:5000"
PAY = "payment"


class Caller:
    """A provider's DEALER. Each call sends one message with a token and waits for the answer to it."""

    def __init__(self, dealer: Dealer) -> None:
        self.dealer = dealer
        self._token = 0

    async def __aenter__(self) -> Self:
        await self.dealer.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self.dealer.close()

    async def dial(self, router: Endpoint) -> Self:
        await self.dealer.connect(router).up()
        return self

    async def register(self, endpoint: str = HERE, *, service: str = PAY, weight: int = 1) -> RegisterAck:
        self._token += 1
        return await self._ask(Register(service=service, endpoint=endpoint, weight=weight, token=self._token))

    async def unregister(self, endpoint: str = HERE, *, service: str = PAY) -> AckStatus:
        self._token += 1
        ack = await self._ask(Unregister(service=service, endpoint=endpoint, token=self._token))
        return ack.status

    async def reweigh(self, weight: int, endpoint: str = HERE, *, service: str = PAY) -> RegisterAck:
        self._token += 1
        return await self._ask(
            UpdateWeight(service=service, endpoint=endpoint, weight=weight, token=self._token)
        )

    async def beat(self, endpoint: str = HERE, *, service: str = PAY) -> None:
        await self.say(Heartbeat(service=service, endpoint=endpoint))

    async def say(self, message: RegistryMessage) -> None:
        await self.dealer.send(encode(message))

    async def answer(self) -> RegisterAck:
        ack = decode((await self.dealer.recv()).parts)
        assert isinstance(ack, RegisterAck)
        return ack

    async def _ask(self, message: RegistryMessage) -> RegisterAck:
        await self.say(message)
        while (ack := await self.answer()).token != self._token:
            pass
        return ack


class Listener:
    """A SUB at one registry, or several. It keeps every list; `until` waits for one that fits."""

    def __init__(self, sub: Sub, *, prefix: bytes = b"\x05\x00") -> None:
        self.sub = sub
        self.lists: list[ServiceList | RegistrySync] = []
        self._prefix = prefix

    async def __aenter__(self) -> Self:
        await self.sub.__aenter__()
        self.sub.subscribe(self._prefix)
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self.sub.close()

    async def dial(self, *pubs: Endpoint) -> Self:
        for pub in pubs:
            await self.sub.connect(pub).up()
        return self

    async def next(self) -> ServiceList | RegistrySync:
        found = decode_list((await self.sub.recv()).parts)
        self.lists.append(found)
        return found

    async def until(self, fits: Callable[[ServiceList | RegistrySync], bool]) -> ServiceList | RegistrySync:
        while not fits(found := await self.next()):
            pass
        return found

    async def until_endpoints(self, *endpoints: str, service: str = PAY) -> ServiceList | RegistrySync:
        """The next list that names exactly these providers of a service."""
        return await self.until(lambda found: ends(found.services.get(service, ())) == list(endpoints))


def ends(entries: Sequence[ProviderEntry]) -> list[str]:
    return [entry.endpoint for entry in entries]


async def eventually(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds; the test's own deadline ends it."""
    while not holds():
        await asyncio.sleep(0.001)


def registry(lane: Lane, pub: str = "", router: str = "", **settings: Any) -> Registry:
    return Registry(
        pub or lane.endpoint(),
        router or lane.endpoint(),
        **gathered({"network": lane.memory, "options": quick(), **settings}),
    )


def caller(lane: Lane, routing_id: bytes = ANN, **settings: Any) -> Caller:
    return Caller(lane.dealer(routing_id, **settings))


def listener(lane: Lane, prefix: bytes = b"\x05\x00") -> Listener:
    return Listener(lane.sub(), prefix=prefix)
