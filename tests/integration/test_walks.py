"""The page on the architecture names the files that a call, a publish and a lock go through, and no more."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
WITHIN_S = 60
# At most so many files to open, and so many cancel scopes.
BOUNDS = {"call": (12, 0), "publish": (10, 0), "lock": (12, 2)}


def named(page: str, walk: str) -> tuple[list[str], list[str]]:
    """The files that the page lists for a walk, in its order; and those that stand below."""
    section = re.search(rf"^### A {walk}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no section '### A {walk}'"
    way, _, below = section[1].partition("\nBelow: ")
    return re.findall(r"^\d+\. `([\w/]+\.py)`", way, re.MULTILINE), re.findall(r"`([\w/]+\.py)`", below)


def differences(page: str, walk: str, entered: list[str]) -> list[str]:
    """What the page says wrongly of a walk, as sentences."""
    listed = [file for part in named(page, walk) for file in part]
    missing = [file for file in entered if file not in listed]
    spare = [file for file in listed if file not in entered]
    return [
        *(f"a {walk} enters {file}, which the page does not name" for file in missing),
        *(f"the page names {file}, which a {walk} does not enter" for file in spare),
    ]


def followed(walk: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.walks", walk],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("walk", ["call", "publish", "lock"])
def test_a_walk_enters_the_files_that_the_page_names(walk: str) -> None:
    found, page = followed(walk), PAGE.read_text(encoding="utf-8")
    assert differences(page, walk, found["files"]) == []
    files_max, scopes_max = BOUNDS[walk]
    assert len(named(page, walk)[0]) <= files_max
    assert len(found["scopes"]) <= scopes_max


def test_a_file_that_is_missing_and_one_too_many_are_both_told() -> None:
    page = "### A call\n\n1. `a.py`: begins\n\nBelow: `b/c.py`.\n\n## Next\n\n1. `d.py`\n"
    assert differences(page, "call", ["a.py", "b/c.py"]) == []
    assert differences(page, "call", ["a.py", "e.py"]) == [
        "a call enters e.py, which the page does not name",
        "the page names b/c.py, which a call does not enter",
    ]
