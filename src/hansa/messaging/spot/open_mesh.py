"""A node's part in the PUB/SUB mesh, which is open: no topic has an owner, and everybody may publish.

Theory of operation. What is published goes to the local subscriptions and out on the node's PUB, numbered for
its topic; what others published comes in on the SUB, which has asked them for the prefix of every local
subscription. A prefix brings too much (`zone:1` also brings `zone:12`), so every publication is matched again
here. Numbers that are not the next ones say how much was lost on the way.

For each topic that is published or comes in there is a feed: whose inboxes get it. Feeds are only a cache,
made when first needed and thrown away when subscriptions change or when they are too many.
"""

from __future__ import annotations

from collections.abc import Sequence

from hansa.errors import BadArgument
from hansa.limits import NODE_SUBSCRIPTIONS_MAX, OPEN_FEEDS_MAX, TOPIC_BYTES_MAX
from hansa.messaging.spot.arrivals import Arrivals
from hansa.messaging.spot.departures import Departures
from hansa.messaging.spot.effects import Tell
from hansa.messaging.spot.events import MessagesMissed
from hansa.messaging.spot.fanout import Exchange, Feed
from hansa.messaging.spot.inbox import TopicMessage
from hansa.messaging.spot.interests import Interests
from hansa.messaging.spot.stats import MeshTally
from hansa.messaging.spot.want import Subscriber, Want, WantState
from hansa.wire.fields import decode_text
from hansa.wire.publication import decode_publication, encode_publication


class OpenMesh:
    """Decides for one node: who gets what was published, and what is missing."""

    def __init__(
        self, exchange: Exchange, arrivals: Arrivals, departures: Departures, feeds_max: int = OPEN_FEEDS_MAX
    ) -> None:
        self.arrivals = arrivals
        self.departures = departures
        self.interests: Interests[Subscriber] = Interests()
        self.tally = MeshTally()
        self._exchange = exchange
        self._feeds_max = feeds_max

    @property
    def wanted(self) -> dict[str, int]:
        """Topics that somebody here wants, as far as they are known, and how many match each."""
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
        # What nobody wants is not missed: should somebody want it again, counting begins anew.
        if subscriber.is_pattern:
            self.arrivals.forget_unwanted(subscriber.prefix, self._is_wanted)
        elif not self._is_wanted(subscriber.prefix):
            self.arrivals.forget(subscriber.prefix)

    def _is_wanted(self, topic: bytes) -> bool:
        return self.interests.count(topic) > 0

    # -- publications

    def publish(self, topic: str, payload: bytes) -> list[bytes]:
        """Give it to the local subscriptions; its frames, for the others. Raises BadArgument."""
        exchange = self._exchange
        if not isinstance(payload, bytes):
            raise BadArgument(f"the payload is {type(payload).__name__}, not bytes")
        if len(payload) > exchange.payload_bytes_max:
            raise BadArgument(
                f"the payload has {len(payload)} bytes; {exchange.payload_bytes_max} are the most "
                "(SocketOptions.frame_bytes_max)"
            )
        departure = self.departures.count(topic)
        frame, sequence = departure.frame, departure.sequence
        exchange.turn_count += 1
        exchange.former_published_count += 1
        feed = exchange.feeds.get(frame) or self._new_feed(frame, topic)
        if feed.inboxes:
            feed.deliver(TopicMessage(topic, payload, sequence), len(payload), exchange)
        return encode_publication(frame, payload, departure.origin, sequence)

    def hear(self, frames: list[bytes]) -> Sequence[Tell]:
        """A publication of another node, or of somebody who is none. Raises BadFrame."""
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
            tells.append(Tell(event=event, subscriber=one))
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
        """Of the topics that this subscription matches."""
        if subscriber.is_pattern:
            self._exchange.feeds.clear()
        else:
            self._exchange.feeds.pop(subscriber.prefix, None)
