"""A peer's data folder: whose it is, how far it came, and that only one process uses it."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from hansa.errors import BadRecord, RaftRefused
from hansa.store.raft.json_values import decode, encode

_LOCK: Final = "peer.lock"
_NOTE: Final = "peer.json"
_MEMBER: Final = "etcd"
_LOG: Final = "etcd.log"


class FolderState(StrEnum):
    """How far the peer came. A folder that was left is not used again."""

    STARTING = "starting"
    JOINING = "joining"
    MEMBER = "member"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderNote:
    """What the folder remembers of its peer."""

    app: str
    cluster: str
    name: str
    state: FolderState
    peer_address: str
    client_address: str
    join_address: str
    peer_id: int = 0


class DataFolder:
    """Held from `open` to `close` by this process alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.member_path = path / _MEMBER
        self.log_path = path / _LOG
        self.log_before_path = path / f"{_LOG}.before"
        self._lock_fd: int | None = None

    def open(self) -> None:
        """Make the folder if need be, and lock it. Raises `RaftRefused` when another process has it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RaftRefused(f"the data folder {self.path} cannot be used: {error}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise RaftRefused(f"the data folder {self.path} is in use by process {holder}") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._lock_fd = fd

    def close(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    @property
    def has_data(self) -> bool:
        """Whether a member has ever started here."""
        return (self.member_path / "member" / "wal").is_dir()

    def read(self) -> FolderNote | None:
        """What is noted; None in a new folder. Raises `RaftRefused` when it cannot be read."""
        try:
            return decode(FolderNote, (self.path / _NOTE).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, BadRecord) as error:
            raise RaftRefused(f"{self.path / _NOTE} cannot be read: {error}") from error

    def write(self, note: FolderNote) -> None:
        """Note it, whole or not at all, also through a crash. Raises `RaftRefused`."""
        path, new = self.path / _NOTE, self.path / f"{_NOTE}.new"
        try:
            with open(new, "wb") as file:
                file.write(encode(note))
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise RaftRefused(f"{path} cannot be written: {error}") from error

    def wipe(self) -> None:
        """Delete the member's data: of a member that the group has removed. Raises `RaftRefused`.

        Its log is put aside: what it says is not of the next one.
        """
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(self.member_path)
            with suppress(FileNotFoundError):
                os.replace(self.log_path, self.log_before_path)
        except OSError as error:
            raise RaftRefused(f"{self.member_path} cannot be emptied: {error}") from error
