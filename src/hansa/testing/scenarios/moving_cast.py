"""What the programs of topics that move share: nodes and topics, the phase of the run, and the books."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hansa.chance import Chance
from hansa.coordination.handover import HandoverStep
from hansa.coordination.line import decode_signed
from hansa.errors import AlreadyClosed, InvariantBroken, WouldBlock
from hansa.ids import format_id
from hansa.keys import topic_name
from hansa.presence.provider_info import ProviderInfo
from hansa.testing.host import Host
from hansa.testing.life import LifeState
from hansa.testing.scenarios.handover_truth import LineTruth
from hansa.testing.scenarios.spot_posts import Post
from hansa.testing.scenarios.strikes import StruckStore
from hansa.testing.scenarios.topic_books import TopicAccount, TopicBooks
from hansa.testing.world import World
from hansa.topics import Spot, SpotNode
from hansa.topics.inbox import TopicMessage
from hansa.topics.mesh import Mesh
from hansa.topics.names import SERVICE
from hansa.topics.router_mesh import RouterMesh

__all__ = ["NAMES", "TIMEOUTS_S", "TOPICS", "MovingCast", "MovingNode"]

TOPICS: Final = ("zone:east", "zone:west")
NAMES: Final = {topic: topic_name(SERVICE, topic) for topic in TOPICS}
MESH_PORT: Final = 6200
TIMEOUTS_S: Final = (0.5, 2.0, 4.0)


class MovingNode:
    """One node from its opening to its end; a program has one after the other."""

    def __init__(self, host: Host, node: SpotNode, label: str) -> None:
        self.host = host
        self.life = host.life
        self.node = node
        self.label = label
        self.listener = node.spot("listener")
        self.publisher = node.spot("publisher")
        self.accounts: dict[str, TopicAccount] = {}
        """Those of the listener, by topic."""
        self.is_listed = True
        self.is_leaving = False
        self.known: set[str] = set()
        """Topics to which it has published."""
        self.has_finished = False
        """It has published its last messages."""
        self.left_in_order = False
        self.seen_s = 0.0
        """When it was alive last."""
        self.served: set[str] = set()
        """Retained topics whose last message a late guest was given."""
        self.info = ProviderInfo(
            service=SERVICE,
            endpoint=f"tcp://{host.name}:{MESH_PORT}",
            routing_id=node.routing_id,
            weight=1,
            registered_at=host.world.elapsed_s(),
        )

    def __str__(self) -> str:
        return f"{self.label} {format_id(self.node.routing_id)}"

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.left_in_order or self.is_leaving or self.life.state is LifeState.DEAD

    @property
    def machine(self) -> Mesh:
        """What decides behind the node."""
        driver = self.node.mesh
        if not isinstance(driver, RouterMesh):
            raise InvariantBroken("the scenario plays on the ROUTER mesh")
        return driver._mesh

    @property
    def own_spots(self) -> list[Spot]:
        """Those that may own topics."""
        return [self.publisher] if self.publisher.is_closed else [self.publisher, self.node.heir]


class MovingCast:
    """Shared by all programs of one run, and drawn from its seed.

    `look` judges the owners of a topic at this instant; it is told what has happened.
    """

    def __init__(
        self,
        world: World,
        chance: Chance,
        store: StruckStore,
        *,
        chaos_s: float,
        look: Callable[[str, str], None],
    ) -> None:
        self.world = world
        self.store = store
        self.chaos_s = chaos_s
        self.look = look
        self.truths = {topic: LineTruth(store, "topic", NAMES[topic]) for topic in TOPICS}
        self.names = [f"n{number}" for number in range(1, 4 + chance.below(2))]
        # Patient ones outlast a pause of five seconds.
        self.ttl_s, self.heartbeat_timeout_s = chance.choose(((2.0, 3.0), (3.0, 8.0), (8.0, 8.0)))
        self.homes = {topic: chance.choose(self.names) for topic in TOPICS}
        """Where each topic is created first."""
        self.retained = frozenset(topic for topic in TOPICS if chance.flip(0.5))
        self.books = TopicBooks(world, retained=self.retained)
        self.deaf = chance.choose(self.names) if chance.flip(0.4) else ""
        """The node that does not listen to the second topic."""
        self.bulky = TOPICS[1] if chance.flip(0.2) else ""
        """The topic whose messages are too large for the record of a hand-over."""
        self.leaves = chance.flip(0.5)
        """Whether nodes leave, and others take their places."""
        self.is_asked_only = False
        """Until the strike owners hand nothing over by themselves: it waits for what somebody asks for."""
        self.is_calm = False
        self.round_called = asyncio.Event()
        """All agree: the last messages may be published."""
        self.retaining: frozenset[str] | None = None
        """Topics that retain their last message, as soon as that was published and received. They move with
        it, and then a late guest is given it."""
        self.is_late = False
        """They have moved: late guests may come."""
        self.unmoved = set(TOPICS)
        """Topics that have not moved since the faults were over, or with their last message."""
        self.nodes: list[MovingNode] = []
        self.left: set[bytes] = set()
        """Nodes that left in good order."""
        self.last_posts: list[Post] = []
        self.moved_count = 0
        """How often somebody was told that its topic is another one's now."""
        self.trouble = ""
        """Why programs may notice something; empty while they may not."""
        self.noticed: list[str] = []
        self.told_count = 0
        """Publishes that nodes were told of as refused or in doubt."""

    @property
    def watched(self) -> frozenset[str]:
        """Topics to which all nodes listen: of these is known what was given out."""
        return frozenset(TOPICS[:1] if self.deaf else TOPICS)

    def still_retained(self) -> frozenset[str]:
        """Topics that retain their last message: who owns one after a crash may not know that it did."""
        owners = {topic: self.publishing(topic) for topic in self.retained}
        return frozenset(
            topic
            for topic, found in owners.items()
            if not self.trouble or any(one.machine.exchange.outlets[topic.encode()].retain for one in found)
        )

    # Who is there.

    def is_whole(self) -> bool:
        """Whether all nodes hear each other: who does not hear the new owner misses what it gives out."""
        nodes = self.newest().values()
        return all(len(one.node.peers) >= len(self.names) - 1 for one in nodes)

    def is_restful(self) -> bool:
        """Whether they do, and nobody is about to leave."""
        return self.is_whole() and not any(one.is_over for one in self.newest().values())

    # What is to be judged.

    def disturb(self, why: str) -> None:
        """From now on programs may notice something."""
        if not self.trouble:
            self.trouble = why
            self.world.history.record("", f"trouble: {why}")

    def notice(self, what: str) -> None:
        """A program notices something."""
        self.world.history.record("", f"noticed: {what}")
        self.noticed.append(what)

    def host_of(self, node: str) -> str:
        """The host of a node, by its name in the store."""
        found = (one.host.name for one in self.nodes if format_id(one.node.routing_id) == node)
        return next(found, "")

    def publishing(self, topic: str) -> list[MovingNode]:
        """Those that run and give messages out: whoever closes a topic still owns it, and does nothing."""
        frame = topic.encode()
        return [
            one
            for one in self.nodes
            if one.life.state is LifeState.RUNNING and frame in one.machine.exchange.open_outlets
        ]

    def owner(self, topic: str) -> bytes:
        """Who owns it, as the store has it."""
        truth = self.truths[topic]
        item = None if truth.owner is None else self.store.item(truth.owner[0])
        is_sealed = truth.record is not None and truth.record.step is HandoverStep.SEALED
        return b"" if item is None or is_sealed else decode_signed(item.value).body

    def newest(self) -> dict[str, MovingNode]:
        """By host, the node that took the place of all before."""
        return {one.host.name: one for one in self.nodes}

    def drain(self, one: MovingNode) -> None:
        """See what waits: its node ends now, or has crashed."""
        with suppress(WouldBlock, AlreadyClosed):
            while True:
                self.hear(one, one.listener.recv_nowait())

    def hear(self, one: MovingNode, message: TopicMessage) -> None:
        """A node's listener was given this; of its own topics the node has given it out itself."""
        topic = message.topic
        post = self.books.heard(one.accounts[topic], message)
        frame = topic.encode()
        outlet = one.machine.exchange.outlets.get(frame)
        feed = one.machine.exchange.feeds.get(frame)
        if outlet is not None and message.sequence > outlet.began_at:
            self.books.gave(topic, outlet.founder, outlet.epoch, post)
        elif outlet is None and feed is not None and feed.owner == one.node.routing_id:
            # It was lost just now, and was its own when this was given out.
            self.books.gave(topic, feed.founder, feed.epoch, post)
