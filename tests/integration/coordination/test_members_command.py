"""`hansa members` as a user runs it: real processes, real signals, a real etcd."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.commands import Command, run
from tests.support.etcd_servers import EtcdGroup

Where = dict[str, str]


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdGroup]:
    with EtcdGroup() as group:
        yield group


@pytest.fixture
def where(etcd: EtcdGroup) -> Where:
    """The environment in which commands find an empty store."""
    etcd.wipe()
    return {"HANSA_STORE": etcd.address, "COLUMNS": "200"}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.spec("CRD-05")
def test_a_member_made_by_hand_is_seen_and_leaves_at_ctrl_c(stack: ExitStack, where: Where) -> None:
    assert run("members", env=where) == (0, "cluster default: no members\n", "")
    watcher = stack.enter_context(Command("members", "--watch", "--json", env=where))
    assert watcher.event("ready")["members"] == []
    options = ["--host", "10.0.0.7", "--port", "7400", "--role", "worker", "--role", "sink", "--zone", "east"]
    joined = stack.enter_context(
        Command("members", "--join", "w1", *options, "--metadata", "disk=ssd", "--json", env=where)
    )
    assert [one["id"] for one in joined.event("ready")["members"]] == ["w1"]
    told = watcher.event("member-joined")
    assert (told["member"]["id"], told["reason"]) == ("w1", "joined")
    status, out, err = run("members", "--json", env=where)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["cluster"], found["is_stale"]) == ("default", False)
    (member,) = found["members"]
    assert member["status"] == "UP"
    assert member["address"] == "10.0.0.7:7400"
    assert (member["roles"], member["zone"], member["metadata"]) == (
        ["sink", "worker"],
        "east",
        {"disk": "ssd"},
    )
    assert member["heartbeat_age_s"] < 5.0
    status, out, _ = run("members", env=where)
    assert status == 0
    for word in ("w1", "UP", "10.0.0.7:7400", "sink, worker", "east", "joined", "cluster default: 1 UP"):
        assert word in out
    assert run("members", "--cluster", "other", env=where)[1] == "cluster other: no members\n"
    joined.process.send_signal(signal.SIGINT)
    assert joined.process.wait(10) == 0
    assert watcher.event("member-left")["reason"] == "left"
    watcher.process.send_signal(signal.SIGTERM)
    assert watcher.process.wait(10) == 0


def test_without_json_events_are_sentences(stack: ExitStack, where: Where) -> None:
    watcher = stack.enter_context(Command("members", "--watch", env=where))
    assert watcher.line() == "watching cluster default: no members"
    with Command("members", "--join", "w1", env=where) as joined:
        assert watcher.line() == "w1 joined"
        assert joined.line() == "watching cluster default: 1 UP"
        joined.process.terminate()
        assert watcher.line() == "w1 left"


def test_what_cannot_work_is_said_in_one_sentence(where: Where) -> None:
    status, out, err = run("members", "--host", "here", env=where)
    assert (status, out) == (2, "")
    assert "go with --join" in err
    status, _, err = run("members", "--join", "a/b", env=where)
    assert status == 2
    assert "slash" in err
    status, _, err = run("members", "--store", "nonsense", env=where)
    assert status == 2
    assert "etcd://" in err
    status, out, err = run("members", "--store", "etcd://127.0.0.1:1", "--timeout", "1", "--json", env=where)
    assert status == 1
    assert "the store did not answer within 1" in err
    assert "Connection refused" in err
    assert json.loads(out)["error"] == "store-unavailable"
    status, _, err = run("members", "--store", "memory://x", env=where)
    assert status == 2
    assert "within one process" in err
