"""Where a peer lives: its data folder, and the addresses that it remembers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hansa.errors import BadArgument, RaftRefused
from hansa.store.raft.group_record import PeerInfo, check_peer
from hansa.store.raft.on_data_folder import DataFolder, FolderNote, FolderState
from hansa.store.raft.over_ports import HeldPorts


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
        """Take the folder; gives the peer with real addresses. Raises `RaftRefused`, `BadArgument`."""
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
            # Also one whose first start came to nothing: alone it would be a group of its own.
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
            # Its votes and what it acknowledged went with the data: an empty one must not speak for it.
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
        """The addresses that were given; of port 0 those of last time, else free ones."""

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
