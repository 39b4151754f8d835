"""The hot path of topics: one message to all its subscribers, and other nodes' messages to local inboxes.

Pure.

Theory of operation. An Outlet is a topic that this node owns: it numbers its messages, encodes each once and
puts it into the outboxes of the subscribed nodes. A Feed is a topic that a local subscription wants: it knows
the inboxes and the number of the last message, wherever the owner is. Publishing at the owner uses both.

`receive` goes over a chunk of messages from one peer and handles the usual ones: the next message of a feed,
or a message to publish for a topic of this node. It stops at any other message (another command, a gap, a
message that nobody wants), for which the machine decides.

Nothing here touches the loop. The exchange collects which readers to wake and which outboxes to flush, and
the driver takes these lists when something is due.

Compiled by mypyc with the outbox and the inbox (`make bench`, cases topic, routed and local).
"""

from typing import Any, Final

from hansa.errors import BadArgument
from hansa.limits import CROWDED_TURN_COUNT, PUBLISH_TURN_COUNT, WRITE_JOIN_BYTES
from hansa.topics.inbox import Inbox, Reader, TopicMessage
from hansa.transport.outbox import FULL, QUIET, Outbox

PUBLISH: Final = b"\x01"
MESSAGE: Final = b"\x08"

# Wire form: the command's frame with more to follow, and the header of a closing frame of eight bytes.
_MESSAGE_FRAME: Final = b"\x01\x01\x08"
_SEQUENCE_HEADER: Final = b"\x00\x08"
_SHORT_MORE: Final = [bytes((1, n)) for n in range(256)]
# The same header with the lowest byte of the number.
_SEQUENCE_START: Final = [_SEQUENCE_HEADER + bytes((n,)) for n in range(256)]

# The results of `publish`: what it has done, and what its caller must do.
DONE: Final = 0
DUE: Final = 1  # Published; something waits to be flushed.
REST: Final = 2  # Not published: let the loop run first.
ELSEWHERE: Final = 3  # Not published: the topic has no open outlet here.


class Exchange:
    """What all feeds and outlets of a node share."""

    def __init__(self, payload_bytes_max: int) -> None:
        self.payload_bytes_max = payload_bytes_max
        self.feeds: dict[bytes, Feed] = {}
        self.outlets: dict[bytes, Outlet] = {}
        """The outlets of all topics that this node owns."""
        self.open_outlets: dict[bytes, Outlet] = {}
        """The outlets that publish: not those of topics that are being handed over."""
        self.outlets_by_name: dict[str, Outlet] = {}
        """The outlets that publish for the node's own spots, too."""
        self.readers: list[Reader] = []
        """Readers to wake."""
        self.boxes: list[Outbox] = []
        """Outboxes to flush."""
        self.lagging: dict[Outbox, dict[Outlet, None]] = {}
        """Peers that missed messages, by outbox, and the topics."""
        self.is_due = False
        """Something is in the lists above."""
        self.turn_count = 0
        """Messages published since the publishers last rested."""
        self.rest_count = 1
        """For how many turns of the loop the next rest lasts."""
        self.delivered_count = 0
        """Messages given to local inboxes."""
        # Of topics that have no outlet, or whose outlet was closed.
        self._published_count = 0
        self._dropped_count = 0

    @property
    def published_count(self) -> int:
        return self._published_count + sum(
            [outlet.sequence - outlet.began_at for outlet in self.outlets.values()]
        )

    @property
    def dropped_count(self) -> int:
        """Messages that subscribed nodes missed because their outboxes were full."""
        return self._dropped_count + sum([outlet.dropped_count for outlet in self.outlets.values()])

    def open(self, outlet: "Outlet") -> None:
        """This node owns the outlet's topic from now on."""
        self.outlets[outlet.frame] = outlet
        self.resume(outlet)

    def close(self, outlet: "Outlet") -> None:
        """This node no longer owns the outlet's topic."""
        self._published_count += outlet.sequence - outlet.began_at
        self._dropped_count += outlet.dropped_count
        self.hold(outlet)
        del self.outlets[outlet.frame]

    def hold(self, outlet: "Outlet") -> None:
        """Publish nothing there until `resume`: a publisher finds no outlet, and asks the machine."""
        self.open_outlets.pop(outlet.frame, None)
        self.outlets_by_name.pop(outlet.feed.topic, None)

    def hold_own(self, outlet: "Outlet") -> None:
        """Publish what other nodes send; what this node's spots publish comes later."""
        self.outlets_by_name.pop(outlet.feed.topic, None)

    def resume(self, outlet: "Outlet") -> None:
        """Undo `hold`, or `hold_own`."""
        self.open_outlets[outlet.frame] = self.outlets_by_name[outlet.feed.topic] = outlet

    def count_published(self) -> None:
        """Count a message that was published without an outlet."""
        self._published_count += 1
        self.turn_count += 1

    def take_due(self) -> tuple[list[Outbox], list[Reader]]:
        """Take the outboxes to flush and the readers to wake, each once; then nothing is due."""
        boxes, readers = self.boxes, self.readers
        self.boxes = []
        self.readers = []
        self.is_due = False
        # A box that is full enough is listed again with every message.
        return list(dict.fromkeys(boxes)) if boxes else boxes, readers

    def take_rest(self) -> int:
        """For how many turns of the loop the publishers rest now; begins a new count of what they publish."""
        turns_count = self.rest_count
        self.turn_count, self.rest_count = 0, 1
        return turns_count

    def refusal(self, payload: Any) -> BadArgument:
        """The error for a payload that cannot be published: it is too large, or not bytes."""
        if not isinstance(payload, bytes):
            return BadArgument(f"the payload is {type(payload).__name__}, not bytes")
        return BadArgument(
            f"the payload has {len(payload)} bytes; {self.payload_bytes_max} are the most "
            "(SocketOptions.frame_bytes_max)"
        )


