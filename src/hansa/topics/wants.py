"""Which local subscription matches which topics, and how each wanted topic comes by its messages. Pure.

A spot's subscription is an interest in one topic, or in all that begin alike. A topic that interests somebody
and is known is a want:

    PENDING -- an owner is known: SUBSCRIBE           --> ASKED
    ASKED   -- the owner confirms                     --> ACTIVE    (a raw owner confirms nothing: at once)
    any     -- the owner leaves, removes, is replaced --> PENDING

A confirmation says where the owner stands: its epoch of this topic and the number of its last message. So a
feed that is asked for again after a broken connection knows exactly what it missed, as long as the owner is
the same. That is why the feed of a topic that only patterns match outlives its owner, as long as a spot stays
that received it. Every matching subscription joins such a topic as if it had an owner, so a spot that
replaces one subscription by another stays, if the new one begins first.

A topic that is handed over stays ACTIVE: the new owner has taken the subscription along and goes on with the
same counting. Only the connection changes from which messages are taken, and not before the old owner's last
one has come over its own (`Crossing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from typing import Protocol

from hansa.errors import invariant
from hansa.limits import (
    FORMER_OWNERS_MAX,
    FORMER_TOPICS_MAX,
    TOPIC_CROSSING_BYTES_MAX,
    TOPIC_CROSSING_COUNT_MAX,
)
from hansa.topics.effects import Effect, MeshTally, Peer, Send, Tell
from hansa.topics.events import MessagesMissed, SubscriptionActivated, SubscriptionSuspended
from hansa.topics.fanout import Exchange, Feed, Outlet
from hansa.topics.inbox import Inbox, TopicMessage
from hansa.topics.owners import Owners, TopicIndex
from hansa.transport.subscriptions import Subscriptions
from hansa.wire.topics import Mark, Message, Subscribe, Unsubscribe


class WantState(Enum):
    """PENDING has no owner; ASKED was sent to one; ACTIVE is confirmed, or the owner never confirms."""

    PENDING = auto()
    ASKED = auto()
    ACTIVE = auto()


class Former:
    """How far a counting had come here when its owner was lost, and which spots had received it."""

    def __init__(self, last: int, kept: TopicMessage | None, spots_before: dict[int, None]) -> None:
        self.last = last
        self.kept = kept
        self.spots_before = spots_before


class Crossing:
    """A new owner sends already, and the old one's last messages have not come: the new one's wait here.

    What finds no room is lost, and told as missed by the next one that is taken.
    """

    def __init__(self, member: Peer, sequence: int, number: int) -> None:
        self.member = member
        self.number = number
        """Of the hand-over."""
        self.sequence = sequence
        """The old owner's last."""
        self.drained = 0
        """The number of the next hand-over, if the new owner has said that it sends nothing more."""
        self.came: list[Message | Mark] = []
        self._held_bytes = 0

    def put(self, message: Message | Mark) -> None:
        if self._held_bytes < TOPIC_CROSSING_BYTES_MAX and len(self.came) < TOPIC_CROSSING_COUNT_MAX:
            self.came.append(message)
            self._held_bytes += len(message.payload) if isinstance(message, Message) else 0


