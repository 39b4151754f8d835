"""A node's part in the ROUTER mesh: keeps owners and subscribers, and decides what to tell which peer. Pure.

Theory of operation. Each connected peer has told which topics it owns (QUERY, then TOPIC_ANNOUNCE and
TOPIC_REMOVE in order over one connection), so every node knows every topic without a hub, and a topic's owner
knows its subscribed nodes. When a connection is lost, all that the peer told is lost with it; the next
connection begins with QUERY again. QUERY is also repeated slowly, with a digest of what is known, in case
something was missed.

If two nodes own a topic, the lower id wins; the other node is demoted and says nothing about it, because
every node hears the winner too. A node that comes to believe a claim which had lost before asks whether the
claim still stands. Claims in a store go before ids: the higher epoch wins, and a claim in a store wins over
one that is not there. A node that loses that way has lost its own claim, and does not know it yet.

`wants` decides what local subscriptions get, and `moving` how a topic is handed over. Messages go through
`fanout.receive`; those that it leaves come to `hear`.
"""

from __future__ import annotations

from collections import deque

from hansa.errors import BadArgument, Conflict, NotOwner, PeerAway, TopicExists
from hansa.ids import format_id, precedence
from hansa.limits import JOIN_S_MAX, LAGGING_S, NODE_SUBSCRIPTIONS_MAX, OWNED_TOPICS_MAX, SILENT_PEER_S
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
    TopicMoved,
    TopicRemoved,
)
from hansa.topics.fanout import Exchange, Feed, Outlet, receive
from hansa.topics.lags import Lags, again, counts_of, mark_of
from hansa.topics.moving import Adoption, HeldMessages, Leaving, Moves
from hansa.topics.names import check_topic
from hansa.topics.owners import Owners, TopicIndex
from hansa.topics.topic_state import TopicState
from hansa.topics.wants import Subscriber, Wants
from hansa.transport.outbox import Outbox
from hansa.wire.topics import (
    Mark,
    Message,
    Move,
    MoveStep,
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
        self.taker = ""
        """The node's name in the store, if it takes topics that are handed over."""
        self.peers: dict[bytes, Peer] = {}
        self.owners = Owners()
        self._query_interval_s = query_interval_s
        self._stamps = Stamps()
        self._index = TopicIndex()
        self._digest = 0
        # The epochs of this node's claims in a store, by topic.
        self._claims: dict[bytes, int] = {}
        self._awaited: dict[bytes, float] = {}
        # Of these, the peers that have connected and may turn out to be no nodes.
        self._silent: dict[bytes, float] = {}
        self._asking: deque[tuple[float, Peer]] = deque()
        self._lag_at: float | None = None
        # Peers with a claim that has won only because a better one went.
        self._doubted: dict[bytes, None] = {}
        # For topics that are published here and owned elsewhere: the owner, and the topic's frame.
        self._routes: dict[str, tuple[bytes, bytes]] = {}
        self._effects: list[Effect] = []
        self._lags = Lags(node, exchange, self.peers, self._effects)
        self.wants = Wants(node, exchange, self.owners, self.peers, self.tally, self._effects)
        self.moves = Moves(node, exchange, self.owners, self._claims, self.peers, self.tally, self._effects)

    # -- what is

    @property
    def is_in_step(self) -> bool:
        """Whether every listed node has told its topics, or was given up."""
        return not self._awaited

    def owner(self, topic: bytes) -> bytes | None:
        return self.node if topic in self.exchange.outlets else self.owners.owner(topic)

    @property
    def topics_count(self) -> int:
        """How many topics are known."""
        return len(self._index)

    def heard_count(self, peer: bytes) -> int:
        """How often a peer was heard over its connection; 0 if it has none."""
        return self.peers[peer].heard_count if peer in self.peers else 0

    # -- peers

    def expect(self, peer: bytes, *, now: float) -> None:
        """A node was listed: until it has told its topics, this node is not in step."""
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
        """`in_doubt_count` messages of any kind may not have reached the peer."""
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
        self.wants.source_gone(member)
        self.moves.peer_gone(peer)
        for hold in [one for one in self.moves.holds.values() if one.is_orphaned and one.target == peer]:
            self._bury(hold)
        for adoption in list(self.moves.adoptions.values()):
            self._try_to_open(adoption)
        doubtful_count = min(in_doubt_count, member.published_count)
        if doubtful_count:
            self.tally.publishes_in_doubt_count += doubtful_count
            self._tell(PublishesInDoubt(owner=peer, count=doubtful_count))
        self._tell(PeerLeft(peer=peer, reason=reason))
        return self._done()

    def hear(self, peer: bytes, command: SpotCommand, *, now: float) -> list[Effect]:
        """Handle a peer's command. Raises LimitExceeded for a claim too many."""
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
                self._subscribe(member, command)
            case Unsubscribe():
                self._unsubscribe(member, command)
            case Query():
                self._answer(member, command)
            case QueryResp():
                self._answered(member, command)
            case TopicAnnounce():
                self._announced(member, command, now=now)
            case TopicRemove():
                self._removed(member, command)
        return self._done()

    def receive(self, member: Peer, messages: list[list[bytes]], at: int) -> int:
        """Handle the usual messages of a peer from `at` on; returns the place of the first one for `hear`."""
        end = receive(self.exchange, member, messages, at)
        if end > at:
            member.heard_count += 1
        return end

    def take_topics(self, name: str) -> list[Effect]:
        """Let others hand topics over to this node, by its name in the store; with an empty name stop it."""
        if name == self.taker:
            return []
        self.taker = name
        for member in self.peers.values():
            self._ask(member)
        return self._done()

    def survey(self) -> list[Effect]:
        """Ask all peers for the counts of their topics."""
        for member in self.peers.values():
            self._ask(member, report_wanted=True)
        return self._done()

    def report(self) -> list[tuple[str, TopicCounts]]:
        """The counts of this node's own topics."""
        return [(outlet.feed.topic, counts_of(outlet)) for outlet in self.exchange.outlets.values()]

    # -- time

    def note_lagging(self, *, now: float) -> None:
        """Some peer has missed messages: it must be told when there is room."""
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
            self._lags.tell_all(self._claims)
            self._lag_at = now + LAGGING_S if self.exchange.lagging else None
        for hold in self.moves.tick(now=now):
            if hold.is_orphaned:
                self._bury(hold)
        for leaving in self.moves.overdue(now=now):
            reason = f"node {format_id(leaving.target)} has taken it over, and cannot be reached"
            self._lose(leaving.outlet, reason)
        for adoption in list(self.moves.adoptions.values()):
            self._try_to_open(adoption, late_at=now if adoption.until <= now else None)
        return self._done()

    def deadline(self) -> float | None:
        # All of one kind wait equally long, so the first one is due first.
        due = [next(iter(waiting.values())) for waiting in (self._awaited, self._silent) if waiting]
        due += [self._asking[0][0]] if self._asking else []
        due += [at for at in (self._lag_at, self.moves.deadline()) if at is not None]
        return min(due, default=None)

    # -- what the program asks for

    def route(self, topic: str) -> tuple[bytes, bytes] | None:
        """The other node that owns a topic, and the topic's frame; None also while the topic is on its way.

        Raises BadArgument.
        """
        route = self._routes.get(topic)
        if route is None and topic not in self.moves.holds:
            frame = check_topic(topic)
            owner = self.owners.owner(frame)
            if owner is not None:
                route = self._routes[topic] = (owner, frame)
        return route

    def published(self, owner: bytes) -> None:
        """Count a PUBLISH that was sent to the owner."""
        self.peers[owner].published_count += 1

    def create(
        self, topic: bytes, spot: object, *, retain: bool, wall_ms: int, claim: int = 0
    ) -> list[Effect]:
        """Raises TopicExists, BadArgument.

        `claim` is the epoch of the topic's claim in a store, by which no other node may own it, whatever a
        peer said before; 0 without a claim.
        """
        name = topic.decode()
        self._own_again(topic, claim)
        owner = self.owner(topic)
        if owner == self.node or (owner is not None and not claim):
            whose = "this node" if owner == self.node else f"node {format_id(owner)}"
            raise TopicExists(f"topic {name!r} is owned by {whose} already")
        self.check_room()
        outlet = self._open(topic, spot, self.node, self._stamps.next(wall_ms), retain=retain, claim=claim)
        announce = TopicAnnounce(topic=name, mark=mark_of(outlet, self.node), claim=claim)
        self._effects.append(Broadcast(command=announce))
        self._moved(topic, owner, self.node)
        return self._done()

    def check_room(self) -> None:
        """Raises BadArgument when this node owns as many topics as it may."""
        count = len(self.exchange.outlets) + len(self.moves.adoptions)
        if count >= OWNED_TOPICS_MAX:
            raise BadArgument(f"this node owns {count} topics, which is the most: use another node")

    def _open(
        self, topic: bytes, spot: object, founder: bytes, epoch: int, *, retain: bool, claim: int
    ) -> Outlet:
        """Own the topic from now on."""
        want = self.wants.all.get(topic)
        feed = Feed(topic.decode()) if want is None else want.feed
        outlet = Outlet(topic, feed, spot, founder, epoch, retain)
        if topic not in self.exchange.outlets:  # Else it comes back before the new owner announced it.
            self._digest ^= topic_digest(topic)
        self.exchange.open(outlet)
        if claim:
            self._claims[topic] = claim
        return outlet

    def destroy(self, topic: bytes, spot: object) -> list[Effect]:
        """Raises NotOwner."""
        adoption = self.moves.adoptions.get(topic)
        if adoption is not None and adoption.spot is spot:
            # No other node has heard of it yet.
            del self.moves.adoptions[topic]
            return self._done()
        outlet = self.exchange.outlets.get(topic)
        if outlet is None or outlet.spot is not spot:
            owner = self.owner(topic)
            whose = "nobody" if owner is None else f"node {format_id(owner)}"
            whose = "another spot of this node" if owner == self.node else whose
            raise NotOwner(f"topic {topic.decode()!r} is not this spot's to destroy: its owner is {whose}")
        self._remove(topic, outlet)
        return self._done()

    def lose(self, topic: bytes, reason: str) -> list[Effect]:
        """The claim of a topic of this node is lost in the store: from now on another node may own it."""
        adoption = self.moves.adoptions.pop(topic, None)
        if adoption is not None:
            event = TopicLost(topic=topic.decode(), reason=reason)
            self._effects.append(Tell(event=event, to=adoption.spot))
        outlet = self.exchange.outlets.get(topic)
        if outlet is not None:
            self._lose(outlet, reason)
        return self._done()

    def _lose(self, outlet: Outlet, reason: str) -> None:
        self._effects.append(Tell(event=TopicLost(topic=outlet.feed.topic, reason=reason), to=outlet.spot))
        self._remove(outlet.frame, outlet)

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
                # A topic that is closed here may have another owner before the next message: `stay` or the
                # new owner says where this want begins.
                self.wants.begin(topic, None if self.moves.is_closed(topic) else self.owner(topic))
            else:
                self.wants.join(want, subscriber)
        return self._done()

    def unsubscribe(self, subscriber: Subscriber) -> list[Effect]:
        self.wants.interests.remove(subscriber)
        for want in list(subscriber.matched.values()):
            self.wants.leave(want, subscriber)
        return self._done()

    # -- topics that are handed over

    def close(self, topic: bytes, target: bytes, *, number: int) -> tuple[TopicState, list[Effect]]:
        """Stop publishing a topic, and return what the new owner needs; `stay` or `taken` must follow.

        Raises NotOwner; PeerAway when this node is not connected with the target; Conflict while the topic is
        handed over already, or was handed over to this node a moment ago.
        """
        outlet = self.exchange.outlets.get(topic)
        if outlet is None:
            raise NotOwner(f"topic {topic.decode()!r} is not this node's to hand over")
        if topic in self.moves.leaving or topic in self.moves.arrivals:
            raise Conflict(f"topic {outlet.feed.topic!r} is on its way already: try again in a moment")
        member = self.peers.get(target)
        if member is None or not member.is_hansa:
            raise PeerAway(f"node {format_id(target)} is not connected: {outlet.feed.topic!r} stays here")
        self._lags.tell_at_once(outlet, self._claims)
        self._routes.pop(outlet.feed.topic, None)
        claim, is_wanted = self._claims.get(topic, 0), topic in self.wants.all
        return self.moves.close(outlet, target, number, claim=claim, is_wanted=is_wanted), self._done()

    def stay(self, topic: bytes) -> list[Effect]:
        """The hand-over was withdrawn: go on publishing. Changes nothing unless the topic was closed."""
        leaving = self.moves.leaving.get(topic)
        if leaving is not None and not leaving.is_gone:
            self.wants.begin_here(topic)
            self.moves.reopen(leaving, claim=self._claims.get(topic, 0))
            for peer, said in leaving.said:
                if isinstance(said, Subscribe):
                    self._subscribe(self.peers[peer], said)
                else:
                    self._unsubscribe(self.peers[peer], said)
        return self._done()

    def taken(self, topic: bytes) -> list[Effect]:
        """The record says that the new owner has the topic: wait for its announcement, but not for ever."""
        leaving = self.moves.leaving.get(topic)
        if leaving is not None and not leaving.is_gone:
            leaving.until = None
        return self._done()

    def adopt(self, adoption: Adoption) -> list[Effect]:
        """Own a topic that another node has handed over: now, or once that node's last messages have come."""
        self.moves.adoptions[adoption.topic] = adoption
        self._try_to_open(adoption)
        return self._done()

    def _own_again(self, topic: bytes, claim: int) -> None:
        """By a later claim: the node that had taken the topic from here is gone, and had not announced it."""
        leaving = self.moves.leaving.get(topic)
        if leaving is not None and not leaving.is_gone and claim > self._claims.get(topic, 0):
            self._lose(leaving.outlet, f"node {format_id(leaving.target)} had taken it over, and is gone")

    def _try_to_open(self, adoption: Adoption, *, late_at: float | None = None) -> None:
        """Open the topic if it is time. `late_at` is the current time, if it has waited long enough."""
        topic, state = adoption.topic, adoption.state
        if not self.moves.is_closed_here(adoption):
            if late_at is None:
                return
            # Messages that this node has published before may still be on their way to the old owner.
            source = self.peers[state.source]
            self.moves.begin_hold(topic, source, self.node, adoption.number, now=late_at)
        outlet = self._open(
            topic, adoption.spot, state.founder, state.epoch, retain=state.retain, claim=adoption.claim
        )
        self.moves.open(outlet, adoption)
        self._routes.pop(outlet.feed.topic, None)
        self._index.add(topic)
        self.wants.adopt(outlet)
        self.moves.settle(outlet.feed.topic)

    def _let_go(self, leaving: Leaving, peer: bytes, mark: Mark | None) -> None:
        """The new owner has announced a topic that was this node's."""
        outlet = leaving.outlet
        topic, name = outlet.frame, outlet.feed.topic
        self._give_up(topic, outlet)
        self.moves.let_go(leaving, epoch=self.owners.epoch(topic, peer), is_told=mark is not None)
        if mark is None:
            self.wants.moved(topic, peer, is_lost=True)
        else:
            self.wants.handed_over(topic, self.peers[peer], mark, leaving.number)
        self.moves.settle(name)

    def _bury(self, hold: HeldMessages) -> None:
        """The new owner of a topic on its way does not come, and the old owner has let the topic go."""
        hold.is_orphaned = False
        self._moved(hold.topic, hold.source, self.owner(hold.topic), is_lost=True)

    # -- owners

    def _claim(
        self, topic: bytes, peer: bytes, epoch: int = 0, *, move: Move | None = None, mark: Mark | None = None
    ) -> None:
        """A peer says that it owns a topic; `move` and `mark` say how the topic was handed over to it."""
        if self.owners.is_claimed_by(topic, peer) and self.owners.epoch(topic, peer) == epoch:
            return
        self.owners.check_room(peer)
        before = self.owners.owner(topic)
        self.owners.claim(topic, peer, epoch)
        outlet = self.exchange.outlets.get(topic)
        if outlet is None:
            after = self.owners.owner(topic)
            hold = self.moves.holds.get(topic.decode())
            if hold is not None and hold.is_orphaned:
                self._moved(topic, hold.source, after, move=move, mark=mark)
            elif after != before:
                self._moved(topic, before, after, move=move, mark=mark)
            return
        leaving = self.moves.leaving.get(topic)
        # A claim with a lower epoch is older: the topic was at that node before.
        if leaving is not None and leaving.target == peer and epoch > self._claims.get(topic, 0):
            self._let_go(leaving, peer, mark)
            return
        self.tally.conflicts_count += 1
        if (-epoch, precedence(peer)) < (-self._claims.get(topic, 0), precedence(self.node)):
            self.tally.demotions_count += 1
            # A last word for peers that miss some messages; those that heard the winner first ignore it.
            self._lags.tell_at_once(outlet, self._claims)
            self._give_up(topic, outlet)
            self.moves.abandon(topic)
            event = TopicDemoted(topic=outlet.feed.topic, winner=peer)
            self._effects.append(Tell(event=event, to=outlet.spot))
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
        """The owner went. The next one had lost before, and may have been demoted since: ask it, once."""
        if after is not None:
            self._doubted[after] = None
        self._moved(topic, before, after, is_lost=is_lost)

    def _remove(self, topic: bytes, outlet: Outlet) -> None:
        """Stop owning it, and tell the peers."""
        remove = TopicRemove(topic=outlet.feed.topic, mark=mark_of(outlet, self.node))
        self._effects.append(Broadcast(command=remove))
        self._give_up(topic, outlet)
        self.moves.abandon(topic)
        self._fall_to(topic, self.node, self.owners.owner(topic))

    def _give_up(self, topic: bytes, outlet: Outlet) -> None:
        """Stop owning it."""
        self._claims.pop(topic, None)
        self.wants.leave_here(outlet)
        # The next owner may have had messages through this node.
        self.moves.close_arrival(topic)
        self.exchange.close(outlet)
        self._digest ^= topic_digest(topic)
        for peer in outlet.subscribers:
            member = self.peers[peer]
            del member.subscribed[topic]
            self._lags.forget(member, outlet)

    def _moved(
        self,
        topic: bytes,
        before: bytes | None,
        after: bytes | None,
        *,
        is_lost: bool = False,
        move: Move | None = None,
        mark: Mark | None = None,
    ) -> None:
        """The topic has another owner than before, or none."""
        name = topic.decode()
        self._routes.pop(name, None)
        hold = self.moves.holds.get(name)
        if hold is not None and self.moves.is_awaited(hold, before, after):
            hold.is_orphaned = True
            return
        if after is None:
            self._index.discard(topic)
            self.wants.note_retain(topic, retain=False)
            self._tell(TopicRemoved(topic=name, owner=before or b""))
        else:
            if hold is not None:
                hold.is_orphaned = False
            self._index.add(topic)
            if move is not None and before == move.node and mark is not None:
                epoch = self.owners.epoch(topic, after)
                self._tell(TopicMoved(topic=name, source=before, target=after, epoch=epoch))
                self.wants.handed_over(topic, self.peers[after], mark, move.number)
                self.moves.settle(name)
                return
            self._tell(TopicAnnounced(topic=name, owner=after))
        self.wants.moved(topic, after, is_lost=is_lost)
        self.moves.settle(name)

    # -- what peers say

    def _ask(self, member: Peer, *, report_wanted: bool = False) -> None:
        query = Query(
            report_wanted=report_wanted,
            known_count=self.owners.count(member.id),
            known_digest=self.owners.digest(member.id),
            is_extended=True,
            taker=self.taker,
        )
        self.tally.queries_count += 1
        self._effects.append(Send(peer=member.id, command=query))

    def _answer(self, member: Peer, query: Query) -> None:
        outlets = self.exchange.outlets
        if query.is_extended:
            member.is_hansa = True
            member.taker = query.taker
        is_right = query.known_count == len(outlets) and query.known_digest == self._digest
        if query.is_extended and is_right and not query.report_wanted:
            answer = QueryResp(topics=(), is_extended=True, is_unchanged=True)
        else:
            claims = [self._claims.get(topic, 0) for topic in outlets]
            answer = QueryResp(
                topics=tuple(outlet.feed.topic for outlet in outlets.values()),
                is_extended=query.is_extended,
                report=tuple(map(counts_of, outlets.values())) if query.report_wanted else None,
                claims=tuple(claims) if query.is_extended and any(claims) else None,
            )
        if query.is_extended:
            # Before the answer: a node that hears of a topic only from that may take it for one that stays.
            self.moves.tell_all_closed(member.id, self._claims)
        self._effects.append(Send(peer=member.id, command=answer))

    def _answered(self, member: Peer, answer: QueryResp) -> None:
        self._awaited.pop(member.id, None)
        if answer.is_unchanged:
            return
        claims = answer.claims or (0,) * len(answer.topics)
        topics = {topic.encode(): claim for topic, claim in zip(answer.topics, claims, strict=True)}
        gone = [topic for topic in self.owners.claims(member.id) if topic not in topics]
        # Before any change: half an answer would match neither the state before nor the peer's state now.
        self.owners.check_room_for(member.id, len(topics))
        for topic in gone:
            self._disclaim(topic, member.id)
        for topic, claim in topics.items():
            self._claim(topic, member.id, claim)
            hold = self.moves.holds.get(topic.decode())
            if hold is not None and hold.connection is not member:
                # The peer has come back, and says nothing of handing the topic over.
                self.moves.stays(member, hold.name, None)

    def _announced(self, member: Peer, announced: TopicAnnounce, *, now: float) -> None:
        topic, mark, move = announced.topic.encode(), announced.mark, announced.move
        step = None if move is None else move.step
        if mark is not None:
            self.wants.note_retain(topic, retain=mark.retain)
        if move is not None and step is MoveStep.ENDED:
            if move.node == self.node:
                self.moves.ended(topic, move.number)
            return
        if move is not None and step is MoveStep.MOVED:
            self._arrived(member, announced, move, now=now)
            return
        self._claim(topic, member.id, announced.claim)
        if move is not None and step is MoveStep.MOVING:
            self.wants.drain(member, topic, mark, move.number)
            self._closed(member, topic, move, now=now)
        elif move is not None and step is MoveStep.STAYS:
            self.wants.undrain(topic)
            self.moves.stays(member, announced.topic, move.number)
        elif mark is not None:
            self.moves.claimed_anew(member, announced.topic, announced.claim)
            self.wants.marked(member, topic, mark)

    def _closed(self, member: Peer, topic: bytes, move: Move, *, now: float) -> None:
        """The owner hands the topic over: say END behind the last message to it, and hold the rest."""
        hold = self.moves.holds.get(topic.decode())
        is_known = hold is not None and hold.connection is member and hold.number >= move.number
        if not is_known and self.owner(topic) == member.id:
            self._routes.pop(topic.decode(), None)
            self.moves.begin_hold(topic, member, move.node, move.number, now=now)
        elif not is_known:
            # The new owner was heard before: this node never sent anything to the old one.
            self.moves.say_end(topic, member.id, move.number)
        adoption = self.moves.adoptions.get(topic)
        if adoption is not None:
            self._try_to_open(adoption)

    def _arrived(self, member: Peer, announced: TopicAnnounce, move: Move, *, now: float) -> None:
        """A peer announces a topic that was handed over to it, perhaps before the old owner has told so."""
        name, topic, source = announced.topic, announced.topic.encode(), self.peers.get(move.node)
        hold = self.moves.holds.get(name)
        is_heard = hold is not None and hold.number >= move.number
        if source is not None and self.owner(topic) == source.id and not is_heard:
            self._routes.pop(name, None)
            self.moves.begin_hold(topic, source, member.id, move.number, now=now)
        is_news, is_late = not self.owners.is_claimed_by(topic, member.id), topic not in self.moves.leaving
        self._claim(topic, member.id, announced.claim, move=move, mark=announced.mark)
        if move.node == member.id:
            self.moves.claimed_anew(member, name, announced.claim)
        if move.node == self.node and is_late:
            # It came too late: this node has given up what it had kept for the new owner, and said so.
            self.moves.say_last(topic, member.id, move.number)
        if move.node != self.node:
            # The old owner says this with LAST. A node without a connection to it has nothing to wait for.
            self.moves.switching[topic] = (member.id, move.number)
        if not is_news and member.is_hansa and announced.mark is not None:
            self.wants.marked(member, topic, announced.mark)

    def _removed(self, member: Peer, removed: TopicRemove) -> None:
        topic, move = removed.topic.encode(), removed.move
        if move is not None and self.moves.hear(member, topic, move):
            return
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
        outlet = self.exchange.outlets.get(topic)
        if move is not None and move.step is MoveStep.MOVED and outlet is not None:
            self.moves.say_again(outlet)

    def _subscribe(self, member: Peer, subscribe: Subscribe) -> None:
        topic, name = subscribe.topic.encode(), subscribe.topic
        outlet = self.exchange.outlets.get(topic)
        if outlet is not None and topic in self.moves.leaving:
            self.moves.leaving[topic].said.append((member.id, subscribe))
            return
        if outlet is None:
            self.tally.subscribes_refused_count += 1
            self._effects.append(Send(peer=member.id, command=TopicRemove(topic=name, refused_count=0)))
            return
        outlet.add(member.id, member.box)
        member.subscribed[topic] = None
        if member.is_hansa:
            mark = mark_of(outlet, self.node, confirm=True)
            announce = TopicAnnounce(topic=name, mark=mark, claim=self._claims.get(topic, 0))
            self._effects.append(Send(peer=member.id, command=announce))
        if outlet.latest is not None:
            self._effects.append(Send(peer=member.id, command=again(outlet.latest)))

    def _unsubscribe(self, member: Peer, unsubscribe: Unsubscribe) -> None:
        topic = unsubscribe.topic.encode()
        leaving = self.moves.leaving.get(topic)
        if leaving is not None and not leaving.is_gone:
            leaving.said.append((member.id, unsubscribe))
            return
        if topic not in member.subscribed:
            return
        del member.subscribed[topic]
        outlet = self.exchange.outlets[topic]
        outlet.remove(member.id)
        self._lags.forget(member, outlet)

    def _publish(self, member: Peer, publish: Publish) -> None:
        topic = publish.topic.encode()
        leaving = self.moves.leaving.get(topic)
        if leaving is not None:
            if self.moves.forward(leaving, member.id, publish.payload):
                return
        elif (outlet := self.exchange.outlets.get(topic)) is not None:
            outlet.publish(publish.payload, self.exchange)
            return
        self.tally.refused_count += 1
        self._effects.append(Send(peer=member.id, command=TopicRemove(topic=publish.topic, refused_count=1)))

    # -- small things

    def _tell(self, event: SpotEvent) -> None:
        self._effects.append(Tell(event=event))

    def _done(self) -> list[Effect]:
        for peer in self._doubted:
            if peer in self.peers:
                self._ask(self.peers[peer])
        self._doubted.clear()
        if self.moves.switching:
            self.moves.say_switched(crossing=self.wants.crossings)
        effects = self._effects[:]
        self._effects.clear()
        return effects
