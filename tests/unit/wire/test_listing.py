"""Lists in wire form: epochs, tombstones, kept blocks, and readers that decode only what changed."""

from dataclasses import replace

import pytest

from hansa.errors import BadArgument, BadFrame
from hansa.limits import PARTS_MAX, PROVIDERS_MAX, SERVICES_MAX, TOMBSTONES_MAX
from hansa.wire.frames import FrameParser
from hansa.wire.listing import (
    REGISTRY_SYNC,
    SERVICE_LIST,
    ListReader,
    ProviderBlock,
    ProviderEntry,
    RegistrySync,
    ServiceBlock,
    ServiceList,
    Tombstone,
    encode_block,
    encode_wire,
)
from hansa.wire.registry import REGISTER, decode, encode
from tests.support.list_frames import ENDPOINT, LIST_HEAD, LIST_HEX, SERVICE, frames_of

ONE = ProviderEntry(endpoint="tcp://a:1", routing_id=b"a")
CLAIMED = {
    SERVICE: (
        ProviderEntry(endpoint=ENDPOINT, routing_id=b"\x01\x00\x00\x00\x01", weight=1, epoch=7),
        ProviderEntry(
            endpoint="tcp://[::1]:7", routing_id=b"alice", weight=10, epoch=2**64 - 1, orphaned=True
        ),
    ),
    "é": (),
}
TOMBSTONES = (Tombstone(service="é", endpoint="tcp://a:1", epoch=0x0102030405060708),)
CLAIMS_HEX = "48434c31" + "0700000000000000" + "00" + "ffffffffffffffff" + "01"
TOMBSTONES_HEX = "48545331" + "02c3a9" + "097463703a2f2f613a31" + "0807060504030201"


@pytest.mark.parametrize("kind", [ServiceList, RegistrySync])
def test_epochs_and_tombstones_follow_the_list(kind: type[ServiceList] | type[RegistrySync]) -> None:
    message = kind(
        registry_id=0x0D0C0B0A, list_seq=0x0123456789ABCDEF, services=CLAIMED, tombstones=TOMBSTONES
    )
    number = "0500" if kind is ServiceList else "0600"
    golden = [number, *LIST_HEX, CLAIMS_HEX, TOMBSTONES_HEX]
    assert [frame.hex() for frame in encode(message)] == golden
    assert decode(frames_of(*golden)) == message
    assert decode([*frames_of(*golden[:-2]), b"other", *frames_of(*golden[-2:]), b"frames"]) == message


def in_frames(pieces: list[bytes]) -> list[bytes]:
    """What a peer reads from this wire form."""
    parser = FrameParser(
        frame_bytes_max=2**20, message_bytes_max=2**22, parts_max=PARTS_MAX, command_bytes_max=255
    )
    parser.commands_only = False
    (frames,) = parser.feed(b"".join(pieces))
    return frames


@pytest.mark.parametrize(("number", "kind"), [(SERVICE_LIST, ServiceList), (REGISTRY_SYNC, RegistrySync)])
def test_a_list_can_be_put_together_from_kept_blocks(
    number: int, kind: type[ServiceList] | type[RegistrySync]
) -> None:
    blocks = [encode_block(name, providers) for name, providers in CLAIMED.items()]
    frames = in_frames(encode_wire(number, 3, 9, blocks, TOMBSTONES))
    assert decode(frames) == kind(registry_id=3, list_seq=9, services=CLAIMED, tombstones=TOMBSTONES)
    assert decode(in_frames(encode_wire(number, 3, 9, []))) == kind(registry_id=3, list_seq=9, services={})


def test_within_a_service_only_what_changed_is_encoded_again() -> None:
    known: dict[str, ProviderBlock] = {}
    first, second = CLAIMED[SERVICE]
    assert encode_block(SERVICE, (first, second), known) == encode_block(SERVICE, (first, second))
    kept = dict(known)
    heavier = replace(second, weight=99)
    assert encode_block(SERVICE, (first, heavier), known) == encode_block(SERVICE, (first, heavier))
    assert known[first.endpoint] is kept[first.endpoint]
    assert known[second.endpoint].entry is heavier
    encode_block(SERVICE, (heavier,), known)
    assert list(known) == [heavier.endpoint]


