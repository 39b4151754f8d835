"""A node's part in the ROUTER mesh: who owns what, who is subscribed, and what to tell whom. Pure.

Theory of operation. Each connected peer has told which topics it owns (QUERY, then TOPIC_ANNOUNCE and
TOPIC_REMOVE in order over one connection), so every node knows every topic without a hub, and a topic's
owner knows its subscribed nodes. Losing a connection loses all of that at once; the next one begins with
QUERY again. QUERY is also repeated slowly, with a digest of what is known, in case something was missed.

If two nodes own a topic, the lower id wins; the other is demoted and says nothing about it, because everybody
hears the winner too. A node that comes to believe a claim which had lost before asks whether it still stands.
A topic that is claimed in a store yields to nobody: its rival has lost its own claim and does not know yet.

What local subscriptions want is decided in `wants`. Messages go through `fanout.receive`; what that leaves
comes to `hear`.
"""

from __future__ import annotations

from collections import deque

from hansa.errors import BadArgument, LimitExceeded, NotOwner, TopicExists
from hansa.ids import format_id, precedence
from hansa.limits import (
    CLAIMS_MAX,
    JOIN_S_MAX,
    LAGGING_S,
    NODE_SUBSCRIPTIONS_MAX,
    OWNED_TOPICS_MAX,
    SILENT_PEER_S,
    TOPICS_MAX,
)
from hansa.presence.statements import Stamps
from hansa.topics.effects import Broadcast, Effect, MeshTally, Peer, Send, Tell
from hansa.topics.events import (
    PeerJoined,
    PeerLeft,
    PublishesInDoubt,
    PublishesRefused,
    SpotEvent,
    TopicAnnounced,
    TopicDemoted,
    TopicLost,
    TopicRemoved,
)
from hansa.topics.fanout import Exchange, Feed, Outlet, receive
from hansa.topics.inbox import TopicMessage
from hansa.topics.names import check_topic
from hansa.topics.owners import Owners, TopicIndex
from hansa.topics.wants import Subscriber, Wants
from hansa.transport.outbox import Outbox
from hansa.wire.topics import (
    Mark,
    Message,
    Publish,
    Query,
    QueryResp,
    SpotCommand,
    Subscribe,
    TopicAnnounce,
    TopicCounts,
    TopicRemove,
    Unsubscribe,
    topic_digest,
)