class Want:
    """One wanted topic, however many local subscriptions want it.

    A spot stays with it from its first matching subscription to the end of its last one. What was missed is
    a matter of spots, not of subscriptions: a spot may exchange one for another while the owner is away.
    """

    def __init__(self, topic: bytes, feed: Feed) -> None:
        self.topic = topic
        self.feed = feed
        self.state = WantState.PENDING
        self.owner: bytes | None = None
        self.spots_before: dict[int, None] = {}
        """Spots that received when the owner was lost, and stayed: only these miss what comes meanwhile."""
        self.drained = 0
        """The number of the hand-over for which the owner has said that it sends nothing more."""
        self.crossing: Crossing | None = None
        # By founder and epoch, of countings before the last one. Most topics never have another.
        self._formers: dict[tuple[bytes, int], Former] | None = None
        self._spots: Counter[int] = Counter()

    def keep_former(self) -> None:
        """Another owner takes over; the one before may return, and then nothing is new again."""
        feed = self.feed
        if self._formers is None:
            self._formers = {}
        self._formers[feed.founder, feed.epoch] = Former(feed.last, feed.kept, self.spots_before)
        if len(self._formers) > FORMER_OWNERS_MAX:
            del self._formers[next(iter(self._formers))]

    def take_former(self, founder: bytes, epoch: int) -> Former | None:
        """What is known of an owner that returns."""
        return self._formers.pop((founder, epoch), None) if self._formers else None

    def holds(self, spot: object) -> bool:
        """Whether a subscription of this spot is among those that want it."""
        return id(spot) in self._spots

    @property
    def is_held(self) -> bool:
        """Whether there is still a subscription that wants it."""
        return bool(self._spots)

    @property
    def is_remembered(self) -> bool:
        """Whether some spot could be told what it missed, should an owner that was lost return."""
        return bool(
            self.spots_before or (self._formers and any(one.spots_before for one in self._formers.values()))
        )

    def was_there(self, spot: object) -> bool:
        """Whether this spot received when the owner was lost, and has stayed since."""
        return id(spot) in self.spots_before

    def add(self, spot: object) -> None:
        self._spots[id(spot)] += 1

    def remove(self, spot: object) -> None:
        """One subscription of this spot less; with the last one its stay ends."""
        self._spots[id(spot)] -= 1
        if self._spots[id(spot)]:
            return
        del self._spots[id(spot)]
        self.spots_before.pop(id(spot), None)
        for former in (self._formers or {}).values():
            former.spots_before.pop(id(spot), None)

    def suspend(self) -> None:
        """The owner was lost: remember who received until now."""
        self.spots_before = dict.fromkeys(self._spots)


class Subscriber(Protocol):
    """A local subscription, as the machine sees it. It is found again by its hash."""

    @property
    def text(self) -> str: ...

    @property
    def spot(self) -> object:
        """Whose it is: however many subscriptions of one spot match, it receives a message once."""

    @property
    def prefix(self) -> bytes:
        """What a pattern's topics begin with; otherwise the topic itself."""

    @property
    def is_pattern(self) -> bool: ...

    @property
    def inbox(self) -> Inbox: ...

    @property
    def matched(self) -> dict[bytes, Want]:
        """The wanted topics that match, kept by the machine."""


class Interests:
    """All subscriptions of a node, by topic.

    A topic's own subscriptions are found by its name, patterns by their prefixes, with one look-up for each
    length that occurs among them (`hansa.transport.subscriptions`): what a message costs depends on how many
    subscriptions it reaches, not on how many there are. Subscriptions are given out in the order in which
    they were added, so that one seed of a simulation makes one history.
    """

    def __init__(self) -> None:
        self._exact: dict[bytes, dict[Subscriber, None]] = {}
        self._patterns: Subscriptions[Subscriber] = Subscriptions()
        # Every interest, and its number in the order of addition.
        self._numbers: dict[Subscriber, int] = {}
        self._added_count = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def exact_topics(self) -> Iterable[bytes]:
        """Topics that are subscribed by name, each once. Read it before the next change."""
        return self._exact.keys()

    def add(self, interest: Subscriber) -> None:
        invariant(interest not in self._numbers, "a subscription was added twice")
        self._added_count += 1
        self._numbers[interest] = self._added_count
        if interest.is_pattern:
            self._patterns.add(interest, interest.prefix)
        else:
            self._exact.setdefault(interest.prefix, {})[interest] = None

    def remove(self, interest: Subscriber) -> None:
        invariant(interest in self._numbers, "a subscription was removed that was never added")
        del self._numbers[interest]
        if interest.is_pattern:
            self._patterns.drop(interest)
            return
        holders = self._exact[interest.prefix]
        del holders[interest]
        if not holders:
            del self._exact[interest.prefix]

    def count(self, topic: bytes) -> int:
        """How many want this topic, by name or by pattern: above 0, its owner is told."""
        return len(self._exact.get(topic, ())) + len(self._patterns.matching(topic))

    def has_exact(self, topic: bytes) -> bool:
        """Whether anybody subscribed this topic by its name."""
        return topic in self._exact

    def matching(self, topic: bytes) -> list[Subscriber]:
        """All that want this topic, in the order of their addition."""
        found = [*self._exact.get(topic, ()), *self._patterns.matching(topic)]
        found.sort(key=self._numbers.__getitem__)
        return found

    def targets(self, topic: bytes) -> list[Subscriber]:
        """Who receives a message of this topic, in the order of addition: of each spot one subscription.

        That is the one by name, else the pattern that says most.
        """
        chosen: dict[int, Subscriber] = {}
        for interest in self.matching(topic):
            # A spot compares as it likes; here it is only itself.
            rival = chosen.setdefault(id(interest.spot), interest)
            if _goes_before(interest, rival):
                chosen[id(interest.spot)] = interest
        return sorted(chosen.values(), key=self._numbers.__getitem__)


