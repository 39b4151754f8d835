"""A simulated machine: a name, a program, and the ways in which it can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from hansa.chance import Chance
from hansa.errors import UsageError
from hansa.testing.life import Life, LifeState
from hansa.testing.loop import SimLoop
from hansa.transport.environment import Environment
from hansa.transport.network import Network

if TYPE_CHECKING:
    from hansa.testing.world import World


Program = Callable[["Host"], Coroutine[Any, Any, None]]

WALL_EPOCH_S = 1_700_000_000.0


class SimClock:
    """The host's clock: virtual, and as wrong about the date as `wall_skew_s` says."""

    def __init__(self, loop: SimLoop, *, wall_skew_s: float = 0.0) -> None:
        self._loop = loop
        self.wall_skew_s = wall_skew_s

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> float:
        return WALL_EPOCH_S + self._loop.time() + self.wall_skew_s


class Disk(Protocol):
    """The data that outlives a program, and can be put back in time."""

    def save(self) -> None: ...

    def go_back(self) -> None: ...


class Host:
    """Runs its program as one life after another. Made by `World.host`, which also drives it."""

    def __init__(self, world: World, name: str, program: Program, network: Network, clock: SimClock) -> None:
        self.world = world
        self.name = name
        self.network = network
        self.clock = clock
        self.disk: Disk | None = None
        self._program = program
        self._life: Life | None = None
        self._environment: Environment | None = None
        self._main: asyncio.Task[None] | None = None
        self._lives_count = 0
        self._is_stopping = False
        self._starts_again = False

    def __repr__(self) -> str:
        return f"<Host {self.name} {self._life or 'not started'}>"

    @property
    def life(self) -> Life:
        """The current or last life. Raises `UsageError` before the first start."""
        if self._life is None:
            raise UsageError(f"host {self.name} was never started")
        return self._life

    @property
    def is_up(self) -> bool:
        """Whether the program runs or is paused, rather than crashed, ended or never started."""
        return self._main is not None and not self._main.done() and self.life.state is not LifeState.DEAD

    @property
    def is_paused(self) -> bool:
        return self._life is not None and self._life.state is LifeState.PAUSED

    @property
    def chance(self) -> Chance:
        """A stream of draws of this life only: another life, another host never shifts it."""
        return self.world.chance.fork(f"host {self.life}")

    @property
    def environment(self) -> Environment:
        """The environment of this life's components: the host's network and clock, and draws of this life."""
        if self._environment is None:
            self._environment = Environment(network=self.network, clock=self.clock, chance=self.chance)
        return self._environment

    def record(self, what: str) -> None:
        """Write a fact of this host into the history."""
        self.world.history.record(self.name, what)

    def save(self) -> None:
        """Copy the disk, for a later `go_back`. A host without a disk has nothing to lose."""
        if self.disk is not None:
            self.record("is copied")
            self.disk.save()

    def go_back(self) -> None:
        """Put the disk back to the last `save`. Not while the host is up."""
        if self.is_up:
            raise UsageError(f"host {self.name} is up: crash it first")
        if self.disk is not None:
            self.record("is put back in time")
            self.disk.go_back()

    def start(self) -> None:
        """Begin a new life of the program, which is given this host and nothing of the life before."""
        if self.is_up:
            raise UsageError(f"host {self.name} is up already")
        self._lives_count += 1
        life = Life(self.name, self._lives_count)
        self._life = life
        self._environment = None
        self._is_stopping = self._starts_again = False
        self.record(f"starts life {life.number}")
        self._main = self.world.loop.spawn(self._program(self), name=f"{life} main", life=life)
        self._main.add_done_callback(lambda task: self._ended(life, task), context=Context())

    def start_again(self) -> None:
        """Begin a new life now, or when the current one has ended, if it was asked to stop."""
        if not self.is_up:
            self.start()
        elif self._is_stopping:
            self._starts_again = True

    def ask_to_stop(self) -> None:
        """Cancel the program, as SIGTERM does; it ends in its own time."""
        if self._main is not None and self.is_up:
            self._is_stopping = True
            self._main.cancel()

    async def stop(self) -> None:
        """End the program in good order: cancel it and wait until it is done."""
        self.ask_to_stop()
        if self._main is not None and self.is_up:
            await asyncio.wait([self._main])

    def _ended(self, life: Life, task: asyncio.Task[None]) -> None:
        if life.state is LifeState.DEAD or self.world.is_over:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.complain(f"the program of {life} failed", error)
        else:
            self.record(f"ends life {life.number}")
            self._check_leftovers(life)
        self.world.loop.kill(life)
        self.world.network.forget_life(life, silent=False)
        if self._starts_again:
            self.start()

    def _check_leftovers(self, life: Life) -> None:
        loop = self.world.loop
        left = [f"task {task.get_name()}" for task in loop.tasks_of(life)]
        left += [f"timer {timer.what}" for timer in loop.timers_of(life)]
        left += [f"connection {end}" for end in self.world.network.open_ends(life)]
        left += [f"listener {end}" for end in self.world.network.open_doors(life)]
        if left:
            self.world.complain(f"{life} ended and left behind: {', '.join(left)}", None)
