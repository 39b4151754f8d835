"""Whatever the disk does: what was answered or seen stays, and the store starts with it or refuses."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.errors import StoreUnavailable
from tests.support.kept_store import Kept
from tests.support.lossy_disk import LossyDisk

# Bytes that look like sectors that were never written, among others, and more than a sector of them.
VALUES = [b"", b"v", bytes(1_500), b"\xa7" * 600]

steps = st.lists(
    st.sampled_from(["put", "put", "mark", "rotate", "snapshot", "refuse", "kill", "lose power"]),
    min_size=1,
    max_size=14,
)


class Machine:
    """A store on a disk that fails, and what its clients know.

    `known` is what was answered, or read: it may never be otherwise again. What is in `doubt` was put without
    an answer.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        chance = random.Random(seed)
        self.disk = LossyDisk(folder, lambda: chance.random() < 0.5)
        self.disk.install(monkeypatch)
        self.known: dict[bytes, bytes] = {}
        self.doubt: dict[bytes, bytes] = {}
        self.count = 0
        self.kept = Kept(folder)

    def step(self, what: str) -> None:
        if what == "put":
            self.put()
        elif what == "refuse":
            self.refuse()
            self.start()
        elif what == "kill":
            self.kept.folder.close()
            self.start()
        elif what == "lose power":
            self.kept.folder.close()
            self.disk.lose_power()
            self.start()
        else:
            {"mark": self.kept.mark, "rotate": self.kept.rotate, "snapshot": self.snapshot}[what]()

    def snapshot(self) -> None:
        self.kept.rotate()
        self.kept.snapshot()

    def put(self) -> None:
        self.count += 1
        key, value = f"{self.count}".encode(), VALUES[self.count % len(VALUES)]
        self.doubt[key] = value
        self.kept.put(key.decode(), value)
        self.known |= self.doubt
        self.doubt.clear()

    def refuse(self) -> None:
        """A put whose flush fails: the store stops, and a start is refused until the disk works."""
        self.disk.fails = True
        with pytest.raises(OSError, match="the disk says no"):
            self.put()
        self.kept.folder.mark_failed()
        self.kept.folder.close()
        with pytest.raises(StoreUnavailable, match="the disk refuses it"):
            Kept(self.disk.folder)
        self.disk.fails = False

    def start(self) -> None:
        self.kept = Kept(self.disk.folder)
        for key, value in self.known.items():
            item = self.kept.store.get(key)
            assert item is not None, f"{key!r} was answered or read, and is gone"
            assert item.value == value
        for key, value in self.doubt.items():
            if (item := self.kept.store.get(key)) is not None:
                assert item.value == value
                self.known[key] = value
        self.doubt.clear()


@pytest.mark.spec("CRD-18")
@settings(max_examples=80)
@given(steps, st.integers(0, 1_000))
def test_what_was_answered_or_read_survives_refused_flushes_and_the_loss_of_power(
    tmp_path_factory: pytest.TempPathFactory, played: list[str], seed: int
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        machine = Machine(tmp_path_factory.mktemp("store"), monkeypatch, seed)
        for what in [*played, "lose power"]:
            machine.step(what)
        machine.kept.folder.close()


@pytest.mark.spec("CRD-18")
def test_a_start_after_a_refused_flush_says_so_and_does_not_build_on_what_the_disk_never_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LossyDisk(tmp_path, lambda: False)
    disk.install(monkeypatch)
    kept = Kept(tmp_path)
    kept.put("a")
    disk.fails = True
    with pytest.raises(OSError, match="the disk says no"):
        kept.put("b", b"x" * 1_000)
    kept.folder.mark_failed()
    kept.folder.close()
    disk.fails = False
    kept = Kept(tmp_path)
    # The system still shows what it could not write, and this start tells clients of it.
    assert kept.recovery.is_after_failure
    assert kept.recovery.renewed_bytes > 0
    assert kept.store.get(b"b") is not None
    kept.put("c")
    kept.folder.close()
    disk.lose_power()
    kept = Kept(tmp_path)
    assert not kept.recovery.is_after_failure
    assert [kept.store.get(key) is not None for key in (b"a", b"b", b"c")] == [True] * 3
    kept.folder.close()
