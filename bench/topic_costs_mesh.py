"""Real nodes over a simulated network, and what one of them sends and is sent.

In a full mesh every node is connected to every other. What one node has to do with the others is the same
without the connections that they have among themselves, so for large meshes only the node's own ones are
made: its peers are real nodes too, whose discovery lists nobody but it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from bench.topic_costs_flow import Traffic
from bench.topic_costs_formula import SUBSCRIBED_COUNTS, Shape
from bench.topic_costs_meter import MeteredNetwork
from hansa.errors import invariant
from hansa.ids import routing_id
from hansa.presence.provider_info import ProviderInfo
from hansa.services.discovery.client import Discovery
from hansa.services.discovery.events import DiscoveryEvent, ProviderAdded
from hansa.testing import Host, World
from hansa.topics.names import SERVICE
from hansa.topics.node import SpotNode
from hansa.topics.spot import Spot
from hansa.transport import SocketOptions

PORT: Final = 7_000
# In whole query intervals every connection has the same number of queries and heartbeats, whenever it began.
STEADY_QUERIES_COUNT: Final = 2
# All that a change causes has happened by then: some round trips of a millisecond.
SETTLING_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What was counted at one node: in a second in which nothing happens, and for each change."""

    shape: Shape
    is_full: bool
    steady: Traffic
    changes: dict[str, Traffic]

    def as_json(self) -> dict[str, Any]:
        changes = {name: traffic.as_json() for name, traffic in self.changes.items()}
        told = {"is_full": self.is_full, "steady": self.steady.as_json(), "changes": changes}
        return {"shape": asdict(self.shape)} | told

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Costs:
        return cls(
            shape=Shape(**written["shape"]),
            is_full=written["is_full"],
            steady=Traffic.from_json(written["steady"]),
            changes={name: Traffic.from_json(one) for name, one in written["changes"].items()},
        )


def measure(shape: Shape, *, is_full: bool) -> Costs:
    """Play it in virtual time. The query interval must be a multiple of the heartbeat interval."""
    with World(1) as world:
        return world.run(Play(world, shape, is_full=is_full).run())


def topic(shape: Shape, number: int) -> str:
    """All names have the same length, and those of the first ten, hundred, thousand a beginning."""
    return f"topic:{number:0{shape.topic_bytes - 6}}"


class Listing:
    """Stands in for a discovery, and lists whom it is told to."""

    registries_heard = (1,)

    def __init__(self) -> None:
        self._tell: Callable[[DiscoveryEvent], None] = _nobody

    def follows(self, service: str) -> bool:
        return True

    def providers(self, service: str) -> tuple[ProviderInfo, ...]:
        return ()

    def listen(self, callback: Callable[[DiscoveryEvent], None]) -> Callable[[], None]:
        self._tell = callback
        return self._forget

    async def add(self, members: Sequence[Member]) -> None:
        for member in members:
            self._tell(ProviderAdded(provider=member.info))

    def _forget(self) -> None:
        self._tell = _nobody


class Member:
    """A node on its host. Those beyond the mesh's number own nothing."""

    node: SpotNode
    spot: Spot

    def __init__(self, world: World, shape: Shape, number: int) -> None:
        self.name = f"node{number}"
        self.listing = Listing()
        self.is_open = asyncio.Event()
        self.info = ProviderInfo(
            service=SERVICE,
            endpoint=f"tcp://{self.name}:{PORT}",
            routing_id=routing_id(number),
            weight=1,
            registered_at=0.0,
        )
        topics_count = shape.topics_count if number < shape.nodes_count else 0
        self._topics = [topic(shape, one) for one in range(number, topics_count, shape.nodes_count)]
        self._shape = shape
        self._loop = world.loop
        self.host = world.host(self.name, self._program)

    async def does(self, deed: Coroutine[Any, Any, Any]) -> None:
        """Let it run on the host."""
        await self._loop.spawn(deed, name=f"a deed of {self.name}", life=self.host.life)

    async def _program(self, host: Host) -> None:
        shape = self._shape
        async with SpotNode(
            f"tcp://*:{PORT}",
            discovery=cast("Discovery", self.listing),
            advertise=self.info.endpoint,
            routing_id=self.info.routing_id,
            query_interval=shape.query_interval_s,
            environment=host.environment.but(
                options=SocketOptions(
                    heartbeat_interval=shape.heartbeat_interval_s,
                    heartbeat_timeout=3 * shape.heartbeat_interval_s,
                )
            ),
            name=self.name,
        ) as self.node:
            self.spot = self.node.spot()
            for name in self._topics:
                await self.spot.create_topic(name)
            self.is_open.set()
            await asyncio.Event().wait()


