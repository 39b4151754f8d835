"""Routing ids: bytes, numbers, collisions, and how people see them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.chance import Chance
from hansa.errors import BadArgument, InvariantBroken
from hansa.ids import (
    anonymous_id,
    check_routing_id,
    format_id,
    new_routing_id,
    precedence,
    routing_id,
)

uint32 = st.integers(0, 2**32 - 1)


class EverythingTaken:
    def __contains__(self, item: object) -> bool:
        return True


def test_a_routing_id_is_0x01_and_a_big_endian_number() -> None:
    assert routing_id(0x0A0B0C0D) == bytes.fromhex("01 0a0b0c0d")
    assert routing_id(1) == bytes.fromhex("01 00000001")


@pytest.mark.parametrize("number", [-1, 2**32])
def test_a_number_that_is_no_uint32_is_refused(number: int) -> None:
    with pytest.raises(BadArgument):
        routing_id(number)


@given(uint32, uint32)
def test_ids_sort_as_their_numbers_do(a: int, b: int) -> None:
    assert (routing_id(a) < routing_id(b)) == (a < b)


@pytest.mark.spec("SPT-12")
def test_any_ids_have_an_order_numbers_first_then_bytes() -> None:
    in_order = [
        bytes.fromhex("00 00000007"),
        bytes.fromhex("01 00000007"),
        bytes.fromhex("00 00000008"),
        bytes.fromhex("01 00000008"),
        bytes.fromhex("00 ffffffff"),
        bytes.fromhex("01 ffffffff"),
        b"",
        b"\0\0\0\0",
        b"\0\0\0\0\0\0",
        b"\x02\0\0\0\0",
        b"alice",
        b"bob",
        b"\xff" * 255,
    ]
    backwards = in_order[::-1]
    assert sorted(backwards, key=precedence) == in_order


def test_ids_without_a_number_stand_behind_every_number() -> None:
    assert precedence(routing_id(7)) == (7, routing_id(7))
    assert precedence(b"alice") == (2**32, b"alice")


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_of_two_different_ids_one_comes_first_for_everybody(a: bytes, b: bytes) -> None:
    assert (precedence(a) == precedence(b)) == (a == b)


def test_a_new_id_is_drawn_again_while_it_is_taken() -> None:
    draws = Chance.seeded(5)
    first, second = (routing_id(draws.uint32()) for _ in range(2))
    assert new_routing_id(Chance.seeded(5)) == first
    assert new_routing_id(Chance.seeded(5), {first}) == second


def test_an_anonymous_id_starts_with_zero_so_that_it_never_meets_a_chosen_one() -> None:
    anonymous = anonymous_id(Chance.seeded(1))
    assert (len(anonymous), anonymous[0]) == (5, 0)
    assert anonymous_id(Chance.seeded(1), {anonymous}) != anonymous


def test_drawing_stops_when_the_randomness_repeats_itself() -> None:
    with pytest.raises(InvariantBroken):
        new_routing_id(Chance.seeded(1), EverythingTaken())


@pytest.mark.parametrize("size", [1, 5, 255])
def test_ids_of_1_to_255_bytes_pass(size: int) -> None:
    assert check_routing_id(b"x" * size) == b"x" * size


@pytest.mark.parametrize("size", [0, 256])
def test_ids_of_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(BadArgument):
        check_routing_id(b"x" * size)


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        (b"\x01\x0a\x0b\x0c\x0d", "01:0a0b0c0d"),
        (b"\x00\x00\x00\x00\x07", "00:00000007"),
        (b"server", "server"),
        (b"payment-1", "payment-1"),
        (b"a b", "61:2062"),
        (b"line\n", "6c:696e650a"),
        (b"\x1b[31m", "1b:5b33316d"),
        (b"", "(none)"),
        (b"(none)", "28:6e6f6e6529"),
        (b"\xc3\xa9", "c3:a9"),
        (b"01:0a0b0c0d", "30:313a3061306230633064"),
    ],
)
def test_ids_are_shown_as_text_or_hex(peer: bytes, shown: str) -> None:
    assert format_id(peer) == shown


@given(st.binary(max_size=255), st.binary(max_size=255))
def test_two_ids_never_look_the_same_and_are_always_visible_ascii(a: bytes, b: bytes) -> None:
    assert (format_id(a) == format_id(b)) == (a == b)
    assert format_id(a).isascii()
    assert format_id(a).isprintable()


@given(st.binary(min_size=1, max_size=20))
def test_an_id_that_spells_another_ids_hex_is_told_apart(peer: bytes) -> None:
    assert format_id(format_id(peer).encode()) != format_id(peer) or format_id(peer).encode() == peer
