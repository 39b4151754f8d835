"""What the programs of topics that move share: nodes and topics, the phase of the run, and the books.

In the books a counting is what one founder and epoch have numbered, over any number of owners. A node that
owns a topic and listens to it sees what it gives out itself; so for each counting the books know which
message had which number. A number is given once, and none is left out, whichever node owns in between: also
when an owner dies at the worst moment and the next one goes on with what was sealed.

An account is one subscription. No message comes to it twice, and those of one publisher keep their order.
Messages of a counting that an account was not given, between two that it was given, were lost on the way, and
it must have been told so: of exactly so many, and of no more than were given out at all.

The first message of a retained topic that comes to an account is not older than what was given out before the
account was opened, unless the topic has begun anew meanwhile: an owner that was handed nothing counts from 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
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
from hansa.testing.scenarios.spot_posts import Post, Posts
from hansa.testing.scenarios.strikes import StruckStore
from hansa.testing.world import World
from hansa.topics import Spot, SpotNode
from hansa.topics.inbox import TopicMessage
from hansa.topics.mesh import Mesh
from hansa.topics.names import SERVICE
from hansa.topics.router_mesh import RouterMesh
from hansa.topics.spot import Subscription

__all__ = [
    "NAMES",
    "TIMEOUTS_S",
    "TOPICS",
    "Counting",
    "MovingCast",
    "MovingNode",
    "TopicAccount",
    "TopicBooks",
]

TOPICS: Final = ("zone:east", "zone:west")
NAMES: Final = {topic: topic_name(SERVICE, topic) for topic in TOPICS}
MESH_PORT: Final = 6200
TIMEOUTS_S: Final = (0.5, 2.0, 4.0)


@dataclass(slots=True, kw_only=True, eq=False)
class Counting:
    """What was numbered one after the other, by one owner and those that it handed the topic over to."""

    topic: str
    founder: bytes
    epoch: int
    given: dict[int, Post] = field(default_factory=dict)
    """By number."""

    def __str__(self) -> str:
        return f"the counting {self.epoch} of {self.topic}"


@dataclass(slots=True, kw_only=True, eq=False)
class TopicAccount:
    """One subscription to one topic, from its beginning to its end."""

    label: str
    topic: str
    subscription: Subscription
    floor: int = 0
    """A number that was given out before it began: of a retained topic it gets no older message. 0 once the
    topic has begun anew."""
    given: dict[Post, None] = field(default_factory=dict)
    suspended_count: int = 0
    last: dict[str, Post] = field(default_factory=dict)
    """By publisher."""

    def __str__(self) -> str:
        return f"{self.label} on {self.topic}"


class TopicBooks:
    """All countings and accounts of a run. `posts` are the published messages."""

    def __init__(self, world: World, *, retained: frozenset[str]) -> None:
        self.posts = Posts(world)
        self.accounts: list[TopicAccount] = []
        self.keeps_order = True
        """Whether the messages of one publisher come in their order."""
        self._world = world
        self._retained = retained
        self._countings: dict[tuple[str, bytes, int], Counting] = {}
        self._counting_of: dict[Post, Counting] = {}
        self._last: dict[str, int] = {}

    def open(self, label: str, topic: str, subscription: Subscription, *, floor: int = 0) -> TopicAccount:
        """A subscription to a topic begins."""
        account = TopicAccount(label=label, topic=topic, subscription=subscription, floor=floor)
        self.accounts.append(account)
        return account

    def begin_anew(self, topic: str) -> None:
        """A node came to own the topic that was handed nothing: earlier numbers no longer count."""
        for account in self.accounts:
            if account.topic == topic:
                account.floor = 0

    def heard(self, account: TopicAccount, message: TopicMessage) -> Post:
        """A message was read from a subscription."""
        post = self.posts.receive(account.label, message.topic, message.payload, message.sequence)
        if post in account.given:
            self._world.fail("nothing is delivered twice", f"{post} came to {account} again")
        before = account.last.get(post.publisher)
        if self.keeps_order and before is not None and before.number > post.number:
            self._world.fail("order is kept", f"{post} came to {account} after {before}")
        if not account.given and account.topic in self._retained and post.sequence < account.floor:
            self._world.fail(
                "the latest message is retained", f"{account} began with {post.sequence}, not {account.floor}"
            )
        account.given[post] = None
        account.last[post.publisher] = post
        self._last[post.topic] = max(self.last(post.topic), post.sequence)
        return post

    def last(self, topic: str) -> int:
        """The highest number that was seen so far, in any counting."""
        return self._last.get(topic, 0)

    def gave(self, topic: str, founder: bytes, epoch: int, post: Post) -> None:
        """An owner gave this message out."""
        counting = self._countings.get((topic, founder, epoch))
        if counting is None:
            counting = Counting(topic=topic, founder=founder, epoch=epoch)
            self._countings[topic, founder, epoch] = counting
        other = counting.given.setdefault(post.sequence, post)
        if other is not post:
            self._world.fail(
                "a number is given once", f"{counting}: number {post.sequence} to {other}, then to {post}"
            )
        if self._counting_of.setdefault(post, counting) is not counting:
            self._world.fail("a message is given out once", f"{post}: {self._counting_of[post]}, {counting}")

    # The judge, when everything has come to rest.

    def judge(self, watched: frozenset[str]) -> None:
        """Fail if a number is left out, or if an account was not told what it lost."""
        for counting in self._countings.values():
            missing = [number for number in range(1, max(counting.given) + 1) if number not in counting.given]
            if counting.topic in watched and missing:
                self._world.fail("no number is left out", f"{counting}: nobody gave out {missing[:20]}")
        for account in self.accounts:
            if account.topic in watched:
                self._judge(account)

    def _judge(self, account: TopicAccount) -> None:
        numbers: dict[Counting, list[int]] = {}
        for post in account.given:
            counting = self._counting_of.get(post)
            if counting is None:
                self._world.fail("only what an owner gave out is delivered", f"{post} came to {account}")
            numbers.setdefault(counting, []).append(post.sequence)
        low = sum(max(found) - min(found) + 1 - len(found) for found in numbers.values())
        high = sum(len(one.given) for one in self._countings.values() if one.topic == account.topic)
        high -= len(account.given)
        told = account.subscription.inbox.missed_count
        if not low <= told <= high:
            self._world.fail(
                "what is lost is told, and nothing else",
                f"{account}: {told} were told as missed, and lost were {low} to {high}",
            )

    def holes_count(self) -> int:
        """How many numbers between those that accounts were given are missing, if topics had one counting."""
        numbers = [[post.sequence for post in account.given] for account in self.accounts if account.given]
        return sum(max(found) - min(found) + 1 - len(found) for found in numbers)

    def missed_count(self) -> int:
        """How many messages all accounts together were told that they missed."""
        return sum(account.subscription.inbox.missed_count for account in self.accounts)


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
        """The accounts of the listener, by topic."""
        self.is_listed = True
        self.is_leaving = False
        self.known: set[str] = set()
        """Topics to which it has published."""
        self.has_finished = False
        """Whether it has published its last messages."""
        self.left_in_order = False
        self.seen_s = 0.0
        """When it was last seen alive."""
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
        """Whether it has ended, or is leaving."""
        return self.left_in_order or self.is_leaving or self.life.state is LifeState.DEAD

    @property
    def machine(self) -> Mesh:
        """The machine that decides for the node."""
        driver = self.node.mesh
        if not isinstance(driver, RouterMesh):
            raise InvariantBroken("the scenario plays on the ROUTER mesh")
        return driver._mesh

    @property
    def own_spots(self) -> list[Spot]:
        """The spots that may own topics."""
        return [self.publisher] if self.publisher.is_closed else [self.publisher, self.node.heir]


class MovingCast:
    """What all programs of one run share, drawn from its seed.

    `look` judges the owners of a topic at this instant; its second argument says what has happened.
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
        # Patient times outlast a pause of five seconds.
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
        """Until the strike owners hand nothing over by themselves, but only when somebody outside asks."""
        self.is_calm = False
        self.round_called = asyncio.Event()
        """All nodes agree on the owners: the last messages may be published."""
        self.retaining: frozenset[str] | None = None
        """Topics that retain their last message, once that was published and received. They move with it, and
        then a late guest is given it."""
        self.is_late = False
        """Whether they have moved: late guests may come."""
        self.unmoved = set(TOPICS)
        """Topics that have not moved since the faults were over, or since their last message."""
        self.nodes: list[MovingNode] = []
        self.left: set[bytes] = set()
        """Nodes that left in good order."""
        self.last_posts: list[Post] = []
        self.moved_count = 0
        """How often an owner was told that another node owns its topic now."""
        self.trouble = ""
        """Why programs may notice something; empty while they may not."""
        self.noticed: list[str] = []
        self.told_count = 0
        """Publishes that nodes were told of as refused or in doubt."""

    @property
    def watched(self) -> frozenset[str]:
        """Topics to which all nodes listen: it is known what was given out of these."""
        return frozenset(TOPICS[:1] if self.deaf else TOPICS)

    def still_retained(self) -> frozenset[str]:
        """Topics that retain their last message: an owner after a crash may not know that its topic did."""
        owners = {topic: self.publishing(topic) for topic in self.retained}
        return frozenset(
            topic
            for topic, found in owners.items()
            if not self.trouble or any(one.machine.exchange.outlets[topic.encode()].retain for one in found)
        )

    # The nodes.

    def is_whole(self) -> bool:
        """Whether all nodes hear each other: a node that does not hear the new owner misses its messages."""
        nodes = self.newest().values()
        return all(len(one.node.peers) >= len(self.names) - 1 for one in nodes)

    def is_restful(self) -> bool:
        """Whether all nodes hear each other, and none is about to leave."""
        return self.is_whole() and not any(one.is_over for one in self.newest().values())

    # For the judge.

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
        """The host of a node, by the node's name in the store."""
        found = (one.host.name for one in self.nodes if format_id(one.node.routing_id) == node)
        return next(found, "")

    def publishing(self, topic: str) -> list[MovingNode]:
        """The nodes that run and publish: an owner that closed a topic still owns it, and does nothing."""
        frame = topic.encode()
        return [
            one
            for one in self.nodes
            if one.life.state is LifeState.RUNNING and frame in one.machine.exchange.open_outlets
        ]

    def owner(self, topic: str) -> bytes:
        """The owner of a topic, by the store; empty while it is sealed."""
        truth = self.truths[topic]
        item = None if truth.owner is None else self.store.item(truth.owner[0])
        is_sealed = truth.record is not None and truth.record.step is HandoverStep.SEALED
        return b"" if item is None or is_sealed else decode_signed(item.value).body

    def newest(self) -> dict[str, MovingNode]:
        """By host, its newest node."""
        return {one.host.name: one for one in self.nodes}

    def drain(self, one: MovingNode) -> None:
        """Read what waits for a node that ends now, or has crashed."""
        with suppress(WouldBlock, AlreadyClosed):
            while True:
                self.hear(one, one.listener.recv_nowait())

    def hear(self, one: MovingNode, message: TopicMessage) -> None:
        """A node's listener was given this; if the node owns the topic, it has given it out itself."""
        topic = message.topic
        post = self.books.heard(one.accounts[topic], message)
        frame = topic.encode()
        outlet = one.machine.exchange.outlets.get(frame)
        feed = one.machine.exchange.feeds.get(frame)
        if outlet is not None and message.sequence > outlet.began_at:
            self.books.gave(topic, outlet.founder, outlet.epoch, post)
        elif outlet is None and feed is not None and feed.owner == one.node.routing_id:
            # The topic was lost just now, and this node owned it when it gave the message out.
            self.books.gave(topic, feed.founder, feed.epoch, post)