def test_a_registry_that_has_just_started_says_so() -> None:
    message = ServiceList(registry_id=1, list_seq=2, services={}, is_settling=True)
    golden = ["0500", "01000000", "0200000000000000", "00000000", "48535431"]
    assert [frame.hex() for frame in encode(message)] == golden
    assert decode(frames_of(*golden)) == message
    assert decode(in_frames(encode_wire(SERVICE_LIST, 1, 2, [], is_settling=True))) == message


def test_a_reader_gives_unchanged_services_as_the_same_value() -> None:
    reader = ListReader()
    first = reader.read(encode(ServiceList(registry_id=1, list_seq=1, services=CLAIMED)))
    changed = {**CLAIMED, "é": (ONE,)}
    second = reader.read(encode(ServiceList(registry_id=1, list_seq=2, services=changed)))
    assert second.services == changed
    assert second.services[SERVICE] is first.services[SERVICE]
    assert second.services["é"] is not first.services["é"]


def test_within_a_changed_service_the_other_providers_are_the_same_values() -> None:
    reader = ListReader()
    first, second = CLAIMED[SERVICE]
    heavier = replace(second, weight=99)
    before = reader.read(encode(ServiceList(registry_id=1, list_seq=1, services={SERVICE: (first, second)})))
    after = reader.read(encode(ServiceList(registry_id=1, list_seq=2, services={SERVICE: (heavier, first)})))
    assert after.services[SERVICE] == (heavier, first)
    assert after.services[SERVICE][1] is before.services[SERVICE][0]


def test_a_reader_notices_a_new_epoch_alone() -> None:
    reader = ListReader()
    for epoch in (1, 2):
        services = {"a": (ProviderEntry(endpoint="b", routing_id=b"c", epoch=epoch),)}
        message = ServiceList(registry_id=1, list_seq=epoch, services=services)
        assert reader.read(encode(message)) == message


def test_a_refused_list_leaves_a_reader_as_it_was() -> None:
    reader = ListReader()
    first = reader.read(encode(ServiceList(registry_id=1, list_seq=1, services=CLAIMED)))
    with pytest.raises(BadFrame):
        reader.read(frames_of(*LIST_HEAD, "01000000", "61"))
    again = reader.read(encode(ServiceList(registry_id=1, list_seq=2, services=CLAIMED)))
    assert again.services[SERVICE] is first.services[SERVICE]


def test_only_lists_have_the_head_of_a_list() -> None:
    with pytest.raises(BadArgument):
        encode_wire(REGISTER, 1, 1, [])


@pytest.mark.parametrize(
    "blocks",
    [
        [encode_block("a", (ONE,) * (PROVIDERS_MAX + 1))],
        [encode_block("a", ())] * (SERVICES_MAX + 1),
        [encode_block("a", (ONE,) * PROVIDERS_MAX), *[encode_block("a", ())] * 3_000],
    ],
    ids=["providers", "services", "frames"],
)
def test_what_is_put_together_is_bounded_too(blocks: list[ServiceBlock]) -> None:
    with pytest.raises(BadArgument):
        encode_wire(SERVICE_LIST, 1, 1, blocks)


def test_tombstones_are_bounded_both_ways() -> None:
    grave = Tombstone(service="a", endpoint="b", epoch=1)
    full = ServiceList(registry_id=1, list_seq=1, services={}, tombstones=(grave,) * TOMBSTONES_MAX)
    frames = encode(full)
    assert decode(frames) == full
    with pytest.raises(BadArgument):
        encode(
            ServiceList(registry_id=1, list_seq=1, services={}, tombstones=(grave,) * (TOMBSTONES_MAX + 1))
        )
    with pytest.raises(BadFrame):
        decode([*frames[:-1], frames[-1] + frames[-1][4:16]])
