"""Workers on a store, each a process, that come, go, are killed and stop while they add up messages."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hansa.assignment.assignments import Assignments
from hansa.assignment.partition import Partition
from hansa.assignment.topology import Assignment
from hansa.coordination.member import MemberStatus, NodeRecord
from hansa.coordination.placed import Placement
from hansa.keys import Keys
from hansa.store.opening import open_store
from hansa.store.values import Get, prefix_range
from tests.support.peer_process import PeerProcess
from tests.support.sums import GROUP, PARTITIONS, RATE_PER_S, Books, Row, Sums

WAIT_S_MAX: Final = 40.0
MORE_S: Final = 0.5


class WorkerProcess:
    """One worker, and all that it has told."""

    def __init__(self, peer: PeerProcess, tasks: asyncio.TaskGroup) -> None:
        self._peer = peer
        self._reading = tasks.create_task(self._read())
        self._news = asyncio.Event()
        self.told: list[dict[str, Any]] = []
        self.is_alive = True

    async def _read(self) -> None:
        assert self._peer.process.stdout is not None
        async for line in self._peer.process.stdout:
            self.told.append(json.loads(line))
            self._news.set()
        self.is_alive = False
        self._news.set()

    def all(self, event: str) -> list[dict[str, Any]]:
        """What it has told of this kind."""
        return [one for one in self.told if one["event"] == event]

    async def until(self, event: str, *, count: int = 1) -> dict[str, Any]:
        """The first event of this kind, or the one that is told so often."""
        async with asyncio.timeout(WAIT_S_MAX):
            while len(found := self.all(event)) < count:
                assert self.is_alive, f"it ended and never told {event}: {self.told[-3:]}"
                self._news.clear()
                await self._news.wait()
        return found[count - 1]

    async def say(self, line: str) -> None:
        await self._peer.say(line)

    def signal(self, number: signal.Signals) -> None:
        self._peer.process.send_signal(number)

    async def ended(self) -> int:
        """Wait until it has ended; its status."""
        async with asyncio.timeout(WAIT_S_MAX):
            await self._reading
            return await self._peer.process.wait()


class SumsStage:
    """Use `async with`: it begins without workers; leaving kills those there are."""

    def __init__(self, address: str, folder: Path, *, cluster: str = "sums", is_guarded: bool = True) -> None:
        self._address = address
        self._folder = folder
        self._cluster = cluster
        self._is_guarded = is_guarded
        self._keys = Keys(cluster)
        self._stack = AsyncExitStack()
        self.workers: dict[str, WorkerProcess] = {}
        # All that ever were.
        self.everybody: list[WorkerProcess] = []
        # Partitions whose owner was struck, and when.
        self._struck: list[tuple[set[str], float]] = []
        self.start_s = 0.0
        self.messages_count = 0

    async def __aenter__(self) -> Self:
        self._store = await self._stack.enter_async_context(open_store(self._address))
        self._outside = Assignments(self._store, GROUP, cluster=self._cluster)
        await self._outside.configure(join_delay=0.2)
        await self._outside.define(*(Partition(name=name) for name in PARTITIONS))
        self._view = await self._stack.enter_async_context(self._outside.view())
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self.start_s = time.monotonic()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    # -- what happens

    async def join(self, *names: str) -> None:
        """Start workers, and wait until everybody has its share."""
        for name in names:
            peer = PeerProcess(
                "assignment/store_peer.py",
                f"--store={self._address}",
                f"--cluster={self._cluster}",
                f"--node={name}",
                f"--start-s={self.start_s}",
                f"--folder={self._folder}",
                *([] if self._is_guarded else ["--no-guards"]),
            )
            await self._stack.enter_async_context(peer)
            self.workers[name] = WorkerProcess(peer, self._tasks)
            self.everybody.append(self.workers[name])
        await self.shared()

    async def leave(self, name: str) -> None:
        """SIGTERM: everything goes to the others in order."""
        worker = self.workers.pop(name)
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
        await self.shared()

    async def kill(self, name: str) -> None:
        """SIGKILL, and wait until the others work on all that it had."""
        worker, had = self.workers.pop(name), self._of(name)
        at_s = time.monotonic()
        worker.signal(signal.SIGKILL)
        await self.shared()
        await self._more(had, at_s)

    async def stop_in_the_middle(self, name: str) -> None:
        """SIGSTOP between a decision to save and the save, until others have gone on; then SIGCONT.

        What it sends then comes too late.
        """
        gate, worker = self._folder / f"gate.{name}", self.workers.pop(name)
        gate.touch()
        held_count = len(worker.all("held"))
        await worker.until("held", count=held_count + 1)
        had, at_s = self._of(name), time.monotonic()
        worker.signal(signal.SIGSTOP)
        gate.unlink()
        await self.shared()
        await self._more(had, at_s)
        worker.signal(signal.SIGCONT)
        await worker.until("late", count=held_count + 1)
        self.workers[name] = worker
        await self.shared()

    async def end(self) -> None:
        """There are no more messages than these; wait until all are added and saved."""
        count = int((time.monotonic() - self.start_s + MORE_S) * RATE_PER_S)
        for worker in self.workers.values():
            await worker.say(f"end {count}")
        # Whoever hears of it late adds more.
        await self.until(lambda found: all(each.last_offset >= count - 1 for each in found.values()))

    async def leave_all(self) -> None:
        """All leave at once: nobody is left to take anything, and everything is saved."""
        for worker in self.workers.values():
            worker.signal(signal.SIGTERM)
        for worker in self.workers.values():
            assert await worker.ended() == 0

    async def until(self, condition: Callable[[Mapping[str, Assignment]], bool]) -> None:
        """Wait until who has what fulfils a condition."""
        await self._view.until(condition, timeout=WAIT_S_MAX)

    async def shared(self) -> None:
        """Wait until all partitions are shared out among the workers that live."""

        def is_so(found: Mapping[str, Assignment]) -> bool:
            counts = Counter(each.owner for each in found.values())
            return counts.keys() == self.workers.keys() and max(counts.values()) - min(counts.values()) <= 1

        await self.until(is_so)

    # -- what is so

    async def books(self) -> Books:
        """What became of each message, by what is in the store."""
        scan = await self._store.scan(Row.prefix(self._cluster))
        rows = [Row.decode(item.value, item.mod_revision) for item in scan.items]
        sums, books = await self._sums(), Books()
        books.check(rows, sums)
        self.messages_count = sum(each.next_number for each in sums)
        return books

    async def check_owners(self) -> None:
        """Each partition has an owner, which is UP on the session that the entry names, and lives."""
        prefixes = (self._keys.nodes, self._keys.assignments(GROUP))
        # In one transaction: both are of the same moment.
        outcome = await self._store.commit([], [Get(*prefix_range(prefix)) for prefix in prefixes])
        nodes, entries = (
            {item.key: item for item in outcome.items if item.key.startswith(prefix)} for prefix in prefixes
        )
        assert len(entries) == len(PARTITIONS)
        for item in entries.values():
            entry = Placement.decode(item.value)
            assert entry.node in self.workers, f"{item.key!r} belongs to {entry.node!r}"
            record = nodes[self._keys.node(entry.node)]
            status = NodeRecord.decode(record.value).info.status
            assert status is MemberStatus.UP
            # A member that is UP and fenced: here, and its claims are refused.
            assert record.lease == entry.lease, f"{entry.node} is UP, and {item.key!r} is on another session"

    def handed_on(self) -> list[str]:
        """Works that began with less than what an owner before had saved."""
        given = [one for worker in self.everybody for one in worker.all("given")]
        begun = [one for worker in self.everybody for one in worker.all("begun")]
        return [
            f"{one} after {before}"
            for one in begun
            for before in given
            if before["partition"] == one["partition"] and before["epoch"] < one["epoch"]
            if one["next"] < before["next"]
        ]

    def pauses_s(self) -> list[float]:
        """Of each move that was planned: from its last message at one worker to the next at another."""
        given = {
            (one["partition"], one["next"]): one["at_s"]
            for worker in self.everybody
            for one in worker.all("given")
        }
        begun = {
            (one["partition"], one["epoch"]): one["next"]
            for worker in self.everybody
            for one in worker.all("begun")
        }
        found: dict[tuple[str, int], float] = {}
        for worker in self.everybody:
            for one in worker.all("first"):
                at = one["partition"], begun[one["partition"], one["epoch"]]
                if at in given:
                    # Whoever is struck before it has saved anything is followed at the same place.
                    found[at] = min(one["at_s"] - given[at], found.get(at, inf))
        return sorted(found.values())

    def takeovers_s(self) -> list[float]:
        """Of each worker that was struck: until others have worked on all that it had."""
        firsts = [one for worker in self.everybody for one in worker.all("first")]
        return [
            max(
                min(one["at_s"] for one in firsts if one["partition"] == name and one["at_s"] > at_s) - at_s
                for name in partitions
            )
            for partitions, at_s in self._struck
        ]

    def worst(self, figure: str) -> float:
        """The greatest that any worker tells of this at its end."""
        return max(float(one[figure]) for worker in self.everybody for one in worker.all("left"))

    def _of(self, name: str) -> set[str]:
        return {each.partition for each in self._view.assignments.values() if each.owner == name}

    async def _more(self, partitions: set[str], at_s: float) -> None:
        """Wait until others have saved more of these than their owner can have."""
        self._struck.append((partitions, at_s))
        count = int((at_s - self.start_s) * RATE_PER_S)
        await self.until(lambda found: all(found[name].last_offset > count for name in partitions))

    async def _sums(self) -> list[Sums]:
        found = []
        for name in PARTITIONS:
            assignment = await self._outside.get(name)
            state = b"" if assignment is None or assignment.handoff is None else assignment.handoff.state
            found.append(Sums.decode(name, state))
        return found
