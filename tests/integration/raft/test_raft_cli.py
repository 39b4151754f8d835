"""`hansa raft` as a user runs it, and the example of its page."""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.commands import SOURCE, Command, run
from tests.support.raft_stage import trusted_etcd

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "run-a-raft-group.md"


@pytest.fixture
def env() -> dict[str, str]:
    return {"HANSA_ETCD": trusted_etcd()}


@pytest.mark.spec("CRD-13")
def test_a_group_is_started_joined_shown_and_left(tmp_path: Path, env: dict[str, str]) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(
            Command(
                *("raft", "start", "orders", "--name", "n1", "--data", str(tmp_path / "n1"), "--json"),
                *("--peers", "n1=127.0.0.1:0", "--zone", "north", "--role", "spare", "--metadata", "rack=7"),
                env=env,
            )
        )
        ready = first.event("ready")
        via = ready["join_address"]
        assert (ready["zone"], ready["roles"], ready["metadata"]) == ("north", ["spare"], {"rack": "7"})
        second = stack.enter_context(
            Command(
                *("raft", "join", "orders", "--name", "n2", "--data", str(tmp_path / "n2"), "--json"),
                *("--via", via),
                env=env,
            )
        )
        assert second.event("join-accepted")["name"] == "n2"
        assert second.event("catching-up")["target_index"] > 0
        second.event("ready")

        status, out, err = run("raft", "status", "orders", "--via", via, "--json")
        assert status == 0, err
        group = json.loads(out)
        assert [(one["peer"]["name"], one["is_voter"], one["is_healthy"]) for one in group["peers"]] == [
            ("n1", True, True),
            ("n2", True, True),
        ]
        status, out, _ = run("raft", "status", "orders", "--via", via)
        assert status == 0
        assert "orders: led by n1" in out
        assert "2 of 2 voters healthy, 0 more may fail" in out
        joins = [one["peer"]["join_address"] for one in group["peers"]]
        assert f"its store: raft://{','.join(joins)}/orders\n" in out

        status, out, err = run("raft", "leave", "orders", "--name", "n2", "--via", via, "--json")
        assert (status, json.loads(out)["name"]) == (0, "n2"), err
        # It ends by itself: there is nothing left for it to do.
        status, out, err = second.end()
        assert status == 0, err
        assert json.loads(out.splitlines()[-1])["is_left"] is True

        status, out, err = run("raft", "leave", "orders", "--name", "n1", "--via", via)
        assert status == 2
        assert "it is the last peer" in err
        status, out, err = first.stop()
        assert status == 0, err
        assert json.loads(out.splitlines()[-1])["event"] == "stopped"


def test_what_cannot_be_is_said_in_one_sentence(tmp_path: Path, env: dict[str, str]) -> None:
    data = str(tmp_path / "n1")
    status, _, err = run("raft", "start", "orders", "--name", "n1", "--data", data, env=env)
    assert status == 2
    assert "holds no data: give the `peers`" in err
    status, _, err = run("raft", "start", "orders", "--name", "n1", "--data", data, "--peers", "n1", env=env)
    assert status == 2
    assert "name=value" in err
    twice = "n1=127.0.0.1:2380,n1=127.0.0.1:2381"
    status, _, err = run("raft", "start", "orders", "--name", "n1", "--data", data, "--peers", twice, env=env)
    assert status == 2
    assert "--peers: n1 is there twice" in err
    status, _, err = run("raft", "status", "orders", "--via", "127.0.0.1:1", "--timeout", "0.5")
    assert status == 1
    assert "was not done in 0.5 s" in err
    fake = tmp_path / "etcd"
    fake.write_text("#!/bin/sh\necho 'etcd Version: 3.5.2'\n")
    fake.chmod(0o755)
    status, _, err = run(
        *("raft", "start", "orders", "--name", "n1", "--data", data, "--peers", "n1=127.0.0.1:0"),
        *("--etcd", str(fake)),
    )
    assert status == 2
    assert "3.5.0 to 3.5.2" in err


def test_the_example_of_the_page_runs_and_prints_what_it_says(tmp_path: Path, env: dict[str, str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    match = re.search(
        r"^```python no-run\n(.*?)^```\n\n```text output\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    )
    assert match is not None
    done = subprocess.run(
        [sys.executable, "-c", match[1]],
        env={**os.environ, **env, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "error"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == match[2]
    assert done.stderr == ""
