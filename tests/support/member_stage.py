"""Members in virtual time: each in a life of its own, that can be paused, resumed and killed, or leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from hansa.chance import Chance
from hansa.coordination.member import MembersEvent, NodeInfo
from hansa.coordination.members import Members
from hansa.coordination.roster import Roster
from hansa.errors import WouldBlock
from hansa.runtime.mailboxes import EventStream
from hansa.store.memory import MemoryStore
from hansa.testing.host import SimClock
from hansa.testing.life import Life
from hansa.testing.loop import SimLoop
from hansa.transport import Environment

T = TypeVar("T")


class MemberStage:
    """One memory store on a simulated loop, and the lives that use it."""

    def __init__(self, loop: SimLoop, store: MemoryStore) -> None:
        self.loop = loop
        self.store = store
        self.members: dict[str, Members] = {}
        self._lives: dict[str, Life] = {}
        self._leaving: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._number = 0

    @classmethod
    def play(cls, scene: Callable[[Self], Coroutine[Any, Any, T]], *, seed: int = 1) -> T:
        """Run a scene to its end, and give what it gives."""
        loop = SimLoop(Chance.seeded(seed))

        async def whole() -> T:
            async with MemoryStore(
                environment=Environment(clock=SimClock(loop), chance=Chance.seeded(f"store {seed}"))
            ) as store:
                return await scene(cls(loop, store))

        try:
            result: T = loop.run_until_complete(whole())
            return result
        finally:
            loop.close()

    async def join(self, name: str, *, node: NodeInfo | None = None, **options: Any) -> Members:
        """Start a process that joins and stays. Raises what joining raises."""
        self._number += 1
        chance = Chance.seeded(f"{name} {self._number}")
        members = Members(
            self.store, node or NodeInfo(id=name), environment=Environment(chance=chance), **options
        )
        life, leaving = Life(name, self._number), asyncio.Event()
        entered: asyncio.Future[None] = self.loop.create_future()

        async def live() -> None:
            try:
                async with members:
                    entered.set_result(None)
                    await leaving.wait()
            except Exception as error:
                if entered.done():
                    raise
                entered.set_exception(error)

        self._tasks[name] = self.loop.spawn(live(), name=name, life=life)
        await entered
        self.members[name], self._lives[name], self._leaving[name] = members, life, leaving
        return members

    def pause(self, name: str) -> None:
        """As SIGSTOP."""
        self.loop.pause(self._lives[name])

    def resume(self, name: str) -> None:
        """As SIGCONT."""
        self.loop.resume(self._lives[name])

    def kill(self, name: str) -> None:
        """As SIGKILL."""
        self.loop.kill(self._lives[name])

    async def leave(self, name: str) -> None:
        """Leave the block, and wait until it is left."""
        self._leaving[name].set()
        await self._tasks[name]

    async def passed(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    async def took_s(self, members: Members, condition: Callable[[Roster], bool]) -> float:
        """How long it took until a view was so; a minute is too long."""
        began_s = self.loop.time()
        await members.until(condition, timeout=60)
        return self.loop.time() - began_s


def told(events: EventStream[MembersEvent]) -> list[MembersEvent]:
    """All events that wait."""
    found: list[MembersEvent] = []
    while True:
        try:
            found.append(events.get_nowait())
        except WouldBlock:
            return found


def brief(events: list[MembersEvent]) -> list[tuple[str, str]]:
    """Their kinds and whom they are of."""
    return [(type(event).__name__, event.member.id if hasattr(event, "member") else "") for event in events]
