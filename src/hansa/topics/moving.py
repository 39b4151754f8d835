"""Hands a topic over from one owner to another, while it is published to and read. Pure.

Theory of operation. A is the old owner, B the new one; both share a store, whose record of the hand-over says
which of them owns the topic (`hansa.coordination.handover`). All other nodes only follow what A and B say:

    A: CLOSED -- the record is taken, and B announces the topic --> FORWARDING -- all have switched --> gone
       CLOSED -- it is withdrawn: STAYS                         --> open again

*A closes.* When B is prepared A stops publishing, and tells every peer MOVING with its last number, N, over
the connections that have carried the messages up to N. The state that B gets (`TopicState`) is of that
moment: N, the latest retained message, and the subscribers. A holds what its own spots publish, and keeps, in
order, what other nodes sent before they heard MOVING.

*Publishers.* Each node answers MOVING with END, behind the last message that it has sent to A, and holds what
it publishes from then on (`HeldMessages`). When B has announced the topic A sends it the kept messages, with
the ENDs at their places between them; B answers an END with ENDED to its publisher, which then sends B what
it has held. So one node's messages never overtake each other. A says LAST when all ENDs have come, or when it
waits no longer. Every node says SWITCHED to B when it holds nothing and waits for nothing any more: only then
may the topic move on, so that no node hears of the next hand-over before this one.

*Subscribers.* B takes A's subscribers along: it says so to each with its announcement, before its first
message, and goes on counting at N + 1. A subscriber takes A's messages up to MOVING, then B's; what B sends
before that waits (`wants.Crossing`). If A's connection ends before MOVING came, the exact gap is reported.

*B* opens the topic when it owns it and has heard MOVING itself: so its own subscribers, too, go on after N.

What may go wrong, and how it ends:

- A withdraws: all held messages go to A.
- A's connection to B ends: B says ENDED to all, since nothing more can come.
- A publisher's connection to A ends: A says END for the publisher, which asks B; B answers when it knows.
- A third node comes to own the topic, as after a crash: held messages go there.
- No node does: after TOPIC_HOLD_S_MAX the publisher is told how many messages reached nobody.

Peers that know nothing of hand-overs hear an announcement of B, a removal of A, and B's announcement once
more, because they may have taken the removal for B's; and a third time some seconds later, because the
removal may come last. What they still send to A is forwarded for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from hansa.limits import (
    TOPIC_AGAIN_S,
    TOPIC_FORWARD_BYTES_MAX,
    TOPIC_FORWARD_COUNT_MAX,
    TOPIC_FORWARD_S_MAX,
    TOPIC_HOLD_BYTES_MAX,
    TOPIC_HOLD_COUNT_MAX,
    TOPIC_HOLD_S_MAX,
    TOPIC_TAKEN_S_MAX,
)
from hansa.topics.effects import Effect, MeshTally, Peer, Resume, Send, Tell
from hansa.topics.events import PublishesRefused, TopicMoved
from hansa.topics.fanout import Exchange, Outlet
from hansa.topics.inbox import TopicMessage
from hansa.topics.lags import mark_of
from hansa.topics.owners import Owners
from hansa.topics.topic_state import TopicState
from hansa.wire.topics import (
    Move,
    MoveStep,
    Publish,
    Subscribe,
    TopicAnnounce,
    TopicRemove,
    Unsubscribe,
)


class HeldMessages:
    """Messages that this node publishes to a topic on its way, until the new owner may have them."""

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        self.name = topic.decode()
        self.number = 0
        """The number of the hand-over."""
        self.source = b""
        self.claim = 0
        """The epoch of the source's claim, which it hands over."""
        self.target = b""
        self.connection: Peer | None = None
        """The connection over which the source was told END; None at the source itself."""
        self.awaits_ended = False
        self.has_asked = False
        """Whether the target was asked if END has come."""
        self.is_orphaned = False
        """Whether the source has let the topic go, and the target has not announced it yet."""
        self.until: float | None = inf
        """When the wait ends. None: the next tick sets it."""
        self._payloads: deque[bytes] = deque()
        self._held_bytes = 0

    def put(self, payload: bytes) -> bool:
        """Keep a message; returns False when there is no room."""
        if len(self._payloads) >= TOPIC_HOLD_COUNT_MAX or self._held_bytes >= TOPIC_HOLD_BYTES_MAX:
            return False
        self._payloads.append(payload)
        self._held_bytes += len(payload)
        return True

    def take_all(self) -> deque[bytes]:
        payloads, self._payloads = self._payloads, deque()
        self._held_bytes = 0
        return payloads


