"""A command that runs only as long as something is owned: it is stopped before anybody else can own it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from hansa.cli.log_lines import LogLines
from hansa.coordination.over_ownership import Ownership
from hansa.coordination.over_session import Session
from hansa.errors import Fenced

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
# Of the time between losing and another's beginning, this much is for the command to end by itself.
_GRACE_SHARE: Final = 0.7


class Lost(Exception):
    """The command was stopped because of this loss."""

    def __init__(self, loss: Fenced) -> None:
        super().__init__(str(loss))
        self.loss = loss


class Relay:
    """Signals go to the command while it runs; before, they end the wait for it."""

    def __init__(self) -> None:
        self.signalled: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._scope: asyncio.Timeout | None = None

    def receive(self, number: int) -> None:
        if self._process is not None:
            kill_group(self._process, number)
            return
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            return
        self.signalled = number
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    @contextmanager
    def running(self, process: asyncio.subprocess.Process) -> Iterator[None]:
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
    relay: Relay,
    log: LogLines,
) -> int:
    """Run a command in a process group of its own; its exit status, as shells count it.

    Raises `Lost` after it was stopped because what it stands on was lost. Cancelling it kills the command.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **env}, start_new_session=True
        )
    except OSError as error:
        log.tell("refused", f"{command[0]}: {error.strerror}", command=command[0], text=str(error))
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
    tell_programs(log, "started", pid=process.pid)
    with relay.running(process):
        try:
            async with asyncio.TaskGroup() as tasks:
                ended = tasks.create_task(process.wait(), name="the command's end")
                lost = tasks.create_task(owned.lost(), name="the loss")
                await asyncio.wait((ended, lost), return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    await _stop(process, session, log, lost.result())
                lost.cancel()
        finally:
            if process.returncode is None:
                kill_group(process, signal.SIGKILL)
                await process.wait()
        if lost.done() and not lost.cancelled():
            raise Lost(lost.result())
    status = await process.wait()
    return status if status >= 0 else SIGNALLED - status


async def _stop(process: asyncio.subprocess.Process, session: Session, log: LogLines, loss: Fenced) -> None:
    """SIGTERM, and SIGKILL in time. Without any time left, SIGKILL at once."""
    now = session.store.clock.monotonic()
    left_s = 0.0 if session.is_live else _GRACE_SHARE * (session.vacant_until_s - now)
    if left_s > 0.0:
        log.tell("lost", f"{loss}; the command has {left_s:.1f} s to end", text=str(loss), grace_s=left_s)
        kill_group(process, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), left_s)
    else:
        log.tell("lost", f"{loss}; the command is killed", text=str(loss), grace_s=0.0)
    # Also when the first of them has ended: those that it started may not have.
    kill_group(process, signal.SIGKILL)
    await process.wait()


def tell_programs(log: LogLines, event: str, **facts: Any) -> None:
    """One event that people need not be told of: their stderr is the command's."""
    if log.as_json:
        log.tell(event, "", **facts)


def kill_group(process: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to the command and to all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
