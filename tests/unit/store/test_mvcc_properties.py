"""Whatever is written, read and compacted, it is as if the whole store had been copied at every revision."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.errors import BadArgument
from hansa.store.mvcc import Mvcc
from hansa.store.values import (
    FROM_KEY,
    Compare,
    Delete,
    EventKind,
    Get,
    KeyValue,
    Operation,
    Put,
    check_commit,
    is_within,
)

KEYS = [b"a", b"a/", b"a/1", b"a/2", b"b", b"\xff", b"\xff\xff"]

keys = st.sampled_from(KEYS)
ends = st.sampled_from([b"", FROM_KEY, b"a0", b"b", b"\xff", b"c"])
puts = st.builds(Put, keys, st.sampled_from([b"", b"1", b"2"]))
deletes = st.builds(Delete, keys, ends)
gets = st.builds(Get, keys, ends, st.integers(0, 3), st.booleans())
operations = st.lists(st.one_of(puts, puts, deletes, gets), max_size=4)
operators = st.sampled_from(["=", "!=", "<", ">"])
compares = st.lists(
    st.one_of(
        st.builds(Compare.absent, keys),
        st.builds(Compare.exists, keys),
        st.builds(Compare.version, keys, operators, st.integers(0, 3)),
        st.builds(Compare.revision, keys, operators, st.integers(0, 8)),
        st.builds(Compare.value, keys, operators, st.sampled_from([b"", b"1"])),
    ),
    max_size=2,
)
steps = st.one_of(
    st.tuples(compares, operations, operations),
    st.tuples(compares, operations, operations),
    st.integers(0, 100),
)

Snapshot = dict[bytes, KeyValue]


def read(snapshot: Snapshot, what: Get) -> tuple[list[KeyValue], int]:
    items = [snapshot[key] for key in sorted(snapshot) if is_within(key, what.key, what.range_end)]
    kept = items[: what.limit] if what.limit else items
    return [replace(item, value=b"") if what.keys_only else item for item in kept], len(items)


class Naive:
    """A copy of everything for every revision."""

    def __init__(self) -> None:
        self.snapshots: dict[int, Snapshot] = {1: {}}
        self.changes: dict[int, list[tuple[EventKind, bytes]]] = {}
        self.revision = 1

    def commit(self, branch: list[Operation]) -> list[object]:
        now = dict(self.snapshots[self.revision])
        revision = self.revision + 1
        changes: list[tuple[EventKind, bytes]] = []
        results: list[object] = []
        for operation in branch:
            if isinstance(operation, Put):
                old = now.get(operation.key)
                now[operation.key] = KeyValue(
                    key=operation.key,
                    value=operation.value,
                    create_revision=old.create_revision if old else revision,
                    mod_revision=revision,
                    version=old.version + 1 if old else 1,
                )
                changes.append((EventKind.PUT, operation.key))
                results.append(revision)
            elif isinstance(operation, Delete):
                gone = [key for key in sorted(now) if is_within(key, operation.key, operation.range_end)]
                for key in gone:
                    del now[key]
                    changes.append((EventKind.DELETE, key))
                results.append(len(gone))
            else:
                results.append(read(now, operation))
        if changes:
            self.revision = revision
            self.snapshots[revision] = now
            self.changes[revision] = changes
        return results


def flat(result: object) -> object:
    if hasattr(result, "items"):
        return list(result.items), result.count  # type: ignore[attr-defined]
    return result.revision if hasattr(result, "revision") else result.count  # type: ignore[attr-defined]


@settings(max_examples=150)
@given(play=st.lists(steps, max_size=25), question=gets)
def test_every_history_is_as_copies_would_have_it(
    play: list[tuple[list[Compare], list[Operation], list[Operation]] | int], question: Get
) -> None:
    mvcc, naive, oldest = Mvcc(), Naive(), 0
    for step in play:
        if isinstance(step, int):
            # A share of what can be forgotten.
            target = oldest + (naive.revision - oldest) * step // 100
            if target > oldest:
                mvcc.compact(target)
                oldest = target
            continue
        wanted, then, otherwise = step
        try:
            check_commit(wanted, then, otherwise)
        except BadArgument:
            continue
        now = naive.snapshots[naive.revision]
        is_success = all(compare.holds(now.get(compare.key)) for compare in wanted)
        outcome, batch = mvcc.commit(wanted, then, otherwise)
        before, expected = naive.revision, naive.commit(then if is_success else otherwise)
        assert (outcome.is_success, outcome.revision) == (is_success, naive.revision)
        assert [flat(result) for result in outcome.results] == expected
        assert (batch is None) == (naive.revision == before)
    for revision in range(max(1, oldest), naive.revision + 1):
        snapshot = naive.snapshots[revision]
        found = mvcc.scan(question, revision=revision)
        assert (list(found.items), found.count) == read(snapshot, question)
        assert found.more == (len(found.items) < found.count)
        assert all(mvcc.get(key, revision=revision) == snapshot.get(key) for key in KEYS)
    log = mvcc.log(oldest, 1_000)
    first = max(2, oldest)
    assert [batch.revision for batch in log] == list(range(first, naive.revision + 1))
    for batch in log:
        assert [(event.kind, event.item.key) for event in batch.events] == naive.changes[batch.revision]
        old = naive.snapshots[batch.revision - 1]
        assert all(event.before == old.get(event.item.key) for event in batch.events)
    # Nothing is kept that no read could see: one state at the oldest, and what came after it.
    kept = sum(len(states) for states in mvcc._past.values())
    later = sum(len(changes) for revision, changes in naive.changes.items() if revision > oldest)
    assert kept == later + len(naive.snapshots[oldest] if oldest else {})