Forward: TypeAlias = tuple[bytes, bytes] | Move
"""A publisher and its message, or the END of a publisher."""


class Leaving:
    """A topic that this node hands over, from closing it until all nodes have switched."""

    def __init__(self, outlet: Outlet, target: bytes, number: int, expected: dict[bytes, None]) -> None:
        self.outlet = outlet
        self.target = target
        self.way: Peer | None = None
        """The connection over which the new owner has announced the topic. Messages are passed on only over
        this one: when it has ended, the new owner no longer waits for anything from here."""
        self.number = number
        self.expected = expected
        """Nodes that have not said END yet."""
        self.is_gone = False
        """Whether the new owner has announced the topic."""
        self.until: float | None = inf
        """When the wait ends. None: the next tick sets it."""
        self.ends = inf
        """The latest end of the wait, even if the expected nodes are still heard."""
        self.heard_count = 0
        """How often the expected nodes had been heard at the last look."""
        self.said: list[tuple[bytes, Subscribe | Unsubscribe]] = []
        """The SUBSCRIBEs and UNSUBSCRIBEs since the topic was closed, with their peers."""
        self.forwards: deque[Forward] = deque()
        self._forward_bytes = 0
        self._forward_count = 0

    def put(self, publisher: bytes, payload: bytes) -> bool:
        """Keep a message for the new owner; returns False when there is no room."""
        if self._forward_count >= TOPIC_FORWARD_COUNT_MAX or self._forward_bytes >= TOPIC_FORWARD_BYTES_MAX:
            return False
        self.forwards.append((publisher, payload))
        self._forward_count += 1
        self._forward_bytes += len(payload)
        return True

    @property
    def move(self) -> Move:
        return Move(step=MoveStep.MOVING, number=self.number, node=self.target)


@dataclass(slots=True, kw_only=True)
class Arrival:
    """A topic that was handed over to this node, and that not all nodes have switched to."""

    source: bytes
    number: int
    until: float
    ends: float
    expected: dict[bytes, None]
    """Nodes that have not said SWITCHED yet."""
    ended: dict[bytes, None]
    """Nodes whose END has come."""
    is_last: bool = False
    """Whether nothing more comes through the old owner, as far as is known."""
    heard_count: int = 0
    """How often the expected nodes had been heard at the last look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A topic that this node owns and cannot publish yet: the old owner's last messages are on their way."""

    topic: bytes
    spot: object
    state: TopicState
    claim: int
    number: int
    until: float
    """When the topic is opened at the latest, whatever has come."""


