"""The driver of watches does what it owes to its machines: asks, writes, rings, resends, confirms, beats.

The list is at the top of `over_etcd_watch`. Resending from the right place, and beating, are proved on real
servers (`tests/integration/store/test_etcd_client_watches.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from hansa.errors import Compacted
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd.client import EtcdStore
from hansa.store.etcd.members import Doubt, FailedTry
from hansa.store.etcd.watch_book import WatchBook
from hansa.store.served.server import StoreServer

pytestmark = pytest.mark.timeout(30)

WITHIN_S = 15.0


class Reads:
    """What is asked of a server's keys; `hold` lets those wait that ask for the past."""

    def __init__(self) -> None:
        self.asked: list[api.RangeRequest] = []
        self._may_go = asyncio.Event()
        self._may_go.set()

    def hold(self) -> None:
        self._may_go.clear()

    def go(self) -> None:
        self._may_go.set()

    async def wait(self, request: api.RangeRequest) -> None:
        self.asked.append(request)
        if request.revision:
            await self._may_go.wait()

    @property
    def of_the_past(self) -> list[tuple[bytes, int]]:
        return [(request.key, request.revision) for request in self.asked if request.revision]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads, original = Reads(), StoreServer._range

    async def noted(self: StoreServer, request: api.RangeRequest) -> api.RangeResponse:
        await reads.wait(request)
        return await original(self, request)

    monkeypatch.setattr(StoreServer, "_range", noted)
    return reads


@pytest.fixture
async def server(reads: Reads) -> AsyncIterator[StoreServer]:
    async with StoreServer("127.0.0.1:0") as server:
        yield server


@pytest.fixture
async def store(server: StoreServer) -> AsyncIterator[EtcdStore]:
    async with EtcdStore([server.address]) as store:
        yield store


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.005)


def break_stream(store: EtcdStore) -> None:
    serving = store._watches._serving
    assert serving is not None
    serving[1].set_result(FailedTry(doubt=Doubt.UNDONE, text="the test broke it"))


def in_the_middle_of_a_write(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have something done while the next request is being written, when nobody waits for the bell."""
    original, acts = WatchBook.requests, [act]

    def requests(self: WatchBook) -> list[api.WatchRequest]:
        said = original(self)
        if said and acts:
            asyncio.get_running_loop().call_soon(acts.pop())
        return said

    monkeypatch.setattr(WatchBook, "requests", requests)


async def test_a_watch_that_is_added_while_another_is_written_is_sent(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.watch("a")
    start = await first.ready()
    added = []
    in_the_middle_of_a_write(
        monkeypatch, lambda: added.append(store.watch("c", start_revision=start, exact=True))
    )
    second = store.watch("b", start_revision=start, exact=True)
    await second.ready()
    # It comes by itself: nothing else is asked for that could take it along.
    assert await added[0].ready(timeout=WITHIN_S) == start


async def test_a_watch_that_is_closed_while_another_is_written_is_ended_at_the_server(
    server: StoreServer, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.watch("a")
    start = await first.ready()
    in_the_middle_of_a_write(monkeypatch, first.close)
    second = store.watch("b", start_revision=start, exact=True)
    await second.ready()
    await until(lambda: len(server.store._watchers) == 1)


async def test_a_watch_that_is_added_while_the_stream_is_down_is_sent_with_all_others(
    server: StoreServer, store: EtcdStore, reads: Reads
) -> None:
    first = store.watch("k", exact=True)
    await first.ready()
    reads.hold()
    break_stream(store)
    await until(lambda: bool(reads.of_the_past))
    second = store.watch("k")
    reads.go()
    await second.ready()
    revision = await store.put("k", b"")
    assert [(await anext(watch)).revision for watch in (first, second)] == [revision] * 2


@pytest.mark.spec("CRD-17")
async def test_every_resume_is_preceded_by_reads_at_the_revision_that_was_seen_last(
    server: StoreServer, store: EtcdStore, reads: Reads
) -> None:
    watch = store.watch("k/")
    await watch.ready()
    for number in range(3):
        revision = await store.put(f"k/{number}", b"")
        assert (await anext(watch)).revision == revision
        reads.asked.clear()
        reads.hold()
        reconnects_count = store._watches.reconnects_count
        break_stream(store)
        await until(lambda: bool(reads.of_the_past))
        # Until that is answered nobody is asked for what comes then.
        await until(lambda: len(server.store._watchers) == 0)
        reads.go()
        await until(lambda: len(server.store._watchers) == 1)
        # Whether it has been there, and whether it has there what was seen.
        assert reads.of_the_past == [(b"k/%d" % number, revision)] * 2
        assert store._watches.reconnects_count == reconnects_count + 1
    last = await store.put("k/last", b"")
    assert (await anext(watch)).revision == last
    assert store._caller.lineage.losses_count == 0


@pytest.mark.spec("CRD-17")
async def test_a_watch_from_beyond_what_was_seen_asks_how_far_the_store_is(
    store: EtcdStore, reads: Reads
) -> None:
    revision = await store.put("k", b"")
    async with EtcdStore([store._access.endpoints[0]]) as other:
        reads.asked.clear()
        watch = other.watch("k", start_revision=revision)
        assert (await anext(watch)).revision == revision
        assert len(reads.asked) == 1
        # What this client has seen the store at needs no question.
        known = other.watch("k", start_revision=revision + 1)
        await known.ready()
        assert len(reads.asked) == 1
        with pytest.raises(Compacted):
            await other.watch("k", start_revision=revision + 2).ready()
        assert len(reads.asked) == 2


@pytest.mark.spec("CRD-17")
async def test_a_new_term_is_settled_once_and_ends_no_watch(
    server: StoreServer, store: EtcdStore, reads: Reads
) -> None:
    watch = store.watch("k")
    await watch.ready()
    revision = await store.put("k", b"")
    await anext(watch)
    server.store.run_revision += 1
    reads.asked.clear()
    # Of another key: the watch does not tell of it before the answer does.
    await store.put("x", b"")
    await until(lambda: bool(reads.of_the_past) and not store._caller.lineage.is_doubtful)
    settled = list(reads.of_the_past)
    assert settled == [(b"k", revision)] * 2
    for _ in range(3):
        await store.put("k", b"")
    assert [(await anext(watch)).revision for _ in range(3)] == [revision + number for number in range(2, 5)]
    assert reads.of_the_past == settled
