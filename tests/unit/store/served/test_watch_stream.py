"""Watches over one stream: which changes, from when, in which pieces, and how they end."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd import messages
from hansa.store.served import watch_stream
from hansa.store.served.recorded import RecordedStore
from hansa.store.served.server import StoreServer
from hansa.store.served.watch_stream import interest_of
from hansa.store.values import Put, WatchBatch, is_within
from hansa.store.watching import Watcher
from tests.support.etcd_caller import EtcdCaller, etcd_caller

pytestmark = pytest.mark.usefixtures("undated")

PREFIX_END = b"k0"  # of k/


@pytest.fixture
async def server() -> AsyncIterator[StoreServer]:
    async with StoreServer("127.0.0.1:0", progress_interval=0.05) as server:
        yield server


@pytest.fixture
async def caller(server: StoreServer) -> AsyncIterator[EtcdCaller]:
    async with etcd_caller(server.address) as caller:
        yield caller


def told(events: list[Any]) -> list[tuple[str, str, int]]:
    names = {api.Event.PUT: "put", api.Event.DELETE: "delete"}
    return [(names[event.type], event.kv.key.decode(), event.kv.mod_revision) for event in events]


def write(put: Put, store: RecordedStore, now: float) -> None:
    store.perform((put,))


async def test_the_past_comes_first_and_then_what_happens(caller: EtcdCaller) -> None:
    await caller.put("k/1", b"1")
    await caller.put("other")
    await caller.put("k/1", b"2")
    async with caller.watching() as watch:
        made = await watch.create("k/", PREFIX_END, start_revision=1, prev_kv=True)
        assert (made.watch_id, made.header.revision) == (0, 4)
        past = await watch.events(2)
        await caller.ask(messages.DELETE_RANGE, key=b"k/1")
        now = await watch.events(1)
    assert told(past + now) == [("put", "k/1", 2), ("put", "k/1", 4), ("delete", "k/1", 5)]
    assert [event.prev_kv.value for event in past + now] == [b"", b"1", b"2"]


async def test_many_watchers_share_a_stream_and_each_hears_its_own(caller: EtcdCaller) -> None:
    async with caller.watching() as watch:
        wishes: list[tuple[str, bytes, dict[str, Any]]] = [
            ("k", b"", {}),
            ("k", b"m", {}),
            ("l", b"\0", {}),
            ("k", b"z", {"filters": [api.WatchCreateRequest.NOPUT]}),
            ("k", b"z", {"filters": [api.WatchCreateRequest.NODELETE], "watch_id": 77}),
            ("", b"\0", {}),
        ]
        numbers = [(await watch.create(key, end, **more)).watch_id for key, end, more in wishes]
        assert numbers == [0, 1, 2, 3, 77, 4]
        for key in ("k", "l", "m"):
            await caller.put(key)
        await caller.ask(messages.DELETE_RANGE, key=b"l")
        heard: dict[int, list[int]] = {number: [] for number in numbers}
        while sum(map(len, heard.values())) < 1 + 3 + 3 + 1 + 3 + 4:
            answer = await watch.read()
            heard[answer.watch_id] += [event.kv.mod_revision for event in answer.events]
    assert heard == {0: [2], 1: [2, 3, 5], 2: [3, 4, 5], 3: [5], 77: [2, 3, 4], 4: [2, 3, 4, 5]}


async def test_a_cancelled_watcher_hears_nothing_more(caller: EtcdCaller, server: StoreServer) -> None:
    async with caller.watching() as watch:
        number = (await watch.create("k")).watch_id
        other = (await watch.create("k")).watch_id
        await watch.cancel(number)
        answer = await watch.read()
        assert (answer.watch_id, answer.canceled, answer.created) == (number, True, False)
        await caller.put("k")
        answer = await watch.read()
        assert (answer.watch_id, len(answer.events)) == (other, 1)
        assert len(server.store._watchers) == 1
    async with asyncio.timeout(10):
        while len(server.store._watchers):
            await asyncio.sleep(0.001)


async def test_a_watch_of_what_is_forgotten_is_ended_with_the_oldest_revision(caller: EtcdCaller) -> None:
    for _ in range(3):
        await caller.put("k")
    await caller.ask(messages.COMPACT, revision=3)
    async with caller.watching() as watch:
        made = await watch.create("k", start_revision=2)
        ended = await watch.read()
        assert (ended.watch_id, ended.canceled, ended.compact_revision) == (made.watch_id, True, 3)
        made = await watch.create("k", start_revision=-1)
        assert (await watch.read()).canceled
        # From there on it can be watched.
        await watch.create("k", start_revision=3)
        assert told(await watch.events(2)) == [("put", "k", 3), ("put", "k", 4)]


async def test_a_watcher_that_cannot_be_is_refused_and_the_stream_lives(
    caller: EtcdCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with caller.watching() as watch:
        await watch.create("k", watch_id=5)
        for key, number, reason in (("k", 5, "duplicate watch ID"), ("k" * 5_000, 6, "a key of 5000 bytes")):
            refused = await watch.create(key, watch_id=number)
            assert (refused.watch_id, refused.canceled) == (-1, True)
            assert reason in refused.cancel_reason
        for key, end in (("k9", b"k1"), ("k1", b"k1")):
            refused = await watch.create(key, end)
            assert (refused.watch_id, refused.canceled) == (-1, True)
            assert "range is empty" in refused.cancel_reason
        monkeypatch.setattr(watch_stream, "STORE_STREAM_WATCHERS_MAX", 1)
        refused = await watch.create("k")
        assert "a stream has at most 1 watchers" in refused.cancel_reason
        await caller.put("k")
        assert told(await watch.events(1)) == [("put", "k", 2)]


async def test_progress_is_told_when_asked_and_when_it_was_quiet(caller: EtcdCaller) -> None:
    async with caller.watching() as watch:
        await watch.create("k")
        await caller.put("other")
        await watch.ask_progress()
        answer = await watch.read()
        assert (answer.watch_id, answer.header.revision, len(answer.events)) == (-1, 2, 0)
        number = (await watch.create("k", progress_notify=True)).watch_id
        await caller.put("other")
        while answer.header.revision < 3:
            answer = await watch.read()
            assert (answer.watch_id, len(answer.events)) == (number, 0)


async def test_progress_of_a_quiet_watcher_is_told_also_beside_a_busy_one(
    caller: EtcdCaller, server: StoreServer
) -> None:
    async with caller.watching() as watch, asyncio.TaskGroup() as group:
        quiet = (await watch.create("quiet", progress_notify=True)).watch_id
        await watch.create("busy")

        async def be_busy() -> None:
            while True:
                # Far more often than progress is told.
                await server.store.act(partial(write, Put("busy", b"")))
                await asyncio.sleep(0.001)

        being_busy = group.create_task(be_busy())
        async with asyncio.timeout(10):
            while (answer := await watch.read()).watch_id != quiet:
                pass
        assert not answer.events
        being_busy.cancel()


async def test_a_message_counts_also_what_was_before(
    caller: EtcdCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_stream, "STORE_MESSAGE_BYTES", 1_000)
    for number in range(4):
        await caller.put(f"k/{number}", bytes(600))
    for number in range(4):
        await caller.ask(messages.DELETE_RANGE, key=b"k/%d" % number)
    async with caller.watching() as watch:
        await watch.create("k/", PREFIX_END, start_revision=6, prev_kv=True)
        assert [len((await watch.read()).events) for _ in range(2)] == [2, 2]
        await watch.create("k/", PREFIX_END, start_revision=6)
        assert len((await watch.read()).events) == 4


@pytest.mark.parametrize(
    ("key", "filters"), [("k/x", []), ("k/", [api.WatchCreateRequest.NOPUT])], ids=["range", "filter"]
)
async def test_a_long_past_that_is_not_wanted_holds_up_nobody(
    caller: EtcdCaller,
    server: StoreServer,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    filters: list[api.WatchCreateRequest.FilterType],
) -> None:
    for number in range(2_000):
        await server.store.act(partial(write, Put(f"k/{number}", b"")))
    monkeypatch.setattr(watch_stream, "STORE_WATCH_TURN_COUNT", 100)
    take, in_turn_count, most_count = server.store.take, 0, 0

    def counted(watcher: Watcher) -> WatchBatch | None:
        nonlocal in_turn_count, most_count
        in_turn_count += 1
        most_count = max(most_count, in_turn_count)
        return take(watcher)

    async def begin_turns() -> None:
        nonlocal in_turn_count
        while True:
            in_turn_count = 0
            await asyncio.sleep(0)

    monkeypatch.setattr(server.store, "take", counted)
    async with caller.watching() as watch, asyncio.TaskGroup() as group:
        turns = group.create_task(begin_turns())
        await watch.create(key, PREFIX_END, start_revision=1, filters=filters)
        await caller.put("k/x")
        await caller.ask(messages.DELETE_RANGE, key=b"k/x")
        while ("delete", "k/x", 2_003) not in told(await watch.events(1)):
            pass
        turns.cancel()
    assert 1 < most_count <= 100


async def test_a_revision_is_split_only_for_those_who_ask(
    caller: EtcdCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_stream, "STORE_MESSAGE_BYTES", 1_000)
    puts = [
        api.RequestOp(request_put=api.PutRequest(key=b"k/%d" % number, value=bytes(600)))
        for number in range(3)
    ]
    async with caller.watching() as watch:
        await watch.create("k/", PREFIX_END)
        await caller.ask(messages.TXN, success=puts)
        whole = await watch.read()
        assert (len(whole.events), whole.fragment) == (3, False)
        await watch.cancel(0)
        await watch.read()
        await watch.create("k/", PREFIX_END, start_revision=2, fragment=True)
        pieces = [await watch.read() for _ in range(3)]
        assert [len(piece.events) for piece in pieces] == [1, 1, 1]
        assert [piece.fragment for piece in pieces] == [True, True, False]


async def test_a_watcher_that_falls_behind_reads_the_log_and_misses_nothing(
    caller: EtcdCaller, server: StoreServer
) -> None:
    # One that holds only two events back: all that comes in one turn is more.
    server.store._watchers._count_max = 2
    async with caller.watching() as watch:
        await watch.create("k/", PREFIX_END)
        for number in range(100):
            # In one turn of the loop: nobody can read meanwhile.
            await server.store.act(partial(write, Put(f"k/{number}", b"")))
        revisions = [event.kv.mod_revision for event in await watch.events(100)]
        assert revisions == list(range(2, 102))
        assert server.watch_stats.overruns_count == 1
        await caller.put("k/")
        assert told(await watch.events(1)) == [("put", "k/", 102)]


async def test_what_a_watcher_has_heard_comes_before_its_end(caller: EtcdCaller, server: StoreServer) -> None:
    server.store._watchers._count_max = 2
    async with caller.watching() as watch:
        await watch.create("k/", PREFIX_END)
        for number in range(5):
            await server.store.act(partial(write, Put(f"k/{number}", b"")))
        await server.store.act(lambda store, _: store.compact(6))
        heard, ended = await watch.read(), await watch.read()
    assert [event.kv.mod_revision for event in heard.events] == [2, 3]
    assert (ended.canceled, ended.compact_revision) == (True, 6)


async def test_a_client_that_goes_in_the_middle_of_an_answer_is_forgotten(
    caller: EtcdCaller, server: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with caller.watching() as watch:
        await watch.create("k/", PREFIX_END)
        for _ in range(100):
            await caller.put("k/", bytes(100_000))
    async with asyncio.timeout(10):
        while len(server.store._watchers):
            await asyncio.sleep(0.001)
    await caller.put("k/")
    assert not caplog.records


async def test_a_client_that_does_not_read_holds_up_nobody_and_is_told_what_it_missed(
    caller: EtcdCaller, server: StoreServer
) -> None:
    server.store._watchers._count_max = 2
    async with caller.watching() as watch, etcd_caller(server.address) as other:
        await watch.create("k/", PREFIX_END)
        for number in range(300):
            await other.put(f"k/{number % 5}", bytes(100_000))
        await other.ask(messages.COMPACT, revision=301)
        revisions: list[int] = []
        while not (answer := await watch.read()).canceled:
            revisions += [event.kv.mod_revision for event in answer.events]
    assert revisions == list(range(2, 2 + len(revisions)))
    assert len(revisions) < 300
    assert answer.compact_revision == 301
    assert server.watch_stats.compacted_count == 1


async def test_a_watch_goes_on_after_a_start_without_gap(tmp_path: Path) -> None:
    async with (
        StoreServer("127.0.0.1:0", folder=tmp_path, fsync=False, snapshot_bytes=2_000) as server,
        etcd_caller(server.address) as caller,
    ):
        for number in range(100):
            await caller.put(f"k/{number % 10}", b"x" * 50)
    async with (
        StoreServer("127.0.0.1:0", folder=tmp_path, fsync=False) as server,
        etcd_caller(server.address) as caller,
        caller.watching() as watch,
    ):
        await watch.create("k/", PREFIX_END, start_revision=50)
        await caller.put("k/1")
        revisions = [event.kv.mod_revision for event in await watch.events(53)]
    # The start itself took a revision.
    assert revisions == [*range(50, 102), 103]


@pytest.mark.parametrize(
    ("key", "end"),
    [
        (b"a", b""),
        (b"a/", b"a0"),
        (b"a/1", b"a/3"),
        (b"a", b"c"),
        (b"b", b"\0"),
        (b"\0", b"\0"),
        (b"b", b"a"),
    ],
)
def test_an_interest_has_the_whole_range_in_it(key: bytes, end: bytes) -> None:
    interest, is_narrower = interest_of(key, end, before=False)
    for candidate in (b"a", b"a/", b"a/1", b"a/2", b"a/3", b"a0", b"b", b"bb", b"c", b"\xff"):
        within = is_within(candidate, key, end)
        assert interest.wants(candidate) or not within
        if not is_narrower:
            assert interest.wants(candidate) == within
