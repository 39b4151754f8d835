"""`hansa lead --move`, `lock --move` and `handovers` as a user runs them, on a real `hansa store`."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from hansa.coordination.claim import Standing
from hansa.keys import Keys
from hansa.store import open_store
from tests.support.commands import Command, run, run_here
from tests.support.etcd_servers import wipe
from tests.support.store_process import StoreProcess

# No test waits for the end of such a lease, and no busy machine loses it.
LONG = ("--ttl", "60")
RUNS = "echo $HANSA_TERM $$; exec sleep 1000"
# It ends when it is told to; a shell would say on stderr that its child was terminated.
ENDS_SLOWLY = "exec 2>/dev/null; trap 'echo ending; read line; exit 0' TERM"
Start = Callable[..., Command]


@pytest.fixture(scope="module")
def store() -> Iterator[StoreProcess]:
    with StoreProcess(None) as store:
        yield store


@pytest.fixture
def where(store: StoreProcess) -> dict[str, str]:
    wipe(store.address)
    return {"HANSA_STORE": f"etcd://{store.address}", "COLUMNS": "240"}


@pytest.fixture
def start(where: dict[str, str]) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(Command(*arguments, env=where))


def leads(start: Start, node: str, *options: str, script: str = RUNS, ttl: tuple[str, ...] = LONG) -> Command:
    return start("lead", "harbour", "--node", node, *ttl, "--json", *options, "--", "sh", "-c", script)


def waits(
    start: Start, where: dict[str, str], node: str, *, script: str = RUNS, ttl: tuple[str, ...] = LONG
) -> Command:
    """One more in the line."""
    candidate = leads(start, node, script=script, ttl=ttl)
    # It says so just before it enters the line.
    candidate.news("campaigning")
    asyncio.run(until_it_stands(where, node))
    return candidate


async def until_it_stands(where: dict[str, str], node: str) -> None:
    async with open_store(where["HANSA_STORE"]) as store:
        while True:
            line = Standing.of((await store.scan(Keys().leader("harbour"))).items)
            if any(one.signed.node == node for one in line):
                return


def move(where: dict[str, str], node: str, *options: str, kind: str = "lead") -> tuple[int, str, str]:
    return run(kind, "harbour", "--move", node, *options, env=where)


def listed(where: dict[str, str]) -> dict[str, Any]:
    """The only hand-over there is."""
    status, out, err = run("handovers", "--json", env=where)
    assert (status, err) == (0, "")
    (found,) = json.loads(out)["handovers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.spec("OWN-06")
def test_a_leader_is_moved_past_others_who_wait_and_waits_again_itself(
    start: Start, where: dict[str, str]
) -> None:
    first = leads(start, "host-1")
    term, pid = first.line().split()
    second = waits(start, where, "host-2")
    # It would say so if its command ran beside the one before.
    third = waits(start, where, "host-3", script=f"kill -0 {pid} 2>/dev/null && echo both; {RUNS}")
    watcher = start("handovers", "--watch", "--json")
    assert watcher.event("ready")["handovers"] == []
    status, out, err = move(where, "host-3", "--reason", "a new kernel", "--node", "ops")
    assert (status, err) == (0, "")
    new_term, _ = third.line().split()
    assert int(new_term) > int(term)
    assert out.startswith("leader harbour: handed over from host-1 to host-3 in 0.")
    assert out.endswith(f", epoch {term} -> {new_term}\n")
    asked = first.news("asked")
    assert (asked["target"], asked["asked_by"], asked["reason"]) == ("host-3", "ops", "a new kernel")
    assert 0.0 < first.news("stopping")["grace_s"] <= 15.0
    moved = first.news("handed-over")
    assert (moved["target"], moved["epoch"], moved["next_epoch"]) == ("host-3", int(term), int(new_term))
    assert first.news("campaigning")["leader"] == "host-3"
    steps = [watcher.event("step")["step"] for _ in range(5)]
    assert steps == ["offered", "prepared", "sealed", "taken", "done"]
    found = listed(where)
    assert (found["kind"], found["name"], found["step"]) == ("leader", "harbour", "done")
    assert (found["source"], found["target"], found["taken_by"]) == ("host-1", "host-3", "host-3")
    assert (found["epoch"], found["next_epoch"]) == (int(term), int(new_term))
    assert list(found["times"]) == steps
    table = run("handovers", env=where)[1]
    for word in ("leader harbour", "host-1", "host-3", f"{term} -> {new_term}", "a new kernel", "1 done"):
        assert word in table
    # Who was next in the line before is it still, with a term above them all.
    third.stop(signal.SIGTERM)
    assert int(second.line().split()[0]) > int(new_term)
    second.stop(signal.SIGTERM)
    assert int(first.line().split()[0]) > int(new_term)


def test_steps_are_told_as_sentences_too(start: Start, where: dict[str, str]) -> None:
    first = leads(start, "host-1")
    first.line()
    waits(start, where, "host-2")
    watcher = start("handovers", "--watch")
    assert watcher.line() == "watching cluster default: no hand-overs"
    status, out, _ = move(where, "host-2", "--json")
    assert status == 0
    told = json.loads(out)
    assert (told["source"], told["target"], told["step"]) == ("host-1", "host-2", "done")
    assert watcher.line().startswith("leader harbour is offered by host-1 to host-2, asked by ")
    assert watcher.line().startswith("leader harbour: host-2 is ready after ")
    assert watcher.line().startswith("leader harbour: host-1 has stopped after ")
    assert watcher.line().startswith("leader harbour: host-2 owns it after ")
    assert watcher.line().startswith("leader harbour: handed over from host-1 to host-2 in ")
    assert watcher.stop(signal.SIGINT)[0] in (0, 130)


def test_a_leader_that_shall_lead_once_ends_when_it_is_moved(start: Start, where: dict[str, str]) -> None:
    first = leads(start, "host-1", "--once")
    first.line()
    second = waits(start, where, "host-2")
    assert move(where, "host-2")[0] == 0
    assert first.end()[0] == 75
    assert second.line()


def test_a_lock_is_moved_and_its_holder_ends(start: Start, where: dict[str, str]) -> None:
    script = "echo $HANSA_LOCK_FENCE; exec sleep 1000"
    options = (*LONG, "--json", "--", "sh", "-c", script)
    first = start("lock", "harbour", "--node", "host-1", *options)
    fence = int(first.line())
    start("lock", "harbour", "--node", "host-2", *options).news("waiting")
    third = start("lock", "harbour", "--node", "host-3", *options)
    third.news("waiting")
    status, out, err = move(where, "host-3", kind="lock")
    assert (status, err) == (0, "")
    assert out.startswith("lock harbour: handed over from host-1 to host-3 in ")
    assert int(third.line()) > fence
    assert first.end()[0] == 75
    assert listed(where)["step"] == "done"


def test_what_cannot_be_moved_is_told_in_a_sentence(start: Start, where: dict[str, str]) -> None:
    status, out, err = move(where, "host-2")
    assert (status, out) == (1, "")
    assert err == "hansa lead: nobody has leader 'harbour' now\n"
    status, _, err = move(where, "host-2", kind="lock")
    assert (status, err) == (1, "hansa lock: nobody has lock 'harbour' now\n")
    first = leads(start, "host-1")
    first.line()
    status, _, err = move(where, "host-2")
    assert status == 1
    refused = "hansa lead: leader 'harbour' stays where it is: node 'host-2' does not wait for it; "
    assert err == f"{refused}nobody does\n"
    waits(start, where, "host-3")
    status, _, err = move(where, "host-2")
    assert status == 1
    assert err == f"{refused}these do: host-3\n"
    assert move(where, "host-1")[0] == 1
    status, out, _ = move(where, "host-2", "--json")
    assert (status, json.loads(out)["error"]) == (1, "no-successor")
    assert run("handovers", env=where)[1] == "cluster default: no hand-overs\n"


def test_a_leader_that_does_not_answer_keeps_it(start: Start, where: dict[str, str]) -> None:
    first = leads(start, "host-1")
    term, _ = first.line().split()
    waits(start, where, "host-2")
    first.process.send_signal(signal.SIGSTOP)
    status, out, err = move(where, "host-2", "--within", "1")
    first.process.send_signal(signal.SIGCONT)
    assert (status, out) == (1, "")
    assert "within 1 s" in err
    found = listed(where)
    assert (found["step"], found["epoch"]) == ("withdrawn", int(term))
    # Whoever asked was told that it stays; so it does, also when the leader hears of it in the end.
    assert "stays here" in first.news("kept")["text"]
    assert listed(where)["number"] == 1
    assert move(where, "host-2")[0] == 0


def test_whoever_gives_up_asking_takes_it_back(start: Start, where: dict[str, str]) -> None:
    first = leads(start, "host-1")
    first.line()
    waits(start, where, "host-2")
    watcher = start("handovers", "--watch", "--json")
    watcher.event("ready")
    first.process.send_signal(signal.SIGSTOP)
    asking = start("lead", "harbour", "--move", "host-2", "--node", "ops")
    assert watcher.event("step")["asked_by"] == "ops"
    assert asking.stop(signal.SIGINT)[0] == 130
    found = listed(where)
    assert (found["step"], found["trouble"]) == ("withdrawn", "ops took it back")
    first.process.send_signal(signal.SIGCONT)


def test_a_command_that_cares_for_no_signal_is_killed_and_moved(start: Start, where: dict[str, str]) -> None:
    first = leads(start, "host-1", script="trap '' TERM; echo $$; while :; do sleep 0.05; done")
    pid = first.line()
    second = waits(
        start, where, "host-2", script=f"kill -0 {pid} 2>/dev/null && echo both; echo one; sleep 1000"
    )
    assert move(where, "host-2", "--within", "2")[0] == 0
    assert second.line() == "one"


def test_a_command_is_run_again_when_its_successor_is_gone(start: Start, where: dict[str, str]) -> None:
    """The new owner is ready, the command is stopped, and then the new owner dies."""
    script = f"{ENDS_SLOWLY}; echo $HANSA_TERM; while :; do sleep 0.05; done"
    first = leads(start, "host-1", script=script)
    term = first.line()
    second = waits(start, where, "host-2", ttl=("--ttl", "1"))
    asking = start("lead", "harbour", "--move", "host-2")
    assert first.line() == "ending"
    second.process.kill()
    first.write("go on")
    assert "stays here" in first.news("kept")["text"]
    assert first.line() == term
    status, _, err = asking.end()
    assert status == 1
    assert "the new owner is gone" in err
    assert listed(where)["step"] == "withdrawn"


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_signal_while_the_command_is_stopped_to_be_moved_ends_the_leader(
    start: Start, where: dict[str, str], is_moved: bool
) -> None:
    """Whoever sends it means that no other command shall be run here, whether it moves or stays."""
    script = f"{ENDS_SLOWLY}; echo ready; while :; do sleep 0.05; done"
    first = leads(start, "host-1", script=script)
    first.line()
    second = waits(start, where, "host-2", ttl=LONG if is_moved else ("--ttl", "1"))
    asking = start("lead", "harbour", "--move", "host-2")
    assert first.line() == "ending"
    first.process.send_signal(signal.SIGINT)
    if not is_moved:
        second.process.kill()
    first.write("go on")
    assert asking.end()[0] == (0 if is_moved else 1)
    assert first.end()[:2] == (130, "")


def test_options_that_do_not_go_together_are_refused(where: dict[str, str]) -> None:
    for kind in ("lead", "lock"):
        for arguments in (
            ["--move", "host-2", "--", "true"],
            ["--reason", "a new kernel", "--", "true"],
            ["--within", "3", "--", "true"],
            ["--move", "a/b"],
            ["--move", "host-2", "--within", "0"],
            ["--move", "host-2", "--reason", "x" * 501],
        ):
            status, out, err = run_here(kind, "harbour", *arguments, env=where)
            assert (status, out) == (2, ""), err
            assert err.startswith(f"hansa {kind}: ")
        assert "--move host-2" in run_here(kind, "--help")[1]
    assert "hansa handovers --watch" in run_here("handovers", "--help")[1]


def test_a_store_that_is_away_is_told(start: Start) -> None:
    nowhere = ("--store", "etcd://127.0.0.1:1")
    asked = [start("lead", "x", "--move", "y", *nowhere), start("handovers", *nowhere)]
    for command, name in zip(asked, ("lead", "handovers"), strict=True):
        status, out, err = command.end()
        assert (status, out) == (1, "")
        assert err.startswith(f"hansa {name}: ")
        assert "`hansa store` runs a store on this machine" in err