class Moves:
    """The part of the mesh's machine that hands topics over. It adds to the machine's effects."""

    def __init__(
        self,
        node: bytes,
        exchange: Exchange,
        owners: Owners,
        claims: Mapping[bytes, int],
        peers: dict[bytes, Peer],
        tally: MeshTally,
        effects: list[Effect],
    ) -> None:
        """`claims`: the epochs of this node's claims in a store, by topic."""
        self.holds: dict[str, HeldMessages] = {}
        """By name: all topics on their way that this node has heard of."""
        self.switching: dict[bytes, tuple[bytes, int]] = {}
        """New owners that wait to hear that this node has switched, and the number of the hand-over."""
        self.leaving: dict[bytes, Leaving] = {}
        self.arrivals: dict[bytes, Arrival] = {}
        self.adoptions: dict[bytes, Adoption] = {}
        self.again: dict[bytes, float | None] = {}
        """Topics of this node, and when to announce them again to peers that know nothing of hand-overs.
        None: the next tick sets it."""
        self._node = node
        self._exchange = exchange
        self._peers = peers
        self._tally = tally
        self._effects = effects
        self._owners = owners
        self._claims = claims

    def _owner(self, topic: bytes) -> bytes | None:
        return self._node if topic in self._exchange.outlets else self._owners.owner(topic)

    # -- the old owner

    def is_closed(self, topic: bytes) -> bool:
        """Whether this node owns the topic, but has closed it."""
        leaving = self.leaving.get(topic)
        return leaving is not None and not leaving.is_gone

    def close(self, outlet: Outlet, target: bytes, number: int, *, claim: int, is_wanted: bool) -> TopicState:
        """Stop publishing, and tell all peers. They have been told of every dropped message already.

        `is_wanted`: this node itself is subscribed.
        """
        self._exchange.hold(outlet)
        expected = {peer: None for peer, member in self._peers.items() if member.is_hansa}
        leaving = self.leaving[outlet.frame] = Leaving(outlet, target, number, expected)
        hold = self._hold(outlet.frame)
        hold.number, hold.source, hold.target, hold.until = number, self._node, target, inf
        hold.connection, hold.awaits_ended = None, False
        for peer in self._peers:
            self.tell_closed(peer, leaving, claim=claim)
        return TopicState(
            source=self._node,
            founder=outlet.founder,
            epoch=outlet.epoch,
            sequence=outlet.sequence,
            retain=outlet.retain,
            latest=None if outlet.latest is None else outlet.latest.payload,
            subscribers=(*outlet.subscribers, *((self._node,) if is_wanted else ())),
        )

    def tell_closed(self, peer: bytes, leaving: Leaving, *, claim: int) -> None:
        """Send MOVING to a connected peer."""
        outlet = leaving.outlet
        announce = TopicAnnounce(
            topic=outlet.feed.topic, mark=mark_of(outlet, self._node), claim=claim, move=leaving.move
        )
        self._effects.append(Send(peer=peer, command=announce))

    def tell_all_closed(self, peer: bytes, claims: Mapping[bytes, int]) -> None:
        """Send MOVING for all topics that are closed here, to a node that asks which topics this one owns."""
        for topic, leaving in self.leaving.items():
            if not leaving.is_gone:
                self.tell_closed(peer, leaving, claim=claims.get(topic, 0))

    def reopen(self, leaving: Leaving, *, claim: int) -> None:
        """The hand-over is withdrawn: publish the kept messages, those of other nodes first."""
        outlet, exchange = leaving.outlet, self._exchange
        del self.leaving[outlet.frame]
        exchange.resume(outlet)
        for forward in leaving.forwards:
            if not isinstance(forward, Move):
                outlet.publish(forward[1], exchange)
        hold = self.holds.pop(outlet.feed.topic, None)
        if hold is not None:
            self._release(hold, self._node)
        move = Move(step=MoveStep.STAYS, number=leaving.number, node=leaving.target)
        announce = TopicAnnounce(topic=outlet.feed.topic, claim=claim, move=move)
        self._effects += [Send(peer=peer, command=announce) for peer in self._peers]

    def let_go(self, leaving: Leaving, *, epoch: int, is_told: bool) -> None:
        """The new owner has announced the topic: tell all peers, and send it the kept messages, in order.

        Without `is_told` the announcement came over a connection that has ended since. The new owner no
        longer waits for the kept messages, which would come after later ones of their publishers: they are
        refused.
        """
        outlet = leaving.outlet
        leaving.is_gone = True
        leaving.way = self._peers.get(leaving.target) if is_told else None
        leaving.until = None
        for peer, said in leaving.said:
            if isinstance(said, Subscribe) and peer in self._peers:
                refusal = TopicRemove(topic=said.topic, refused_count=0)
                self._effects.append(Send(peer=peer, command=refusal))
        leaving.said.clear()
        move = Move(step=MoveStep.MOVED, number=leaving.number, node=leaving.target)
        remove = TopicRemove(topic=outlet.feed.topic, mark=mark_of(outlet, self._node), move=move)
        self._effects += [Send(peer=peer, command=remove) for peer in self._peers]
        self._tally.moved_count += 1
        event = TopicMoved(topic=outlet.feed.topic, source=self._node, target=leaving.target, epoch=epoch)
        self._effects.append(Tell(event=event, to=outlet.spot))
        while leaving.forwards:
            self._forward(leaving, leaving.forwards.popleft())
        self._look_for_last(leaving)

    def forward(self, leaving: Leaving, publisher: bytes, payload: bytes) -> bool:
        """Pass on a message of a node that has not switched yet; returns False when it cannot be kept."""
        if leaving.is_gone:
            self._forward(leaving, (publisher, payload))
            return True
        return leaving.put(publisher, payload)

    def abandon(self, topic: bytes) -> None:
        """Neither this node nor the new owner owns the topic any more: refuse the kept messages."""
        leaving = self.leaving.pop(topic, None)
        if leaving is None:
            return
        self._effects.append(Resume())
        name = leaving.outlet.feed.topic
        counts: dict[bytes, int] = {}
        for forward in leaving.forwards:
            if not isinstance(forward, Move):
                counts[forward[0]] = counts.get(forward[0], 0) + 1
        for peer, count in counts.items():
            self._tally.refused_count += count
            self._effects.append(Send(peer=peer, command=TopicRemove(topic=name, refused_count=count)))
        for peer, said in leaving.said:
            if isinstance(said, Subscribe):
                self._effects.append(Send(peer=peer, command=TopicRemove(topic=name, refused_count=0)))
        hold = self.holds.get(name)
        if hold is not None and hold.source == self._node:
            # Whichever node comes to own the topic may have them.
            hold.source, hold.until = b"", None

    def _forward(self, leaving: Leaving, forward: Forward) -> None:
        topic = leaving.outlet.feed.topic
        if isinstance(forward, Move):
            self._effects.append(Send(peer=leaving.target, command=TopicRemove(topic=topic, move=forward)))
            return
        member = self._peers.get(leaving.target)
        if member is None or member is not leaving.way:
            # The new owner is or was away: as if the publisher had lost its connection to it.
            self._refuse(topic, forward[0])
            return
        member.published_count += 1
        self._effects.append(Send(peer=member.id, command=Publish(topic=topic, payload=forward[1])))

    def _refuse(self, topic: str, publisher: bytes) -> None:
        self._tally.refused_count += 1
        self._effects.append(Send(peer=publisher, command=TopicRemove(topic=topic, refused_count=1)))

    def _look_for_last(self, leaving: Leaving) -> None:
        """Say LAST if every node that says END has said it; others may go on sending for a while."""
        if not leaving.is_gone or leaving.expected:
            return
        self.say_last(leaving.outlet.frame, leaving.target, leaving.number)
        self._effects.append(Resume())
        if all(member.is_hansa for member in self._peers.values()):
            self.leaving.pop(leaving.outlet.frame, None)

    def say_last(self, topic: bytes, target: bytes, number: int) -> None:
        """Tell the new owner that this node, the old owner, passes nothing more on."""
        move = Move(step=MoveStep.LAST, number=number, node=self._node)
        self._effects.append(Send(peer=target, command=TopicRemove(topic=topic.decode(), move=move)))

    # -- what publishers say

    def hear(self, member: Peer, topic: bytes, move: Move) -> bool:
        """Handle a step that comes with TOPIC_REMOVE; returns whether the step was all that was meant."""
        match move.step:
            case MoveStep.END:
                self.end(member, topic, move)
            case MoveStep.LAST:
                self.last(member, topic, move)
            case MoveStep.SWITCHED:
                self.switched(member, topic, move)
            case _:
                return False
        return True

    def end(self, member: Peer, topic: bytes, move: Move) -> None:
        """A publisher's END: from itself, or passed on by the old owner. Or its question after that."""
        leaving = self.leaving.get(topic)
        if leaving is not None and move.node == member.id and move.number == leaving.number:
            self._ended_here(leaving, move)
            return
        arrival = self.arrivals.get(topic)
        if arrival is not None and member.id == arrival.source and move.number == arrival.number:
            arrival.ended[move.node] = None
            self._say_ended(topic, arrival.number, move.node)
        elif move.node == member.id and (arrival is None or arrival.is_last or move.node in arrival.ended):
            self._say_ended(topic, move.number, move.node)

    def _ended_here(self, leaving: Leaving, move: Move) -> None:
        leaving.expected.pop(move.node, None)
        if leaving.is_gone:
            self._forward(leaving, move)
            self._look_for_last(leaving)
        else:
            leaving.forwards.append(move)

    def last(self, member: Peer, topic: bytes, move: Move) -> None:
        """Handle LAST: the old owner passes nothing more on."""
        arrival = self.arrivals.get(topic)
        if arrival is not None and (arrival.source, arrival.number) == (member.id, move.number):
            self._end_all(topic, arrival)
            arrival.expected.pop(member.id, None)
            self._close_if_done(topic, arrival)

    def switched(self, member: Peer, topic: bytes, move: Move) -> None:
        """Handle SWITCHED: for this peer the hand-over is done."""
        arrival = self.arrivals.get(topic)
        if arrival is not None and arrival.number == move.number:
            arrival.expected.pop(member.id, None)
            self._close_if_done(topic, arrival)

    def close_arrival(self, topic: bytes) -> None:
        """Wait for no other node any more: all may switch."""
        arrival = self.arrivals.pop(topic, None)
        if arrival is not None:
            self._end_all(topic, arrival)
            self._effects.append(Resume())

    def _close_if_done(self, topic: bytes, arrival: Arrival) -> None:
        if arrival.is_last and not arrival.expected:
            del self.arrivals[topic]
            self._effects.append(Resume())

    def _end_all(self, topic: bytes, arrival: Arrival) -> None:
        """Nothing more comes through the old owner: say ENDED to all."""
        arrival.is_last = True
        told = [peer for peer, member in self._peers.items() if member.is_hansa]
        for peer in [self._node, *told]:
            if peer not in arrival.ended:
                self._say_ended(topic, arrival.number, peer)

    def _say_ended(self, topic: bytes, number: int, publisher: bytes) -> None:
        if publisher == self._node:
            self.ended(topic, number)
        elif publisher in self._peers:
            move = Move(step=MoveStep.ENDED, number=number, node=publisher)
            announce = TopicAnnounce(topic=topic.decode(), move=move)
            self._effects.append(Send(peer=publisher, command=announce))

    # -- publishers

    def begin_hold(
        self,
        topic: bytes,
        source: Peer,
        target: bytes,
        number: int,
        *,
        now: float,
    ) -> None:
        """The topic is on its way: say END, and hold what is published from now on."""
        hold = self._hold(topic)
        is_told = hold.connection is source and hold.number == number
        hold.number, hold.source, hold.target, hold.connection = number, source.id, target, source
        hold.until, hold.claim = now + TOPIC_HOLD_S_MAX, self._owners.epoch(topic, source.id)
        if is_told:
            return
        hold.awaits_ended, hold.has_asked = True, False
        self.say_end(topic, source.id, number)

    def say_end(self, topic: bytes, source: bytes, number: int) -> None:
        """Tell the old owner that nothing more comes from this node."""
        move = Move(step=MoveStep.END, number=number, node=self._node)
        self._effects.append(Send(peer=source, command=TopicRemove(topic=topic.decode(), move=move)))

    def ended(self, topic: bytes, number: int) -> None:
        """All that this node published before has reached the new owner."""
        hold = self.holds.get(topic.decode())
        if hold is not None and hold.number == number:
            hold.awaits_ended = False
            self.settle(hold.name)

    def stays(self, member: Peer, name: str, number: int | None) -> None:
        """The old owner stays the owner; with None it does not know of any hand-over."""
        hold = self.holds.get(name)
        if hold is not None and hold.source == member.id and number in (None, hold.number):
            del self.holds[name]
            self._release(hold, member.id)

    def claimed_anew(self, member: Peer, name: str, claim: int) -> None:
        """A node announces a topic: if it is the old owner with a newer claim, its hand-over has failed."""
        hold = self.holds.get(name)
        if hold is not None and hold.source == member.id and claim > hold.claim:
            self.stays(member, name, None)

    def is_awaited(self, hold: HeldMessages, before: bytes | None, after: bytes | None) -> bool:
        """Whether the next owner of a topic on its way is about to announce it: nothing has happened yet."""
        if hold.target not in (self._node, *self._peers):
            return False
        if not hold.is_orphaned and hold.source != before:
            return False
        # A claim that is older than the one that is handed over is out of date, and about to go.
        return after is None or (after != self._node and self._owners.epoch(hold.topic, after) < hold.claim)

    def settle(self, name: str) -> None:
        """The topic may have another owner than before: release what is held, if it is time."""
        hold = self.holds.get(name)
        if hold is None:
            return
        owner = self._owner(hold.topic)
        if owner is None or owner == hold.source or hold.is_orphaned:
            return
        if owner == hold.target and hold.awaits_ended:
            if owner != self._node:
                self._ask(hold)
                return
            arrival = self.arrivals.get(hold.topic)
            if arrival is not None and not arrival.is_last:
                return
        del self.holds[name]
        self._release(hold, owner)

    def _ask(self, hold: HeldMessages) -> None:
        """The connection over which END went is gone: ask the new owner whether END came."""
        if hold.has_asked or self._peers.get(hold.source) is hold.connection:
            return
        hold.has_asked = True
        move = Move(step=MoveStep.END, number=hold.number, node=self._node)
        self._effects.append(Send(peer=hold.target, command=TopicRemove(topic=hold.name, move=move)))

    def _hold(self, topic: bytes) -> HeldMessages:
        name = topic.decode()
        hold = self.holds.get(name)
        if hold is None:
            hold = self.holds[name] = HeldMessages(topic)
        return hold

    def _release(self, hold: HeldMessages, owner: bytes) -> None:
        """Publish what was held, here if this node owns the topic by now, and wake publishers that wait."""
        payloads = hold.take_all()
        outlet = self._exchange.outlets.get(hold.topic)
        if outlet is not None:
            for payload in payloads:
                outlet.publish(payload, self._exchange)
            self._exchange.resume(outlet)
        elif owner in self._peers:
            self._peers[owner].published_count += len(payloads)
            commands = [Publish(topic=hold.name, payload=payload) for payload in payloads]
            self._effects += [Send(peer=owner, command=command) for command in commands]
        self._effects.append(Resume())

    def _drop(self, hold: HeldMessages) -> None:
        """No node came to own it: what was held reaches nobody."""
        self.holds.pop(hold.name, None)
        count = len(hold.take_all())
        if count:
            self._tally.publishes_refused_count += count
            event = PublishesRefused(topic=hold.name, owner=hold.source, count=count)
            self._effects.append(Tell(event=event))
        self._effects.append(Resume())

    # -- the new owner

    def is_moving(self, topic: bytes) -> bool:
        """Whether it is handed over from here, or was handed over to here, and not all have switched."""
        leaving = self.leaving.get(topic)
        is_leaving = leaving is not None and (not leaving.is_gone or bool(leaving.expected))
        return is_leaving or topic in self.arrivals or topic in self.adoptions

    def open(self, outlet: Outlet, adoption: Adoption) -> None:
        """This node owns the topic: go on counting, take the subscribers along, and tell all peers."""
        state, topic, name = adoption.state, adoption.topic, outlet.feed.topic
        del self.adoptions[topic]
        if self.is_closed(topic):
            # The topic has come back before the new owner announced it.
            self.abandon(topic)
        # The topic has come back before all had switched: nothing is forwarded any more.
        self.leaving.pop(topic, None)
        if (hold := self.holds.get(name)) is not None:
            hold.is_orphaned = False
            self._exchange.hold_own(outlet)
        latest = None if state.latest is None else TopicMessage(name, state.latest, state.sequence)
        outlet.go_on(state.sequence, latest)
        for peer in state.subscribers:
            member = self._peers.get(peer)
            if member is not None:
                outlet.add(peer, member.box)
                member.subscribed[outlet.frame] = None
        move = Move(step=MoveStep.MOVED, number=adoption.number, node=state.source)
        for peer in self._peers:
            mark = mark_of(outlet, self._node, confirm=peer in outlet.subscribers)
            announce = TopicAnnounce(
                topic=adoption.topic.decode(), mark=mark, claim=adoption.claim, move=move
            )
            self._effects.append(Send(peer=peer, command=announce))
        self._tally.moved_count += 1
        event = TopicMoved(topic=name, source=state.source, target=self._node, epoch=adoption.claim)
        self._effects.append(Tell(event=event, to=adoption.spot))
        self._effects.append(Resume())
        self.begin_arrival(topic, state.source, adoption.number, until=adoption.until)

    def say_again(self, outlet: Outlet) -> None:
        """Announce it again for peers without hand-overs: the old owner's removal may have misled them."""
        if self._announce_raw(outlet):
            # It goes over another connection than the removal, and so may come before it.
            self.again[outlet.frame] = None

    def _announce_raw(self, outlet: Outlet) -> bool:
        """Announce it to peers that know nothing of hand-overs; returns whether there are any."""
        claim = self._claims.get(outlet.frame, 0)
        # A peer may know more than it has said yet: without the claim it would take this for another one.
        announce = TopicAnnounce(topic=outlet.feed.topic, mark=mark_of(outlet, self._node), claim=claim)
        raw = [peer for peer, member in self._peers.items() if not member.is_hansa]
        self._effects += [Send(peer=peer, command=announce) for peer in raw]
        return bool(raw)

    def is_closed_here(self, adoption: Adoption) -> bool:
        """Whether all that the old owner has published has come here, as far as it ever will."""
        hold = self.holds.get(adoption.topic.decode())
        member = self._peers.get(adoption.state.source)
        if member is None:
            return True
        return hold is not None and hold.connection is member and hold.number >= adoption.number

    def begin_arrival(self, topic: bytes, source: bytes, number: int, *, until: float) -> None:
        """This node owns the topic; what others sent to the old owner comes from there."""
        expected = {peer: None for peer, member in self._peers.items() if member.is_hansa}
        arrival = Arrival(
            source=source,
            number=number,
            until=until + TOPIC_FORWARD_S_MAX,
            ends=until + TOPIC_HOLD_S_MAX,
            expected=expected,
            ended={},
            is_last=source not in self._peers,
        )
        arrival.heard_count = self._heard_count(expected)
        if expected:
            self.arrivals[topic] = arrival

    def say_switched(self, *, crossing: Container[bytes]) -> None:
        """Say SWITCHED to the new owners of topics of which nothing is held or waits here any more."""
        for topic, (target, number) in list(self.switching.items()):
            if topic not in crossing and topic.decode() not in self.holds:
                del self.switching[topic]
                move = Move(step=MoveStep.SWITCHED, number=number, node=self._node)
                remove = TopicRemove(topic=topic.decode(), move=move)
                self._effects.append(Send(peer=target, command=remove))

    # -- peers and time

    def peer_gone(self, peer: bytes) -> None:
        """The peer's connection has ended."""
        for topic, arrival in list(self.arrivals.items()):
            if arrival.source == peer:
                self._end_all(topic, arrival)
            arrival.expected.pop(peer, None)
            self._close_if_done(topic, arrival)
        for topic in [topic for topic, (target, _) in self.switching.items() if target == peer]:
            del self.switching[topic]
        for leaving in list(self.leaving.values()):
            leaving.said = [(who, said) for who, said in leaving.said if who != peer]
            if peer in leaving.expected:
                # The peer sends nothing more over this connection, and asks the new owner itself.
                self._ended_here(leaving, Move(step=MoveStep.END, number=leaving.number, node=peer))
        for hold in list(self.holds.values()):
            if hold.target == peer:
                hold.has_asked = False
            self.settle(hold.name)

    def tick(self, *, now: float) -> list[HeldMessages]:
        """End what has waited too long; returns the holds that were given up."""
        for topic, arrival in list(self.arrivals.items()):
            if arrival.until > now:
                continue
            if not arrival.is_last and arrival.source in self._peers and now < arrival.ends:
                # The old owner says when it no longer waits. An old owner that says nothing at all does not
                # stay connected for long; and what it passes on must not come behind what others send here.
                arrival.until = min(now + TOPIC_FORWARD_S_MAX, arrival.ends)
            elif not self._waits_on(arrival, arrival.expected, now=now):
                self.close_arrival(topic)
        for leaving in list(self.leaving.values()):
            if leaving.until is None:
                leaving.until = now + (TOPIC_FORWARD_S_MAX if leaving.is_gone else TOPIC_TAKEN_S_MAX)
                leaving.ends = now + TOPIC_HOLD_S_MAX
                leaving.heard_count = self._heard_count(leaving.expected)
            elif (
                leaving.until <= now
                and leaving.is_gone
                and not self._waits_on(leaving, leaving.expected, now=now)
            ):
                if leaving.expected:
                    self.say_last(leaving.outlet.frame, leaving.target, leaving.number)
                self._effects.append(Resume())
                del self.leaving[leaving.outlet.frame]
        for topic, at in list(self.again.items()):
            outlet = self._exchange.outlets.get(topic)
            if outlet is None:
                del self.again[topic]
            elif at is None:
                self.again[topic] = now + TOPIC_AGAIN_S
            elif at <= now:
                del self.again[topic]
                self._announce_raw(outlet)
        given_up = []
        for hold in list(self.holds.values()):
            if hold.until is None:
                hold.until = now + TOPIC_HOLD_S_MAX
            elif hold.until <= now:
                given_up.append(hold)
                self._give_up(hold)
        return given_up

    def _waits_on(self, one: Leaving | Arrival, peers: Iterable[bytes], *, now: float) -> bool:
        """Whether any of these was heard since the last look: a node that is only slow is waited for."""
        heard_count = self._heard_count(peers)
        if heard_count == one.heard_count or now >= one.ends:
            return False
        one.heard_count = heard_count
        one.until = min(now + TOPIC_FORWARD_S_MAX, one.ends)
        return True

    def _heard_count(self, peers: Iterable[bytes]) -> int:
        return sum(self._peers[peer].heard_count for peer in peers if peer in self._peers)

    def overdue(self, *, now: float) -> list[Leaving]:
        """Topics that were taken, and that the new owner has not announced in time."""
        closed = [one for one in self.leaving.values() if not one.is_gone]
        return [one for one in closed if one.until is not None and one.until <= now]

    def deadline(self) -> float | None:
        due = [one.until for one in self.arrivals.values()]
        due += [one.until for one in self.adoptions.values()]
        due += [0.0 if one.until is None else one.until for one in self.leaving.values()]
        due += [0.0 if one.until is None else one.until for one in self.holds.values()]
        due += [0.0 if at is None else at for at in self.again.values()]
        return min(due, default=None)

    def _give_up(self, hold: HeldMessages) -> None:
        owner = self._owner(hold.topic)
        if owner is None or hold.is_orphaned:
            self._drop(hold)
        else:
            del self.holds[hold.name]
            self._release(hold, owner)
