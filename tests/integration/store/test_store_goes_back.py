"""A store goes back in time, under those who use it: a copied folder, memory alone, an etcd's snapshot."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hansa.coordination import (
    Changed,
    Election,
    Following,
    Lock,
    Members,
    MembershipWatcher,
    NodeInfo,
    RoutingTable,
    RoutingTableStore,
    Session,
    Snapshot,
)
from hansa.errors import Fenced, SessionLost, StoreUnavailable, StoreWentBack, TimedOut
from hansa.store.etcd.client import EtcdStore
from hansa.store.served.server import StoreServer
from tests.support.etcd_servers import EtcdGroup

pytestmark = [pytest.mark.spec("CRD-17"), pytest.mark.timeout(90)]

WITHIN_S = 30.0
TTL_S = 2.0
TIMES: dict[str, Any] = {"heartbeat_interval": 0.3, "heartbeat_timeout": 1.0}


class Harbour:
    """`hansa store` at one address, whose folder is copied, and put back over it while others look."""

    def __init__(self, folder: Path | None, copy: Path) -> None:
        self._folder = folder
        self._copy = copy
        self._server = StoreServer("127.0.0.1:0", folder=folder, fsync=False)

    @property
    def address(self) -> str:
        return self._server.address

    async def start(self) -> None:
        self._server = StoreServer(self.address, folder=self._folder, fsync=False)
        await self._server.__aenter__()

    async def stop(self) -> None:
        await self._server.__aexit__(None, None, None)

    async def copy(self) -> None:
        """Without a folder there is nothing to keep: it goes back to its beginning."""
        if self._folder is not None:
            await self._server.store.snapshot()
            shutil.copytree(self._folder, self._copy)

    async def go_back(self) -> None:
        await self.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            shutil.copytree(self._copy, self._folder)
        await self.start()

    def client(self) -> EtcdStore:
        return EtcdStore([self.address])


@pytest.fixture(params=["folder", "memory"])
async def harbour(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harbour]:
    folder = tmp_path / "data" if request.param == "folder" else None
    harbour = Harbour(folder, tmp_path / "copy")
    await harbour.start()
    try:
        yield harbour
    finally:
        await harbour.stop()


@pytest.fixture
def kept(tmp_path: Path) -> Harbour:
    return Harbour(tmp_path / "data", tmp_path / "copy")


async def soon(found: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(found, WITHIN_S)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.01)


# ---- hansa store


async def test_a_follower_is_told_what_a_store_lost_and_what_comes_then(kept: Harbour) -> None:
    await kept.start()
    async with kept.client() as store, kept.client() as writer:
        await writer.put("k/before", b"1")
        await writer.put("k/back", b"1")
        await kept.copy()
        following = Following(store, "k/")
        assert isinstance(await soon(anext(following)), Snapshot)
        await writer.delete("k/back")
        await writer.put("k/lost", b"2")
        for _ in range(2):
            await soon(anext(following))
        assert sorted(following.items) == [b"k/before", b"k/lost"]
        await kept.go_back()
        news = await soon(anext(following))
        assert isinstance(news, Changed)
        assert news.is_after_gap
        assert [item.key for item in news.puts] == [b"k/back"]
        assert [item.key for item in news.deletes] == [b"k/lost"]
        revision = await writer.put("k/new", b"3")
        assert (await soon(anext(following))).revision == revision
        assert following.reads_count == 2
        following.close()
    await kept.stop()


async def test_a_store_that_is_only_started_again_costs_nobody_anything(kept: Harbour) -> None:
    await kept.start()
    async with kept.client() as store, Session(store, ttl=20.0) as session, Lock(session, "l") as hold:
        following = Following(store, "k/")
        await soon(anext(following))
        told: list[int] = []
        for number in range(3):
            before = await store.put(f"k/{number}", b"")
            told += [(await soon(anext(following))).revision]
            await kept.stop()
            await kept.start()
            after = await store.put("k/after", b"")
            told += [(await soon(anext(following))).revision]
            assert told[-2:] == [before, after]
            # Another term was seen, and settled.
            await until(lambda: not store._caller.lineage.is_doubtful)
        assert following.reads_count == 1
        assert store._caller.lineage.losses_count == 0
        hold.check()
        following.close()
    await kept.stop()


async def test_fences_and_terms_grow_and_what_hung_on_a_session_is_lost(harbour: Harbour) -> None:
    await harbour.copy()
    async with harbour.client() as store, harbour.client() as other:
        for number in range(20):
            await store.put(f"x/{number}", b"")
        async with Session(store, ttl=TTL_S) as session:
            hold = await Lock(session, "l").acquire()
            leadership = await Election(session, "e").win()
            await harbour.go_back()
            lost = await soon(hold.lost())
            assert hold.fence > 0
            assert "lost" in str(lost)
            await soon(leadership.lost())
            assert isinstance(await soon(session.lost()), SessionLost)
        async with Session(other, ttl=TTL_S) as session:
            assert (await Lock(session, "l").acquire(WITHIN_S)).fence > hold.fence
            assert (await Election(session, "e").win(timeout=WITHIN_S)).term > leadership.term


async def test_a_lock_that_was_given_back_and_is_held_once_more_in_the_copy_stands_in_nobodys_way(
    kept: Harbour,
) -> None:
    """The key is back, on a lease that its session, which watches nothing now, would keep for ever."""
    await kept.start()
    async with kept.client() as store, kept.client() as other, Session(store, ttl=TTL_S) as session:
        hold = await Lock(session, "l").acquire()
        await kept.copy()
        await hold.release()
        await kept.go_back()
        async with Session(other, ttl=TTL_S) as waiting:
            await Lock(waiting, "l").acquire(WITHIN_S)
        assert isinstance(await soon(session.lost()), SessionLost)
    await kept.stop()


async def test_those_who_wait_in_a_line_are_not_left_waiting(harbour: Harbour) -> None:
    await harbour.copy()
    async with harbour.client() as store, harbour.client() as other:
        async with Session(store, ttl=TTL_S) as session, Session(other, ttl=TTL_S) as behind:
            await Lock(session, "l").acquire()
            line = Lock(behind, "l")
            waiting = asyncio.ensure_future(line.acquire())
            while not await line.waiting():
                await asyncio.sleep(0.01)
            await harbour.go_back()
            # With the key that it waited behind, its own is gone.
            with pytest.raises(Fenced):
                await soon(waiting)
        async with Session(other, ttl=TTL_S) as again:
            await Lock(again, "l").acquire(WITHIN_S)


async def test_members_leaders_and_routes_are_told_after_it(harbour: Harbour) -> None:
    await harbour.copy()
    async with harbour.client() as store, harbour.client() as other:
        nodes = MembershipWatcher(store).watch()
        tables = RoutingTableStore(store).watch()
        seen: list[int] = []

        async def observe() -> None:
            async with Session(store, ttl=TTL_S) as session:
                async for leader in Election(session, "e").observe():
                    if leader is not None:
                        seen.append(leader.term)

        async with (
            Members(store, NodeInfo(id="a"), **TIMES) as here,
            asyncio.TaskGroup() as group,
        ):
            observing = group.create_task(observe())
            there = Members(other, NodeInfo(id="b"), **TIMES)
            async with there:
                await here.until(lambda view: len(view.up()) == 2, timeout=WITHIN_S)
                assert {(await soon(anext(nodes))).member.id for _ in "ab"} == {"a", "b"}
                await RoutingTableStore(other).save(RoutingTable(version=3), expected=0)
                assert (await soon(anext(tables))).version == 3
                async with Session(other, ttl=TTL_S) as session:
                    led = await Election(session, "e").win()
                    await until(lambda: seen == [led.term])
                    await harbour.go_back()
                    await soon(led.lost())
                # All of them join again, by themselves.
                await here.until(lambda view: len(view.up()) == 2 and not here.is_stale, timeout=WITHIN_S)
                await RoutingTableStore(other).save(RoutingTable(version=1), expected=0)
                assert (await soon(anext(tables))).version == 1
            # And one leaves in order.
            await here.until(lambda view: [member.id for member in view.up()] == ["a"], timeout=WITHIN_S)
            gone = ""
            while gone != "b":
                event = await soon(anext(nodes))
                gone = "" if event.member.is_here else event.member.id
            async with Session(other, ttl=TTL_S) as session:
                led = await Election(session, "e").win(timeout=WITHIN_S)
                await until(lambda: seen[-1:] == [led.term])
            assert seen == sorted(seen)
            observing.cancel()
        tables.close()
        nodes.close()


# ---- etcd


@pytest.fixture
def etcd() -> Any:
    with EtcdGroup(heartbeat_ms=50, election_ms=500) as group:
        yield group


async def test_an_etcd_that_was_restored_without_a_bump_is_read_and_not_changed(
    etcd: EtcdGroup, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with EtcdStore(etcd.endpoints) as store, Session(store, ttl=TTL_S) as session:
        await store.put("k/before", b"")
        etcd.save(tmp_path / "snapshot")
        following = Following(store, "k/")
        await soon(anext(following))
        for number in range(20):
            await store.put(f"x/{number}", b"")
        seen = await store.put("k/lost", b"")
        await soon(anext(following))
        hold = await Lock(session, "l").acquire()
        etcd.go_back(tmp_path / "snapshot")
        news = await soon(anext(following))
        assert isinstance(news, Changed)
        assert ([item.key for item in news.deletes], news.puts) == ([b"k/lost"], ())
        assert news.revision < seen
        await soon(hold.lost())
        for change in (
            lambda: store.put("k/new", b"", timeout=WITHIN_S),
            lambda: store.delete("k/before", timeout=WITHIN_S),
            lambda: store.grant(60.0, timeout=WITHIN_S),
            lambda: Session(store, ttl=20.0).__aenter__(),
        ):
            with pytest.raises(
                StoreWentBack, match=f"was at {hold.fence}.*--bump-revision.*--mark-compacted"
            ):
                await change()
        assert (await store.scan("k/")).count == 1
        assert "went back in time" in caplog.text
        # Whoever has not seen it knows nothing of it, and may push it beyond: then fences grow again.
        async with EtcdStore(etcd.endpoints) as stranger:
            while await stranger.put("k/stranger", b"") <= hold.fence:
                pass
        async with Session(store, ttl=TTL_S) as again:
            assert (await Lock(again, "l").acquire(WITHIN_S)).fence > hold.fence
        following.close()


async def test_an_etcd_whose_revisions_were_given_out_once_more_is_told_by_what_it_has_there(
    etcd: EtcdGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time the client is back the store is further than it ever was: no number tells it."""
    etcd.save(tmp_path / "snapshot")
    async with EtcdStore(etcd.endpoints) as store:
        following = Following(store, "k/")
        await soon(anext(following))
        for number in range(5):
            await store.put(f"k/{number}", b"")
            await soon(anext(following))
        seen = following.revision
        held = Held(store._caller.confirm)
        monkeypatch.setattr(store._caller, "confirm", held)
        etcd.go_back(tmp_path / "snapshot")
        async with EtcdStore(etcd.endpoints) as other:
            while await other.put("k/other", b"", timeout=WITHIN_S) <= seen + 3:
                pass
        held.go.set()
        news = await soon(anext(following))
        assert isinstance(news, Changed)
        assert [item.key for item in news.puts] == [b"k/other"]
        assert len(news.deletes) == 5
        # It is beyond all that was seen: fences grow.
        assert await store.put("k/new", b"", timeout=WITHIN_S) > seen
        following.close()


