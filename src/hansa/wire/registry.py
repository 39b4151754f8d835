"""What providers, registries and discoveries say to each other: messages 0x0001 to 0x0007.

Frame 0 is the message's number (u16), the rest are its fields in order. Frames after those a message is
known to have are ignored, so that later versions may add some. UNREGISTER and HEARTBEAT carry the key of an
entry, as the first two fields of REGISTER do. REGISTER carries no routing id: the registry takes it from the
envelope.

A list is mostly the same from one broadcast to the next, so its parts can be encoded one by one and kept:
`encode_list_head` and `encode_service` give the frames that `encode` would.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from hansa.errors import BadArgument, BadFrame
from hansa.ids import check_routing_id
from hansa.limits import (
    ENDPOINT_BYTES_MAX,
    ERROR_TEXT_BYTES_MAX,
    PARTS_MAX,
    PROVIDERS_MAX,
    ROUTING_ID_BYTES_MAX,
    SERVICE_NAME_BYTES_MAX,
    SERVICES_MAX,
)
from hansa.wire.fields import decode_text, decode_uint, encode_clipped, encode_text, encode_uint

REGISTER: Final = 0x0001
REGISTER_ACK: Final = 0x0002
UNREGISTER: Final = 0x0003
HEARTBEAT: Final = 0x0004
SERVICE_LIST: Final = 0x0005
REGISTRY_SYNC: Final = 0x0006
UPDATE_WEIGHT: Final = 0x0007

_FRAMES_PER_PROVIDER: Final = 3


class AckStatus(IntEnum):
    """How a registration ended."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterAck:
    """The registry's answer: the endpoint as it was entered, or why it was not. A long error is sent cut."""

    status: AckStatus
    endpoint: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregister:
    """A provider takes an entry back."""

    service: str
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A provider stands by an entry."""

    service: str
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateWeight:
    """A provider changes an entry's weight; 0 is read as 1."""

    service: str
    endpoint: str
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """One provider of a service, as a list tells it; weight 0 is read as 1."""

    endpoint: str
    routing_id: bytes
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceList:
    """All that a registry knows, for discoveries. Of one registry's lists the higher `list_seq` is newer."""

    registry_id: int
    list_seq: int
    services: Mapping[str, tuple[ProviderEntry, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySync:
    """What was registered with this registry itself, for its peers. Laid out as `ServiceList`."""

    registry_id: int
    list_seq: int
    services: Mapping[str, tuple[ProviderEntry, ...]]


RegistryMessage: TypeAlias = (
    Register | RegisterAck | Unregister | Heartbeat | ServiceList | RegistrySync | UpdateWeight
)


def encode(message: RegistryMessage) -> list[bytes]:
    """The message's frames. Raises `BadArgument` for a value that could not be decoded again."""
    match message:
        case ServiceList():
            return _encode_list(SERVICE_LIST, message)
        case RegistrySync():
            return _encode_list(REGISTRY_SYNC, message)
        case Register():
            endpoint = _encode_endpoint(message.endpoint, 0)
            weight = _encode_weight(message.weight)
            return [_number(REGISTER), _encode_service_name(message.service), endpoint, weight]
        case RegisterAck():
            endpoint = _encode_endpoint(message.endpoint, 0)
            error = encode_clipped(message.error, bytes_max=ERROR_TEXT_BYTES_MAX)
            return [_number(REGISTER_ACK), bytes((message.status,)), endpoint, error]
        case Unregister():
            return [_number(UNREGISTER), *_encode_key(message.service, message.endpoint)]
        case Heartbeat():
            return [_number(HEARTBEAT), *_encode_key(message.service, message.endpoint)]
        case UpdateWeight():
            key = _encode_key(message.service, message.endpoint)
            return [_number(UPDATE_WEIGHT), *key, _encode_weight(message.weight)]


def encode_list_head(number: int, registry_id: int, list_seq: int, service_count: int) -> list[bytes]:
    """The four frames before the services of a list; `number` is `SERVICE_LIST` or `REGISTRY_SYNC`."""
    if number not in (SERVICE_LIST, REGISTRY_SYNC):
        raise BadArgument(f"message 0x{number:04x} is not a list")
    if service_count > SERVICES_MAX:
        raise BadArgument(f"a list has at most {SERVICES_MAX} services, not {service_count}")
    return [
        _number(number),
        encode_uint(registry_id, "registry id", size=4),
        encode_uint(list_seq, "list_seq", size=8),
        encode_uint(service_count, "service count", size=4),
    ]


def encode_service(service: str, providers: Sequence[ProviderEntry]) -> list[bytes]:
    """The frames of one service in a list."""
    if len(providers) > PROVIDERS_MAX:
        raise BadArgument(f"a list has at most {PROVIDERS_MAX} providers, not {len(providers)}")
    frames = [_encode_service_name(service), encode_uint(len(providers), "provider count", size=4)]
    for provider in providers:
        frames.append(_encode_endpoint(provider.endpoint, 1))
        frames.append(check_routing_id(provider.routing_id))
        frames.append(_encode_weight(provider.weight))
    return frames


def decode(frames: Sequence[bytes]) -> RegistryMessage:
    """The message in these frames. Raises `BadFrame`, and nothing else, when they hold none."""
    if not frames:
        raise BadFrame("a registry message has at least a number")
    if len(frames) > PARTS_MAX:
        raise BadFrame(f"a message has at most {PARTS_MAX} frames, not {len(frames)}")
    number = decode_uint(frames[0], "message number", size=2)
    if number in (SERVICE_LIST, REGISTRY_SYNC):
        return _decode_list(number, frames)
    if number == REGISTER_ACK:
        return _decode_ack(frames)
    if number not in (REGISTER, UNREGISTER, HEARTBEAT, UPDATE_WEIGHT):
        raise BadFrame(f"message 0x{number:04x} is not known")
    _expect(frames, 4 if number == UPDATE_WEIGHT else 3)
    service = _decode_service_name(frames[1])
    endpoint = _decode_endpoint(frames[2], 0 if number == REGISTER else 1)
    if number == HEARTBEAT:
        return Heartbeat(service=service, endpoint=endpoint)
    if number == UNREGISTER:
        return Unregister(service=service, endpoint=endpoint)
    weight = _decode_weight(frames[3]) if len(frames) > 3 else 1
    if number == UPDATE_WEIGHT:
        return UpdateWeight(service=service, endpoint=endpoint, weight=weight)
    return Register(service=service, endpoint=endpoint, weight=weight)


def _decode_ack(frames: Sequence[bytes]) -> RegisterAck:
    _expect(frames, 2)
    number = decode_uint(frames[1], "status", size=1)
    try:
        status = AckStatus(number)
    except ValueError:
        raise BadFrame(f"registration status 0x{number:02x} is not known") from None
    # The endpoint matters on success and the error on failure; a peer may leave out what has no meaning.
    endpoint = _decode_endpoint(frames[2], 0) if len(frames) > 2 else ""
    error = ""
    if len(frames) > 3:
        error = decode_text(frames[3], "error text", bytes_min=0, bytes_max=ERROR_TEXT_BYTES_MAX)
    return RegisterAck(status=status, endpoint=endpoint, error=error)


def _encode_list(number: int, message: ServiceList | RegistrySync) -> list[bytes]:
    services = message.services
    frames = encode_list_head(number, message.registry_id, message.list_seq, len(services))
    provider_count = sum(map(len, services.values()))
    if provider_count > PROVIDERS_MAX:
        raise BadArgument(f"a list has at most {PROVIDERS_MAX} providers, not {provider_count}")
    frame_count = len(frames) + 2 * len(services) + _FRAMES_PER_PROVIDER * provider_count
    if frame_count > PARTS_MAX:
        raise BadArgument(f"a message has at most {PARTS_MAX} frames, this list needs {frame_count}")
    for service, providers in services.items():
        frames += encode_service(service, providers)
    return frames


def _decode_list(number: int, frames: Sequence[bytes]) -> ServiceList | RegistrySync:
    _expect(frames, 4)
    registry_id = decode_uint(frames[1], "registry id", size=4)
    list_seq = decode_uint(frames[2], "list_seq", size=8)
    service_count = decode_uint(frames[3], "service count", size=4)
    at = 4
    # What a peer claims is compared with what it sent before anything is done for it.
    if service_count > SERVICES_MAX or 2 * service_count > len(frames) - at:
        raise BadFrame(f"a list claims {service_count} services in {len(frames) - at} frames")
    services: dict[str, tuple[ProviderEntry, ...]] = {}
    providers_left = PROVIDERS_MAX
    for _ in range(service_count):
        if len(frames) - at < 2:
            raise BadFrame(f"a list ends after {len(services)} of {service_count} services")
        service = _decode_service_name(frames[at])
        if service in services:
            raise BadFrame(f"service {service!r} is twice in a list")
        provider_count = decode_uint(frames[at + 1], "provider count", size=4)
        at += 2
        if provider_count > providers_left or _FRAMES_PER_PROVIDER * provider_count > len(frames) - at:
            raise BadFrame(f"a service claims {provider_count} providers in {len(frames) - at} frames")
        providers_left -= provider_count
        end = at + _FRAMES_PER_PROVIDER * provider_count
        services[service] = tuple(_decode_provider(frames, i) for i in range(at, end, _FRAMES_PER_PROVIDER))
        at = end
    kind = ServiceList if number == SERVICE_LIST else RegistrySync
    return kind(registry_id=registry_id, list_seq=list_seq, services=services)


def _decode_provider(frames: Sequence[bytes], at: int) -> ProviderEntry:
    endpoint = _decode_endpoint(frames[at], 1)
    routing_id = frames[at + 1]
    if not 1 <= len(routing_id) <= ROUTING_ID_BYTES_MAX:
        raise BadFrame(f"a routing id has 1 to {ROUTING_ID_BYTES_MAX} bytes, not {len(routing_id)}")
    return ProviderEntry(endpoint=endpoint, routing_id=routing_id, weight=_decode_weight(frames[at + 2]))


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
