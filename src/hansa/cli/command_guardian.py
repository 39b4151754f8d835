"""The guardian: a process that starts a command for its owner, and stops it when the owner cannot.

The owner (`hansa lock`, `hansa lead`) tells it until when the command may run, and again with every renewal.
When no renewal comes in time (the owner stands still) or the connection ends (the owner was killed) the
command and all that it started gets SIGTERM, and SIGKILL before the lease can end. The guardian starts the
command itself: so no command ever runs unguarded, and there is no doubt which process a number means.

It is run as a file, by an interpreter that loads neither packages nor hansa: it is ready by the time that its
owner is, and small. That is why it imports so little. It ends with the connection, once no command runs.

Both sides write frames: a length in four bytes, then fields with NUL between them. Times are those of
`now_s`, which is one clock for all processes of a machine, and the one of the owner's session.

    owner:     start TERM_S KILL_S ENV_COUNT NAME=VALUE... ARGUMENT...
               keep TERM_S KILL_S
               stop KILL_S
               signal NUMBER
    guardian:  started PID | refused ERRNO | late
               ended STATUS WAS_STOPPED
"""

import os
import select
import signal
import sys
import time

# How long a command that lost its owner has to end, even if the lease is longer.
ORPHAN_S_MAX = 10.0

# People who signal this process mean its command; they signal the owner, which passes signals on.
_SHRUGGED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Ignored by an interpreter or by the owner; a command expects their defaults.
_DEFAULTS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTSTP)
# Goes on while the machine is suspended, as the lease does. Waiting does not, so no wait is longer than this.
_UNRESTING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NAP_S_MAX = 1.0
_CHUNK_BYTES = 65_536
_LENGTH_BYTES = 4


def now_s() -> float:
    """The time as `hansa.clock.SystemClock` tells it."""
    return time.clock_gettime(_UNRESTING)


class Vigil:
    """Decides which signal the command gets, and when. The caller passes the time, and sends the signal."""

    def __init__(self) -> None:
        self.is_watching = False
        self.was_stopped = False
        self._was_killed = False
        self._term_s = 0.0
        self._kill_s = 0.0

    def begin(self, *, term_s: float, kill_s: float, now: float) -> bool:
        """A command is to be started; returns whether it may be, or it is too late."""
        self._term_s, self._kill_s = term_s, kill_s
        self.was_stopped = self._was_killed = False
        self.is_watching = now < term_s
        return self.is_watching

    def keep(self, *, term_s: float, kill_s: float) -> None:
        """The owner still owns. For a command that is being stopped this comes too late."""
        if not self.was_stopped:
            self._term_s, self._kill_s = term_s, kill_s

    def stop(self, *, kill_s: float, now: float) -> int | None:
        """The owner lost it, and wants the command to have ended by `kill_s`."""
        if not self.is_watching:
            return None
        kill_s = min(kill_s, self._kill_s) if self.was_stopped else kill_s
        is_first, self.was_stopped, self._kill_s = not self.was_stopped, True, kill_s
        return self._kill_if_due(now) or (signal.SIGTERM if is_first else None)

    def orphan(self, *, now: float) -> int | None:
        """The owner is gone, and its lease goes on until it ends by itself."""
        return self.stop(kill_s=min(self._kill_s, now + ORPHAN_S_MAX), now=now)

    def tick(self, *, now: float) -> int | None:
        """Check whether the time of `deadline` has come."""
        if self.was_stopped:
            return self._kill_if_due(now)
        return self.stop(kill_s=self._kill_s, now=now) if now >= self._term_s else None

    def end(self) -> int | None:
        """The command has ended. Processes that it started live on, unless it was stopped."""
        self.is_watching = False
        return signal.SIGKILL if self.was_stopped else None

    def deadline(self) -> float | None:
        """When to call `tick`; None when there is nothing to wait for."""
        if not self.is_watching or self._was_killed:
            return None
        return self._kill_s if self.was_stopped else self._term_s

    def _kill_if_due(self, now: float) -> int | None:
        if self._was_killed or not self.is_watching or now < self._kill_s:
            return None
        self._was_killed = True
        return signal.SIGKILL


