"""A disk that keeps only what was flushed, and that may refuse a flush and forget what it was to write.

It stands below `hansa.store.served.folder`. The files in the folder are what processes see, as the
system's cache shows them; what the disk has is kept here. A flush that fails leaves the cache as it is and
calls it clean, as Linux does: the next flush has nothing to do, and says that all is well.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hansa.store.served import folder as store_folder

SECTOR_BYTES = 512


class LossyDisk:
    """Under all files that are made while it is there.

    `chooses` says of each sector that was not flushed whether it was written all the same.
    """

    def __init__(self, folder: Path, chooses: Callable[[], bool]) -> None:
        self.folder = folder
        self.fails = False
        self._chooses = chooses
        # By their numbers, which no file has twice; an inode's number may be another file's later.
        self._contents: dict[int, bytearray] = {}
        self._dirty: dict[int, set[int]] = {}
        self._numbers: dict[int, int] = {}
        self._names: dict[str, int] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        create = store_folder.create

        def created(path: Path) -> int:
            file = create(path)
            self._numbers[os.fstat(file).st_ino] = number = len(self._contents)
            self._contents[number], self._dirty[number] = bytearray(), set()
            return file

        monkeypatch.setattr(store_folder, "create", created)
        monkeypatch.setattr(store_folder, "write", self._write)
        monkeypatch.setattr(store_folder, "write_at", self._write_at)
        for name in ("flush", "flush_mark", "flush_new"):
            monkeypatch.setattr(store_folder, name, self._flush)
        monkeypatch.setattr(store_folder, "flush_folder", self._flush_folder)

    def lose_power(self) -> None:
        """From now on the folder holds what the disk has, with some of what was on its way to it."""
        found = {}
        for name, number in self._names.items():
            self._settle(number)
            found[name] = bytes(self._contents[number])
        for path in self.folder.iterdir():
            if path.name != "lock":
                path.unlink()
        self._contents.clear()
        self._dirty.clear()
        self._numbers.clear()
        self._names.clear()
        for name, data in found.items():
            path = self.folder / name
            path.write_bytes(data)
            number = len(self._contents)
            self._numbers[path.stat().st_ino] = self._names[name] = number
            self._contents[number], self._dirty[number] = bytearray(data), set()

    def _write(self, file: int, data: bytes) -> None:
        start = os.fstat(file).st_size
        os.write(file, data)
        self._soil(file, start, len(data))

    def _write_at(self, file: int, data: bytes, place: int) -> None:
        os.pwrite(file, data, place)
        self._soil(file, place, len(data))

    def _soil(self, file: int, start: int, size: int) -> None:
        number = self._numbers[os.fstat(file).st_ino]
        self._dirty[number].update(range(start // SECTOR_BYTES, -(-(start + size) // SECTOR_BYTES)))

    def _flush(self, file: int) -> None:
        number = self._numbers[os.fstat(file).st_ino]
        self._settle(number, is_all=not self.fails)
        if self.fails:
            raise OSError(errno.EIO, "the disk says no")

    def _flush_folder(self, path: Path) -> None:
        if self.fails:
            raise OSError(errno.EIO, "the disk says no")
        inodes = {entry.name: entry.stat().st_ino for entry in path.iterdir() if entry.name != "lock"}
        self._names = {name: self._numbers[inode] for name, inode in inodes.items()}

    def _settle(self, number: int, *, is_all: bool = False) -> None:
        """Write the dirty sectors of a file, or some of them; none is dirty afterwards."""
        dirty, self._dirty[number] = self._dirty[number], set()
        path = self._path_of(number)
        if path is None:
            return
        data, content = path.read_bytes(), self._contents[number]
        for sector in sorted(dirty):
            if is_all or self._chooses():
                start, end = sector * SECTOR_BYTES, min(len(data), (sector + 1) * SECTOR_BYTES)
                content.extend(bytes(max(0, end - len(content))))
                content[start:end] = data[start:end]

    def _path_of(self, number: int) -> Path | None:
        for path in self.folder.iterdir():
            if self._numbers.get(path.stat().st_ino) == number:
                return path
        return None
