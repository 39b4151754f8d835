"""A command that runs only while a lock or leadership is owned: it is stopped before another can own it.

Somebody outside may ask to move the lock or leadership to another node. The command runs on until the new
owner is ready; then it is stopped, and the lock or leadership is handed over. If that fails it is run again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hansa.cli.exit_status import error_facts, status_of
from hansa.cli.guarded_command import Ended, GuardedCommand, Guardian, GuardianGone, StopTimes, TooLate
from hansa.cli.log_lines import LogLines
from hansa.coordination.following import patient_backoff
from hansa.coordination.handover import Handover
from hansa.coordination.held import Held
from hansa.coordination.session import Session
from hansa.errors import BadArgument, Fenced, HansaError, SessionLost

# As shells count it.
CANNOT_RUN = 126
NOT_FOUND = 127
SIGNALLED = 128
# The statuses of sysexits.h for "unavailable" and "temporary failure": few other commands end with them.
NOT_IN_TIME = 69
"""It belongs to somebody else, and did not become free in time."""
LOST = 75
"""It was lost while the command ran; the command was stopped."""

# Signals to this process are meant for its command and, while there is none, for the wait for it.
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# For the command alone. A terminal tells its size to this process only: the command has left its session.
_PASSING: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
# The share of a hand-over's time after which a command that was asked to end is killed. The rest is for the
# steps after it.
_MOVE_SHARE: Final = 0.5
# How often in the life of a lease the guardian is told of renewals: soon after each.
_LOOKS_COUNT: Final = 12


class Lost(Exception):
    """The command was stopped because of this loss."""

    def __init__(self, loss: Fenced) -> None:
        super().__init__(str(loss))
        self.loss = loss


class Moved(Exception):
    """The command was stopped, and its lock or leadership was handed over to another node."""

    def __init__(self, record: Handover) -> None:
        super().__init__(f"{record.what} was handed over to {record.target}")
        self.record = record


class Relay:
    """Passes signals to the command while it runs; before and after, they end the wait for it, once."""

    def __init__(self, scope: asyncio.Timeout) -> None:
        self.signalled: int | None = None
        self._process: GuardedCommand | None = None
        self._scope = scope

    def receive(self, number: int) -> None:
        process = self._process
        if process is not None:
            process.signal(number)
        if number in _PASSING or self.signalled is not None:
            return
        if process is None:
            self.signalled = number
            self._scope.reschedule(asyncio.get_running_loop().time())
        elif process.is_stopped:
            # It ends anyway: the sender does not want another command to be run.
            self.signalled = number

    @contextmanager
    def running(self, process: GuardedCommand) -> Iterator[None]:
        """Within the block signals go to this process."""
        self._process = process
        try:
            yield
        finally:
            self._process = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs the command, each time that it may."""

    command: tuple[str, ...]
    guardian: Guardian
    relay: Relay
    log: LogLines

    async def run(self, env: Mapping[str, str], *, owned: Held[Any], session: Session) -> int:
        """Run the command in a session of its own, with these variables; returns its status as a shell's.

        Raises `Lost` after it was stopped because its lock or leadership, or its guardian, was lost; `Moved`
        after it was stopped and the lock or leadership handed over. Cancelling it kills the command.
        """
        while True:
            outcome = await self._run_once(env, owned, session)
            if isinstance(outcome, Fenced):
                raise Lost(outcome)
            if isinstance(outcome, Handover):
                raise Moved(outcome)
            if outcome is not None:
                return outcome
            # It was stopped to be moved, and stays.
            if self.relay.signalled is not None:
                return SIGNALLED + self.relay.signalled

    async def _run_once(
        self, env: Mapping[str, str], owned: Held[Any], session: Session
    ) -> int | Fenced | Handover | None:
        """The command's status, the loss, or the record of a hand-over; None: the hand-over failed."""
        process, log = GuardedCommand(self.guardian), self.log
        # Also while it starts: it gets signals that were sent meanwhile as soon as it runs.
        with self.relay.running(process):
            try:
                await process.start(self.command, env, _stop_times(session))
            except (TooLate, GuardianGone) as error:
                _tell_lost(log, loss := SessionLost(str(error)), "the command was not started")
                raise Lost(loss) from error
            except OSError as error:
                name = self.command[0]
                log.tell("refused", f"{name}: {error.strerror}", command=name, text=str(error))
                return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
            self.tell_programs("started", pid=process.pid)
            try:
                outcome = await until_end_or_loss(process, owned, session, log)
            finally:
                if process.end is None:
                    await process.force()
        if not isinstance(outcome, Ended):
            return outcome
        return outcome.status if outcome.status >= 0 else SIGNALLED - outcome.status

    def tell_programs(self, event: str, **facts: Any) -> None:
        """Tell an event to programs only: people's stderr is the command's."""
        if self.log.as_json:
            self.log.tell(event, "", **facts)


