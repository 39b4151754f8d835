"""`hansa assignments` as a user runs it: workers as processes, on a real `hansa store`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Command, run, run_here
from tests.support.etcd_servers import wipe
from tests.support.store_process import StoreProcess

Start = Callable[..., Command]
Where = dict[str, str]


@pytest.fixture(scope="module")
def store() -> Iterator[StoreProcess]:
    with StoreProcess(None) as store:
        yield store


@pytest.fixture
def where(store: StoreProcess) -> Where:
    """The environment in which commands find an empty store."""
    wipe(store.address)
    return {"HANSA_STORE": f"etcd://{store.address}", "COLUMNS": "200"}


@pytest.fixture
def start(where: Where) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(Command("assignments", *arguments, env=where))


def asked(where: Where, *arguments: str) -> tuple[int, str, str]:
    return run("assignments", *arguments, env=where)


def told(where: Where, *arguments: str) -> dict[str, Any]:
    """The one JSON object of a command that went well."""
    status, out, err = asked(where, *arguments, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def works(start: Start, node: str, *options: str) -> Command:
    """A worker that is there."""
    worker = start("work", "orders", node, "--every", "0.02", "--json", *options)
    worker.event("ready")
    return worker


def gets(worker: Command, count: int) -> list[str]:
    """Wait until it is given so many partitions; their names."""
    return [worker.event("assigned")["partition"] for _ in range(count)]


def owners(where: Where) -> dict[str, str]:
    return {each["partition"]: each["owner"] for each in told(where, "orders")["partitions"]}


def test_workers_made_by_hand_share_move_drain_and_leave(start: Start, where: Where) -> None:
    assert asked(where, "define", "orders", "--partitions", "4") == (
        *(0, "group orders: 4 partitions, 4 of them new\n", ""),
    )
    watcher = start("orders", "--watch", "--json")
    assert [each["owner"] for each in watcher.event("ready")["partitions"]] == [""] * 4
    anna = works(start, "anna")
    assert sorted(gets(anna, 4)) == ["p0", "p1", "p2", "p3"]
    assert watcher.event("assigned")["node"] == "anna"
    bert = works(start, "bert")
    first, second = gets(bert, 2)
    assert {anna.event("revoked")["partition"] for _ in range(2)} == {first, second}
    found = told(where, "orders")
    assert [each["partition"] for each in found["partitions"]] == ["p0", "p1", "p2", "p3"]
    assert {each["node"]: each["partitions"] for each in found["workers"]} == {"anna": 2, "bert": 2}
    by_name = {each["partition"]: each for each in found["partitions"]}
    assert by_name[first]["owner"] == "bert"
    assert by_name[first]["standby"] == ["anna"]
    assert by_name[first]["lastOffset"] >= 0
    assert by_name[first]["lastProcessedAt"] > 0
    assert found["settings"]["movesAtOnce"] > 0

    # Nothing would move now, and a drained worker would give both of its own up.
    assert told(where, "plan", "orders")["moves"] == []
    moved = told(where, "move", "orders", first, "anna", "--reason", "a new kernel")
    assert (moved["step"], moved["source"], moved["target"]) == ("done", "bert", "anna")
    assert (moved["partition"], moved["reason"]) == (first, "a new kernel")
    assert 0 < moved["pause_s"] <= moved["took_s"]
    assert owners(where)[first] == "anna"
    status, out, err = asked(where, "move", "orders", first, "bert")
    assert (status, err) == (0, "")
    assert "handed over from anna to bert" in out
    assert "nobody had it for 0." in out

    status, out, err = asked(where, "drain", "orders", "anna")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == (
        "anna has nothing more of orders that others may have, and can be stopped"
    )
    assert set(owners(where).values()) == {"bert"}
    status, out, _ = asked(where, "orders")
    assert status == 0
    for word in ("p0", "bert", "draining", "group orders: 4 partitions at 2 workers"):
        assert word in out
    assert asked(where, "drain", "orders", "anna", "--off")[0] == 0
    gets(anna, 2)

    # Who leaves hands on where it was; the other one goes on from there.
    offsets = {each["partition"]: each["lastOffset"] for each in told(where, "orders")["partitions"]}
    status, out, _ = anna.stop(signal.SIGINT)
    assert status == 0
    last = {}
    for line in out.splitlines():
        event = json.loads(line)
        if event["event"] == "revoked":
            last[event["partition"]] = event["handoff"]["lastOffset"]
    assert all(last[name] >= offsets[name] for name, owner in owners(where).items() if name in last)
    assert set(owners(where).values()) == {"bert"}
    assert bert.stop(signal.SIGTERM)[0] == 0
    assert set(owners(where).values()) <= {"bert", ""}


def test_what_a_killed_worker_had_goes_to_another(start: Start, where: Where) -> None:
    asked(where, "define", "orders", "--partitions", "2")
    fast = ("--heartbeat-interval", "0.3", "--heartbeat-timeout", "1")
    anna = works(start, "anna", *fast)
    gets(anna, 2)
    bert = works(start, "bert", *fast)
    gets(bert, 1)
    watcher = start("orders", "--watch")
    assert watcher.line() == "watching group orders: 2 partitions at 2 workers"
    anna.process.kill()
    gets(bert, 1)
    assert "anna has lost it" in watcher.line()
    assert "bert has it" in watcher.line()


@pytest.mark.spec("ASG-09")
def test_a_plan_says_what_would_move_and_what_nobody_may_have(start: Start, where: Where) -> None:
    asked(where, "define", "orders", "--partitions", "2")
    nobody = told(where, "plan", "orders")
    assert nobody["moves"] == []
    assert sorted(nobody["unplaced"]) == ["p0", "p1"]
    anna = works(start, "anna")
    gets(anna, 2)
    status, out, err = asked(where, "pin", "orders", "p0", "zoe")
    assert (status, err) == (0, "")
    assert "zoe does not work for the group yet" in out
    assert "zoe" in told(where, "plan", "orders")["unplaced"]["p0"]
    status, out, _ = asked(where, "plan", "orders")
    assert status == 0
    assert "nobody may have" in out
    assert "group orders: nothing would move, and 1 partition that nobody may have" in out
    zoe = works(start, "zoe")
    assert gets(zoe, 1) == ["p0"]
    status, out, _ = asked(where, "pin", "orders", "p0", "--off")
    assert "p0 is no longer pinned" in out


@pytest.mark.spec("ASG-11")
def test_single_resources_are_assigned_found_and_taken_away(start: Start, where: Where) -> None:
    asked(where, "define", "orders", "--partitions", "2")
    anna = works(start, "anna")
    gets(anna, 2)
    assert asked(where, "assign", "orders", "press-7") == (0, "press-7 is in p0, which anna has\n", "")
    assert anna.event("updated")["resources"] == ["press-7"]
    moved = told(where, "assign", "orders", "press-7", "p1")
    assert (moved["resource"], moved["partition"], moved["owner"]) == ("press-7", "p1", "anna")
    assert told(where, "find", "orders", "press-7")["partition"] == "p1"
    assert asked(where, "unassign", "orders", "press-7")[0] == 0
    assert asked(where, "unassign", "orders", "press-7")[0] == 1
    assert asked(where, "find", "orders", "press-7") == (1, "press-7 is in no partition of orders\n", "")


def test_a_file_defines_partitions_and_says_what_is_wrong_with_it(where: Where, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps([{"name": "east", "weight": 2, "resources": ["b", "a"]}, {"name": "west"}]))
    found = told(where, "define", "plant", "--file", str(file))
    assert found == {"cluster": "default", "group": "plant", "partitions": 2, "new": 2, "changed": 0}
    assert asked(where, "define", "plant", "--file", str(file))[1] == (
        "group plant: 2 partitions, 0 of them new, 2 written over\n"
    )
    # Those that are there stay as they are.
    asked(where, "define", "plant", "--partitions", "2", "--prefix", "z")
    assert asked(where, "define", "plant", "--partitions", "3", "--prefix", "z")[1] == (
        "group plant: 5 partitions, 1 of them new\n"
    )
    assert asked(where, "undefine", "plant", "z2")[1] == "group plant: 4 partitions, 0 of them new\n"
    listed = told(where, "plant")["partitions"]
    assert [each["partition"] for each in listed] == ["east", "west", "z0", "z1"]
    assert listed[0]["resources"] == ["a", "b"]
    assert told(where)["groups"] == [{"group": "plant", "partitions": 4}]
    for text, said in (
        ("nonsense", "is no JSON"),
        ("{}", "has no JSON array"),
        ("[]", "defines nothing"),
        ("[3]", "entry 1: a partition is an object with a name"),
        ('[{"name": "a"}, {"name": "b", "wieght": 2}]', "entry 2: a partition has no 'wieght'. Did you mean"),
        ('[{"name": "a", "weight": 0}]', "weight 0"),
        ('[{"name": "a"}, {"name": "a"}]', "defines 'a' twice"),
    ):
        file.write_text(text)
        status, out, err = run_here("assignments", "define", "plant", "--file", str(file), env=where)
        assert (status, out) == (2, "")
        assert said in err


def test_what_cannot_work_is_said_in_one_sentence(start: Start, where: Where) -> None:
    assert asked(where)[1].startswith("cluster default: 0 groups; `hansa assignments define GROUP")
    status, out, err = asked(where, "orders")
    assert (status, out) == (2, "")
    assert "group 'orders' of cluster 'default' has no partitions" in err
    assert "`hansa assignments define orders --partitions 12` defines some" in err
    asked(where, "define", "orders", "--partitions", "2")
    assert "Did you mean orders?" in asked(where, "ordres")[2]
    assert run_here("assignments", "--watch", env=where)[0] == 2
    assert "COUNT, or --file" in run_here("assignments", "define", "orders", env=where)[2]
    assert "or --off" in run_here("assignments", "pin", "orders", "p0", env=where)[2]
    status, out, err = asked(where, "move", "orders", "p0", "anna")
    assert (status, out) == (1, "")
    assert "nobody has partition 'p0' of 'orders' now" in err
    anna = works(start, "anna")
    gets(anna, 2)
    for command, wanted, said in (
        (("move", "orders", "q0", "anna"), 2, "has no partition 'q0'"),
        (("move", "orders", "p0", "anna"), 1, "is at 'anna' already\n"),
        (
            ("move", "orders", "p0", "ana"),
            1,
            "'ana' does not work for the group; these could have it: nobody",
        ),
        (("drain", "orders", "ana"), 2, "these do: anna. Did you mean anna?"),
        (("pin", "orders", "q0", "anna"), 2, "has no partition 'q0'"),
        (("undefine", "orders", "q0"), 2, "has no partition 'q0'"),
        (("assign", "orders", "press-7", "q0"), 2, "has no partition 'q0'"),
        (("assign", "other", "press-7"), 2, "group 'other' of cluster 'default' has no partitions"),
    ):
        status, out, err = asked(where, *command)
        assert (status, out) == (wanted, ""), command
        assert said in err
    # A worker that is alone keeps what it has, and is told to be drained all the same.
    status, out, _ = asked(where, "drain", "orders", "anna")
    assert status == 0
    assert "it keeps p0, p1, which nobody else may have now" in out


def test_a_store_that_is_not_there_is_told_with_what_to_do(where: Where) -> None:
    nowhere = ("--store", "etcd://127.0.0.1:1")
    status, out, err = asked(where, "orders", *nowhere, "--json")
    assert status == 1
    assert json.loads(out)["error"] in ("store-unavailable", "timed-out")
    assert "`hansa store` runs a store on this machine" in err
    status, _, err = asked(where, "orders", "--store", "memory://x")
    assert status == 2
    assert "within one process" in err
