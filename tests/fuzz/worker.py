"""One target under one engine, in a process of its own; the campaign reads its lines.

Each line is JSON: {"runs": so far, "rss_bytes": now}. It ends with status 0 when nothing was wrong. What is
wrong ends it with another, after the input was saved: by libFuzzer itself, or from the note that is kept of
the current input, which survives even a crash of the process.
"""

import importlib.util
import inspect
import json
import mmap
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

INPUT_S_MAX = 5.0
REPORT_S = 0.5
# Caches of the interpreter, allocator slack, and the corpus that libFuzzer keeps.
GROWTH_BYTES_MAX = {"mutation": 48 * 1024 * 1024, "atheris": 256 * 1024 * 1024}
WARM_SHARE = 0.1

INSTRUMENTED = [
    "hansa.wire.frames",
    "hansa.wire.commands",
    "hansa.wire.fields",
    "hansa.wire.registry",
    "hansa.wire.listing",
    "hansa.wire.business",
    "hansa.wire.topics",
    "hansa.wire.publication",
    "hansa.transport.link",
    "hansa.transport.connection",
    "hansa.transport.zmtp_socket",
    "hansa.transport.pub_sub",
]


class Hang(Exception):
    """One input took too long."""


class Meter:
    """Counts runs, reports them, and watches the memory after the first tenth of them."""

    def __init__(self, *, engine: str, runs: int) -> None:
        self.runs = 0
        self._growth_bytes_max = GROWTH_BYTES_MAX[engine]
        self._warm_runs = max(1_000, int(runs * WARM_SHARE))
        self._warm_bytes = 0
        self._reported_at = 0.0

    def count(self) -> None:
        self.runs += 1
        if self.runs == self._warm_runs:
            self._warm_bytes = resident_bytes()
        if self.runs % 64 == 0 and time.monotonic() - self._reported_at > REPORT_S:
            self.report()

    def report(self) -> None:
        self._reported_at = time.monotonic()
        now = resident_bytes()
        print(json.dumps({"runs": self.runs, "rss_bytes": now}), flush=True)
        if self._warm_bytes and now - self._warm_bytes > self._growth_bytes_max:
            raise MemoryError(f"memory grew from {self._warm_bytes} to {now} bytes in {self.runs} runs")


def resident_bytes() -> int:
    """The memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def by_mutation(name: str, runs: int, seconds: float, seed: int, folder: Path) -> None:
    """Fuzz with the engine of mutation.py, on hansa as it is installed: compiled where it is compiled."""
    from tests.fuzz.mutation import mutations
    from tests.fuzz.targets import INPUT_BYTES_MAX, TARGETS

    target = TARGETS[name]
    meter = Meter(engine="mutation", runs=runs)
    note = Note(folder / "current.bin", INPUT_BYTES_MAX)
    ends_at = time.monotonic() + seconds if seconds else float("inf")

    def hang(_signal: int, _frame: FrameType | None) -> None:
        raise Hang(f"an input took more than {INPUT_S_MAX} s")

    signal.signal(signal.SIGALRM, hang)
    for data in mutations(target.seeds(), seed=seed, bytes_max=INPUT_BYTES_MAX):
        note.write(data)
        signal.setitimer(signal.ITIMER_REAL, INPUT_S_MAX)
        target.check(data)
        signal.setitimer(signal.ITIMER_REAL, 0)
        meter.count()
        if meter.runs >= runs or (meter.runs % 64 == 0 and time.monotonic() > ends_at):
            break
    meter.report()


class Note:
    """The current input in a shared mapping: a write to memory that outlives the process."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        path.write_bytes(bytes(4 + bytes_max))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def write(self, data: bytes) -> None:
        self._map[: 4 + len(data)] = len(data).to_bytes(4, "little") + data

    @staticmethod
    def read(path: Path) -> bytes:
        kept = path.read_bytes()
        return kept[4 : 4 + int.from_bytes(kept[:4], "little")]


def by_atheris(name: str, runs: int, seconds: float, seed: int, folder: Path) -> None:
    """Fuzz with libFuzzer, guided by the coverage of hansa's sources."""
    import atheris

    from tests.fuzz.uncompiled import prefer_sources

    prefer_sources()
    from tests.fuzz.seeds import WORDS
    from tests.fuzz.targets import INPUT_BYTES_MAX, TARGETS

    for module in INSTRUMENTED:
        for function in functions_of(sys.modules[module]):
            atheris.instrument_func(function)
    target = TARGETS[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    for index, data in enumerate(target.seeds()):
        (corpus / f"seed-{index}").write_bytes(data)
    words = folder / "words.dict"
    words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in WORDS))
    meter = Meter(engine="atheris", runs=runs)

    def run(data: bytes) -> None:
        target.check(data)
        meter.count()
        if meter.runs == runs:
            meter.report()

    flags = [
        *(f"-runs={runs}", f"-seed={seed or 1}", f"-max_len={INPUT_BYTES_MAX}", f"-dict={words}"),
        *(f"-timeout={int(INPUT_S_MAX)}", "-rss_limit_mb=1024", f"-artifact_prefix={folder}/found-"),
        *([f"-max_total_time={int(seconds)}"] if seconds else []),
    ]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], run)
    atheris.Fuzz()


def functions_of(module: ModuleType) -> list[Callable[..., Any]]:
    """The functions and methods that a module defines itself."""
    found: list[Callable[..., Any]] = []
    for value in vars(module).values():
        if getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(value):
            found.append(value)
        elif inspect.isclass(value):
            for member in vars(value).values():
                function = (
                    member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                )
                if inspect.isfunction(function) and function.__code__.co_filename == module.__file__:
                    found.append(function)
    return found


def has_atheris() -> bool:
    """Whether the coverage-guided engine can be used here."""
    return importlib.util.find_spec("atheris") is not None


if __name__ == "__main__":
    engine, target_name, run_count, run_seconds, run_seed, where = sys.argv[1:]
    work = by_atheris if engine == "atheris" else by_mutation
    work(target_name, int(run_count), float(run_seconds), int(run_seed), Path(where))
    sys.stdout.flush()
    os._exit(0)
