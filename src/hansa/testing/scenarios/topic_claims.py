"""Nodes that do not hear each other, and create the same topics: only the store says who owns which.

Three to five nodes create two topics, publish, destroy them, close their spots and make others. They are
paused, cut off from the store, killed and started again; their clocks run up to a hundredth fast or slow.

Always: of the nodes that run, at most one owns a topic, and the store has it as the first to claim it. One
that was paused has a moment to learn that it lost.

When the faults are over: everybody owns every topic once more.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from hansa.chance import Chance
from hansa.coordination.keys import Keys
from hansa.errors import NoOwner, SessionLost, StoreUnavailable, TimedOut, TopicExists
from hansa.messaging.spot import Spot, SpotNode
from hansa.messaging.spot.names import SERVICE
from hansa.store.values import EventKind, KeyValue, WatchBatch
from hansa.testing.faults import FaultPlan
from hansa.testing.host import Host
from hansa.testing.life import Life, LifeState
from hansa.testing.scenario import Scenario
from hansa.testing.store_faults import draw_store_plan
from hansa.testing.store_host import StoreHost
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World

__all__ = ["TopicClaiming"]

TOPICS = ("zone:east", "zone:west")
PREFIXES = {topic: Keys().topic(SERVICE, topic) for topic in TOPICS}
# What came due while a node was paused runs when it goes on, in the same instant.
MOMENT_S = 0.001


class TopicClaiming(Scenario):
    """Topics claimed in a store: nobody owns what another node owns."""

    name: ClassVar[str] = "topic_claims"
    chaos_s: ClassVar[float] = 14.0
    quiet_s: ClassVar[float] = 40.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("topic claims")
        self.store = StoreHost(world, witness=self._witness)
        self.ttl_s = chance.choose((1.5, 3.0))
        self.names = [f"n{number}" for number in range(1, 4 + chance.choose((0, 1, 2)))]
        self.owned_count = 0
        """How often a node became an owner."""
        self.lost_count = 0
        """How often it ended by a loss."""
        self._nodes: dict[Life, SpotNode] = {}
        self._standing: dict[str, dict[int, KeyValue]] = {topic: {} for topic in TOPICS}
        self._unserved: dict[str, set[str]] = {}

    def begin(self) -> None:
        for name in self.names:
            self.world.host(name, self._run).start()
        self.store.start()

    def plan(self, chance: Chance) -> FaultPlan:
        return draw_store_plan(chance, self.names, self.store.name, chaos_s=self.chaos_s, ttl_s=self.ttl_s)

    def calm(self) -> None:
        self._unserved = {name: set(TOPICS) for name in self.names}

    def unsettled(self) -> str:
        return ", ".join(
            f"{name} never owns {sorted(missing)}" for name, missing in self._unserved.items() if missing
        )

    # What runs on the hosts.

    async def _run(self, host: Host) -> None:
        chance = host.chance.fork("node")
        async with (
            StoreLink(host, self.store) as link,
            SpotNode(store=link, claim_ttl_s=self.ttl_s, chance=chance.fork("own"), name=host.name) as node,
        ):
            self._nodes[host.life] = node
            spot = node.spot()
            while True:
                await self._turn(host, spot, chance)
                if chance.flip(0.2):
                    await spot.close()
                    spot = node.spot()
                await asyncio.sleep(chance.uniform(0.0, 0.5))

    async def _turn(self, host: Host, spot: Spot, chance: Chance) -> None:
        unserved = self._unserved.get(host.name)
        if unserved is not None and not unserved:
            await asyncio.Event().wait()
        topic = chance.choose(sorted(unserved) if unserved else TOPICS)
        try:
            async with asyncio.timeout(chance.choose((None, 0.05, 1.0))):
                await spot.create_topic(topic)
        except (TopicExists, StoreUnavailable, TimedOut, SessionLost, TimeoutError) as error:
            host.record(f"does not own {topic}: {type(error).__name__}")
            return
        self.owned_count += 1
        host.record(f"owns {topic}")
        self._look(topic, "it was created")
        if unserved is not None:
            unserved.discard(topic)
        try:
            for _ in range(1 if unserved is not None else chance.choose((1, 3, 20))):
                await asyncio.sleep(chance.uniform(0.0, 0.4))
                await spot.publish(topic, b"")
        except NoOwner:
            self.lost_count += 1
            host.record(f"has lost {topic}")
            return
        if unserved is not None or chance.flip(0.7):
            await spot.destroy_topic(topic)

    # The judge.

    def _witness(self, batch: WatchBatch, _origin: str) -> None:
        for topic, prefix in PREFIXES.items():
            standing = self._standing[topic]
            for event in batch.events:
                if not event.item.key.startswith(prefix):
                    continue
                if event.kind is EventKind.PUT:
                    standing[event.item.create_revision] = event.item
                elif event.before is not None:
                    standing.pop(event.before.create_revision, None)
            if self._problem(topic):
                # Who goes on after a pause has its turn first.
                self.world.loop.call_later(MOMENT_S, self._look, topic, f"revision {batch.revision}")

    def _look(self, topic: str, when: str) -> None:
        problem = self._problem(topic)
        if problem:
            self.world.fail("a topic has one owner", f"{topic}, after {when}: {problem}")

    def _problem(self, topic: str) -> str:
        owners = [
            life
            for life, node in self._nodes.items()
            if life.state is LifeState.RUNNING and topic in node.owned
        ]
        if len(owners) > 1:
            return f"{owners} own it"
        standing = self._standing[topic]
        first = standing[min(standing)].value if standing else b""
        if owners and self._nodes[owners[0]].routing_id != first:
            return f"{owners[0]} owns it, and is not the first in the store"
        return ""
