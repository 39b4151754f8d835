"""Extension frames of the topic commands: golden bytes, and that nodes without them read the rest."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument, BadFrame
from hansa.limits import OWNED_TOPICS_MAX, TOPICS_MAX
from hansa.wire.topics import (
    Mark,
    Message,
    Move,
    MoveStep,
    Publish,
    Query,
    QueryResp,
    SpotCommand,
    Subscribe,
    TopicAnnounce,
    TopicCounts,
    TopicRemove,
    Unsubscribe,
    decode,
    encode,
    topic_digest,
)
from tests.support.hostile_frames import assert_refused_for_nothing, damaged, value_or_bad_frame

ZONE = "7a6f6e653a31323a7374617465"  # zone:12:state
TOPIC = "zone:12:state"
HSQ1, HSR1, HSP1, HSM1, HSX1 = "48535131", "48535231", "48535031", "48534d31", "48535831"
HSC1, HSF1, HSV1, HSW1 = "48534331", "48534631", "48535631", "48535731"
NODE, NODE_HEX = b"\x01\x0a\x0b\x0c\x0d", "010a0b0c0d"
MARK = Mark(epoch=0x0102030405060708, sequence=0x1112131415161718)

GOLDEN: list[tuple[SpotCommand, list[str]]] = [
    (Query(is_extended=True), ["04", HSQ1 + "00" + "00000000" + "0000000000000000"]),
    (
        Query(report_wanted=True, known_count=0x01020304, known_digest=0x1112131415161718, is_extended=True),
        ["04", HSQ1 + "01" + "04030201" + "1817161514131211"],
    ),
    (
        Query(is_extended=True, taker="01:0a"),
        ["04", HSQ1 + "00" + "00000000" + "0000000000000000", HSW1 + "30313a3061"],
    ),
    (
        QueryResp(topics=("é",), is_extended=True, claims=(0x0102030405060708,)),
        ["05", "01000000", "c3a9", HSR1 + "00", HSC1 + "0807060504030201"],
    ),
    (TopicAnnounce(topic=TOPIC, claim=0x0102030405060708), ["06", ZONE, HSC1 + "0807060504030201"]),
    (
        TopicAnnounce(
            topic=TOPIC,
            mark=Mark(epoch=1, sequence=2, founder=NODE),
            claim=3,
            move=Move(step=MoveStep.MOVING, number=0x01020304, node=NODE),
        ),
        [
            *("06", ZONE, HSM1 + "00" + "0100000000000000" + "0200000000000000", HSF1 + NODE_HEX),
            *(HSC1 + "0300000000000000", HSV1 + "01" + "04030201" + NODE_HEX),
        ],
    ),
    *(
        (
            TopicAnnounce(topic=TOPIC, move=Move(step=step, number=1, node=NODE)),
            ["06", ZONE, HSV1 + number + "01000000" + NODE_HEX],
        )
        for step, number in ((MoveStep.STAYS, "02"), (MoveStep.MOVED, "03"), (MoveStep.ENDED, "05"))
    ),
    *(
        (
            TopicRemove(topic=TOPIC, move=Move(step=step, number=1, node=NODE)),
            ["07", ZONE, HSV1 + number + "01000000" + NODE_HEX],
        )
        for step, number in ((MoveStep.END, "04"), (MoveStep.LAST, "06"), (MoveStep.SWITCHED, "07"))
    ),
    (
        TopicRemove(
            topic=TOPIC,
            mark=MARK,
            refused_count=0,
            move=Move(step=MoveStep.MOVED, number=1, node=b"n" * 255),
        ),
        [
            *("07", ZONE, HSM1 + "00" + "0807060504030201" + "1817161514131211", HSX1 + "00000000"),
            HSV1 + "03" + "01000000" + "6e" * 255,
        ],
    ),
    (QueryResp(topics=(), is_extended=True), ["05", "00000000", HSR1 + "00"]),
    (QueryResp(topics=(), is_extended=True, is_unchanged=True), ["05", "00000000", HSR1 + "01"]),
    (QueryResp(topics=(TOPIC, "é"), is_extended=True), ["05", "02000000", ZONE, "c3a9", HSR1 + "00"]),
    (QueryResp(topics=(), is_extended=True, report=()), ["05", "00000000", HSR1 + "00", HSP1]),
    (
        QueryResp(
            topics=(TOPIC, "é"),
            is_extended=True,
            report=(
                TopicCounts(subscribers_count=0x01020304, published_count=2, dropped_count=3),
                TopicCounts(subscribers_count=0, published_count=2**64 - 1, dropped_count=0x0102030405060708),
            ),
        ),
        [
            *("05", "02000000", ZONE, "c3a9", HSR1 + "00"),
            HSP1
            + ("04030201" + "0200000000000000" + "0300000000000000")
            + ("00000000" + "ffffffffffffffff" + "0807060504030201"),
        ],
    ),
    (
        TopicAnnounce(topic=TOPIC, mark=MARK),
        ["06", ZONE, HSM1 + "00" + "0807060504030201" + "1817161514131211"],
    ),
    (
        TopicAnnounce(topic=TOPIC, mark=Mark(epoch=1, sequence=0, retain=True)),
        ["06", ZONE, HSM1 + "01" + "0100000000000000" + "0000000000000000"],
    ),
    (
        TopicAnnounce(topic=TOPIC, mark=Mark(epoch=1, sequence=2, confirm=True)),
        ["06", ZONE, HSM1 + "02" + "0100000000000000" + "0200000000000000"],
    ),
    (
        TopicRemove(topic=TOPIC, mark=Mark(epoch=1, sequence=2, retain=True, confirm=True)),
        ["07", ZONE, HSM1 + "03" + "0100000000000000" + "0200000000000000"],
    ),
    (TopicRemove(topic=TOPIC, refused_count=0), ["07", ZONE, HSX1 + "00000000"]),
    (TopicRemove(topic=TOPIC, refused_count=0x01020304), ["07", ZONE, HSX1 + "04030201"]),
    (
        TopicRemove(topic=TOPIC, mark=MARK, refused_count=1),
        ["07", ZONE, HSM1 + "00" + "0807060504030201" + "1817161514131211", HSX1 + "01000000"],
    ),
    (
        Message(topic=TOPIC, payload=b"hello", sequence=0x0102030405060708),
        ["08", ZONE, "68656c6c6f", "0807060504030201"],
    ),
]


def frames_of(*hexes: str) -> list[bytes]:
    return [bytes.fromhex(text) for text in hexes]


def read_as_specified(frames: Sequence[bytes]) -> SpotCommand:
    """A node that knows the specification's frames and not one more, and trusts what it is sent."""
    number = frames[0][0]
    if number == 4:
        return Query()
    if number == 5:
        count = frames[1][0] + 256 * frames[1][1] + 65_536 * frames[1][2] + 16_777_216 * frames[1][3]
        return QueryResp(topics=tuple(frame.decode() for frame in frames[2 : 2 + count]))
    topic = frames[1].decode()
    match number:
        case 1:
            return Publish(topic=topic, payload=frames[2])
        case 2:
            return Subscribe(topic=topic)
        case 3:
            return Unsubscribe(topic=topic)
        case 6:
            return TopicAnnounce(topic=topic)
        case 7:
            return TopicRemove(topic=topic)
        case _:
            return Message(topic=topic, payload=frames[2])


