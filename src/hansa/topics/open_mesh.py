"""A node's part in the PUB/SUB mesh, which is open: no topic has an owner, and every node may publish. Pure.

Theory of operation. A publication goes to the local subscriptions and out on the node's PUB, numbered for its
topic (`Departures`). The publications of other nodes come in on the SUB, which has asked them for the prefix
of every local subscription. A prefix brings too much (`zone:1` also brings `zone:12`), so every publication
is matched again here. The numbers say how many were lost on the way (`Arrivals`).

For each topic that is published or comes in there is a feed: the inboxes that get it. Feeds are only a cache,
made when first needed, and dropped when subscriptions change or when there are too many.

Arrivals. The first publication of an origin (a node and its epoch) says where to begin; from then on a number
that is not the next one says how many were lost, whatever lost them. The memory is bounded in two
generations, which cost nothing while it suffices: an arrival is noted in the young generation, or moved
there. When that is full it becomes the old one, and what was still in the old one, silent for longer than
anything else, is forgotten: counting begins again for that origin and topic.

Departures. A number must never come twice, or receivers take the second message for a repeated one. So
whenever topics are forgotten the epoch is raised, and a forgotten topic begins at 1 again under the later
epoch. The memory is bounded in the same two generations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hansa.errors import BadArgument, invariant
from hansa.limits import ARRIVALS_MAX, DEPARTURES_MAX, NODE_SUBSCRIPTIONS_MAX, OPEN_FEEDS_MAX, TOPIC_BYTES_MAX
from hansa.presence.statements import EPOCH_MAX
from hansa.topics.effects import MeshTally, Tell
from hansa.topics.events import MessagesMissed
from hansa.topics.fanout import Exchange, Feed
from hansa.topics.inbox import TopicMessage
from hansa.topics.names import check_topic
from hansa.topics.owners import TopicIndex
from hansa.topics.wants import Interests, Subscriber, Want, WantState
from hansa.wire.fields import decode_text
from hansa.wire.publication import decode_publication, encode_origin, encode_publication

REPEATED: Final = -1
"""Instead of a count: this publication, or a later one, has come already."""

# The last sequence by topic and origin.
_Generation: TypeAlias = dict[bytes, dict[bytes, int]]


class OpenMesh:
    """Decides for one node: which inboxes get a publication, and how many are missing."""

    def __init__(
        self, exchange: Exchange, arrivals: Arrivals, departures: Departures, feeds_max: int = OPEN_FEEDS_MAX
    ) -> None:
        self.arrivals = arrivals
        self.departures = departures
        self.interests = Interests()
        self.tally = MeshTally()
        self._exchange = exchange
        self._feeds_max = feeds_max

    @property
    def wanted(self) -> dict[str, int]:
        """Topics that local subscriptions want, as far as they are known, and how many match each."""
        named = {topic: topic.decode() for topic in self.interests.exact_topics}
        met = {topic: feed.topic for topic, feed in self._exchange.feeds.items() if feed.inboxes}
        return {name: self.interests.count(topic) for topic, name in (named | met).items()}

    # -- subscriptions

    def subscribe(self, subscriber: Subscriber) -> None:
        """Raises BadArgument, with nothing changed."""
        if len(self.interests) >= NODE_SUBSCRIPTIONS_MAX:
            raise BadArgument(f"this node has {len(self.interests)} subscriptions, which is the most")
        self.interests.add(subscriber)
        if not subscriber.is_pattern:
            want = Want(subscriber.prefix, Feed(subscriber.text))
            want.state = WantState.ACTIVE
            subscriber.matched[subscriber.prefix] = want
        self._forget_feeds(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self.interests.remove(subscriber)
        subscriber.matched.clear()
        self._forget_feeds(subscriber)
        # What nobody wants is not missed: if it is wanted again later, counting begins again.
        if subscriber.is_pattern:
            self.arrivals.forget_unwanted(subscriber.prefix, self._is_wanted)
        elif not self._is_wanted(subscriber.prefix):
            self.arrivals.forget(subscriber.prefix)

    def _is_wanted(self, topic: bytes) -> bool:
        return self.interests.count(topic) > 0

    # -- publications

    def publish(self, topic: str, payload: bytes) -> list[bytes]:
        """Give a message to the local subscriptions; returns its frames for others. Raises BadArgument."""
        exchange = self._exchange
        if not isinstance(payload, bytes) or len(payload) > exchange.payload_bytes_max:
            raise exchange.refusal(payload)
        departure = self.departures.count(topic)
        frame, sequence = departure.frame, departure.sequence
        exchange.count_published()
        feed = exchange.feeds.get(frame) or self._new_feed(frame, topic)
        if feed.inboxes:
            feed.deliver(TopicMessage(topic, payload, sequence), len(payload), exchange)
        return encode_publication(frame, payload, departure.origin, sequence)

    def hear(self, frames: list[bytes]) -> Sequence[Tell]:
        """Handle a publication of another node, or of a peer that is no node. Raises BadFrame."""
        topic, payload, origin, sequence = decode_publication(frames)
        exchange = self._exchange
        feed = exchange.feeds.get(topic)
        if feed is None:
            name = decode_text(topic, "topic", bytes_min=1, bytes_max=TOPIC_BYTES_MAX)
            feed = self._new_feed(topic, name)
        if not feed.inboxes:
            self.tally.unwanted_count += 1
            return ()
        missing_count = self.arrivals.note(topic, origin, sequence) if origin else 0
        if missing_count < 0:
            self.tally.duplicates_count += 1
            return ()
        tells = self._missed(topic, feed, missing_count) if missing_count else ()
        feed.deliver(TopicMessage(feed.topic, payload, sequence), len(payload), exchange)
        return tells

    def _missed(self, topic: bytes, feed: Feed, count: int) -> Sequence[Tell]:
        self.tally.missed_count += count
        tells = []
        for one in self.interests.targets(topic):
            one.inbox.missed_count += count
            event = MessagesMissed(subscription=one.text, topic=feed.topic, count=count)
            tells.append(Tell(event=event, to=one))
        return tells

    # -- feeds

    def _new_feed(self, topic: bytes, name: str) -> Feed:
        feeds = self._exchange.feeds
        if len(feeds) >= self._feeds_max:
            feeds.clear()
        feed = feeds[topic] = Feed(name)
        feed.inboxes = [one.inbox for one in self.interests.targets(topic)]
        return feed

    def _forget_feeds(self, subscriber: Subscriber) -> None:
        """Forget the feeds of the topics that this subscription matches."""
        if subscriber.is_pattern:
            self._exchange.feeds.clear()
        else:
            self._exchange.feeds.pop(subscriber.prefix, None)


class Arrivals:
    """The last sequences, at most `count_max` of them. Topics are frames; origins are compared whole."""

    def __init__(self, count_max: int = ARRIVALS_MAX) -> None:
        self._generation_max = max(1, count_max // 2)
        self._young: _Generation = {}
        self._young_count = 0
        self._old: _Generation = {}
        self._old_count = 0
        self._topics = TopicIndex()
        self.forgotten_count = 0
        """Origins of topics that were forgotten to make room."""

    def __len__(self) -> int:
        return self._young_count + self._old_count

    def note(self, topic: bytes, origin: bytes, sequence: int) -> int:
        """Note a publication; returns how many are missing before it, or REPEATED."""
        known = self._young.get(topic)
        if known is not None:
            last = known.get(origin)
            if last is not None:
                if sequence <= last:
                    return REPEATED
                known[origin] = sequence
                return sequence - last - 1
        return self._note_rare(topic, origin, sequence)

    def forget(self, topic: bytes) -> None:
        """Forget a topic that nobody wants any more: what comes meanwhile is not missing."""
        if topic in self._topics:
            self._topics.discard(topic)
            self._young_count -= len(self._young.pop(topic, ()))
            self._old_count -= len(self._old.pop(topic, ()))

    def forget_unwanted(self, prefix: bytes, is_wanted: Callable[[bytes], bool]) -> None:
        """A pattern is gone: forget the topics that begin with `prefix` and that nobody else wants."""
        for topic in self._topics.starting_with(prefix):
            if not is_wanted(topic):
                self.forget(topic)

    def _note_rare(self, topic: bytes, origin: bytes, sequence: int) -> int:
        """Note a publication that is not in the young generation: it is new, or was silent for long."""
        older = self._old.get(topic)
        last = None if older is None else older.get(origin)
        if older is not None and last is not None:
            if sequence <= last:
                return REPEATED
            del older[origin]
            self._old_count -= 1
            if not older:
                del self._old[topic]
        if self._young_count >= self._generation_max:
            self._age()
        self._topics.add(topic)
        self._young.setdefault(topic, {})[origin] = sequence
        self._young_count += 1
        return 0 if last is None else sequence - last - 1

    def _age(self) -> None:
        self.forgotten_count += self._old_count
        for topic in self._old:
            if topic not in self._young:
                self._topics.discard(topic)
        self._old, self._old_count = self._young, self._young_count
        self._young, self._young_count = {}, 0


class Departures:
    """The topics that this node publishes, at most `count_max` of them."""

    def __init__(self, node: bytes, epoch: int, count_max: int = DEPARTURES_MAX) -> None:
        self._node = node
        self._epoch = epoch
        self._origin = encode_origin(node, epoch)
        self._generation_max = max(1, count_max // 2)
        self._young: dict[str, Departure] = {}
        self._old: dict[str, Departure] = {}
        self.forgotten_count = 0
        """Topics that were forgotten to make room."""

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def counts(self) -> dict[str, int]:
        """How many messages of each topic were published, sorted by topic."""
        both = {**self._old, **self._young}
        return {topic: both[topic].sequence for topic in sorted(both)}

    def count(self, topic: str) -> Departure:
        """The topic's count, one higher than before: the number of this publication. Raises BadArgument."""
        departure = self._young.get(topic)
        if departure is None:
            departure = self._find_rare(topic)
        departure.sequence += 1
        return departure

    def _find_rare(self, topic: str) -> Departure:
        departure = self._old.pop(topic, None)
        if departure is None:
            departure = Departure(check_topic(topic), self._origin)
        if len(self._young) >= self._generation_max:
            self._age()
        self._young[topic] = departure
        return departure

    def _age(self) -> None:
        if self._old:
            self.forgotten_count += len(self._old)
            self._epoch += 1
            invariant(self._epoch <= EPOCH_MAX, "there are no epochs left")
            self._origin = encode_origin(self._node, self._epoch)
        self._old, self._young = self._young, {}


class Departure:
    """One topic's count."""

    __slots__ = ("frame", "origin", "sequence")

    def __init__(self, frame: bytes, origin: bytes) -> None:
        self.frame = frame
        self.origin = origin
        self.sequence = 0
