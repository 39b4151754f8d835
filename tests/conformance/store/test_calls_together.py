"""Calls that fail or are given up, beside others that do not mind; and how soon a failure is told."""

import asyncio
from collections.abc import Callable

import pytest

from hansa.errors import TimedOut
from hansa.store.store import Store
from hansa.store.values import EventKind
from tests.conformance.store.engines import StoreEngine
from tests.conformance.store.test_trouble import CALLS, prepared
from tests.support.etcd_lag import LagMeter

pytestmark = pytest.mark.spec("CRD-01")

TIMEOUT_S = 0.15
# What is promised: an error by the deadline and this.
LATE_S_MAX = 0.1
CANCELLED_COUNT = 30


@pytest.mark.spec("CRD-11")
async def test_every_call_fails_by_its_deadline_and_a_tenth_of_a_second(
    store: Store, engine: StoreEngine
) -> None:
    loop = asyncio.get_running_loop()
    on = await prepared(store)
    late: list[str] = []
    engine.pause(store)
    # One after the other, so that none is late because of another one.
    async with LagMeter() as meter:
        for name, call in CALLS.items():
            began_s = loop.time()
            with pytest.raises(TimedOut):
                await call(store, on, TIMEOUT_S)
            took_s = loop.time() - began_s
            if took_s > TIMEOUT_S + LATE_S_MAX + meter.lag_s_since(began_s + TIMEOUT_S):
                late.append(f"{name}: {took_s:.3f} s")
    engine.resume(store)
    assert late == []
    on = await prepared(store)
    for call in CALLS.values():
        await call(store, on, 20.0)


async def test_calls_and_watches_do_not_mind_that_others_are_cancelled(
    make_store: Callable[[], Store],
) -> None:
    """They share connections, and streams: of watches, and of leases that are kept."""
    async with make_store() as store:
        loop = asyncio.get_running_loop()
        watch = store.watch("steady")
        first = await watch.ready()
        lease = await store.grant(60.0)
        for number in range(CANCELLED_COUNT):
            on = await prepared(store)
            tasks = [asyncio.ensure_future(call(store, on, 5.0)) for call in CALLS.values()]
            for turn, task in enumerate(tasks):
                loop.call_later(0.000_1 * ((number + turn) % 15), task.cancel)
            assert await store.keep_alive(lease) > 0
            await store.put("steady", b"%d" % number, lease=lease)
            await asyncio.wait(tasks)
        told: list[bytes] = []
        async with asyncio.timeout(20.0):
            while len(told) < CANCELLED_COUNT:
                batch = await anext(watch)
                assert batch.revision >= first
                told += [event.item.value for event in batch.events if event.kind is EventKind.PUT]
        assert told == [b"%d" % number for number in range(CANCELLED_COUNT)]
        watch.close()
