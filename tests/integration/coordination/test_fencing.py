"""Workers that are stopped for longer than a lease lose no acknowledged update; without fences they do."""

import asyncio
from pathlib import Path

import pytest

from hansa.chance import Chance
from hansa.coordination.fencing import FencedFile, FencedKey
from hansa.errors import StaleFence
from hansa.store.opening import open_store
from tests.support.etcd_servers import EtcdGroup
from tests.support.fencing_stage import COUNTERS, FencingStage

pytestmark = [pytest.mark.spec("CRD-10"), pytest.mark.timeout(120)]

# A disk that is slow for seconds gives some; more would mean that the run proves little.
UNKNOWN_COUNT_MAX = 20


async def test_no_acknowledged_update_is_lost_when_owners_are_stopped(tmp_path: Path) -> None:
    chance = Chance.seeded(10)
    with EtcdGroup() as group:
        async with FencingStage(group.address, tmp_path, chance) as stage:
            await stage.progress(50)
            async with asyncio.TaskGroup() as stoppers:
                for _ in range(2):
                    stoppers.create_task(stage.stop_somebody())
                # In the middle of things: what they write then is refused, surely.
                for which in COUNTERS:
                    assert await stage.stop_in_the_middle(which) == "refused"
            await stage.stop_somebody()
            await stage.progress(50)
            books = await stage.end()
    assert stage.stops_count == 5
    for which in COUNTERS:
        found = books[which]
        assert found.lost_count == 0, f"{which}: {found}"
        assert found.unexplained == []
        assert found.refused_count >= 1
        assert len(found.acked) >= 50
        assert len(found.unknown) <= UNKNOWN_COUNT_MAX
        assert len(found.acked) <= found.final <= len(found.acked) + len(found.unknown)


async def test_the_same_without_fences_loses_updates(tmp_path: Path) -> None:
    with EtcdGroup() as group:
        async with FencingStage(group.address, tmp_path, Chance.seeded(11), is_fenced=False) as stage:
            for which in COUNTERS:
                # It writes what it read before the others, and is told that all is well.
                assert await stage.stop_in_the_middle(which) == "acked"
            await stage.progress(10)
            books = await stage.end()
    for which in COUNTERS:
        assert books[which].lost_count >= 1, f"{which}: {books[which]}"


class CheckedOnWritingOnly:
    """Storage that compares the fence when it is written to, and not before."""

    def __init__(self) -> None:
        self.value, self._fence = 0, 0

    def take(self, fence: int) -> int:
        return self.value

    def write(self, fence: int, value: int) -> None:
        if fence < self._fence:
            raise StaleFence(f"{fence} is below {self._fence}")
        self.value, self._fence = value, fence


def test_a_fence_that_is_checked_on_writing_only_loses_updates() -> None:
    storage = CheckedOnWritingOnly()
    old = storage.take(1)
    new = storage.take(2)  # The old owner is stopped; it goes on before the new one has written.
    storage.write(1, old + 1)
    storage.write(2, new + 1)
    assert storage.value == 1, "two were acknowledged"


async def test_a_fence_that_is_raised_before_reading_loses_none(tmp_path: Path) -> None:
    async with open_store("memory://fencing") as store:
        key, file = FencedKey(store, "counter"), FencedFile(tmp_path / "counter")
        assert await key.take(1) is None
        assert await key.take(2) is None
        with pytest.raises(StaleFence):
            await key.write(1, b"1")
        await key.write(2, b"1")
        assert file.take(1) is None
        assert file.take(2) is None
        with pytest.raises(StaleFence):
            file.write(1, b"1")
        file.write(2, b"1")
        assert (await key.take(2), file.take(2)) == (b"1", b"1")
