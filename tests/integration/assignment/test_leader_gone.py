"""The leader of a group is gone at each step of a rebalance, and its successor carries it on.

The leader is a process, and all it does is lead. Two workers and the successor are here. First one worker has
all partitions; when the second joins, half of them are to move, one after the other. A leader that is stopped
or cut off is so for longer than its lease, until the successor has ended the plan; then it sends what it was
about to send.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from hansa.assignment.assigner import Assigner
from hansa.assignment.assignments import Assignments
from hansa.assignment.handoff import Handoff
from hansa.assignment.partition import Partition
from hansa.assignment.plan import PlanState
from hansa.assignment.store_mode import StoreMode
from hansa.assignment.topology import handovers_of
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination import Members, NodeInfo
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.placed import Placement
from hansa.keys import Keys
from hansa.store import Store, open_store
from hansa.store.values import Event, EventKind
from tests.support.gated_store import GatedStore
from tests.support.handover_stage import Harm
from tests.support.peer_process import PeerProcess
from tests.support.store_process import StoreProcess
from tests.support.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.spec("ASG-08", "OWN-05"), pytest.mark.timeout(120)]

GROUP = "led"
PARTITIONS = ("p0", "p1", "p2", "p3")
WAIT_S_MAX = 90.0
STOP_S = 5.0
STARTS_AT_ONCE = 4
LOOK_S = 0.02
WHOLE = [each.value for each in HandoverStep if each is not HandoverStep.WITHDRAWN]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """Where harm comes to the leader: before which of its writes, or while a worker holds back a step."""

    leader: str = "none"
    worker: HandoverStep | None = None


# By what has been written last.
STRIKES = {
    "parts": Strike(leader="plan"),
    "head": Strike(leader="offered"),
    "offered": Strike(worker=HandoverStep.PREPARED),
    "prepared": Strike(worker=HandoverStep.SEALED),
    "sealed": Strike(leader="taken"),
    "taken": Strike(worker=HandoverStep.DONE),
    "done": Strike(leader="offered 2"),
    "all done": Strike(leader="end"),
}


# It is killed at each of them. Of its own writes it is about to make one when it is stopped or cut off.
HARMS = [
    *((name, Harm.KILL) for name in STRIKES),
    ("parts", Harm.STOP),
    ("head", Harm.CUT),
    ("sealed", Harm.STOP),
    ("all done", Harm.CUT),
]


class History:
    """All that was ever written below a prefix, in its order."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._keys = keys
        self._watch = store.watch(keys.prefix)
        self.events: list[Event] = []
        self._revision = 0

    async def begin(self) -> None:
        await self._watch.ready()

    async def follow(self) -> None:
        async for batch in self._watch:
            self.events += batch.events
            self._revision = batch.revision

    async def until(self, revision: int) -> None:
        """Wait until all up to this revision is there."""
        while self._revision < revision:
            await asyncio.sleep(LOOK_S)

    def close(self) -> None:
        self._watch.close()

    def puts(self, prefix: bytes) -> list[tuple[str, bytes]]:
        return [
            (event.item.key.removeprefix(prefix).decode(), event.item.value)
            for event in self.events
            if event.kind is EventKind.PUT and event.item.key.startswith(prefix)
        ]

    def owners(self) -> dict[str, list[str]]:
        """Of each partition those that it was placed on, each time that it was."""
        found: dict[str, list[str]] = {}
        epochs: dict[str, int] = {}
        for name, value in self.puts(self._keys.assignments(GROUP)):
            entry = Placement.decode(value)
            assert entry.epoch > epochs.get(name, 0), f"{name}: {entry}"
            epochs[name] = entry.epoch
            found.setdefault(name, []).append(entry.node)
        return found

    def steps(self) -> dict[str, list[str]]:
        """Of each partition that moved the steps that were written."""
        found: dict[str, list[str]] = {}
        for name, value in self.puts(self._keys.handovers_of(handovers_of(GROUP))):
            found.setdefault(name, []).append(Handover.decode(value).step.value)
        return found

    def plans(self) -> list[tuple[int, str, str]]:
        """The number, the state and the leader of each head that was written."""
        heads = [json.loads(value) for name, value in self.puts(self._keys.plans(GROUP)) if name == "head"]
        return [(head["number"], head["state"], head["leader"]) for head in heads]


