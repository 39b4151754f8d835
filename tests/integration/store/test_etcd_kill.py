"""Members of a real etcd group are killed and frozen under load, and its clients go on.

Each test ends with `Load.check`: every call ended by its deadline with a typed error or none, everything
that was acknowledged is in the history once, nothing that was refused is, and each watcher saw exactly that
history.
"""

import asyncio

import pytest

from hansa.store.opening import open_store
from hansa.store.store import Keeping
from tests.support.etcd_load import Load
from tests.support.etcd_servers import EtcdGroup

pytestmark = [pytest.mark.spec("CRD-01"), pytest.mark.spec("CRD-11"), pytest.mark.timeout(100)]


async def test_killing_the_leader_loses_and_repeats_nothing(etcd_group: EtcdGroup) -> None:
    async with open_store(etcd_group.address) as store:
        async with Load(store) as load:
            await load.progress(20)
            leader = await etcd_group.led_by()
            etcd_group.kill(leader)
            await load.progress(20)
            assert await etcd_group.led_by() != leader
            etcd_group.restart(leader)
            await etcd_group.serving()
            await load.progress(20)
        await load.check()


async def test_killing_each_follower_loses_and_repeats_nothing(etcd_group: EtcdGroup) -> None:
    async with open_store(etcd_group.address) as store:
        async with Load(store) as load:
            await load.progress(10)
            # One of them at least is not the one that the client is connected to, and one may be.
            for index in etcd_group.indexes:
                if index == await etcd_group.led_by():
                    continue
                etcd_group.kill(index)
                await load.progress(10)
                etcd_group.restart(index)
                await etcd_group.serving()
                await load.progress(10)
        await load.check()


async def test_every_member_can_be_killed_in_turn(etcd_group: EtcdGroup) -> None:
    async with open_store(etcd_group.address) as store:
        async with Load(store) as load:
            for index in etcd_group.indexes:
                await load.progress(5)
                etcd_group.kill(index)
                await load.progress(5)
                etcd_group.restart(index)
                await etcd_group.serving()
        await load.check()


async def test_freezing_the_leader_loses_and_repeats_nothing(etcd_group: EtcdGroup) -> None:
    async with open_store(etcd_group.address) as store:
        async with Load(store, timeout_s=6.0) as load:
            await load.progress(20)
            leader = await etcd_group.led_by()
            etcd_group.pause(leader)
            await load.progress(20)
            assert await etcd_group.led_by() != leader
            # It still believes that it leads, until it hears otherwise.
            etcd_group.resume(leader)
            await load.progress(20)
        await load.check()


async def test_every_member_can_freeze_in_turn(etcd_group: EtcdGroup) -> None:
    async with open_store(etcd_group.address) as store:
        async with Load(store, timeout_s=6.0) as load:
            for index in etcd_group.indexes:
                await load.progress(5)
                etcd_group.pause(index)
                await load.progress(5)
                etcd_group.resume(index)
                await etcd_group.serving()
        await load.check()


async def test_leases_that_are_kept_outlive_their_leader(etcd_group: EtcdGroup) -> None:
    ttl_s = 5.0
    told = asyncio.Event()
    async with open_store(etcd_group.address) as store:
        keepings: list[Keeping] = []
        for number in range(10):
            granted_s = store.clock.monotonic()
            lease = await store.grant(ttl_s)
            await store.put(f"kept/{number}", b"", lease=lease)
            keeping = store.keep(
                lease,
                ttl=ttl_s,
                granted_s=granted_s,
                interval=1.0,
                loop_silence_s_max=ttl_s,
                on_change=told.set,
            )
            keepings.append(keeping)
        leader = await etcd_group.led_by()
        etcd_group.kill(leader)
        killed_s = store.clock.monotonic()
        # Kept twice over, as if nothing had been: none ever comes near its end.
        while min(keeping.kept_until_s for keeping in keepings) < killed_s + 2 * ttl_s:
            told.clear()
            await told.wait()
            assert not any(keeping.is_lost for keeping in keepings)
            assert min(keeping.kept_until_s for keeping in keepings) > store.clock.monotonic()
        assert len((await store.scan("kept/")).items) == 10
        for keeping in keepings:
            keeping.stop()