class Frames:
    """Joins the frames that a stream has cut."""

    def __init__(self) -> None:
        self._chunk = b""

    def feed(self, chunk: bytes) -> list[list[bytes]]:
        """The fields of each frame that is complete now."""
        self._chunk += chunk
        frames = []
        while len(self._chunk) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._chunk[:_LENGTH_BYTES], "big")
            if len(self._chunk) < end:
                break
            frames.append(self._chunk[_LENGTH_BYTES:end].split(b"\0"))
            self._chunk = self._chunk[end:]
        return frames


def frame(*fields: bytes | float) -> bytes:
    """The fields as a frame; numbers are written out in full."""
    text = b"\0".join(each if isinstance(each, bytes) else repr(each).encode() for each in fields)
    return len(text).to_bytes(_LENGTH_BYTES, "big") + text


class _Guardian:
    """Starts, signals and awaits the command as the vigil decides."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._vigil = Vigil()
        self._frames = Frames()
        self._pid = 0

    def run(self) -> None:
        """Serve until the owner has gone and no command runs."""
        woken = _wake_on_signals()
        watched = [self._owner, woken]
        while self._owner in watched or self._vigil.is_watching:
            deadline_s = self._vigil.deadline()
            timeout_s = None if deadline_s is None else min(max(deadline_s - now_s(), 0.0), _NAP_S_MAX)
            readable, _, _ = select.select(watched, (), (), timeout_s)
            if woken in readable:
                os.read(woken, _CHUNK_BYTES)
            self._look_for_end()
            if self._owner in readable and not self._hear():
                watched.remove(self._owner)
                self._send(self._vigil.orphan(now=now_s()))
            self._send(self._vigil.tick(now=now_s()))

    def _hear(self) -> bool:
        """Handle the owner's messages; False when no more can come."""
        try:
            chunk = os.read(self._owner, _CHUNK_BYTES)
        except OSError:
            return False
        for word, *fields in self._frames.feed(chunk):
            now = now_s()
            if word == b"start":
                self._start(float(fields[0]), float(fields[1]), int(fields[2]), fields[3:])
            elif word == b"keep":
                self._vigil.keep(term_s=float(fields[0]), kill_s=float(fields[1]))
            elif word == b"stop":
                self._send(self._vigil.stop(kill_s=float(fields[0]), now=now))
            elif word == b"signal":
                self._send(int(fields[0]))
        return bool(chunk)

    def _start(self, term_s: float, kill_s: float, env_count: int, words: list[bytes]) -> None:
        if not self._vigil.begin(term_s=term_s, kill_s=kill_s, now=now_s()):
            self._tell(b"late")
            return
        env = {**os.environb, **dict(word.split(b"=", 1) for word in words[:env_count])}
        command = words[env_count:]
        try:
            self._pid = os.posix_spawnp(command[0], command, env, setsid=True, setsigdef=_DEFAULTS)
        except OSError as error:
            self._vigil.end()
            self._tell(b"refused", error.errno or 0)
        else:
            self._tell(b"started", self._pid)

    def _look_for_end(self) -> None:
        if not self._vigil.is_watching:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            leftover = self._vigil.end()
            if leftover is not None:
                _signal_group(pid, leftover)
            self._tell(b"ended", os.waitstatus_to_exitcode(status), int(self._vigil.was_stopped))

    def _send(self, number: int | None) -> None:
        if number is not None and self._vigil.is_watching:
            _signal_group(self._pid, number)

    def _tell(self, *fields: bytes | float) -> None:
        # A few bytes a command: the owner's buffer has room for them, also while it stands still.
        try:
            os.write(self._owner, frame(*fields))
        except OSError:
            return  # The owner is gone, which the next read tells.


def _wake_on_signals() -> int:
    """The end of a pipe that is readable after each signal. Signals do nothing else from now on."""
    woken, waking = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _shrug)
    for number in _SHRUGGED:
        # Handlers, and not SIG_IGN, which the command would inherit. What `nohup` ignores stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _shrug)
    return woken


def _shrug(number: int, frame: object) -> None:
    pass


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # They have ended, or changed to a user whom we may not signal.


if __name__ == "__main__":
    connection = int(sys.argv[1])
    # The command must not hold the connection open.
    os.set_inheritable(connection, False)
    _Guardian(connection).run()
    # Nothing must be cleaned up, and nobody should wait for that.
    os._exit(0)
