"""Topic commands 0x01 to 0x08: golden bytes, round trips, and what must be refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument, BadFrame
from hansa.limits import PARTS_MAX, TOPICS_MAX
from hansa.wire.topics import (
    Message,
    Publish,
    Query,
    QueryResp,
    SpotCommand,
    Subscribe,
    TopicAnnounce,
    TopicRemove,
    Unsubscribe,
    decode,
    encode,
)
from tests.support.hostile_frames import (
    arbitrary_frames,
    assert_refused_for_nothing,
    damaged,
    value_or_bad_frame,
)

ZONE = "7a6f6e653a31323a7374617465"  # zone:12:state
TOPIC = "zone:12:state"

GOLDEN: list[tuple[SpotCommand, list[str]]] = [
    (Publish(topic=TOPIC, payload=b"hello"), ["01", ZONE, "68656c6c6f"]),
    (Publish(topic=TOPIC, payload=b""), ["01", ZONE, ""]),
    (Subscribe(topic=TOPIC), ["02", ZONE]),
    (Unsubscribe(topic=TOPIC), ["03", ZONE]),
    (Query(), ["04"]),
    (QueryResp(topics=()), ["05", "00000000"]),
    (QueryResp(topics=(TOPIC, "é")), ["05", "02000000", ZONE, "c3a9"]),
    (TopicAnnounce(topic=TOPIC), ["06", ZONE]),
    (TopicRemove(topic=TOPIC), ["07", ZONE]),
    (Message(topic=TOPIC, payload=b"hello"), ["08", ZONE, "68656c6c6f"]),
    (Message(topic=TOPIC, payload=b"", sequence=0), ["08", ZONE, "", "0000000000000000"]),
    (
        Message(topic=TOPIC, payload=b"hello", sequence=0x0102030405060708),
        ["08", ZONE, "68656c6c6f", "0807060504030201"],
    ),
]


def frames_of(*hexes: str) -> list[bytes]:
    return [bytes.fromhex(text) for text in hexes]


@pytest.mark.spec("SPT-19")
@pytest.mark.parametrize(("command", "golden"), GOLDEN)
def test_commands_have_their_golden_bytes(command: SpotCommand, golden: list[str]) -> None:
    assert [frame.hex() for frame in encode(command)] == golden
    assert decode(frames_of(*golden)) == command


@pytest.mark.spec("SPT-19")
def test_the_golden_bytes_cover_all_eight_commands() -> None:
    assert {golden[0] for _, golden in GOLDEN} == {f"{number:02x}" for number in range(1, 9)}


@pytest.mark.parametrize(("command", "golden"), GOLDEN)
def test_frames_after_the_known_ones_are_ignored(command: SpotCommand, golden: list[str]) -> None:
    extra = frames_of(*golden)
    if command == Message(topic=TOPIC, payload=b"hello"):
        extra.append(bytes(8))  # The sequence is a known frame of MESSAGE, so it cannot be skipped.
        command = Message(topic=TOPIC, payload=b"hello", sequence=0)
    assert decode([*extra, b"from", b"the future"]) == command


def test_the_payload_is_passed_on_and_not_copied() -> None:
    payload = bytes(100_000)
    assert encode(Message(topic="t", payload=payload))[2] is payload
    decoded = decode([b"\x08", b"t", payload])
    assert isinstance(decoded, Message)
    assert decoded.payload is payload


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize(
    "hexes",
    [
        [],
        [""],
        ["00"],
        ["09"],
        ["ff"],
        ["0100"],  # two bytes
        ["0400"],
        ["0200", ZONE],
        ["01"],
        ["01", ZONE],
        ["01", "", "00"],
        ["01", "ff", "00"],
        ["01", "61" * 256, "00"],
        ["02"],
        ["02", ""],
        ["02", "61" * 256],
        ["02", "eda080"],
        ["03"],
        ["03", ""],
        ["05"],
        ["05", ""],
        ["05", "000000"],
        ["05", "0000000000"],
        ["05", "01000000"],
        ["05", "02000000", "61"],
        ["05", "01000000", ""],
        ["05", "01000000", "ff"],
        ["05", "01000000", "61" * 256],
        ["06"],
        ["06", ""],
        ["07"],
        ["07", "80"],
        ["02", "00"],
        ["02", "61" + "0a"],
        ["06", "1b" + "5b31"],
        ["05", "01000000", "7f"],
        ["01", "c285", "00"],  # U+0085, a line break
        ["08"],
        ["08", ZONE],
        ["08", "", "00"],
        ["08", ZONE, "00", ""],
        ["08", ZONE, "00", "00000000"],
        ["08", ZONE, "00", "000000000000000000"],
    ],
)
def test_what_is_no_command_is_refused(hexes: list[str]) -> None:
    with pytest.raises(BadFrame):
        decode(frames_of(*hexes))


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize("count", [2, 65_536, 2**31, 2**32 - 1])
def test_a_huge_count_costs_nothing(count: int) -> None:
    assert_refused_for_nothing(decode, [b"\x05", count.to_bytes(4, "little"), b"a"])


@pytest.mark.spec("SEC-05")
def test_a_huge_command_frame_or_too_many_frames_cost_nothing() -> None:
    assert_refused_for_nothing(decode, [bytes(10_000_000)])
    assert_refused_for_nothing(decode, [b"\x04", *[b""] * PARTS_MAX])


@pytest.mark.parametrize("size", [1, 255])
def test_topics_of_1_to_255_bytes_come_back(size: int) -> None:
    assert decode(encode(Subscribe(topic="t" * size))) == Subscribe(topic="t" * size)


@pytest.mark.parametrize(
    "command",
    [
        Subscribe(topic=""),
        Subscribe(topic="t" * 256),
        Publish(topic="é" * 128, payload=b""),
        TopicAnnounce(topic="\udc80"),
        TopicAnnounce(topic="bell\a"),
        Message(topic="\x9b31m", payload=b""),
        QueryResp(topics=("a", "")),
        QueryResp(topics=("a",) * (TOPICS_MAX + 1)),
        Message(topic="a", payload=b"", sequence=-1),
        Message(topic="a", payload=b"", sequence=2**64),
    ],
    ids=lambda command: type(command).__name__,
)
def test_what_could_not_be_decoded_is_not_sent(command: SpotCommand) -> None:
    with pytest.raises(BadArgument):
        encode(command)


def test_the_longest_answer_comes_back() -> None:
    answer = QueryResp(topics=tuple(map(str, range(TOPICS_MAX))))
    assert decode(encode(answer)) == answer


topics = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=63)
payloads = st.binary(max_size=200)
commands: st.SearchStrategy[SpotCommand] = st.one_of(
    st.builds(Publish, topic=topics, payload=payloads),
    st.builds(Subscribe, topic=topics),
    st.builds(Unsubscribe, topic=topics),
    st.builds(Query),
    st.builds(QueryResp, topics=st.lists(topics, max_size=8).map(tuple)),
    st.builds(TopicAnnounce, topic=topics),
    st.builds(TopicRemove, topic=topics),
    st.builds(Message, topic=topics, payload=payloads, sequence=st.none() | st.integers(0, 2**64 - 1)),
)


@given(commands)
def test_every_command_comes_back(command: SpotCommand) -> None:
    assert decode(encode(command)) == command


@given(commands)
def test_a_command_cut_anywhere_is_a_value_or_bad_frame(command: SpotCommand) -> None:
    frames = encode(command)
    for end in range(len(frames)):
        value_or_bad_frame(decode, frames[:end])


numbered_frames = st.builds(
    lambda number, rest: [bytes((number,)), *rest], st.integers(1, 8), arbitrary_frames
)


@pytest.mark.spec("SEC-05")
@given(arbitrary_frames | numbered_frames | damaged(commands.map(encode)))
def test_any_frames_are_a_value_or_bad_frame(frames: list[bytes]) -> None:
    value = value_or_bad_frame(decode, frames)
    if value is not None:
        # What was accepted is a proper value: it can be sent on and read the same.
        assert decode(encode(value)) == value  # type: ignore[arg-type]
