"""Messages between providers, registries and discoveries: 0x0001 to 0x0007.

Frame 0 is the message's number (u16), the rest are its fields in order. Frames after the known ones are
ignored, so that later versions may add some. UNREGISTER and HEARTBEAT carry the key of an entry: the first
two fields of REGISTER. REGISTER carries no routing id: the registry takes it from the envelope. The two lists
are in `listing`.

REGISTER_ACK names neither the service nor the message that it answers. So a provider of hansa's adds a frame
to its messages, a tag and a number (u32) of its choice, the token, and the answer returns the token. A
registry that does not know tokens answers without one; a provider that does not know them is answered without
one.

A stamp (u64) may follow in the token's frame: the provider's epoch when it sent this. From it a registry
knows that a message is late; the stamp of the answer says which epoch the provider has to go beyond.

A positive REGISTER_ACK may carry one more frame, a tag and a number of milliseconds (u32): the heartbeat
timeout of the registry. A provider that knows it sends heartbeats often enough never to be taken for dead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from hansa.errors import BadArgument, BadFrame
from hansa.limits import ENDPOINT_BYTES_MAX, ERROR_TEXT_BYTES_MAX, PARTS_MAX, SERVICE_NAME_BYTES_MAX
from hansa.wire.fields import decode_text, decode_uint, encode_clipped, encode_text, encode_uint
from hansa.wire.listing import (
    REGISTRY_SYNC,
    SERVICE_LIST,
    RegistrySync,
    ServiceList,
    decode_list,
    encode_list,
)

REGISTER: Final = 0x0001
REGISTER_ACK: Final = 0x0002
UNREGISTER: Final = 0x0003
HEARTBEAT: Final = 0x0004
UPDATE_WEIGHT: Final = 0x0007

_TOKEN_TAG: Final = b"HTK1"
_HEARTBEAT_TAG: Final = b"HHB1"


class AckStatus(IntEnum):
    """The result of a registration."""

    OK = 0x00
    DUPLICATE = 0x01
    BAD_ENDPOINT = 0x02
    OTHER = 0xFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """A provider offers a service. An empty endpoint asks the registry to find it; weight 0 is read as 1."""

    service: str
    endpoint: str
    weight: int = 1
    token: int | None = None
    stamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterAck:
    """The registry's answer: the endpoint as it was entered, or why it was not. A long error is sent cut.

    The stamp is the highest epoch that the registry knows for the entry's key. An entry that is silent for
    `heartbeat_timeout_ms` is removed; None when the registry does not say.
    """

    status: AckStatus
    endpoint: str = ""
    error: str = ""
    heartbeat_timeout_ms: int | None = None
    token: int | None = None
    stamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregister:
    """A provider takes an entry back."""

    service: str
    endpoint: str
    token: int | None = None
    stamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A provider confirms an entry."""

    service: str
    endpoint: str
    token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateWeight:
    """A provider changes an entry's weight; 0 is read as 1."""

    service: str
    endpoint: str
    weight: int
    token: int | None = None
    stamp: int | None = None


RegistryMessage: TypeAlias = (
    Register | RegisterAck | Unregister | Heartbeat | ServiceList | RegistrySync | UpdateWeight
)


def encode(message: RegistryMessage) -> list[bytes]:
    """The message's frames. Raises `BadArgument` for a value that could not be decoded again."""
    match message:
        case ServiceList() | RegistrySync():
            return encode_list(message)
        case Register():
            endpoint = _encode_endpoint(message.endpoint, 0)
            weight = _encode_weight(message.weight)
            frames = [_number(REGISTER), _encode_service_name(message.service), endpoint, weight]
        case RegisterAck():
            endpoint = _encode_endpoint(message.endpoint, 0)
            error = encode_clipped(message.error, bytes_max=ERROR_TEXT_BYTES_MAX)
            frames = [_number(REGISTER_ACK), bytes((message.status,)), endpoint, error]
            if message.heartbeat_timeout_ms is not None:
                timeout = encode_uint(message.heartbeat_timeout_ms, "heartbeat timeout", size=4)
                frames.append(_HEARTBEAT_TAG + timeout)
        case Unregister():
            frames = [_number(UNREGISTER), *_encode_key(message.service, message.endpoint)]
        case Heartbeat():
            frames = [_number(HEARTBEAT), *_encode_key(message.service, message.endpoint)]
        case UpdateWeight():
            key = _encode_key(message.service, message.endpoint)
            frames = [_number(UPDATE_WEIGHT), *key, _encode_weight(message.weight)]
    stamp = None if isinstance(message, Heartbeat) else message.stamp
    if message.token is not None:
        said_at = b"" if stamp is None else encode_uint(stamp, "stamp", size=8)
        frames.append(_TOKEN_TAG + encode_uint(message.token, "token", size=4) + said_at)
    elif stamp is not None:
        raise BadArgument("a stamp stands behind a token: give the message one")
    return frames


