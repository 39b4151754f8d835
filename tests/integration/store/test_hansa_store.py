"""`hansa store` as a process: what it answered survives kill -9, and its clients go on where they were."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import signal
from pathlib import Path

import grpc
import pytest

from hansa.errors import StoreUnavailable, TimedOut
from hansa.store.etcd import messages
from hansa.store.etcd.client import EtcdStore
from hansa.store.opening import open_store
from hansa.store.store import Watch
from hansa.store.values import EventKind
from tests.support.certificates import Authority
from tests.support.commands import Command, run
from tests.support.etcd_caller import etcd_caller
from tests.support.store_process import StoreProcess

ANY = ("--listen", "127.0.0.1:0")
KILLS_COUNT = 3
WRITERS_COUNT = 8
# Of each writer between two kills: enough for many flushes.
WRITES_COUNT = 40


def client(store: StoreProcess) -> EtcdStore:
    opened = open_store(f"etcd://{store.address}")
    assert isinstance(opened, EtcdStore)
    return opened


class Writer:
    """Counts up one key. `acknowledged` is the last count that the store said it has."""

    def __init__(self, name: str) -> None:
        self.key = f"count/{name}"
        self.asked = 0
        self.acknowledged = 0

    async def run(self, store: EtcdStore) -> None:
        """Write until the store is gone."""
        while True:
            self.asked += 1
            await store.put(self.key, str(self.asked).encode(), timeout=2.0)
            self.acknowledged = self.asked


async def write_until_killed(store: EtcdStore, process: StoreProcess, writers: list[Writer]) -> None:
    goals = [writer.acknowledged + WRITES_COUNT for writer in writers]
    # A call that the kill interrupts may end either way; what counts is what was acknowledged.
    runs = asyncio.gather(
        *(writer.run(store) for writer in writers), take_snapshots(process), return_exceptions=True
    )
    while any(writer.acknowledged < goal for writer, goal in zip(writers, goals, strict=True)):
        assert not runs.done(), runs.result()
        await asyncio.sleep(0.005)
    await asyncio.to_thread(process.kill)
    for ended in await runs:
        assert isinstance(ended, StoreUnavailable | TimedOut | grpc.aio.AioRpcError), ended


async def take_snapshots(process: StoreProcess) -> None:
    """One after the other, so that the kill comes in the middle of one as well."""
    async with etcd_caller(process.address) as caller:
        while True:
            await caller.ask(messages.DEFRAGMENT)


class Follower:
    """Reads a watch in the background; every revision once, in order."""

    def __init__(self) -> None:
        self.values: dict[bytes, list[int]] = {}
        self.revisions: list[int] = []

    async def run(self, watch: Watch) -> None:
        async for batch in watch:
            self.revisions.append(batch.revision)
            for event in batch.events:
                assert event.kind is EventKind.PUT
                self.values.setdefault(event.item.key, []).append(int(event.item.value))


@pytest.mark.spec("CRD-11")
async def test_every_acknowledged_write_survives_kill_9_and_watches_go_on_without_gap(tmp_path: Path) -> None:
    writers = [Writer(str(number)) for number in range(WRITERS_COUNT)]
    follower = Follower()
    with StoreProcess(tmp_path / "data") as process:
        async with client(process) as store, asyncio.TaskGroup() as group:
            watch = store.watch("count/")
            await watch.ready()
            following = group.create_task(follower.run(watch))
            for _ in range(KILLS_COUNT):
                await write_until_killed(store, process, writers)
                await asyncio.to_thread(process.start)
                scan = await store.scan("count/", timeout=20.0)
                found = {item.key: int(item.value) for item in scan.items}
                for writer in writers:
                    assert writer.acknowledged <= found[writer.key.encode()] <= writer.asked
            last = await store.put("count/0", b"1000000", timeout=20.0)
            async with asyncio.timeout(20):
                while not follower.revisions or follower.revisions[-1] < last:
                    await asyncio.sleep(0.01)
            watch.close()
            await following
            status = await store.status()
            assert status.revision == last
            # The whole past, as the last of the stores has it: over all starts nothing was left out.
            past: list[int] = []
            async for batch in store.watch("count/", start_revision=1):
                past.append(batch.revision)
                if batch.revision == last:
                    break
    assert follower.revisions == past
    assert past == sorted(set(past))
    for values in follower.values.values():
        assert values == sorted(set(values))
    for writer in writers:
        told = set(follower.values[writer.key.encode()])
        assert writer.acknowledged in told


async def test_a_store_that_stood_still_takes_no_key_for_renewals_that_it_did_not_hear(
    tmp_path: Path,
) -> None:
    with StoreProcess(tmp_path) as store:
        async with client(store) as opened:
            lease = await opened.grant(1.0)
            await opened.put("alive", b"", lease=lease)
            dead = await opened.grant(1.0)
            await opened.put("dead", b"", lease=dead)
            store.freeze()
            await asyncio.sleep(3.0)  # Not a wait for something: so long it stands still.
            store.thaw()
            # As after a restart: who renews has its key for ever, and who does not, for one time more.
            await opened.keep_alive(lease)
            async with asyncio.timeout(10.0):
                while await opened.get("dead") is not None:
                    await asyncio.sleep(0.1)
                    await opened.keep_alive(lease)
            assert await opened.get("alive") is not None


async def test_leases_and_their_keys_survive_kill_9_and_end_later(tmp_path: Path) -> None:
    with StoreProcess(tmp_path / "data") as process:
        async with client(process) as store:
            lease = await store.grant(2.0)
            last = await store.put("hung", b"x", lease=lease)
            await asyncio.to_thread(process.kill)
            await asyncio.to_thread(process.start)
            assert process.ready["revision"] > last
            watch = store.watch("hung", exact=True, start_revision=last + 1)
            info = await store.lease_info(lease, timeout=20.0)
            assert info is not None
            assert info.keys == (b"hung",)
            batch = await asyncio.wait_for(anext(watch), 20)
            assert batch.events[0].kind is EventKind.DELETE
            assert await store.lease_info(lease) is None


async def test_a_full_disk_ends_the_writing_and_loses_nothing_that_was_answered(
    tmp_path: Path,
) -> None:
    with StoreProcess(tmp_path / "data") as process:
        async with client(process) as store:
            # No file of the process may grow beyond this: as a disk that is full.
            resource.prlimit(process.ready["pid"], resource.RLIMIT_FSIZE, (20_000, 20_000))
            written = 0
            with pytest.raises((TimedOut, StoreUnavailable)):
                while True:
                    await store.put(f"k/{written:03}", bytes(1_000), timeout=2.0)
                    written += 1
            assert written > 10
            with pytest.raises(StoreUnavailable, match="changes are refused until the store is started"):
                await store.put("k", b"")
            assert (await store.scan("k/")).count == written
        assert "reads go on" not in process.event("failed")["reason"]
        assert process.stop()[0] == 0
        process.start()
        async with client(process) as store:
            # The one in doubt was not written to its end.
            assert (await store.scan("k/")).count == written
            await store.put("k", b"")


def test_a_store_tells_where_it_is_and_what_it_found_and_stops_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    revisions: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with Command("store", "--listen", "127.0.0.1:0", "--data", str(folder)) as command:
            ready, hint = command.line(), command.line()
            assert ready.startswith("store ready: http://127.0.0.1:")
            told = re.search(f", in {re.escape(str(folder))}, at revision ([0-9]+) with 0 keys$", ready)
            assert told is not None
            revisions.append(int(told[1]))
            url = ready.split()[2].rstrip(",")
            assert not url.endswith(":0")
            assert hint == f'try: etcdctl --endpoints={url} get --prefix ""'
            status, out, err = command.stop(number)
        assert (status, err) == (0, "")
        # The start itself.
        assert out.startswith(f"store stopped at revision {told[1]}, 1 records in 1 flushes")
    assert revisions[0] < revisions[1]


def test_a_store_in_memory_keeps_nothing_and_makes_no_folder(tmp_path: Path) -> None:
    with StoreProcess(None) as process:
        assert process.ready["folder"] is None
        status, out, _ = process.stop()
    assert status == 0
    assert json.loads(out.splitlines()[-1])["journal"] is None


def test_a_torn_end_is_told_and_damage_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with StoreProcess(folder) as process:
        process.stop()
    (segment,) = folder.glob("journal-*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole + b"\xa7BLK")
    with Command("store", "--listen", "127.0.0.1:0", "--data", str(folder), "--json") as command:
        assert command.event("torn")["torn_bytes"] == 4
        command.event("ready")
    segment.write_bytes(whole + b"rubbish that nobody wrote, and enough of it")
    status, out, err = run("store", "--listen", "127.0.0.1:0", "--data", str(folder))
    assert (status, out) == (2, "")
    assert f"{segment} is damaged at byte {len(whole)}" in err
    options = ("--listen", "127.0.0.1:0", "--data", str(folder), "--json", "--give-up-damage")
    with Command("store", *options) as command:
        assert f"damaged at byte {len(whole)}" in command.event("given-up")["reason"]
        command.event("ready")


@pytest.mark.spec("CRD-18")
async def test_a_flipped_bit_beside_zeros_is_refused_in_the_last_block_that_was_answered(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    with StoreProcess(folder) as process:
        async with client(process) as store:
            await store.put("answered", bytes(2_048))
        process.kill()
    (segment,) = folder.glob("journal-*.log")
    data = bytearray(segment.read_bytes())
    data[data.rindex(b"answered")] ^= 1
    segment.write_bytes(data)
    status, out, err = run("store", "--listen", "127.0.0.1:0", "--data", str(folder))
    assert (status, out) == (2, "")
    assert f"{segment} is damaged" in err
    segment.unlink()
    status, out, err = run("store", "--listen", "127.0.0.1:0", "--data", str(folder))
    assert (status, out) == (2, "")
    assert f"{segment} is missing" in err


def test_a_store_that_cannot_be_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with StoreProcess(folder) as process:
        for options, status, reason in (
            ((*ANY, "--data", str(folder)), 1, f"{folder} is in use by another process"),
            (("--memory", "--listen", process.address), 1, f"{process.address} cannot be listened at"),
            ((*ANY, "--memory", "--data", str(folder)), 2, "give one of them"),
            (("--memory", "--listen", "nowhere"), 2, "write host:port"),
            (("--memory", "--listen", "http://127.0.0.1:0"), 2, "write host:port"),
            ((*ANY, "--memory", "--tls-cert", "x.pem"), 2, "TLS is mutual"),
        ):
            found, _, err = run("store", *options)
            assert (found, reason in err) == (status, True), err


def test_a_store_speaks_tls(tmp_path: Path) -> None:
    tls = Authority.create(tmp_path / "tls").issue("store")
    options = ("--tls-cert", tls.cert, "--tls-key", tls.key, "--tls-ca", tls.ca)
    with StoreProcess(None, *options) as process:
        assert process.ready["url"].startswith("https://127.0.0.1:")
