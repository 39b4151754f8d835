"""Real nodes over a simulated network, and what one of them sends and is sent.

In a full mesh every node is connected to every other. What one node has to do with the others is the same
without the connections that they have among themselves, so for large meshes only the node's own ones are
made: its peers are real nodes too, whose discovery lists nobody but it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from bench.topic_costs_flow import Traffic
from bench.topic_costs_formula import Mesh
from bench.topic_costs_meter import MeteredNetwork
from hansa.errors import invariant
from hansa.ids import routing_id
from hansa.messaging.discovery.client import Discovery
from hansa.messaging.discovery.events import DiscoveryEvent, ProviderAdded
from hansa.messaging.provider_info import ProviderInfo
from hansa.messaging.spot.names import SERVICE
from hansa.messaging.spot.node import SpotNode
from hansa.messaging.spot.over_spot import Spot
from hansa.testing import Host, World

PORT: Final = 7_000
# Twice each: in so long every connection has the same number of heartbeats and queries, whenever it began.
STEADY_QUERIES_COUNT: Final = 2
# All that a change causes has happened by then: some round trips of a millisecond.
SETTLING_S: Final = 0.1
PATTERN_DIGITS: Final = (1, 2, 3)


class Listing:
    """Stands in for a discovery, and lists whom it is told to."""

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
    """A node on its host."""

    def __init__(self, world: World, number: int, mesh: Mesh) -> None:
        self.name = f"node{number}"
        self.listing = Listing()
        self.is_open = asyncio.Event()
        self._number = number
        self._mesh = mesh
        self._loop = world.loop
        self.host = world.host(self.name, self._program)
        self.node: SpotNode
        self.spot: Spot

    @property
    def info(self) -> ProviderInfo:
        return ProviderInfo(
            service=SERVICE,
            endpoint=f"tcp://{self.name}:{PORT}",
            routing_id=routing_id(self._number),
            weight=1,
            registered_at=0.0,
        )

    async def does(self, deed: Coroutine[Any, Any, Any]) -> None:
        """Let it run on the host."""
        await self._loop.spawn(deed, name=f"a deed of {self.name}", life=self.host.life)

    async def _program(self, host: Host) -> None:
        async with SpotNode(
            f"tcp://*:{PORT}",
            discovery=cast("Discovery", self.listing),
            advertise=f"tcp://{self.name}:{PORT}",
            routing_id=routing_id(self._number),
            network=host.network,
            clock=host.clock,
            chance=host.chance,
            name=self.name,
        ) as self.node:
            self.spot = self.node.spot()
            if self._number < self._mesh.nodes_count:
                for number in range(self._number, self._mesh.topics_count, self._mesh.nodes_count):
                    await self.spot.create_topic(topic(number))
            self.is_open.set()
            await asyncio.Event().wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What was counted at one node: in a second when nothing happens, and for each change."""

    mesh: Mesh
    is_full: bool
    steady: Traffic
    changes: dict[str, Traffic]
    predicted: dict[str, Traffic]


def measure(mesh: Mesh, *, is_full: bool) -> Costs:
    """Play it in virtual time."""
    with World(1) as world:
        return world.run(Play(world, mesh, is_full=is_full).run())


def topic(number: int) -> str:
    """All names have the same length."""
    return f"topic:{number:06}"


