"""A command with a guardian: a process that stops it also when this one was killed or stands still.

See `command_guardian`, which is that process. If the guardian itself is killed the command is killed too, and
counts as lost: nothing runs unguarded.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from hansa.cli import command_guardian
from hansa.cli.command_guardian import Frames, frame, now_s

# Shares of the time between the loss and another's ownership: when the guardian sends SIGTERM if nobody told
# it to (an owner that can does so first, and knows why), when it sends SIGKILL, and when the owner sends
# SIGKILL itself because the guardian did not.
_TERM_SHARE: Final = 0.2
_KILL_SHARE: Final = 0.7
_FORCE_SHARE: Final = 0.85
# How long the guardian may take to kill a command that has no time left.
_FORCE_S: Final = 0.1
# How long a guardian without a command may take to end.
_END_S_MAX: Final = 1.0
# How long killed processes may take to vanish. They do nothing any longer, but another process reaps them.
_VANISH_S_MAX: Final = 0.2
_LOOK_S: Final = 0.01
_ANSWER_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTimes:
    """When a command is stopped: SIGTERM by the guardian, SIGKILL by the guardian, SIGKILL by the owner."""

    term_s: float
    kill_s: float
    force_s: float

    @classmethod
    def between(cls, lost_s: float, vacant_until_s: float) -> StopTimes:
        """The times for something that is lost at `lost_s` and may be another's at `vacant_until_s`."""
        lost_s = min(lost_s, vacant_until_s)
        span_s = vacant_until_s - lost_s
        return cls(
            term_s=lost_s + _TERM_SHARE * span_s,
            kill_s=lost_s + _KILL_SHARE * span_s,
            force_s=lost_s + _FORCE_SHARE * span_s,
        )

    @classmethod
    def at_once(cls, now: float) -> StopTimes:
        return cls(term_s=now, kill_s=now, force_s=now + _FORCE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a command: its status (negative for a signal), and whether the guardian stopped it."""

    status: int
    was_stopped: bool


class GuardianGone(Exception):
    """The guardian was killed, or does not answer."""


class TooLate(Exception):
    """The command was not started: its lock or leadership is lost."""


class Guardian:
    """The process beside this one that starts commands, one at a time. Leaving the block ends it.

    A guardian that was killed is replaced when the next command is started.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._frames = Frames()
        self._answers: list[list[bytes]] = []

    @property
    def pid(self) -> int:
        """The guardian's process id; 0 when there is none."""
        return self._process.pid if self._process is not None else 0

    def __enter__(self) -> Self:
        self._spawn()
        return self

    def __exit__(self, *_: object) -> None:
        self._dismiss()

    async def ask(self, *fields: bytes | float) -> None:
        """Tell it something of any length, as the first message. Raises `GuardianGone`."""
        if self._process is None or self._process.poll() is not None:
            self._dismiss()
            self._spawn()
        assert self._socket is not None
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, frame(*fields))
        except OSError as error:
            raise GuardianGone("the command's guardian ended") from error

    def tell(self, *fields: bytes | float) -> None:
        """Tell it something short, at once."""
        if self._socket is None:
            return
        told = frame(*fields)
        try:
            is_told = self._socket.send(told) == len(told)
        except OSError:
            is_told = False
        if not is_told:
            # It is dead, or has not read for so long that it guards nothing. `answer` reports its end.
            self.kill()

    async def answer(self) -> list[bytes]:
        """The next answer. Raises `GuardianGone`."""
        while not self._answers:
            if self._socket is None:
                raise GuardianGone("the command's guardian was ended")
            try:
                chunk = await asyncio.get_running_loop().sock_recv(self._socket, _ANSWER_BYTES)
            except OSError as error:
                raise GuardianGone("the command's guardian ended") from error
            if not chunk:
                raise GuardianGone("the command's guardian ended")
            self._answers += self._frames.feed(chunk)
        return self._answers.pop(0)

    def kill(self) -> None:
        """End it at once, also when it stands still. Its command is left to the caller."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            # A session of its own: signals that a terminal sends to its processes are for us alone.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", command_guardian.__file__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._socket, self._frames, self._answers = ours, Frames(), []

    def _dismiss(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(_END_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class GuardedCommand:
    """One command of a guardian: `start` it, then `wait` for its end."""

    def __init__(self, guardian: Guardian) -> None:
        self.pid = 0
        self.end: Ended | None = None
        # Whether it was told to end because of a loss.
        self.is_stopped = False
        self._guardian = guardian
        self._early: set[int] = set()

    async def start(self, command: Sequence[str], env: Mapping[str, str], times: StopTimes) -> None:
        """Run it in a session and a process group of its own, with these variables besides ours.

        Raises `OSError` when it cannot run, `TooLate`, and `GuardianGone`. Cancelling it kills the command.
        """
        try:
            # Longer than the guardian would still start it: a command that it has started must be known.
            async with asyncio.timeout(times.force_s - now_s()):
                await self._guardian.ask(
                    b"start",
                    times.term_s,
                    times.kill_s,
                    len(env),
                    *(os.fsencode(f"{name}={value}") for name, value in env.items()),
                    *map(os.fsencode, command),
                )
                word, *fields = await self._guardian.answer()
        except TimeoutError as error:
            self._guardian.kill()
            raise TooLate("the command's guardian did not start it in time") from error
        except asyncio.CancelledError:
            self._guardian.tell(b"stop", 0.0)
            raise
        if word == b"late":
            raise TooLate("it was too late to start the command")
        if word == b"refused":
            number = int(fields[0])
            raise OSError(number, os.strerror(number), command[0])
        self.pid = int(fields[0])
        for number in sorted(self._early):
            self.signal(number)

    def signal(self, number: int) -> None:
        """Send a signal to the command and all that it started; before it runs, as soon as it does."""
        if self.pid:
            self._guardian.tell(b"signal", int(number))
        else:
            self._early.add(number)

    def keep(self, times: StopTimes) -> None:
        """The command may run on until then."""
        self._guardian.tell(b"keep", times.term_s, times.kill_s)

    def stop(self, times: StopTimes) -> None:
        """Send SIGTERM now, unless there is no time left, and SIGKILL then."""
        self.is_stopped = True
        self._guardian.tell(b"stop", times.kill_s)

    async def wait(self) -> Ended | None:
        """The command's end; None when the guardian has ended. Cancelling it changes nothing."""
        if self.end is None:
            try:
                _, status, was_stopped = await self._guardian.answer()
            except GuardianGone:
                return None
            self.end = Ended(status=int(status), was_stopped=was_stopped == b"1")
        return self.end

    async def force(self) -> None:
        """Kill the command without its guardian, then the guardian: it is dead already, or does not work."""
        # First the command: a guardian that dies while it runs leaves it to nobody.
        is_there = self.pid != 0 and self._signal_directly(signal.SIGKILL)
        self._guardian.kill()
        until_s = now_s() + _VANISH_S_MAX
        while is_there and now_s() < until_s:
            await asyncio.sleep(_LOOK_S)
            is_there = self._signal_directly(0)

    def _signal_directly(self, number: int) -> bool:
        """Returns whether there was a process to signal."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True
