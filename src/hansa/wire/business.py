"""Calls and replies between gateways and providers: request id (u64), msgId (u16), payload frames.

The frame of the msgId may be longer than its two bytes. What follows is hansa's call header, which a peer
that reads only the msgId never sees: flags (u8), then for bit 0 the call's remaining milliseconds (u32) and
for bit 1 its trace context (25 bytes: trace id, span id, trace flags). Unknown bits are ignored, and so is
everything after the known fields. msgId 0xFFFF is a reply that failed: a stable code, and a text for people.

Every call passes here, so this is plain typed Python that mypyc also compiles, and values are tuples. A call
without a header pays nothing for it.
"""

from typing import Final, NamedTuple

from hansa.errors import BadArgument, BadFrame
from hansa.limits import CALL_HEADER_BYTES_MAX, ERROR_CODE_BYTES_MAX, ERROR_TEXT_BYTES_MAX, PARTS_MAX
from hansa.wire.fields import decode_text, encode_clipped, encode_text

ERROR_MSG_ID: Final = 0xFFFF

_HAS_REMAINING: Final = 0x01
_HAS_TRACE: Final = 0x02
_REMAINING_MS_MAX: Final = 0xFFFF_FFFF
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_TRACE_BYTES: Final = 25


class TraceContext(NamedTuple):
    """Where a call belongs in a distributed trace, as W3C Trace Context has it."""

    trace_id: bytes
    span_id: bytes
    flags: int = 0


class CallHeader(NamedTuple):
    """What a caller adds to the call: how long it still waits, and the trace it is part of."""

    remaining_ms: int | None = None
    trace: TraceContext | None = None


class ErrorReply(NamedTuple):
    """Why a call failed: a stable code (that of an error class), and a text for people, cut when long."""

    code: str
    text: str = ""


def encode_call(request_id: int, msg_id: int, parts: list[bytes], header: bytes = b"") -> list[bytes]:
    """The frames of a call or of its reply. Raises `BadArgument` for a number that does not fit its frame."""
    if len(parts) > PARTS_MAX - 2:
        raise BadArgument(f"a call has at most {PARTS_MAX - 2} parts, not {len(parts)}")
    if len(header) > CALL_HEADER_BYTES_MAX:
        raise BadArgument(f"a call header has at most {CALL_HEADER_BYTES_MAX} bytes, not {len(header)}")
    if not 0 <= request_id <= 0xFFFF_FFFF_FFFF_FFFF or not 0 <= msg_id <= 0xFFFF:
        raise BadArgument(f"request id {request_id} is not a u64, or msgId {msg_id} is not a u16")
    frames = [request_id.to_bytes(8, "little"), msg_id.to_bytes(2, "little") + header]
    frames += parts
    return frames


def decode_call(frames: list[bytes]) -> tuple[int, int, bytes, list[bytes]]:
    """Request id, msgId, header bytes (often empty) and payload parts. Raises `BadFrame`, and nothing else.

    The header is left undecoded: callers that need it call `decode_header`.
    """
    if not 2 <= len(frames) <= PARTS_MAX:
        raise BadFrame(f"a call has 2 to {PARTS_MAX} frames, not {len(frames)}")
    request_frame = frames[0]
    msg_frame = frames[1]
    size = len(msg_frame)
    if len(request_frame) != 8:
        raise BadFrame(f"request id has {len(request_frame)} bytes instead of 8")
    if size == 2:
        header = b""
    elif 2 < size <= 2 + CALL_HEADER_BYTES_MAX:
        header = msg_frame[2:]
    else:
        raise BadFrame(f"msgId has {size} bytes instead of 2 and at most {CALL_HEADER_BYTES_MAX} of header")
    msg_id = msg_frame[0] | msg_frame[1] << 8
    return int.from_bytes(request_frame, "little"), msg_id, header, frames[2:]


def encode_header(header: CallHeader) -> bytes:
    """The header's bytes, none when it says nothing. Raises `BadArgument` for a value that does not fit."""
    flags = 0
    fields = b""
    if header.remaining_ms is not None:
        if not 0 <= header.remaining_ms <= _REMAINING_MS_MAX:
            raise BadArgument(f"{header.remaining_ms} remaining milliseconds are not a u32")
        flags |= _HAS_REMAINING
        fields += header.remaining_ms.to_bytes(4, "little")
    if header.trace is not None:
        trace_id, span_id, trace_flags = header.trace
        if len(trace_id) != _TRACE_ID_BYTES or len(span_id) != _SPAN_ID_BYTES or not 0 <= trace_flags <= 0xFF:
            raise BadArgument("a trace context has a trace id of 16 bytes, a span id of 8 and flags of 1")
        flags |= _HAS_TRACE
        fields += trace_id + span_id + bytes((trace_flags,))
    return bytes((flags,)) + fields if flags else b""


def decode_header(header: bytes) -> CallHeader:
    """The decoded header; all None for no bytes. Raises `BadFrame`, and nothing else."""
    if not header:
        return CallHeader()
    flags = header[0]
    at = 1
    remaining_ms: int | None = None
    trace: TraceContext | None = None
    if flags & _HAS_REMAINING:
        if len(header) < at + 4:
            raise BadFrame(f"a call header of {len(header)} bytes ends within its remaining time")
        remaining_ms = int.from_bytes(header[at : at + 4], "little")
        at += 4
    if flags & _HAS_TRACE:
        end = at + _TRACE_BYTES
        if len(header) < end:
            raise BadFrame(f"a call header of {len(header)} bytes ends within its trace context")
        split = at + _TRACE_ID_BYTES
        trace = TraceContext(header[at:split], header[split : end - 1], header[end - 1])
    return CallHeader(remaining_ms, trace)


def encode_error(request_id: int, reply: ErrorReply) -> list[bytes]:
    """The frames of a reply that failed. Raises `BadArgument` unless the code is visible ASCII."""
    code = encode_text(reply.code, "error code", bytes_min=1, bytes_max=ERROR_CODE_BYTES_MAX)
    if not _is_visible_ascii(code):
        raise BadArgument(f"error code {reply.code!a} is not visible ASCII")
    text = encode_clipped(reply.text, bytes_max=ERROR_TEXT_BYTES_MAX)
    return encode_call(request_id, ERROR_MSG_ID, [code, text])


def decode_error(payload: list[bytes]) -> ErrorReply:
    """The failure in a payload whose msgId is `ERROR_MSG_ID`. Raises `BadFrame`, and nothing else."""
    if len(payload) < 2:
        raise BadFrame(f"an error reply has a code and a text, not {len(payload)} parts")
    code = decode_text(payload[0], "error code", bytes_min=1, bytes_max=ERROR_CODE_BYTES_MAX)
    if not _is_visible_ascii(payload[0]):
        raise BadFrame(f"error code {code!a} is not visible ASCII")
    text = decode_text(payload[1], "error text", bytes_min=0, bytes_max=ERROR_TEXT_BYTES_MAX)
    return ErrorReply(code, text)


def _is_visible_ascii(frame: bytes) -> bool:
    return all(0x21 <= byte <= 0x7E for byte in frame)