class Wants:
    """The part of the mesh's machine that receives. It adds its effects to the machine's."""

    def __init__(
        self,
        node: bytes,
        exchange: Exchange,
        owners: Owners,
        peers: dict[bytes, Peer],
        tally: MeshTally,
        effects: list[Effect],
    ) -> None:
        self.all: dict[bytes, Want] = {}
        self.interests = Interests()
        self._node = node
        self._exchange = exchange
        self._owners = owners
        self._peers = peers
        self._tally = tally
        self._effects = effects
        self._ownerless = TopicIndex()
        # Known topics of others that retain their latest message, as their owners have said.
        self._retained: dict[bytes, None] = {}
        self.crossings: dict[bytes, Want] = {}
        """Of these the old owner's last messages are on their way, and a new owner has announced itself."""
        # Of these the wants of patterns only: the oldest is forgotten first.
        self._former: dict[bytes, None] = {}

    # -- local subscriptions

    def ownerless(self, prefix: bytes) -> list[bytes]:
        """Wanted topics that begin so and have no owner: the mesh knows only those that have one."""
        return self._ownerless.starting_with(prefix)

    def begin(self, topic: bytes, owner: bytes | None) -> None:
        """Somebody wants a topic that nobody wanted before."""
        outlet = self._exchange.outlets.get(topic)
        feed = Feed(topic.decode()) if outlet is None else outlet.feed
        want = self.all[topic] = Want(topic, feed)
        self._exchange.feeds[topic] = feed
        for one in self.interests.matching(topic):
            one.matched[topic] = want
            want.add(one.spot)
        feed.inboxes = [one.inbox for one in self.interests.targets(topic)]
        if owner is None:
            self._ownerless.add(topic)
        else:
            self._seek(want, owner)
        if owner == self._node:
            self._give_latest(feed, outlet)

    def begin_here(self, topic: bytes) -> None:
        """A topic that was about to leave stays here: whoever has come to want it meanwhile begins now."""
        want = self.all.get(topic)
        if want is not None and want.owner is None:
            self._seek(want, self._node)
            self._give_latest(want.feed, self._exchange.outlets[topic])

    def _give_latest(self, feed: Feed, outlet: Outlet | None) -> None:
        if outlet is not None and outlet.latest is not None:
            feed.deliver(outlet.latest, len(outlet.latest.payload), self._exchange)

    def join(self, want: Want, subscriber: Subscriber) -> None:
        """One more subscription wants it. Of a retained topic it gets the copy that this node has kept."""
        feed = want.feed
        is_new = not want.holds(subscriber.spot)
        subscriber.matched[want.topic] = want
        want.add(subscriber.spot)
        if not subscriber.is_pattern:
            self._former.pop(want.topic, None)
        if is_new:
            feed.inboxes.append(subscriber.inbox)
        else:
            feed.inboxes = [one.inbox for one in self.interests.targets(want.topic)]
        if want.state is not WantState.ACTIVE:
            return
        self._tell_active(want, subscriber)
        outlet = self._exchange.outlets.get(want.topic)
        kept = feed.kept if outlet is None else outlet.latest
        if is_new and kept is not None:
            self._hand(kept, subscriber.inbox)

    def leave(self, want: Want, subscriber: Subscriber) -> None:
        """One subscription less wants it; it is no longer among the interests."""
        topic = want.topic
        del subscriber.matched[topic]
        want.remove(subscriber.spot)
        if want.owner is None and not self.interests.has_exact(topic):
            # Patterns want what has an owner, and remember what had one.
            if not want.is_remembered:
                self._end(want)
                return
            self._remember(topic)
        elif not want.is_held:
            self._end(want)
            return
        inboxes = want.feed.inboxes
        if want.holds(subscriber.spot):
            want.feed.inboxes = [one.inbox for one in self.interests.targets(topic)]
        elif subscriber.inbox in inboxes:
            inboxes.remove(subscriber.inbox)

    def _hand(self, kept: TopicMessage, inbox: Inbox) -> None:
        if inbox.put(kept, len(kept.payload)):
            self._exchange.readers.append(inbox.reader)
            self._exchange.is_due = True

    def _end(self, want: Want) -> None:
        """Nobody wants it any more, or only patterns that remember it."""
        topic = want.topic
        for one in self.interests.matching(topic):
            one.matched.pop(topic, None)
        del self.all[topic]
        del self._exchange.feeds[topic]
        self.crossings.pop(topic, None)
        self._ownerless.discard(topic)
        self._former.pop(topic, None)
        want.feed.inboxes = []
        if want.owner is not None and want.owner != self._node:
            self._unsubscribe(want.owner, topic)

    # -- owners

    def moved(self, topic: bytes, owner: bytes | None, *, is_lost: bool) -> None:
        """The topic has another owner than before, or none; `is_lost` if the one before did not say so."""
        want = self.all.get(topic)
        if want is None:
            if owner is not None and self.interests.count(topic):
                self.begin(topic, owner)
            return
        before = want.owner
        self._suspend(want)
        if owner is not None:
            self._seek(want, owner)
        elif not self.interests.has_exact(topic):
            # It said so itself, and returns with other numbers. Of the owners before it that says nothing.
            if not is_lost and want.feed.owner == before:
                want.spots_before = {}
            if want.is_remembered:
                self._remember(topic)
            else:
                self._end(want)

    def _remember(self, topic: bytes) -> None:
        self._former[topic] = None
        if len(self._former) > FORMER_TOPICS_MAX:
            self._end(self.all[next(iter(self._former))])

    def _seek(self, want: Want, owner: bytes) -> None:
        want.owner = owner
        self._ownerless.discard(want.topic)
        self._former.pop(want.topic, None)
        if owner == self._node:
            outlet = self._exchange.outlets[want.topic]
            self._activate(
                want, owner, outlet.founder, epoch=outlet.epoch, last=outlet.sequence, retain=False
            )
            return
        member = self._peers[owner]
        self._subscribe(member, want.topic)
        if member.is_hansa:
            want.state = WantState.ASKED
            return
        want.feed.source = member
        self._activate(want, owner, owner, epoch=0, last=0, retain=False)

    def _subscribe(self, member: Peer, topic: bytes) -> None:
        self._effects.append(Send(peer=member.id, command=Subscribe(topic=topic.decode())))
        member.left.pop(topic, None)
        if member.is_hansa:
            member.asked[topic] = member.asked.get(topic, 0) + 1

    def _unsubscribe(self, owner: bytes, topic: bytes) -> None:
        self._effects.append(Send(peer=owner, command=Unsubscribe(topic=topic.decode())))
        member = self._peers.get(owner)
        if member is not None:
            member.left[topic] = None
            if len(member.left) > FORMER_TOPICS_MAX:
                del member.left[next(iter(member.left))]

    def _activate(
        self, want: Want, owner: bytes, founder: bytes, *, epoch: int, last: int, retain: bool
    ) -> None:
        feed = want.feed
        if (feed.founder, feed.epoch) != (founder, epoch):
            self._put_by(want)
            feed.kept = None
        elif last > feed.last:
            # It is the latest no more; of a retained topic that one follows.
            feed.kept = None
        feed.owner, feed.founder, feed.epoch, feed.last, feed.retain = owner, founder, epoch, last, retain
        want.state = WantState.ACTIVE
        for one in self.interests.matching(want.topic):
            self._tell_active(want, one)

    def _tell_active(self, want: Want, subscriber: Subscriber) -> None:
        feed = want.feed
        event = SubscriptionActivated(
            subscription=subscriber.text, topic=feed.topic, owner=feed.owner, epoch=feed.epoch
        )
        self._effects.append(Tell(event=event, to=subscriber))

    def _suspend(self, want: Want) -> None:
        """The want has lost its owner. What the owner's connection still brings is none of ours."""
        owner = want.owner
        if owner is None:
            return
        member = self._peers.get(owner)
        # One that is no owner any more may be so again when it reads a SUBSCRIBE that is on its way.
        if member is not None and (
            self._owners.is_claimed_by(want.topic, owner) or want.topic in member.asked
        ):
            self._unsubscribe(owner, want.topic)
        was_active = want.state is WantState.ACTIVE
        want.state = WantState.PENDING
        want.owner = None
        want.drained, want.feed.source, want.crossing = 0, None, None
        self.crossings.pop(want.topic, None)
        self._ownerless.add(want.topic)
        if not was_active:
            return
        want.suspend()
        for one in self.interests.matching(want.topic):
            event = SubscriptionSuspended(subscription=one.text, topic=want.feed.topic, owner=owner)
            self._effects.append(Tell(event=event, to=one))

    # -- what the owner says

    def marked(self, member: Peer, topic: bytes, mark: Mark) -> None:
        """The owner says how far it is: to confirm a subscription, or because messages were dropped."""
        if mark.confirm and not member.answered(topic):
            return  # An UNSUBSCRIBE and another SUBSCRIBE are still on their way to it.
        want = self.all.get(topic)
        if want is None or want.owner != member.id:
            return
        if want.crossing is not None:
            want.crossing.put(mark)
        elif want.state is WantState.ACTIVE:
            feed = want.feed
            founder = mark.founder or member.id
            if founder != feed.founder or mark.epoch > feed.epoch:
                # It was demoted, by one that we do not hear, and owns the topic again: without us.
                self._suspend(want)
                self._seek(want, member.id)
            elif mark.epoch == feed.epoch and mark.sequence > feed.last:
                self._skip_to(want, mark.sequence)
        elif mark.confirm:
            self._confirmed(want, member, mark)

    def _skip_to(self, want: Want, sequence: int) -> None:
        feed = want.feed
        missed_count = sequence - feed.last
        feed.last = sequence
        # It is the latest no more; of a retained topic that one follows.
        feed.kept = None
        self._missed(want, missed_count)

    def note_retain(self, topic: bytes, *, retain: bool) -> None:
        """Another node's topic retains its latest message, or does not, or is known no more."""
        if retain:
            self._retained[topic] = None
        else:
            self._retained.pop(topic, None)

    def retains(self, topic: bytes) -> bool:
        """Whether another node's topic retains its latest message, as far as this one has heard."""
        want = self.all.get(topic)
        return topic in self._retained or (want is not None and want.feed.retain)

    # -- an owner that hands its topic over

    def drain(self, member: Peer, topic: bytes, mark: Mark | None, number: int) -> None:
        """The owner sends nothing more for now: all up to its mark has come, or will never come."""
        want = self.all.get(topic)
        if want is None or want.state is not WantState.ACTIVE:
            return
        if want.crossing is not None and want.crossing.member is member:
            # It hands the topic on already: that comes behind what it has sent itself.
            if mark is not None:
                want.crossing.put(mark)
            want.crossing.drained = number
            return
        if want.feed.source is not member:
            return
        if mark is not None and self._is_same(want, member, mark) and mark.sequence > want.feed.last:
            self._skip_to(want, mark.sequence)
        want.drained = number
        if want.crossing is not None and want.crossing.number == number:
            self._cross(want, want.crossing)

    def undrain(self, topic: bytes) -> None:
        """The owner stays, and goes on."""
        want = self.all.get(topic)
        if want is not None:
            want.drained = 0

    def source_gone(self, member: Peer) -> None:
        """A connection has ended: nothing more comes from an old owner."""
        for topic in [topic for topic, want in self.crossings.items() if want.feed.source is member]:
            want = self.crossings[topic]
            if want.crossing is not None:
                self._cross(want, want.crossing)

    def handed_over(self, topic: bytes, member: Peer, mark: Mark, number: int) -> None:
        """A new owner has taken the topic over, and us along if its mark confirms that."""
        want = self.all.get(topic)
        if want is None:
            if mark.confirm:
                self._unsubscribe(member.id, topic)
            elif self.interests.count(topic):
                self.begin(topic, member.id)
            return
        can_cross = mark.confirm and want.state is WantState.ACTIVE and self._is_same(want, member, mark)
        if not can_cross or want.crossing is not None:
            # The same gap is told when the new owner confirms; two hand-overs at once are one too many.
            self.moved(topic, member.id, is_lost=True)
            return
        if topic in member.left:
            # It may read that UNSUBSCRIBE only now.
            self._subscribe(member, topic)
        want.owner = member.id
        crossing = want.crossing = Crossing(member, mark.sequence, number)
        source = want.feed.source
        if source is None or want.drained == number or source not in self._peers.values():
            self._cross(want, crossing)
        else:
            self.crossings[topic] = want

    def leave_here(self, outlet: Outlet) -> None:
        """We own it no more: whoever goes on with our counting goes on where our own messages ended."""
        want = self.all.get(outlet.frame)
        if want is not None:
            feed = want.feed
            # Those of one that nobody here received yet, too.
            feed.founder, feed.epoch = outlet.founder, outlet.epoch
            feed.last, feed.kept, feed.retain = outlet.sequence, outlet.latest, outlet.retain

    def adopt(self, outlet: Outlet) -> None:
        """This node owns a topic that was handed over to it."""
        want = self.all.get(outlet.frame)
        if want is None:
            self.moved(outlet.frame, self._node, is_lost=True)
            return
        feed, latest = want.feed, outlet.latest
        self._recall(want, outlet.founder, outlet.epoch)
        is_same = (feed.founder, feed.epoch) == (outlet.founder, outlet.epoch)
        behind_count = max(outlet.sequence - feed.last, 0) if is_same else 0
        stays = is_same and want.state is WantState.ACTIVE
        if stays:
            want.owner = feed.owner = self._node
            want.drained, feed.source, want.crossing = 0, None, None
            self.crossings.pop(want.topic, None)
        else:
            self.moved(outlet.frame, self._node, is_lost=True)
        missed_count = behind_count - (latest is not None)
        if missed_count > 0:
            self._missed(want, missed_count, before_only=not stays)
        for one in self.interests.targets(want.topic):
            has_latest = not behind_count and (stays or want.was_there(one.spot))
            if latest is not None and not has_latest:
                self._hand(latest, one.inbox)
        want.spots_before = {}

    def _is_same(self, want: Want, member: Peer, mark: Mark) -> bool:
        """Whether it is the counting that we have followed."""
        return (want.feed.founder, want.feed.epoch) == (mark.founder or member.id, mark.epoch)

    def _cross(self, want: Want, crossing: Crossing) -> None:
        """Nothing more comes from the old owner: take the messages of the new one."""
        feed = want.feed
        self.crossings.pop(want.topic, None)
        want.drained, want.crossing = 0, None
        feed.source, feed.owner = crossing.member, crossing.member.id
        if crossing.sequence > feed.last:
            if feed.retain:
                # The latest message may be among those that were lost: the owner sends it again.
                self._suspend(want)
                self._seek(want, crossing.member.id)
                return
            self._skip_to(want, crossing.sequence)
        for came in crossing.came:
            if isinstance(came, Message):
                self._take(want, came)
            else:
                self.marked(crossing.member, want.topic, came)
        want.drained = crossing.drained

    def _put_by(self, want: Want) -> None:
        """Another owner takes over. Of ourselves we miss nothing, and raw owners have no epoch to know."""
        if want.feed.epoch and want.feed.owner != self._node:
            want.keep_former()

    def _recall(self, want: Want, founder: bytes, epoch: int) -> None:
        """Owners change and change back: go on from where this one was left."""
        former = want.take_former(founder, epoch)
        if former is None:
            return
        self._put_by(want)
        feed = want.feed
        feed.founder, feed.epoch, feed.last, feed.kept = founder, epoch, former.last, former.kept
        want.spots_before = former.spots_before

    def _confirmed(self, want: Want, member: Peer, mark: Mark) -> None:
        feed = want.feed
        founder = mark.founder or member.id
        self._recall(want, founder, mark.epoch)
        # The owner sends a retained message again: the next one for this feed, unless it had it.
        last = mark.sequence - 1 if mark.retain and mark.sequence else mark.sequence
        missed_count = 0
        if (feed.founder, feed.epoch) == (founder, mark.epoch) and mark.sequence >= feed.last:
            last = max(last, feed.last)
            missed_count = last - feed.last
        feed.source = member
        self._activate(want, member.id, founder, epoch=mark.epoch, last=last, retain=mark.retain)
        if missed_count and want.spots_before:
            self._missed(want, missed_count, before_only=True)
        if feed.kept is not None and last == mark.sequence:
            # The feed has what the owner sends again; those who came meanwhile have not.
            for one in self.interests.targets(want.topic):
                if not want.was_there(one.spot):
                    self._hand(feed.kept, one.inbox)
        want.spots_before = {}

    def message(self, member: Peer, message: Message) -> None:
        """One that `receive` left: a gap, a duplicate, one without a number, or one that nobody wants."""
        want = self.all.get(message.topic.encode())
        if want is not None and want.feed.source is member:
            self._take(want, message)
        elif want is not None and want.crossing is not None and want.crossing.member is member:
            want.crossing.put(message)
        else:
            self._tally.unwanted_count += 1

    def _take(self, want: Want, message: Message) -> None:
        feed, sequence = want.feed, message.sequence or 0
        if sequence:
            if sequence <= feed.last and feed.epoch:
                self._tally.duplicates_count += 1
                return
            # A raw owner confirms nothing, so its first number says where it is, and no more.
            if sequence > feed.last + 1 and (feed.epoch or feed.last):
                self._missed(want, sequence - feed.last - 1)
            feed.last = sequence
        payload = message.payload
        feed.deliver(TopicMessage(feed.topic, payload, sequence), len(payload), self._exchange)

    def _missed(self, want: Want, count: int, *, before_only: bool = False) -> None:
        self._tally.missed_count += count
        for one in self.interests.targets(want.topic):
            if before_only and not want.was_there(one.spot):
                continue
            one.inbox.missed_count += count
            event = MessagesMissed(subscription=one.text, topic=want.feed.topic, count=count)
            self._effects.append(Tell(event=event, to=one))


def _goes_before(interest: Subscriber, rival: Subscriber) -> bool:
    if interest.is_pattern != rival.is_pattern:
        return rival.is_pattern
    return len(interest.prefix) > len(rival.prefix)
