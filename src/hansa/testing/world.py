"""A world: hosts, their network, one virtual clock and the history, from one seed; scenarios play in it.

The history is what happened, in order: its digest proves a replay, and its tail explains failures.
"""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any, NoReturn, TypeVar

from hansa.chance import Chance
from hansa.errors import InvariantBroken, UsageError
from hansa.testing.host import Host, Program, SimClock
from hansa.testing.life import LifeState, current_life
from hansa.testing.loop import SimLoop
from hansa.testing.network import NetworkSettings, SimNetwork

FACTS_KEPT_MAX = 20_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that happened. `at_s` counts from the start of the run; the world itself is node ""."""

    at_s: float
    node: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:12.6f}  {self.node or '-':<12}  {self.what}"


class History:
    """Keeps the newest facts and the digest of all. The oldest are forgotten beyond a bound, and counted."""

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        self._elapsed_s = elapsed_s
        self._facts: deque[Fact] = deque(maxlen=FACTS_KEPT_MAX)
        self._count = 0
        self._hash = sha256()

    def __len__(self) -> int:
        return self._count

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts that are kept, oldest first."""
        return tuple(self._facts)

    def record(self, node: str, what: str) -> None:
        """Append a fact that happened now."""
        fact = Fact(at_s=self._elapsed_s(), node=node, what=what)
        self._facts.append(fact)
        self._count += 1
        # repr gives every bit of the time, the printed form does not.
        self._hash.update(f"{fact.at_s!r}\t{fact.node}\t{fact.what}\n".encode())

    def digest(self) -> str:
        """Equal for equal histories, including what was forgotten."""
        return self._hash.hexdigest()

    def tail(self, count: int) -> str:
        """The newest facts as text, one on a line, with a note about those before them."""
        shown = list(self._facts)[-count:] if count > 0 else []
        before = self._count - len(shown)
        lines = [f"  ({before} facts before)"] if before else []
        return "\n".join(lines + [f"  {fact}" for fact in shown])


class Broken(InvariantBroken):
    """An invariant that a scenario watches does not hold."""

    code = "simulation-invariant"

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


# After this many worlds their garbage is collected.
COLLECT_WORLDS = 50
_closings = count(1)


class World:
    """Everything that one run needs. Use it as a context manager, or `close` it: no task is left behind."""

    def __init__(self, seed: int, *, settings: NetworkSettings | None = None) -> None:
        self.seed = seed
        self.chance = Chance.seeded(seed)
        self.loop = SimLoop(self.chance.fork("loop"))
        self._start_s = self.loop.time()
        self.history = History(self.elapsed_s)
        self.network = SimNetwork(
            self.loop,
            self.chance.fork("network"),
            self.history,
            settings or NetworkSettings.drawn(self.chance.fork("network settings")),
        )
        self.hosts: dict[str, Host] = {}
        self.crashed_lives: set[str] = set()
        self.is_over = False
        # The first thing that went wrong; later ones are its consequences.
        self.broken: Broken | None = None
        self.loop.set_exception_handler(self._unhandled)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End all tasks outside the history. Nothing can run in this world afterwards."""
        self.is_over = True
        self.loop.close()
        # A world is full of cycles, and by the end of its run Python counts it among the old objects, which
        # it rarely collects. Collecting those takes time for all objects of the process: so not after each.
        if next(_closings) % COLLECT_WORLDS == 0:
            gc.collect()

    def elapsed_s(self) -> float:
        """Virtual seconds since the world began."""
        return self.loop.time() - self._start_s

    def digest(self) -> str:
        """The fingerprint of the whole run: each step of the loop and each recorded fact."""
        return f"{self.loop.digest()}{self.history.digest()}"

    # Hosts and their failures. Faults overlap, so each is a no-op when the host is not in the state for it.

    def host(self, name: str, program: Program, *, wall_skew_s: float = 0.0) -> Host:
        """Add a machine; it is not started yet. The name is also its address: `tcp://name:port`."""
        if name in self.hosts:
            raise UsageError(f"there is a host {name} already")
        clock = SimClock(self.loop, wall_skew_s=wall_skew_s)
        host = Host(self, name, program, self.network.view(name), clock)
        self.hosts[name] = host
        return host

    def pause(self, name: str) -> bool:
        """Stop the host's program, as SIGSTOP does; its kernel still accepts and buffers."""
        host = self.hosts[name]
        if not host.is_up or host.is_paused:
            return False
        host.record("is paused")
        self.loop.pause(host.life)
        return True

    def resume(self, name: str) -> None:
        host = self.hosts[name]
        if host.is_up and host.is_paused:
            host.record("resumes")
            self.loop.resume(host.life)

    def crash(self, name: str, *, silent: bool = False) -> bool:
        """End the host's life at this instant. Silent is a power loss: the peers are not even told."""
        host = self.hosts[name]
        if not host.is_up:
            return False
        host.record("loses power" if silent else "crashes")
        self.crashed_lives.add(str(host.life))
        self.loop.kill(host.life)
        self.network.forget_life(host.life, silent=silent)
        return True

    def stop(self, name: str) -> bool:
        """Ask the host's program to end in good order, as SIGTERM does."""
        host = self.hosts[name]
        if not host.is_up or host.is_paused:
            return False
        host.record("is asked to stop")
        host.ask_to_stop()
        return True

    def restart(self, name: str) -> None:
        """Start the host's program again, in a new life: now, or when it has stopped as it was asked to."""
        self.network.power_on(name)
        self.hosts[name].start_again()

    def calm(self) -> None:
        """Undo every fault: heal, speed up, resume, restart."""
        self.history.record("", "calm")
        self.network.heal_all()
        for name in self.hosts:
            self.resume(name)
            self.restart(name)

    # Failure.

    def fail(self, invariant: str, detail: str) -> NoReturn:
        """Report a broken invariant and raise `Broken`. The first one ends the run, whoever catches it."""
        broken = Broken(invariant, detail)
        if self.broken is None:
            self.broken = broken
            self.history.record("", f"BROKEN: {invariant}")
            self.loop.stop()
        raise broken

    def complain(self, message: str, error: BaseException | None) -> None:
        """An error that nobody caught is a broken invariant too."""
        if isinstance(error, Broken):
            return
        shown = "".join(traceback.format_exception(error)) if error is not None else ""
        try:
            self.fail("no error goes unhandled", f"{message}\n{shown}".rstrip())
        except Broken:
            # This is a callback, and has nobody to raise to; the run ends all the same.
            return

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this world, outside all hosts, and return its result.

        Raises `Broken` as soon as an invariant is, `Deadlocked` or `Stuck` when the coroutine cannot end.
        """
        task = self.loop.spawn(main, name="world", life=None)
        task.add_done_callback(lambda _: self.loop.stop(), context=Context())
        self.loop.run_forever()
        if self.broken is not None:
            raise self.broken
        return task.result()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        life = current_life()
        if life is not None and life.state is LifeState.DEAD:
            return
        error = context.get("exception")
        self.complain(str(context.get("message", "unhandled error")), error)
