"""Who is there: the registry of nodes, the watcher and members, the same on every engine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hansa.coordination import (
    Following,
    LoopLagged,
    MemberLeft,
    Members,
    MembershipWatch,
    MembershipWatcher,
    MemberStatus,
    NodeInfo,
    NodeRegistry,
    Roster,
    Session,
)
from hansa.coordination.following import Changed, Snapshot
from hansa.errors import Conflict
from hansa.keys import Keys
from hansa.store.store import Store
from tests.conformance.store.engines import StoreEngine

WAIT_S_MAX = 15.0
A, B = NodeInfo(id="a", host="10.0.0.1", port=7), NodeInfo(id="b", roles=frozenset({"ps"}))


@asynccontextmanager
async def registered(registry: NodeRegistry, node: NodeInfo) -> AsyncIterator[asyncio.Task[str]]:
    """A node that stays registered for as long as the block, and is then left to its lease."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(registry.register(node))
        try:
            yield task
        finally:
            task.cancel()


async def told(events: MembershipWatch) -> tuple[str, str]:
    async with asyncio.timeout(WAIT_S_MAX):
        event = await anext(events)
    return type(event).__name__, event.member.id


@pytest.mark.spec("CRD-02")
async def test_a_node_is_listed_until_its_lease_ends(store: Store, ttl_s: float) -> None:
    registry = NodeRegistry(store, ttl=ttl_s)
    events = MembershipWatcher(store).watch()
    async with registered(registry, A), registered(registry, B):
        assert {await told(events), await told(events)} == {("MemberJoined", "a"), ("MemberJoined", "b")}
        assert await registry.list_nodes() == [A, B]
        # Longer than a lease: it is renewed.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.2 * ttl_s):
                await anext(events)
        assert await registry.list_nodes() == [A, B]
    # Cancelled: nothing is taken back, the lease ends by itself.
    assert await registry.list_nodes() == [A, B]
    assert {await told(events), await told(events)} == {("MemberDown", "a"), ("MemberDown", "b")}
    assert await registry.list_nodes() == []
    events.close()


@pytest.mark.spec("CRD-02")
async def test_a_node_that_is_deregistered_is_gone_at_once(store: Store, other_store: Store) -> None:
    registry = NodeRegistry(store, ttl=60)
    events = MembershipWatcher(other_store).watch()
    async with registered(registry, A) as registration:
        assert await told(events) == ("MemberJoined", "a")
        # By anybody, not only by whoever registered it.
        assert await NodeRegistry(other_store, ttl=60).deregister("a")
        assert await registry.list_nodes() == []
        async with asyncio.timeout(WAIT_S_MAX):
            assert await registration == "deregistered"
            left = await anext(events)
        assert isinstance(left, MemberLeft)
        assert (left.member.id, left.reason) == ("a", "deregistered")
    assert not await registry.deregister("a")
    assert (await store.scan(Keys().prefix)).count == 0
    events.close()


@pytest.mark.spec("CRD-02")
async def test_a_node_whose_lease_was_lost_registers_again(store: Store) -> None:
    registry = NodeRegistry(store, ttl=60)
    events = MembershipWatcher(store).watch()
    async with registered(registry, A):
        assert await told(events) == ("MemberJoined", "a")
        item = await store.get(Keys().node("a"))
        assert item is not None
        await store.revoke(item.lease)
        assert await told(events) == ("MemberDown", "a")
        assert await told(events) == ("MemberJoined", "a")
    events.close()


async def test_the_latest_registration_of_an_id_wins(store: Store, other_store: Store) -> None:
    events = MembershipWatcher(store).watch()
    async with registered(NodeRegistry(store, ttl=60), A) as former:
        assert await told(events) == ("MemberJoined", "a")
        with pytest.raises(Conflict, match="there already"):
            await NodeRegistry(other_store, ttl=60, takeover=False).register(A)
        async with registered(NodeRegistry(other_store, ttl=60), A):
            assert [await told(events), await told(events)] == [("MemberDown", "a"), ("MemberJoined", "a")]
            async with asyncio.timeout(WAIT_S_MAX):
                assert (await former).startswith("replaced by a newer process")
            # The former one took nothing along.
            assert await NodeRegistry(store).list_nodes() == [A]
    events.close()


