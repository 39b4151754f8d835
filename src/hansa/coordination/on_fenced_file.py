"""Guarded storage in a file: one value that only the newest owner writes. For threads and processes.

One call at a time works on a file: it holds an advisory lock on the file `<path>.lock` beside it, which the
kernel takes from a process that dies. The file itself is replaced as a whole, after its bytes are on the
disk. So a process that is stopped at any point leaves the old file or the new one. `<path>.lock` is there to
stay: who deletes it may let two in at once.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE
from typing import Final

from hansa.clock import Clock, SystemClock
from hansa.coordination.fenced_value import as_fence, decode_file, encode_file, refusal
from hansa.errors import StoreUnavailable, TimedOut
from hansa.limits import STORE_TIMEOUT_S

_POLL_S_MIN: Final = 0.000_5
_POLL_S_MAX: Final = 0.02


class FencedFile:
    """A file on a local disk with a fence in its first line. All who use it do it through this class.

    Calls block. Each raises `StoreCorrupt` for a file that is damaged, `TimedOut` when another process stays
    inside for too long (it may be stopped) and `StoreUnavailable` when the disk refuses: then `take` again
    tells what was written.
    """

    def __init__(
        self, path: str | Path, *, timeout: float = STORE_TIMEOUT_S, clock: Clock | None = None
    ) -> None:
        self.path = Path(path)
        self._lock_path = self.path.with_name(self.path.name + ".lock")
        self._new_path = self.path.with_name(self.path.name + ".new")
        self._timeout_s = timeout
        self._clock = clock if clock is not None else SystemClock()

    def __repr__(self) -> str:
        return f"<FencedFile {str(self.path)!r}>"

    def take(self, fence: int) -> bytes | None:
        """Raise the fence, on the disk, then give the value; None when there is none yet.

        Taking again with the same fence is fine. Raises `StaleFence`.
        """
        as_fence(fence)
        with self._locked():
            stored, value = self._read()
            if stored > fence:
                raise refusal(repr(self), fence=fence, stored=stored)
            if stored < fence:
                self._replace(encode_file(fence, value))
            return value

    def write(self, fence: int, value: bytes) -> None:
        """Set the value; it is on the disk when this returns.

        Raises `StaleFence` when a newer owner has raised the fence, `NotHeld` when this one was never taken.
        """
        as_fence(fence)
        with self._locked():
            stored, _ = self._read()
            if stored != fence:
                raise refusal(repr(self), fence=fence, stored=stored)
            self._replace(encode_file(fence, value))

    def read(self) -> bytes | None:
        """The value as it is now; whoever wants to write uses `take`."""
        try:
            return self._read()[1]
        except OSError as error:
            raise self._unavailable(error) from error

    def _read(self) -> tuple[int, bytes | None]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return 0, None
        return decode_file(data, str(self.path))

    def _replace(self, data: bytes) -> None:
        with open(self._new_path, "wb") as file:
            if self.path.exists():
                # Whom it was hidden from must not read the new one.
                os.fchmod(file.fileno(), S_IMODE(self.path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._new_path, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._unavailable(error) from error
        try:
            self._lock(descriptor)
            yield
        except OSError as error:
            raise self._unavailable(error) from error
        finally:
            # Also unlocks: the kernel ties the lock to this opening of the file, not to the process.
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        deadline_s = self._clock.monotonic() + self._timeout_s
        pause_s = _POLL_S_MIN
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if self._clock.monotonic() >= deadline_s:
                    raise TimedOut(
                        f"{self.path}: another process has been inside for {self._timeout_s} s"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_S_MAX)

    def _unavailable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"{self.path}: {error.strerror or error}")
