"""A command that runs only as long as something is owned: it is stopped before anybody else can own it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from hansa.cli.exit_status import error_facts, status_of
from hansa.cli.guarded_command import Ended, GuardedCommand, Guardian, GuardianGone, StopTimes, TooLate
from hansa.cli.log_lines import LogLines
from hansa.coordination.held import Held
from hansa.coordination.session import Session
from hansa.errors import BadArgument, Fenced, HansaError, SessionLost

# As shells count them.
CANNOT_RUN = 126
NOT_FOUND = 127
SIGNALLED = 128
# What sysexits.h calls unavailable and temporary failure: no shell and few commands end so.
NOT_IN_TIME = 69
"""It belongs to somebody else, and did not become free in time."""
LOST = 75
"""It was lost while the command ran; the command was stopped."""

# Who means this process means its command, and while there is none, the wait for it.
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# For the command alone. A terminal tells its size to this process only: the command has left its session.
_PASSING: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
# In the life of a lease the guardian is told so often of what is new: soon after each renewal.
_LOOKS_COUNT: Final = 12


class Lost(Exception):
    """The command was stopped because of this loss."""

    def __init__(self, loss: Fenced) -> None:
        super().__init__(str(loss))
        self.loss = loss


class Relay:
    """Signals go to the command while it runs; before and after, they end the wait for it, once."""

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
            # It ends anyway: whoever sent this means that no other one shall be run.
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
    """What runs the command, each time that it may."""

    command: tuple[str, ...]
    guardian: Guardian
    relay: Relay
    log: LogLines

    async def run(self, env: Mapping[str, str], *, owned: Held[Any], session: Session) -> int:
        """Run the command in a session of its own, with these variables; its status, as shells count it.

        Raises `Lost` after it was stopped because what it stands on was lost, or its guardian. Cancelling it
        kills the command.
        """
        process, log = GuardedCommand(self.guardian), self.log
        # Also while it starts: it gets what was sent meanwhile as soon as it runs.
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
                outcome = await _until_end_or_loss(process, owned, session, log)
            finally:
                if process.end is None:
                    await process.force()
        if isinstance(outcome, Fenced):
            raise Lost(outcome)
        return outcome.status if outcome.status >= 0 else SIGNALLED - outcome.status

    def tell_programs(self, event: str, **facts: Any) -> None:
        """One event that people need not be told of: their stderr is the command's."""
        if self.log.as_json:
            self.log.tell(event, "", **facts)


def run_owner(
    kind: str, command: tuple[str, ...], own: Callable[[Runner], Coroutine[Any, Any, int]], *, as_json: bool
) -> int:
    """Let `own` get something and run the command on it; its status, or that of a signal that ended the wait.

    Raises `BadArgument` for what cannot be a command. What `own` raises it raises too, or tells as an event.
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

    # The guardian first: what a store opens has threads, and a fork does not go well with them.
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
    """Within the block signals end nothing by themselves. What `nohup` and `&` have ignored stays ignored."""
    loop = asyncio.get_running_loop()
    numbers = [each for each in _ENDING + _PASSING if signal.getsignal(each) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, relay.receive, number)
    # Ctrl-Z would stop what renews the lease, and not the command.
    stopping = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, stopping)
        for number in numbers:
            loop.remove_signal_handler(number)


async def _until_end_or_loss(
    process: GuardedCommand, owned: Held[Any], session: Session, log: LogLines
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
    process: GuardedCommand, ended: asyncio.Task[Ended | None], session: Session, log: LogLines, loss: Fenced
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


def _loss_unseen(owned: Held[Any], end: Ended | None) -> Fenced:
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
