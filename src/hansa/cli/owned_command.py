"""A command that runs only as long as something is owned: it is stopped before anybody else can own it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from hansa.cli.guarded_command import Ended, GuardedCommand, Guardian, GuardianGone, StopTimes, TooLate
from hansa.cli.log_lines import LogLines
from hansa.coordination.over_ownership import Ownership
from hansa.coordination.over_session import Session
from hansa.errors import Fenced, SessionLost

# As shells count them.
CANNOT_RUN = 126
NOT_FOUND = 127
SIGNALLED = 128
# What sysexits.h calls unavailable and temporary failure: no shell and few commands end so.
NOT_IN_TIME = 69
"""It belongs to somebody else, and did not become free in time."""
LOST = 75
"""It was lost while the command ran; the command was stopped."""

_RELAYED: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
)
# In the life of a lease the guardian is told so often of what is new: soon after each renewal.
_LOOKS_COUNT: Final = 12


class Lost(Exception):
    """The command was stopped because of this loss."""

    def __init__(self, loss: Fenced) -> None:
        super().__init__(str(loss))
        self.loss = loss


class Relay:
    """Signals go to the command while it runs; before, they end the wait for it."""

    def __init__(self) -> None:
        self.signalled: int | None = None
        self._process: GuardedCommand | None = None
        self._scope: asyncio.Timeout | None = None

    def receive(self, number: int) -> None:
        if self._process is not None:
            self._process.signal(number)
            return
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            return
        self.signalled = number
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    @contextmanager
    def running(self, process: GuardedCommand) -> Iterator[None]:
        """Within the block signals go to this process."""
        self._process = process
        try:
            yield
        finally:
            self._process = None

    def cuts(self, scope: asyncio.Timeout) -> None:
        """A signal ends this block, while no command runs."""
        self._scope = scope
        if self.signalled is not None:
            self.receive(self.signalled)


@contextmanager
def relayed_signals() -> Iterator[Relay]:
    """Within the block signals end nothing by themselves: they are told to the `Relay`."""
    loop = asyncio.get_running_loop()
    relay = Relay()
    for number in _RELAYED:
        loop.add_signal_handler(number, relay.receive, number)
    # Ctrl-Z would stop what renews the lease, and not the command.
    stopping = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield relay
    finally:
        signal.signal(signal.SIGTSTP, stopping)
        for number in _RELAYED:
            loop.remove_signal_handler(number)


async def run_owned(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    owned: Ownership[Any],
    session: Session,
    guardian: Guardian,
    relay: Relay,
    log: LogLines,
) -> int:
    """Run a command in a process group of its own; its exit status, as shells count it.

    Raises `Lost` after it was stopped because what it stands on was lost, or its guardian. Cancelling it
    kills the command.
    """
    process = GuardedCommand(guardian)
    # Also while it starts: it gets what was sent meanwhile as soon as it runs.
    with relay.running(process):
        try:
            await process.start(command, env, _stop_times(session))
        except (TooLate, GuardianGone) as error:
            _tell_lost(log, loss := SessionLost(str(error)), "the command was not started")
            raise Lost(loss) from error
        except OSError as error:
            log.tell("refused", f"{command[0]}: {error.strerror}", command=command[0], text=str(error))
            return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        tell_programs(log, "started", pid=process.pid)
        try:
            outcome = await _until_end_or_loss(process, owned, session, log)
        finally:
            if process.end is None:
                await process.force()
    if isinstance(outcome, Fenced):
        raise Lost(outcome)
    return outcome.status if outcome.status >= 0 else SIGNALLED - outcome.status


async def _until_end_or_loss(
    process: GuardedCommand, owned: Ownership[Any], session: Session, log: LogLines
) -> Ended | Fenced:
    """Wait for the command's end; gives the loss if it was stopped for one, or is yet to be killed."""
    loss: Fenced | None = None
    async with asyncio.TaskGroup() as tasks:
        ended = tasks.create_task(process.wait(), name="the command's end")
        lost = tasks.create_task(owned.lost(), name="the loss")
        telling = tasks.create_task(_tell_kept(process, session), name="telling the guardian")
        await asyncio.wait((ended, lost), return_when=asyncio.FIRST_COMPLETED)
        telling.cancel()
        if not ended.done():
            loss = lost.result()
            await _stop(process, ended, session, log, loss)
        ended.cancel()
        lost.cancel()
    if loss is not None:
        return loss
    end = process.end
    if end is not None and not end.was_stopped and not (lost.done() and not lost.cancelled()):
        return end
    loss = _loss_unseen(owned, end)
    _tell_lost(log, loss, "the command is killed" if end is None else "the command has ended")
    return loss


async def _stop(
    process: GuardedCommand,
    ended: asyncio.Task[Ended | None],
    session: Session,
    log: LogLines,
    loss: Fenced,
) -> None:
    """SIGTERM, and SIGKILL in time. Without any time left, SIGKILL at once."""
    now = session.store.clock.monotonic()
    # Lost while its session lives: somebody else may own it already.
    times = StopTimes.at_once(now) if session.is_live else _stop_times(session)
    grace_s = times.kill_s - now
    if grace_s > 0.0:
        _tell_lost(log, loss, f"the command has {grace_s:.1f} s to end", grace_s)
    else:
        times = StopTimes.at_once(now)
        _tell_lost(log, loss, "the command is killed")
    process.stop(times)
    await asyncio.wait((ended,), timeout=times.force_s - now)


async def _tell_kept(process: GuardedCommand, session: Session) -> None:
    """Tell the guardian of each renewal."""
    told: StopTimes | None = None
    while session.is_live:
        times = _stop_times(session)
        if times != told:
            process.keep(times)
            told = times
        await asyncio.sleep(session.ttl_s / _LOOKS_COUNT)


def _stop_times(session: Session) -> StopTimes:
    return StopTimes.between(session.deadline_s, session.vacant_until_s)


def _loss_unseen(owned: Ownership[Any], end: Ended | None) -> Fenced:
    """Why the guardian stopped the command, or was gone, before we saw any reason to."""
    try:
        owned.check()
    except Fenced as loss:
        return loss
    if end is None:
        return SessionLost("the command's guardian ended")
    return SessionLost("the command's guardian heard of no renewal in time")


def _tell_lost(log: LogLines, loss: Fenced, outcome: str, grace_s: float = 0.0) -> None:
    log.tell("lost", f"{loss}; {outcome}", text=str(loss), grace_s=grace_s)


def tell_programs(log: LogLines, event: str, **facts: Any) -> None:
    """One event that people need not be told of: their stderr is the command's."""
    if log.as_json:
        log.tell(event, "", **facts)
