"""Revisions, transactions, the past, and what compaction leaves of it."""

import pytest

from hansa.errors import BadArgument, Compacted, FutureRevision, LeaseLost
from hansa.store.mvcc import OVERHEAD_BYTES, Mvcc
from hansa.store.values import (
    FROM_KEY,
    Compare,
    Delete,
    DeleteResult,
    EventKind,
    Get,
    GetResult,
    Operation,
    Put,
    PutResult,
    WatchBatch,
    prefix_range,
)


def write(mvcc: Mvcc, *operations: Operation, leases: tuple[int, ...] = ()) -> WatchBatch | None:
    return mvcc.commit((), operations, (), leases)[1]


def values(mvcc: Mvcc, revision: int = 0) -> dict[bytes, bytes]:
    return {item.key: item.value for item in mvcc.scan(Get(FROM_KEY, FROM_KEY), revision=revision).items}


def filled(*keys: str) -> Mvcc:
    mvcc = Mvcc()
    for key in keys:
        write(mvcc, Put(key, key.encode()))
    return mvcc


def test_an_empty_store_stands_at_one_and_the_first_change_is_two() -> None:
    mvcc = Mvcc()
    assert (mvcc.revision, mvcc.compacted_revision, len(mvcc)) == (1, 0, 0)
    write(mvcc, Put("k", b"v"))
    assert (mvcc.revision, len(mvcc)) == (2, 1)


def test_a_put_counts_versions_and_keeps_the_revision_of_creation() -> None:
    mvcc = filled("a", "k", "k")
    item = mvcc.get(b"k")
    assert item is not None
    assert (item.create_revision, item.mod_revision, item.version) == (3, 4, 2)


def test_a_key_that_was_deleted_begins_anew() -> None:
    mvcc = filled("k", "k")
    write(mvcc, Delete("k"))
    assert mvcc.get(b"k") is None
    write(mvcc, Put("k", b""))
    item = mvcc.get(b"k")
    assert item is not None
    assert (item.create_revision, item.mod_revision, item.version) == (5, 5, 1)


def test_what_changes_nothing_takes_no_revision() -> None:
    mvcc = filled("k")
    assert write(mvcc, Delete("x"), Delete("a", "c"), Get("k")) is None
    assert write(mvcc) is None
    assert mvcc.remove([b"x"]) is None
    assert mvcc.revision == 2


def test_all_changes_of_a_transaction_carry_one_revision_in_their_order() -> None:
    mvcc = filled("a", "b")
    outcome, batch = mvcc.commit((), (Put("z", b"1"), Delete("a", "c"), Put("c", b"2")), ())
    assert outcome.revision == mvcc.revision == 4
    assert outcome.results == (PutResult(revision=4), DeleteResult(count=2), PutResult(revision=4))
    assert batch is not None
    assert batch.revision == 4
    assert [(event.kind, event.item.key) for event in batch.events] == [
        (EventKind.PUT, b"z"),
        (EventKind.DELETE, b"a"),
        (EventKind.DELETE, b"b"),
        (EventKind.PUT, b"c"),
    ]
    assert {event.item.mod_revision for event in batch.events} == {4}


def test_an_event_says_what_was_before() -> None:
    mvcc = filled("k")
    first = mvcc.get(b"k")
    batch = write(mvcc, Put("k", b"2"))
    second = mvcc.get(b"k")
    gone = write(mvcc, Delete("k"))
    assert batch is not None
    assert gone is not None
    assert (batch.events[0].before, batch.events[0].item) == (first, second)
    assert gone.events[0].before == second
    assert (gone.events[0].item.value, gone.events[0].item.version) == (b"", 0)
    assert (gone.events[0].item.create_revision, gone.events[0].item.mod_revision) == (0, 4)