def without_extensions(command: SpotCommand) -> SpotCommand:
    match command:
        case Query():
            return Query()
        case QueryResp():
            return QueryResp(topics=command.topics)
        case TopicAnnounce():
            return TopicAnnounce(topic=command.topic)
        case TopicRemove():
            return TopicRemove(topic=command.topic)
        case Message():
            return Message(topic=command.topic, payload=command.payload)
        case _:
            return command


@pytest.mark.spec("SPT-19")
@pytest.mark.parametrize(("command", "golden"), GOLDEN)
def test_extended_commands_have_their_golden_bytes(command: SpotCommand, golden: list[str]) -> None:
    assert [frame.hex() for frame in encode(command)] == golden
    assert decode(frames_of(*golden)) == command


@pytest.mark.parametrize(("command", "golden"), GOLDEN)
def test_frames_of_later_versions_are_passed_over_wherever_they_stand(
    command: SpotCommand, golden: list[str]
) -> None:
    frames = frames_of(*golden)
    known = len(encode(without_extensions(command)))
    # The sequence of a message has no tag: it is known by its place.
    places = range(len(frames), len(frames) + 1) if golden[0] == "08" else range(known, len(frames) + 1)
    for place in places:
        for later in (b"", b"H", b"HSQ", b"HSM2 and more", b"hsm1", b"\xff" * 300):
            assert decode([*frames[:place], later, *frames[place:]]) == command


