"""Mesh machines that hand a topic from one to the other, and books of who has had what. No sockets, no
store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hansa.errors import Conflict, PeerAway
from hansa.limits import TOPIC_CLOSING_S_MAX
from hansa.topics.effects import Effect, Tell
from hansa.topics.events import SpotEvent
from hansa.topics.moving import Adoption
from hansa.topics.topic_state import TopicState
from hansa.wire.topics import Publish, encode
from tests.support.spot_cluster import Cluster, Node
from tests.support.spot_mesh import BIG

TOPIC = "t:1"


@dataclass(kw_only=True)
class Underway:
    """What the record of the hand-over says."""

    source: int
    target: int
    number: int
    state: TopicState


@dataclass
class Journal:
    """What became of the messages of one publishing node."""

    published_count: int = 0
    refused_count: int = 0


@dataclass(eq=False)
class Reader:
    """What one subscription has received, as (publisher, number of its message)."""

    node: int
    received: list[tuple[int, int]] = field(default_factory=list)


class MovingCluster(Cluster):
    """A cluster with one topic, which moves. All are connected when it begins, and everybody is
    subscribed."""

    def __init__(self, count: int, *, readers: list[int], retain: bool = False) -> None:
        super().__init__(count, outbox_count_max=BIG)
        self.journals = [Journal() for _ in self.nodes]
        self.readers = [Reader(at) for at in readers]
        self.underway: Underway | None = None
        self.events: list[Counter[str]] = [Counter() for _ in self.nodes]
        self.moves_count = 0
        self._claim = 100
        self.come_to_rest()
        self._perform(
            self.nodes[0],
            self.nodes[0].mesh.create(
                TOPIC.encode(), self.nodes[0], retain=retain, wall_ms=1_700_000_000_000, claim=self._claim
            ),
        )
        for reader in self.readers:
            self.subscribe(reader.node, 0, TOPIC)
        self.come_to_rest()
        for counter in self.events:
            counter.clear()

    @property
    def owner(self) -> int:
        """Whose the topic is, as the record has it."""
        (owner,) = (at for at, node in enumerate(self.nodes) if TOPIC.encode() in node.exchange.outlets)
        return owner

    # -- the steps of the record

    def offer(self, target: int) -> bool:
        """Offered, prepared and sealed at once: the owner closes the topic."""
        if self.underway is not None:
            return False
        owners = [at for at, node in enumerate(self.nodes) if TOPIC.encode() in node.exchange.outlets]
        if len(owners) != 1 or owners == [target]:
            return False
        source = self.nodes[owners[0]]
        number = self.moves_count + 1
        try:
            state, effects = source.mesh.close(TOPIC.encode(), self.nodes[target].id, number=number)
        except (Conflict, PeerAway):
            return False
        self.moves_count = number
        state = TopicState.decode(state.encode())
        self.underway = Underway(source=owners[0], target=target, number=number, state=state)
        self._perform(source, effects)
        return True

    def withdraw(self) -> None:
        if self.underway is not None:
            source = self.nodes[self.underway.source]
            self.underway = None
            self._perform(source, source.mesh.stay(TOPIC.encode()))

    def take(self) -> None:
        """The new owner has it, in the store: it opens it as soon as it may, and the old one learns of it."""
        if self.underway is None:
            return
        underway, self.underway = self.underway, None
        self._claim += 1
        source, target = self.nodes[underway.source], self.nodes[underway.target]
        adoption = Adoption(
            topic=TOPIC.encode(),
            spot=target,
            state=underway.state,
            claim=self._claim,
            number=underway.number,
            until=self.now + TOPIC_CLOSING_S_MAX,
        )
        self._perform(target, target.mesh.adopt(adoption))
        self._perform(source, source.mesh.taken(TOPIC.encode()))

    # -- publishing

    def send(self, at: int) -> None:
        """What a spot of this node does."""
        node, journal = self.nodes[at], self.journals[at]
        payload = b"%d %d" % (at, journal.published_count)
        outlet = node.exchange.outlets_by_name.get(TOPIC)
        route = node.mesh.route(TOPIC)
        hold = node.mesh.moves.holds.get(TOPIC)
        if outlet is not None:
            outlet.publish(payload, node.exchange)
            self._perform(node, [])
        elif route is not None:
            node.boxes[route[0]].put_beyond(encode(Publish(topic=TOPIC, payload=payload)), BIG, BIG)
            node.mesh.published(route[0])
        elif hold is not None:
            assert hold.put(payload)
        else:
            journal.refused_count += 1
            return
        journal.published_count += 1

    # -- what must hold

    def check_all_arrived(self) -> None:
        """Everybody has had everything, once, and each publisher's messages in their order."""
        self._read()
        expected = {
            (at, number)
            for at, journal in enumerate(self.journals)
            for number in range(journal.published_count)
        }
        for journal in self.journals:
            assert journal.refused_count == 0, "a publisher saw an error"
        for reader in self.readers:
            assert len(reader.received) == len(set(reader.received)), "something came twice"
            assert set(reader.received) == expected, "something was lost"
            self.check_order(reader)
        for kinds in self.events:
            for kind in (
                "SubscriptionSuspended",
                "MessagesMissed",
                "TopicLost",
                "PublishesRefused",
                "TopicRemoved",
            ):
                assert kinds[kind] == 0, f"{kind} was told"

    def check_all_is_known(self) -> None:
        """Whatever a reader has not had, it was told; and it has had nothing twice."""
        self._read()
        outlet = self.nodes[self.owner].exchange.outlets[TOPIC.encode()]
        for reader in self.readers:
            assert len(reader.received) == len(set(reader.received)), "something came twice"
            missed_count = self.nodes[reader.node].spots[0].subscriptions[TOPIC].inbox.missed_count
            assert len(reader.received) + missed_count == outlet.sequence, "a gap was not told"

    def check_all_agree(self) -> None:
        """On the owner; nobody waits for anything; who is subscribed is known to the owner."""
        owner = self.nodes[self.owner]
        for node in self.nodes:
            moves = node.mesh.moves
            assert (moves.holds, moves.leaving, moves.arrivals, moves.adoptions) == ({}, {}, {}, {})
            assert (moves.switching, node.mesh.wants.crossings) == ({}, {})
            assert node.mesh.owner(TOPIC.encode()) == owner.id
        wanting = {self.nodes[reader.node].id for reader in self.readers} - {owner.id}
        assert set(owner.exchange.outlets[TOPIC.encode()].subscribers) == wanting
        assert set(owner.exchange.outlets_by_name) == {TOPIC}

    @staticmethod
    def check_order(reader: Reader) -> None:
        last: dict[int, int] = {}
        for publisher, number in reader.received:
            assert number > last.get(publisher, -1), f"node {publisher}'s messages have overtaken each other"
            last[publisher] = number

    # -- inside

    def _read(self) -> None:
        for reader in getattr(self, "readers", []):
            subscription = self.nodes[reader.node].spots[0].subscriptions.get(TOPIC)
            if subscription is None:
                continue
            for message in subscription.inbox.take_all():
                publisher, number = message.payload.split()
                reader.received.append((int(publisher), int(number)))

    def _perform(self, node: Node, effects: list[Effect]) -> None:
        self._read()
        for effect in effects:
            if isinstance(effect, Tell):
                self._note(node, effect.event)
        super()._perform(node, [effect for effect in effects if not isinstance(effect, Tell)])
        self._read()

    def _note(self, node: Node, event: SpotEvent) -> None:
        if hasattr(self, "events"):
            self.events[self.nodes.index(node)][type(event).__name__] += 1