class Feed:
    """A topic that local subscriptions receive."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.inboxes: list[Inbox] = []
        self.source: object = None
        """The connection whose messages are taken; None while there is none, or the owner is here."""
        self.owner = b""
        self.founder = b""
        """The node that began to count the messages: the owner, or one that has handed the topic over."""
        self.epoch = 0
        """Which of the founder's countings it is."""
        self.last = 0
        """The number of the last message, in this counting."""
        self.retain = False
        self.kept: TopicMessage | None = None
        """The latest message of a topic that retains it."""

    def deliver(self, message: TopicMessage, size_bytes: int, exchange: Exchange) -> None:
        for inbox in self.inboxes:
            if inbox.put(message, size_bytes):
                exchange.readers.append(inbox.reader)
                exchange.is_due = True
        exchange.delivered_count += len(self.inboxes)
        if self.retain:
            self.kept = message


class Outlet:
    """A topic that this node owns."""

    def __init__(
        self, frame: bytes, feed: Feed, spot: object, founder: bytes, epoch: int, retain: bool
    ) -> None:
        self.frame = frame
        self.feed = feed
        self.spot = spot
        self.founder = founder
        """The node that began to count the messages: this one, unless the topic was handed over."""
        self.epoch = epoch
        self.retain = retain
        self.sequence = 0
        self.began_at = 0
        """The last number before this node came to own the topic."""
        self.dropped_count = 0
        """Messages that subscribed nodes missed because their outboxes were full."""
        self.latest: TopicMessage | None = None
        self.subscribers: dict[bytes, Outbox] = {}
        """By peer. Change it only through `add` and `remove`."""
        self._boxes: list[Outbox] = []
        self._start = _MESSAGE_FRAME + _SHORT_MORE[len(frame)] + frame
        # Payloads in a row often have one size, and numbers differ in their lowest byte: the rest is kept.
        self._head = self._start + _SHORT_MORE[0]
        self._head_bytes = 0
        self._high = bytes(7)
        self._high_number = 0

    def add(self, peer: bytes, box: Outbox) -> None:
        self.subscribers[peer] = box
        self._boxes = list(self.subscribers.values())

    def remove(self, peer: bytes) -> None:
        self.subscribers.pop(peer, None)
        self._boxes = list(self.subscribers.values())

    def go_on(self, sequence: int, latest: TopicMessage | None) -> None:
        """Number messages after `sequence`: another node has published those before."""
        self.sequence = self.began_at = sequence
        self.latest = latest

    def publish(self, payload: Any, exchange: Exchange) -> None:
        """Number a message, and give it to all subscribers. Raises BadArgument, with nothing published."""
        if not isinstance(payload, bytes):
            raise exchange.refusal(payload)
        size_bytes = len(payload)
        if size_bytes > exchange.payload_bytes_max:
            raise exchange.refusal(payload)
        sequence = self.sequence + 1
        self.sequence = sequence
        exchange.turn_count += 1
        if self._boxes:
            self._send(payload, size_bytes, sequence, exchange)
        feed = self.feed
        if feed.inboxes or self.retain:
            message = TopicMessage(feed.topic, payload, sequence)
            if self.retain:
                self.latest = message
            feed.deliver(message, size_bytes, exchange)

    def wire(self, payload: bytes, sequence: int) -> list[bytes]:
        """A MESSAGE in wire form, in one piece if it is small."""
        size_bytes = len(payload)
        if size_bytes < 256:
            if size_bytes != self._head_bytes:
                self._head_bytes = size_bytes
                self._head = self._start + _SHORT_MORE[size_bytes]
            high = sequence >> 8
            if high != self._high_number:
                self._high_number = high
                self._high = high.to_bytes(7, "little")
            return [b"".join([self._head, payload, _SEQUENCE_START[sequence & 255], self._high])]
        number = sequence.to_bytes(8, "little")
        header = self._start + b"\x03" + size_bytes.to_bytes(8, "big")
        if size_bytes < WRITE_JOIN_BYTES:
            return [b"".join([header, payload, _SEQUENCE_HEADER, number])]
        return [header, payload, _SEQUENCE_HEADER + number]

    def _send(self, payload: bytes, size_bytes: int, sequence: int, exchange: Exchange) -> None:
        pieces = self.wire(payload, sequence)
        # Four headers, the command, the topic and the number; long headers count as they are.
        wire_bytes = len(pieces[0]) if len(pieces) == 1 else len(pieces[0]) + size_bytes + 10
        crowded_count = 0
        for box in self._boxes:
            if box.held_count > box.count_max >> 1 or box.held_bytes > box.bytes_max >> 1:
                crowded_count += 1
            due = box.put_encoded(pieces, wire_bytes)
            if due == FULL:
                self._miss(box, exchange)
            elif due != QUIET:
                exchange.boxes.append(box)
                exchange.is_due = True
        if crowded_count == len(self._boxes):
            # No subscriber keeps up, so none is slowed when the publisher lets the loop write first.
            exchange.turn_count = PUBLISH_TURN_COUNT
            exchange.rest_count = CROWDED_TURN_COUNT

    def _miss(self, box: Outbox, exchange: Exchange) -> None:
        self.dropped_count += 1
        box.dropped_count += 1
        topics = exchange.lagging.get(box)
        if topics is None:
            topics = exchange.lagging[box] = {}
        if self not in topics:
            # Only once: a stopped peer must cost the publisher of the others little.
            topics[self] = None
            exchange.is_due = True