@pytest.mark.spec("CRD-03")
async def test_after_a_compaction_the_watcher_tells_what_it_missed_and_nothing_twice(
    engine: StoreEngine, store: Store
) -> None:
    keys = Keys()
    for name in ("a", "b", "c"):
        await store.put(keys.node(name), NodeInfo(id=name).encode())
    events = MembershipWatcher(store).watch()
    assert {await told(events) for _ in range(3)} == {("MemberJoined", name) for name in ("a", "b", "c")}
    following = events._following
    assert following._watch is not None
    # A watch that must begin at a revision which the store is about to forget.
    following._watch.close()
    following._watch = None
    await store.delete(keys.node("a"))
    await store.delete(keys.node("b"))
    await store.put(keys.node("b"), NodeInfo(id="b", zone="new").encode())
    last = await store.put(keys.node("d"), NodeInfo(id="d").encode())
    await store.compact(last)
    found = [await told(events) for _ in range(4)]
    assert sorted(found[:2]) == [("MemberDown", "a"), ("MemberDown", "b")]
    assert sorted(found[2:]) == [("MemberJoined", "b"), ("MemberJoined", "d")]
    await store.delete(keys.node("c"))
    assert await told(events) == ("MemberDown", "c")
    events.close()


@pytest.mark.spec("CRD-11")
async def test_a_follower_outlives_a_store_that_is_away(store: Store, away: Callable[[bool], None]) -> None:
    await store.put("k/a", b"1")
    following = Following(store, "k/", timeout=0.5)
    assert isinstance(await anext(following), Snapshot)
    away(True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await anext(following)
    away(False)
    async with asyncio.timeout(WAIT_S_MAX):
        revision = await store.put("k/a", b"2")
        news = await anext(following)
    assert isinstance(news, Changed)
    assert [item.mod_revision for item in news.puts] == [revision]
    following.close()


@pytest.mark.spec("CRD-05")
@pytest.mark.spec("CRD-06")
async def test_members_join_are_suspected_die_and_leave(
    engine: StoreEngine, store: Store, other_store: Store
) -> None:
    # The shortest that every engine can do: leases of whole seconds, two at least.
    timeout_s = 1.0

    def member(store: Store, node: NodeInfo) -> Members:
        return Members(store, node, heartbeat_interval=timeout_s / 4, heartbeat_timeout=timeout_s)

    async def stay_without_renewing() -> None:
        """A member of which only the lease is left."""
        session = Session(store, 2 * timeout_s)
        await session.__aenter__()
        await store.put(Keys().node("c"), NodeInfo(id="c").encode(), lease=session.lease)
        session.end_lost("for the test")

    def has_c(status: MemberStatus) -> Callable[[Roster], bool]:
        return lambda view: "c" in view and view["c"].status is status

    async with member(store, A) as a:
        events = a.events()
        async with member(other_store, B) as b:
            for members in (a, b):
                await members.until(lambda view: len(view.up()) == 2, timeout=WAIT_S_MAX)
            await b.set_status(MemberStatus.DRAINING, reason="enough")
            await a.until(lambda view: view["b"].status is MemberStatus.DRAINING, timeout=WAIT_S_MAX)
            await stay_without_renewing()
            for status in (MemberStatus.SUSPECT, MemberStatus.DOWN):
                for members in (a, b):
                    await members.until(has_c(status), timeout=WAIT_S_MAX)
        await a.until(lambda view: view["b"].status is MemberStatus.LEFT, timeout=WAIT_S_MAX)
        found: list[Any] = []
        while len(found) < 6:
            async with asyncio.timeout(WAIT_S_MAX):
                event = await anext(events)
            # A busy machine may hold the loop up: that is told, too.
            if not isinstance(event, LoopLagged):
                found.append(event)
        assert [type(event).__name__ for event in found] == [
            "MemberJoined",
            "MemberUpdated",
            "MemberJoined",
            "MemberSuspected",
            "MemberDown",
            "MemberLeft",
        ]
        assert all(event.reason for event in found)
        assert a.stats.false_suspicions_count == 0
    assert (await store.scan(Keys().prefix)).count == 0


async def test_two_clusters_in_one_store_do_not_see_each_other(store: Store) -> None:
    async with Members(store, A, cluster="blue") as blue, Members(store, A, cluster="green") as green:
        assert (list(blue.view), list(green.view)) == (["a"], ["a"])
        assert await NodeRegistry(store, cluster="red").list_nodes() == []
        assert await NodeRegistry(store, cluster="blue").list_nodes() == [A]
