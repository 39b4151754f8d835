"""Deadlines, cancellation and closing, on every engine."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hansa.errors import AlreadyClosed, TimedOut
from hansa.store.store import Store
from hansa.store.values import Put
from tests.conformance.store.engines import StoreEngine

pytestmark = pytest.mark.spec("CRD-01")

Call = Callable[[Store, int, float | None], Coroutine[Any, Any, Any]]

CALLS: dict[str, Call] = {
    "get": lambda store, lease, timeout: store.get("k", timeout=timeout),
    "scan": lambda store, lease, timeout: store.scan("", timeout=timeout),
    "put": lambda store, lease, timeout: store.put("k", b"", lease=lease, timeout=timeout),
    "delete": lambda store, lease, timeout: store.delete("k", timeout=timeout),
    "delete_prefix": lambda store, lease, timeout: store.delete_prefix("", timeout=timeout),
    "commit": lambda store, lease, timeout: store.commit((), [Put("k", b"")], timeout=timeout),
    "grant": lambda store, lease, timeout: store.grant(60.0, timeout=timeout),
    "keep_alive": lambda store, lease, timeout: store.keep_alive(lease, timeout=timeout),
    "lease_info": lambda store, lease, timeout: store.lease_info(lease, timeout=timeout),
    "revoke": lambda store, lease, timeout: store.revoke(lease, timeout=timeout),
    "compact": lambda store, lease, timeout: store.compact(2, timeout=timeout),
    "status": lambda store, lease, timeout: store.status(timeout=timeout),
    "watch": lambda store, lease, timeout: store.watch("").ready(timeout=timeout),
}


@pytest.fixture(params=list(CALLS))
def call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


async def prepared(store: Store) -> int:
    """A key to act on, and a lease."""
    await store.put("k", b"")
    await store.put("k", b"")
    return await store.grant(60.0)


async def test_a_call_ends_by_its_deadline(store: Store, engine: StoreEngine, call: Call) -> None:
    lease = await prepared(store)
    engine.pause(store)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(TimedOut):
        await call(store, lease, 0.05)
    assert 0.04 < loop.time() - began_s < 0.05 + 1.0
    engine.resume(store)
    await call(store, lease, 5.0)


async def test_a_call_without_time_is_not_made(store: Store, call: Call) -> None:
    lease = await prepared(store)
    revision = (await store.status()).revision
    for timeout in (0.0, -1.0):
        with pytest.raises(TimedOut):
            await call(store, lease, timeout)
    assert (await store.status()).revision == revision


async def test_a_call_waits_for_a_store_that_answers_again(
    store: Store, engine: StoreEngine, call: Call
) -> None:
    lease = await prepared(store)
    engine.pause(store)
    waiting = asyncio.ensure_future(call(store, lease, None))
    await asyncio.sleep(0)
    engine.resume(store)
    await waiting


@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize("paused", [False, True])
async def test_a_cancelled_call_leaves_a_store_that_works(
    store: Store, engine: StoreEngine, call: Call, paused: bool, turns: int
) -> None:
    lease = await prepared(store)
    revision = (await store.status()).revision
    if paused:
        engine.pause(store)
    task = asyncio.ensure_future(call(store, lease, 5.0))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if paused:
        assert task.cancelled()
        engine.resume(store)
    # It has happened whole or not at all; and what comes next works.
    after = (await store.status()).revision
    assert after - revision in (0, 1)
    if paused:
        assert after == revision
    assert await store.put("next", b"") == after + 1


async def test_calls_after_closing_are_refused(make_store: Callable[[], Store], call: Call) -> None:
    async with make_store() as store:
        lease = await prepared(store)
    with pytest.raises(AlreadyClosed):
        await call(store, lease, 5.0)
    with pytest.raises(AlreadyClosed):
        store.watch("k")


async def test_closing_ends_those_who_wait(
    make_store: Callable[[], Store], engine: StoreEngine, call: Call
) -> None:
    async with make_store() as store:
        lease = await prepared(store)
        watch = store.watch("k")
        await watch.ready()
        reading = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        engine.pause(store)
        waiting = asyncio.ensure_future(call(store, lease, None))
        await asyncio.sleep(0)
    for task in (waiting, reading):
        with pytest.raises(AlreadyClosed):
            await task
    with pytest.raises(AlreadyClosed):
        await anext(watch)
