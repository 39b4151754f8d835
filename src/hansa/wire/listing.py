"""SERVICE_LIST and REGISTRY_SYNC: the providers of services, as registries tell discoveries and each other.

Both have the same layout: number, registry id (u32), list_seq (u64), service count (u32), then per service
its name, its provider count and three frames a provider (endpoint, routing id, weight). Frames of hansa's own
may follow, each with a tag, so that other frames there are ignored:

- claims: the tag, then nine bytes a provider in list order: the claim's epoch (u64), flags (bit 0: orphaned,
  its provider's connection is gone and its heartbeats are not overdue yet);
- tombstones: the tag, then for each removed entry the service and the endpoint, each behind one length byte,
  and the epoch (u64) up to which its claims are dead;
- settling: the tag alone. The registry has just started and waits for its providers to come back: what is not
  in this list may only not have come yet.

A list is mostly the same from one broadcast to the next. `encode_block` gives the wire form of one service,
to be kept and put together by `encode_wire`; a `ListReader` decodes only the services that have changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hansa.errors import BadArgument, BadFrame
from hansa.ids import check_routing_id
from hansa.limits import (
    ENDPOINT_BYTES_MAX,
    PARTS_MAX,
    PROVIDERS_MAX,
    ROUTING_ID_BYTES_MAX,
    SERVICE_NAME_BYTES_MAX,
    SERVICES_MAX,
    TOMBSTONES_MAX,
)
from hansa.wire import frames as zmtp
from hansa.wire.fields import decode_text, decode_uint, encode_text, encode_uint

SERVICE_LIST: Final = 0x0005
REGISTRY_SYNC: Final = 0x0006

_HEAD_COUNT: Final = 4
_FRAMES_PER_SERVICE: Final = 2
_FRAMES_PER_PROVIDER: Final = 3
_CLAIMS_TAG: Final = b"HCL1"
_TOMBSTONES_TAG: Final = b"HTS1"
_SETTLING_TAG: Final = b"HST1"
_CLAIM_BYTES: Final = 9
_ORPHANED: Final = 0x01
# Room for hansa's frames in a list of as many frames as a message may have.
LIST_FRAMES_MAX: Final = PARTS_MAX - 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """One provider of a service, as a list tells it; weight 0 is read as 1, epoch 0 means none."""

    endpoint: str
    routing_id: bytes
    weight: int = 1
    epoch: int = 0
    orphaned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """An entry was removed: claims of it up to this epoch are dead."""

    service: str
    endpoint: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceList:
    """All that a registry knows, for discoveries.

    Of one registry's lists the one with the higher `list_seq` is newer.
    """

    registry_id: int
    list_seq: int
    services: Mapping[str, tuple[ProviderEntry, ...]]
    tombstones: tuple[Tombstone, ...] = ()
    is_settling: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySync:
    """The entries that were registered with this registry itself, for its peers. Layout as `ServiceList`."""

    registry_id: int
    list_seq: int
    services: Mapping[str, tuple[ProviderEntry, ...]]
    tombstones: tuple[Tombstone, ...] = ()
    is_settling: bool = False


class ProviderBlock(NamedTuple):
    """One provider of a list in wire form."""

    entry: ProviderEntry
    wire: bytes
    claim: bytes


class ServiceBlock(NamedTuple):
    """One service of a list in wire form, ready to stand before other frames."""

    wire: bytes
    claims: bytes
    frames_count: int
    providers_count: int


def encode_list(message: ServiceList | RegistrySync) -> list[bytes]:
    """The list's frames; hansa's own only if they say something. Raises `BadArgument`."""
    services = message.services
    number = SERVICE_LIST if isinstance(message, ServiceList) else REGISTRY_SYNC
    providers_count = sum(map(len, services.values()))
    frames_count = _HEAD_COUNT + _FRAMES_PER_SERVICE * len(services) + _FRAMES_PER_PROVIDER * providers_count
    _check_counts(len(services), providers_count, frames_count)
    frames = _head(number, message.registry_id, message.list_seq, len(services))
    claims = b""
    for service, providers in services.items():
        frames += _service_frames(service, providers)
        claims += _encode_claims(providers)
    if any(claims):
        frames.append(_CLAIMS_TAG + claims)
    if message.tombstones:
        frames.append(_encode_tombstones(message.tombstones))
    if message.is_settling:
        frames.append(_SETTLING_TAG)
    return frames


def encode_block(
    service: str, providers: Sequence[ProviderEntry], known: dict[str, ProviderBlock] | None = None
) -> ServiceBlock:
    """The wire form of one service, to be kept until it changes. Raises `BadArgument`.

    `known` keeps the wire form of its providers, by endpoint, from one call to the next: a provider that is
    the same object as before is not encoded again.
    """
    blocks: list[ProviderBlock] = []
    for entry in providers:
        block = known.get(entry.endpoint) if known is not None else None
        if block is None or block.entry is not entry:
            block = ProviderBlock(entry, _before_more(_provider_frames(entry)), _encode_claim(entry))
        blocks.append(block)
    if known is not None:
        known.clear()
        known.update((block.entry.endpoint, block) for block in blocks)
    head = _before_more(_service_head(service, len(providers)))
    return ServiceBlock(
        b"".join([head, *(block.wire for block in blocks)]),
        b"".join([block.claim for block in blocks]),
        _FRAMES_PER_SERVICE + _FRAMES_PER_PROVIDER * len(providers),
        len(providers),
    )


def encode_wire(
    number: int,
    registry_id: int,
    list_seq: int,
    blocks: Sequence[ServiceBlock],
    tombstones: Sequence[Tombstone] = (),
    *,
    is_settling: bool = False,
) -> list[bytes]:
    """A whole list in wire form, in a few pieces; hansa's own frames always close it. Raises `BadArgument`.

    `number` is `SERVICE_LIST` or `REGISTRY_SYNC`.
    """
    _check_counts(
        len(blocks),
        sum(block.providers_count for block in blocks),
        _HEAD_COUNT + sum(block.frames_count for block in blocks),
    )
    head = _before_more(_head(number, registry_id, list_seq, len(blocks)))
    tail: list[bytes] = []
    claims = b"".join([_CLAIMS_TAG, *(block.claims for block in blocks)])
    settling = [_SETTLING_TAG] if is_settling else []
    zmtp.encode([claims, _encode_tombstones(tombstones), *settling], tail)
    return [b"".join([head, *(block.wire for block in blocks), *tail])]


def decode_list(frames: Sequence[bytes]) -> ServiceList | RegistrySync:
    """The list in these frames, which begin with its number. Raises `BadFrame`, and nothing else."""
    return ListReader().read(frames)


class ListReader:
    """Decodes the lists of one registry, one after another.

    A service whose frames are those of the list before is the same tuple as before, so that callers that
    compare lists need not look into it.
    """

    def __init__(self) -> None:
        self._services: dict[bytes, _Read] = {}

    def read(self, frames: Sequence[bytes]) -> ServiceList | RegistrySync:
        """As `decode_list`. A list that is refused changes nothing here."""
        if len(frames) < _HEAD_COUNT or len(frames) > PARTS_MAX:
            raise BadFrame(f"a list has {_HEAD_COUNT} to {PARTS_MAX} frames, not {len(frames)}")
        number = decode_uint(frames[0], "message number", size=2)
        if number not in (SERVICE_LIST, REGISTRY_SYNC):
            raise BadFrame(f"message 0x{number:04x} is not a list")
        registry_id = decode_uint(frames[1], "registry id", size=4)
        list_seq = decode_uint(frames[2], "list_seq", size=8)
        blocks, end, providers_count = _split(frames)
        claims, tombstones, is_settling = _extensions(frames, end, providers_count)
        read: dict[bytes, _Read] = {}
        services: dict[str, tuple[ProviderEntry, ...]] = {}
        claims_at = 0
        for name, provider_frames in blocks:
            claims_end = claims_at + len(provider_frames) // _FRAMES_PER_PROVIDER * _CLAIM_BYTES
            known = self._services.get(name)
            own_claims = claims[claims_at:claims_end]
            if known is None or known.frames != provider_frames or known.claims != own_claims:
                known = _read_service(name, provider_frames, own_claims, known)
            if name in read:
                raise BadFrame(f"service {known.service!r} is twice in a list")
            read[name] = known
            services[known.service] = known.providers
            claims_at = claims_end
        self._services = read
        kind = ServiceList if number == SERVICE_LIST else RegistrySync
        return kind(
            registry_id=registry_id,
            list_seq=list_seq,
            services=services,
            tombstones=tombstones,
            is_settling=is_settling,
        )


class _Read(NamedTuple):
    service: str
    frames: Sequence[bytes]
    claims: bytes
    providers: tuple[ProviderEntry, ...]


def _split(frames: Sequence[bytes]) -> tuple[list[tuple[bytes, Sequence[bytes]]], int, int]:
    """The frames by service (name, frames of its providers), where they end, and how many providers."""
    service_count = decode_uint(frames[3], "service count", size=4)
    at = _HEAD_COUNT
    # A peer's counts are compared with what it sent before anything is allocated for them.
    if service_count > SERVICES_MAX or _FRAMES_PER_SERVICE * service_count > len(frames) - at:
        raise BadFrame(f"a list claims {service_count} services in {len(frames) - at} frames")
    blocks: list[tuple[bytes, Sequence[bytes]]] = []
    providers_count = 0
    for _ in range(service_count):
        if len(frames) - at < _FRAMES_PER_SERVICE:
            raise BadFrame(f"a list ends after {len(blocks)} of {service_count} services")
        count = decode_uint(frames[at + 1], "provider count", size=4)
        start = at + _FRAMES_PER_SERVICE
        providers_count += count
        if providers_count > PROVIDERS_MAX or _FRAMES_PER_PROVIDER * count > len(frames) - start:
            raise BadFrame(f"a service claims {count} providers in {len(frames) - start} frames")
        end = start + _FRAMES_PER_PROVIDER * count
        blocks.append((frames[at], frames[start:end]))
        at = end
    return blocks, at, providers_count


def _extensions(
    frames: Sequence[bytes], at: int, providers_count: int
) -> tuple[bytes, tuple[Tombstone, ...], bool]:
    claims = b""
    tombstones: tuple[Tombstone, ...] = ()
    is_settling = False
    for frame in frames[at:]:
        if frame.startswith(_CLAIMS_TAG):
            claims = frame[len(_CLAIMS_TAG) :]
            if len(claims) != providers_count * _CLAIM_BYTES:
                raise BadFrame(f"{len(claims)} bytes of claims do not fit {providers_count} providers")
        elif frame.startswith(_TOMBSTONES_TAG):
            tombstones = _decode_tombstones(frame)
        elif frame == _SETTLING_TAG:
            is_settling = True
    return claims, tombstones, is_settling


def _read_service(name: bytes, frames: Sequence[bytes], claims: bytes, before: _Read | None) -> _Read:
    service = decode_text(name, "service name", bytes_min=1, bytes_max=SERVICE_NAME_BYTES_MAX)
    known = {} if before is None else _by_endpoint(before)
    entries = []
    for number, at in enumerate(range(0, len(frames), _FRAMES_PER_PROVIDER)):
        claim = claims[number * _CLAIM_BYTES : (number + 1) * _CLAIM_BYTES]
        told = (frames[at + 1], frames[at + 2], claim)
        same = known.get(frames[at])
        # An unchanged service is the same object, so that only the others cost anything.
        if same is not None and same[0] == told:
            entries.append(same[1])
        else:
            entries.append(_decode_provider(frames[at], *told))
    return _Read(service, frames, claims, tuple(entries))


def _by_endpoint(read: _Read) -> dict[bytes, tuple[tuple[bytes, bytes, bytes], ProviderEntry]]:
    frames, claims = read.frames, read.claims
    return {
        frames[at]: (
            (frames[at + 1], frames[at + 2], claims[n * _CLAIM_BYTES : (n + 1) * _CLAIM_BYTES]),
            read.providers[n],
        )
        for n, at in enumerate(range(0, len(frames), _FRAMES_PER_PROVIDER))
    }


def _decode_provider(endpoint: bytes, routing_id: bytes, weight: bytes, claim: bytes) -> ProviderEntry:
    if not 1 <= len(routing_id) <= ROUTING_ID_BYTES_MAX:
        raise BadFrame(f"a routing id has 1 to {ROUTING_ID_BYTES_MAX} bytes, not {len(routing_id)}")
    return ProviderEntry(
        endpoint=decode_text(endpoint, "endpoint", bytes_min=1, bytes_max=ENDPOINT_BYTES_MAX),
        routing_id=routing_id,
        weight=decode_uint(weight, "weight", size=4) or 1,
        epoch=int.from_bytes(claim[:8], "little"),
        orphaned=bool(claim and claim[8] & _ORPHANED),
    )


def _decode_tombstones(frame: bytes) -> tuple[Tombstone, ...]:
    tombstones: list[Tombstone] = []
    at = len(_TOMBSTONES_TAG)
    while at < len(frame):
        if len(tombstones) == TOMBSTONES_MAX:
            raise BadFrame(f"a list has more than {TOMBSTONES_MAX} tombstones")
        service, at = _decode_short(frame, at, "service name")
        endpoint, at = _decode_short(frame, at, "endpoint")
        if len(frame) < at + 8:
            raise BadFrame("the tombstones end within an epoch")
        epoch = int.from_bytes(frame[at : at + 8], "little")
        tombstones.append(Tombstone(service=service, endpoint=endpoint, epoch=epoch))
        at += 8
    return tuple(tombstones)


def _decode_short(frame: bytes, at: int, field: str) -> tuple[str, int]:
    end = at + 1 + frame[at] if at < len(frame) else len(frame) + 1
    if end > len(frame):
        raise BadFrame(f"the tombstones end within a {field}")
    return decode_text(frame[at + 1 : end], field, bytes_min=1, bytes_max=255), end


def _encode_tombstones(tombstones: Iterable[Tombstone]) -> bytes:
    pieces = [_TOMBSTONES_TAG]
    for count, tombstone in enumerate(tombstones, 1):
        if count > TOMBSTONES_MAX:
            raise BadArgument(f"a list has at most {TOMBSTONES_MAX} tombstones")
        for text, field in ((tombstone.service, "service name"), (tombstone.endpoint, "endpoint")):
            encoded = encode_text(text, field, bytes_min=1, bytes_max=255)
            pieces += (bytes((len(encoded),)), encoded)
        pieces.append(encode_uint(tombstone.epoch, "epoch", size=8))
    return b"".join(pieces)


def _encode_claims(providers: Iterable[ProviderEntry]) -> bytes:
    return b"".join(map(_encode_claim, providers))


def _encode_claim(entry: ProviderEntry) -> bytes:
    return encode_uint(entry.epoch, "epoch", size=8) + (b"\x01" if entry.orphaned else b"\x00")


def _before_more(frames: list[bytes]) -> bytes:
    """The wire form of frames that are followed by others."""
    pieces: list[bytes] = []
    # With an empty frame after them, so that all of them say that more follow.
    zmtp.encode([*frames, b""], pieces)
    return b"".join(pieces[:-2])


def _head(number: int, registry_id: int, list_seq: int, service_count: int) -> list[bytes]:
    if number not in (SERVICE_LIST, REGISTRY_SYNC):
        raise BadArgument(f"message 0x{number:04x} is not a list")
    return [
        number.to_bytes(2, "little"),
        encode_uint(registry_id, "registry id", size=4),
        encode_uint(list_seq, "list_seq", size=8),
        encode_uint(service_count, "service count", size=4),
    ]


def _service_frames(service: str, providers: Sequence[ProviderEntry]) -> list[bytes]:
    frames = _service_head(service, len(providers))
    for provider in providers:
        frames += _provider_frames(provider)
    return frames


def _service_head(service: str, providers_count: int) -> list[bytes]:
    return [
        encode_text(service, "service name", bytes_min=1, bytes_max=SERVICE_NAME_BYTES_MAX),
        encode_uint(providers_count, "provider count", size=4),
    ]


def _provider_frames(provider: ProviderEntry) -> list[bytes]:
    return [
        encode_text(provider.endpoint, "endpoint", bytes_min=1, bytes_max=ENDPOINT_BYTES_MAX),
        check_routing_id(provider.routing_id),
        encode_uint(provider.weight, "weight", size=4),
    ]


def _check_counts(services_count: int, providers_count: int, frames_count: int) -> None:
    if services_count > SERVICES_MAX:
        raise BadArgument(f"a list has at most {SERVICES_MAX} services, not {services_count}")
    if providers_count > PROVIDERS_MAX:
        raise BadArgument(f"a list has at most {PROVIDERS_MAX} providers, not {providers_count}")
    if frames_count > LIST_FRAMES_MAX:
        raise BadArgument(f"a list has at most {LIST_FRAMES_MAX} frames, this one needs {frames_count}")
