"""Clients of a store that write down what they asked and what they were answered, to be judged afterwards.

A history crosses from one process to another as lines of JSON.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Self

from hansa.chance import Chance
from hansa.coordination.lock import Hold, Lock
from hansa.coordination.session import Session
from hansa.errors import Fenced, StoreUnavailable, Unavailable
from hansa.store.store import Store
from hansa.store.values import Compare, Put
from hansa.testing import Acquire, Call, CallLog, CompareAndSet, Read, Release, Write

KEYS = ("x", "y", "z")
LOCKS = ("l", "m")
CALL_S_MAX = 2.0
LOCK_TTL_S = 2.0
HELD_S = 0.02
PROGRESS_S_MAX = 30.0
_LOOK_S = 0.002


class RegisterClient:
    """Reads, writes and compares-and-sets a few keys, at random, until it is cancelled.

    `recall` is asked before the store is read: for a reader that is deliberately wrong.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        chance: Chance,
        *,
        log: CallLog | None = None,
        keys: tuple[str, ...] = KEYS,
        recall: Callable[[str], bytes | None] | None = None,
    ) -> None:
        self.log = log if log is not None else CallLog()
        self._store = store
        self._name = name
        self._chance = chance
        self._keys = keys
        self._recall = recall
        self._seen: dict[str, bytes | None] = {}
        self._written_count = 0

    @property
    def calls(self) -> list[Call]:
        return self.log.calls

    async def run(self) -> None:
        while True:
            await self.act()
            await asyncio.sleep(self._chance.uniform(0.0, 0.02))

    async def act(self) -> None:
        """One call. What the store could not do is part of the history, or certainly did not happen."""
        key = self._chance.choose(self._keys)
        drawn = self._chance.below(5)
        with suppress(Unavailable):
            if drawn == 0:
                await self.write(key)
            elif drawn < 3:
                await self.compare_and_set(key)
            else:
                await self.read(key)

    async def read(self, key: str) -> None:
        with self.log.call(self._name, key, Read()) as call:
            recalled = self._recall(key) if self._recall is not None else None
            try:
                if recalled is None:
                    item = await self._store.get(key, timeout=CALL_S_MAX)
                    recalled = None if item is None else item.value
            except Unavailable:
                call.refused()  # It changed nothing, whatever became of it.
                raise
            call.answered(_text(recalled))
        self._seen[key] = recalled

    async def write(self, key: str) -> None:
        value = self._new_value()
        with self.log.call(self._name, key, Write(_text(value))) as call:
            try:
                await self._store.put(key, value, timeout=CALL_S_MAX)
            except StoreUnavailable:
                call.refused()
                raise
            call.answered()
        self._seen[key] = value

    async def compare_and_set(self, key: str) -> None:
        expected, value = self._seen.get(key), self._new_value()
        compare = Compare.absent(key) if expected is None else Compare.value(key, "=", expected)
        with self.log.call(self._name, key, CompareAndSet(_text(expected), _text(value))) as call:
            try:
                outcome = await self._store.commit([compare], [Put(key, value)], timeout=CALL_S_MAX)
            except StoreUnavailable:
                call.refused()
                raise
            call.answered(outcome.is_success)
        if outcome.is_success:
            self._seen[key] = value
        else:
            await self.read(key)

    def _new_value(self) -> bytes:
        self._written_count += 1
        return f"{self._name}-{self._written_count}".encode()


