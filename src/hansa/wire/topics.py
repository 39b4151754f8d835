"""Messages between nodes of the topic mesh: commands 0x01 to 0x08.

Frame 0 is the command (one byte; the ROUTER's envelope before it is the transport's), then its fields. Frames
after those a command is known to have are ignored. MESSAGE may carry one field more than the specification:
the owner's per-topic sequence (u64), which makes gaps countable and which other nodes ignore.

Nodes of hansa's say more in extension frames, after a command's own: a tag, then fields of fixed size, and
after these a routing id if there is one. A tag that is unknown for its command is ignored, so that later
versions may add some; unknown flags and steps likewise.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Final, TypeAlias

from hansa.errors import BadArgument, BadFrame
from hansa.limits import (
    COORDINATION_NAME_BYTES_MAX,
    PARTS_MAX,
    ROUTING_ID_BYTES_MAX,
    TOPIC_BYTES_MAX,
    TOPICS_MAX,
)
from hansa.wire.fields import decode_text, decode_uint, encode_text, encode_uint

PUBLISH: Final = b"\x01"
SUBSCRIBE: Final = b"\x02"
UNSUBSCRIBE: Final = b"\x03"
QUERY: Final = b"\x04"
QUERY_RESP: Final = b"\x05"
TOPIC_ANNOUNCE: Final = b"\x06"
TOPIC_REMOVE: Final = b"\x07"
MESSAGE: Final = b"\x08"

_QUERY_TAG: Final = b"HSQ1"
_TAKER_TAG: Final = b"HSW1"
_ANSWER_TAG: Final = b"HSR1"
_REPORT_TAG: Final = b"HSP1"
_MARK_TAG: Final = b"HSM1"
_REFUSAL_TAG: Final = b"HSX1"
_CLAIM_TAG: Final = b"HSC1"
_FOUNDER_TAG: Final = b"HSF1"
_MOVE_TAG: Final = b"HSV1"
_TAG_BYTES: Final = 4

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")

# The fields after each tag; a report, and the claims of an answer, have one set for each topic.
_QUERY_FIELDS: Final = Struct("<BIQ")
_ANSWER_FIELDS: Final = Struct("<B")
_REPORT_FIELDS: Final = Struct("<IQQ")
_MARK_FIELDS: Final = Struct("<BQQ")
_REFUSAL_FIELDS: Final = Struct("<I")
_CLAIM_FIELDS: Final = Struct("<Q")
# A routing id follows, which is all that a founder's tag has.
_FOUNDER_FIELDS: Final = Struct("")
_MOVE_FIELDS: Final = Struct("<BI")

_REPORT_WANTED: Final = 1
_UNCHANGED: Final = 1
_RETAIN: Final = 1
_CONFIRM: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """To the owner: publish this message for the sender."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """To the owner: send this node the topic's messages. ZMTP has a SUBSCRIBE, too: see `wire.commands`."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """To the owner: stop sending this node the topic's messages."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """To a peer: which topics do you own?

    To a node of hansa's it says which topics the asker believes they are. `taker` is the name under which a
    store knows the asker, if it takes topics that others hand over.
    """

    report_wanted: bool = False
    known_count: int = 0
    known_digest: int = 0
    is_extended: bool = False
    taker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCounts:
    """An owner's counts of one topic."""

    subscribers_count: int
    published_count: int
    dropped_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResp:
    """From a peer: all topics that it owns, or that they are those which the asker knows.

    A report has the counts of each topic, `claims` the epoch of its claim in a store, in the order of the
    topics.
    """

    topics: tuple[str, ...]
    is_extended: bool = False
    is_unchanged: bool = False
    report: tuple[TopicCounts, ...] | None = None
    claims: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An owner's position in a topic: the sequence of its last message, 0 before the first.

    `founder` and `epoch` distinguish one counting of the topic's messages from the next: the node that began
    it, if that is another node than the sender, and which of its countings it is. A topic that is handed over
    keeps its counting. `confirm` says that the reader is subscribed: it answers SUBSCRIBE.
    """

    epoch: int
    sequence: int
    retain: bool = False
    confirm: bool = False
    founder: bytes = b""


class MoveStep(IntEnum):
    """The messages while a topic is handed over. `Move.node` is named in brackets."""

    MOVING = 1
    """From the old owner, with its last mark: nothing more is published here for now (the new owner)."""
    STAYS = 2
    """From the old owner: the topic stays, and is published again (the former successor)."""
    MOVED = 3
    """From the new owner: it is mine (the old one). From the old owner: no longer mine (the new one)."""
    END = 4
    """To the old owner, which passes it on to the new one: all that this node published there came before.

    To the new owner: has it come? (the publisher).
    """
    ENDED = 5
    """From the new owner to a publisher: your END has come (the publisher)."""
    LAST = 6
    """From the old owner to the new one: no more END comes (the old owner)."""
    SWITCHED = 7
    """To the new owner: for this node it is done, and the topic may move on (the sender)."""


_MOVE_STEPS: Final = frozenset(MoveStep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One step of a topic's hand-over, and the number of that hand-over."""

    step: MoveStep
    number: int
    node: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAnnounce:
    """From the owner: this topic is mine now. To one subscribed node also: its position in the topic.

    `claim` is the epoch of the owner's claim in a store; 0 is none, and any claim beats it.
    """

    topic: str
    mark: Mark | None = None
    claim: int = 0
    move: Move | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemove:
    """From the owner: this topic is no more. From a node that was taken for its owner: I am not the owner.

    `refused_count` is how many PUBLISH this refuses; 0 refuses a SUBSCRIBE.
    """

    topic: str
    mark: Mark | None = None
    refused_count: int | None = None
    move: Move | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """From the owner to a subscribed node. `sequence` counts the topic's messages, if the owner sends it."""

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
            frames = [MESSAGE, _topic_frame(command.topic), command.payload]
            if command.sequence is not None:
                frames.append(encode_uint(command.sequence, "sequence", size=8))
            return frames
        case Publish():
            return [PUBLISH, _topic_frame(command.topic), command.payload]
        case Subscribe():
            return [SUBSCRIBE, _topic_frame(command.topic)]
        case Unsubscribe():
            return [UNSUBSCRIBE, _topic_frame(command.topic)]
        case Query():
            return [QUERY, *_encode_asked(command)]
        case QueryResp():
            return _encode_answer(command)
        case TopicAnnounce():
            mark, move = _encode_mark(command.mark), _encode_move(command.move)
            claim = _encode_claims((command.claim,)) if command.claim else []
            return [TOPIC_ANNOUNCE, _topic_frame(command.topic), *mark, *claim, *move]
        case TopicRemove():
            mark, refusal = _encode_mark(command.mark), _encode_refusal(command.refused_count)
            move = _encode_move(command.move)
            return [TOPIC_REMOVE, _topic_frame(command.topic), *mark, *refusal, *move]


