"""The home of a peer: its data folder and its addresses, held by one process at a time.

The folder remembers which peer it belongs to and how far that peer came. The ports are held because etcd can
neither choose a free port itself nor tell which one it took.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from hansa.errors import AddressInUse, BadArgument, BadRecord, RaftRefused
from hansa.store.raft.etcd_program import listening
from hansa.store.raft.group_record import PeerInfo, check_peer, decode, encode

_LOCK: Final = "peer.lock"
_NOTE: Final = "peer.json"
_MEMBER: Final = "etcd"
_LOG: Final = "etcd.log"


class PeerHome:
    """The folder and the ports of one peer, held from `open` to `close`."""

    def __init__(self, app: str, cluster: str, wanted: PeerInfo, path: Path, listen_host: str) -> None:
        self.folder = DataFolder(path)
        self._app = app
        self._cluster = cluster
        self._wanted = wanted
        self._listen_host = listen_host
        self._ports = HeldPorts()
        self._noted: FolderNote | None = None

    def open(self, *, is_founder: bool, is_joiner: bool) -> PeerInfo:
        """Take the folder; returns the peer with real addresses. Raises `RaftRefused`, `BadArgument`."""
        self.folder.open()
        self._noted = self._checked(is_founder=is_founder, is_joiner=is_joiner)
        return self._settled(self._noted)

    def close(self) -> None:
        self._ports.close()
        self.folder.close()

    @property
    def has_member(self) -> bool:
        """Whether the folder holds the data of a member that has, or had, a vote."""
        noted = self._noted
        return noted is not None and noted.state is not FolderState.JOINING and self.folder.has_data

    def note(self, me: PeerInfo, state: FolderState) -> None:
        """Remember how far the peer is. Raises `RaftRefused`."""
        self._noted = FolderNote(
            app=self._app,
            cluster=self._cluster,
            name=me.name,
            state=state,
            peer_address=me.peer_address,
            client_address=me.client_address,
            join_address=me.join_address,
            peer_id=me.peer_id,
        )
        self.folder.write(self._noted)

    def _checked(self, *, is_founder: bool, is_joiner: bool) -> FolderNote | None:
        path, name = self.folder.path, self._wanted.name
        noted = self.folder.read()
        if not is_founder and not is_joiner and not self.folder.has_data:
            # Also a joining peer whose first start failed: alone it would be a group of its own.
            raise BadArgument(
                f"{path} holds no data: give the `peers` of a new group, or some to `join` through"
            )
        if noted is None:
            return None
        if (noted.app, noted.cluster, noted.name) != (self._app, self._cluster, name):
            raise RaftRefused(
                f"{path} belongs to {noted.name} of {noted.app} (cluster {noted.cluster}), "
                f"not to {name} of {self._app} (cluster {self._cluster})"
            )
        if noted.state is FolderState.LEFT:
            raise RaftRefused(f"{path}: {name} has left {self._app}; join again with an empty folder")
        if noted.state is FolderState.MEMBER and not self.folder.has_data:
            # Its votes and what it acknowledged went with the data: an empty member must not act in its name.
            raise RaftRefused(
                f"{path}: the data of {name} is gone; remove {name} from {self._app} (`leave`), and join "
                "again with an empty folder"
            )
        if noted.state is FolderState.JOINING and self.folder.has_data and not is_joiner:
            raise RaftRefused(f"{path}: {name} has not finished joining {self._app}: go on with `join`")
        asked = self._wanted.peer_address
        is_known = noted.state is not FolderState.JOINING
        if is_known and not asked.endswith(":0") and asked != noted.peer_address:
            raise RaftRefused(
                f"{name} is known to its group at {noted.peer_address}, not at {asked}: a peer that moves "
                "leaves, and joins again with an empty folder"
            )
        return noted

    def _settled(self, noted: FolderNote | None) -> PeerInfo:
        """The addresses that were given; for port 0 the port of last time, else a free one."""

        def settled(wanted: str, before: str) -> str:
            asked = before if before and wanted.endswith(":0") else wanted
            return self._ports.settle(asked, self._listen_host)

        wanted = self._wanted
        return check_peer(
            replace(
                wanted,
                peer_address=settled(wanted.peer_address, noted.peer_address if noted else ""),
                client_address=settled(wanted.client_address, noted.client_address if noted else ""),
                join_address=settled(wanted.join_address, noted.join_address if noted else ""),
            )
        )


class DataFolder:
    """The data folder. It is held from `open` to `close` by this process alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.member_path = path / _MEMBER
        self.log_path = path / _LOG
        self.log_before_path = path / f"{_LOG}.before"
        self._lock_fd: int | None = None

    def open(self) -> None:
        """Make the folder if needed, and lock it. Raises `RaftRefused` when another process has it."""
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
        """The note; None in a new folder. Raises `RaftRefused` when it cannot be read."""
        try:
            return decode(FolderNote, (self.path / _NOTE).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, BadRecord) as error:
            raise RaftRefused(f"{self.path / _NOTE} cannot be read: {error}") from error

    def write(self, note: FolderNote) -> None:
        """Write the note, whole or not at all, also through a crash. Raises `RaftRefused`."""
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
        """Delete the data of a member that the group has removed. Raises `RaftRefused`.

        Its log is moved aside: it says nothing about the next member.
        """
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(self.member_path)
            with suppress(FileNotFoundError):
                os.replace(self.log_path, self.log_before_path)
        except OSError as error:
            raise RaftRefused(f"{self.member_path} cannot be emptied: {error}") from error


class FolderState(StrEnum):
    """How far the peer came. The folder of a peer that left is not used again."""

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


class HeldPorts:
    """Ports that nobody else gets: each is bound by a socket that never listens.

    The kernel gives such a port to no program that asks for any port, and lets in a program that asks for
    this one, if both set SO_REUSEADDR, which etcd does. So a member that is started again finds its port
    free.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def settle(self, address: str, listen_host: str = "") -> str:
        """Hold the address, with a real port if it had 0. Raises `AddressInUse`."""
        host = address.rpartition(":")[0]
        bound_host, _, port = listening(address, listen_host).rpartition(":")
        bound_host = bound_host.strip("[]")
        family = socket.AF_INET6 if ":" in bound_host else socket.AF_INET
        holding = socket.socket(family, socket.SOCK_STREAM)
        try:
            holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holding.bind((bound_host, int(port)))
        except OSError as error:
            holding.close()
            raise AddressInUse(f"nobody can listen at {bound_host}:{port} for {address}: {error}") from error
        if sys.platform == "linux":
            self._sockets.append(holding)
        else:
            # On other systems a bound socket keeps everybody out, also the program for which it is held.
            port = str(holding.getsockname()[1])
            holding.close()
            return f"{host}:{port}"
        return f"{host}:{holding.getsockname()[1]}"

    def close(self) -> None:
        for holding in self._sockets:
            with suppress(OSError):
                holding.close()
        self._sockets.clear()
