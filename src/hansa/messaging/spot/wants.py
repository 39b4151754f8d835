"""The topics that somebody on this node wants, and how each comes by its messages.

    PENDING -- an owner is known: SUBSCRIBE           --> ASKED
    ASKED   -- the owner confirms                     --> ACTIVE    (a raw owner confirms nothing: at once)
    any     -- the owner leaves, removes, is replaced --> PENDING

A confirmation says where the owner stands: its epoch of this topic and the number of its last message. A feed
that is asked for again after a broken connection therefore knows exactly what it missed, as long as the owner
is the same. Of a topic that only patterns match, and whose owner was lost, the feed is kept for that reason,
as long as a spot stays that received it. Every matching subscription joins such a topic as if it had an
owner, so a spot stays whichever of its subscriptions it ends, as long as it has begun another one before.
"""

from __future__ import annotations

from hansa.limits import FORMER_TOPICS_MAX
from hansa.messaging.spot.effects import Effect, Peer, Send, Tell
from hansa.messaging.spot.events import MessagesMissed, SubscriptionActivated, SubscriptionSuspended
from hansa.messaging.spot.fanout import Exchange, Feed
from hansa.messaging.spot.inbox import Inbox, TopicMessage
from hansa.messaging.spot.interests import Interests
from hansa.messaging.spot.owners import Owners
from hansa.messaging.spot.stats import MeshTally
from hansa.messaging.spot.topic_index import TopicIndex
from hansa.messaging.spot.want import Subscriber, Want, WantState
from hansa.wire.spot import Mark, Message, Subscribe, Unsubscribe


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
        self.interests: Interests[Subscriber] = Interests()
        self._node = node
        self._exchange = exchange
        self._owners = owners
        self._peers = peers
        self._tally = tally
        self._effects = effects
        self._ownerless = TopicIndex()
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
        self._ownerless.discard(topic)
        self._former.pop(topic, None)
        want.feed.inboxes = []
        if want.owner is not None and want.owner != self._node:
            self._effects.append(Send(peer=want.owner, command=Unsubscribe(topic=want.feed.topic)))

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
            self._activate(want, owner, epoch=outlet.epoch, last=outlet.sequence, retain=False)
            return
        member = self._peers[owner]
        self._effects.append(Send(peer=owner, command=Subscribe(topic=want.feed.topic)))
        if member.is_hansa:
            want.state = WantState.ASKED
            member.asked[want.topic] = member.asked.get(want.topic, 0) + 1
            return
        want.feed.source = member
        self._activate(want, owner, epoch=0, last=0, retain=False)

    def _activate(self, want: Want, owner: bytes, *, epoch: int, last: int, retain: bool) -> None:
        feed = want.feed
        if (feed.owner, feed.epoch) != (owner, epoch):
            self._put_by(want)
            feed.kept = None
        feed.owner, feed.epoch, feed.last, feed.retain = owner, epoch, last, retain
        want.state = WantState.ACTIVE
        for one in self.interests.matching(want.topic):
            self._tell_active(want, one)

    def _tell_active(self, want: Want, subscriber: Subscriber) -> None:
        feed = want.feed
        event = SubscriptionActivated(
            subscription=subscriber.text, topic=feed.topic, owner=feed.owner, epoch=feed.epoch
        )
        self._effects.append(Tell(event=event, subscriber=subscriber))

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
            self._effects.append(Send(peer=owner, command=Unsubscribe(topic=want.feed.topic)))
        was_active = want.state is WantState.ACTIVE
        want.state = WantState.PENDING
        want.owner = None
        want.feed.source = None
        self._ownerless.add(want.topic)
        if not was_active:
            return
        want.suspend()
        for one in self.interests.matching(want.topic):
            event = SubscriptionSuspended(subscription=one.text, topic=want.feed.topic, owner=owner)
            self._effects.append(Tell(event=event, subscriber=one))

    # -- what the owner says

    def marked(self, member: Peer, topic: bytes, mark: Mark) -> None:
        """The owner says how far it is: to confirm a subscription, or because messages were dropped."""
        if mark.confirm and not member.answered(topic):
            return  # An UNSUBSCRIBE and another SUBSCRIBE are still on their way to it.
        want = self.all.get(topic)
        if want is None or want.owner != member.id:
            return
        if want.state is WantState.ACTIVE:
            feed = want.feed
            if mark.epoch > feed.epoch:
                # It was demoted, by one that we do not hear, and owns the topic again: without us.
                self._suspend(want)
                self._seek(want, member.id)
            elif mark.epoch == feed.epoch and mark.sequence > feed.last:
                missed_count = mark.sequence - feed.last
                feed.last = mark.sequence
                # It is the latest no more; of a retained topic that one follows.
                feed.kept = None
                self._missed(want, missed_count)
        elif mark.confirm:
            self._confirmed(want, member, mark)

    def _put_by(self, want: Want) -> None:
        """Another owner takes over. Of ourselves we miss nothing, and raw owners have no epoch to know."""
        if want.feed.epoch and want.feed.owner != self._node:
            want.keep_former()

    def _recall(self, want: Want, owner: bytes, epoch: int) -> None:
        """Owners change and change back: go on from where this one was left."""
        former = want.take_former(owner, epoch)
        if former is None:
            return
        self._put_by(want)
        feed = want.feed
        feed.owner, feed.epoch, feed.last, feed.kept = owner, epoch, former.last, former.kept
        want.spots_before = former.spots_before

    def _confirmed(self, want: Want, member: Peer, mark: Mark) -> None:
        feed = want.feed
        self._recall(want, member.id, mark.epoch)
        # The owner sends a retained message again: the next one for this feed, unless it had it.
        last = mark.sequence - 1 if mark.retain and mark.sequence else mark.sequence
        missed_count = 0
        if (feed.owner, feed.epoch) == (member.id, mark.epoch) and mark.sequence >= feed.last:
            last = max(last, feed.last)
            missed_count = last - feed.last
        feed.source = member
        self._activate(want, member.id, epoch=mark.epoch, last=last, retain=mark.retain)
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
        if want is None or want.feed.source is not member:
            self._tally.unwanted_count += 1
            return
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
            self._effects.append(Tell(event=event, subscriber=one))