def topic_digest(frame: bytes) -> int:
    """The digest of one topic's frame; the XOR of all digests of a node is the digest of what it owns."""
    return int.from_bytes(blake2b(frame, digest_size=8).digest(), "little")


def decode(frames: Sequence[bytes]) -> SpotCommand:
    """The command in these frames. Raises `BadFrame`, and nothing else, when they hold none."""
    if not frames:
        raise BadFrame("a command has at least its number")
    if len(frames) > PARTS_MAX:
        raise BadFrame(f"a message has at most {PARTS_MAX} frames, not {len(frames)}")
    command = frames[0]
    if command == QUERY:
        return _decode_asked(frames)
    if len(command) != 1 or not PUBLISH <= command <= MESSAGE:
        raise BadFrame(f"command {command[:8].hex()!r} ({len(command)} bytes) is not one of 01 to 08")
    _expect(frames, 3 if command in (MESSAGE, PUBLISH) else 2)
    if command == QUERY_RESP:
        return _decode_answer(frames)
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
        claim, move = _decode_claims(frames, 2, 1), _decode_move(frames)
        return TopicAnnounce(
            topic=topic, mark=_decode_mark(frames), claim=claim[0] if claim else 0, move=move
        )
    return TopicRemove(
        topic=topic,
        mark=_decode_mark(frames),
        refused_count=_decode_refusal(frames),
        move=_decode_move(frames),
    )


def _topic_frame(topic: str) -> bytes:
    if _CONTROL.search(topic):
        raise BadArgument(f"topic {topic!r} has control characters: give it a name that can be shown")
    return encode_text(topic, "topic", bytes_min=1, bytes_max=TOPIC_BYTES_MAX)


def _encode_asked(query: Query) -> list[bytes]:
    flags = bytes((_REPORT_WANTED if query.report_wanted else 0,))
    count = encode_uint(query.known_count, "known count", size=4)
    fields = flags + count + encode_uint(query.known_digest, "known digest", size=8)
    if query.is_extended:
        taker = [_TAKER_TAG + _taker_frame(query.taker)] if query.taker else []
        return [_QUERY_TAG + fields, *taker]
    if any(fields) or query.taker:
        raise BadArgument("what a query says besides asking stands in its extension: it must be extended")
    return []


