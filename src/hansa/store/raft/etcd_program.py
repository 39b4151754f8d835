"""Which etcd is good enough to keep a group's data: the decision, from what `etcd --version` prints."""

import re
from dataclasses import dataclass
from typing import Final

from hansa.errors import RaftRefused

INSTALL: Final = (
    "install etcd 3.4.x, or 3.5.3 or newer (Debian, Ubuntu: apt install etcd-server; macOS: brew install "
    "etcd; else the binary of an etcd release), or name the program with HANSA_ETCD"
)
_VERSION = re.compile(r"^etcd Version:\s*(\d+)\.(\d+)\.(\d+)", re.MULTILINE | re.IGNORECASE)
# Learners, which joining stands on, came with it.
_OLDEST: Final = (3, 4, 0)
# A member that is killed under load may come back with other data than the rest, and nobody is told.
_INCONSISTENT: Final = ((3, 5, 0), (3, 5, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdProgram:
    """An etcd that may be used: where it is, how it was found, its version."""

    path: str
    found_by: str
    version: str


def read_version(printed: str, path: str) -> tuple[int, int, int]:
    """The version in what `etcd --version` printed. Raises `RaftRefused`."""
    match = _VERSION.search(printed)
    if match is None:
        first = printed.strip().splitlines()[:1]
        raise RaftRefused(
            f"{path} does not say which etcd it is (it printed {''.join(first)[:80]!r}); {INSTALL}"
        )
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)


def check_version(version: tuple[int, int, int], path: str) -> None:
    """Raises `RaftRefused`, with the reason and what to install, for a version that cannot be trusted."""
    shown = ".".join(map(str, version))
    if version < _OLDEST:
        raise RaftRefused(f"{path} is etcd {shown}, which has no learners: peers could not join; {INSTALL}")
    if _INCONSISTENT[0] <= version <= _INCONSISTENT[1]:
        raise RaftRefused(
            f"{path} is etcd {shown}: 3.5.0 to 3.5.2 may come back from a crash with data that differs from "
            f"the other members'; {INSTALL}"
        )


def checked_program(path: str, found_by: str, printed: str) -> EtcdProgram:
    """The program, if its version is good. Raises `RaftRefused`."""
    version = read_version(printed, path)
    check_version(version, path)
    return EtcdProgram(path=path, found_by=found_by, version=".".join(map(str, version)))
