"""Transactions happen whole or not at all, on every engine."""

import asyncio
from collections.abc import Sequence

import pytest

from hansa.errors import BadArgument, LeaseLost
from hansa.limits import STORE_TXN_COUNT_MAX
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, DeleteResult, Get, GetResult, Operation, Put, PutResult

pytestmark = pytest.mark.spec("CRD-01")


async def test_the_compares_choose_the_branch(store: Store) -> None:
    revision = await store.put("k", b"m")
    holding = [
        Compare.exists("k"),
        Compare.absent("x"),
        Compare.created("k", "=", revision),
        Compare.revision("k", "<", revision + 1),
        Compare.version("k", "!=", 2),
        Compare.value("k", ">", b"l"),
        Compare.lease("k", "=", 0),
        Compare.revision("x", "=", 0),
    ]
    failing = [Compare.absent("k"), Compare.version("k", ">", 1), Compare.value("x", "!=", b"y")]
    assert (await store.commit(holding, [Get("k")])).is_success
    for compare in failing:
        outcome = await store.commit([*holding, compare], [Put("no", b"")], [Get("k")])
        assert not outcome.is_success
        (result,) = outcome.results
        assert isinstance(result, GetResult)
        assert [item.value for item in result.items] == [b"m"]
    assert (await store.status()).revision == revision


async def test_all_changes_of_a_transaction_have_one_revision(store: Store) -> None:
    revision = await store.put("a", b"") + 1
    outcome = await store.commit((), [Put("b", b"1"), Delete("a"), Get("b")])
    assert outcome.revision == revision
    put, delete, get = outcome.results
    assert put == PutResult(revision=revision)
    assert delete == DeleteResult(count=1)
    assert isinstance(get, GetResult)
    assert [(item.value, item.mod_revision) for item in get.items] == [(b"1", revision)]


async def test_a_transaction_that_is_refused_changes_nothing(store: Store) -> None:
    revision = (await store.status()).revision
    many = [Put(f"k{number}", b"") for number in range(STORE_TXN_COUNT_MAX + 1)]
    branches: list[Sequence[Operation]] = [
        [Put("k", b""), Put("k", b"")],
        [Delete("a", "z"), Put("k", b"")],
        many,
    ]
    for branch in branches:
        with pytest.raises(BadArgument):
            await store.commit((), branch)
        with pytest.raises(BadArgument):
            await store.commit((), (), branch)
    with pytest.raises(LeaseLost):
        await store.commit((), [Put("a", b""), Put("b", b"", 77)])
    assert (await store.status()).revision == revision
    assert (await store.commit((), many[1:])).revision == revision + 1


async def test_writers_that_compare_lose_no_count(store: Store) -> None:
    await store.put("count", b"0")

    async def add(times: int) -> int:
        lost = 0
        for _ in range(times):
            while True:
                item = await store.get("count")
                assert item is not None
                outcome = await store.commit(
                    [Compare.revision("count", "=", item.mod_revision)],
                    [Put("count", b"%d" % (int(item.value) + 1))],
                )
                if outcome.is_success:
                    break
                lost += 1
        return lost

    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(add(10)) for _ in range(10)]
    item = await store.get("count")
    assert item is not None
    assert (item.value, item.version) == (b"100", 101)
    # They were in each other's way; else this has shown nothing.
    assert sum(writer.result() for writer in writers) > 0
