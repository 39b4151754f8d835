"""Deadlines, cancellation and closing, on every engine."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from hansa.errors import AlreadyClosed, Compacted, LeaseLost, TimedOut
from hansa.store.store import Store
from hansa.store.values import Put
from tests.conformance.store.engines import StoreEngine

pytestmark = pytest.mark.spec("CRD-01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the calls act on: a lease, and a revision that can be compacted."""

    lease: int
    revision: int


Call = Callable[[Store, Prepared, float | None], Coroutine[Any, Any, Any]]

CALLS: dict[str, Call] = {
    "get": lambda store, on, timeout: store.get("k", timeout=timeout),
    "scan": lambda store, on, timeout: store.scan("k", timeout=timeout),
    "put": lambda store, on, timeout: store.put("k", b"", lease=on.lease, timeout=timeout),
    "delete": lambda store, on, timeout: store.delete("k", timeout=timeout),
    "delete_prefix": lambda store, on, timeout: store.delete_prefix("k", timeout=timeout),
    "commit": lambda store, on, timeout: store.commit((), [Put("k", b"")], timeout=timeout),
    "grant": lambda store, on, timeout: store.grant(60.0, timeout=timeout),
    "keep_alive": lambda store, on, timeout: store.keep_alive(on.lease, timeout=timeout),
    "lease_info": lambda store, on, timeout: store.lease_info(on.lease, timeout=timeout),
    "revoke": lambda store, on, timeout: store.revoke(on.lease, timeout=timeout),
    "compact": lambda store, on, timeout: store.compact(on.revision, timeout=timeout),
    "status": lambda store, on, timeout: store.status(timeout=timeout),
    "watch": lambda store, on, timeout: store.watch("k").ready(timeout=timeout),
}
# From before it leaves until after it came back, on a server of this machine.
CANCELLED_AFTER_S = (0.0, 0.000_2, 0.000_5, 0.001, 0.002, 0.005)


@pytest.fixture(params=list(CALLS))
def call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


async def prepared(store: Store) -> Prepared:
    """A key with a past to act on, and a lease."""
    await store.put("k", b"")
    return Prepared(revision=await store.put("k", b""), lease=await store.grant(60.0))


async def again(store: Store, call: Call, on: Prepared, timeout: float | None) -> None:
    """Make a call that may have happened before: only what can happen once says so."""
    try:
        await call(store, on, timeout)
    except (LeaseLost, Compacted):
        assert call in (CALLS["revoke"], CALLS["compact"])


async def test_a_call_ends_by_its_deadline(store: Store, engine: StoreEngine, call: Call) -> None:
    on = await prepared(store)
    engine.pause(store)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(TimedOut):
        await call(store, on, 0.05)
    assert 0.04 < loop.time() - began_s < 0.05 + 1.0
    engine.resume(store)
    await (again(store, call, on, 5.0) if engine.is_remote else call(store, on, 5.0))


async def test_a_call_without_time_is_not_made(store: Store, call: Call) -> None:
    on = await prepared(store)
    revision = (await store.status()).revision
    for timeout in (0.0, -1.0):
        with pytest.raises(TimedOut):
            await call(store, on, timeout)
    assert (await store.status()).revision == revision


async def test_a_call_waits_for_a_store_that_answers_again(
    store: Store, engine: StoreEngine, call: Call
) -> None:
    on = await prepared(store)
    engine.pause(store)
    waiting = asyncio.ensure_future(call(store, on, None))
    await asyncio.sleep(0)
    engine.resume(store)
    await waiting


@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize("paused", [False, True])
async def test_a_cancelled_call_leaves_a_store_that_works(
    store: Store, engine: StoreEngine, call: Call, paused: bool, turns: int
) -> None:
    on = await prepared(store)
    revision = (await store.status()).revision
    if paused:
        engine.pause(store)
    task = asyncio.ensure_future(call(store, on, 5.0))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if paused:
        assert task.cancelled()
        engine.resume(store)
    if paused and not engine.is_remote:
        assert (await store.status()).revision == revision
    # It has happened whole or not at all; and what comes next works.
    assert await store.put("next", b"") - revision in (1, 2)


async def test_a_call_that_is_cancelled_under_way_happens_whole_or_not_at_all(
    store: Store, call: Call
) -> None:
    loop = asyncio.get_running_loop()
    for delay_s in CANCELLED_AFTER_S:
        on = await prepared(store)
        revision = (await store.status()).revision
        task = asyncio.ensure_future(call(store, on, 5.0))
        loop.call_later(delay_s, task.cancel)
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None
        assert await store.put("next", b"") - revision in (1, 2)


async def test_calls_after_closing_are_refused(make_store: Callable[[], Store], call: Call) -> None:
    async with make_store() as store:
        on = await prepared(store)
    with pytest.raises(AlreadyClosed):
        await call(store, on, 5.0)
    with pytest.raises(AlreadyClosed):
        store.watch("k")


async def test_closing_ends_those_who_wait(
    make_store: Callable[[], Store], engine: StoreEngine, call: Call
) -> None:
    async with make_store() as store:
        on = await prepared(store)
        watch = store.watch("k")
        await watch.ready()
        reading = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        engine.pause(store)
        waiting = asyncio.ensure_future(call(store, on, None))
        await asyncio.sleep(0)
    for task in (waiting, reading):
        with pytest.raises(AlreadyClosed):
            await task
    with pytest.raises(AlreadyClosed):
        await anext(watch)


async def test_who_closes_second_returns_when_the_first_has_finished(
    make_store: Callable[[], Store],
) -> None:
    store = await make_store().__aenter__()
    on = await prepared(store)
    keeping = store.keep(
        on.lease,
        ttl=60.0,
        granted_s=store.clock.monotonic(),
        interval=1.0,
        loop_silence_s_max=60.0,
        on_change=lambda: None,
    )
    first, second = (asyncio.ensure_future(store.__aexit__(None, None, None)) for _ in range(2))
    await second
    assert first.done()
    await first
    await keeping.stopped()
