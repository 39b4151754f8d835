"""The Python examples of a page, found and run."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import hansa

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(hansa.__file__).resolve().parents[1]
HERE = Path(sys.executable)
RUN_S_MAX = 60

_BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Example:
    """One program of a page."""

    page: Path
    line: int
    text: str
    file: str | None = None
    goes_first: bool = False
    needs_kafka: bool = False
    output: str | None = None


@dataclass(slots=True)
class Scene:
    """Programs that run at the same time: one example, or all of a page that have a file name."""

    name: str
    examples: list[Example] = field(default_factory=list)

    @property
    def needs_kafka(self) -> bool:
        return any(example.needs_kafka for example in self.examples)


def examples_of(page: Path) -> list[Example]:
    """The examples of a page that are to be run. Raises ValueError at a mark that is not known."""
    text = page.read_text(encoding="utf-8")
    found: list[Example] = []
    last: Example | None = None
    for match in _BLOCK.finditer(text):
        kind, *marks = match["info"].split() or [""]
        if kind == "text" and marks == ["output"] and last is not None:
            last.output = match["text"]
        if kind != "python":
            continue
        last = None
        if marks == ["no-run"]:
            continue
        needs_kafka = "kafka" in marks
        marks = [mark for mark in marks if mark != "kafka"]
        role, _, name = "".join(marks).partition("=")
        if role not in ("", "file", "first") or len(marks) > 1:
            raise ValueError(f"{page}: what does `{match['info']}` mean?")
        line = text.count("\n", 0, match.start()) + 1
        last = Example(
            page,
            line,
            match["text"],
            file=name or None,
            goes_first=role == "first",
            needs_kafka=needs_kafka,
        )
        found.append(last)
    return found


def scenes_of(page: Path) -> list[Scene]:
    examples = examples_of(page)
    where = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    alone = [Scene(f"{where}:{example.line}", [example]) for example in examples if example.file is None]
    together = [example for example in examples if example.file is not None]
    return [*alone, Scene(f"{where} together", together)] if together else alone


def play(scene: Scene, folder: Path, python: Path = HERE, *, kafka: str = "") -> None:
    """Run the programs of a scene; each must end well and print what its page says.

    They find the hansa under test, or with another `python` the one that is installed there; and a broker at
    the address `kafka`, where the scene needs one.
    """
    for example in scene.examples:
        (folder / (example.file or "example.py")).write_text(example.text, encoding="utf-8")
    for example in scene.examples:
        if example.goes_first:
            run_together([example], folder, python, kafka)
    run_together([example for example in scene.examples if not example.goes_first], folder, python, kafka)


def run_together(examples: list[Example], folder: Path, python: Path, kafka: str = "") -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": str(SOURCE)}
    if kafka:
        environment["BOOTSTRAP_SERVERS"] = kafka
    if python != HERE:
        del environment["PYTHONPATH"]
    running = [
        subprocess.Popen(
            [python, example.file or "example.py"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for example in examples
    ]
    try:
        for example, process in zip(examples, running, strict=True):
            out, err = process.communicate(timeout=RUN_S_MAX)
            assert process.returncode == 0, f"{example.page}:{example.line} failed:\n{err}"
            if example.output is not None:
                assert out == example.output, f"{example.page}:{example.line} prints something else"
    finally:
        for process in running:
            process.kill()
            process.communicate()