@pytest.mark.parametrize(
    ("hexes", "command"),
    [
        (["01", ZONE, "00", HSM1], Publish(topic=TOPIC, payload=b"\0")),
        (["02", ZONE, HSM1], Subscribe(topic=TOPIC)),
        (["03", ZONE, HSQ1], Unsubscribe(topic=TOPIC)),
        (["04", HSM1, HSR1, HSX1, HSP1], Query()),
        (["05", "00000000", HSQ1, HSM1], QueryResp(topics=())),
        (["05", "01000000", HSR1], QueryResp(topics=("HSR1",))),
        (["06", ZONE, HSX1, HSQ1], TopicAnnounce(topic=TOPIC)),
        (["07", HSM1, HSR1], TopicRemove(topic="HSM1")),
    ],
)
def test_a_tag_means_nothing_where_another_command_has_it(hexes: list[str], command: SpotCommand) -> None:
    assert decode(frames_of(*hexes)) == command


@pytest.mark.parametrize(
    ("hexes", "command"),
    [
        (["04", HSQ1 + "fe" + "00" * 12], Query(is_extended=True)),
        (["05", "00000000", HSR1 + "fe"], QueryResp(topics=(), is_extended=True)),
        (
            ["05", "00000000", HSR1 + "ff"],
            QueryResp(topics=(), is_extended=True, is_unchanged=True),
        ),
        (["06", ZONE, HSM1 + "fc" + "00" * 16], TopicAnnounce(topic=TOPIC, mark=Mark(epoch=0, sequence=0))),
        (
            ["06", ZONE, HSM1 + "fe" + "00" * 16],
            TopicAnnounce(topic=TOPIC, mark=Mark(epoch=0, sequence=0, confirm=True)),
        ),
        (["06", ZONE, HSV1 + "08" + "00" * 4 + NODE_HEX], TopicAnnounce(topic=TOPIC)),
        (["07", ZONE, HSV1 + "00" + "00" * 4 + NODE_HEX], TopicRemove(topic=TOPIC)),
        # Who founded a counting is of use with a mark alone.
        (["06", ZONE, HSF1], TopicAnnounce(topic=TOPIC)),
    ],
)
def test_flags_of_later_versions_are_passed_over(hexes: list[str], command: SpotCommand) -> None:
    assert decode(frames_of(*hexes)) == command


def test_of_two_frames_with_one_tag_the_first_counts() -> None:
    first, second = HSX1 + "01000000", HSX1 + "02000000"
    assert decode(frames_of("07", ZONE, first, second)) == TopicRemove(topic=TOPIC, refused_count=1)


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize(
    "hexes",
    [
        ["04", HSQ1],
        ["04", HSQ1 + "00" * 12],
        ["04", HSQ1 + "00" * 14],
        ["05", "00000000", HSR1],
        ["05", "00000000", HSR1 + "0000"],
        ["05", "01000000", "61", HSR1 + "01"],  # unchanged, and yet a topic
        ["05", "00000000", HSR1 + "00", HSP1 + "00"],
        ["05", "00000000", HSR1 + "00", HSP1 + "00" * 20],
        ["05", "01000000", "61", HSR1 + "00", HSP1],
        ["05", "01000000", "61", HSR1 + "00", HSP1 + "00" * 19],
        ["05", "01000000", "61", HSR1 + "00", HSP1 + "00" * 21],
        ["05", "01000000", "61", HSR1 + "00", HSP1 + "00" * 40],
        ["06", ZONE, HSM1],
        ["06", ZONE, HSM1 + "00" * 16],
        ["06", ZONE, HSM1 + "00" * 18],
        ["07", ZONE, HSM1 + "00" * 16],
        ["07", ZONE, HSX1],
        ["07", ZONE, HSX1 + "00" * 3],
        ["07", ZONE, HSX1 + "00" * 5],
        ["07", ZONE, HSM1 + "00" * 17, HSX1],
        ["07", ZONE, "", HSX1],
        ["04", HSQ1 + "00" * 13, HSW1],
        ["04", HSQ1 + "00" * 13, HSW1 + "61" * 201],
        ["04", HSQ1 + "00" * 13, HSW1 + "ff"],
        ["04", HSQ1 + "00" * 13, HSW1 + "610a"],
        ["05", "00000000", HSC1 + "00" * 8],
        ["05", "01000000", "61", HSC1],
        ["05", "01000000", "61", HSC1 + "00" * 7],
        ["06", ZONE, HSC1],
        ["06", ZONE, HSC1 + "00" * 16],
        ["06", ZONE, HSM1 + "00" * 17, HSF1],
        ["06", ZONE, HSM1 + "00" * 17, HSF1 + "00" * 256],
        ["06", ZONE, HSV1],
        ["06", ZONE, HSV1 + "01" + "00" * 4],
        ["07", ZONE, HSV1 + "01" + "00" * 260],
    ],
)
def test_a_known_extension_of_the_wrong_form_is_refused(hexes: list[str]) -> None:
    with pytest.raises(BadFrame):
        decode(frames_of(*hexes))


