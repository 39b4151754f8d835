"""What the programs of the topic mesh share: nodes and topics, the phase, the books, and the witnesses.

A witness sees everything that one node's own topics give out. It is a spot like others, with an exact
subscription to every watched topic that its node owns, from the moment of creation, and with an inbox that
never overflows. It also reads from the machine what programs are not told: under which epoch a topic was
created, and a topic's position at this node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, InvariantBroken, WouldBlock
from hansa.services.discovery.client import Discovery
from hansa.services.registry import Registry
from hansa.testing.host import Host
from hansa.testing.scenarios.cluster import WALL_SKEW_S_MAX, socket_options
from hansa.testing.scenarios.spot_accounts import Account, Accounts, Floor
from hansa.testing.scenarios.spot_posts import Posts, Tenure, Tenures
from hansa.testing.world import World
from hansa.topics.events import (
    MessagesDropped,
    MessagesMissed,
    SpotEvent,
    SubscriptionActivated,
    SubscriptionSuspended,
)
from hansa.topics.inbox import TopicMessage, WhenSlow
from hansa.topics.mesh import Mesh
from hansa.topics.node import SpotNode
from hansa.topics.router_mesh import RouterMesh
from hansa.topics.spot import Spot, Subscription
from hansa.topics.wants import WantState
from hansa.transport import SocketOptions

MESH_PORT = 7000
SHARED_TOPICS = ("shared:1", "shared:2")


class MeshPhase(Enum):
    """The phases of the programs: do anything; come to rest; publish the final round; nothing more."""

    CHAOS = auto()
    CALM = auto()
    ROUNDS = auto()
    CLOSING = auto()


class SpotPlayer:
    """One open spot, and the books of its subscriptions."""

    def __init__(self, spot: Spot, host: str, label: str, *, pace_s: float, is_roomy: bool) -> None:
        self.spot = spot
        self.events = spot.events()
        self.host = host
        self.label = label
        self.pace_s = pace_s
        """How long it rests between two reads in the chaotic phase."""
        self.is_roomy = is_roomy
        """Whether none of its subscriptions ever drops anything: what it does not receive was missed."""
        self.accounts: dict[str, Account] = {}
        """The open accounts, by the text of the subscription."""
        self.subscriptions: dict[str, Subscription] = {}
        self.is_over = False
        """Whether its books are closed."""

    def read_count(self, text: str) -> int:
        """How many messages of a subscription were read, by its own counts."""
        one = self.subscriptions[text]
        has_refused = one.inbox.when_slow is WhenSlow.DROP_NEWEST
        return one.received_count - one.waiting_count - (0 if has_refused else one.dropped_count)

    def target(self, topic: str) -> Account | None:
        """The account that receives this topic: the exact one, else that of the longest pattern."""
        matching = [account for account in self.accounts.values() if account.matches(topic)]
        return max(matching, key=lambda one: (not one.is_pattern, len(one.text)), default=None)


class NodeRun:
    """One node from its binding to its end; a host has one after the other, all at one endpoint."""

    def __init__(self, host: str, label: str, node: SpotNode, discovery: Discovery) -> None:
        self.host = host
        self.label = label
        self.node = node
        self.discovery = discovery
        self.witness: Witness | None = None
        self.players: list[SpotPlayer] = []
        """Open spots."""
        self.is_steady = False
        """Whether it does nothing more that others could notice."""
        self.has_finished = False
        """Whether it has published its part of the final round."""
        self.is_over = False

    @property
    def spots(self) -> list[Spot]:
        """All open spots, the witness among them."""
        witnesses = [] if self.witness is None else [self.witness.spot]
        return witnesses + [player.spot for player in self.players]


class Cast:
    """Shared by all programs of one run, and drawn from its seed."""

    def __init__(self, world: World, chance: Chance) -> None:
        self.world = world
        self.phase = MeshPhase.CHAOS
        self.round_called = asyncio.Event()
        """Set when all agree: the final round may be published."""
        self.registries = ("r1", "r2")[: 1 + chance.below(2)]
        self.nodes = tuple(f"n{number}" for number in range(1, 4 + chance.below(5)))
        is_contested = chance.flip(0.5)
        self.homes = {
            name: (f"zone:{number}:state", f"zone:{number}:events")
            for number, name in enumerate(self.nodes, 1)
        }
        """The topics that a node may create: its own, of which it knows that no other node creates them."""
        self.contested = frozenset(SHARED_TOPICS if is_contested else ())
        """Topics that any node creates."""
        self.topics = (
            *(topic for topics in self.homes.values() for topic in topics),
            *sorted(self.contested),
        )
        self.hot_topic = chance.choose(self.topics)
        """Everybody publishes to it, and its owner often destroys and creates it."""
        self.retained = frozenset(topic for topic in self.topics if chance.flip(0.3))
        # An owner without a subscription of its own takes other paths, so not every topic has a witness.
        self.watched = frozenset(
            topic for topic in self.topics if topic == self.hot_topic or chance.flip(0.85)
        )
        self.patterns = ("zone:*", "zone:1:*", "zone:2:*", "zone:2:s*", "shared:*", "*")
        self.query_interval_s = chance.choose((2.0, 3.0, 5.0))
        self.broadcast_interval_s = chance.choose((2.0, 3.0))
        self.outgoing_count_max = chance.choose((10_000, 12))
        self._has_skew = chance.flip(0.5)
        # Some nodes come back under their former id.
        self.faithful = frozenset(name for name in self.nodes if chance.flip(0.3))
        # A stream of its own: the other half of the seeds keeps its histories.
        self.is_restless = chance.fork("changes").flip(0.5)
        """Whether spots exchange subscriptions, most of all while the owners of their topics are away."""
        self.posts = Posts(world)
        self.tenures = Tenures(world)
        self.accounts = Accounts(
            world,
            self.tenures,
            topics=self.topics,
            watched=self.watched,
            contested=self.contested,
            retained=self.retained,
        )
        self.keepers: dict[str, Registry] = {}
        """The current registry of each of their hosts."""
        self.sessions: dict[str, NodeRun] = {}
        """The current session of each host."""
        self.crashed: set[str] = set()
        """Sessions that had no time to say anything."""

    @property
    def is_chaotic(self) -> bool:
        return self.phase is MeshPhase.CHAOS

    def wall_skew_s(self, chance: Chance) -> float:
        """How wrong a clock is about the date."""
        return chance.uniform(-WALL_SKEW_S_MAX, WALL_SKEW_S_MAX) if self._has_skew else 0.0

    def players(self) -> Iterator[SpotPlayer]:
        """All open spots."""
        for session in self.sessions.values():
            yield from session.players

    def mesh_options(self, chance: Chance) -> SocketOptions:
        """Quick to notice and to return; in some runs with little room on the way to a peer."""
        return replace(socket_options(chance), outgoing_count_max=self.outgoing_count_max)

    # What spots are told.

    def hear(self, player: SpotPlayer, event: SpotEvent) -> None:
        """The spot was told this event: it goes into the books of its subscription."""
        match event:
            case (
                SubscriptionActivated(subscription=text)
                | SubscriptionSuspended(subscription=text)
                | MessagesMissed(subscription=text)
                | MessagesDropped(subscription=text)
            ):
                account = player.accounts.get(text)
            case _:
                return
        if isinstance(event, MessagesMissed):
            self.accounts.missed(player.label, event.topic, event.count)
        if account is None:
            return  # It has ended meanwhile, and so have its books.
        match event:
            case SubscriptionActivated():
                self._record(player, f"{account} is active on {event.topic}")
                self.accounts.activated(account, event.topic, event.owner, event.epoch)
            case SubscriptionSuspended():
                self._record(player, f"{account} waits for an owner of {event.topic}")
                self.accounts.suspended(account, event.topic)
            case MessagesMissed():
                self._record(player, f"{account} missed {event.count} of {event.topic}")
                account.told_missed_count += event.count
            case MessagesDropped():
                self._record(player, f"{account} dropped {event.count}")
                account.told_dropped_count += event.count

    def _hear_what_waits(self, player: SpotPlayer) -> None:
        """Its listener may not have run yet, most of all on a host that was paused."""
        try:
            while True:
                self.hear(player, player.events.get_nowait())
        except (WouldBlock, AlreadyClosed):
            return

    def _record(self, player: SpotPlayer, what: str) -> None:
        self.world.history.record(player.host, what)

    # Endings.

    def close_account(self, player: SpotPlayer, text: str, *, settled: bool = False) -> None:
        """The subscription ends now, or has told its last counts."""
        # Otherwise messages would wait in it of topics on which the books have not seen it active.
        self._hear_what_waits(player)
        read_count = player.read_count(text)
        account = player.accounts.pop(text)
        subscription = player.subscriptions.pop(text)
        if read_count != account.given_count:
            self.world.fail(
                "a subscription counts what it gave",
                f"{account} says {read_count}, and gave {account.given_count}",
            )
        self.accounts.close(
            account,
            unread=subscription.waiting_count,
            dropped=subscription.dropped_count,
            missed=subscription.missed_count,
            settled=settled,
        )

    def close_player(self, player: SpotPlayer) -> None:
        """The spot ends now; messages that it reads after this are in no book."""
        for text in list(player.accounts):
            self.close_account(player, text)
        player.is_over = True

    def close_session(self, session: NodeRun, *, crashed: bool) -> None:
        """The node ends now. Closing it twice changes nothing."""
        if session.is_over:
            return
        session.is_over = True
        session.is_steady = False
        if session.witness is not None:
            session.witness.close()
        for player in session.players:
            self.close_player(player)
        session.players.clear()
        if crashed:
            self.crashed.add(session.label)
        self.posts.end_node(session.label)


class Witness:
    """The witness of one node, as long as it lives."""

    def __init__(self, host: Host, cast: Cast, label: str, node: SpotNode) -> None:
        self._host = host
        self._cast = cast
        self._label = label
        self._node = node
        self.spot: Spot = node.spot("witness")
        self._tenures: dict[str, Tenure] = {}
        """The open tenures, by topic."""

    async def run(self) -> None:
        """Watch until the node closes."""
        try:
            while True:
                self._saw(await self.spot.recv_all())
        except AlreadyClosed:
            return

    async def create(self, spot: Spot, topic: str, *, retain: bool) -> None:
        """Let the spot create the topic, and watch it from the first message on. Raises as `create_topic`."""
        await spot.create_topic(topic, retain=retain)
        if topic not in self._cast.watched:
            return
        self.drain()
        if topic in self._tenures:
            # It gave way to another that is gone again, before its listener heard of either.
            self._tenures[topic].is_demoted = True
        epoch = _machine(self._node).exchange.outlets[topic.encode()].epoch
        self._tenures[topic] = self._cast.tenures.begin(
            topic, self._node.routing_id, epoch, retain=retain, node=self._label
        )
        await self.spot.subscribe(topic)

    async def end(self, topic: str) -> None:
        """The topic was destroyed, just now."""
        self.drain()
        if self._tenures.pop(topic, None) is not None:
            await self.spot.unsubscribe(topic)

    async def demoted(self, topic: str) -> None:
        """The node said that it gave way to a lower id, some time ago: it may own the topic again."""
        if topic in self._tenures and topic not in self._node.owned:
            self._tenures[topic].is_demoted = True
            await self.end(topic)

    def drain(self) -> None:
        """Take in all waiting messages now."""
        try:
            while True:
                self._saw([self.spot.recv_nowait()])
        except (WouldBlock, AlreadyClosed):
            return

    def close(self) -> None:
        """The node ends now, or has crashed."""
        self.drain()
        for topic, tenure in self._tenures.items():
            tenure.is_demoted = topic not in self._node.owned
        self._tenures.clear()

    def _saw(self, messages: list[TopicMessage]) -> None:
        for message in messages:
            post = self._cast.posts.receive(
                f"{self._label} witness", message.topic, message.payload, message.sequence
            )
            tenure = self._tenures.get(message.topic)
            if tenure is not None:
                self._cast.tenures.saw(tenure, message.sequence, post)


def floor_of(node: SpotNode, topic: str) -> Floor | None:
    """The position of an active topic at this node."""
    machine, frame = _machine(node), topic.encode()
    outlet = machine.exchange.outlets.get(frame)
    if outlet is not None:
        return Floor(owner=node.routing_id, epoch=outlet.epoch, last=outlet.sequence)
    want = machine.wants.all.get(frame)
    if want is None or want.state is not WantState.ACTIVE:
        return None
    return Floor(owner=want.feed.owner, epoch=want.feed.epoch, last=want.feed.last)


def is_asked(node: SpotNode, topic: str) -> bool:
    """Whether the node has asked for a topic and the owner has not confirmed it yet."""
    want = _machine(node).wants.all.get(topic.encode())
    return want is not None and want.state is WantState.ASKED


def _machine(node: SpotNode) -> Mesh:
    """The machine behind the node."""
    driver = node.mesh
    if not isinstance(driver, RouterMesh):
        raise InvariantBroken("the scenario plays on the ROUTER mesh")
    return driver._mesh
