"""Several mesh machines, joined by queues that a test empties as it likes: no sockets, clock or loop."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import combinations

from hansa.errors import TopicExists
from hansa.ids import routing_id
from hansa.topics.effects import Broadcast, Effect, Send, Tell
from hansa.topics.events import MessagesMissed, SubscriptionActivated
from hansa.topics.fanout import Exchange, receive
from hansa.topics.inbox import Inbox, Reader, WhenSlow
from hansa.topics.mesh import Mesh
from hansa.topics.wants import WantState
from hansa.transport.outbox import Outbox
from hansa.wire.frames import FrameParser
from hansa.wire.topics import Publish, decode, encode
from tests.support.spot_mesh import BIG, NOBODY, FakeSubscriber

QUERY_INTERVAL_S = 30.0
SPOTS_COUNT = 3


@dataclass
class Span:
    """What one spot has had of one ownership of a topic."""

    owner: bytes
    epoch: int
    base: int
    delivered_count: int = 0
    missed_count: int = 0


@dataclass(eq=False)
class Books:
    """A spot whose subscriptions are read at once, and what it has had of each topic that it stays with."""

    subscriptions: dict[str, FakeSubscriber] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    former: dict[str, list[Span]] = field(default_factory=dict)
    """Of owners before the last one, which may return."""
    seen: dict[str, set[bytes]] = field(default_factory=dict)

    def wants(self, topic: str) -> bool:
        return any(_matches(one, topic.encode()) for one in self.subscriptions.values())


class Node:
    """One machine, its spots, and its way to each peer."""

    def __init__(self, number: int) -> None:
        self.id = routing_id(number)
        self.exchange = Exchange(BIG)
        self.mesh = Mesh(self.id, self.exchange, query_interval_s=QUERY_INTERVAL_S)
        self.spots = [Books() for _ in range(SPOTS_COUNT)]
        self.boxes: dict[bytes, Outbox] = {}
        self.under_way: dict[bytes, deque[list[bytes]]] = {}


class Cluster:
    """All nodes. Every step takes what was delivered out of the inboxes and enters it in the books."""

    def __init__(self, count: int, *, outbox_count_max: int) -> None:
        self.nodes = [Node(10 * (number + 1)) for number in range(count)]
        self.now = 0.0
        self._by_id = {node.id: node for node in self.nodes}
        self._outbox_count_max = outbox_count_max
        self._wall_ms = 1_700_000_000_000
        self._published_count = 0

    # -- what may happen

    def connect(self, a: int, b: int) -> None:
        one, other = self.nodes[a], self.nodes[b]
        if one is other or other.id in one.boxes:
            return
        for node, peer in ((one, other), (other, one)):
            box = Outbox(bytes_max=BIG, count_max=self._outbox_count_max, burst_count=BIG)
            node.boxes[peer.id] = box
            node.under_way[peer.id] = deque()
        for node, peer in ((one, other), (other, one)):
            self._perform(node, node.mesh.peer_connected(peer.id, node.boxes[peer.id], now=self.now))

    def disconnect(self, a: int, b: int) -> None:
        """Everything that is under way is lost."""
        one, other = self.nodes[a], self.nodes[b]
        if other.id not in one.boxes:
            return
        for node, peer in ((one, other), (other, one)):
            del node.boxes[peer.id], node.under_way[peer.id]
        for node, peer in ((one, other), (other, one)):
            self._perform(node, node.mesh.peer_disconnected(peer.id, "cut", in_doubt_count=0))

    def create(self, at: int, topic: str, retain: bool) -> None:
        node = self.nodes[at]
        self._wall_ms += 1
        try:
            effects = node.mesh.create(topic.encode(), node, retain=retain, wall_ms=self._wall_ms)
        except TopicExists:
            return
        self._perform(node, effects)

    def destroy(self, at: int, topic: str) -> None:
        node = self.nodes[at]
        if topic.encode() in node.exchange.outlets:
            self._perform(node, node.mesh.destroy(topic.encode(), node))

    def subscribe(self, at: int, which: int, text: str) -> None:
        node, spot = self.nodes[at], self.nodes[at].spots[which]
        if text in spot.subscriptions:
            return
        inbox = Inbox(Reader(NOBODY), BIG, BIG, WhenSlow.DROP_OLDEST)
        prefix = text.removesuffix("*").encode()
        one = spot.subscriptions[text] = FakeSubscriber(text, spot, inbox, prefix, text.endswith("*"))
        self._perform(node, node.mesh.subscribe(one))

    def unsubscribe(self, at: int, which: int, text: str) -> None:
        """With the last of its subscriptions that match a topic the spot's stay with that topic ends."""
        node, spot = self.nodes[at], self.nodes[at].spots[which]
        one = spot.subscriptions.pop(text, None)
        if one is None:
            return
        self._perform(node, node.mesh.unsubscribe(one))
        for topic in [topic for topic in spot.spans if not spot.wants(topic)]:
            del spot.spans[topic]
            spot.former.pop(topic, None)
            spot.seen.pop(topic, None)

    def publish(self, at: int, topic: str) -> None:
        """By the owner itself, or through it."""
        node = self.nodes[at]
        self._published_count += 1
        payload = b"%d" % self._published_count
        owner = node.mesh.owner(topic.encode())
        if owner == node.id:
            node.exchange.outlets[topic.encode()].publish(payload, node.exchange)
            self._perform(node, [])
        elif owner is not None:
            node.boxes[owner].put_beyond(encode(Publish(topic=topic, payload=payload)), BIG, BIG)

    def deliver(self, source: int, target: int, count: int) -> int:
        """So many of the messages on the way between two nodes; how many there were."""
        one, other = self.nodes[source], self.nodes[target]
        if other.id not in one.boxes:
            return 0
        under_way = one.under_way[other.id]
        under_way.extend(_read(one.boxes[other.id]))
        done = 0
        while under_way and done < count:
            frames = under_way.popleft()
            done += 1
            if receive(other.exchange, other.mesh.peers[one.id], [frames], 0):
                self._perform(other, [])
            else:
                self._perform(other, other.mesh.hear(one.id, decode(frames), now=self.now))
        return done

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for node in self.nodes:
            self._perform(node, node.mesh.tick(now=self.now))

    def come_to_rest(self) -> None:
        """All connected, everything delivered, everybody asked again."""
        for a, b in combinations(range(len(self.nodes)), 2):
            self.connect(a, b)
        for _ in range(3):
            self._deliver_all()
            self.pass_time(QUERY_INTERVAL_S)
        self._deliver_all()

    # -- what must hold then

    def check(self) -> None:
        topics = {topic for node in self.nodes for topic in node.exchange.outlets}
        for topic in topics:
            owners = [node for node in self.nodes if topic in node.exchange.outlets]
            assert len(owners) == 1, f"{topic!r} has {len(owners)} owners"
            (owner,) = owners
            assert {node.mesh.owner(topic) for node in self.nodes} == {owner.id}
            wanting = {node.id for node in self.nodes if node.mesh.wants.interests.count(topic)}
            assert set(owner.exchange.outlets[topic].subscribers) == wanting - {owner.id}
        for node in self.nodes:
            assert set(node.mesh.owners.all) <= topics, "a topic that nobody owns has an owner"
            assert set(node.exchange.feeds) == set(node.mesh.wants.all)
            for spot in node.spots:
                for topic in topics:
                    self._check_spot(node, spot, topic)

    def _check_spot(self, node: Node, spot: Books, topic: bytes) -> None:
        matching = [one for one in spot.subscriptions.values() if _matches(one, topic)]
        assert [one for one in spot.subscriptions.values() if topic in one.matched] == matching
        if not matching:
            return
        want = node.mesh.wants.all[topic]
        assert {one.matched[topic] for one in matching} == {want}
        assert want.state is WantState.ACTIVE
        assert sum(one.inbox in want.feed.inboxes for one in matching) == 1
        assert want.owner is not None
        outlet = self._by_id[want.owner].exchange.outlets[topic]
        span = spot.spans[topic.decode()]
        assert (span.owner, span.epoch) == (want.owner, outlet.epoch)
        reported = span.base + span.delivered_count + span.missed_count
        assert reported == outlet.sequence, "something was lost and not reported, or came twice"
        if outlet.latest is not None:
            assert outlet.latest.payload in spot.seen[topic.decode()], "a retained message never came"

    # -- inside

    def _deliver_all(self) -> None:
        pairs = [(a, b) for a in range(len(self.nodes)) for b in range(len(self.nodes)) if a != b]
        for _ in range(1_000):
            if not sum([self.deliver(a, b, BIG) for a, b in pairs]):
                return
        raise AssertionError("the nodes never stop talking")

    def _perform(self, node: Node, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer=peer, command=command):
                    if peer in node.boxes:
                        node.boxes[peer].put_beyond(encode(command), BIG, BIG)
                case Broadcast(command=command):
                    for box in node.boxes.values():
                        box.put_beyond(encode(command), BIG, BIG)
                case Tell(event=SubscriptionActivated() as event, to=FakeSubscriber(spot=Books() as spot)):
                    self._enter_activation(node, spot, event)
                case Tell(event=MessagesMissed() as event, to=FakeSubscriber(spot=Books() as spot)):
                    spot.spans[event.topic].missed_count += event.count
        if node.exchange.lagging:
            node.mesh.note_lagging(now=self.now)
        for spot in node.spots:
            for one in spot.subscriptions.values():
                for message in one.inbox.take_all():
                    seen = spot.seen.setdefault(message.topic, set())
                    assert message.payload not in seen, "delivered twice"
                    seen.add(message.payload)
                    span = spot.spans[message.topic]
                    # The latest of a retained topic may be of the time before.
                    span.delivered_count += message.sequence > span.base

    def _enter_activation(self, node: Node, spot: Books, event: SubscriptionActivated) -> None:
        span = spot.spans.get(event.topic)
        if span is not None:
            if (span.owner, span.epoch) == (event.owner, event.epoch):
                return
            spot.former.setdefault(event.topic, []).append(span)
        former = spot.former.get(event.topic, [])
        for span in former:
            if (span.owner, span.epoch) == (event.owner, event.epoch):
                former.remove(span)
                spot.spans[event.topic] = span
                return
        topic = event.topic.encode()
        outlet = node.exchange.outlets.get(topic)
        base = node.exchange.feeds[topic].last if outlet is None else outlet.sequence
        spot.spans[event.topic] = Span(event.owner, event.epoch, base)


def _matches(one: FakeSubscriber, topic: bytes) -> bool:
    return topic.startswith(one.prefix) if one.is_pattern else topic == one.prefix


def _read(box: Outbox) -> list[list[bytes]]:
    parser = FrameParser(frame_bytes_max=BIG, message_bytes_max=BIG, parts_max=1_000, command_bytes_max=1_000)
    parser.commands_only = False
    found: list[list[bytes]] = []
    while (batch := box.take()) is not None:
        found += parser.feed(b"".join(batch.buffers()))
    return found
