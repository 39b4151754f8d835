"""Watches of a real etcd whose history is compacted, and whose connections are cut, under load."""

import asyncio

import pytest

from hansa.chance import Chance
from hansa.errors import Compacted
from hansa.store.opening import open_store
from tests.support.etcd_load import Load
from tests.support.etcd_proxies import proxied_store
from tests.support.etcd_servers import EtcdGroup

pytestmark = [pytest.mark.spec("CRD-01"), pytest.mark.spec("CRD-11"), pytest.mark.timeout(100)]


async def test_compaction_takes_nothing_from_watches_that_keep_up(etcd_group: EtcdGroup) -> None:
    async with open_store(etcd_group.address) as store:
        compacted = 0
        async with Load(store) as load:
            for _ in range(20):
                await load.progress(3)
                compacted = (await store.status()).revision
                await store.compact(compacted)
        # The history is gone: what the watchers saw stands for it, and fits what the writers were told.
        load.check_calls()
        assert not load.failures
        for changes in load.seen:
            assert changes == load.seen[0]
            load.check_history(changes)
        assert load.seen[0][0].revision < compacted


async def test_connections_that_are_cut_again_and_again_lose_and_repeat_nothing(
    etcd_group: EtcdGroup,
) -> None:
    chance = Chance.seeded(5)
    async with proxied_store(etcd_group) as proxied:
        async with Load(proxied.store) as load:
            for _ in range(15):
                await load.progress(1 + chance.below(10))
                proxied.cut()
                proxied.mend()
        await load.check()


async def test_a_watch_that_was_cut_off_over_a_compaction_says_so_without_a_gap_before(
    etcd_group: EtcdGroup,
) -> None:
    async with open_store(etcd_group.address) as writer, proxied_store(etcd_group) as proxied:
        store = proxied.store
        watches = [store.watch("k") for _ in range(3)]
        idle = store.watch("never")
        first = await watches[0].ready()
        for watch in (*watches[1:], idle):
            await watch.ready()
        for _ in range(10):
            await writer.put("k", b"")
        # The first has read all, and the others nothing yet: what reached the client is theirs.
        assert [(await anext(watches[0])).revision for _ in range(10)] == list(range(first, first + 10))
        proxied.cut()
        for _ in range(10):
            await writer.put("k", b"")
        compacted = first + 15
        await writer.compact(compacted)
        proxied.mend()
        for number, watch in enumerate(watches):
            revisions = list[int]()
            with pytest.raises(Compacted) as caught:
                async for batch in watch:
                    revisions.append(batch.revision)
            begun = first + 10 if number == 0 else first
            assert revisions == list(range(begun, begun + len(revisions)))
            assert begun + len(revisions) <= first + 10
            assert caught.value.compacted_revision == compacted
            with pytest.raises(Compacted):
                await anext(watch)
        again = store.watch("k", start_revision=compacted)
        assert [(await anext(again)).revision for _ in range(5)] == list(range(compacted, compacted + 5))
        # One that nothing was to be told is not spared: it cannot know that.
        with pytest.raises(Compacted):
            await anext(idle)


async def test_a_stalled_member_is_left_for_another(etcd_group: EtcdGroup) -> None:
    """As when a cable is pulled: no connection ends, and nothing comes."""
    async with proxied_store(etcd_group) as proxied:
        async with Load(proxied.store, timeout_s=6.0) as load:
            for proxy in proxied.proxies:
                await load.progress(5)
                proxy.hold()
                await load.progress(5)
                # Watchers too, and without help.
                counts = [len(changes) for changes in load.seen]
                async with asyncio.timeout(30.0):
                    while any(
                        len(changes) <= count for changes, count in zip(load.seen, counts, strict=True)
                    ):
                        await load.progress(1)
                proxy.forward()
        await load.check()


async def test_a_slow_network_changes_nothing(etcd_group: EtcdGroup) -> None:
    async with proxied_store(etcd_group) as proxied:
        for proxy in proxied.proxies:
            proxy.delay_s = 0.05
        async with Load(proxied.store) as load:
            await load.progress(5)
            etcd_group.kill(await etcd_group.led_by())
            await load.progress(5)
        await load.check()
        assert load.call_s_max > 0.1