@pytest.mark.spec("SEC-05")
def test_a_huge_extension_is_refused_for_nothing() -> None:
    for command, tag in (
        (["04"], HSQ1),
        (["05", "00000000"], HSP1),
        (["06", ZONE], HSM1),
        (["07", ZONE], HSX1),
        (["04", HSQ1 + "00" * 13], HSW1),
        (["05", "00000000"], HSC1),
        (["06", ZONE], HSC1),
        (["06", ZONE, HSM1 + "00" * 17], HSF1),
        (["07", ZONE], HSV1),
    ):
        assert_refused_for_nothing(decode, [*frames_of(*command), bytes.fromhex(tag) + bytes(10_000_000)])


ONE = TopicCounts(subscribers_count=0, published_count=0, dropped_count=0)


@pytest.mark.parametrize(
    "command",
    [
        Query(report_wanted=True),
        Query(known_count=1),
        Query(known_digest=1),
        Query(known_count=-1, is_extended=True),
        Query(known_count=2**32, is_extended=True),
        Query(known_digest=2**64, is_extended=True),
        QueryResp(topics=(), is_unchanged=True),
        QueryResp(topics=("a",), is_extended=True, is_unchanged=True),
        QueryResp(topics=("a",), is_extended=True, report=()),
        QueryResp(topics=(), is_extended=True, report=(ONE,)),
        QueryResp(
            topics=("a",), report=(TopicCounts(subscribers_count=2**32, published_count=0, dropped_count=0),)
        ),
        QueryResp(
            topics=("a",), report=(TopicCounts(subscribers_count=0, published_count=-1, dropped_count=0),)
        ),
        QueryResp(
            topics=("a",), report=(TopicCounts(subscribers_count=0, published_count=0, dropped_count=2**64),)
        ),
        TopicAnnounce(topic="a", mark=Mark(epoch=-1, sequence=0)),
        TopicAnnounce(topic="a", mark=Mark(epoch=0, sequence=2**64)),
        TopicRemove(topic="a", mark=Mark(epoch=2**64, sequence=0)),
        TopicRemove(topic="a", refused_count=-1),
        TopicRemove(topic="a", refused_count=2**32),
        Query(taker="n"),
        Query(is_extended=True, taker="n" * 201),
        QueryResp(topics=("a",), is_extended=True, claims=()),
        QueryResp(topics=("a",), is_extended=True, claims=(2**64,)),
        TopicAnnounce(topic="a", claim=2**64),
        TopicAnnounce(topic="a", mark=Mark(epoch=0, sequence=0, founder=b"n" * 256)),
        TopicAnnounce(topic="a", move=Move(step=MoveStep.MOVING, number=2**32, node=b"n")),
        TopicRemove(topic="a", move=Move(step=MoveStep.END, number=1, node=b"")),
    ],
)
def test_an_extension_that_could_not_be_decoded_is_not_sent(command: SpotCommand) -> None:
    with pytest.raises(BadArgument):
        encode(command)


