"""A group member's process under supervision: started, restarted and stopped, with the end of its log.

`Supervision` only decides, and needs no process for that: `MemberProcess` reports what happened and when,
does what it is told to, and comes back at `deadline`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from hansa.clock import Clock
from hansa.errors import invariant
from hansa.limits import (
    RAFT_CRASHES_MAX,
    RAFT_LOG_BYTES_MAX,
    RAFT_LOG_TAIL_BYTES,
    RAFT_STABLE_S,
    RAFT_STOP_S_MAX,
)
from hansa.runtime.backoff import Backoff
from hansa.runtime.tasks import TaskScope, in_thread
from hansa.runtime.tied_process import tied

# What every etcd says, and then ends, when it is started after the others had removed it.
REMOVED: Final = "permanently removed from the cluster"
_LINES_MAX: Final = 8
# The pause between two looks at the size of the log.
_LOG_LOOK_S: Final = 2.0


class ProcessState(Enum):
    """The state of the process."""

    IDLE = "idle"
    RUNNING = "running"
    RESTING = "resting"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate:
    """Ask the process to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """End the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The process ends again and again: report it, with the end of its log.

    `is_final`: it is not started again.
    """

    crashes_count: int
    is_final: bool


Effect = Launch | Terminate | Kill | Report


class Supervision:
    """Starts a process again whenever it ends, with growing pauses, until it is told to stop.

    A process that was never ready is given up after a few tries: its arguments or its data are wrong, and
    time will not fix them. A process that was ready once is tried for ever, and reported.
    """

    def __init__(
        self, backoff: Backoff, *, stable_s: float = RAFT_STABLE_S, stop_s_max: float = RAFT_STOP_S_MAX
    ) -> None:
        self.state = ProcessState.IDLE
        self.launches_count = 0
        self.crashes_count = 0
        self.deadline: float | None = None
        self._backoff = backoff
        self._stable_s = stable_s
        self._stop_s_max = stop_s_max
        self._was_ready = False
        self._ready_at: float | None = None

    @property
    def restarts_count(self) -> int:
        return max(0, self.launches_count - 1)

    def start(self) -> list[Effect]:
        invariant(self.state is ProcessState.IDLE, f"started a process that is {self.state.value}")
        return self._launch()

    def ready(self, *, now: float) -> None:
        """The process answers."""
        if self.state is ProcessState.RUNNING and self._ready_at is None:
            self._was_ready = True
            self._ready_at = now

    def exited(self, *, now: float) -> list[Effect]:
        """The process has ended, or could not be started."""
        if self.state is not ProcessState.RUNNING:
            self.state, self.deadline = ProcessState.ENDED, None
            return []
        if self._ready_at is not None and now - self._ready_at >= self._stable_s:
            self.crashes_count = 0
            self._backoff.reset()
        self._ready_at = None
        self.crashes_count += 1
        is_final = not self._was_ready and self.crashes_count >= RAFT_CRASHES_MAX
        if is_final:
            self.state, self.deadline = ProcessState.ENDED, None
        else:
            self.state, self.deadline = ProcessState.RESTING, now + self._backoff.next_s()
        if self.crashes_count % RAFT_CRASHES_MAX == 0:
            return [Report(crashes_count=self.crashes_count, is_final=is_final)]
        return []

    def stop(self, *, now: float) -> list[Effect]:
        """End the process in order, and do not start it again."""
        if self.state is ProcessState.RUNNING:
            self.state, self.deadline = ProcessState.STOPPING, now + self._stop_s_max
            return [Terminate()]
        if self.state is not ProcessState.STOPPING:
            self.state, self.deadline = ProcessState.ENDED, None
        return []

    def tick(self, *, now: float) -> list[Effect]:
        """Check whether the deadline has come."""
        if self.deadline is None or now < self.deadline:
            return []
        if self.state is ProcessState.RESTING:
            return self._launch()
        self.deadline = None
        return [Kill()] if self.state is ProcessState.STOPPING else []

    def _launch(self) -> list[Effect]:
        self.state, self.deadline = ProcessState.RUNNING, None
        self.launches_count += 1
        return [Launch()]


