"""Guarded storage: one value that only the newest owner writes, in the store or in a file.

Guarded storage remembers the highest fence it was shown. An owner first *takes* the storage (raises the
fence, and only then reads it), and then writes under its fence. So once a new owner has read, no write of an
older one can come behind its back: a fence that is checked on writing alone loses what was written between
read and write.

A `FencedKey` is in the store. A `FencedFile` is for threads and processes of one machine: one call at a time
works on it and holds an advisory lock on the file `<path>.lock` beside it, which the kernel takes from a
process that dies. The file itself is replaced as a whole, after its bytes are on the disk, so a process that
is stopped at any point leaves the old file or the new one. `<path>.lock` is there to stay: deleting it may
let two in at once.
"""

from __future__ import annotations

import fcntl
import os
import time
from binascii import crc32
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE
from typing import Final

from hansa.errors import (
    BadArgument,
    BadRecord,
    Conflict,
    NotHeld,
    StaleFence,
    StoreCorrupt,
    StoreUnavailable,
    TimedOut,
)
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.store import Store
from hansa.store.values import Compare, Get, KeyValue, Outcome, Put, as_key

FENCE_MAX: Final = 2**63 - 2
_MAGIC: Final = b"hansa-fenced-1"


def as_fence(fence: int) -> int:
    """Return the fence if it is a possible one. Raises `BadArgument`."""
    if not 0 < fence <= FENCE_MAX:
        raise BadArgument(f"fence {fence}: give hold.fence or leadership.term")
    return fence


def encode_fence(fence: int) -> bytes:
    """The fence as text of a fixed width, so that the order of bytes is the order of fences."""
    return b"%016x" % fence


def decode_fence(text: bytes) -> int:
    """Raises `BadRecord`."""
    try:
        if len(text) == 16:
            return int(text, 16)
    except ValueError:
        pass
    raise BadRecord(f"a fence cannot be {text[:40]!r}")


def refusal(what: str, *, fence: int, stored: int) -> StaleFence | NotHeld:
    """Why a write or a take under this fence is refused, given the one that is stored (0: none)."""
    if stored > fence:
        return StaleFence(
            f"{what}: fence {fence} is stale, fence {stored} was raised since; nothing was written"
        )
    return NotHeld(f"{what}: take({fence}) before writing under that fence; the fence is at {stored}")


def encode_file(fence: int, value: bytes | None) -> bytes:
    """The bytes of a file: a line with fence, presence of a value, length and checksum; then the value."""
    head = b"%s %s %s %d" % (
        _MAGIC,
        encode_fence(fence),
        b"empty" if value is None else b"value",
        len(value or b""),
    )
    return b"%s %08x\n%s" % (head, crc32(value or b"", crc32(head)), value or b"")


def decode_file(data: bytes, what: str) -> tuple[int, bytes | None]:
    """The fence and the value in a file. Raises `StoreCorrupt`."""
    head, separator, value = data.partition(b"\n")
    words = head.split(b" ")
    if not separator or len(words) != 5 or words[0] != _MAGIC:
        raise StoreCorrupt(f"{what} is no file that hansa fences: it begins with {data[:20]!r}")
    checked = head.rpartition(b" ")[0]
    if words[4] != b"%08x" % crc32(value, crc32(checked)) or words[3] != b"%d" % len(value):
        raise StoreCorrupt(f"{what} is damaged: its checksum does not match; put back a copy of it")
    return decode_fence(words[1]), value if words[2] == b"value" else None


