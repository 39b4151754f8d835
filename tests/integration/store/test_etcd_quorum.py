"""A real etcd group without a majority, under load: errors by the deadline, and back by itself."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hansa.errors import StoreUnavailable, TimedOut
from hansa.store.opening import open_store
from hansa.store.store import Store
from hansa.store.values import Put
from tests.support.etcd_lag import LagMeter
from tests.support.etcd_load import Load
from tests.support.etcd_servers import EtcdGroup

pytestmark = [pytest.mark.spec("CRD-01"), pytest.mark.spec("CRD-11"), pytest.mark.timeout(100)]


async def test_a_group_that_lost_its_majority_fails_in_time_and_returns(etcd_group: EtcdGroup) -> None:
    async with open_store(etcd_group.address) as store:
        async with Load(store, timeout_s=1.5) as load:
            await load.progress(20)
            gone = [await etcd_group.led_by()]
            gone.append(next(index for index in etcd_group.indexes if index not in gone))
            for index in gone:
                etcd_group.kill(index)
            # Every writer and counter fails, some more than once.
            await load.failing(3 * len(load.acknowledged))
            for index in gone:
                etcd_group.restart(index)
            await load.progress(20)
        await load.check()


async def test_a_group_that_is_wholly_gone_fails_in_time_and_returns(etcd_group: EtcdGroup) -> None:
    async with open_store(etcd_group.address) as store:
        async with Load(store, timeout_s=1.0) as load:
            await load.progress(10)
            for index in etcd_group.indexes:
                etcd_group.kill(index)
            await load.failing(3 * len(load.acknowledged))
            for index in etcd_group.indexes:
                etcd_group.restart(index)
            await load.progress(10)
        await load.check()


async def test_a_frozen_majority_fails_in_time_and_returns(etcd_group: EtcdGroup) -> None:
    async with open_store(etcd_group.address) as store:
        async with Load(store, timeout_s=1.0) as load:
            await load.progress(10)
            frozen = [await etcd_group.led_by()]
            frozen.append(next(index for index in etcd_group.indexes if index not in frozen))
            for index in frozen:
                etcd_group.pause(index)
            await load.failing(3 * len(load.acknowledged))
            for index in frozen:
                etcd_group.resume(index)
            await load.progress(10)
        await load.check()


Call = Callable[[Store, int, float], Coroutine[Any, Any, object]]

CALLS: dict[str, Call] = {
    "get": lambda store, lease, timeout: store.get("k", timeout=timeout),
    "scan": lambda store, lease, timeout: store.scan("", timeout=timeout),
    "put": lambda store, lease, timeout: store.put("k", b"", timeout=timeout),
    "delete": lambda store, lease, timeout: store.delete("x", timeout=timeout),
    "delete_prefix": lambda store, lease, timeout: store.delete_prefix("x", timeout=timeout),
    "commit": lambda store, lease, timeout: store.commit((), [Put("k", b"")], timeout=timeout),
    "grant": lambda store, lease, timeout: store.grant(60.0, timeout=timeout),
    "keep_alive": lambda store, lease, timeout: store.keep_alive(lease, timeout=timeout),
    "lease_info": lambda store, lease, timeout: store.lease_info(lease, timeout=timeout),
    "watch": lambda store, lease, timeout: store.watch("k").ready(timeout=timeout),
}
TIMEOUT_S = 0.7
LATE_S_MAX = 0.1


async def outcome(name: str, store: Store, lease: int, meter: LagMeter) -> str:
    """How one call ends, in words."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        await CALLS[name](store, lease, TIMEOUT_S)
    except (StoreUnavailable, TimedOut):
        took_s = loop.time() - began_s
        lag_s = meter.lag_s_since(began_s + TIMEOUT_S)
        return "failed in time" if took_s < TIMEOUT_S + LATE_S_MAX + lag_s else f"failed after {took_s:.3f} s"
    return "succeeded"


@pytest.mark.parametrize("trouble", ["majority killed", "all killed", "all frozen"])
async def test_every_call_fails_in_time_and_succeeds_afterwards(etcd_group: EtcdGroup, trouble: str) -> None:
    async with open_store(etcd_group.address) as store:
        lease = await store.grant(60.0)
        for index in etcd_group.indexes[1 if trouble == "majority killed" else 0 :]:
            (etcd_group.pause if trouble == "all frozen" else etcd_group.kill)(index)
        # One after the other, so that none is late because of another one.
        async with LagMeter() as meter:
            found = {name: await outcome(name, store, lease, meter) for name in CALLS}
        assert found == dict.fromkeys(CALLS, "failed in time")
        for index in etcd_group.indexes[1 if trouble == "majority killed" else 0 :]:
            (etcd_group.resume if trouble == "all frozen" else etcd_group.restart)(index)
        # No waiting for the group: the calls themselves do.
        for call in CALLS.values():
            await call(store, lease, 20.0)
