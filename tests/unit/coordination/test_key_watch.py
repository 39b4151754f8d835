"""Waiting for one key: what is asked again, from where, and after which pause."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.coordination.following import Following, key_changed
from hansa.errors import Compacted, HansaError, StoreUnavailable, TimedOut
from hansa.store.values import KeyValue
from hansa.transport.environment import Environment
from tests.support.scripted_store import ScriptedStore, item, play, put, read

BROKEN = StoreUnavailable("the store is away")
GONE = read(20)


async def changed(store: ScriptedStore, is_enough: Callable[[KeyValue], bool]) -> KeyValue | None:
    async with asyncio.timeout(60):
        return await key_changed(
            store,  # type: ignore[arg-type]
            item(),
            revision=5,
            chance=Chance.seeded(1),
            is_enough=is_enough,
        )


@pytest.mark.parametrize("error", [BROKEN, Compacted("forgotten"), TimedOut("too slow")])
def test_after_a_broken_watch_it_reads_and_watches_on_from_there(error: HansaError) -> None:
    store = ScriptedStore(
        watches=[[error], [put(item(b"enough", modified=12))]], scans=[read(9, item(modified=8))]
    )

    async def scene() -> None:
        found = await changed(store, lambda found: found.value == b"enough")
        assert found == item(b"enough", modified=12)
        assert [asked[:2] for asked in store.asked] == [("watch", 6), ("scan", 0), ("watch", 10)]
        assert all(watch.is_closed for watch in store.opened)

    play(scene)


def test_what_came_while_the_watch_was_broken_is_enough() -> None:
    store = ScriptedStore(watches=[[BROKEN]], scans=[read(9, item(b"enough", modified=8))])

    async def scene() -> None:
        found = await changed(store, lambda found: found.value == b"enough")
        assert found == item(b"enough", modified=8)

    play(scene)


def test_a_read_that_fails_is_repeated_after_growing_pauses() -> None:
    store = ScriptedStore(watches=[[BROKEN]], scans=[BROKEN] * 5 + [GONE])

    async def scene() -> None:
        assert await changed(store, lambda found: False) is None
        assert len(store.pauses_s) == 6
        assert store.pauses_s[-1] > 10 * store.pauses_s[0]

    play(scene)


def test_the_pauses_begin_anew_when_the_watch_has_told_something() -> None:
    still_there = read(9, item(modified=8))
    store = ScriptedStore(
        watches=[[BROKEN], [put(item(b"news", modified=12)), BROKEN]],
        scans=[BROKEN] * 5 + [still_there, GONE],
    )

    async def scene() -> None:
        assert await changed(store, lambda found: False) is None
        assert store.pauses_s[-1] < 0.1

    play(scene)


# ---- following -----------------------------------------------------------------------------------


def following(store: ScriptedStore) -> Following:
    return Following(store, "k", environment=Environment(chance=Chance.seeded(1)))  # type: ignore[arg-type]


def test_a_follower_that_reads_again_begins_its_pauses_anew() -> None:
    store = ScriptedStore(
        watches=[[BROKEN], []], scans=[BROKEN] * 6 + [read(9, item()), read(12, item(b"2", modified=11))]
    )

    async def scene() -> None:
        follower = following(store)
        for _ in range(2):
            await anext(follower)
        # From the watch that broke to the next read.
        assert store.pauses_s[-2] < 0.1
        assert max(store.pauses_s) > 1.0
        follower.close()

    play(scene)


def test_a_pause_that_is_over_is_not_made_again() -> None:
    """A step that is cancelled in its read has waited already: the next step reads at once."""
    store = ScriptedStore(watches=[[]], scans=[BROKEN, read(9, item())])

    async def scene() -> None:
        follower, scan, reading = following(store), store.scan, asyncio.Event()

        async def stuck(*_: Any, **__: Any) -> Any:
            if len(store.asked) == 1:
                reading.set()
                store.asked.append(("scan", 0, 0.0))
                await asyncio.Event().wait()
            return await scan()

        store.scan = stuck  # type: ignore[method-assign]
        step = asyncio.ensure_future(anext(follower))
        await reading.wait()
        step.cancel()
        await asyncio.wait([step])
        began_s = asyncio.get_running_loop().time()
        await anext(follower)
        assert asyncio.get_running_loop().time() == began_s
        follower.close()

    play(scene)


def test_a_watch_that_does_not_begin_is_closed() -> None:
    store = ScriptedStore(watches=[[TimedOut("not ready")], []], scans=[read(9, item())] * 2)

    async def scene() -> None:
        follower = following(store)
        await anext(follower)
        assert [watch.is_closed for watch in store.opened] == [True, False]
        follower.close()
        assert store.opened[1].is_closed

    play(scene)
