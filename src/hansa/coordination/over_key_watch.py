"""Waiting for one key to change or to go, through all that a watch can suffer.

It must: close each watch; after a broken one pause, read the key, and watch on from the revision of that
read, but first see whether what was read is what it waits for; read again as long as the store does not
answer; and begin its pauses anew when a watch has told something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hansa.chance import Chance
from hansa.errors import Compacted, StoreUnavailable, TimedOut, WatchOverrun
from hansa.limits import FOLLOW_RETRY_S_MAX, FOLLOW_RETRY_S_MIN, RECONNECT_JITTER
from hansa.store.store import Store
from hansa.store.values import EventKind, KeyValue
from hansa.transport.backoff import Backoff

# What makes a call worth another try.
TROUBLE = (StoreUnavailable, TimedOut)


def patient_backoff(chance: Chance) -> Backoff:
    """The pauses of whoever waits for a store that cannot be reached."""
    return Backoff(s_min=FOLLOW_RETRY_S_MIN, s_max=FOLLOW_RETRY_S_MAX, jitter=RECONNECT_JITTER, chance=chance)


async def key_changed(
    store: Store,
    known: KeyValue,
    *,
    start_revision: int,
    chance: Chance,
    is_enough: Callable[[KeyValue], bool] = lambda item: False,
) -> KeyValue | None:
    """Wait until a key that is known is gone (gives None), or was put so that `is_enough` (gives it).

    A key that was deleted and created anew is gone. It waits for a store that cannot be reached, however
    long. Raises `AlreadyClosed`. Cancelling it leaves nothing behind.
    """
    backoff = patient_backoff(chance)
    while True:
        watch = store.watch(known.key, start_revision=start_revision, exact=True)
        try:
            async for batch in watch:
                backoff.reset()
                for event in batch.events:
                    if event.kind is EventKind.DELETE or event.item.create_revision != known.create_revision:
                        return None
                    if is_enough(event.item):
                        return event.item
        except (Compacted, WatchOverrun, *TROUBLE):
            pass
        finally:
            watch.close()
        while True:
            await asyncio.sleep(backoff.next_s())
            try:
                scan = await store.scan(known.key, b"")
                break
            except TROUBLE:
                continue
        item = scan.items[0] if scan.items else None
        if item is None or item.create_revision != known.create_revision:
            return None
        if is_enough(item):
            return item
        start_revision = scan.revision + 1
