"""All that anybody can see of a recorded store, as one value; and random things to do to it."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from hansa.chance import Chance
from hansa.errors import BadArgument, Compacted, FutureRevision, LeaseLost
from hansa.store.served.recorded import RecordedStore
from hansa.store.served.records import Record
from hansa.store.values import FROM_KEY, Delete, Get, Put

KEYS = [b"a", b"a/1", b"a/2", b"b", b"\xff"]
# So that tests may name a lease before it is granted.
LEASES = [11, 12, 13]

_puts = st.builds(Put, st.sampled_from(KEYS), st.sampled_from([b"", b"1", b"x" * 40]), st.just(0))
_hung_puts = st.builds(Put, st.sampled_from(KEYS), st.just(b"hung"), st.sampled_from(LEASES))
_deletes = st.builds(Delete, st.sampled_from(KEYS), st.sampled_from([b"", FROM_KEY, b"a0"]))

steps = st.one_of(
    st.tuples(st.just("perform"), st.lists(st.one_of(_puts, _puts, _hung_puts, _deletes), max_size=3)),
    st.tuples(st.just("perform"), st.lists(_puts, min_size=1, max_size=2)),
    st.tuples(st.just("grant"), st.sampled_from(LEASES)),
    st.tuples(st.just("revoke"), st.sampled_from(LEASES)),
    st.tuples(st.just("compact"), st.integers(1, 20)),
    st.tuples(st.just("pass"), st.sampled_from([1.0, 20.0])),
)


class Played:
    """A store to which steps were done, and the records that it told."""

    def __init__(self) -> None:
        self.store = RecordedStore(Chance.seeded(1))
        self.now_s = 0.0

    def play(self, step: tuple[str, Any]) -> list[Record]:
        """Do one step; what cannot be done does nothing."""
        what, operand = step
        self.store.tick(now=self.now_s)
        try:
            if what == "perform":
                self.store.perform(operand)
            elif what == "grant":
                self.store.grant(10.0, operand, now=self.now_s)
            elif what == "revoke":
                self.store.revoke(operand)
            elif what == "compact":
                self.store.compact(operand)
            else:
                self.now_s += operand
        except (BadArgument, LeaseLost, Compacted, FutureRevision):
            pass
        return [told.record for told in self.store.taken()]


def replayed(records: Sequence[Record]) -> RecordedStore:
    """A store that comes from its records. Raises `StoreCorrupt`."""
    store = RecordedStore(Chance.seeded(2))
    for record in records:
        store.replay(record, now=0.0)
    return store


def view(store: RecordedStore) -> tuple[Any, ...]:
    """Everything that reads, watchers and holders of leases can tell two stores apart by."""
    everything = Get(FROM_KEY, FROM_KEY)
    oldest = max(store.compacted_revision, 1)
    leases = []
    for lease in store.leases():
        info = store.lease_info(lease, now=0.0)
        assert info is not None
        leases.append((lease, info.granted_ttl_s, info.keys))
    return (
        store.revision,
        store.compacted_revision,
        store.live_bytes,
        store.keys_count,
        store.scan(everything),
        [store.scan(everything, revision=revision) for revision in range(oldest, store.revision + 1)],
        store.log(store.compacted_revision, 10_000),
        leases,
    )
