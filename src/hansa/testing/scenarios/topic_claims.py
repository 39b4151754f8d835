"""Nodes of one mesh that create the same topics, with a store that decides which node owns which.

Three or four nodes, each with two spots that create two topics, publish, destroy them and close, and a third
that listens. In most runs the nodes hear each other, in some only the store. They are paused, cut off from
the store, from each other or from both, killed and started again; some close while a topic is being created,
and some closings are cancelled. Clocks run up to a hundredth fast or slow.

Always: of the nodes that run, at most one owns a topic, and the store has it as the first to claim it. One
that was paused has a moment to learn that it lost.

When the faults are over: every node owns every topic once more; then one node owns each topic, or none does.
There is a claim for each owner and no other, no unneeded lease, all nodes that hear each other know the
owner, and all listeners are active there and receive.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from itertools import combinations
from typing import ClassVar

from hansa.chance import Chance
from hansa.coordination.line import decode_signed
from hansa.errors import (
    AlreadyClosed,
    Fenced,
    NoOwner,
    StoreUnavailable,
    TimedOut,
    TopicExists,
)
from hansa.ids import format_id
from hansa.keys import Keys
from hansa.presence.provider_info import ProviderInfo
from hansa.store.values import EventKind, KeyValue, WatchBatch
from hansa.testing.faults import Cut, Fault, FaultPlan, Pause, draw_plan, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.life import LifeState
from hansa.testing.scenarios.cluster import socket_options
from hansa.testing.simulation import Scenario
from hansa.testing.store_host import StoreHost
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World
from hansa.topics import Spot, SpotNode, SubscriptionState
from hansa.topics.names import SERVICE
from hansa.transport.environment import Environment

__all__ = ["TopicClaiming"]

TOPICS = ("zone:east", "zone:west")
PREFIXES = {topic: Keys().topic(SERVICE, topic) for topic in TOPICS}
MESH_PORT = 6100
CREATORS_COUNT = 2
# How often a node looks for other nodes.
LISTING_S = 0.25
# Callbacks that came due while a node was paused run when it goes on, in the same instant.
MOMENT_S = 0.001


class NodeLife:
    """One node from its opening to its end; a program has one after the other."""

    def __init__(self, host: Host, node: SpotNode) -> None:
        self.life = host.life
        self.node = node
        self.listener = node.spot("listener")
        self.heard: dict[str, bytes] = {}
        """By topic, the owner that the latest message names."""
        self.is_listed = True
        self.info = ProviderInfo(
            service=SERVICE,
            endpoint=f"tcp://{host.name}:{MESH_PORT}",
            routing_id=node.routing_id,
            weight=1,
            registered_at=host.world.elapsed_s(),
        )

    def __str__(self) -> str:
        return f"{self.life} {format_id(self.node.routing_id)}"


class TopicClaiming(Scenario):
    """Topics claimed in a store: nobody owns what another node owns."""

    name: ClassVar[str] = "topic_claims"
    chaos_s: ClassVar[float] = 14.0
    quiet_s: ClassVar[float] = 60.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("topic claims")
        self.store = StoreHost(world, witness=self._witness)
        self.ttl_s = chance.choose((1.0, 2.0))
        self.names = [f"n{number}" for number in range(1, 4 + chance.below(2))]
        self.owned_count = 0
        """How often a node became an owner."""
        self.lost_count = 0
        """How often it ended by a loss."""
        self._is_mesh = chance.flip(0.8)
        self._is_chaotic = True
        self._misfortune = chance.fork("misfortune")
        self._last_owners = {topic: chance.choose([*self.names, ""]) for topic in TOPICS}
        """The owner of each topic in the end; nobody, for an empty name."""
        self._unserved = {name: set(TOPICS) for name in self.names}
        """Topics that a node has not owned since the faults were over."""
        self._nodes: list[NodeLife] = []
        self._standing: dict[str, dict[int, KeyValue]] = {topic: {} for topic in TOPICS}

    def begin(self) -> None:
        for name in self.names:
            self.world.host(name, self._run).start()
        self.store.start()

    def plan(self, chance: Chance) -> FaultPlan:
        faults = draw_store_plan(chance, self.names, self.store.name, chaos_s=self.chaos_s, ttl_s=self.ttl_s)
        if self._is_mesh:
            pairs = list(combinations(self.names, 2))
            faults += draw_plan(chance.fork("mesh"), self.names, chaos_s=self.chaos_s, pairs=pairs)
        return tuple(sorted(faults, key=lambda fault: fault.at_s))

    def calm(self) -> None:
        self._is_chaotic = False

    def unsettled(self) -> str:
        unserved = [
            f"{name} never owns {sorted(topics)}" for name, topics in self._unserved.items() if topics
        ]
        if unserved:
            return ", ".join(unserved)
        nodes = self._newest()
        owners = {topic: nodes[name].node.routing_id for topic, name in self._last_owners.items() if name}
        unaware = (self._unaware(one, owners) for one in nodes.values())
        return self._unclaimed(owners) or self._surplus_leases() or next(filter(None, unaware), "")

    def _newest(self) -> dict[str, NodeLife]:
        """By host, the node that replaced all before."""
        return {one.life.name: one for one in self._nodes}

    # What runs on the hosts.

    async def _run(self, host: Host) -> None:
        number = 0
        async with StoreLink(host, self.store) as link:
            while True:
                number += 1
                await self._be_node(host, link, host.environment.fork(f"session {number}"))

    async def _be_node(self, host: Host, link: StoreLink, environment: Environment) -> None:
        chance = environment.chance
        node = SpotNode(
            f"tcp://*:{MESH_PORT}",
            advertise=f"tcp://{host.name}:{MESH_PORT}",
            query_interval=chance.choose((1.0, 5.0)),
            store=link,
            claim_ttl=self.ttl_s,
            # Connections mostly outlast leases: so others still believe in an owner whose claim is lost.
            environment=environment.fork("node").but(
                options=replace(
                    socket_options(chance.fork("options")), heartbeat_timeout=chance.choose((3.0, 8.0))
                )
            ),
            name=str(host.life),
        )
        await node.__aenter__()
        one = NodeLife(host, node)
        self._nodes.append(one)
        host.record(f"is node {format_id(node.routing_id)}")
        # A task that creates a topic may still run when the node closes.
        async with asyncio.TaskGroup() as group:
            try:
                for topic in TOPICS:
                    await one.listener.subscribe(topic)
                group.create_task(self._listen(one), name=f"{one} listens")
                for number in range(CREATORS_COUNT):
                    own = chance.fork(f"creator {number}")
                    group.create_task(self._create(host, node, own, number), name=f"{one} creates")
                await self._keep_listing(one, until_s=chance.uniform(0.0, self.chaos_s / 2))
            finally:
                one.is_listed = False
                await self._close(host, node, chance.fork("closing"))

    async def _close(self, host: Host, node: SpotNode, chance: Chance) -> None:
        try:
            async with asyncio.timeout(chance.choose((None, 0.0, chance.uniform(0.0, 0.01)))):
                await node.close()
        except TimeoutError:
            host.record("had no time to close its node")

    async def _keep_listing(self, one: NodeLife, *, until_s: float) -> None:
        """Do what a discovery does, in the chaotic phase until this time: then the node closes."""
        began_s = self.world.elapsed_s()
        listed: list[ProviderInfo] = []
        while not self._is_chaotic or self.world.elapsed_s() < began_s + until_s:
            others = [other for other in self._newest().values() if other is not one] if self._is_mesh else []
            infos = [other.info for other in others if other.is_listed]
            for info in listed:
                if info not in infos:
                    one.node.mesh.unlist_node(info)
            for info in infos:
                if info not in listed:
                    one.node.mesh.list_node(info)
            listed = infos
            await asyncio.sleep(LISTING_S)

    async def _listen(self, one: NodeLife) -> None:
        async for message in one.listener:
            one.heard[message.topic] = message.payload

    async def _create(self, host: Host, node: SpotNode, chance: Chance, number: int) -> None:
        spot = node.spot()
        try:
            while self._is_chaotic or (not number and self._unserved[host.name]):
                await self._own_for_a_while(host, spot, chance)
                if chance.flip(0.2):
                    await spot.close()
                    spot = node.spot()
                await asyncio.sleep(chance.uniform(0.0, 0.5))
            await spot.close()
            if not number:
                await self._own_at_last(host, node, chance)
        except AlreadyClosed:
            host.record("finds its node closed")

    async def _own_for_a_while(self, host: Host, spot: Spot, chance: Chance) -> None:
        unserved = set() if self._is_chaotic else self._unserved[host.name]
        topic = chance.choose(sorted(unserved) or TOPICS)
        if not await self._owns(host, spot, topic, chance):
            return
        unserved.discard(topic)
        for _ in range(chance.choose((1, 3, 20)) if self._is_chaotic else 1):
            await asyncio.sleep(chance.uniform(0.0, 0.4))
            await _publish(spot, chance.choose(TOPICS))
            if topic not in spot.owned:
                self.lost_count += 1
                host.record(f"has lost {topic}")
                return
        if not self._is_chaotic or chance.flip(0.7):
            try:
                async with asyncio.timeout(chance.choose((None, 0.0, 0.05))):
                    await spot.destroy_topic(topic)
            except TimeoutError:
                host.record(f"did not wait until {topic} was destroyed")

    async def _own_at_last(self, host: Host, node: SpotNode, chance: Chance) -> None:
        """Once every node has owned everything, own the topics that must have an owner, and publish on."""
        spot = node.spot()
        topics = [topic for topic, name in self._last_owners.items() if name == host.name]
        while True:
            for topic in topics if not any(self._unserved.values()) else ():
                if topic in spot.owned or await self._owns(host, spot, topic, chance):
                    await _publish(spot, topic)
            await asyncio.sleep(LISTING_S)

    async def _owns(self, host: Host, spot: Spot, topic: str, chance: Chance) -> bool:
        """Create it; returns whether that succeeded."""
        try:
            async with asyncio.timeout(chance.choose((None, None, 0.05, 1.0)) if self._is_chaotic else None):
                await spot.create_topic(topic)
        except (TopicExists, StoreUnavailable, TimedOut, Fenced, TimeoutError) as error:
            host.record(f"does not own {topic}: {type(error).__name__}")
            return False
        self.owned_count += 1
        host.record(f"owns {topic}")
        self._look(topic, "it was created")
        return True

    # Faults that hit a node that has just claimed something. At random they would hardly ever come then.

    def _strike(self, claimant: str) -> None:
        """It stands still, or is cut off from the store or from all: while it asks its peers, or soon after.

        So it loses its claim, and its peers do not hear of that.
        """
        chance = self._misfortune
        after_s, lasting_s = chance.uniform(0.0, 0.6), chance.uniform(0.5, 4.0) * self.ttl_s
        others = [self.store.name]
        if chance.flip(0.5):
            others += [name for name in self.names if name != claimant]
        faults: list[Fault] = [Pause(at_s=0.0, lasting_s=lasting_s, host=claimant)]
        if chance.flip(0.7):
            faults = [
                Cut(at_s=0.0, lasting_s=lasting_s, source=claimant, target=other, both_ways=True)
                for other in others
            ]

        def begin() -> None:
            for fault in faults:
                if self._is_chaotic and fault.begin(self.world):
                    self.world.loop.call_later(lasting_s, end, fault, context=Context())

        def end(fault: Fault) -> None:
            if self._is_chaotic:
                fault.end(self.world)

        # In no life's context: it must also end for paused nodes.
        self.world.loop.call_later(after_s, begin, context=Context())

    # The judge, during the run.

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        for topic, prefix in PREFIXES.items():
            standing = self._standing[topic]
            for event in batch.events:
                if not event.item.key.startswith(prefix):
                    continue
                if event.kind is EventKind.PUT:
                    standing[event.item.create_revision] = event.item
                    if len(standing) == 1 and self._misfortune.flip(0.5):
                        self._strike(origin)
                elif event.before is not None:
                    standing.pop(event.before.create_revision, None)
            self._look(topic, f"revision {batch.revision}")

    def _look(self, topic: str, when: str) -> None:
        """Judge the owners at this instant; if one of them goes on after a pause just now, a moment later.

        It learns of its loss at this very instant, and other callbacks may run before that.
        """
        if not (problem := self._problem(topic)):
            return
        if any(one.life.resumed_s == self.world.loop.time() for one in self._owners(topic)):
            # In no life's context: the judge must neither be paused nor killed with a node.
            self.world.loop.call_later(MOMENT_S, self._look, topic, when, context=Context())
        else:
            self.world.fail("a topic has one owner", f"{topic}, after {when}: {problem}")

    def _problem(self, topic: str) -> str:
        owners = self._owners(topic)
        if len(owners) > 1:
            return f"{', '.join(map(str, owners))} own it"
        standing = self._standing[topic]
        first = decode_signed(standing[min(standing)].value).body if standing else b""
        if owners and owners[0].node.routing_id != first:
            return f"{owners[0]} owns it, and is not the first in the store"
        return ""

    def _owners(self, topic: str) -> list[NodeLife]:
        """The nodes that own it and run: a paused program does nothing with it."""
        return [one for one in self._nodes if one.life.state is LifeState.RUNNING and topic in one.node.owned]

    # The judge, in the end.

    def _unclaimed(self, owners: dict[str, bytes]) -> str:
        """Owners must have a claim, and no other node must have one."""
        for topic, standing in self._standing.items():
            expected = [owners[topic]] if topic in owners else []
            claimed = [decode_signed(item.value).body for item in standing.values()]
            owned = [one.node.routing_id for one in self._owners(topic)]
            if not claimed == owned == expected:
                return f"{topic} is claimed by {claimed} and owned by {owned}, not by {expected}"
        return ""

    def _surplus_leases(self) -> str:
        """A node needs one lease, and a closed node none."""
        counts = Counter(self.store.living_leases().values())
        surplus = {name: count for name, count in counts.items() if count > 1}
        return f"leases that nobody needs: {surplus}" if surplus else ""

    def _unaware(self, one: NodeLife, owners: dict[str, bytes]) -> str:
        """A node that hears the owner must know it, be active there, and have its latest message."""
        node = one.node
        heard = {topic: owner for topic, owner in owners.items() if self._is_mesh or owner == node.routing_id}
        if node.topics != heard:
            return f"{one} knows {node.topics}, not {heard}"
        for subscription in one.listener.subscriptions:
            is_active = subscription.state is SubscriptionState.ACTIVE
            if is_active is not (subscription.text in heard):
                return f"{one} has {subscription.text} {subscription.state}"
        latest = {topic: one.heard.get(topic) for topic in heard}
        return "" if latest == heard else f"{one} has a message that names {latest}, not {heard}"


async def _publish(spot: Spot, topic: str) -> None:
    """Publish the owner's name to all listeners of the topic, if it has an owner."""
    with suppress(NoOwner):
        await spot.publish(topic, spot.node.topics.get(topic, b""))