class LockClient:
    """Takes a lock, holds it for a moment, gives it back, until it is cancelled.

    Each turn is a process of its own in the history. `release()` may end before the store has done it, so it
    is a call without outcome; so is the end of a hold that was lost, at the last moment it was still held.
    """

    def __init__(self, store: Store, name: str, chance: Chance, *, log: CallLog | None = None) -> None:
        self.log = log if log is not None else CallLog()
        self.ends: list[Call] = []
        self._store = store
        self._name = name
        self._chance = chance
        self._turns_count = 0
        # When the lock was last seen to be held.
        self._held_s = 0.0

    @property
    def calls(self) -> list[Call]:
        return [*self.log.calls, *self.ends]

    async def run(self) -> None:
        while True:
            with suppress(Unavailable, Fenced):
                async with Session(self._store, LOCK_TTL_S, name=self._name) as session:
                    locks = {name: Lock(session, name) for name in LOCKS}
                    while session.is_live:
                        name = self._chance.choose(LOCKS)
                        await self._turn(name, locks[name])

    async def _turn(self, name: str, lock: Lock) -> None:
        self._turns_count += 1
        process = f"{self._name}.{self._turns_count}"
        called_s = self._store.clock.monotonic()
        with self.log.call(process, name, Acquire()) as call:
            try:
                hold = await lock.acquire(timeout=CALL_S_MAX)
            except BaseException:
                # It may have come to its turn, and then it leaves, some time from now on.
                self._ended(process, name, Release(), called_s)
                raise
            self._held_s = called_s
            call.answered(hold.fence)
        try:
            await self._hold(hold)
        finally:
            self._ended(process, name, Release(hold.fence), self._held_s)
        await hold.release()

    async def _hold(self, hold: Hold) -> None:
        """Hold it for a moment, and look all the while how long it is held."""
        until_s = self._store.clock.monotonic() + self._chance.uniform(0.0, HELD_S)
        while self._is_held(hold) and self._held_s < until_s:
            await asyncio.sleep(_LOOK_S)

    def _is_held(self, hold: Hold) -> bool:
        # The time first: between both it may be lost.
        now_s = self._store.clock.monotonic()
        if hold.is_held:
            self._held_s = now_s
        return hold.is_held

    def _ended(self, process: str, name: str, release: Release, called_s: float) -> None:
        self.ends.append(Call(process=process, key=name, asked=release, called_s=called_s, returned_s=None))


class Clients:
    """Some of both kinds on one store. Leaving the block ends them; then `calls` is what they saw."""

    def __init__(
        self, store: Store, name: str, chance: Chance, *, registers_count: int = 2, locks_count: int = 1
    ) -> None:
        self._registers = [
            RegisterClient(store, f"{name}r{number}", chance.fork(f"r{number}"))
            for number in range(registers_count)
        ]
        self._locks = [
            LockClient(store, f"{name}l{number}", chance.fork(f"l{number}")) for number in range(locks_count)
        ]
        self._all: list[RegisterClient | LockClient] = [*self._registers, *self._locks]
        self._stack = AsyncExitStack()

    @property
    def calls(self) -> list[Call]:
        return [call for client in self._all for call in client.calls]

    async def progress(self, count: int) -> None:
        """Wait until so many more calls of each kind were answered."""
        kinds: list[Sequence[RegisterClient | LockClient]] = [self._registers, self._locks]
        goals = [(clients, _answered_count(clients) + count) for clients in kinds if clients]
        async with asyncio.timeout(PROGRESS_S_MAX):
            for clients, goal in goals:
                while _answered_count(clients) < goal:
                    await asyncio.sleep(_LOOK_S)

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        running = [tasks.create_task(client.run()) for client in self._all]
        for task in running:
            self._stack.callback(task.cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


def _answered_count(clients: Sequence[RegisterClient | LockClient]) -> int:
    return sum(call.is_answered for client in clients for call in client.log.calls)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


# ---- across processes ------------------------------------------------------------------------------

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Read, Write, CompareAndSet, Acquire, Release)
}


def as_line(call: Call) -> str:
    asked = [type(call.asked).__name__, *(getattr(call.asked, name) for name in call.asked.__slots__)]
    return json.dumps([call.process, call.key, asked, call.answer, call.called_s, call.returned_s])


def from_lines(lines: Iterable[str]) -> list[Call]:
    calls = []
    for line in lines:
        process, key, (kind, *given), answer, called_s, returned_s = json.loads(line)
        calls.append(
            Call(
                process=process,
                key=key,
                asked=_KINDS[kind](*given),
                answer=answer,
                called_s=called_s,
                returned_s=returned_s,
            )
        )
    return calls