def run_owner(
    kind: str, command: tuple[str, ...], own: Callable[[Runner], Coroutine[Any, Any, int]], *, as_json: bool
) -> int:
    """Let `own` get something and run the command on it; returns its status, or a signal's.

    The signal's is returned if it ended the wait. Raises `BadArgument` for an impossible command. Errors of
    `own` are raised, or told as an event.
    """
    if not command:
        raise BadArgument(f"say what to run: hansa {kind} NAME -- COMMAND")
    if command[0].startswith("-"):
        raise BadArgument(f"there is no option {command[0]}; what to run comes after --")

    async def until_signalled(guardian: Guardian, log: LogLines) -> int:
        try:
            # A deadline that a signal brings near.
            async with asyncio.timeout(None) as scope:
                relay = Relay(scope)
                with _signals_to(relay):
                    return await own(Runner(command=command, guardian=guardian, relay=relay, log=log))
        except TimeoutError:
            if relay.signalled is None:
                raise
            return SIGNALLED + relay.signalled

    # The guardian first: an open store has threads, and a fork does not go well with them.
    with Guardian() as guardian, LogLines(as_json=as_json, descriptor=2) as log:
        try:
            return asyncio.run(until_signalled(guardian, log))
        except HansaError as error:
            if not as_json:
                raise
            log.tell("failed", "", **error_facts(error))
            return status_of(error)


@contextmanager
def _signals_to(relay: Relay) -> Iterator[None]:
    """Within the block signals end nothing by themselves. Those that `nohup` and `&` ignore stay ignored."""
    loop = asyncio.get_running_loop()
    numbers = [each for each in _ENDING + _PASSING if signal.getsignal(each) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, relay.receive, number)
    # Ctrl-Z would stop this process, which renews the lease, and not the command.
    stopping = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, stopping)
        for number in numbers:
            loop.remove_signal_handler(number)


async def until_end_or_loss(
    process: GuardedCommand, owned: Held[Any], session: Session, log: LogLines
) -> Ended | Fenced | Handover | None:
    """Wait for the command's end; returns the loss if it was stopped for one, or must still be killed.

    If it was stopped to be moved, returns the record of the hand-over, or None if that failed.
    """
    loss: Fenced | None = None
    async with asyncio.TaskGroup() as tasks:
        ended = tasks.create_task(process.wait(), name="the command's end")
        lost = tasks.create_task(owned.lost(), name="the loss")
        telling = tasks.create_task(_tell_kept(process, session), name="telling the guardian")
        move = _Move(process, ended, owned, session, log)
        moving = tasks.create_task(move.run(), name="the hand-over")
        await asyncio.wait((ended, lost, moving), return_when=asyncio.FIRST_COMPLETED)
        if move.has_stopped:
            await asyncio.wait((lost, moving), return_when=asyncio.FIRST_COMPLETED)
        telling.cancel()
        if not ended.done():
            loss = lost.result()
            await _stop(process, ended, session, log, loss)
        is_moved = move.has_stopped and not lost.done()
        ended.cancel()
        lost.cancel()
        moving.cancel()
    if loss is not None:
        return loss
    if is_moved:
        return moving.result()
    end = process.end
    if end is not None and not end.was_stopped and not (lost.done() and not lost.cancelled()):
        return end
    loss = _loss_unseen(owned, end)
    _tell_lost(log, loss, "the command is killed" if end is None else "the command has ended")
    return loss


