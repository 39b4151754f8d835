"""Keys, leases and watchers stay in step, whatever the driver's timer does."""

import pytest

from hansa.chance import Chance
from hansa.errors import BadArgument, LeaseLost
from hansa.store.engine import Engine
from hansa.store.values import Delete, EventKind, Get, Put, prefix_range
from hansa.store.watching import WatchInterest


def engine() -> Engine:
    return Engine(Chance.seeded(5))


def test_leases_have_numbers_that_differ_and_fit_a_signed_word() -> None:
    store = engine()
    leases = {store.grant(5.0, now=0.0) for _ in range(100)}
    assert len(leases) == 100
    assert all(0 < lease < 2**63 for lease in leases)


def test_an_expired_lease_takes_its_keys_in_one_revision_and_watchers_hear_of_it() -> None:
    store = engine()
    first, second = store.grant(5.0, now=0.0), store.grant(5.0, now=0.0)
    store.commit((), (Put("b", b"", first), Put("a", b"", first), Put("c", b"", second)), (), now=0.0)
    watcher = store.watch(WatchInterest(b""), 0, now=0.0)
    store.news()
    assert store.deadline() == 5.0
    store.tick(now=5.0)
    assert store.news() == [watcher]
    assert store.news() == []
    batches = [store.take(watcher), store.take(watcher)]
    assert [
        [(event.kind, event.item.key) for event in batch.events] if batch else None for batch in batches
    ] == [
        [(EventKind.DELETE, b"a"), (EventKind.DELETE, b"b")],
        [(EventKind.DELETE, b"c")],
    ]
    assert (store.revision, store.deadline()) == (4, None)


@pytest.mark.parametrize(
    "call", ["get", "scan", "commit", "lease_info", "renew", "revoke", "watch", "compact"]
)
def test_no_call_sees_a_lease_whose_time_is_over_even_if_no_timer_came(call: str) -> None:
    store = engine()
    lease = store.grant(5.0, now=0.0)
    store.commit((), (Put("k", b"", lease),), (), now=0.0)
    if call == "get":
        assert store.get(b"k", revision=0, now=5.0) is None
    elif call == "scan":
        assert store.scan(Get(*prefix_range("")), revision=0, now=5.0).items == ()
    elif call == "commit":
        with pytest.raises(LeaseLost):
            store.commit((), (Put("x", b"", lease),), (), now=5.0)
    elif call == "lease_info":
        assert store.lease_info(lease, now=5.0) is None
    elif call == "watch":
        assert store.watch(WatchInterest(b""), 0, now=5.0).next_revision == 4
    elif call == "compact":
        store.compact(3, now=5.0)
    else:
        with pytest.raises(LeaseLost):
            getattr(store, call)(lease, now=5.0)
    assert store.revision == 3


def test_a_revoked_lease_takes_its_keys_at_once() -> None:
    store = engine()
    lease = store.grant(5.0, now=0.0)
    store.commit((), (Put("a", b"", lease), Put("b", b"", lease), Put("c", b"")), (), now=0.0)
    store.commit((), (Delete("b"),), (), now=0.0)
    store.revoke(lease, now=1.0)
    assert [item.key for item in store.scan(Get(*prefix_range("")), revision=0, now=1.0).items] == [b"c"]
    assert store.revision == 4


def test_a_lease_without_keys_ends_without_a_revision() -> None:
    store = engine()
    store.grant(5.0, now=0.0)
    store.tick(now=9.0)
    assert store.revision == 1


def test_a_watch_from_before_all_time_is_refused() -> None:
    with pytest.raises(BadArgument, match="revision -1"):
        engine().watch(WatchInterest(b""), -1, now=0.0)