def test_the_compares_choose_the_branch() -> None:
    mvcc = filled("k")
    then, otherwise = (Put("yes", b""),), (Put("no", b""),)
    for compares, is_success in (
        ((), True),
        ((Compare.exists("k"),), True),
        ((Compare.exists("k"), Compare.absent("x")), True),
        ((Compare.exists("k"), Compare.exists("x")), False),
        ((Compare.absent("k"),), False),
    ):
        mvcc.remove([b"yes", b"no"])
        outcome, _ = mvcc.commit(compares, then, otherwise)
        assert outcome.is_success is is_success
        assert (mvcc.get(b"yes") is not None, mvcc.get(b"no") is not None) == (is_success, not is_success)


def test_a_read_in_a_transaction_sees_what_was_written_before_it() -> None:
    mvcc = filled("a")
    outcome, _ = mvcc.commit((), (Get("b"), Put("b", b"2"), Get("a", FROM_KEY, 1, True), Get("b")), ())
    before, _, some, after = outcome.results
    assert isinstance(before, GetResult)
    assert isinstance(some, GetResult)
    assert isinstance(after, GetResult)
    assert (before.items, before.count) == ((), 0)
    assert [(item.key, item.value) for item in some.items] == [(b"a", b"")]
    assert (some.count, some.more) == (2, True)
    assert [(item.value, item.mod_revision) for item in after.items] == [(b"2", 3)]


def test_a_put_with_an_unknown_lease_changes_nothing() -> None:
    mvcc = filled("k")
    with pytest.raises(LeaseLost, match="no lease 7"):
        write(mvcc, Put("a", b""), Put("b", b"", 7), leases=(8,))
    assert (mvcc.revision, values(mvcc)) == (2, {b"k": b"k"})
    # The branch that does not run is not asked for its leases.
    mvcc.commit((Compare.absent("k"),), (Put("b", b"", 7),), (), ())
    write(mvcc, Put("b", b"", 7), leases=(7,))
    item = mvcc.get(b"b")
    assert item is not None
    assert item.lease == 7


def test_a_transaction_that_is_refused_changes_nothing() -> None:
    mvcc = Mvcc()
    with pytest.raises(BadArgument):
        write(mvcc, Put("k", b""), Put("k", b""))
    assert mvcc.revision == 1


def test_a_scan_has_its_range_in_order_and_counts_beyond_its_limit() -> None:
    mvcc = filled("b", "a/2", "a/1", "a", "a/3")
    found = mvcc.scan(Get(*prefix_range("a/"), 2))
    assert [item.key for item in found.items] == [b"a/1", b"a/2"]
    assert (found.count, found.more, found.revision) == (3, True, 6)
    whole = mvcc.scan(Get(*prefix_range("a/"), 3))
    assert (len(whole.items), whole.count, whole.more) == (3, 3, False)
    past = mvcc.scan(Get(*prefix_range("a/"), 1), revision=4)
    assert ([item.key for item in past.items], past.count, past.more) == ([b"a/1"], 2, True)
    assert past.revision == 6
    assert mvcc.scan(Get("b", "a")).items == ()
    assert mvcc.scan(Get("b", "a"), revision=3).items == ()
    assert [item.value for item in mvcc.scan(Get("a", "b", keys_only=True)).items] == [b""] * 4


def test_a_read_at_an_old_revision_sees_what_was() -> None:
    mvcc = filled("a", "b")
    write(mvcc, Delete("a"))
    write(mvcc, Put("a", b"again"), Put("b", b"2"))
    assert [values(mvcc, revision) for revision in range(1, 6)] == [
        {},
        {b"a": b"a"},
        {b"a": b"a", b"b": b"b"},
        {b"b": b"b"},
        {b"a": b"again", b"b": b"2"},
    ]
    assert mvcc.get(b"a", revision=4) is None
    with pytest.raises(FutureRevision, match="at 5"):
        mvcc.get(b"a", revision=6)
    with pytest.raises(BadArgument):
        mvcc.get(b"a", revision=-1)