class Mesh:
    """Decides for one node. Topics are frames; every input returns its effects, in order."""

    def __init__(self, node: bytes, exchange: Exchange, *, query_interval_s: float) -> None:
        self.node = node
        self.exchange = exchange
        self.tally = MeshTally()
        self.peers: dict[bytes, Peer] = {}
        self.owners = Owners()
        self._query_interval_s = query_interval_s
        self._stamps = Stamps()
        self._index = TopicIndex()
        self._digest = 0
        # Topics of ours that are claimed in a store.
        self._claimed: dict[bytes, None] = {}
        self._awaited: dict[bytes, float] = {}
        # Of these, who has connected and may turn out to be no node.
        self._silent: dict[bytes, float] = {}
        self._asking: deque[tuple[float, Peer]] = deque()
        self._lag_at: float | None = None
        # Whose claim has won only because a better one went.
        self._doubted: dict[bytes, None] = {}
        # Of topics that are published here and owned elsewhere: the owner, and the topic's frame.
        self._routes: dict[str, tuple[bytes, bytes]] = {}
        self._effects: list[Effect] = []
        self.wants = Wants(node, exchange, self.owners, self.peers, self.tally, self._effects)

    # -- what is

    @property
    def is_in_step(self) -> bool:
        """Every listed node has told its topics, or was given up."""
        return not self._awaited

    def owner(self, topic: bytes) -> bytes | None:
        return self.node if topic in self.exchange.outlets else self.owners.owner(topic)

    @property
    def topics_count(self) -> int:
        """Every known topic."""
        return len(self._index)

    def heard_count(self, peer: bytes) -> int:
        """How often a peer was heard over its connection; 0 if it has none."""
        member = self.peers.get(peer)
        return 0 if member is None else member.heard_count

    # -- peers

    def expect(self, peer: bytes, *, now: float) -> None:
        """A listed node: until it has told its topics, we are not in step."""
        if peer not in self.peers and peer != self.node:
            self._awaited.pop(peer, None)
            self._awaited[peer] = now + JOIN_S_MAX

    def unexpect(self, peer: bytes) -> None:
        self._awaited.pop(peer, None)

    def peer_connected(self, peer: bytes, box: Outbox, *, now: float) -> list[Effect]:
        member = self.peers[peer] = Peer(peer, box)
        self._awaited.setdefault(peer, now + JOIN_S_MAX)
        self._silent[peer] = now + SILENT_PEER_S
        self._ask(member)
        self._asking.append((now + self._query_interval_s, member))
        self._tell(PeerJoined(peer=peer))
        return self._done()

    def peer_disconnected(self, peer: bytes, reason: str, *, in_doubt_count: int) -> list[Effect]:
        """`in_doubt_count` messages of any kind may not have reached it."""
        member = self.peers.pop(peer, None)
        if member is None:
            return []
        self._awaited.pop(peer, None)
        self._silent.pop(peer, None)
        self.exchange.lagging.pop(member.box, None)
        for topic in member.subscribed:
            self.exchange.outlets[topic].remove(peer)
        for topic in list(self.owners.claims(peer)):
            self._disclaim(topic, peer, is_lost=True)
        doubtful_count = min(in_doubt_count, member.published_count)
        if doubtful_count:
            self.tally.publishes_in_doubt_count += doubtful_count
            self._tell(PublishesInDoubt(owner=peer, count=doubtful_count))
        self._tell(PeerLeft(peer=peer, reason=reason))
        return self._done()

    def hear(self, peer: bytes, command: SpotCommand) -> list[Effect]:
        """What a peer says. Raises LimitExceeded for a claim too many."""
        member = self.peers.get(peer)
        if member is None:
            return []
        if not member.heard_count:
            self._silent.pop(peer, None)
        member.heard_count += 1
        match command:
            case Message():
                self.wants.message(member, command)
            case Publish():
                self._publish(member, command)
            case Subscribe():
                self._subscribe(member, command.topic)
            case Unsubscribe():
                self._unsubscribe(member, command.topic.encode())
            case Query():
                self._answer(member, command)
            case QueryResp():
                self._answered(member, command)
            case TopicAnnounce():
                self._announced(member, command)
            case TopicRemove():
                self._removed(member, command)
        return self._done()

    def receive(self, member: Peer, messages: list[list[bytes]], at: int) -> int:
        """Handle the usual ones of a peer's messages from `at` on; the place of the first one for `hear`."""
        end = receive(self.exchange, member, messages, at)
        if end > at:
            member.heard_count += 1
        return end

    def survey(self) -> list[Effect]:
        """Ask everybody for the counts of their topics."""
        for member in self.peers.values():
            self._ask(member, report_wanted=True)
        return self._done()

    def report(self) -> list[tuple[str, TopicCounts]]:
        """The counts of our own topics."""
        return [(outlet.feed.topic, _counts(outlet)) for outlet in self.exchange.outlets.values()]

    # -- time

    def note_lagging(self, *, now: float) -> None:
        """Some peer has missed messages since: it must be told when there is room."""
        if self._lag_at is None:
            self._lag_at = now + LAGGING_S

    def tick(self, *, now: float) -> list[Effect]:
        for peer in [peer for peer, until in self._awaited.items() if until <= now]:
            del self._awaited[peer]
        for peer in [peer for peer, until in self._silent.items() if until <= now]:
            del self._silent[peer]
            if not self.peers[peer].heard_count:
                self._awaited.pop(peer, None)
        while self._asking and self._asking[0][0] <= now:
            _, member = self._asking.popleft()
            if self.peers.get(member.id) is member:
                self._ask(member)
                self._asking.append((now + self._query_interval_s, member))
        if self._lag_at is not None and self._lag_at <= now:
            self._tell_lagging()
            self._lag_at = now + LAGGING_S if self.exchange.lagging else None
        return self._done()

    def deadline(self) -> float | None:
        # All wait equally long, so the one that began first is due first.
        due = [next(iter(self._awaited.values()))] if self._awaited else []
        if self._silent:
            due.append(next(iter(self._silent.values())))
        if self._asking:
            due.append(self._asking[0][0])
        if self._lag_at is not None:
            due.append(self._lag_at)
        return min(due, default=None)

    # -- what the program asks for

    def route(self, topic: str) -> tuple[bytes, bytes] | None:
        """The other node that owns a topic, and the topic's frame. Raises BadArgument."""
        route = self._routes.get(topic)
        if route is None:
            frame = check_topic(topic)
            owner = self.owners.owner(frame)
            if owner is not None:
                route = self._routes[topic] = (owner, frame)
        return route

    def published(self, owner: bytes) -> None:
        """The owner was sent a PUBLISH."""
        self.peers[owner].published_count += 1

    def create(
        self, topic: bytes, spot: object, *, retain: bool, wall_ms: int, is_claimed: bool = False
    ) -> list[Effect]:
        """Raises TopicExists, BadArgument.

        `is_claimed`: a store says that nobody else may own it, whatever a peer said before.
        """
        name = topic.decode()
        owner = self.owner(topic)
        if owner == self.node or (owner is not None and not is_claimed):
            whose = "this node" if owner == self.node else f"node {format_id(owner)}"
            raise TopicExists(f"topic {name!r} is owned by {whose} already")
        outlets = self.exchange.outlets
        if len(outlets) >= OWNED_TOPICS_MAX:
            raise BadArgument(f"this node owns {len(outlets)} topics, which is the most: use another node")
        want = self.wants.all.get(topic)
        feed = Feed(name) if want is None else want.feed
        outlet = Outlet(topic, feed, spot, self._stamps.next(wall_ms), retain)
        self.exchange.open(outlet)
        if is_claimed:
            self._claimed[topic] = None
        self._digest ^= topic_digest(topic)
        self._effects.append(Broadcast(command=TopicAnnounce(topic=name, mark=_mark(outlet))))
        self._moved(topic, owner, self.node)
        return self._done()

    def destroy(self, topic: bytes, spot: object) -> list[Effect]:
        """Raises NotOwner."""
        outlet = self.exchange.outlets.get(topic)
        if outlet is None or outlet.spot is not spot:
            owner = self.owner(topic)
            whose = "nobody" if owner is None else f"node {format_id(owner)}"
            whose = "another spot of this node" if owner == self.node else whose
            raise NotOwner(f"topic {topic.decode()!r} is not this spot's to destroy: its owner is {whose}")
        self._remove(topic, outlet)
        return self._done()

    def lose(self, topic: bytes, reason: str) -> list[Effect]:
        """The claim of a topic of ours is lost in the store: from now on somebody else may own it."""
        outlet = self.exchange.outlets.get(topic)
        if outlet is None:
            return []
        self._effects.append(Tell(event=TopicLost(topic=outlet.feed.topic, reason=reason), to=outlet.spot))
        self._remove(topic, outlet)
        return self._done()

    def subscribe(self, subscriber: Subscriber) -> list[Effect]:
        """Raises BadArgument."""
        interests, prefix = self.wants.interests, subscriber.prefix
        if len(interests) >= NODE_SUBSCRIPTIONS_MAX:
            raise BadArgument(f"this node has {len(interests)} subscriptions, which is the most")
        interests.add(subscriber)
        topics = [prefix]
        if subscriber.is_pattern:
            topics = self._index.starting_with(prefix) + self.wants.ownerless(prefix)
        for topic in topics:
            want = self.wants.all.get(topic)
            if want is None:
                self.wants.begin(topic, self.owner(topic))
            else:
                self.wants.join(want, subscriber)
        return self._done()

    def unsubscribe(self, subscriber: Subscriber) -> list[Effect]:
        self.wants.interests.remove(subscriber)
        for want in list(subscriber.matched.values()):
            self.wants.leave(want, subscriber)
        return self._done()

    # -- owners

    def _claim(self, topic: bytes, peer: bytes) -> None:
        if self.owners.is_claimed_by(topic, peer):
            return
        if self.owners.count(peer) >= TOPICS_MAX:
            raise LimitExceeded(f"{format_id(peer)} claims more than {TOPICS_MAX} topics")
        if self.owners.claims_count >= CLAIMS_MAX:
            raise LimitExceeded(f"all peers together claim {CLAIMS_MAX} topics, which is the most")
        before = self.owners.owner(topic)
        self.owners.claim(topic, peer)
        outlet = self.exchange.outlets.get(topic)
        if outlet is None:
            after = self.owners.owner(topic)
            if after != before:
                self._moved(topic, before, after)
            return
        self.tally.conflicts_count += 1
        if topic not in self._claimed and precedence(peer) < precedence(self.node):
            self.tally.demotions_count += 1
            # A last word for those who miss some of our messages; who heard the winner first ignores it.
            for member in [self.peers[subscriber] for subscriber in outlet.subscribers]:
                if outlet in self.exchange.lagging.get(member.box, ()):
                    self._tell_lag(member, outlet)
            self._give_up(topic, outlet)
            self._effects.append(
                Tell(event=TopicDemoted(topic=outlet.feed.topic, winner=peer), to=outlet.spot)
            )
            self._moved(topic, self.node, self.owners.owner(topic))

    def _disclaim(self, topic: bytes, peer: bytes, *, is_lost: bool = False) -> None:
        before = self.owners.owner(topic)
        self.owners.disclaim(topic, peer)
        after = self.owners.owner(topic)
        if topic not in self.exchange.outlets and before != after:
            self._fall_to(topic, before, after, is_lost=is_lost)

    def _fall_to(
        self, topic: bytes, before: bytes | None, after: bytes | None, *, is_lost: bool = False
    ) -> None:
        """The owner went; who is left had lost, and may have been demoted since: better ask, once."""
        if after is not None:
            self._doubted[after] = None
        self._moved(topic, before, after, is_lost=is_lost)

    def _remove(self, topic: bytes, outlet: Outlet) -> None:
        """We own it no more, and say so."""
        self._effects.append(Broadcast(command=TopicRemove(topic=outlet.feed.topic, mark=_mark(outlet))))
        self._give_up(topic, outlet)
        self._fall_to(topic, self.node, self.owners.owner(topic))

    def _give_up(self, topic: bytes, outlet: Outlet) -> None:
        """We own it no more."""
        self._claimed.pop(topic, None)
        self.exchange.close(outlet)
        self._digest ^= topic_digest(topic)
        for peer in outlet.subscribers:
            member = self.peers[peer]
            del member.subscribed[topic]
            self._forget_lag(member, outlet)

    def _moved(
        self, topic: bytes, before: bytes | None, after: bytes | None, *, is_lost: bool = False
    ) -> None:
        """The topic has another owner than before, or none."""
        name = topic.decode()
        self._routes.pop(name, None)
        if after is None:
            self._index.discard(topic)
            self._tell(TopicRemoved(topic=name, owner=before or b""))
        else:
            self._index.add(topic)
            self._tell(TopicAnnounced(topic=name, owner=after))
        self.wants.moved(topic, after, is_lost=is_lost)

    # -- what peers say

    def _ask(self, member: Peer, *, report_wanted: bool = False) -> None:
        query = Query(
            report_wanted=report_wanted,
            known_count=self.owners.count(member.id),
            known_digest=self.owners.digest(member.id),
            is_extended=True,
        )
        self.tally.queries_count += 1
        self._effects.append(Send(peer=member.id, command=query))

    def _answer(self, member: Peer, query: Query) -> None:
        outlets = self.exchange.outlets
        if query.is_extended:
            member.is_hansa = True
        is_right = query.known_count == len(outlets) and query.known_digest == self._digest
        if query.is_extended and is_right and not query.report_wanted:
            answer = QueryResp(topics=(), is_extended=True, is_unchanged=True)
        else:
            answer = QueryResp(
                topics=tuple(outlet.feed.topic for outlet in outlets.values()),
                is_extended=query.is_extended,
                report=tuple(map(_counts, outlets.values())) if query.report_wanted else None,
            )
        self._effects.append(Send(peer=member.id, command=answer))

    def _answered(self, member: Peer, answer: QueryResp) -> None:
        self._awaited.pop(member.id, None)
        if answer.is_unchanged:
            return
        topics = dict.fromkeys(topic.encode() for topic in answer.topics)
        gone = [topic for topic in self.owners.claims(member.id) if topic not in topics]
        # Before anything is changed: half an answer would be neither what was before nor what is.
        if self.owners.claims_count - self.owners.count(member.id) + len(topics) > CLAIMS_MAX:
            raise LimitExceeded(f"all peers together claim more than {CLAIMS_MAX} topics")
        for topic in gone:
            self._disclaim(topic, member.id)
        for topic in topics:
            self._claim(topic, member.id)

    def _announced(self, member: Peer, announced: TopicAnnounce) -> None:
        topic, mark = announced.topic.encode(), announced.mark
        self._claim(topic, member.id)
        if mark is not None:
            self.wants.marked(member, topic, mark)

    def _removed(self, member: Peer, removed: TopicRemove) -> None:
        topic = removed.topic.encode()
        if removed.mark is not None:
            self.wants.marked(member, topic, removed.mark)
        if removed.refused_count == 0:
            member.answered(topic)
        # A peer cannot refuse more than it was sent.
        refused_count = min(removed.refused_count or 0, member.published_count)
        if refused_count:
            member.published_count -= refused_count
            self.tally.publishes_refused_count += refused_count
            self._tell(PublishesRefused(topic=removed.topic, owner=member.id, count=refused_count))
        self._disclaim(topic, member.id)

    def _subscribe(self, member: Peer, name: str) -> None:
        topic = name.encode()
        outlet = self.exchange.outlets.get(topic)
        if outlet is None:
            self.tally.subscribes_refused_count += 1
            self._effects.append(Send(peer=member.id, command=TopicRemove(topic=name, refused_count=0)))
            return
        outlet.add(member.id, member.box)
        member.subscribed[topic] = None
        if member.is_hansa:
            mark = _mark(outlet, confirm=True)
            self._effects.append(Send(peer=member.id, command=TopicAnnounce(topic=name, mark=mark)))
        if outlet.latest is not None:
            self._effects.append(Send(peer=member.id, command=_again(outlet.latest)))

    def _unsubscribe(self, member: Peer, topic: bytes) -> None:
        if topic not in member.subscribed:
            return
        del member.subscribed[topic]
        outlet = self.exchange.outlets[topic]
        outlet.remove(member.id)
        self._forget_lag(member, outlet)

    def _publish(self, member: Peer, publish: Publish) -> None:
        outlet = self.exchange.outlets.get(publish.topic.encode())
        if outlet is not None:
            outlet.publish(publish.payload, self.exchange)
            return
        self.tally.refused_count += 1
        self._effects.append(Send(peer=member.id, command=TopicRemove(topic=publish.topic, refused_count=1)))

    def _tell_lagging(self) -> None:
        exchange = self.exchange
        members = {member.box: member for member in self.peers.values() if member.box in exchange.lagging}
        for box, outlets in list(exchange.lagging.items()):
            member = members.get(box)
            is_full = box.held_count * 2 > box.count_max or box.held_bytes * 2 > box.bytes_max
            if member is not None and is_full:
                continue
            del exchange.lagging[box]
            if member is not None and member.is_hansa:
                for outlet in outlets:
                    self._tell_lag(member, outlet)

    def _tell_lag(self, member: Peer, outlet: Outlet) -> None:
        """How far the topic is; of a retained one the latest message again, which must not stay unknown."""
        latest = outlet.latest
        mark = _mark(outlet) if latest is None else _mark_before(outlet)
        self._effects.append(Send(peer=member.id, command=TopicAnnounce(topic=outlet.feed.topic, mark=mark)))
        if latest is not None:
            self._effects.append(Send(peer=member.id, command=_again(latest)))

    def _forget_lag(self, member: Peer, outlet: Outlet) -> None:
        lagging = self.exchange.lagging.get(member.box)
        if lagging is not None:
            lagging.pop(outlet, None)

    # -- small things

    def _tell(self, event: SpotEvent) -> None:
        self._effects.append(Tell(event=event))

    def _done(self) -> list[Effect]:
        for peer in self._doubted:
            self._ask(self.peers[peer])
        self._doubted.clear()
        effects = self._effects[:]
        self._effects.clear()
        return effects


def _mark(outlet: Outlet, *, confirm: bool = False) -> Mark:
    return Mark(epoch=outlet.epoch, sequence=outlet.sequence, retain=outlet.retain, confirm=confirm)


def _mark_before(outlet: Outlet) -> Mark:
    """As if the latest message were still to come."""
    return Mark(epoch=outlet.epoch, sequence=outlet.sequence - 1, retain=outlet.retain)


def _again(latest: TopicMessage) -> Message:
    return Message(topic=latest.topic, payload=latest.payload, sequence=latest.sequence)


def _counts(outlet: Outlet) -> TopicCounts:
    return TopicCounts(
        subscribers_count=len(outlet.subscribers) + len(outlet.feed.inboxes),
        published_count=outlet.sequence,
        dropped_count=outlet.dropped_count,
    )
