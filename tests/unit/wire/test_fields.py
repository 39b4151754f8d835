"""Single fields: what is written is read back, and bounds hold on both sides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument, BadFrame
from hansa.wire.fields import decode_text, decode_uint, encode_clipped, encode_text, encode_uint


@given(st.text(max_size=63))
def test_text_comes_back(text: str) -> None:
    assert (
        decode_text(encode_text(text, "name", bytes_min=0, bytes_max=255), "name", bytes_min=0, bytes_max=255)
        == text
    )


@pytest.mark.parametrize(
    "frame", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok\xc3", b"\xf8\x88\x80\x80\x80"]
)
def test_text_that_is_not_strict_utf8_is_refused(frame: bytes) -> None:
    with pytest.raises(BadFrame, match="name is not UTF-8"):
        decode_text(frame, "name", bytes_min=1, bytes_max=255)


def test_text_outside_its_bounds_is_refused_on_both_sides() -> None:
    for size in (0, 4):
        with pytest.raises(BadFrame):
            decode_text(b"x" * size, "name", bytes_min=1, bytes_max=3)
        with pytest.raises(BadArgument):
            encode_text("x" * size, "name", bytes_min=1, bytes_max=3)


def test_bounds_count_bytes_and_not_characters() -> None:
    assert encode_text("éa", "name", bytes_min=1, bytes_max=3) == b"\xc3\xa9a"
    with pytest.raises(BadArgument):
        encode_text("éé", "name", bytes_min=1, bytes_max=3)


def test_half_a_surrogate_pair_cannot_be_sent() -> None:
    with pytest.raises(BadArgument):
        encode_text("\ud800", "name", bytes_min=1, bytes_max=255)


@given(st.text(st.characters(), max_size=40), st.integers(0, 40))
def test_clipped_text_is_a_whole_prefix_within_the_bound(text: str, bytes_max: int) -> None:
    clipped = encode_clipped(text, bytes_max=bytes_max)
    assert len(clipped) <= bytes_max
    assert text.encode("utf-8", "replace").startswith(clipped)
    # No character that would have fitted is missing: at most three bytes of the next one are.
    assert len(clipped) > bytes_max - 4 or clipped == text.encode("utf-8", "replace")
    clipped.decode("utf-8")


@given(
    st.sampled_from([1, 2, 4, 8]).flatmap(
        lambda size: st.tuples(st.just(size), st.integers(0, 256**size - 1))
    )
)
def test_integers_come_back(sized: tuple[int, int]) -> None:
    size, number = sized
    frame = encode_uint(number, "number", size=size)
    assert len(frame) == size
    assert decode_uint(frame, "number", size=size) == number


def test_integers_are_little_endian() -> None:
    assert encode_uint(0x01020304, "number", size=4).hex() == "04030201"


@pytest.mark.parametrize("number", [-1, 256])
def test_integers_that_do_not_fit_are_refused(number: int) -> None:
    with pytest.raises(BadArgument, match="weight"):
        encode_uint(number, "weight", size=1)


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\0\0"])
def test_integers_of_another_size_are_refused(frame: bytes) -> None:
    with pytest.raises(BadFrame, match="weight"):
        decode_uint(frame, "weight", size=2)
