"""What began with the members of a raft group goes on when all of them have been replaced."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hansa.coordination.lock import Lock
from hansa.coordination.session import Session
from hansa.store import open_store
from hansa.store.raft.raft_store import RaftStore
from tests.support.raft_stage import APP, RaftStage, Writer, until

TTL_S = 3.0


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RaftStage]:
    async with RaftStage(tmp_path) as stage:
        yield stage


@pytest.mark.spec("CRD-12")
async def test_watches_and_sessions_outlive_every_member_they_began_with(stage: RaftStage) -> None:
    (old,) = await stage.found(1)
    async with open_store(f"raft://{old.info.join_address}/{APP}") as store, Session(store, TTL_S) as session:
        assert isinstance(store, RaftStore)
        hold = await Lock(session, "crane").acquire()
        watch = store.watch("written/")
        start = await watch.ready()
        async with Writer(store) as writer:
            await writer.more()
            new = [await stage.join(name, old) for name in ("n2", "n3")]
            await writer.more()
            await old.leave()
            await stage.stop("n1")
            left = {peer.info.client_address for peer in new}
            await until(lambda: set(store.addresses) == left, "only the new ones are asked")
            await writer.more()
        assert store.changes_count >= 2

        # Longer than the lease would live without the new members.
        since_s = store.clock.monotonic()
        await until(lambda: store.clock.monotonic() > since_s + TTL_S, "its time is over")
        hold.check()
        await until(lambda: session.failures_count == 0, "a renewal was answered")
        session.check()

        written = await store.scan("written/")
        end = await store.put("written/end", b"")
        told: list[tuple[int, bytes]] = []
        async for batch in watch:
            if batch.revision == end:
                break
            told += [(batch.revision, event.item.key) for event in batch.events]
        # Each once, in order, and none is missing.
        assert told == sorted((item.mod_revision, item.key) for item in written.items)
        assert told[0][0] >= start
        assert len(told) >= len(writer.acknowledged)
        watch.close()
        await hold.release()
