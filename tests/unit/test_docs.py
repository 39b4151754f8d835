"""Every Python example in the documentation runs, and prints what the page says that it prints.

A block that starts with ```python is a program of its own. Blocks with a file name (```python file=a.py)
are programs of one page that run at the same time, in a folder of their own; those named as first
(```python first=a.py) run before them, to their end. A block that starts with ```text output, right after
an example, is what that example prints. ```python no-run is only shown.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import hansa

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(hansa.__file__).resolve().parents[1]
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
    output: str | None = None


@dataclass(slots=True)
class Scene:
    """Programs that run at the same time: one example, or all of a page that have a file name."""

    name: str
    examples: list[Example] = field(default_factory=list)


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
        role, _, name = "".join(marks).partition("=")
        if role not in ("", "file", "first") or len(marks) > 1:
            raise ValueError(f"{page}: what does `{match['info']}` mean?")
        line = text.count("\n", 0, match.start()) + 1
        last = Example(page, line, match["text"], file=name or None, goes_first=role == "first")
        found.append(last)
    return found


def scenes_of(page: Path) -> list[Scene]:
    examples = examples_of(page)
    where = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    alone = [Scene(f"{where}:{example.line}", [example]) for example in examples if example.file is None]
    together = [example for example in examples if example.file is not None]
    return [*alone, Scene(f"{where} together", together)] if together else alone


def play(scene: Scene, folder: Path) -> None:
    """Run the programs of a scene; each must end well and print what its page says."""
    for example in scene.examples:
        (folder / (example.file or "example.py")).write_text(example.text, encoding="utf-8")
    for example in scene.examples:
        if example.goes_first:
            run_together([example], folder)
    run_together([example for example in scene.examples if not example.goes_first], folder)


def run_together(examples: list[Example], folder: Path) -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": str(SOURCE)}
    running = [
        subprocess.Popen(
            [sys.executable, example.file or "example.py"],
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


PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SCENES = [scene for page in PAGES for scene in scenes_of(page)]


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
def test_the_example_runs(scene: Scene, tmp_path: Path) -> None:
    play(scene, tmp_path)


# ---- the check can fail ------------------------------------------------------------------------


def write(folder: Path, text: str) -> list[Scene]:
    page = folder / "page.md"
    page.write_text(text)
    return scenes_of(page)


def test_an_example_that_fails_is_found(tmp_path: Path) -> None:
    (scene,) = write(tmp_path, "```python\nraise SystemExit('no')\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1 failed"):
        play(scene, tmp_path)


def test_an_example_that_prints_something_else_is_found(tmp_path: Path) -> None:
    (scene,) = write(tmp_path, "```python\nprint(1 + 1)\n```\n\n```text output\n3\n```\n")
    with pytest.raises(AssertionError, match="prints something else"):
        play(scene, tmp_path)


def test_examples_with_a_file_name_run_together(tmp_path: Path) -> None:
    meet = "from pathlib import Path\nPath('{}').touch()\nwhile not Path('{}').exists(): pass\nprint(1)\n"
    left, right = meet.format("left", "right"), meet.format("right", "left")
    (scene,) = write(
        tmp_path,
        f"```python file=left.py\n{left}```\n```text output\n1\n```\n```python file=right.py\n{right}```\n",
    )
    assert [example.output for example in scene.examples] == ["1\n", None]
    play(scene, tmp_path)


def test_an_example_named_as_first_has_ended_before_the_others_start(tmp_path: Path) -> None:
    note = "from pathlib import Path\nnote = Path('note.txt')\n"
    (scene,) = write(
        tmp_path,
        f"```python file=reader.py\n{note}print(note.read_text())\n```\n```text output\nready\n```\n"
        f"```python first=writer.py\n{note}note.write_text('ready')\n```\n",
    )
    play(scene, tmp_path)


def test_only_python_blocks_are_run(tmp_path: Path) -> None:
    assert write(tmp_path, "```py\n1/0\n```\n```sh\nexit 1\n```\n```python no-run\n1/0\n```\n") == []


def test_an_unknown_mark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="what does `python norun` mean"):
        write(tmp_path, "```python norun\n1/0\n```\n")