def _decode_asked(frames: Sequence[bytes]) -> Query:
    frame = _find(frames, 1, _QUERY_TAG, _QUERY_FIELDS)
    if frame is None:
        return Query()
    flags, known_count, known_digest = _QUERY_FIELDS.unpack_from(frame, _TAG_BYTES)
    return Query(
        report_wanted=bool(flags & _REPORT_WANTED),
        known_count=known_count,
        known_digest=known_digest,
        is_extended=True,
        taker=_decode_taker(frames),
    )


def _taker_frame(taker: str) -> bytes:
    return encode_text(taker, "taker", bytes_min=1, bytes_max=COORDINATION_NAME_BYTES_MAX)


def _decode_taker(frames: Sequence[bytes]) -> str:
    frame = next((frame for frame in frames[1:] if frame.startswith(_TAKER_TAG)), None)
    if frame is None:
        return ""
    if len(frame) > _TAG_BYTES + COORDINATION_NAME_BYTES_MAX:
        raise BadFrame(f"a taker's name has {len(frame) - _TAG_BYTES} bytes, which are too many")
    taker = decode_text(frame[_TAG_BYTES:], "taker", bytes_min=1, bytes_max=COORDINATION_NAME_BYTES_MAX)
    if _CONTROL.search(taker):
        raise BadFrame(f"taker {taker!r} has control characters")
    return taker


def _encode_answer(answer: QueryResp) -> list[bytes]:
    count = len(answer.topics)
    if count > TOPICS_MAX:
        raise BadArgument(f"an answer has at most {TOPICS_MAX} topics, not {count}")
    if answer.is_unchanged and (count or not answer.is_extended):
        raise BadArgument("an answer that says unchanged is extended and names no topics")
    frames = [QUERY_RESP, encode_uint(count, "topic count", size=4), *map(_topic_frame, answer.topics)]
    if answer.is_extended:
        frames.append(_ANSWER_TAG + bytes((_UNCHANGED if answer.is_unchanged else 0,)))
    if answer.report is not None:
        if len(answer.report) != count:
            raise BadArgument(f"a report of {len(answer.report)} topics does not fit {count} topics")
        frames.append(b"".join([_REPORT_TAG, *map(_encode_counts, answer.report)]))
    if answer.claims is not None:
        if len(answer.claims) != count:
            raise BadArgument(f"the claims of {len(answer.claims)} topics do not fit {count} topics")
        frames += _encode_claims(answer.claims)
    if len(frames) > PARTS_MAX:
        raise BadArgument(f"{count} topics leave no room for extension frames")
    return frames


def _encode_counts(counts: TopicCounts) -> bytes:
    subscribers = encode_uint(counts.subscribers_count, "subscribers count", size=4)
    published = encode_uint(counts.published_count, "published count", size=8)
    return subscribers + published + encode_uint(counts.dropped_count, "dropped count", size=8)


def _decode_answer(frames: Sequence[bytes]) -> QueryResp:
    topics = _decode_topics(frames)
    at = 2 + len(topics)
    extension = _find(frames, at, _ANSWER_TAG, _ANSWER_FIELDS)
    is_unchanged = extension is not None and bool(extension[_TAG_BYTES] & _UNCHANGED)
    if is_unchanged and topics:
        raise BadFrame(f"an answer says unchanged and names {len(topics)} topics")
    report = _find(frames, at, _REPORT_TAG, _REPORT_FIELDS, len(topics))
    return QueryResp(
        topics=topics,
        is_extended=extension is not None,
        is_unchanged=is_unchanged,
        report=None if report is None else _decode_report(report),
        claims=_decode_claims(frames, at, len(topics)),
    )


def _decode_report(frame: bytes) -> tuple[TopicCounts, ...]:
    return tuple(
        TopicCounts(subscribers_count=subscribers, published_count=published, dropped_count=dropped)
        for subscribers, published, dropped in _REPORT_FIELDS.iter_unpack(frame[_TAG_BYTES:])
    )


def _encode_mark(mark: Mark | None) -> list[bytes]:
    if mark is None:
        return []
    flags = bytes(((_RETAIN if mark.retain else 0) | (_CONFIRM if mark.confirm else 0),))
    epoch = encode_uint(mark.epoch, "epoch", size=8)
    frames = [_MARK_TAG + flags + epoch + encode_uint(mark.sequence, "sequence", size=8)]
    if mark.founder:
        frames.append(_FOUNDER_TAG + _checked_id(mark.founder))
    return frames


