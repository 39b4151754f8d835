"""The process behind a store of the benchmark: etcd, or `hansa store`, each with its data on disk."""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.job import Job
from bench.link import Link

LOOK_S = 0.02


def serve_etcd(job: Job, link: Link) -> None:
    """One etcd with its defaults; it confirms a write when it is on disk."""
    program = shutil.which("etcd")
    if program is None:
        raise FileNotFoundError("etcd: install Debian's etcd-server, or put etcd on the PATH")
    client, peer = f"http://{job.address}", f"http://{job.second_address}"
    command = [program, "--logger=zap", "--log-level=error", f"--initial-cluster=default={peer}"]
    command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
    command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
    _run(job, link, lambda folder: [*command, f"--data-dir={folder}"])


def serve_hansa(job: Job, link: Link) -> None:
    """`hansa store` with its defaults; it confirms a write when it is on disk."""
    command = [sys.executable, "-m", "hansa.cli", "store", "--listen", job.address]
    _run(job, link, lambda folder: [*command, "--data", folder])


def _run(job: Job, link: Link, command_for: Callable[[str], list[str]]) -> None:
    host, _, port = job.address.rpartition(":")
    with tempfile.TemporaryDirectory(prefix="hansa-bench-") as folder:
        server = subprocess.Popen(
            command_for(str(Path(folder) / "data")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        link.adopt(server)
        while not _listens(host, int(port)):
            if server.poll() is not None:
                assert server.stderr is not None
                raise ChildProcessError(f"{server.args!r} ended: {server.stderr.read()[-2_000:]!r}")
            time.sleep(LOOK_S)
        link.ready()
        server.wait()
    raise ChildProcessError("the store ended")


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