class FencedKey:
    """A key in a store, and beside it, with `/fence` at its end, the highest fence that was shown.

    The fences of one key come from one lock or one election. The value is stored as it is, byte by byte:
    anybody can read it with `store.get`.
    """

    def __init__(self, store: Store, key: bytes | str) -> None:
        self.key = as_key(key)
        self.fence_key = as_key(self.key + b"/fence")
        self._store = store
        # The revision of the value as the last call saw it, 0 for none; None before the first `take`.
        self._revision: int | None = None
        self._taken_fence = 0

    def __repr__(self) -> str:
        return f"<FencedKey {self.key!r}>"

    async def take(self, fence: int, *, timeout: float | None = STORE_TIMEOUT_S) -> bytes | None:
        """Raise the fence, then read the value, in one transaction; None when there is none yet.

        Taking again with the same fence is fine. Raises `StaleFence`; also `TimedOut` and `StoreUnavailable`:
        then take again.
        """
        as_fence(fence)
        raised = Put(self.fence_key, encode_fence(fence))
        while True:
            # The stored fence is lower than the next one, so not higher than this one.
            outcome = await self._store.commit(
                [Compare.value(self.fence_key, "<", encode_fence(fence + 1))],
                then=[raised, Get(self.key)],
                otherwise=[Get(self.fence_key)],
                timeout=timeout,
            )
            found = _read(outcome, self.key if outcome.is_success else self.fence_key)
            if outcome.is_success:
                return self._seen(fence, found)
            if found is not None:
                raise self._refusal(fence, found)
            # The first fence of this key: an absent key matches no comparison of values. If another owner is
            # faster, look again.
            outcome = await self._store.commit(
                [Compare.absent(self.fence_key)], then=[raised, Get(self.key)], timeout=timeout
            )
            if outcome.is_success:
                return self._seen(fence, _read(outcome, self.key))

    async def write(self, fence: int, value: bytes, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Set the value, if it and the fence are as this object's last call left them; returns the revision.

        Raises `StaleFence` when a newer owner has raised the fence, `NotHeld` when this one was never taken
        here. After `TimedOut` the value may have been written, now or later: `take` with the same fence
        again, and write again. Then the write that was given up is refused if it arrives after the new one.
        `Conflict` says that it arrived in between, or that the store went back in time after the `take`: take
        again.
        """
        as_fence(fence)
        if self._revision is None:
            raise self._refusal(fence, await self._store.get(self.fence_key, timeout=timeout))
        outcome = await self._store.commit(
            [
                Compare.value(self.fence_key, "=", encode_fence(fence)),
                Compare.revision(self.key, "=", self._revision),
            ],
            then=[Put(self.key, value)],
            otherwise=[Get(self.fence_key), Get(self.key)],
            timeout=timeout,
        )
        if outcome.is_success:
            self._revision = outcome.revision
            return outcome.revision
        found = _read(outcome, self.fence_key)
        stored = 0 if found is None else decode_fence(found.value)
        if stored < fence == self._taken_fence:
            raise Conflict(f"{self!r} forgot fence {fence}: the store went back in time; take it again")
        if stored != fence:
            raise self._refusal(fence, found)
        raise Conflict(f"{self!r} was written to under the same fence {fence}; take it again")

    def _seen(self, fence: int, found: KeyValue | None) -> bytes | None:
        self._taken_fence = fence
        self._revision = 0 if found is None else found.mod_revision
        return None if found is None else found.value

    def _refusal(self, fence: int, found: KeyValue | None) -> StaleFence | NotHeld:
        stored = 0 if found is None else decode_fence(found.value)
        return refusal(repr(self), fence=fence, stored=stored)


def _read(outcome: Outcome, key: bytes) -> KeyValue | None:
    return next((item for item in outcome.items if item.key == key), None)


_POLL_S_MIN: Final = 0.000_5
_POLL_S_MAX: Final = 0.02


class FencedFile:
    """A file on a local disk with a fence in its first line. All its users must go through this class.

    Calls block. Each raises `StoreCorrupt` for a file that is damaged, `TimedOut` when another process stays
    inside for too long (it may be stopped) and `StoreUnavailable` when the disk refuses: then `take` again
    tells what was written.
    """

    def __init__(self, path: str | Path, *, timeout: float = STORE_TIMEOUT_S) -> None:
        self.path = Path(path)
        self._lock_path = self.path.with_name(self.path.name + ".lock")
        self._new_path = self.path.with_name(self.path.name + ".new")
        self._timeout_s = timeout

    def __repr__(self) -> str:
        return f"<FencedFile {str(self.path)!r}>"

    def take(self, fence: int) -> bytes | None:
        """Raise the fence on the disk, then return the value; None when there is none yet.

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
        """The value as it is now; a caller that wants to write uses `take`."""
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
                # Users who could not read the old file must not be able to read the new one.
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
        deadline_s = time.monotonic() + self._timeout_s
        pause_s = _POLL_S_MIN
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise TimedOut(
                        f"{self.path}: another process has been inside for {self._timeout_s} s"
                    ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_S_MAX)

    def _unavailable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"{self.path}: {error.strerror or error}")
