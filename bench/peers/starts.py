"""Programs that are started to see what that costs: hansa, its commands, and what stands beside them."""

import os
import shutil
import signal
import socket
import statistics
import sys

from bench.job import Job
from bench.link import Link

FIRST_BYTES_S_MAX = 10.0
BARE = (sys.executable, "-c", "pass")


def command(variant: str, address: str) -> tuple[str, ...]:
    """The program that a variant stands for; `address` is where it finds somebody to send to."""
    kind, _, what = variant.partition(" ")
    if kind == "import":
        return (sys.executable, "-c", f"import {what}")
    if kind == "etcdctl":
        return (shutil.which("etcdctl") or "etcdctl", f"--endpoints={address}", "get", "key")
    options = {
        "call": ("upper", "x", "--pub", f"tcp://{address}"),
        "lock": ("nightly", "--store", f"etcd://{address}", "--", "true"),
    }
    return (sys.executable, "-m", "hansa.cli", what, *options[what])


async def start(job: Job, link: Link) -> None:
    """Starts the program as often as the case says, in turns with a bare interpreter."""
    host, _, port = job.address.partition(":")
    with socket.create_server((host, int(port))) as listener:
        listener.settimeout(FIRST_BYTES_S_MAX)
        program = command(job.peer.variant, job.address)
        is_sending = not job.peer.variant.startswith("import")
        # Once beforehand: what was never read from the disk, and bytecode that was never written.
        cpu_s_of(program, listener if is_sending else None)
        link.ready()
        await link.order()
        bare: list[float] = []
        own: list[float] = []
        for _ in range(job.case.width):
            bare.append(cpu_s_of(BARE, None))
            own.append(cpu_s_of(program, listener if is_sending else None))
    median, beside = statistics.median(own), statistics.median(bare)
    link.done(start_cpu_s=median, start_bare_s=beside, start_above_s=median - beside)


def cpu_s_of(program: tuple[str, ...], listener: socket.socket | None) -> float:
    """CPU time of a process until it ends; with a listener, until its first bytes arrive there.

    Raises RuntimeError for a program that fails, and TimeoutError for one that sends nothing.
    """
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    pid = os.posix_spawn(program[0], program, os.environ, file_actions=quiet)
    try:
        if listener is not None:
            _first_bytes(listener)
    finally:
        # By its own id: a process that is not waited for yet keeps it, and its usage is no other's.
        if listener is not None:
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    if listener is None and status:
        raise RuntimeError(f"{' '.join(program[1:])} ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


def _first_bytes(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(FIRST_BYTES_S_MAX)
        connection.recv(1)