def decode(frames: Sequence[bytes]) -> RegistryMessage:
    """The message in these frames. Raises `BadFrame`, and nothing else, when they hold none."""
    if not frames:
        raise BadFrame("a registry message has at least a number")
    if len(frames) > PARTS_MAX:
        raise BadFrame(f"a message has at most {PARTS_MAX} frames, not {len(frames)}")
    number = decode_uint(frames[0], "message number", size=2)
    if number in (SERVICE_LIST, REGISTRY_SYNC):
        return decode_list(frames)
    if number == REGISTER_ACK:
        return _decode_ack(frames)
    if number not in (REGISTER, UNREGISTER, HEARTBEAT, UPDATE_WEIGHT):
        raise BadFrame(f"message 0x{number:04x} is not known")
    _expect(frames, 4 if number == UPDATE_WEIGHT else 3)
    service = _decode_service_name(frames[1])
    endpoint = _decode_endpoint(frames[2], 0 if number == REGISTER else 1)
    if number in (HEARTBEAT, UNREGISTER):
        token, stamp = _token(frames, 3)
        if number == HEARTBEAT:
            return Heartbeat(service=service, endpoint=endpoint, token=token)
        return Unregister(service=service, endpoint=endpoint, token=token, stamp=stamp)
    weight = _decode_weight(frames[3]) if len(frames) > 3 else 1
    token, stamp = _token(frames, 4)
    if number == UPDATE_WEIGHT:
        return UpdateWeight(service=service, endpoint=endpoint, weight=weight, token=token, stamp=stamp)
    return Register(service=service, endpoint=endpoint, weight=weight, token=token, stamp=stamp)


def _decode_ack(frames: Sequence[bytes]) -> RegisterAck:
    _expect(frames, 2)
    number = decode_uint(frames[1], "status", size=1)
    try:
        status = AckStatus(number)
    except ValueError:
        raise BadFrame(f"registration status 0x{number:02x} is not known") from None
    # The endpoint matters on success and the error on failure; a peer may omit the other one.
    endpoint = _decode_endpoint(frames[2], 0) if len(frames) > 2 else ""
    error = ""
    if len(frames) > 3:
        error = decode_text(frames[3], "error text", bytes_min=0, bytes_max=ERROR_TEXT_BYTES_MAX)
    token, stamp = _token(frames, 4)
    return RegisterAck(
        status=status,
        endpoint=endpoint,
        error=error,
        heartbeat_timeout_ms=_heartbeat_timeout_ms(frames, 4),
        token=token,
        stamp=stamp,
    )


def _token(frames: Sequence[bytes], at: int) -> tuple[int | None, int | None]:
    for frame in frames[at:]:
        if frame.startswith(_TOKEN_TAG):
            number, said_at = frame[4:8], frame[8:]
            stamp = decode_uint(said_at, "stamp", size=8) if said_at else None
            return decode_uint(number, "token", size=4), stamp
    return None, None


def _heartbeat_timeout_ms(frames: Sequence[bytes], at: int) -> int | None:
    for frame in frames[at:]:
        if frame.startswith(_HEARTBEAT_TAG):
            return decode_uint(frame[4:], "heartbeat timeout", size=4)
    return None


def _expect(frames: Sequence[bytes], frames_min: int) -> None:
    if len(frames) < frames_min:
        raise BadFrame(f"message 0x{frames[0][::-1].hex()} has {len(frames)} frames instead of {frames_min}")


def _number(number: int) -> bytes:
    return number.to_bytes(2, "little")


def _encode_service_name(service: str) -> bytes:
    return encode_text(service, "service name", bytes_min=1, bytes_max=SERVICE_NAME_BYTES_MAX)


def _decode_service_name(frame: bytes) -> str:
    return decode_text(frame, "service name", bytes_min=1, bytes_max=SERVICE_NAME_BYTES_MAX)


def _encode_endpoint(endpoint: str, bytes_min: int) -> bytes:
    return encode_text(endpoint, "endpoint", bytes_min=bytes_min, bytes_max=ENDPOINT_BYTES_MAX)


def _decode_endpoint(frame: bytes, bytes_min: int) -> str:
    return decode_text(frame, "endpoint", bytes_min=bytes_min, bytes_max=ENDPOINT_BYTES_MAX)


def _encode_key(service: str, endpoint: str) -> tuple[bytes, bytes]:
    return _encode_service_name(service), _encode_endpoint(endpoint, 1)


def _encode_weight(weight: int) -> bytes:
    return encode_uint(weight, "weight", size=4)


def _decode_weight(frame: bytes) -> int:
    return decode_uint(frame, "weight", size=4) or 1