def publish(exchange: Exchange, topic: str, payload: Any) -> int:
    """Publish to a topic of this node; returns DONE, DUE, REST or ELSEWHERE. Raises BadArgument."""
    if exchange.turn_count >= PUBLISH_TURN_COUNT:
        return REST
    outlet = exchange.outlets_by_name.get(topic)
    if outlet is None:
        return ELSEWHERE
    outlet.publish(payload, exchange)
    return DUE if exchange.is_due else DONE


def receive(exchange: Exchange, source: object, messages: list[list[bytes]], at: int) -> int:
    """Handle one peer's messages from `at` on; returns the place of the first one for the machine."""
    feeds = exchange.feeds
    outlets = exchange.open_outlets
    end = len(messages)
    while at < end:
        parts = messages[at]
        count = len(parts)
        if count == 4 and parts[0] == MESSAGE:
            feed = feeds.get(parts[1])
            number = parts[3]
            if feed is None or feed.source is not source or len(number) != 8:
                return at
            sequence = feed.last + 1
            if _number(number) != sequence:
                return at
            feed.last = sequence
            payload = parts[2]
            feed.deliver(TopicMessage(feed.topic, payload, sequence), len(payload), exchange)
        elif count == 3 and parts[0] == PUBLISH:
            outlet = outlets.get(parts[1])
            if outlet is None:
                return at
            outlet.publish(parts[2], exchange)
        else:
            return at
        at += 1
    return at


def _number(frame: bytes) -> int:
    """Eight bytes, little-endian. Written out, because `int.from_bytes` costs a call from compiled code."""
    low = frame[0] | frame[1] << 8 | frame[2] << 16 | frame[3] << 24
    high = frame[4] | frame[5] << 8 | frame[6] << 16 | frame[7] << 24
    return low | high << 32