def test_all_that_a_node_may_own_fits_in_one_answer_with_its_extensions() -> None:
    full = tuple(map(str, range(OWNED_TOPICS_MAX)))
    claims = tuple(range(len(full)))
    answer = QueryResp(topics=full, is_extended=True, report=(ONE,) * len(full), claims=claims)
    assert decode(encode(answer)) == answer


def test_an_answer_that_leaves_no_room_for_its_extension_is_not_sent() -> None:
    full = tuple(map(str, range(TOPICS_MAX)))
    with pytest.raises(BadArgument):
        encode(QueryResp(topics=full, is_extended=True))


def test_the_digest_of_a_topic_is_blake2b_of_its_frame_read_little_endian() -> None:
    # printf zone:12:state | b2sum -l 64
    assert topic_digest(b"zone:12:state") == int.from_bytes(bytes.fromhex("2bff2394af10a751"), "little")


uint32, uint64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
topics = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=63)
# Names that look like extensions must stay names.
tagged_topics = st.sampled_from(["HSR1", "HSP1", "HSM1", "HSX1", "HSC1", "HSV1", "HSQ1-", "HSR1+"])
nodes = st.binary(min_size=1, max_size=255)
marks = st.builds(
    Mark,
    epoch=uint64,
    sequence=uint64,
    retain=st.booleans(),
    confirm=st.booleans(),
    founder=st.just(b"") | nodes,
)
moves = st.none() | st.builds(Move, step=st.sampled_from(MoveStep), number=uint32, node=nodes)
counts = st.builds(TopicCounts, subscribers_count=uint32, published_count=uint64, dropped_count=uint64)


@st.composite
def answers(draw: st.DrawFn) -> QueryResp:
    named = tuple(draw(st.lists(topics | tagged_topics, max_size=8)))
    report = st.lists(counts, min_size=len(named), max_size=len(named)).map(tuple)
    is_extended = draw(st.booleans())
    return QueryResp(
        topics=named,
        is_extended=is_extended,
        is_unchanged=not named and is_extended and draw(st.booleans()),
        report=draw(st.none() | report),
        claims=draw(st.none() | st.lists(uint64, min_size=len(named), max_size=len(named)).map(tuple)),
    )


commands: st.SearchStrategy[SpotCommand] = st.one_of(
    st.builds(
        Query,
        report_wanted=st.booleans(),
        known_count=uint32,
        known_digest=uint64,
        is_extended=st.just(True),
        taker=st.just("") | st.sampled_from(["01:0a0b0c0d", "node a"]),
    ),
    answers(),
    st.builds(TopicAnnounce, topic=topics | tagged_topics, mark=st.none() | marks, claim=uint64, move=moves),
    st.builds(
        TopicRemove,
        topic=topics | tagged_topics,
        mark=st.none() | marks,
        refused_count=st.none() | uint32,
        move=moves,
    ),
    st.builds(Message, topic=topics, payload=st.binary(max_size=40), sequence=uint64),
)


@given(commands)
def test_every_extended_command_comes_back(command: SpotCommand) -> None:
    assert decode(encode(command)) == command


@pytest.mark.spec("SPT-19")
@given(commands)
def test_a_node_that_knows_only_the_specification_reads_every_extended_command(command: SpotCommand) -> None:
    assert read_as_specified(encode(command)) == without_extensions(command)


@given(commands)
def test_what_a_node_without_extensions_sends_is_read(command: SpotCommand) -> None:
    raw = without_extensions(command)
    frames = encode(raw)
    assert decode(frames) == raw
    assert read_as_specified(frames) == raw
    # Extension frames come behind what is specified and change none of it.
    assert encode(command)[: len(frames)] == frames


@pytest.mark.spec("SEC-05")
@given(commands)
def test_an_extended_command_cut_anywhere_is_a_value_or_bad_frame(command: SpotCommand) -> None:
    frames = encode(command)
    for end in range(len(frames)):
        value_or_bad_frame(decode, frames[:end])
    for cut in range(len(frames[-1])):
        value_or_bad_frame(decode, [*frames[:-1], frames[-1][:cut]])


@pytest.mark.spec("SEC-05")
@given(damaged(commands.map(encode)))
def test_damaged_extensions_are_a_value_or_bad_frame(frames: list[bytes]) -> None:
    value = value_or_bad_frame(decode, frames)
    if value is not None:
        assert decode(encode(value)) == value  # type: ignore[arg-type]
