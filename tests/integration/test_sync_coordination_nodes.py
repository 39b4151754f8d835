"""The registry of nodes, its watcher and the routing table, from threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hansa import sync
from hansa.coordination import MemberJoined, MemberLeft, NodeInfo, RouteEntry, RoutingTable
from hansa.errors import AlreadyClosed, BadArgument, Conflict, TimedOut, UsageError
from hansa.store import MemoryStore
from tests.support.leftovers import no_thread_is_left
from tests.support.sync_stage import WITHIN_S

__all__ = ["no_thread_is_left"]

COG = NodeInfo(id="cog", host="10.0.0.1", port=7400)


@pytest.fixture
def store() -> Iterator[sync.Store]:
    with sync.open_store("memory://docks") as store:
        yield store


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.mark.spec("CRD-02", "CRD-03")
def test_a_node_is_registered_until_it_is_deregistered_and_watchers_are_told(
    store: sync.Store, pool: ThreadPoolExecutor
) -> None:
    registry = sync.NodeRegistry(store)
    events = sync.MembershipWatcher(store).watch()
    with pytest.raises(TimedOut, match="nothing new within"):
        events.get(0.05)
    registered = pool.submit(registry.register, COG)
    joined = events.get(WITHIN_S)
    assert isinstance(joined, MemberJoined)
    assert (joined.member.info, joined.reason) == (COG, "joined")
    assert registry.list_nodes() == [COG]
    late = sync.MembershipWatcher(store).watch()
    assert next(late) == joined
    with pytest.raises(Conflict, match="cog is there already"):
        sync.NodeRegistry(store, takeover=False).register(COG)
    assert registry.deregister("cog")
    assert registered.result(WITHIN_S) == "deregistered"
    left = events.get(WITHIN_S)
    assert isinstance(left, MemberLeft)
    assert left.reason == "deregistered"
    assert registry.list_nodes() == []
    assert not registry.deregister("cog")
    reading = pool.submit(list, events)
    events.close()
    assert reading.result(WITHIN_S) == []
    with pytest.raises(AlreadyClosed):
        events.get(WITHIN_S)


def test_of_two_threads_each_event_goes_to_one(store: sync.Store, pool: ThreadPoolExecutor) -> None:
    events = sync.MembershipWatcher(store).watch()
    steps, inner = store._steps, store._inner
    assert steps is not None
    assert isinstance(inner, MemoryStore)
    steps.run(inner.pause)
    reading = [pool.submit(events.get, WITHIN_S) for _ in range(2)]
    while steps.run(lambda: len(store._calls)) < 2:
        pass
    steps.run(inner.resume)
    # What they share is for one reader, and watches once.
    for _ in range(10):
        store.status()
    assert len(inner._readers) == 1
    for name in ("cog", "hulk"):
        pool.submit(sync.NodeRegistry(store).register, NodeInfo(id=name))
    told = [each.result(WITHIN_S) for each in reading]
    assert sorted(event.member.id for event in told) == ["cog", "hulk"]
    for name in ("cog", "hulk"):
        assert sync.NodeRegistry(store).deregister(name)


def test_closing_the_store_ends_all_that_wait_in_it(pool: ThreadPoolExecutor) -> None:
    with sync.open_store("memory://docks") as store:
        events = sync.MembershipWatcher(store).watch()
        registered = pool.submit(sync.NodeRegistry(store).register, COG)
        assert isinstance(next(events), MemberJoined)
        reading = pool.submit(list, events)
        tables = pool.submit(list, sync.RoutingTableStore(store).watch())
    assert isinstance(registered.exception(WITHIN_S), AlreadyClosed)
    assert reading.result(WITHIN_S) == []
    assert tables.result(WITHIN_S) == []
    events.close()
    with pytest.raises(AlreadyClosed):
        sync.NodeRegistry(store).list_nodes()


def test_what_cannot_be_is_refused() -> None:
    store = sync.open_store("memory://docks")
    for kind in (sync.NodeRegistry, sync.MembershipWatcher, sync.RoutingTableStore):
        with pytest.raises(BadArgument, match="slash"):
            kind(store, cluster="a/b")
    for watch in (sync.MembershipWatcher(store).watch, sync.RoutingTableStore(store).watch):
        with pytest.raises(UsageError, match="before it was entered"):
            watch()


@pytest.mark.spec("CRD-04")
def test_a_table_is_saved_over_the_one_that_was_read_and_told_to_all(
    store: sync.Store, pool: ThreadPoolExecutor
) -> None:
    routing = sync.RoutingTableStore(store)
    assert routing.load() is None
    tables = routing.watch()
    waiting = pool.submit(tables.get, WITHIN_S)
    first = RoutingTable(version=1, entries=(RouteEntry(partition_id="p", node_id="cog"),))
    revision = routing.save(first, expected=0)
    assert waiting.result(WITHIN_S) == first
    loaded = routing.load()
    assert loaded == first
    assert loaded is not None
    assert loaded.revision == revision
    with pytest.raises(Conflict):
        routing.save(RoutingTable(version=2), expected=0)
    routing.save(RoutingTable(version=2), expected=revision)
    assert next(tables).version == 2
    assert next(routing.watch()).version == 2
    tables.close()
    assert list(tables) == []
