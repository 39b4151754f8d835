"""The demo as a user runs it: real processes, a real SIGKILL, and books that balance."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hansa

SOURCE = Path(hansa.__file__).resolve().parents[1]
RUN_S_MAX = 60


def demo(*options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "hansa.cli", "demo", *options],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_the_demo_survives_its_crash_and_accounts_for_every_question() -> None:
    process = demo("--seconds", "3", "--dealers", "2", "--in-flight", "4")
    out, _ = process.communicate(timeout=RUN_S_MAX)
    assert process.returncode == 0, out
    assert "the ROUTER is killed (SIGKILL)" in out
    assert "all dealers are connected again" in out
    books = re.search(r"asked ([\d,]+), answered ([\d,]+), missing ([\d,]+)", out)
    assert books is not None, out
    assert books[1] == books[2] != "0"
    assert books[3] == "0"


def test_ctrl_c_ends_the_demo_and_every_process_of_it() -> None:
    process = demo("--seconds", "60", "--dealers", "2")
    assert process.stdout is not None
    told = ""
    while "DEALER processes ask" not in told:
        line = process.stdout.readline()
        assert line, told
        told += line
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=RUN_S_MAX)
    assert process.returncode == 130
    with pytest.raises(ProcessLookupError):  # The whole group is gone.
        os.killpg(process.pid, 0)
