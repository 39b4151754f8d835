"""The routing table in the store, the same on every engine."""

import asyncio

import pytest

from hansa.coordination import RouteEntry, RoutingTable, RoutingTables, RoutingTableStore
from hansa.errors import BadArgument, BadRecord, Conflict
from hansa.keys import Keys
from hansa.store.store import Store

WAIT_S_MAX = 15.0


def table(version: int) -> RoutingTable:
    return RoutingTable(
        version=version,
        entries=(
            RouteEntry(partition_id="p1", key_range_end="m", node_id="a", node_address="10.0.0.1:7"),
            RouteEntry(partition_id="p2", key_range_start="m", node_id="b", node_status=1),
        ),
    )


async def following(tables: RoutingTables) -> RoutingTable:
    async with asyncio.timeout(WAIT_S_MAX):
        return await anext(tables)


@pytest.mark.spec("CRD-04")
async def test_a_table_is_loaded_as_it_was_saved(store: Store) -> None:
    routing = RoutingTableStore(store)
    assert await routing.load() is None
    revision = await routing.save(table(1), expected=0)
    loaded = await routing.load()
    assert loaded == table(1)
    assert loaded is not None
    assert loaded.revision == revision


@pytest.mark.spec("CRD-04")
async def test_a_table_is_saved_over_the_one_that_was_read_and_no_other(
    store: Store, other_store: Store
) -> None:
    routing, other = RoutingTableStore(store), RoutingTableStore(other_store)
    first = await routing.save(table(1), expected=0)
    with pytest.raises(Conflict, match="not 0"):
        await other.save(table(2), expected=0)
    second = await other.save(table(2), expected=first)
    with pytest.raises(Conflict, match=f"revision {second}, not {first}"):
        await routing.save(table(3), expected=first)
    for stale in (1, 2):
        for expected in (second, None):
            with pytest.raises(Conflict, match="version 2"):
                await routing.save(table(stale), expected=expected)
    await routing.save(table(7), expected=None)
    assert await other.load() == table(7)


@pytest.mark.spec("CRD-04")
async def test_of_two_who_save_at_the_same_time_one_wins(store: Store, other_store: Store) -> None:
    revision = await RoutingTableStore(store).save(table(1), expected=0)
    for version in range(2, 12):
        results = await asyncio.gather(
            RoutingTableStore(store).save(table(version), expected=revision),
            RoutingTableStore(other_store).save(table(version), expected=revision),
            return_exceptions=True,
        )
        won = [result for result in results if isinstance(result, int)]
        lost = [result for result in results if isinstance(result, Conflict)]
        assert (len(won), len(lost)) == (1, 1)
        revision = won[0]


@pytest.mark.spec("CRD-04")
async def test_a_watch_gives_the_current_table_first_and_then_each(store: Store, other_store: Store) -> None:
    routing, tables = RoutingTableStore(store), RoutingTableStore(other_store).watch()
    async with asyncio.TaskGroup() as tasks:
        # Without one it waits for the first.
        first = tasks.create_task(following(tables))
        await asyncio.sleep(0)
        revision = await routing.save(table(1), expected=0)
        assert await first == table(1)
    late = routing.watch()
    assert await following(late) == table(1)
    for version in (2, 3):
        revision = await routing.save(table(version), expected=revision)
        for watch in (tables, late):
            found = await following(watch)
            assert (found, found.revision) == (table(version), revision)
    assert (tables.skipped_count, late.skipped_count) == (0, 0)
    tables.close()
    late.close()
    assert [found async for found in tables] == []


@pytest.mark.spec("CRD-04")
async def test_a_slow_reader_gets_the_latest_table(store: Store) -> None:
    routing = RoutingTableStore(store)
    tables = routing.watch()
    revision = await routing.save(table(1), expected=0)
    await following(tables)
    for version in range(2, 11):
        revision = await routing.save(table(version), expected=revision)
    versions = [(await following(tables)).version]
    while versions[-1] < 10:
        versions.append((await following(tables)).version)
    assert versions == sorted(set(versions))
    assert tables.skipped_count == 9 - len(versions)
    tables.close()


async def test_what_is_no_table_is_refused_when_loaded_and_passed_over_when_watched(store: Store) -> None:
    routing = RoutingTableStore(store)
    await store.put(Keys().routing, b'{"version":"x"}')
    with pytest.raises(BadRecord):
        await routing.load()
    tables = routing.watch()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(following(tables))
        await asyncio.sleep(0)
        await store.delete(Keys().routing)
        await routing.save(table(1), expected=0)
        assert await first == table(1)
    tables.close()


async def test_a_table_that_is_too_large_is_refused(store: Store) -> None:
    entries = tuple(RouteEntry(partition_id=f"{number:0100}") for number in range(10_000))
    with pytest.raises(BadArgument, match="at most"):
        await RoutingTableStore(store).save(RoutingTable(version=1, entries=entries), expected=None)
