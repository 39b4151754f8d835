"""Shares the runs out over targets and engines, shows how far they are, and keeps what is found."""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import Note, has_atheris

SHOW_S = 1.0
SHOW_PLAIN_S = 15.0
# A worker reports twice a second; one input may take five seconds, and starting up takes a few.
SILENCE_S_MAX = 60.0


@dataclass(kw_only=True)
class Job:
    """One worker: one target under one engine."""

    target: str
    engine: str
    runs: int
    folder: Path
    done: int = 0
    rss_bytes: int = 0
    began_at: float = 0.0
    heard_at: float = 0.0
    ended_at: float = 0.0
    process: subprocess.Popen[str] | None = None
    wrong: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=60))

    @property
    def name(self) -> str:
        return f"{self.target} ({self.engine})"


class Campaign:
    """All jobs of one `make fuzz`."""

    def __init__(
        self, *, root: Path, names: list[str], runs: int, seconds: float, seed: int, jobs: int, engine: str
    ) -> None:
        self._root = root
        self._seconds = seconds
        self._seed = seed
        self._at_once = jobs or os.cpu_count() or 1
        self._work = Path(tempfile.mkdtemp(prefix="hansa-fuzz-"))
        self._jobs = self._plan(names, runs, engine)
        self._shown_at = 0.0

    def _plan(self, names: list[str], runs: int, engine: str) -> list[Job]:
        if unknown := set(names) - set(TARGETS):
            sys.exit(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
        if engine != "mutation" and not has_atheris():
            if engine == "atheris":
                sys.exit("atheris cannot be imported here")
            print("atheris cannot be imported here: all runs use the plain mutation engine, without coverage")
            engine = "mutation"
        engines = ["atheris", "mutation"] if engine == "both" else [engine]
        whole = sum(TARGETS[name].share for name in names)
        jobs = []
        for name in names:
            for used in engines:
                folder = self._work / f"{name}-{used}"
                folder.mkdir()
                share = math.ceil(runs * TARGETS[name].share / whole / len(engines))
                jobs.append(Job(target=name, engine=used, runs=share, folder=folder))
        return jobs

    def run(self) -> int:
        """Status 0 when every run was right."""
        began = time.monotonic()
        waiting, running = deque(self._jobs), list[Job]()
        try:
            while (waiting or running) and not any(job.wrong for job in self._jobs):
                while waiting and len(running) < self._at_once:
                    running.append(self._start(waiting.popleft()))
                time.sleep(0.1)
                for job in list(running):
                    if self._ended(job):
                        running.remove(job)
                self._show()
        finally:
            for job in running:
                if job.process is not None:
                    job.process.kill()
                    job.process.wait()
            status = self._sum_up(time.monotonic() - began)
            shutil.rmtree(self._work)
        return status

    def _start(self, job: Job) -> Job:
        command = [sys.executable, "-m", "tests.fuzz.worker", job.engine, job.target, str(job.runs)]
        command += [str(self._seconds), str(self._seed), str(job.folder)]
        paths = [str(self._root), *filter(None, [os.environ.get("PYTHONPATH")])]
        job.process = subprocess.Popen(
            command,
            cwd=self._root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        job.began_at = job.heard_at = time.monotonic()
        threading.Thread(target=_listen, args=(job,), daemon=True, name=job.name).start()
        return job

    def _ended(self, job: Job) -> bool:
        assert job.process is not None
        status = job.process.poll()
        if status is None:
            if time.monotonic() - job.heard_at < SILENCE_S_MAX:
                return False
            job.process.kill()
            job.process.wait()
            job.wrong = f"nothing heard for {SILENCE_S_MAX:.0f} s: an input hangs"
        elif status != 0:
            job.wrong = f"the worker ended with status {status}"
        elif not self._seconds and job.done < job.runs:
            job.wrong = f"the worker ended after {job.done} of {job.runs} runs"
        job.ended_at = time.monotonic()
        return True

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown_at < (SHOW_S if sys.stdout.isatty() else SHOW_PLAIN_S):
            return
        self._shown_at = now
        done, runs = sum(job.done for job in self._jobs), sum(job.runs for job in self._jobs)
        active = ", ".join(
            f"{job.name} {job.done}" for job in self._jobs if job.began_at and not job.ended_at
        )
        line = f"{done:>9} of {runs} ({done / runs:4.0%})  {active}"
        print(
            f"\r{line[:110]:110}" if sys.stdout.isatty() else line,
            end="" if sys.stdout.isatty() else "\n",
            flush=True,
        )

    def _sum_up(self, took_s: float) -> int:
        print()
        for job in self._jobs:
            if job.began_at:
                job_s = (job.ended_at or time.monotonic()) - job.began_at
                print(
                    f"  {job.name:24} {job.done:>8} runs {job_s:7.1f} s {job.rss_bytes / 2**20:6.0f} MiB"
                    f"  {'WRONG' if job.wrong else 'right' if job.ended_at else 'stopped'}"
                )
        wrong = [job for job in self._jobs if job.wrong]
        for job in wrong:
            self._keep(job)
        print(f"{sum(job.done for job in self._jobs)} inputs in {took_s:.0f} s, {len(wrong)} failures")
        return 1 if wrong else 0

    def _keep(self, job: Job) -> None:
        print(f"\n{job.name}: {job.wrong}")
        print("".join(job.lines))
        found = next(iter(sorted(job.folder.glob("found-*"))), None)
        note = job.folder / "current.bin"
        data = found.read_bytes() if found else Note.read(note) if note.exists() else None
        if data is None:
            return
        kept = self._root / "build" / "fuzz"
        kept.mkdir(parents=True, exist_ok=True)
        path = kept / f"{job.target}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
        path.write_bytes(data)
        print(f"run it again: python tests/fuzz/run.py --replay {path.relative_to(self._root)}")


def _listen(job: Job) -> None:
    """Read a worker's lines until it ends; those that are no reports are kept for the case of failure."""
    assert job.process is not None
    assert job.process.stdout is not None
    for line in job.process.stdout:
        job.heard_at = time.monotonic()
        if line.startswith('{"runs"'):
            report = json.loads(line)
            job.done, job.rss_bytes = report["runs"], report["rss_bytes"]
        else:
            job.lines.append(line)


def replay(path: Path) -> int:
    """Run one saved input; what is wrong with it is raised."""
    TARGETS[path.name.split("-")[0]].check(path.read_bytes())
    print(f"{path.name}: nothing is wrong with it")
    return 0
