"""Every Python example in the documentation runs, and prints what the page says that it prints.

A block that starts with ```python is a program of its own. Blocks with a file name (```python file=a.py)
are programs of one page that run at the same time, in a folder of their own; those named as first
(```python first=a.py) run before them, to their end. A block that starts with ```text output, right after
an example, is what that example prints. ```python no-run is only shown. One marked ```python kafka finds a
fresh broker at BOOTSTRAP_SERVERS.
"""

from pathlib import Path

import pytest

from tests.support.doc_examples import ROOT, Scene, play, scenes_of
from tests.support.kafka_fixture import tell_kafka

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SCENES = [scene for page in PAGES for scene in scenes_of(page)]


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
def test_the_example_runs(scene: Scene, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if not scene.needs_kafka:
        play(scene, tmp_path)
        return
    from tests.support.kafka_servers import fresh_kafka

    with fresh_kafka() as kafka:
        tell_kafka(pytestconfig, kafka.about)
        play(scene, tmp_path, kafka=kafka.address)


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


def test_a_mark_says_that_an_example_needs_kafka(tmp_path: Path) -> None:
    look = "import os\nprint(os.environ['BOOTSTRAP_SERVERS'])\n"
    (scene,) = write(tmp_path, f"```python kafka file=a.py\n{look}```\n```text output\nhere:1\n```\n")
    assert scene.needs_kafka
    assert scene.examples[0].file == "a.py"
    play(scene, tmp_path, kafka="here:1")


def test_an_unknown_mark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="what does `python norun` mean"):
        write(tmp_path, "```python norun\n1/0\n```\n")
