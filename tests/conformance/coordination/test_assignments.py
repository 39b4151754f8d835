"""Work that is shared out among workers, on every store: nothing is lost and nothing counted twice."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest

from hansa.assignment.assignments import Assignments
from hansa.assignment.handoff import Handoff
from hansa.assignment.partition import Partition
from hansa.assignment.topology import PartitionAssigned, PartitionRevoked, PartitionUpdated
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination import Members, NodeInfo, SessionKeeper
from hansa.errors import Fenced
from hansa.store.store import Store

WAIT_S_MAX = 60.0
PARTITIONS = tuple(f"p{number}" for number in range(6))
LARGE = bytes(range(256)) * 1_024


class Process:
    """A worker as a process would have it, and the tasks that work on its partitions."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self._stack = AsyncExitStack()
        self._running: asyncio.Task[None] | None = None
        self.works: dict[str, Work] = {}
        self.losses: list[str] = []

    async def begin(self) -> None:
        self.keeper = await self._stack.enter_async_context(
            SessionKeeper(self.store, ttl=20.0, node=self.name)
        )
        node = NodeInfo(id=self.name)
        self.members = await self._stack.enter_async_context(Members(self.store, node, session=self.keeper))
        self.worker = await self._stack.enter_async_context(Worker(self.members, "g"))
        self._running = asyncio.create_task(self.worker.run(self._work))

    async def _work(self, work: Work) -> None:
        """Count until it is to end: one more for each owner."""
        try:
            async with work:
                self.works[work.partition] = work
                count = int(work.handoff.state or b"0") + 1
                work.note(state=b"%d" % count, last_offset=count, checkpoint=self.name)
                await work.ending()
        except Fenced:
            self.losses.append(work.partition)
            raise
        finally:
            self.works.pop(work.partition, None)

    async def has(self, count: int) -> None:
        await self.worker.until(lambda names: len(names) == count)

    async def dies(self) -> None:
        """Its lease is over, and it is not there again."""
        session = await self.keeper.live()
        # When the keeper finds out, at its next renewal, it waits for a session that does not come.
        self.keeper._open = asyncio.Event().wait  # type: ignore[method-assign,assignment]
        await self.store.revoke(session.lease)

    async def leave(self) -> None:
        await self._stack.aclose()
        if self._running is not None:
            await asyncio.wait([self._running])


class Plant:
    """Processes that share six partitions."""

    def __init__(self, stack: AsyncExitStack, stores: Sequence[Store]) -> None:
        self._stack = stack
        self._stores = stores
        self._count = 0
        self.outside = Assignments(stores[0], "g")

    async def process(self, name: str) -> Process:
        process = Process(self._stores[self._count % len(self._stores)], name)
        self._count += 1
        self._stack.push_async_callback(process.leave)
        await process.begin()
        return process


@pytest.fixture
async def plant(store: Store, other_store: Store) -> AsyncIterator[Plant]:
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S_MAX):
        plant = Plant(stack, (store, other_store))
        await plant.outside.configure(join_delay=0.1)
        await plant.outside.define(*(Partition(name=name) for name in PARTITIONS))
        yield plant


async def counts(plant: Plant) -> dict[str, bytes]:
    """What was saved last of each partition."""
    found = {name: await plant.outside.get(name) for name in PARTITIONS}
    return {
        name: one.handoff.state if one is not None and one.handoff is not None else b""
        for name, one in found.items()
    }


@pytest.mark.spec("ASG-02", "ASG-04")
async def test_workers_share_join_and_leave_with_what_was_done(plant: Plant) -> None:
    a = await plant.process("a")
    await a.has(6)
    b = await plant.process("b")
    await b.has(3)
    await a.has(3)
    moved = set(b.worker.works)
    assert {name for name, state in (await counts(plant)).items() if state == b"1"} == moved
    await a.leave()
    await b.has(6)
    await b.leave()
    # Six by `a`, three and three by `b`: each partition has had two owners.
    assert await counts(plant) == dict.fromkeys(PARTITIONS, b"2")


