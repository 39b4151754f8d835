"""Watches of the client of etcd, on real servers: whole, resumed at another member, and thrown away."""

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest

from hansa.errors import Compacted, StoreUnavailable
from hansa.limits import KIB
from hansa.store.etcd.client import EtcdStore
from hansa.store.etcd.watch_book import WatchTape
from hansa.store.opening import open_store
from hansa.store.values import EventKind, Put
from tests.support.etcd_servers import EtcdGroup

pytestmark = [pytest.mark.spec("CRD-01"), pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdGroup]:
    with EtcdGroup() as group:
        yield group


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_revision_that_is_too_large_for_one_answer_is_one_batch(etcd: EtcdGroup) -> None:
    async with open_store(etcd.address) as store:
        watch = store.watch("big/", before=True)
        first = await watch.ready()
        # With what was before it is twice what etcd sends at once.
        for letter in (b"a", b"b"):
            await store.commit((), [Put(f"big/{number}", letter * 140 * KIB) for number in range(10)])
        lease = await store.grant(60.0)
        await store.put("big/lease", b"", lease=lease)
        late = store.watch("big/", start_revision=first, before=True)
        for each in (watch, late):
            batches = [await anext(each) for _ in range(3)]
            assert [batch.revision for batch in batches] == [first, first + 1, first + 2]
            assert [len(batch.events) for batch in batches] == [10, 10, 1]
            assert all(event.before and event.before.value[:1] == b"a" for event in batches[1].events)
            each.close()


async def test_all_keys_of_an_ending_lease_are_one_batch_in_order(etcd: EtcdGroup) -> None:
    async with open_store(etcd.address) as store:
        lease = await store.grant(60.0)
        for begin in (0, 100, 200):
            await store.commit(
                (), [Put(b"l/%03d" % number, b"", lease) for number in range(begin, begin + 100)]
            )
        watch = store.watch("l/")
        await watch.ready()
        await store.revoke(lease)
        batch = await anext(watch)
        assert [event.item.key for event in batch.events] == [b"l/%03d" % number for number in range(300)]
        assert {event.kind for event in batch.events} == {EventKind.DELETE}
        watch.close()


@pytest.mark.spec("CRD-11")
async def test_watches_go_on_at_another_member_without_gap_and_without_repeat(etcd_group: EtcdGroup) -> None:
    async with EtcdStore(etcd_group.endpoints) as store, EtcdStore(etcd_group.endpoints) as writer:
        busy, quiet = store.watch("busy/"), store.watch("quiet/", exact=False)
        first = await busy.ready()
        assert await quiet.ready() <= first
        revisions: list[int] = []
        for _ in range(2):
            index = store._watches._rotation.current
            reconnects_count = store._watches.reconnects_count
            etcd_group.pause(index)
            # Nothing tells it: it must find out by itself that nobody is there.
            await until(lambda before=reconnects_count: store._watches.reconnects_count > before)  # type: ignore[misc]
            etcd_group.resume(index)
            await etcd_group.serving()
            revisions += [await writer.put("busy/k", b"") for _ in range(3)]
        told = [(await anext(busy)).revision for _ in revisions]
        assert told == revisions
        last = await writer.put("quiet/k", b"")
        assert (await anext(quiet)).revision == last
        for watch in (busy, quiet):
            watch.close()


async def test_a_watch_from_now_that_was_never_told_anything_resumes_where_it_began(etcd: EtcdGroup) -> None:
    async with open_store(etcd.address) as store:
        assert isinstance(store, EtcdStore)
        watch = store.watch("n/")
        first = await watch.ready()
        etcd.kill(0)
        await until(lambda: store._watches.reconnects_count > 0)
        etcd.restart(0)
        await etcd.serving()
        async with open_store(etcd.address) as writer:
            assert await writer.put("n/1", b"") == first
        assert (await anext(watch)).revision == first
        watch.close()


async def test_what_was_forgotten_while_a_watch_was_away_is_told(etcd: EtcdGroup) -> None:
    async with open_store(etcd.address) as store, open_store(etcd.address) as writer:
        watch = store.watch("c/")
        first = await watch.ready()
        # Away: the stream is there, and hears nothing.
        store._watches._book.break_off()  # type: ignore[attr-defined]
        for _ in range(5):
            await writer.put("c/k", b"")
        await writer.compact(first + 3)
        store._watches._bell.wake_all()  # type: ignore[attr-defined]
        with pytest.raises(Compacted) as caught:
            await anext(watch)
        assert caught.value.compacted_revision == first + 3


async def test_watches_that_come_and_go_all_at_once_are_all_opened(etcd: EtcdGroup) -> None:
    async with open_store(etcd.address) as store:
        first = (await store.status()).revision + 1

        async def come_and_go(number: int) -> None:
            for turn in range(20):
                watch = store.watch(f"{number}/", start_revision=first if turn % 2 else 0)
                await watch.ready(timeout=4.0)
                watch.close()

        await asyncio.gather(*(come_and_go(number) for number in range(5)))


async def test_watches_that_are_served_no_more_say_so_and_so_do_later_ones(
    etcd: EtcdGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(tape: WatchTape, response: object) -> None:
        raise ZeroDivisionError("a fault")

    async with open_store(etcd.address) as store:
        early = store.watch("k")
        await early.ready()
        monkeypatch.setattr(WatchTape, "hear", broken)
        await store.put("k", b"")
        with pytest.raises(StoreUnavailable, match="no longer served"):
            await anext(early)
        late = store.watch("k")
        with pytest.raises(StoreUnavailable, match="no longer served"):
            await late.ready()
        with pytest.raises(StoreUnavailable, match="no longer served"):
            await anext(late)
        assert await store.get("k") is not None


async def test_a_watch_that_is_thrown_away_costs_nothing_more(etcd: EtcdGroup) -> None:
    async with EtcdStore(etcd.endpoints) as store:
        kept, thrown = store.watch("t/"), store.watch("t/")
        await thrown.ready()
        assert len(store._watches._book) == 2
        del thrown
        gc.collect()
        await until(lambda: len(store._watches._book) == 1)
        assert len(store._watches._readers) == 1
        revision = await store.put("t/k", b"")
        assert (await anext(kept)).revision == revision
        kept.close()
