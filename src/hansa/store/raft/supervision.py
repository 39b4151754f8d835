"""When a group member's process is started, stopped and started again: only the decision. Pure.

The driver reports what happened and when, does what it is asked to, and comes back at `deadline`.
"""

from dataclasses import dataclass
from enum import Enum

from hansa.errors import invariant
from hansa.limits import RAFT_CRASHES_MAX, RAFT_STABLE_S, RAFT_STOP_S_MAX
from hansa.runtime.backoff import Backoff


class ProcessState(Enum):
    """Where the process is in its life."""

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
    """It ends again and again: tell it, with the end of its log. `is_final`: it is not started any more."""

    crashes_count: int
    is_final: bool


Effect = Launch | Terminate | Kill | Report


class Supervision:
    """Starts a process again whenever it ends, with growing pauses, until it is told to stop.

    A process that never was ready is given up after a few tries: its arguments or its data are wrong, and
    time will not mend them. One that was ready once is tried for ever, and reported.
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
        """End it in order, and do not start it again."""
        if self.state is ProcessState.RUNNING:
            self.state, self.deadline = ProcessState.STOPPING, now + self._stop_s_max
            return [Terminate()]
        if self.state is not ProcessState.STOPPING:
            self.state, self.deadline = ProcessState.ENDED, None
        return []

    def tick(self, *, now: float) -> list[Effect]:
        """The deadline may have come."""
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
