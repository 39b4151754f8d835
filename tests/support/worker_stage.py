"""Workers in virtual time, on a memory store; each can be paused, resumed and killed as a process can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from hansa.assignment.assignments import Assignments
from hansa.assignment.handoff import Handoff
from hansa.assignment.partition import Partition
from hansa.assignment.topology import HandoffFailed, TopologyEvent
from hansa.assignment.work import Handler, Work
from hansa.assignment.worker import Worker
from hansa.chance import Chance
from hansa.coordination.member import NodeInfo
from hansa.coordination.members import Members
from hansa.errors import HansaError, TimedOut, WouldBlock
from hansa.keys import Keys
from hansa.limits import STORE_TIMEOUT_S
from hansa.runtime.mailboxes import EventStream
from hansa.store.memory import LoopKeeping, MemoryStore
from hansa.store.store import Store
from hansa.store.values import Compare, Operation, Outcome, Put
from hansa.testing.life import Life
from hansa.testing.loop import SimLoop
from hansa.transport import Environment
from tests.support.member_stage import MemberStage

T = TypeVar("T")

GROUP = "g"
WAIT_S_MAX = 200.0
"""Virtual: longer than all that anybody here waits for."""


class SavingStore:
    """A store in which saves of handoffs fail when told so, with or without their effect; and more."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._handoffs = Keys().handoffs(GROUP)
        self.trouble: HansaError | None = None
        self.are_done = False
        """Whether what fails is done all the same."""
        self.takes_s: Callable[[], float] | None = None
        """How long a save is under way, there and back."""
        self.tries_count = 0
        self.is_deaf = False
        """Whether it hears no answer to the renewals of its leases, which are renewed all the same."""

    def keep(
        self,
        lease: int,
        *,
        ttl: float,
        granted_s: float,
        interval: float,
        loop_silence_s_max: float,
        on_change: Callable[[], None],
    ) -> LoopKeeping:
        return LoopKeeping(
            cast(MemoryStore, self),
            lease,
            ttl_s=ttl,
            granted_s=granted_s,
            interval_s=interval,
            on_change=on_change,
        )

    async def keep_alive(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> float:
        ttl_s = await self._store.keep_alive(lease, timeout=timeout)
        if self.is_deaf:
            raise TimedOut("the answer was lost")
        return ttl_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        is_save = any(isinstance(each, Put) and each.key.startswith(self._handoffs) for each in then)
        self.tries_count += is_save
        if is_save and self.trouble is not None:
            if self.are_done:
                await self._store.commit(compares, then, otherwise, timeout=timeout)
            raise self.trouble
        if not is_save or self.takes_s is None:
            return await self._store.commit(compares, then, otherwise, timeout=timeout)
        # What is on its way arrives, whoever asked for it and is cancelled.
        return await asyncio.shield(asyncio.ensure_future(self._slowly(compares, then, otherwise)))

    async def _slowly(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]
    ) -> Outcome:
        assert self.takes_s is not None
        await asyncio.sleep(self.takes_s())
        outcome = await self._store.commit(compares, then, otherwise)
        await asyncio.sleep(self.takes_s())
        return outcome


class WorkerLife:
    """A worker as a process would have it, and what it was told."""

    def __init__(self, name: str, life: Life, store: SavingStore, members: Members, worker: Worker) -> None:
        self.name = name
        self.life = life
        self.store = store
        self.members = members
        self.worker = worker
        self.works: list[Work] = []
        """What was given to its handler, in that order."""
        self.events: EventStream[TopologyEvent]
        self.leaving = asyncio.Event()
        self.main: asyncio.Task[None]
        self.running: asyncio.Task[None] | None = None

    async def has(self, *partitions: str) -> None:
        """Wait until it has these, and no others."""
        async with asyncio.timeout(WAIT_S_MAX):
            await self.worker.until(lambda names: set(names) == set(partitions))

    async def works_on(self, partition: str, *, count: int = 1) -> Work:
        """Wait until its handler was given a partition so often; the last time of these."""
        async with asyncio.timeout(WAIT_S_MAX):
            while len(found := [work for work in self.works if work.partition == partition]) < count:
                await asyncio.sleep(0.01)
        return found[count - 1]

    def told(self) -> list[TopologyEvent]:
        """The events that were not read yet."""
        found: list[TopologyEvent] = []
        with suppress(WouldBlock):
            while True:
                found.append(self.events.get_nowait())
        return found

    def brief(self) -> list[tuple[str, str]]:
        """Their kinds, and of which partitions they are."""
        return [(type(event).__name__, event.partition) for event in self.told()]

    async def failure(self) -> HandoffFailed:
        """The next alert; events before it are passed over."""
        async with asyncio.timeout(WAIT_S_MAX):
            async for event in self.events:
                if isinstance(event, HandoffFailed):
                    return event
        raise AssertionError("the worker ended")