@pytest.mark.spec("ASG-05")
async def test_what_a_dead_worker_saved_goes_on_and_what_it_sends_late_is_refused(plant: Plant) -> None:
    a = await plant.process("a")
    await a.has(6)
    while len(a.works) < 6:
        await asyncio.sleep(0.01)
    zombies = dict(a.works)
    for work in zombies.values():
        await work.save()
    b = await plant.process("b")
    await b.has(3)
    await a.has(3)
    kept = set(a.worker.works)
    await a.dies()
    await b.has(6)
    for name in kept:
        with pytest.raises(Fenced):
            await zombies[name].save(Handoff(state=b"late", last_offset=9))
    await b.leave()
    assert await counts(plant) == dict.fromkeys(PARTITIONS, b"2")
    assert set(a.losses) == kept


@pytest.mark.spec("ASG-06")
async def test_a_large_handoff_stands_aside_and_its_blob_goes_with_the_next(plant: Plant) -> None:
    a = await plant.process("a")
    await a.has(6)
    while len(a.works) < 6:
        await asyncio.sleep(0.01)
    # What cannot be compressed.
    large = b"".join(bytes([byte ^ (place * 131 % 251)]) for place, byte in enumerate(LARGE))
    work = a.works["p0"]
    await work.save(Handoff(state=large))
    saved = work.saved
    assert saved is not None
    found = await plant.outside.get("p0")
    assert found is not None
    assert found.handoff is not None
    assert found.handoff.state == large
    await work.save(Handoff(state=b"small"))
    assert work.saved is not None
    assert work.saved.blob == ""
    if saved.blob:
        assert (await plant.outside.store.scan(b"/hansa/default/blobs/handoffs/")).items == ()


@pytest.mark.spec("ASG-01")
async def test_a_follower_is_told_of_resources_and_handoffs(plant: Plant) -> None:
    a = await plant.process("a")
    await a.has(6)
    async with plant.outside.view() as view:
        await view.until(lambda found: all(each.owner == "a" for each in found.values()))
        applied = view.last_applied_index
        events = view.events()
        await plant.outside.assign("press-7", to="p3")
        async for event in events:
            if isinstance(event, PartitionUpdated) and event.resources == ("press-7",):
                assert (event.partition, event.node) == ("p3", "a")
                break
        b = await plant.process("b")
        await b.has(3)
        await a.has(3)
        # It comes to b, if it is not there already.
        await plant.outside.pin("p3", "b")
        seen = {}
        async for event in events:
            if event.partition == "p3" and isinstance(event, PartitionRevoked | PartitionAssigned):
                seen[type(event)] = event
            if PartitionAssigned in seen:
                break
        revoked, assigned = seen[PartitionRevoked], seen[PartitionAssigned]
        assert (revoked.node, assigned.node) == ("a", "b")
        assert assigned.epoch > revoked.epoch
        assert assigned.resources == ("press-7",)
        assert assigned.handoff is not None
        assert assigned.handoff.state == b"1"
        assert assigned.handoff.resources == ("press-7",)
        assert view.last_applied_index > applied
        await b.has(3)
        assert view.counts["b"] >= 1


@pytest.mark.spec("ASG-08")
async def test_when_the_leader_leaves_another_one_shares_out(plant: Plant) -> None:
    first = await plant.process("a")
    await first.has(6)
    others = [await plant.process("b"), await plant.process("c")]
    for process in (first, *others):
        await process.has(2)
    plan = await plant.outside.last_plan()
    assert plan is not None
    leader = next(process for process in (first, *others) if process.name == plan.leader)
    await leader.leave()
    one, other = (process for process in (first, *others) if process is not leader)
    for process in (one, other):
        await process.has(3)
    await one.leave()
    await other.has(6)
    after = await plant.outside.last_plan()
    assert after is not None
    assert after.leader in (one.name, other.name)
    assert after.number > plan.number