def test_compaction_keeps_its_revision_and_forgets_the_older_ones() -> None:
    mvcc = filled("a", "a", "b", "a")
    write(mvcc, Delete("b"))
    expected = {revision: values(mvcc, revision) for revision in (4, 5, 6)}
    mvcc.compact(4)
    assert {revision: values(mvcc, revision) for revision in (4, 5, 6)} == expected
    for read in (lambda: mvcc.get(b"a", revision=3), lambda: mvcc.log(3, 9), lambda: mvcc.compact(4)):
        with pytest.raises(Compacted) as caught:
            read()
        assert caught.value.compacted_revision == 4
    with pytest.raises(FutureRevision):
        mvcc.compact(7)
    with pytest.raises(BadArgument):
        mvcc.compact(0)
    assert [batch.revision for batch in mvcc.log(4, 9)] == [4, 5, 6]


def test_compaction_leaves_nothing_of_a_deleted_key() -> None:
    mvcc = Mvcc()
    for number in range(50):
        write(mvcc, Put(f"k{number}", b""))
        write(mvcc, Delete(f"k{number}"))
    mvcc.compact(mvcc.revision)
    assert (mvcc._past, len(mvcc._past_keys), len(mvcc._log)) == ({}, 0, 1)


@pytest.mark.parametrize(("change", "kept"), [(Put("k", b"2"), [b"2"]), (Delete("k"), [])])
def test_a_change_at_the_compacted_revision_overwrites_what_an_earlier_compaction_kept(
    change: Operation, kept: list[bytes]
) -> None:
    mvcc = filled("k", "x", "x")
    mvcc.compact(4)
    write(mvcc, change)
    mvcc.compact(5)
    assert [state.value for state in mvcc._past.get(b"k", [])] == kept


def test_the_log_gives_so_many_revisions_from_one_on() -> None:
    mvcc = filled("a", "b", "c")
    assert [batch.revision for batch in mvcc.log(0, 9)] == [2, 3, 4]
    assert [batch.revision for batch in mvcc.log(3, 1)] == [3]
    assert list(mvcc.log(5, 9)) == []


def test_the_past_is_bounded_in_revisions() -> None:
    mvcc = Mvcc(history_count_max=10)
    for number in range(2, 12):
        write(mvcc, Put("k", b"%d" % number))
    assert mvcc.compacted_revision == 0
    write(mvcc, Put("k", b"12"))
    assert (mvcc.revision, mvcc.compacted_revision) == (12, 8)
    assert values(mvcc, 8) == {b"k": b"8"}
    assert [batch.revision for batch in mvcc.log(8, 99)] == [8, 9, 10, 11, 12]


def test_the_past_is_bounded_in_bytes_even_by_one_change() -> None:
    weight = OVERHEAD_BYTES + 1 + 10
    mvcc = Mvcc(history_bytes_max=10 * weight)
    for number in range(10):
        write(mvcc, Put("k", bytes(10)))
        assert mvcc.compacted_revision == 0, number
    write(mvcc, Put("k", bytes(10)))
    assert (mvcc.revision, mvcc.compacted_revision) == (12, 8)
    assert mvcc._log_bytes == 5 * weight
    # What is there now is no past; it becomes one when it is overwritten or deleted.
    write(mvcc, Put("k", bytes(20 * weight)))
    assert (mvcc.revision, mvcc.compacted_revision) == (13, 8)
    write(mvcc, Put("k", bytes(20 * weight)))
    assert (mvcc.revision, mvcc.compacted_revision) == (14, 14)
    write(mvcc, Delete("k"))
    assert (mvcc.revision, mvcc.compacted_revision) == (15, 15)
    assert mvcc._log_bytes == OVERHEAD_BYTES + 1 + 20 * weight


def test_keys_are_removed_in_one_revision() -> None:
    mvcc = filled("a", "b", "c")
    batch = mvcc.remove([b"a", b"x", b"c"])
    assert batch is not None
    assert [event.item.key for event in batch.events] == [b"a", b"c"]
    assert (mvcc.revision, values(mvcc)) == (5, {b"b": b"b"})
