"""The client of etcd against real servers: which member it asks, what it repeats, and what it says."""

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from typing import Any

import grpc
import pytest

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, LeaseLost, LimitExceeded, StoreUnavailable, TimedOut, UsageError
from hansa.limits import KIB, MIB, STORE_SCAN_PART_COUNT, STORE_TXN_COUNT_MAX
from hansa.store.etcd import caller
from hansa.store.etcd.client import EtcdStore
from hansa.store.opening import open_store
from hansa.store.values import Get, Put, prefix_range
from hansa.transport import Environment
from tests.support.etcd_servers import EtcdGroup
from tests.support.leftovers import alive
from tests.support.reserved_ports import reserved_endpoints

pytestmark = [pytest.mark.spec("CRD-01"), pytest.mark.timeout(60)]

# Of a deadline: by how much an error may be late.
LATE_S_MAX = 0.1


@pytest.fixture(scope="module")
def lone_etcd() -> Iterator[EtcdGroup]:
    with EtcdGroup() as group:
        yield group


@pytest.fixture
def etcd(lone_etcd: EtcdGroup) -> EtcdGroup:
    """One member that serves, without keys."""
    lone_etcd.restore()
    lone_etcd.wipe()
    return lone_etcd


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An endpoint that nobody listens at."""
    with reserved_endpoints(1) as (endpoint,):
        yield endpoint.removeprefix("tcp://")


def seed_that_begins_at(index: int) -> int:
    """All three that choose a member (calls, watches, the heart) choose this one of two."""
    for seed in range(1_000):
        chance = Chance.seeded(seed)
        if [chance.below(2) for _ in range(3)] == [index] * 3:
            return seed
    raise AssertionError("no such seed")


@pytest.mark.spec("CRD-11")
@pytest.mark.parametrize("first", [0, 1])
async def test_a_member_that_is_not_there_is_passed_over_by_every_call(
    etcd: EtcdGroup, nowhere: str, first: int
) -> None:
    endpoints = [nowhere, *etcd.endpoints]
    chance = Chance.seeded(seed_that_begins_at(first))
    async with EtcdStore(endpoints, environment=Environment(chance=chance)) as store:
        # The first is a write: it was surely not done where nobody was.
        revision = await store.put("k", b"v", timeout=2.0)
        watch = store.watch("k", start_revision=revision)
        assert (await anext(watch)).revision == revision
        lease = await store.grant(5.0)
        changed = asyncio.Event()
        keeping = store.keep(
            lease,
            ttl=5.0,
            # As if a while ago: so it takes a renewal to be kept for longer.
            granted_s=store.clock.monotonic() - 1.0,
            interval=0.1,
            loop_silence_s_max=5.0,
            on_change=changed.set,
        )
        while keeping.kept_until_s < store.clock.monotonic() + 4.5 or keeping.failures_count:
            changed.clear()
            await changed.wait()
        keeping.stop()
        watch.close()


@pytest.mark.spec("CRD-11")
async def test_a_group_that_is_not_there_is_unavailable_by_the_deadline(nowhere: str) -> None:
    loop = asyncio.get_running_loop()
    async with EtcdStore([nowhere]) as store:
        for call in (store.put("k", b"", timeout=0.3), store.commit((), [Put("k", b"")], timeout=0.3)):
            began_s = loop.time()
            with pytest.raises(StoreUnavailable, match=r"cannot connect to .*refused"):
                await call
            assert loop.time() - began_s < 0.3 + LATE_S_MAX
        for revision in (0, 1):
            with pytest.raises(TimedOut, match=r"cannot connect to .*refused"):
                await store.watch("k", start_revision=revision).ready(timeout=0.3)


async def test_a_closed_store_does_not_wait_for_the_garbage_collector_to_stop_dialling(nowhere: str) -> None:
    # A call that is alive keeps its connection alive, which gRPC goes on to dial.
    def calls_count() -> int:
        return sum(isinstance(found, grpc.aio.Call) for found in gc.get_objects())

    async def fail(call: Coroutine[Any, Any, object]) -> None:
        try:
            await call
        except (StoreUnavailable, TimedOut):
            return
        raise AssertionError("somebody was there")

    gc.collect()
    before = calls_count()
    gc.disable()
    try:
        async with EtcdStore([nowhere]) as store:
            watch = store.watch("k")
            await fail(store.get("k", timeout=0.3))
            await fail(store.put("k", b"", timeout=0.3))
            await fail(watch.ready(timeout=0.3))
        assert calls_count() == before
    finally:
        gc.enable()


@pytest.mark.spec("CRD-11")
async def test_what_a_frozen_member_was_asked_is_repeated_only_where_it_is_harmless(etcd: EtcdGroup) -> None:
    async with EtcdStore(etcd.endpoints, try_timeout=0.2) as store:
        await store.put("k", b"old")
        lease = await store.grant(60.0)
        etcd.pause(0)
        getting, granting = (
            asyncio.ensure_future(store.get("k")),
            asyncio.ensure_future(store.grant(30.0)),
        )
        calls: list[Coroutine[Any, Any, object]] = [
            store.scan("k"),
            store.commit((), []),
            store.keep_alive(lease),
            store.lease_info(lease),
            store.status(),
        ]
        repeated = [asyncio.ensure_future(call) for call in calls]
        once = asyncio.ensure_future(store.put("once", b"", timeout=0.5))
        with pytest.raises(TimedOut):
            await once
        etcd.resume(0)
        await asyncio.gather(*repeated)
        item, granted = await getting, await granting
        written = await store.get("once")
        assert written is None or written.version == 1
        assert item is not None
        assert item.value == b"old"
        # A grant that was asked for again and again is one lease.
        assert await store.keep_alive(granted) == 30.0
        await store.revoke(granted)
        with pytest.raises(LeaseLost):
            await store.keep_alive(granted)


@pytest.mark.spec("CRD-11")
async def test_a_revoke_and_a_compaction_whose_answers_were_lost_are_done(etcd: EtcdGroup) -> None:
    async with EtcdStore(etcd.endpoints, try_timeout=0.1) as store:
        revision = await store.put("k", b"")
        lease = await store.grant(60.0)
        await store.put("leased", b"", lease=lease)
        etcd.pause(0)
        revoking = asyncio.ensure_future(store.revoke(lease, timeout=10.0))
        compacting = asyncio.ensure_future(store.compact(revision, timeout=10.0))
        # By then each was asked more than once, and all of it reaches the member when it wakes up.
        with pytest.raises(TimedOut):
            await store.get("k", timeout=0.6)
        etcd.resume(0)
        await asyncio.gather(revoking, compacting)
        assert await store.get("leased") is None


async def test_a_scan_of_many_keys_is_read_in_parts_of_one_revision(etcd: EtcdGroup) -> None:
    async with open_store(etcd.address) as store:
        count = STORE_SCAN_PART_COUNT + 10
        names = [b"k/%05d" % number for number in range(count)]
        for begin in range(0, count, STORE_TXN_COUNT_MAX):
            await store.commit((), [Put(name, b"v") for name in names[begin : begin + STORE_TXN_COUNT_MAX]])
        scanning = asyncio.ensure_future(store.scan("k/"))
        while not scanning.done():
            await store.put(b"k/99999", b"later")
            await store.delete(b"k/99999")
        scan = scanning.result()
        found = [item.key for item in scan.items]
        assert [name for name in found if name != b"k/99999"] == names
        assert (scan.count, scan.more) == (len(found), False)
        part = await store.scan("k/", limit=STORE_SCAN_PART_COUNT + 1, keys_only=True)
        assert (len(part.items), part.more) == (STORE_SCAN_PART_COUNT + 1, True)


async def test_a_scan_of_large_values_is_read_in_smaller_parts(
    etcd: EtcdGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that what is too large for one answer is not large for a test.
    options = {**dict(caller.CHANNEL_OPTIONS), "grpc.max_receive_message_length": 4 * MIB}
    monkeypatch.setattr(caller, "CHANNEL_OPTIONS", tuple(options.items()))
    async with open_store(etcd.address) as store:
        for number in range(60):
            await store.put(b"k/%03d" % number, bytes(100 * KIB))
        scan = await store.scan("k/")
        assert [item.key for item in scan.items] == [b"k/%03d" % number for number in range(60)]
        assert {len(item.value) for item in scan.items} == {100 * KIB}
        # What cannot be read in parts is refused, and a write that went with it is in doubt.
        for number in range(60):
            await store.put(b"k/%03d" % number, bytes(200 * KIB))
        with pytest.raises(LimitExceeded):
            await store.commit((), [Get(*prefix_range("k/"))])
        with pytest.raises(TimedOut):
            await store.commit((), [Get(*prefix_range("k/")), Put("done", b"")])
        assert await store.get("done") is not None


async def test_a_store_belongs_to_one_loop_and_the_last_to_leave_closes_it(etcd: EtcdGroup) -> None:
    store = open_store(etcd.address)
    assert isinstance(store, EtcdStore)
    async with store:

        async def elsewhere() -> None:
            with pytest.raises(UsageError, match="event loop of another thread"):
                await store.get("k")
            with pytest.raises(UsageError, match="event loop of another thread"):
                store.watch("k")

        await asyncio.to_thread(asyncio.run, elsewhere())
        async with store:
            await store.put("k", b"")
        assert not store.is_closed
        assert await store.get("k") is not None
    assert store.is_closed


async def used(etcd: EtcdGroup) -> None:
    """Open a store, use all of it, and close it with all of it under way."""
    async with open_store(etcd.address) as store:
        lease = await store.grant(60.0)
        store.keep(
            lease,
            ttl=60.0,
            granted_s=store.clock.monotonic(),
            interval=0.05,
            loop_silence_s_max=5.0,
            on_change=lambda: None,
        )
        watch = store.watch("k")
        await watch.ready()
        reading = asyncio.ensure_future(anext(watch))
        cancelled = asyncio.ensure_future(store.put("k", b""))
        await asyncio.sleep(0)
        cancelled.cancel()
        calling = asyncio.ensure_future(store.get("k"))
        await asyncio.sleep(0)
    ends = await asyncio.gather(reading, cancelled, calling, return_exceptions=True)
    assert [type(end) for end in ends] == [AlreadyClosed, asyncio.CancelledError, AlreadyClosed]


async def test_closing_leaves_nothing_behind(etcd: EtcdGroup) -> None:
    # gRPC keeps a thread and its descriptors for as long as the process lives.
    await used(etcd)
    before = alive()
    for _ in range(5):
        await used(etcd)
    assert alive().tasks == before.tasks
    assert alive().timers == before.timers
    assert {name for name in alive().threads if "heart" in name} == set()
    # What gRPC ends and closes it ends a little later, in threads of its own.
    async with asyncio.timeout(20.0):
        while (
            len(alive().descriptors) > len(before.descriptors)
            or alive().threads > before.threads
            or alive().grpc_tasks
        ):
            await asyncio.sleep(0.02)
