"""The demo as a user runs it: real processes, real SIGKILLs, and books that balance."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import hansa

SOURCE = Path(hansa.__file__).resolve().parents[1]
RUN_S_MAX = 120


@contextmanager
def demo(*options: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-m", "hansa.cli", "demo", *options],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.spec("SPT-13")
def test_the_demo_survives_its_kills_and_accounts_for_every_call_and_message() -> None:
    with demo("--seconds", "3", "--in-flight", "4") as process:
        out, _ = process.communicate(timeout=RUN_S_MAX)
    assert process.returncode == 0, out
    told = [
        "registry 1 is killed (SIGKILL)",
        "provider 1 at registry",
        "registry 1 is started again",
        "provider 2 is killed (SIGKILL)",
        "the client knew after",
        "no registry lists it after",
        "provider 2 is started again",
        "node 1 is killed (SIGKILL); it owned zone:1:state and zone:1:events",
        "its topics were pending after",
        "node 1 is started again; all topics were active after",
        "the client is killed (SIGKILL)",
        "a new client is started",
    ]
    places = [out.find(line) for line in told]
    assert -1 not in places, out
    assert places == sorted(places), out
    books = re.search(r"asked ([\d,]+), answered ([\d,]+), failed 0, missing 0  \(.*killed: ([\d,]+);", out)
    assert books is not None, out
    asked_count, answered_count, open_count = (int(number.replace(",", "")) for number in books.groups())
    assert asked_count == answered_count + open_count
    assert answered_count > 0
    assert open_count <= 4
    mesh = re.search(
        r"published ([\d,]+), due to readers ([\d,]+) = delivered ([\d,]+) \+ dropped ([\d,]+)"
        r" \+ missed ([\d,]+) \+ cut off by the kill ([\d,]+); missing 0$",
        out,
        re.MULTILINE,
    )
    assert mesh is not None, out
    published_count, due_count, *parts = (int(number.replace(",", "")) for number in mesh.groups())
    delivered_count, dropped_count, *_ = parts
    assert due_count == sum(parts)
    assert delivered_count > published_count > 0
    assert dropped_count > 0  # There is a slow reader.
    hand_over = re.search(r"hand-over ([\d.]+) s$", out, re.MULTILINE)
    assert hand_over is not None
    assert float(hand_over[1]) > 0


def test_ctrl_c_ends_the_demo_and_every_process_of_it() -> None:
    with demo("--seconds", "60") as process:
        assert process.stdout is not None
        told = ""
        while "has a slow reader" not in told:
            line = process.stdout.readline()
            assert line, told
            told += line
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=RUN_S_MAX)
        assert process.returncode == 130
        with pytest.raises(ProcessLookupError):  # The whole group is gone.
            os.killpg(process.pid, 0)
