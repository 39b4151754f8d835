"""A data folder belongs to one peer of one group, and to one process."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hansa.errors import BadArgument, RaftRefused
from hansa.store.raft.group_record import PeerInfo
from hansa.store.raft.peer_home import DataFolder, FolderState, PeerHome

ANY = "127.0.0.1:0"
WANTED = PeerInfo(name="n1", peer_address=ANY, client_address=ANY, join_address=ANY)


def home_at(path: Path, *, app: str = "orders", wanted: PeerInfo = WANTED) -> PeerHome:
    return PeerHome(app, "default", wanted, path, "")


def opened(path: Path, *, name: str = "n1", peer_address: str = ANY) -> PeerInfo:
    home = home_at(path, wanted=replace(WANTED, name=name, peer_address=peer_address))
    try:
        return home.open(is_founder=True, is_joiner=False)
    finally:
        home.close()


def note(path: Path, state: FolderState, *, has_data: bool = True) -> PeerInfo:
    """A folder as a peer left it."""
    home = home_at(path)
    try:
        me = home.open(is_founder=True, is_joiner=False)
        home.note(me, state)
        if has_data:
            (home.folder.member_path / "member" / "wal").mkdir(parents=True)
        return me
    finally:
        home.close()


@pytest.mark.spec("CRD-12")
def test_a_folder_in_use_is_refused_with_who_uses_it(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from hansa.store.raft.peer_home import DataFolder\n"
        "folder = DataFolder(pathlib.Path(sys.argv[1])); folder.open(); print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(RaftRefused, match=f"in use by process {other.pid}"):
            DataFolder(tmp_path).open()
        other.kill()
    folder = DataFolder(tmp_path)
    folder.open()
    folder.close()


def test_free_ports_are_remembered(tmp_path: Path) -> None:
    first = note(tmp_path, FolderState.MEMBER)
    assert len({first.peer_address, first.client_address, first.join_address}) == 3
    assert not any(at.endswith(":0") for at in (first.peer_address, first.client_address, first.join_address))
    assert opened(tmp_path) == first


def test_a_folder_of_another_peer_or_group_is_refused(tmp_path: Path) -> None:
    note(tmp_path, FolderState.MEMBER)
    with pytest.raises(RaftRefused, match="belongs to n1 of orders"):
        opened(tmp_path, name="n2")
    with pytest.raises(RaftRefused, match="not to n1 of bills"):
        home_at(tmp_path, app="bills").open(is_founder=True, is_joiner=False)


def test_a_peer_that_left_does_not_come_back_with_its_folder(tmp_path: Path) -> None:
    note(tmp_path, FolderState.LEFT)
    with pytest.raises(RaftRefused, match="has left orders"):
        opened(tmp_path)


def test_a_peer_does_not_move_to_another_address(tmp_path: Path) -> None:
    note(tmp_path, FolderState.MEMBER)
    with pytest.raises(RaftRefused, match="a peer that moves"):
        opened(tmp_path, peer_address="127.0.0.1:1")


def test_a_peer_that_has_not_joined_yet_may_ask_from_another_address(tmp_path: Path) -> None:
    first = note(tmp_path, FolderState.JOINING, has_data=False)
    other = f"127.0.0.2:{first.peer_address.rpartition(':')[2]}"
    assert opened(tmp_path, peer_address=other).peer_address == other
    # And from the same one when none is given: so that its request is known again.
    assert opened(tmp_path) == first


def test_a_new_folder_needs_a_group(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    with pytest.raises(BadArgument, match="`peers`"):
        home.open(is_founder=False, is_joiner=False)
    home.close()


@pytest.mark.parametrize("state", [FolderState.STARTING, FolderState.JOINING])
def test_a_folder_whose_first_start_came_to_nothing_is_no_group_of_its_own(
    tmp_path: Path, state: FolderState
) -> None:
    note(tmp_path, state, has_data=False)
    home = home_at(tmp_path)
    with pytest.raises(BadArgument, match="holds no data: give the `peers`"):
        home.open(is_founder=False, is_joiner=False)
    home.close()


@pytest.mark.parametrize("is_founder", [False, True])
def test_a_peer_that_was_joining_goes_on_only_with_join(tmp_path: Path, is_founder: bool) -> None:
    note(tmp_path, FolderState.JOINING)
    home = home_at(tmp_path)
    with pytest.raises(RaftRefused, match="go on with `join`"):
        home.open(is_founder=is_founder, is_joiner=False)
    home.close()
    home.open(is_founder=False, is_joiner=True)
    home.close()


def test_a_member_that_lost_its_data_does_not_begin_anew_under_its_name(tmp_path: Path) -> None:
    note(tmp_path, FolderState.MEMBER, has_data=False)
    with pytest.raises(RaftRefused, match="the data of n1 is gone"):
        opened(tmp_path)
    home = home_at(tmp_path)
    with pytest.raises(RaftRefused, match="the data of n1 is gone"):
        home.open(is_founder=False, is_joiner=True)
    home.close()


def test_a_note_that_cannot_be_read_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "peer.json").write_bytes(b"{")
    with pytest.raises(RaftRefused, match="cannot be read"):
        opened(tmp_path)


def test_only_what_had_a_vote_counts_as_a_member(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    me = home.open(is_founder=True, is_joiner=False)
    assert not home.has_member
    (home.folder.member_path / "member" / "wal").mkdir(parents=True)
    home.note(me, FolderState.JOINING)
    assert not home.has_member
    home.note(me, FolderState.MEMBER)
    assert home.has_member
    home.folder.log_path.write_text("it was removed")
    home.folder.wipe()
    assert not home.has_member
    assert not home.folder.log_path.exists()
    assert home.folder.log_before_path.read_text() == "it was removed"
    home.folder.wipe()
    home.close()
