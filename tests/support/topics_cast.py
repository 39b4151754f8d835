"""Nodes of a topic mesh in one process, on TCP, each with a discovery of its own, at a registry."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from hansa import Discovery, Registry, SpotEvent, SpotNode, TopicMessage
from hansa.errors import WouldBlock
from hansa.ids import routing_id
from hansa.runtime.tasks import TaskScope
from tests.support.discovery_cast import ANY, BEAT_S, OPTIONS, WITHIN_S, Cast, until
from tests.support.lanes import gathered
from tests.support.recorder import Recorder

NODES = "spot-node"


class Source(Protocol):
    """A spot or a subscription, as far as receiving goes."""

    async def recv(self) -> TopicMessage: ...
    def recv_nowait(self) -> TopicMessage: ...


class Teller(Protocol):
    """A node or a spot, as far as its events go."""

    def events(self) -> AsyncIterator[SpotEvent]: ...


class TopicCast(Cast):
    """A Cast that also knows nodes. Use `async with`."""

    def __init__(self) -> None:
        super().__init__()
        self._listening = TaskScope("listening", self._failed)
        self._stack.push_async_callback(self._listening.close)

    async def node(
        self, registry: Registry, number: int | None = None, *, service: str = NODES, **settings: Any
    ) -> SpotNode:
        """A node that a registry has, under the routing id of this number."""
        return await self.node_at(
            [str(registry.pub)], [str(registry.router)], number, service=service, **settings
        )

    async def node_at(
        self, pubs: Sequence[str], routers: Sequence[str], number: int | None = None, **settings: Any
    ) -> SpotNode:
        """The same, where the registries are known by their endpoints."""
        settings = gathered({"options": OPTIONS, **settings})
        discovery = Discovery(pubs, environment=settings["environment"].but(options=OPTIONS))
        await self._stack.enter_async_context(discovery)
        filled = {
            "bind": ANY,
            "discovery": discovery,
            "registries": routers,
            "routing_id": b"" if number is None else routing_id(number),
            "heartbeat_interval": BEAT_S,
            "name": f"node {number}",
            **settings,
        }
        node = await self._stack.enter_async_context(SpotNode(**filled))
        await node.registered(timeout=WITHIN_S)
        return node

    async def local(self, **settings: Any) -> SpotNode:
        """A node without a network."""
        return await self._stack.enter_async_context(SpotNode(**gathered(settings)))

    async def mesh(self, registry: Registry, *numbers: int, **settings: Any) -> list[SpotNode]:
        """Nodes that are all connected with each other."""
        nodes = [await self.node(registry, number, **settings) for number in numbers]
        await meshed(*nodes)
        return nodes

    def heard(self, teller: Teller) -> Recorder:
        """Everything that a node or a spot tells from now on."""
        recorder = Recorder()
        events = teller.events()

        async def listen() -> None:
            async for event in events:
                recorder(event)

        self._listening.spawn(listen(), "events")
        return recorder

    @staticmethod
    def _failed(error: BaseException) -> None:
        raise error


async def meshed(*nodes: SpotNode) -> None:
    """Wait until each of these is connected with each other one, and has heard its topics."""
    await until(lambda: all(len(node.peers) == len(nodes) - 1 for node in nodes), "all are connected")
    for node in nodes:
        await node.in_step(timeout=WITHIN_S)


async def payloads(source: Source, count: int) -> list[bytes]:
    """The next so many payloads."""
    return [message.payload for message in await messages(source, count)]


async def messages(source: Source, count: int) -> list[TopicMessage]:
    """The next so many messages."""
    async with asyncio.timeout(WITHIN_S):
        return [await source.recv() for _ in range(count)]


def waiting(source: Source) -> list[bytes]:
    """The payloads of all that waits now."""
    found = []
    while True:
        try:
            found.append(source.recv_nowait().payload)
        except WouldBlock:
            return found


def numbered(numbers: Sequence[int] | range) -> list[bytes]:
    """Payloads that tell their place."""
    return [b"%d" % number for number in numbers]