class Play:
    """One mesh, from its beginning to the measured node's leaving."""

    def __init__(self, world: World, shape: Shape, *, is_full: bool) -> None:
        self._world = world
        self._shape = shape
        self._is_full = is_full
        self._network = world.network = MeteredNetwork(world, [f"node{shape.number}"])
        members = [Member(world, shape, number) for number in range(shape.nodes_count)]
        self._node = members.pop(shape.number)
        self._others = members
        self._newcomers = [Member(world, shape, shape.nodes_count + number) for number in range(2)]
        self._changes: dict[str, Traffic] = {}

    async def run(self) -> Costs:
        shape, world = self._shape, self._world
        await self._open(self._node, *self._others)
        began_s = world.elapsed_s()
        await self._cost("join", self._join())
        # Halfway between two heartbeats, so that nothing is near a border of the window.
        await asyncio.sleep(began_s + shape.heartbeat_interval_s / 2 - world.elapsed_s())
        window_s = STEADY_QUERIES_COUNT * shape.query_interval_s
        before = self._traffic()
        await asyncio.sleep(window_s)
        steady = self._traffic().since(before).times(1 / window_s)
        await self._change_topics()
        await self._change_subscriptions()
        await self._change_nodes()
        spent_s = world.elapsed_s() - began_s - window_s
        invariant(spent_s < shape.heartbeat_interval_s, "the changes did not fit between two heartbeats")
        return Costs(shape=shape, is_full=self._is_full, steady=steady, changes=self._changes)

    # -- what happens

    async def _join(self) -> None:
        everybody = (self._node, *self._others)
        for other in self._others:
            listed = [one for one in everybody if one is not other] if self._is_full else [self._node]
            await other.does(other.listing.add(listed))
        await self._node.does(self._node.listing.add(self._others))
        await self._node.node.in_step()

    async def _change_topics(self) -> None:
        fresh, other = topic(self._shape, self._shape.topics_count), self._others[0]
        await self._cost("create", self._node.does(self._node.spot.create_topic(fresh)))
        await self._cost("destroy", self._node.does(self._node.spot.destroy_topic(fresh)))
        await self._cost("create elsewhere", other.does(other.spot.create_topic(fresh)))
        await self._cost("destroy elsewhere", other.does(other.spot.destroy_topic(fresh)))

    async def _change_subscriptions(self) -> None:
        does, spot, first = self._node.does, self._node.spot, topic(self._shape, 0)
        for digits, count in enumerate(SUBSCRIBED_COUNTS):
            if count <= self._shape.topics_count:
                text = f"{first[:-digits]}*" if digits else first
                await self._cost(f"subscribe {count}", does(spot.subscribe(text)))
                await self._cost(f"unsubscribe {count}", does(spot.unsubscribe(text)))

    async def _change_nodes(self) -> None:
        await self._open(*self._newcomers)
        await self._cost("other joins", self._let_in(self._newcomers[0]))
        await self._cost("other is lost", self._lose(self._others[-1]))
        await self._cost("other leaves", self._others[0].host.stop())
        # As many as before.
        await self._let_in(self._newcomers[1])
        await self._cost("leave", self._node.host.stop())

    async def _let_in(self, newcomer: Member) -> None:
        living = [one for one in self._others if one.host.is_up] if self._is_full else []
        await newcomer.does(newcomer.listing.add([self._node, *living]))
        for other in (self._node, *living):
            await other.does(other.listing.add([newcomer]))
        await newcomer.node.in_step()
        await self._node.node.in_step()

    async def _lose(self, other: Member) -> None:
        self._world.crash(other.name)

    # -- small things

    async def _open(self, *members: Member) -> None:
        for member in members:
            member.host.start()
        for member in members:
            await member.is_open.wait()

    async def _cost(self, change: str, deed: Awaitable[object]) -> None:
        before = self._traffic()
        await deed
        await asyncio.sleep(SETTLING_S)
        self._changes[change] = self._traffic().since(before)

    def _traffic(self) -> Traffic:
        return self._network.traffic(self._node.name)


def _nobody(event: DiscoveryEvent) -> None:
    return