def _decode_mark(frames: Sequence[bytes]) -> Mark | None:
    frame = _find(frames, 2, _MARK_TAG, _MARK_FIELDS)
    if frame is None:
        return None
    flags, epoch, sequence = _MARK_FIELDS.unpack_from(frame, _TAG_BYTES)
    founder = _find_with_id(frames, 2, _FOUNDER_TAG, _FOUNDER_FIELDS)
    return Mark(
        epoch=epoch,
        sequence=sequence,
        retain=bool(flags & _RETAIN),
        confirm=bool(flags & _CONFIRM),
        founder=b"" if founder is None else founder[_TAG_BYTES:],
    )


def _encode_claims(claims: Sequence[int]) -> list[bytes]:
    return [b"".join([_CLAIM_TAG, *(encode_uint(claim, "claim", size=8) for claim in claims)])]


def _decode_claims(frames: Sequence[bytes], at: int, count: int) -> tuple[int, ...] | None:
    frame = _find(frames, at, _CLAIM_TAG, _CLAIM_FIELDS, count)
    if frame is None:
        return None
    return tuple(claim for (claim,) in _CLAIM_FIELDS.iter_unpack(frame[_TAG_BYTES:]))


def _encode_move(move: Move | None) -> list[bytes]:
    if move is None:
        return []
    number = encode_uint(move.number, "number of a hand-over", size=4)
    return [_MOVE_TAG + bytes((move.step,)) + number + _checked_id(move.node)]


def _decode_move(frames: Sequence[bytes]) -> Move | None:
    frame = _find_with_id(frames, 2, _MOVE_TAG, _MOVE_FIELDS)
    if frame is None:
        return None
    step, number = _MOVE_FIELDS.unpack_from(frame, _TAG_BYTES)
    if step not in _MOVE_STEPS:
        return None
    node = frame[_TAG_BYTES + _MOVE_FIELDS.size :]
    return Move(step=MoveStep(step), number=number, node=node)


def _checked_id(node: bytes) -> bytes:
    if not 1 <= len(node) <= ROUTING_ID_BYTES_MAX:
        raise BadArgument(f"a node's id has {len(node)} bytes instead of 1 to {ROUTING_ID_BYTES_MAX}")
    return node


def _encode_refusal(refused_count: int | None) -> list[bytes]:
    if refused_count is None:
        return []
    return [_REFUSAL_TAG + encode_uint(refused_count, "refused count", size=4)]


def _decode_refusal(frames: Sequence[bytes]) -> int | None:
    frame = _find(frames, 2, _REFUSAL_TAG, _REFUSAL_FIELDS)
    return None if frame is None else int.from_bytes(frame[_TAG_BYTES:], "little")


def _find(frames: Sequence[bytes], at: int, tag: bytes, fields: Struct, count: int = 1) -> bytes | None:
    """The first extension frame from `at` on with this tag, whose fields are `count` times `fields`."""
    for place in range(at, len(frames)):
        frame = frames[place]
        if frame.startswith(tag):
            if len(frame) != _TAG_BYTES + fields.size * count:
                raise BadFrame(f"extension {tag.decode()} has {len(frame)} bytes, which do not fit")
            return frame
    return None


def _find_with_id(frames: Sequence[bytes], at: int, tag: bytes, fields: Struct) -> bytes | None:
    """The same for a frame that ends with a routing id, whose length is in its fields."""
    size = _TAG_BYTES + fields.size
    for place in range(at, len(frames)):
        frame = frames[place]
        if frame.startswith(tag):
            if not size + 1 <= len(frame) <= size + ROUTING_ID_BYTES_MAX:
                raise BadFrame(f"extension {tag.decode()} has {len(frame)} bytes, which do not fit")
            return frame
    return None


def _decode_topics(frames: Sequence[bytes]) -> tuple[str, ...]:
    count = decode_uint(frames[1], "topic count", size=4)
    # A peer's count is compared with what it sent before anything is allocated for it.
    if count > len(frames) - 2:
        raise BadFrame(f"an answer claims {count} topics in {len(frames) - 2} frames")
    return tuple(_decode_topic(frames[at]) for at in range(2, 2 + count))


def _decode_topic(frame: bytes) -> str:
    topic = decode_text(frame, "topic", bytes_min=1, bytes_max=TOPIC_BYTES_MAX)
    # Names go to logs and terminals.
    if _CONTROL.search(topic):
        raise BadFrame(f"topic {topic!r} has control characters")
    return topic


def _expect(frames: Sequence[bytes], frames_min: int) -> None:
    if len(frames) < frames_min:
        raise BadFrame(f"command {frames[0].hex()} has {len(frames)} frames instead of {frames_min}")
