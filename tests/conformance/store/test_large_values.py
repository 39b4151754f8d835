"""Values as large as they may be: many in one answer, as events live and late, and beside each other."""

import asyncio

import pytest

from hansa.limits import STORE_VALUE_BYTES_MAX
from hansa.store.store import Store
from hansa.store.values import Get, GetResult, Put

pytestmark = pytest.mark.spec("CRD-01")

# Twice what a message of gRPC may weigh unless one says otherwise.
COUNT = 8
WAIT_S_MAX = 30.0


def value(number: int) -> bytes:
    return bytes([number]) * STORE_VALUE_BYTES_MAX


async def test_many_large_values_come_in_one_answer(store: Store) -> None:
    async with asyncio.TaskGroup() as writers:
        for number in range(COUNT):
            writers.create_task(store.put(f"k{number}", value(number), timeout=WAIT_S_MAX))
    scan = await store.scan("k", timeout=WAIT_S_MAX)
    assert [item.value for item in scan.items] == [value(number) for number in range(COUNT)]
    outcome = await store.commit((), [Put("x", value(COUNT)), Get("k", "l")], timeout=WAIT_S_MAX)
    (found,) = (result for result in outcome.results if isinstance(result, GetResult))
    assert [item.value for item in found.items] == [value(number) for number in range(COUNT)]


async def test_large_events_are_told_live_and_late_with_what_was_before(store: Store) -> None:
    live = store.watch("k", before=True)
    first = await live.ready()
    for number in range(COUNT):
        await store.put("k", value(number), timeout=WAIT_S_MAX)
    late = store.watch("k", start_revision=first, before=True)
    async with asyncio.timeout(WAIT_S_MAX):
        for watch in (live, late):
            for number in range(COUNT):
                batch = await anext(watch)
                (event,) = batch.events
                assert (batch.revision, event.item.value) == (first + number, value(number))
                assert event.before is None if number == 0 else event.before is not None
                assert event.before is None or event.before.value == value(number - 1)
            watch.close()
