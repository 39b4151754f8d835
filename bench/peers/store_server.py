"""The processes behind a store of the benchmark: etcd, `hansa store`, a raft group; all with data on disk."""

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from bench.job import Job
from bench.link import Link
from hansa.store.raft import RaftPeer

LOOK_S = 0.02
RAFT_APP = "bench"
RAFT_PEERS_COUNT = 3


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


def start_hansa(address: str, link: Link, folder: Path) -> None:
    """A `hansa store` beside something else; it listens when this returns."""
    command = [sys.executable, "-m", "hansa.cli", "store", "--listen", address, "--data", str(folder)]
    _start(address, link, command)


async def serve_raft(job: Job, link: Link) -> None:
    """A raft group of three on this machine, with its defaults; joined and found at the trial's address."""
    with tempfile.TemporaryDirectory(prefix="hansa-bench-") as folder:
        addresses = {f"peer-{number}": address for number, address in enumerate(_free_addresses())}
        peers = [
            RaftPeer(
                RAFT_APP,
                name,
                data=Path(folder) / name,
                peers=addresses,
                join_address="" if number else job.address,
            )
            for number, name in enumerate(addresses)
        ]
        async with AsyncExitStack() as stack:
            # All at once: each waits for a leader.
            await asyncio.gather(*map(stack.enter_async_context, peers))
            for peer in peers:
                assert peer.pid is not None
                link.count_in(peer.pid)
            link.ready()
            await asyncio.Event().wait()


def _free_addresses() -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(RAFT_PEERS_COUNT)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def _run(job: Job, link: Link, command_for: Callable[[str], list[str]]) -> None:
    with tempfile.TemporaryDirectory(prefix="hansa-bench-") as folder:
        server = _start(job.address, link, command_for(str(Path(folder) / "data")))
        link.ready()
        server.wait()
    raise ChildProcessError("the store ended")


def _start(address: str, link: Link, command: list[str]) -> subprocess.Popen[bytes]:
    host, _, port = address.rpartition(":")
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    link.adopt(server)
    while not _listens(host, int(port)):
        if server.poll() is not None:
            assert server.stderr is not None
            raise ChildProcessError(f"{server.args!r} ended: {server.stderr.read()[-2_000:]!r}")
        time.sleep(LOOK_S)
    return server


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
