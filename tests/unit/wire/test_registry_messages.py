"""Registry messages 0x0001 to 0x0007: golden bytes, round trips, and what must be refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument, BadFrame
from hansa.limits import PARTS_MAX, PROVIDERS_MAX, SERVICES_MAX
from hansa.wire.listing import (
    ProviderEntry,
    RegistrySync,
    ServiceList,
    Tombstone,
)
from hansa.wire.registry import (
    AckStatus,
    Heartbeat,
    Register,
    RegisterAck,
    RegistryMessage,
    Unregister,
    UpdateWeight,
    decode,
    encode,
)
from tests.support.hostile_frames import (
    arbitrary_frames,
    assert_refused_for_nothing,
    damaged,
    value_or_bad_frame,
)
from tests.support.list_frames import AT_10, ENDPOINT, LIST_HEAD, LIST_HEX, PAY, SERVICE, frames_of

SERVICES = {
    SERVICE: (
        ProviderEntry(endpoint=ENDPOINT, routing_id=b"\x01\x00\x00\x00\x01", weight=1),
        ProviderEntry(endpoint="tcp://[::1]:7", routing_id=b"alice", weight=10),
    ),
    "é": (),
}

GOLDEN: list[tuple[RegistryMessage, list[str]]] = [
    (Register(service=SERVICE, endpoint=ENDPOINT, weight=5), ["0100", PAY, AT_10, "05000000"]),
    (Register(service=SERVICE, endpoint=""), ["0100", PAY, "", "01000000"]),
    (Register(service="a", endpoint="b", weight=2**32 - 1), ["0100", "61", "62", "ffffffff"]),
    (RegisterAck(status=AckStatus.OK, endpoint=ENDPOINT), ["0200", "00", AT_10, ""]),
    (
        RegisterAck(status=AckStatus.DUPLICATE, error="taken"),
        ["0200", "01", "", "74616b656e"],
    ),
    (
        RegisterAck(status=AckStatus.BAD_ENDPOINT, endpoint="x", error="bad"),
        ["0200", "02", "78", "626164"],
    ),
    (
        RegisterAck(status=AckStatus.OTHER, error="not registered"),
        ["0200", "ff", "", "6e6f742072656769737465726564"],
    ),
    (Unregister(service=SERVICE, endpoint=ENDPOINT), ["0300", PAY, AT_10]),
    (Heartbeat(service=SERVICE, endpoint=ENDPOINT), ["0400", PAY, AT_10]),
    (
        ServiceList(registry_id=0x0D0C0B0A, list_seq=0x0123456789ABCDEF, services=SERVICES),
        ["0500", *LIST_HEX],
    ),
    (
        ServiceList(registry_id=1, list_seq=2, services={}),
        ["0500", "01000000", "0200000000000000", "00000000"],
    ),
    (
        RegistrySync(registry_id=0x0D0C0B0A, list_seq=0x0123456789ABCDEF, services=SERVICES),
        ["0600", *LIST_HEX],
    ),
    (UpdateWeight(service=SERVICE, endpoint=ENDPOINT, weight=7), ["0700", PAY, AT_10, "07000000"]),
]


@pytest.mark.parametrize(("message", "golden"), GOLDEN)
def test_messages_have_their_golden_bytes(message: RegistryMessage, golden: list[str]) -> None:
    assert [frame.hex() for frame in encode(message)] == golden
    assert decode(frames_of(*golden)) == message


@pytest.mark.parametrize(("message", "golden"), GOLDEN)
def test_frames_after_the_known_ones_are_ignored(message: RegistryMessage, golden: list[str]) -> None:
    assert decode([*frames_of(*golden), b"from", b"the future"]) == message


def test_a_registration_without_weight_has_weight_one() -> None:
    assert decode(frames_of("0100", "61", "62")) == Register(service="a", endpoint="b", weight=1)


def test_weight_zero_is_read_as_one() -> None:
    assert decode(frames_of("0100", "61", "62", "00000000")) == Register(service="a", endpoint="b", weight=1)
    assert decode(frames_of("0700", "61", "62", "00000000")) == UpdateWeight(
        service="a", endpoint="b", weight=1
    )
    listed = decode(
        frames_of(
            "0500", "01000000", "0200000000000000", "01000000", "61", "01000000", "62", "63", "00000000"
        )
    )
    assert isinstance(listed, ServiceList)
    assert listed.services["a"][0].weight == 1


def test_an_answer_may_leave_out_what_has_no_meaning() -> None:
    assert decode(frames_of("0200", "00")) == RegisterAck(status=AckStatus.OK)
    assert decode(frames_of("0200", "02", "78")) == RegisterAck(status=AckStatus.BAD_ENDPOINT, endpoint="x")


def test_a_long_error_is_cut_at_a_whole_character() -> None:
    sent = encode(RegisterAck(status=AckStatus.OTHER, error="é" * 1000))
    assert decode(sent) == RegisterAck(status=AckStatus.OTHER, error="é" * 512)


@pytest.mark.spec("DIS-31")
def test_a_heartbeat_timeout_follows_the_answer_and_precedes_the_token() -> None:
    message = RegisterAck(status=AckStatus.OK, endpoint=ENDPOINT, heartbeat_timeout_ms=2_000, token=7)
    golden = ["0200", "00", AT_10, "", "48484231d0070000", "48544b3107000000"]
    assert [frame.hex() for frame in encode(message)] == golden
    assert decode(frames_of(*golden)) == message
    # As any extension it may stand elsewhere behind the known frames, and among unknown ones.
    assert decode(frames_of(*golden[:4], "ffff", golden[5], golden[4])) == message
    with pytest.raises(BadFrame, match="heartbeat timeout"):
        decode(frames_of(*golden[:4], "48484231d007"))
    with pytest.raises(BadArgument, match="heartbeat timeout"):
        encode(RegisterAck(status=AckStatus.OK, heartbeat_timeout_ms=2**32))


@pytest.mark.parametrize(
    ("message", "golden"),
    [
        (Register(service="a", endpoint="b", token=5), ["0100", "61", "62", "01000000", "48544b3105000000"]),
        (Unregister(service="a", endpoint="b", token=0), ["0300", "61", "62", "48544b3100000000"]),
        (Heartbeat(service="a", endpoint="b", token=6), ["0400", "61", "62", "48544b3106000000"]),
        (
            UpdateWeight(service="a", endpoint="b", weight=1, token=7),
            ["0700", "61", "62", "01000000", "48544b3107000000"],
        ),
        (RegisterAck(status=AckStatus.OK, token=2**32 - 1), ["0200", "00", "", "", "48544b31ffffffff"]),
    ],
)
def test_a_token_follows_the_message(message: RegistryMessage, golden: list[str]) -> None:
    assert [frame.hex() for frame in encode(message)] == golden
    assert decode(frames_of(*golden)) == message


@pytest.mark.parametrize(
    ("message", "golden"),
    [
        (
            Register(service="a", endpoint="b", token=5, stamp=0x0102030405060708),
            ["0100", "61", "62", "01000000", "48544b31050000000807060504030201"],
        ),
        (
            Unregister(service="a", endpoint="b", token=0, stamp=0),
            ["0300", "61", "62", "48544b31000000000000000000000000"],
        ),
        (
            UpdateWeight(service="a", endpoint="b", weight=1, token=7, stamp=2**64 - 1),
            ["0700", "61", "62", "01000000", "48544b3107000000ffffffffffffffff"],
        ),
        (
            RegisterAck(status=AckStatus.OTHER, error="b", token=2, stamp=1),
            ["0200", "ff", "", "62", "48544b31020000000100000000000000"],
        ),
    ],
)
def test_a_stamp_follows_the_token_in_its_frame(message: RegistryMessage, golden: list[str]) -> None:
    assert [frame.hex() for frame in encode(message)] == golden
    assert decode(frames_of(*golden)) == message
    assert decode([*frames_of(*golden), b"from", b"the future"]) == message


def test_the_stamp_of_a_heartbeat_means_nothing() -> None:
    stamped = frames_of("0400", "61", "62", "48544b31060000000100000000000000")
    assert decode(stamped) == Heartbeat(service="a", endpoint="b", token=6)


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize(
    "head", [["0100", "61", "62", "01000000"], ["0200", "00", "", ""], ["0300", "61", "62"]]
)
@pytest.mark.parametrize("size", [size for size in range(20) if size not in (4, 12)])
def test_a_token_of_any_other_length_is_refused(head: list[str], size: int) -> None:
    with pytest.raises(BadFrame):
        decode([*frames_of(*head), b"HTK1" + bytes(size)])


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize(
    "hexes",
    [
        [],
        [""],
        ["01"],
        ["010000"],
        ["0000"],
        ["0800"],
        ["0001"],  # big-endian 1
        ["ffff"],
        ["0100"],
        ["0100", "61"],
        ["0100", "", "62"],  # no service name
        ["0100", "ff", "62"],  # not UTF-8
        ["0100", "61", "ff"],
        ["0100", "61" * 256, "62"],  # too long
        ["0100", "61", "62" * 256],
        ["0100", "61", "62", ""],
        ["0100", "61", "62", "0000000000"],
        ["0200"],
        ["0200", ""],
        ["0200", "0000"],
        ["0200", "03"],
        ["0200", "fe"],
        ["0200", "00", "ff"],
        ["0200", "00", "62" * 256],
        ["0200", "ff", "", "61" * 1025],
        ["0200", "ff", "", "80"],
        ["0300"],
        ["0300", "61"],
        ["0300", "61", ""],
        ["0300", "", "62"],
        ["0400"],
        ["0400", "61"],
        ["0400", "61", ""],
        ["0700", "61", "62"],
        ["0700", "61", "", "01000000"],
        ["0700", "61", "62", "010000"],
        ["0500"],
        ["0500", "01000000"],
        LIST_HEAD,
        ["0500", "010000", "0200000000000000", "00000000"],
        ["0500", "01000000", "02000000", "00000000"],
        [*LIST_HEAD, "000000"],
        [*LIST_HEAD, "01000000"],
        [*LIST_HEAD, "01000000", "61"],
        [*LIST_HEAD, "01000000", "", "00000000"],
        [*LIST_HEAD, "01000000", "61", "01000000"],
        [*LIST_HEAD, "01000000", "61", "01000000", "62", "63"],
        [*LIST_HEAD, "01000000", "61", "01000000", "", "63", "01000000"],  # no endpoint
        [*LIST_HEAD, "01000000", "61", "01000000", "62", "", "01000000"],  # no routing id
        [*LIST_HEAD, "01000000", "61", "01000000", "62", "63" * 256, "01000000"],
        [*LIST_HEAD, "01000000", "61", "01000000", "62", "63", "0100"],
        [*LIST_HEAD, "02000000", "61", "00000000", "61", "00000000"],  # the same service twice
        [*LIST_HEAD, "02000000", "61", "01000000", "62", "63", "01000000"],  # the second service is missing
        [*LIST_HEAD, "02000000", "61", "01000000", "62", "63", "01000000", "62"],
        ["0600", "01000000"],
        ["0100", "61", "62", "01000000", "48544b31"],  # a token without its number
        ["0400", "61", "62", "48544b310500000000"],
        [*LIST_HEAD, "00000000", "48434c3100"],  # claims without a provider
        [*LIST_HEAD, "01000000", "61", "01000000", "62", "63", "01000000", "48434c31"],
        [*LIST_HEAD, "00000000", "4854533101"],  # a tombstone that ends early
        [*LIST_HEAD, "00000000", "4854533100"],
        [*LIST_HEAD, "00000000", "48545331016101620000"],
        [*LIST_HEAD, "00000000", "4854533101ff01620000000000000000"],  # not UTF-8
    ],
)
def test_what_is_no_message_is_refused(hexes: list[str]) -> None:
    with pytest.raises(BadFrame):
        decode(frames_of(*hexes))


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize("number", ["0500", "0600"])
@pytest.mark.parametrize(
    "claim",
    [
        ["ffffffff"],
        ["ffffffff", "61", "00000000"],
        ["01000000", "61", "ffffffff"],
        ["01000000", "61", "ffffffff", "62", "63", "01000000"],
        ["01000000", "61", "56555555", "62", "63", "01000000"],  # three times it is 2 above 2**32
    ],
)
def test_a_huge_count_costs_nothing(number: str, claim: list[str]) -> None:
    assert_refused_for_nothing(decode, frames_of(number, "01000000", "0200000000000000", *claim))


@pytest.mark.spec("SEC-05")
def test_more_frames_than_a_message_may_have_are_refused_unread() -> None:
    assert_refused_for_nothing(decode, [b"\x04\x00", b"a", b"b", *[b""] * (PARTS_MAX - 2)])


@pytest.mark.spec("SEC-05")
def test_more_services_or_providers_than_allowed_are_refused_even_when_present() -> None:
    head = frames_of(*LIST_HEAD)
    services = [frame for i in range(SERVICES_MAX + 1) for frame in (b"%d" % i, bytes(4))]
    assert_refused_for_nothing(decode, [*head, (SERVICES_MAX + 1).to_bytes(4, "little"), *services])
    count = (PROVIDERS_MAX + 1).to_bytes(4, "little")
    providers = [b"b", b"c", b"\1\0\0\0"] * (PROVIDERS_MAX + 1)
    assert_refused_for_nothing(decode, [*head, b"\1\0\0\0", b"a", count, *providers])


@pytest.mark.spec("SEC-05")
def test_the_bound_on_providers_holds_for_all_services_together() -> None:
    half = PROVIDERS_MAX // 2 + 1
    service = [half.to_bytes(4, "little"), *[b"b", b"c", b"\1\0\0\0"] * half]
    with pytest.raises(BadFrame, match=f"claims {half} providers"):
        decode([*frames_of(*LIST_HEAD), b"\2\0\0\0", b"a", *service, b"b", *service])


def test_the_largest_lists_come_back() -> None:
    provider = ProviderEntry(endpoint="tcp://a:1", routing_id=b"a", weight=1)
    wide = ServiceList(registry_id=1, list_seq=1, services={str(i): () for i in range(SERVICES_MAX)})
    deep = ServiceList(registry_id=1, list_seq=1, services={"a": (provider,) * PROVIDERS_MAX})
    assert decode(encode(wide)) == wide
    assert decode(encode(deep)) == deep


ONE = ProviderEntry(endpoint="tcp://a:1", routing_id=b"a")


@pytest.mark.parametrize(
    "message",
    [
        Register(service="", endpoint="b"),
        Register(service="a" * 256, endpoint="b"),
        Register(service="\ud800", endpoint="b"),
        Register(service="a", endpoint="b" * 256),
        Register(service="a", endpoint="b", weight=-1),
        Register(service="a", endpoint="b", weight=2**32),
        RegisterAck(status=AckStatus.OK, endpoint="b" * 256),
        Unregister(service="a", endpoint=""),
        Unregister(service="", endpoint="b"),
        Heartbeat(service="a", endpoint=""),
        UpdateWeight(service="a", endpoint="", weight=1),
        UpdateWeight(service="a", endpoint="b", weight=2**32),
        Register(service="a", endpoint="b", stamp=1),
        RegisterAck(status=AckStatus.OTHER, stamp=1),
        Unregister(service="a", endpoint="b", stamp=0),
        UpdateWeight(service="a", endpoint="b", weight=1, stamp=1),
        Register(service="a", endpoint="b", token=1, stamp=-1),
        Register(service="a", endpoint="b", token=1, stamp=2**64),
        ServiceList(registry_id=-1, list_seq=0, services={}),
        ServiceList(registry_id=2**32, list_seq=0, services={}),
        ServiceList(registry_id=0, list_seq=2**64, services={}),
        ServiceList(registry_id=0, list_seq=0, services={"": ()}),
        ServiceList(registry_id=0, list_seq=0, services={str(i): () for i in range(SERVICES_MAX + 1)}),
        ServiceList(registry_id=0, list_seq=0, services={"a": (ONE,) * (PROVIDERS_MAX + 1)}),
        ServiceList(registry_id=0, list_seq=0, services={"a": (ONE,) * PROVIDERS_MAX, "b": (ONE,)}),
        ServiceList(
            registry_id=0,
            list_seq=0,
            services={"a": (ONE,) * PROVIDERS_MAX, **{str(i): () for i in range(SERVICES_MAX - 1)}},
        ),
        ServiceList(
            registry_id=0, list_seq=0, services={"a": (ProviderEntry(endpoint="", routing_id=b"a"),)}
        ),
        ServiceList(
            registry_id=0, list_seq=0, services={"a": (ProviderEntry(endpoint="b", routing_id=b""),)}
        ),
        ServiceList(
            registry_id=0, list_seq=0, services={"a": (ProviderEntry(endpoint="b", routing_id=b"a" * 256),)}
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_could_not_be_decoded_is_not_sent(message: RegistryMessage) -> None:
    with pytest.raises(BadArgument):
        encode(message)


def marked(
    message: Register | RegisterAck | Unregister | UpdateWeight, mark: tuple[int | None, int | None]
) -> RegistryMessage:
    return replace(message, token=mark[0], stamp=mark[1])


names = st.text(min_size=1, max_size=63)
endpoints = st.text(max_size=63)
weights = st.integers(1, 2**32 - 1)
uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
tokens = st.none() | uint32
# A stamp needs a token.
marks = st.tuples(uint32, st.none() | uint64) | st.just((None, None))
entries = st.builds(
    ProviderEntry,
    endpoint=names,
    routing_id=st.binary(min_size=1, max_size=255),
    weight=weights,
    epoch=st.just(0) | uint64,
    orphaned=st.booleans(),
)
services = st.dictionaries(names, st.lists(entries, max_size=4).map(tuple), max_size=4)
tombstones = st.lists(st.builds(Tombstone, service=names, endpoint=names, epoch=uint64), max_size=3).map(
    tuple
)
messages: st.SearchStrategy[RegistryMessage] = st.one_of(
    st.builds(marked, st.builds(Register, service=names, endpoint=endpoints, weight=weights), marks),
    st.builds(
        marked,
        st.builds(
            RegisterAck, status=st.sampled_from(AckStatus), endpoint=endpoints, error=st.text(max_size=256)
        ),
        marks,
    ),
    st.builds(marked, st.builds(Unregister, service=names, endpoint=names), marks),
    st.builds(Heartbeat, service=names, endpoint=names, token=tokens),
    st.builds(marked, st.builds(UpdateWeight, service=names, endpoint=names, weight=weights), marks),
    *(
        st.builds(
            kind,
            registry_id=uint32,
            list_seq=uint64,
            services=services,
            tombstones=tombstones,
            is_settling=st.booleans(),
        )
        for kind in (ServiceList, RegistrySync)
    ),
)


@given(messages)
def test_every_message_comes_back(message: RegistryMessage) -> None:
    assert decode(encode(message)) == message


@given(messages)
def test_a_message_cut_anywhere_is_a_value_or_bad_frame(message: RegistryMessage) -> None:
    frames = encode(message)
    for end in range(len(frames)):
        value_or_bad_frame(decode, frames[:end])


numbered_frames = st.builds(
    lambda number, rest: [bytes((number, 0)), *rest], st.integers(1, 7), arbitrary_frames
)


@pytest.mark.spec("SEC-05")
@given(arbitrary_frames | numbered_frames | damaged(messages.map(encode)))
def test_any_frames_are_a_value_or_bad_frame(frames: list[bytes]) -> None:
    value = value_or_bad_frame(decode, frames)
    if value is not None:
        # What was accepted is a proper value: it can be sent on and read the same.
        assert decode(encode(value)) == value  # type: ignore[arg-type]
