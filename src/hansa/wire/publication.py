"""A publication of a node in a PUB/SUB mesh: the topic, the payload, and a frame with the origin and a count.

The first two frames are all that a plain SUB needs, and all that a plain PUB sends. The third is hansa's: the
tag `HPB1`, the publishing node's id behind its length (u8), an epoch (u64) and a sequence (u64),
little-endian. Sequences begin at 1 and count one topic of one node within one epoch. A third frame with
another tag belongs to a later version or to somebody else; it and frames after it are ignored.

Every publication passes here, so values are tuples. All of the third frame but the sequence is the origin:
bytes that distinguish one count from all others, compared whole and seldom decoded.
"""

from typing import Final

from hansa.errors import BadArgument, BadFrame
from hansa.limits import ROUTING_ID_BYTES_MAX, TOPIC_BYTES_MAX
from hansa.wire.fields import encode_uint

TAG: Final = b"HPB1"

_SEQUENCE_BYTES: Final = 8
_EPOCH_BYTES: Final = 8
# Tag, length of the id, epoch and sequence: the third frame without its id.
_FIXED_BYTES: Final = len(TAG) + 1 + _EPOCH_BYTES + _SEQUENCE_BYTES


def encode_origin(node: bytes, epoch: int) -> bytes:
    """All of the third frame but the sequence. Raises `BadArgument` for values that do not fit."""
    if not 1 <= len(node) <= ROUTING_ID_BYTES_MAX:
        raise BadArgument(f"node id has {len(node)} bytes instead of 1 to {ROUTING_ID_BYTES_MAX}")
    return b"".join((TAG, bytes((len(node),)), node, encode_uint(epoch, "epoch", size=_EPOCH_BYTES)))


def encode_publication(topic: bytes, payload: bytes, origin: bytes, sequence: int) -> list[bytes]:
    """The frames of a publication; an empty origin makes a plain one. Raises `BadArgument`."""
    if not 1 <= len(topic) <= TOPIC_BYTES_MAX:
        raise BadArgument(f"topic has {len(topic)} bytes instead of 1 to {TOPIC_BYTES_MAX}")
    if not origin:
        return [topic, payload]
    if sequence == 0:
        raise BadArgument("sequences begin at 1")
    return [topic, payload, origin + encode_uint(sequence, "sequence", size=_SEQUENCE_BYTES)]


def decode_publication(frames: list[bytes]) -> tuple[bytes, bytes, bytes, int]:
    """Topic, payload, origin and sequence; no origin and 0 for a plain one. Raises only `BadFrame`.

    Whether the topic is text must be checked by the node that sees it for the first time.
    """
    count = len(frames)
    if count < 2:
        raise BadFrame(f"a publication has a topic and a payload, not {count} frames")
    topic = frames[0]
    if not 1 <= len(topic) <= TOPIC_BYTES_MAX:
        raise BadFrame(f"topic has {len(topic)} bytes instead of 1 to {TOPIC_BYTES_MAX}")
    if count == 2 or not frames[2].startswith(TAG):
        return topic, frames[1], b"", 0
    last = frames[2]
    size = len(last)
    if size <= _FIXED_BYTES or size != _FIXED_BYTES + last[len(TAG)]:
        raise BadFrame(f"a publication's origin has {size} bytes, which do not fit its node id")
    sequence = int.from_bytes(last[-_SEQUENCE_BYTES:], "little")
    if not sequence:
        raise BadFrame("a publication's sequence is 0; they begin at 1")
    return topic, frames[1], last[:-_SEQUENCE_BYTES], sequence