class WorkerStage(MemberStage):
    """One group on one memory store, and the workers that share its partitions."""

    def __init__(self, loop: SimLoop, store: MemoryStore) -> None:
        super().__init__(loop, store)
        self.outside = Assignments(store, GROUP)
        self.workers: dict[str, WorkerLife] = {}
        self._count = 0

    async def define(self, *names: str, **settings: Any) -> None:
        """Partitions, and a group in which nothing waits for more to join."""
        await self.outside.configure(**{"join_delay": 0.0} | settings)
        await self.outside.define(*(Partition(name=name) for name in names))

    async def work(self, name: str, handler: Handler | None = None, **options: Any) -> WorkerLife:
        """Start a worker. Without a handler nobody asks it for its works."""
        self._count += 1
        chance = Chance.seeded(f"{name} {self._count}")
        saving = SavingStore(self.store)
        members = Members(
            cast(Store, saving), NodeInfo(id=name), environment=Environment(chance=chance.fork("members"))
        )
        entered: asyncio.Future[WorkerLife] = self.loop.create_future()
        life = Life(name, self._count)

        async def handle(work: Work) -> None:
            one = entered.result()
            one.works.append(work)
            assert handler is not None
            await handler(work)

        async def live() -> None:
            async with members:
                worker = Worker(members, GROUP, environment=Environment(chance=chance), **options)
                async with worker:
                    one = WorkerLife(name, life, saving, members, worker)
                    one.events = worker.events()
                    if handler is not None:
                        one.running = asyncio.ensure_future(worker.run(handle))
                    entered.set_result(one)
                    await one.leaving.wait()
                if one.running is not None:
                    await asyncio.wait([one.running])

        main = self.loop.spawn(live(), name=name, life=life)
        ends: list[asyncio.Future[Any]] = [main, entered]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not entered.done():
            main.result()
        one = self.workers[name] = entered.result()
        one.main = main
        return one

    async def leaves(self, one: WorkerLife) -> None:
        """Leave its block, and wait until it is left. Raises what that raises."""
        one.leaving.set()
        async with asyncio.timeout(WAIT_S_MAX):
            await one.main

    def stop(self, one: WorkerLife) -> None:
        """As SIGSTOP."""
        self.loop.pause(one.life)

    def go_on(self, one: WorkerLife) -> None:
        """As SIGCONT."""
        self.loop.resume(one.life)

    def strike(self, one: WorkerLife) -> None:
        """As SIGKILL."""
        self.loop.kill(one.life)

    async def lose_session(self, one: WorkerLife) -> None:
        """The store has its lease no more."""
        await self.store.revoke((await one.members.sessions.live()).lease)

    async def saved(self, partition: str) -> Handoff | None:
        """What was saved last."""
        found = await self.outside.get(partition)
        return None if found is None else found.handoff

    async def until_owner(self, partition: str, owner: str) -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            while (found := await self.outside.get(partition)) is None or found.owner != owner:
                await asyncio.sleep(0.01)


async def stay(work: Work) -> None:
    """Count owners, and work until somebody else is to have it."""
    async with work:
        count = int(work.handoff.state or b"0") + 1
        work.note(state=b"%d" % count, last_offset=count)
        await work.ending()
