"""The processes of one trial: started, asked, and ended whatever happens."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from bench.case import Case
from bench.link import PROFILES
from bench.peers import Peer
from bench.pure_copy import ROOT, pure_source

START_S_MAX = 60.0
SAMPLE_S_MAX = 10.0
FAILURE_TEXT_CHARS = 2_000


class TrialFailed(Exception):
    """A worker ended, went silent, or saw something that it should not have seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A worker's counters at one moment of its own."""

    at_s: float
    count: int
    cpu_s: float
    p50_us: float | None = None
    p99_us: float | None = None
    figures: dict[str, float] = field(default_factory=dict)
    complaint: str = ""


class Worker:
    """One process, spoken to in lines."""

    def __init__(self, role: str, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self.role = role
        self._process = process
        self._errors = errors

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.returncode is not None

    def tell(self, command: str) -> None:
        """Send a command that has no answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")

    async def sample(self) -> Sample:
        """The worker's counters now."""
        self.tell("sample")
        sample = Sample(**await self.hear("sample", s_max=SAMPLE_S_MAX))
        if sample.complaint:
            raise TrialFailed(f"{self.role} saw {sample.complaint}")
        return sample

    async def do(self, order: str, *, s_max: float) -> dict[str, Any]:
        """Order something; what came out when it was done."""
        self.tell(order)
        figures: dict[str, Any] = (await self.hear("done", s_max=s_max))["figures"]
        return figures

    async def hear(self, event: str, *, s_max: float) -> dict[str, Any]:
        """The next line, which is that event's. Raises TrialFailed with what the worker wrote to stderr."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(s_max):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise TrialFailed(f"{self.role} silent for {s_max:g} s{self._said()}") from None
        if not line:
            raise TrialFailed(f"{self.role} ended{self._said()}")
        value: dict[str, Any] = json.loads(line)
        if value.pop("event") != event:
            raise TrialFailed(f"{self.role} sent {line!r} instead of {event}")
        return value

    def freeze(self) -> None:
        """Stop the process where it stands; it answers nothing until `thaw`."""
        self._process.send_signal(signal.SIGSTOP)
        # The signal is on its way when the call returns; the system says when it has arrived.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    async def kill(self) -> float:
        """SIGKILL; gives the time on the clock that all processes of a machine share."""
        at_s = time.monotonic()
        self._process.kill()
        await self._process.wait()
        self._errors.close()
        return at_s

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        """End the process; it is gone when this returns."""
        assert self._process.stdin is not None
        # The closed line lets a worker end its own helpers first; it has a second for that.
        self._process.stdin.close()
        try:
            async with asyncio.timeout(1.0):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._errors.close()

    def _said(self) -> str:
        self._errors.seek(0)
        # Results are published: where this tree stands on this machine is nobody's business.
        text = self._errors.read().decode(errors="replace").strip().replace(f"{Path.cwd()}/", "")
        return f": {text[-FAILURE_TEXT_CHARS:]}" if text else ""


class Stage:
    """All workers of one trial; leaving the block ends every one of them."""

    def __init__(self, peer: Peer, case: Case, profiles: Path | None = None) -> None:
        self.peer = peer
        self.case = case
        self.facts: dict[str, Any] = {}
        """What the workers said they run on."""
        self._addresses = tuple(f"127.0.0.1:{port}" for port in _free_ports(3))
        self._workers: list[Worker] = []
        self._profiles = profiles

    async def __aenter__(self) -> Self:
        try:
            await self.restart()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def restart(self) -> None:
        """End all workers there are; what remains is a new broker, if the peer has one."""
        await self._end()
        self._workers.clear()
        if self.peer.has_broker:
            await self.start("broker")

    async def start(self, role: str, index: int = 0, *, s_max: float = START_S_MAX) -> Worker:
        """A new worker, ready. Raises TrialFailed if it does not get so far."""
        arguments = (role, self.peer.name, self.case.name, *self._addresses, str(index))
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by Worker.end
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.worker", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=_environment(self.peer, self._profiles),
            cwd=ROOT,
        )
        worker = Worker(role, process, errors)
        self._workers.append(worker)
        self.facts |= (await worker.hear("ready", s_max=s_max))["facts"]
        return worker

    async def samples(self) -> dict[Worker, Sample]:
        """A sample of every worker, all taken as nearly at once as the machine allows."""
        taken = await asyncio.gather(*(worker.sample() for worker in self._workers))
        return dict(zip(self._workers, taken, strict=True))

    async def kill(self, worker: Worker) -> float:
        """Kill one worker before the others; when that was."""
        self._workers.remove(worker)
        return await worker.kill()

    async def end(self, worker: Worker) -> None:
        """End one worker before the others."""
        self._workers.remove(worker)
        await worker.end()

    async def _end(self) -> None:
        await asyncio.gather(*(worker.end() for worker in self._workers))


def cpu_us_by_role(before: dict[Worker, Sample], after: dict[Worker, Sample], count: int) -> dict[str, float]:
    """CPU time of the workers of each role between two samples, for each of `count` messages."""
    spent: dict[str, float] = {}
    for worker in after:
        cpu_us = (after[worker].cpu_s - before[worker].cpu_s) * 1e6 / count
        spent[worker.role] = spent.get(worker.role, 0.0) + cpu_us
    return spent


def _environment(peer: Peer, profiles: Path | None) -> dict[str, str]:
    source = pure_source() if peer.pure else ROOT / "src"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (source, ROOT)))}
    return environment | ({PROFILES: str(profiles.resolve())} if profiles else {})


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_probes:
        # All at once, so that no port comes twice.
        probes = [open_probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
