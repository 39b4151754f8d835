"""What nodes of the topic mesh say to each other: commands 0x01 to 0x08.

Frame 0 is the command (one byte; the ROUTER's envelope before it is the transport's), then its fields.
Frames after those a command is known to have are ignored. MESSAGE may carry one field more than the
specification: the owner's per-topic sequence (u64), which makes gaps countable and which other nodes ignore.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hansa.errors import BadArgument, BadFrame
from hansa.limits import PARTS_MAX, TOPIC_BYTES_MAX, TOPICS_MAX
from hansa.wire.fields import decode_text, decode_uint, encode_text, encode_uint

PUBLISH: Final = b"\x01"
SUBSCRIBE: Final = b"\x02"
UNSUBSCRIBE: Final = b"\x03"
QUERY: Final = b"\x04"
QUERY_RESP: Final = b"\x05"
TOPIC_ANNOUNCE: Final = b"\x06"
TOPIC_REMOVE: Final = b"\x07"
MESSAGE: Final = b"\x08"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """To the owner: publish this for me."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """To the owner: send this node the topic's messages."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """To the owner: send this node no more of them."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """To a peer: which topics do you own?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResp:
    """From a peer: all topics that it owns."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAnnounce:
    """From the owner: this topic is mine now."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemove:
    """From the owner: this topic is no more."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """From the owner to a subscribed node. `sequence` counts the topic's messages, if the owner tells it."""

    topic: str
    payload: bytes
    sequence: int | None = None


SpotCommand: TypeAlias = (
    Publish | Subscribe | Unsubscribe | Query | QueryResp | TopicAnnounce | TopicRemove | Message
)


def encode(command: SpotCommand) -> list[bytes]:
    """The command's frames. Raises `BadArgument` for a value that could not be decoded again."""
    match command:
        case Message():
            return encode_message(topic_frame(command.topic), command.payload, command.sequence)
        case Publish():
            return [PUBLISH, topic_frame(command.topic), command.payload]
        case Subscribe():
            return [SUBSCRIBE, topic_frame(command.topic)]
        case Unsubscribe():
            return [UNSUBSCRIBE, topic_frame(command.topic)]
        case Query():
            return [QUERY]
        case QueryResp():
            count = len(command.topics)
            if count > TOPICS_MAX:
                raise BadArgument(f"an answer has at most {TOPICS_MAX} topics, not {count}")
            return [QUERY_RESP, encode_uint(count, "topic count", size=4), *map(topic_frame, command.topics)]
        case TopicAnnounce():
            return [TOPIC_ANNOUNCE, topic_frame(command.topic)]
        case TopicRemove():
            return [TOPIC_REMOVE, topic_frame(command.topic)]


def topic_frame(topic: str) -> bytes:
    """The frame that names a topic. An owner keeps it, so that publishing need not encode the name again."""
    return encode_text(topic, "topic", bytes_min=1, bytes_max=TOPIC_BYTES_MAX)


def encode_message(topic: bytes, payload: bytes, sequence: int | None = None) -> list[bytes]:
    """A MESSAGE from a topic's kept frame: what a fan-out encodes once and posts to every peer."""
    if sequence is None:
        return [MESSAGE, topic, payload]
    return [MESSAGE, topic, payload, encode_uint(sequence, "sequence", size=8)]


def decode(frames: Sequence[bytes]) -> SpotCommand:
    """The command in these frames. Raises `BadFrame`, and nothing else, when they hold none."""
    if not frames:
        raise BadFrame("a command has at least its number")
    if len(frames) > PARTS_MAX:
        raise BadFrame(f"a message has at most {PARTS_MAX} frames, not {len(frames)}")
    command = frames[0]
    if command == QUERY:
        return Query()
    if len(command) != 1 or not PUBLISH <= command <= MESSAGE:
        raise BadFrame(f"command {command[:8].hex()!r} ({len(command)} bytes) is not one of 01 to 08")
    _expect(frames, 3 if command in (MESSAGE, PUBLISH) else 2)
    if command == QUERY_RESP:
        return QueryResp(topics=_decode_topics(frames))
    topic = _decode_topic(frames[1])
    if command == MESSAGE:
        sequence = decode_uint(frames[3], "sequence", size=8) if len(frames) > 3 else None
        return Message(topic=topic, payload=frames[2], sequence=sequence)
    if command == PUBLISH:
        return Publish(topic=topic, payload=frames[2])
    if command == SUBSCRIBE:
        return Subscribe(topic=topic)
    if command == UNSUBSCRIBE:
        return Unsubscribe(topic=topic)
    if command == TOPIC_ANNOUNCE:
        return TopicAnnounce(topic=topic)
    return TopicRemove(topic=topic)


def _decode_topics(frames: Sequence[bytes]) -> tuple[str, ...]:
    count = decode_uint(frames[1], "topic count", size=4)
    # What a peer claims is compared with what it sent before anything is done for it.
    if count > len(frames) - 2:
        raise BadFrame(f"an answer claims {count} topics in {len(frames) - 2} frames")
    return tuple(_decode_topic(frames[at]) for at in range(2, 2 + count))


def _decode_topic(frame: bytes) -> str:
    return decode_text(frame, "topic", bytes_min=1, bytes_max=TOPIC_BYTES_MAX)


def _expect(frames: Sequence[bytes], frames_min: int) -> None:
    if len(frames) < frames_min:
        raise BadFrame(f"command {frames[0].hex()} has {len(frames)} frames instead of {frames_min}")
