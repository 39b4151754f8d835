"""What a caller may ask of a store, and what it may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument
from hansa.limits import (
    STORE_KEY_BYTES_MAX,
    STORE_TXN_BYTES_MAX,
    STORE_TXN_COUNT_MAX,
    STORE_VALUE_BYTES_MAX,
)
from hansa.store.values import (
    FROM_KEY,
    Compare,
    CompareOperator,
    CompareTarget,
    Delete,
    Get,
    KeyValue,
    Put,
    check_commit,
    is_within,
    prefix_range,
)

ITEM = KeyValue(key=b"k", value=b"m", create_revision=3, mod_revision=5, version=2, lease=9)
short_keys = st.binary(min_size=1, max_size=3)


def test_a_key_given_as_text_is_its_utf8() -> None:
    assert Put("Lübeck", b"").key == "Lübeck".encode()
    assert Delete("a", "b") == Delete(b"a", b"b")
    assert Get("a", "b").range_end == b"b"
    assert Compare.absent("a").key == b"a"


@pytest.mark.parametrize("key", [b"", "", "\ud800", b"x" * (STORE_KEY_BYTES_MAX + 1), 7])
def test_a_key_that_cannot_be_is_refused(key: bytes | str) -> None:
    for make in (lambda: Put(key, b""), lambda: Delete(key), lambda: Get(key), lambda: Compare.absent(key)):
        with pytest.raises(BadArgument):
            make()


def test_the_longest_key_and_the_largest_value_are_taken() -> None:
    put = Put(b"x" * STORE_KEY_BYTES_MAX, b"v" * STORE_VALUE_BYTES_MAX)
    assert (len(put.key), len(put.value)) == (STORE_KEY_BYTES_MAX, STORE_VALUE_BYTES_MAX)
    check_commit((), (put,), ())


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(BadArgument, match="1048577 bytes"):
        Put("k", b"v" * (STORE_VALUE_BYTES_MAX + 1))
    with pytest.raises(BadArgument, match="not str"):
        Put("k", "text")  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="lease -1"):
        Put("k", b"", -1)
    with pytest.raises(BadArgument, match="lease"):
        Put("k", b"", 2**63)
    for limit in (-1, 2**63):
        with pytest.raises(BadArgument, match=f"limit {limit}"):
            Get("k", limit=limit)


@pytest.mark.parametrize(
    ("compare", "on_item", "on_nothing"),
    [
        (Compare.absent("k"), False, True),
        (Compare.exists("k"), True, False),
        (Compare.created("k", "=", 3), True, False),
        (Compare.created("k", "<", 4), True, True),
        (Compare.revision("k", "=", 5), True, False),
        (Compare.revision("k", "=", 0), False, True),
        (Compare.revision("k", "!=", 5), False, True),
        (Compare.revision("k", ">", 4), True, False),
        (Compare.revision("k", ">", 5), False, False),
        (Compare.revision("k", "<", 5), False, True),
        (Compare.version("k", "=", 2), True, False),
        (Compare.version("k", "=", 0), False, True),
        (Compare.lease("k", "=", 9), True, False),
        (Compare.lease("k", "=", 0), False, True),
        (Compare.value("k", "=", b"m"), True, False),
        (Compare.value("k", "<", b"n"), True, False),
        (Compare.value("k", ">", b"l"), True, False),
        (Compare.value("k", "!=", b"x"), True, False),
        (Compare.value("k", "=", b""), False, False),
    ],
)
def test_a_compare_holds_or_not(compare: Compare, on_item: bool, on_nothing: bool) -> None:
    assert (compare.holds(ITEM), compare.holds(None)) == (on_item, on_nothing)


def test_a_compare_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(BadArgument, match="write ="):
        Compare.revision("k", ">=", 1)  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="compared with bytes"):
        Compare("k", CompareTarget.VALUE, CompareOperator.EQUAL, 1)
    with pytest.raises(BadArgument, match="compared with int"):
        Compare("k", CompareTarget.LEASE, CompareOperator.EQUAL, b"1")
    with pytest.raises(BadArgument, match="compared with int, not True"):
        Compare.version("k", "=", True)
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(BadArgument, match="can never be"):
            Compare.revision("k", "=", number)


@given(prefix=st.binary(max_size=3), key=short_keys)
def test_a_prefix_range_has_the_keys_with_the_prefix_and_no_others(prefix: bytes, key: bytes) -> None:
    assert is_within(key, *prefix_range(prefix)) == key.startswith(prefix)


@given(ones=st.integers(1, 3), key=short_keys)
def test_a_prefix_of_ones_ends_nowhere(ones: int, key: bytes) -> None:
    prefix = b"\xff" * ones
    assert prefix_range(prefix) == (prefix, FROM_KEY)
    assert is_within(key, *prefix_range(prefix)) == key.startswith(prefix)


def test_a_range_without_an_end_is_one_key() -> None:
    assert is_within(b"a", b"a", b"")
    assert not is_within(b"ab", b"a", b"")
    assert is_within(b"b", b"a", FROM_KEY)
    assert not is_within(b"a", b"b", FROM_KEY)


def test_a_branch_that_writes_a_key_twice_is_refused_even_if_it_will_not_run() -> None:
    put = Put("k", b"")
    for branch in ((put, Put("k", b"x")), (put, Delete("k")), (Delete("a", "z"), put)):
        with pytest.raises(BadArgument, match="'k'"):
            check_commit((), branch, ())
        with pytest.raises(BadArgument, match="'k'"):
            check_commit((), (), branch)
    check_commit((), (put,), (put,))
    check_commit((), (put, Delete("a", "k"), Delete("a", "b"), Get("k")), ())


def test_a_transaction_that_is_too_large_is_refused() -> None:
    many = [Get("k")] * (STORE_TXN_COUNT_MAX + 1)
    check_commit([Compare.absent("k")] * STORE_TXN_COUNT_MAX, many[1:], many[1:])
    for compares, then, otherwise in (((), many, ()), ((), (), many)):
        with pytest.raises(BadArgument, match="129 operations"):
            check_commit(compares, then, otherwise)
    with pytest.raises(BadArgument, match="129 compares"):
        check_commit([Compare.absent("k")] * (STORE_TXN_COUNT_MAX + 1), (), ())
    half = b"v" * (STORE_TXN_BYTES_MAX // 2)
    check_commit((), (Put("a", half[1:]),), (Put("b", half[1:]),))
    with pytest.raises(BadArgument, match="bytes"):
        check_commit((), (Put("a", half),), (Put("b", half),))
    with pytest.raises(BadArgument, match="bytes"):
        check_commit([Compare.value("a", "=", half)], (Put("a", half),), ())
