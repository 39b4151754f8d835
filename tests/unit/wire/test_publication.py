"""Publications of the PUB/SUB mesh: golden bytes, and everything else refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument, BadFrame
from hansa.wire.publication import decode_publication, encode_origin, encode_publication

U64 = st.integers(0, 2**64 - 1)
topics = st.binary(min_size=1, max_size=255)
ORIGIN = encode_origin(b"\x00\x07\x00\x00\x00", 258)


@pytest.mark.spec("SPT-20")
def test_a_publication_is_topic_payload_and_who_counts() -> None:
    assert encode_publication(b"zone:1", b"hello", ORIGIN, 3) == [
        b"zone:1",
        b"hello",
        b"HPB1" + b"\x05" + b"\x00\x07\x00\x00\x00" + bytes((2, 1, 0, 0, 0, 0, 0, 0)) + b"\x03" + bytes(7),
    ]


@pytest.mark.spec("SPT-20")
def test_a_plain_publication_is_two_frames() -> None:
    assert encode_publication(b"zone:1", b"hello", b"", 0) == [b"zone:1", b"hello"]
    assert decode_publication([b"zone:1", b"hello"]) == (b"zone:1", b"hello", b"", 0)


@given(topics, st.binary(max_size=40), st.binary(min_size=1, max_size=255), U64, U64.filter(bool))
def test_what_is_written_reads_back(
    topic: bytes, payload: bytes, node: bytes, epoch: int, sequence: int
) -> None:
    origin = encode_origin(node, epoch)
    frames = encode_publication(topic, payload, origin, sequence)
    assert decode_publication(frames) == (topic, payload, origin, sequence)


@given(st.binary(min_size=1, max_size=255), U64, st.binary(min_size=1, max_size=255), U64)
def test_origins_of_different_nodes_or_epochs_differ(a: bytes, b: int, c: bytes, d: int) -> None:
    assert (encode_origin(a, b) == encode_origin(c, d)) == ((a, b) == (c, d))


@pytest.mark.parametrize("third", [b"", b"HPB", b"HPB2" + bytes(40), b"a payload of mine"])
def test_a_third_frame_of_somebody_else_is_ignored(third: bytes) -> None:
    assert decode_publication([b"t", b"p", third]) == (b"t", b"p", b"", 0)


def test_frames_after_the_third_are_ignored() -> None:
    frames = encode_publication(b"t", b"p", ORIGIN, 9)
    assert decode_publication([*frames, b"later"]) == (b"t", b"p", ORIGIN, 9)


GOOD = ORIGIN + (1).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([], "not 0 frames"),
        ([b"topic"], "not 1 frames"),
        ([b"", b"p"], "topic has 0 bytes"),
        ([b"x" * 256, b"p"], "topic has 256 bytes"),
        ([b"t", b"p", b"HPB1"], "do not fit its node id"),
        ([b"t", b"p", GOOD[:-1]], "do not fit its node id"),
        ([b"t", b"p", GOOD + b"\x00"], "do not fit its node id"),
        ([b"t", b"p", b"HPB1\x00" + bytes(8) + (1).to_bytes(8, "little")], "do not fit its node id"),
        ([b"t", b"p", b"HPB1\xff" + GOOD[5:]], "do not fit its node id"),
        ([b"t", b"p", ORIGIN + bytes(8)], "sequence is 0"),
    ],
)
def test_what_is_no_publication_is_refused(frames: list[bytes], problem: str) -> None:
    with pytest.raises(BadFrame, match=problem):
        decode_publication(frames)


@given(st.lists(st.one_of(st.binary(max_size=30), st.binary(max_size=40).map(b"HPB1".__add__)), max_size=4))
def test_any_frames_are_a_publication_or_a_bad_frame(frames: list[bytes]) -> None:
    try:
        topic, payload, origin, sequence = decode_publication(frames)
    except BadFrame:
        return
    again = encode_publication(topic, payload, origin, sequence)
    assert again == frames[: len(again)]


@pytest.mark.parametrize(("node", "epoch"), [(b"", 1), (b"x" * 256, 1), (b"n", -1), (b"n", 2**64)])
def test_what_does_not_fit_an_origin_is_refused(node: bytes, epoch: int) -> None:
    with pytest.raises(BadArgument):
        encode_origin(node, epoch)


@pytest.mark.parametrize(
    ("topic", "sequence"), [(b"", 1), (b"x" * 256, 1), (b"t", 0), (b"t", -1), (b"t", 2**64)]
)
def test_what_does_not_fit_a_publication_is_refused(topic: bytes, sequence: int) -> None:
    with pytest.raises(BadArgument):
        encode_publication(topic, b"", ORIGIN, sequence)