class Play:
    """One mesh from its beginning to the measured node's leaving."""

    def __init__(self, world: World, mesh: Mesh, *, is_full: bool) -> None:
        self._mesh = mesh
        self._is_full = is_full
        self._world = world
        self._measured = f"node{mesh.number}"
        self._network = world.network = MeteredNetwork(world, [self._measured])
        members = [Member(world, number, mesh) for number in range(mesh.nodes_count)]
        self._ego = members.pop(mesh.number)
        self._peers = members
        self._newcomer = Member(world, mesh.nodes_count, mesh)
        self._changes: dict[str, Traffic] = {}
        self._predicted: dict[str, Traffic] = {}

    async def run(self) -> Costs:
        mesh, ego, peers = self._mesh, self._ego, self._peers
        await self._open(ego, *peers)
        began_s = self._world.elapsed_s()
        await self._change("join", mesh.join(), self._join())
        # Halfway between two heartbeats, so that no border of the window is near any.
        await self._until(began_s + mesh.heartbeat_interval_s / 2)
        window_s = STEADY_QUERIES_COUNT * mesh.query_interval_s
        before = self._network.traffic(self._measured)
        await self._until(began_s + mesh.heartbeat_interval_s / 2 + window_s)
        steady = self._network.traffic(self._measured).since(before).times(1 / window_s)
        await self._change_topics()
        await self._change_subscriptions()
        await self._change_nodes()
        spent_s = self._world.elapsed_s() - began_s - window_s
        invariant(spent_s < mesh.heartbeat_interval_s, "changes did not fit between two heartbeats")
        return Costs(
            mesh=mesh,
            is_full=self._is_full,
            steady=steady,
            changes=self._changes,
            predicted=self._predicted,
        )

    # -- what happens

    async def _join(self) -> None:
        ego, peers = self._ego, self._peers
        for peer in peers:
            others = [one for one in (ego, *peers) if one is not peer] if self._is_full else [ego]
            await peer.does(peer.listing.add(others))
        await ego.does(ego.listing.add(peers))
        await ego.node.in_step()

    async def _change_topics(self) -> None:
        mesh, ego, other = self._mesh, self._ego, self._peers[0]
        fresh = topic(mesh.topics_count)
        await self._change("create", mesh.create(), ego.spot.create_topic(fresh))
        await self._change("destroy", mesh.destroy(), ego.spot.destroy_topic(fresh))
        await self._change(
            "create elsewhere", mesh.create_elsewhere(), other.spot.create_topic(fresh), by=other
        )
        await self._change(
            "destroy elsewhere", mesh.destroy_elsewhere(), other.spot.destroy_topic(fresh), by=other
        )

    async def _change_subscriptions(self) -> None:
        mesh, spot = self._mesh, self._ego.spot
        wanted = {1: topic(0)}
        wanted |= {10**digits: f"{topic(0)[:-digits]}*" for digits in PATTERN_DIGITS}
        for count, text in wanted.items():
            if count <= mesh.topics_count:
                await self._change(f"subscribe {count}", mesh.subscribe(count), spot.subscribe(text))
                await self._change(f"unsubscribe {count}", mesh.unsubscribe(count), spot.unsubscribe(text))

    async def _change_nodes(self) -> None:
        mesh, ego, newcomer = self._mesh, self._ego, self._newcomer
        await self._open(newcomer)
        await self._change("newcomer", mesh.newcomer(), self._come())
        await self._change("lost", mesh.lost(), self._lose())
        await self._change("left", mesh.left(), self._peers[0].host.stop())
        await self._change("leave", mesh.leave(len(ego.node.peers)), ego.host.stop())

    async def _come(self) -> None:
        newcomer, others = self._newcomer, (self._ego, *(self._peers if self._is_full else ()))
        await newcomer.does(newcomer.listing.add(others))
        for other in others:
            await other.does(other.listing.add([newcomer]))
        await newcomer.node.in_step()

    async def _lose(self) -> None:
        self._world.crash(self._peers[-1].name)

    # -- small things

    async def _open(self, *members: Member) -> None:
        for member in members:
            member.host.start()
        for member in members:
            await member.is_open.wait()

    async def _change(
        self, name: str, predicted: Traffic, deed: Coroutine[Any, Any, Any], *, by: Member | None = None
    ) -> None:
        before = self._network.traffic(self._measured)
        if name in ("join", "newcomer", "lost", "left", "leave"):
            await deed
        else:
            await (by or self._ego).does(deed)
        await asyncio.sleep(SETTLING_S)
        self._changes[name] = self._network.traffic(self._measured).since(before)
        self._predicted[name] = predicted

    async def _until(self, elapsed_s: float) -> None:
        await asyncio.sleep(elapsed_s - self._world.elapsed_s())


def _nobody(event: DiscoveryEvent) -> None:
    return
