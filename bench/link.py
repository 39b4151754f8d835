"""A worker's line to the conductor: commands in on stdin, JSON lines out on stdout, and the counters between.

Every load runs without an end; the conductor decides when a window begins and ends by asking for a sample.
A thread answers, so blocking and asynchronous peers are measured alike; while nothing is asked it sleeps in
a read and costs nothing.
"""

import asyncio
import contextlib
import cProfile
import json
import os
import pstats
import queue
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from bench.case import Case

PROFILES = "BENCH_PROFILES"
"""The variable that names the folder for profiles, if there are to be any."""
PROFILE_LINES = 40
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Link:
    """What a role reports through, and learns from.

    A role adds to `count` for each reply or delivery (a publisher: for each message sent), to `latencies_ns`
    if the case is about latency, and keeps the payload it saw last in `last`. A role whose work has steps
    takes an `order` for each instead, and says when it is `done`.
    """

    __slots__ = (
        "_case",
        "_counted_pids",
        "_folders",
        "_helpers",
        "_orders",
        "_profile_path",
        "_profiler",
        "count",
        "gauges",
        "go",
        "halted",
        "hushed",
        "last",
        "latencies_ns",
    )

    def __init__(self, case: Case) -> None:
        self._case = case
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._counted_pids: list[int] = []
        self._folders: list[str] = []
        self._profiler: cProfile.Profile | None = None
        self._profile_path = ""
        self.count = 0
        self.latencies_ns: list[int] = []
        self.last: bytes | None = None
        self.hushed = False
        """The receivers are all there: a publisher stops its beacons and waits for `go`."""
        self.go = threading.Event()
        self.halted = False
        """A publisher stops; what it has sent may still drain."""
        self.gauges: Callable[[], dict[str, float]] | None = None
        """Asked at every sample, in the line's thread: it only reads."""
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()

    def ready(self, **facts: Any) -> None:
        """Say that the role stands and what it stands on. Called once."""
        with contextlib.suppress(RuntimeError):  # a blocking peer has no loop
            facts["loop"] = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        _write({"event": "ready", "facts": facts})

    async def order(self) -> list[str]:
        """The words of the next thing that the conductor wants done."""
        return (await asyncio.to_thread(self._orders.get)).split()

    def done(self, **figures: Any) -> None:
        """What was ordered last is done, and this came out."""
        _write({"event": "done", "figures": figures})

    def adopt(self, helper: subprocess.Popen[bytes]) -> None:
        """Count that process's CPU time as this worker's own, and end it with this worker."""
        self._helpers.append(helper)
        self.count_in(helper.pid)

    def count_in(self, pid: int) -> None:
        """Count that process's CPU time as this worker's own; its end is another's business."""
        self._counted_pids.append(pid)

    def delete_at_end(self, folder: str) -> None:
        """Delete that folder when this worker and its helpers have ended."""
        self._folders.append(folder)

    def listen(self) -> None:
        """Answer the conductor until it closes the line, then end this process at once."""
        for line in sys.stdin:
            match line.strip():
                case "sample":
                    _write({"event": "sample", **self._sample()})
                case "hush":
                    self.hushed = True
                case "go":
                    self.go.set()
                case "halt":
                    self.halted = True
                case order:
                    self._orders.put(order)
        self.end(0)

    def profile(self, path: str) -> None:
        """From now on profile this thread; the end writes it there."""
        self._profile_path = path
        self._profiler = cProfile.Profile()
        self._profiler.enable()

    def end(self, code: int) -> NoReturn:
        """End this process and its helpers without the libraries' goodbyes, which may hang under load."""
        for helper in self._helpers:
            helper.kill()
            helper.wait()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        if self._profiler:
            with open(self._profile_path, "w", encoding="utf-8") as file:
                pstats.Stats(self._profiler, stream=file).sort_stats("tottime").print_stats(PROFILE_LINES)
        sys.stderr.flush()
        os._exit(code)

    def _sample(self) -> dict[str, Any]:
        at_s, count, cpu_s = time.monotonic(), self.count, self._cpu_s()
        latencies, self.latencies_ns = sorted(self.latencies_ns), []
        sample: dict[str, Any] = {
            "at_s": at_s,
            "count": count,
            "cpu_s": cpu_s,
            "p50_us": None,
            "p99_us": None,
            "figures": self.gauges() if self.gauges else {},
        }
        if latencies:
            sample["p50_us"] = latencies[len(latencies) // 2] / 1e3
            sample["p99_us"] = latencies[len(latencies) * 99 // 100] / 1e3
        if self.last is not None and len(self.last) != self._case.size_bytes:
            sample["complaint"] = f"a payload of {len(self.last)} bytes, not {self._case.size_bytes}"
        return sample

    def _cpu_s(self) -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime + sum(map(_cpu_s_of, self._counted_pids))


def _cpu_s_of(pid: int) -> float:
    # getrusage counts children only after their end; this file tells it now, in hundredths of a second.
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        values = file.read().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / CLOCK_TICKS_PER_S


def _write(value: dict[str, Any]) -> None:
    # One write a line: two threads report, and a line shorter than a pipe's buffer is never torn.
    os.write(1, json.dumps(value).encode() + b"\n")