class MemberProcess:
    """One process and all its restarts. `run` it in a task; the process never outlives this one.

    The process writes its log to the file itself: a pipe through a busy event loop would stop it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log_path: Path,
        supervision: Supervision,
        clock: Clock,
        on_restart: Callable[[int | None], None],
        on_report: Callable[[Report], None],
    ) -> None:
        self._command = list(command)
        self._env = dict(env)
        self._log_path = log_path
        self._supervision = supervision
        self._clock = clock
        self._on_restart = on_restart
        self._on_report = on_report
        self._process: subprocess.Popen[bytes] | None = None
        # Why the last start did not even create a process.
        self._start_problem = ""
        self._changed = asyncio.Event()
        self._is_stop_asked = False
        self._has_exited = False
        self.ended = asyncio.Event()
        self.exit_status: int | None = None

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process is not None else None

    @property
    def restarts_count(self) -> int:
        return self._supervision.restarts_count

    @property
    def state(self) -> ProcessState:
        return self._supervision.state

    def ready(self) -> None:
        """The process answers: its next crash counts as that of a process that works."""
        self._supervision.ready(now=self._clock.monotonic())

    async def run(self) -> None:
        """Run until it was stopped or given up. Cancelling it kills the process and waits for its end."""
        scope = TaskScope(f"process {self._command[0]}", self._failed)
        try:
            self._carry_out(self._supervision.start(), scope)
            while self._supervision.state is not ProcessState.ENDED:
                await self._rest()
                self._carry_out(self._events(), scope)
                self._bound_log()
        finally:
            if self._process is not None and self._process.returncode is None:
                self._signal(signal.SIGKILL)
            # Wait until the process has ended: a cancellation meanwhile takes effect after that.
            await scope.close(grace_s=RAFT_STOP_S_MAX)
            self.ended.set()

    async def stop(self) -> None:
        """End the process in order, or by force when it takes too long; returns when it has ended."""
        self._is_stop_asked = True
        self._changed.set()
        await self.ended.wait()

    def log_tail(self) -> str:
        """The end of its log, or why it could not be started, for a report."""
        if self._start_problem:
            return self._start_problem
        try:
            with open(self._log_path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - RAFT_LOG_TAIL_BYTES))
                return readable(file.read(RAFT_LOG_TAIL_BYTES).decode(errors="replace"))
        except OSError as error:
            return f"(its log cannot be read: {error})"

    def _failed(self, error: BaseException) -> None:
        # Nobody waits for its end any longer: it must not run beside the next one.
        self._signal(signal.SIGKILL)
        self._has_exited = True
        self._changed.set()

    def _events(self) -> list[Effect]:
        now = self._clock.monotonic()
        self._changed.clear()
        effects: list[Effect] = []
        if self._has_exited:
            self._has_exited = False
            effects += self._supervision.exited(now=now)
        if self._is_stop_asked:
            self._is_stop_asked = False
            effects += self._supervision.stop(now=now)
        return effects + self._supervision.tick(now=now)

    async def _rest(self) -> None:
        deadline, rest_s = self._supervision.deadline, _LOG_LOOK_S
        if deadline is not None:
            rest_s = min(rest_s, max(0.0, deadline - self._clock.monotonic()))
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._changed.wait()

    def _carry_out(self, effects: Sequence[Effect], scope: TaskScope) -> None:
        for effect in effects:
            if isinstance(effect, Launch):
                self._launch(scope)
            elif isinstance(effect, Report):
                self._on_report(effect)
            elif isinstance(effect, Terminate):
                self._signal(signal.SIGTERM)
            elif isinstance(effect, Kill):
                self._signal(signal.SIGKILL)

    def _launch(self, scope: TaskScope) -> None:
        try:
            log = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                # Not the loop's own way: uvloop forks, and gRPC's threads do not survive that either.
                self._process = subprocess.Popen(
                    tied(self._command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._env,
                    # Ctrl-C is for the peer, which ends the process in order.
                    process_group=0,
                )
            finally:
                os.close(log)
        except OSError as error:
            # No memory, no descriptors, a full disk: it counts as an end, and is tried again in the same way.
            self._start_problem = f"{self._command[0]} cannot be started: {error}"
            self._has_exited = True
            self._changed.set()
            return
        self._start_problem = ""
        if self._supervision.restarts_count:
            self._on_restart(self.exit_status)
        scope.spawn(self._await_end(self._process), "end")

    async def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        self.exit_status = await in_thread(process.wait, f"end of process {process.pid}")[0]
        self._has_exited = True
        self._changed.set()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            # Does nothing to a process that has ended and was waited for.
            self._process.send_signal(number)

    def _bound_log(self) -> None:
        """Truncate the log when it is full. Only what is written during the copy is lost."""
        try:
            if self._log_path.stat().st_size > RAFT_LOG_BYTES_MAX:
                shutil.copyfile(self._log_path, self._log_path.with_suffix(".log.before"))
                os.truncate(self._log_path, 0)
        except OSError:
            return  # A full disk, or no file yet: the next look tries again.


def readable(tail: str) -> str:
    """The last few messages of a log, each once: level, message and error, without stacks and times."""
    said: list[str] = []
    for line in tail.splitlines():
        words = _words(line)
        if words and words not in said:
            said.append(words)
    return "; ".join(said[-_LINES_MAX:]) or "(it said nothing)"


def _words(line: str) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        # The first line of a tail is cut; what another program printed is shown as it is.
        return "" if '"level"' in line or '"stacktrace"' in line or '"error"' in line else line.strip()
    if not isinstance(entry, dict):
        return line.strip()
    parts = [str(entry[name]) for name in ("level", "msg", "error") if name in entry]
    return ": ".join(parts)