class Held:
    """A call that waits until it may go."""

    def __init__(self, call: Callable[..., Awaitable[None]]) -> None:
        self._call = call
        self.go = asyncio.Event()

    async def __call__(self, *arguments: Any) -> None:
        await self.go.wait()
        await self._call(*arguments)


async def test_a_change_whose_answer_tells_that_the_store_went_back_is_in_doubt(
    etcd: EtcdGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made in the store that is left: neither "done" nor "nothing happened" is true of it."""
    async with EtcdStore(etcd.endpoints) as store:
        etcd.save(tmp_path / "snapshot")
        for _ in range(5):
            await store.put("k", b"")
        etcd.go_back(tmp_path / "snapshot")
        await etcd.serving()
        # As over a connection that somebody else has opened anew.
        monkeypatch.setattr(store._caller, "_is_connected", lambda index: True)
        async with asyncio.timeout(WITHIN_S):
            while not isinstance(await in_doubt(store), StoreWentBack):
                pass
        with pytest.raises(StoreWentBack):
            await store.put("k", b"", timeout=WITHIN_S)


async def in_doubt(store: EtcdStore) -> BaseException | None:
    """Why a change may or may not have been made; None when it is known."""
    try:
        await store.put("k", b"", timeout=WITHIN_S)
    except TimedOut as error:
        return error.__cause__
    except StoreUnavailable:
        pass
    return None
