"""How a store writes files: a new one is whole or not there, and flushed before anybody relies on it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

HALF_MADE: Final = ".tmp"


def make(path: Path, parts: Iterable[bytes], *, fsync: bool) -> int:
    """Make a file, or put another in its place, whole or not at all; gives its bytes. Raises `OSError`."""
    half_made = path.with_suffix(HALF_MADE)
    size = 0
    try:
        file = create(half_made)
        try:
            for part in parts:
                write(file, part)
                size += len(part)
            if fsync:
                flush_new(file)
        finally:
            os.close(file)
        half_made.replace(path)
    except OSError:
        with suppress(OSError):
            half_made.unlink(missing_ok=True)
        raise
    if fsync:
        flush_folder(path.parent)
    return size


def create(path: Path) -> int:
    """A new and empty file to write to."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)


def write(file: int, data: bytes) -> None:
    """Write all of it behind what is there."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def write_at(file: int, data: bytes, place: int) -> None:
    """Write less than a sector over what is there: a disk writes it whole or not at all."""
    os.pwrite(file, data, place)


def flush(file: int) -> None:
    """Flush what was appended."""
    # The file's length is flushed with its data; its times need not be. macOS has only the other one.
    getattr(os, "fdatasync", os.fsync)(file)


def flush_mark(file: int) -> None:
    """Flush what was written over something else."""
    getattr(os, "fdatasync", os.fsync)(file)


def flush_new(file: int) -> None:
    """Flush a whole new file."""
    os.fsync(file)


def flush_folder(path: Path) -> None:
    """Flush the names in a folder."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