class _EndedByItself(Exception):
    """The command ended a moment before it was to be stopped: its status counts, and nothing is moved."""


class _Move:
    """Hands over the command's lock or leadership, each time that somebody outside asks, until it is done.

    The command runs on until the new owner is ready; then it is stopped (`has_stopped`).
    """

    def __init__(
        self,
        process: GuardedCommand,
        ended: asyncio.Task[Ended | None],
        owned: Held[Any],
        session: Session,
        log: LogLines,
    ) -> None:
        self.has_stopped = False
        self._process = process
        self._ended = ended
        self._owned = owned
        self._session = session
        self._log = log

    async def run(self) -> Handover | None:
        """The record of the hand-over; None when the command was stopped and the hand-over failed."""
        backoff = patient_backoff(self._session.environment.chance)
        while True:
            try:
                asked = await self._owned.wanted()
                self._tell_asked(asked)
                return await self._owned.hand_over(asked, state=partial(self._stop, asked.timeout))
            except Fenced:
                # The waiter for the loss handles it, and cancels this.
                await asyncio.get_running_loop().create_future()
            except _EndedByItself:
                self.has_stopped = False
                return None
            except HansaError as error:
                self._log.tell("kept", f"it stays here: {error}", text=str(error))
                if self.has_stopped:
                    return None
            # The request may still be there, or the store be away.
            await asyncio.sleep(backoff.next_s())

    async def _stop(self, timeout_s: float) -> bytes:
        """The new owner is ready: SIGTERM, and SIGKILL in time. A command has no state to hand on."""
        self.has_stopped = True
        now, times = self._session.store.clock.monotonic(), _stop_times(self._session)
        # Not after the lease: a guardian that was told to stop the command ignores renewals.
        kill_s = min(times.kill_s, now + _MOVE_SHARE * timeout_s)
        force_s = kill_s + times.force_s - times.kill_s
        grace_s = max(kill_s - now, 0.0)
        self._log.tell("stopping", f"the command has {grace_s:.1f} s to end", grace_s=grace_s)
        self._process.stop(StopTimes(term_s=now, kill_s=kill_s, force_s=force_s))
        await asyncio.wait((self._ended,), timeout=force_s - now)
        end = self._process.end
        if end is None:
            await self._process.force()
        elif not end.was_stopped:
            raise _EndedByItself
        return b""

    def _tell_asked(self, asked: Handover) -> None:
        by = f" by {asked.asked_by}" if asked.asked_by else ""
        why = f": {asked.reason}" if asked.reason else ""
        self._log.tell(
            "asked",
            f"asked{by} to move {asked.name} to {asked.target}{why}",
            target=asked.target,
            asked_by=asked.asked_by,
            reason=asked.reason,
        )


async def _stop(
    process: GuardedCommand, ended: asyncio.Task[Ended | None], session: Session, log: LogLines, loss: Fenced
) -> None:
    """Send SIGTERM, and SIGKILL in time. Without any time left, SIGKILL at once."""
    now = session.store.clock.monotonic()
    # Lost while its session lives: another process may own it already.
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


def _loss_unseen(owned: Held[Any], end: Ended | None) -> Fenced:
    """The loss for a guardian that stopped the command, or was gone, before we saw any reason."""
    try:
        owned.check()
    except Fenced as loss:
        return loss
    if end is None:
        return SessionLost("the command's guardian ended")
    return SessionLost("the command's guardian heard of no renewal in time")


def _tell_lost(log: LogLines, loss: Fenced, outcome: str, grace_s: float = 0.0) -> None:
    log.tell("lost", f"{loss}; {outcome}", text=str(loss), grace_s=grace_s)