class Scene:
    """A cluster of its own in the store."""

    def __init__(self, stack: AsyncExitStack, store: Store, cluster: str) -> None:
        self._stack = stack
        self._store = store
        self._cluster = cluster
        self.keys = Keys(cluster)
        self.outside = Assignments(store, GROUP, cluster=cluster)
        self.history = History(store, self.keys)
        self.gates = {name: GatedStore(store) for name in ("a", "b")}
        self.works: Counter[str] = Counter()
        self.twice: list[str] = []

    async def begin(self) -> None:
        await self.history.begin()
        self._spawn(self.history.follow())
        self._stack.callback(self.history.close)
        await self.outside.configure(join_delay=0.0, moves_at_once=1)
        await self.outside.define(*(Partition(name=name) for name in PARTITIONS))
        await self.work("a")

    async def work(self, name: str) -> None:
        members = await self._members(name, cast(Store, self.gates[name]))
        worker = await self._stack.enter_async_context(
            Worker(members, GROUP, mode=StoreMode(leads=False), leave_timeout=0.0)
        )
        self._spawn(worker.run(self._count))

    async def succeed(self) -> None:
        """Have somebody who waits to lead."""
        members = await self._members("successor", self._store)
        self._spawn(Assigner(members, GROUP).run())

    async def shared(self, **counts: int) -> None:
        """Wait until each has so many, and the plan has ended."""
        async with self.outside.view() as view:
            await view.until(lambda found: Counter(each.owner for each in found.values()) == counts)
        while (plan := await self.outside.last_plan()) is None or plan.state is not PlanState.DONE:
            await asyncio.sleep(LOOK_S)
        await self.history.until(plan.revision)

    async def counted(self, partition: str, count: int) -> None:
        """Wait until so many owners of a partition, each after the other, have counted."""
        while True:
            found = await self.outside.get(partition)
            assert found is not None
            state = b"" if found.handoff is None else found.handoff.state
            assert int(state or b"0") <= count
            if state == b"%d" % count:
                return
            await asyncio.sleep(LOOK_S)

    async def reached(self, step: HandoverStep) -> None:
        """Wait until a worker is about to write this step."""
        reached = [asyncio.ensure_future(gate.reached(step)) for gate in self.gates.values()]
        _, others = await asyncio.wait(reached, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()

    async def _members(self, name: str, store: Store) -> Members:
        return await self._stack.enter_async_context(Members(store, NodeInfo(id=name), cluster=self._cluster))

    async def _count(self, work: Work) -> None:
        """One more for each owner."""
        async with work:
            self.works[work.partition] += 1
            if self.works[work.partition] > 1:
                self.twice.append(work.partition)
            count = int(work.handoff.state or b"0") + 1
            await work.save(Handoff(state=b"%d" % count, last_offset=count))
            await work.ending()
            self.works[work.partition] -= 1

    def _spawn(self, work: Any) -> None:
        self._stack.callback(asyncio.ensure_future(work).cancel)


async def play(address: str, name: str, how: Harm, starts: asyncio.Semaphore) -> None:
    """Harm comes to the leader of a cluster; `starts` has few clusters begin at the same time."""
    strike, cluster = STRIKES[name], f"{name.replace(' ', '-')}-{how}"
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S_MAX):
        store = await stack.enter_async_context(open_store(address))
        scene = Scene(stack, store, cluster)
        async with starts:
            await scene.begin()
            way = await stack.enter_async_context(TcpProxy(address.removeprefix("etcd://")))
            reached = f"etcd://{way.endpoint.removeprefix('tcp://')}"
            leader = PeerProcess("assignment/leader_peer.py", reached, cluster, *strike.leader.split())
            await stack.enter_async_context(leader)
            assert await leader.hear() == {"event": "ready"}
            await scene.shared(a=4)
            await scene.succeed()
            await leader.say("arm")
            assert await leader.hear() == {"event": "armed"}
            if strike.worker is not None:
                for gate in scene.gates.values():
                    gate.hold(strike.worker)
            await scene.work("b")
            if strike.worker is None:
                assert await leader.hear() == {"event": "halted"}
            else:
                await scene.reached(strike.worker)
        match how:
            case Harm.KILL:
                await leader.kill()
            case Harm.STOP:
                leader.freeze()
            case Harm.CUT:
                way.hold()
                await leader.say("go")
        struck_s = asyncio.get_running_loop().time()
        if strike.worker is not None:
            for gate in scene.gates.values():
                gate.open(strike.worker)
        await scene.shared(a=2, b=2)
        if how is not Harm.KILL:
            await asyncio.sleep(struck_s + STOP_S - asyncio.get_running_loop().time())
            if how is Harm.CUT:
                way.forward()
            else:
                leader.process.send_signal(signal.SIGCONT)
                await leader.say("go")
            late = await leader.hear()
            assert (late["event"], late["outcome"] != "done") == ("late", True), (cluster, late)
            # All that has come of it is there.
            await scene.history.until((await store.scan(scene.keys.prefix)).revision)
            await scene.shared(a=2, b=2)
        moved = sorted(entry for entry, owners in scene.history.owners().items() if owners != ["a"])
        assert len(moved) == 2
        # One owner each; nothing twice, nothing forgotten.
        assert scene.history.owners() == {
            name: ["a", "b"] if name in moved else ["a"] for name in PARTITIONS
        }, cluster
        assert scene.history.steps() == dict.fromkeys(moved, WHOLE), cluster
        assert scene.twice == []
        for partition in PARTITIONS:
            await scene.counted(partition, 2 if partition in moved else 1)
        # A plan whose head was not written was never there; any other one the successor carries on.
        writer = "successor" if name == "parts" else "leader"
        assert scene.history.plans() == [
            (1, "open", "leader"),
            (1, "done", "leader"),
            (2, "open", writer),
            (2, "done", writer),
        ], cluster


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    with StoreProcess(tmp_path, "--no-fsync") as store:
        yield f"etcd://{store.address}"


async def test_whichever_step_the_leader_is_gone_at_its_successor_carries_the_plan_on(
    address: str,
) -> None:
    starts = asyncio.Semaphore(STARTS_AT_ONCE)
    async with asyncio.TaskGroup() as scenes:
        for name, how in HARMS:
            scenes.create_task(play(address, name, how, starts))
