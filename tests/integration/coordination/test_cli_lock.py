"""`hansa lock` and `hansa lead` as a user runs them: real processes, real signals, a real etcd."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import gethostname
from time import monotonic, sleep

import pytest

from tests.support.commands import Command, run, run_here
from tests.support.etcd_servers import EtcdGroup

TTL = ("--ttl", "2")
# No test waits for the end of such a lease, and no busy machine loses it.
LONG = ("--ttl", "60")
READY = "echo ready; "
ENDING_S_MAX = 10.0


@pytest.fixture(scope="module")
def group() -> Iterator[EtcdGroup]:
    # Quick elections allow leases of one second.
    with EtcdGroup(heartbeat_ms=50, election_ms=500) as group:
        yield group


@pytest.fixture
def where(group: EtcdGroup) -> dict[str, str]:
    group.restore()
    group.wipe()
    return {"HANSA_STORE": group.address}


@pytest.fixture
def start(where: dict[str, str]) -> Iterator[Callable[..., Command]]:
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(Command(*arguments, env=where))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def has_ended(pid: int) -> bool:
    """A process closes its files a moment before it is gone: the end of its output comes too early."""
    end_at = monotonic() + ENDING_S_MAX
    while is_alive(pid) and monotonic() < end_at:
        sleep(0.005)
    return not is_alive(pid)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.spec("CRD-09")
def test_a_command_runs_with_the_fence_and_its_status_is_passed_on(where: dict[str, str]) -> None:
    script = 'echo "$HANSA_LOCK_NAME $HANSA_LOCK_FENCE"; cat; exit 7'
    status, out, err = run("lock", "dock", *LONG, "--", "sh", "-c", script, given=b"from stdin", env=where)
    assert (status, err) == (7, "")
    name, fence, *rest = out.split()
    assert (name, rest) == ("dock", ["from", "stdin"])
    status, out, _ = run("lock", "dock", *LONG, "--", "sh", "-c", script, env=where)
    assert int(out.split()[1]) > int(fence)


def test_signals_and_commands_that_do_not_start_have_the_status_of_shells(where: dict[str, str]) -> None:
    assert run("lock", "dock", *LONG, "--", "sh", "-c", "kill -9 $$", env=where)[0] == 137
    status, _, err = run("lock", "dock", *LONG, "--", "/no/such/command", env=where)
    assert status == 127
    assert "No such file" in err
    assert run("lock", "dock", *LONG, "--", "/etc", env=where)[0] == 126


@pytest.mark.spec("CRD-09", "CRD-16")
def test_the_next_waits_tells_its_place_and_comes_after(start: Callable[..., Command]) -> None:
    first = start("lock", "dock", *LONG, "--json", "--", "cat")
    fence = first.news("acquired")["fence"]
    second = start("lock", "dock", *LONG, "--json", "--", "sh", "-c", READY)
    waiting = second.news("waiting")
    assert waiting["place"] == 1
    assert waiting["holder"] == f"{gethostname()}:{first.process.pid}"
    third = start("lock", "dock", *LONG, "--", "true")
    assert third.process.stderr is not None
    told = third.process.stderr.readline()
    assert told.startswith(f"waiting for lock dock: 2 in line, held by {waiting['holder']} since 20")
    assert start("lock", "dock", *LONG, "--try", "--", "true").end()[0] == 69
    status, _, err = start("lock", "dock", *LONG, "--timeout", "0.2", "--", "true").end()
    assert status == 69
    assert err.splitlines()[-1].startswith(f"lock dock is held by {waiting['holder']} since 20")
    assert first.process.stdin is not None
    first.process.stdin.close()
    first.process.stdin = None
    assert second.news("acquired")["fence"] > fence
    assert second.end()[0] == 0
    assert third.end()[0] == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 43), (signal.SIGINT, 130)])
def test_signals_are_passed_on(start: Callable[..., Command], number: int, status: int) -> None:
    script = "trap 'exit 43' TERM; echo ready; while :; do sleep 0.05; done"
    command = start("lock", "dock", *LONG, "--", "sh", "-c", script)
    assert command.line() == "ready"
    command.process.send_signal(number)
    assert command.end()[0] == status


def test_a_signal_ends_the_wait(start: Callable[..., Command]) -> None:
    holder = start("lock", "dock", *LONG, "--json", "--", "cat")
    holder.news("acquired")
    waiter = start("lock", "dock", *LONG, "--json", "--", "true")
    waiter.news("waiting")
    assert waiter.stop(signal.SIGTERM)[0] == 143


def test_a_wait_outlives_a_signal_that_its_starter_ignores(start: Callable[..., Command]) -> None:
    """As what `nohup` starts does, when the terminal is closed."""
    holder = start("lock", "dock", *LONG, "--json", "--", "cat")
    holder.news("acquired")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        waiter = start("lock", "dock", *LONG, "--json", "--", "echo", "held")
    finally:
        signal.signal(signal.SIGHUP, before)
    waiter.news("waiting")
    waiter.process.send_signal(signal.SIGHUP)
    holder.end()
    assert waiter.end()[:2] == (0, "held\n")


@pytest.mark.spec("CRD-09")
def test_a_command_that_ignores_the_loss_is_killed_with_all_it_started(
    group: EtcdGroup, start: Callable[..., Command]
) -> None:
    # One second of grace for a command that does not care, and for what it started.
    script = "trap '' TERM; sleep 1000 & echo $!; wait; wait"
    command = start("lock", "dock", "--ttl", "3", "--json", "--", "sh", "-c", script)
    sleeper = int(command.line())
    pid = command.news("started")["pid"]
    group.pause_all()
    lost = command.news("lost")
    status, _, _ = command.end()
    group.resume_all()
    assert status == 75
    assert 0.0 < lost["grace_s"] < 1.0
    assert "could not renew" in lost["text"]
    assert has_ended(pid)
    assert has_ended(sleeper)


@pytest.mark.spec("CRD-09")
def test_a_lock_whose_key_is_deleted_stops_the_command_at_once(
    group: EtcdGroup, start: Callable[..., Command]
) -> None:
    command = start("lock", "dock", *LONG, "--json", "--", "sleep", "1000")
    pid = command.news("started")["pid"]
    group.wipe()
    assert command.news("lost")["grace_s"] == 0.0
    assert command.end()[0] == 75
    assert has_ended(pid)


@pytest.mark.spec("CRD-09")
@pytest.mark.parametrize("kind", ["lock", "lead"])
def test_killing_the_owner_ends_the_command_at_once(start: Callable[..., Command], kind: str) -> None:
    # A lease so long that its end cannot be the reason.
    owner = start(kind, "dock", "--ttl", "600", "--json", "--", "sh", "-c", "sleep 1000 & echo $!; wait")
    sleeper = int(owner.line())
    pid = owner.news("started")["pid"]
    owner.process.kill()
    # Its output ends when the last process has ended that could write to it: the guardian too.
    assert owner.end()[:2] == (-signal.SIGKILL, "")
    assert has_ended(pid)
    assert has_ended(sleeper)


@pytest.mark.spec("CRD-09")
@pytest.mark.parametrize("kind", ["lock", "lead"])
def test_an_owner_that_stands_still_has_its_command_ended_before_the_next_begins(
    start: Callable[..., Command], kind: str
) -> None:
    # Long enough that a busy machine does not lose it before its time.
    ttl = ("--ttl", "5")
    first = start(kind, "dock", *ttl, "--json", "--", "sh", "-c", "trap '' TERM; echo $$; exec sleep 1000")
    pid = int(first.line())
    script = f"kill -0 {pid} 2>/dev/null && echo both; echo one"
    second = start(kind, "dock", *ttl, "--json", "--", "sh", "-c", script)
    second.news("waiting" if kind == "lock" else "campaigning")
    first.process.send_signal(signal.SIGSTOP)
    assert second.end()[:2] == (0, "one\n")
    first.process.send_signal(signal.SIGCONT)
    # It finds out for itself, and says why.
    assert "stuck" in first.news("lost")["text"]
    if kind == "lock":
        assert first.end()[0] == 75
    else:
        assert int(first.line()) != pid
        assert first.stop(signal.SIGKILL)[0] == -signal.SIGKILL


def test_a_command_runs_on_for_longer_than_a_lease(where: dict[str, str]) -> None:
    assert run("lock", "dock", *TTL, "--", "sleep", "3", env=where) == (0, "", "")


def test_a_command_without_a_guardian_is_stopped(start: Callable[..., Command]) -> None:
    owner = start("lock", "dock", *LONG, "--json", "--", "sleep", "1000")
    pid = owner.news("started")["pid"]
    os.kill(parent_of(pid), signal.SIGKILL)
    assert "guardian ended" in owner.news("lost")["text"]
    assert owner.end()[0] == 75
    assert has_ended(pid)


def test_a_guardian_that_stands_still_saves_no_command_whose_lock_is_lost(
    group: EtcdGroup, start: Callable[..., Command]
) -> None:
    owner = start("lock", "dock", *LONG, "--json", "--", "sleep", "1000")
    pid = owner.news("started")["pid"]
    os.kill(parent_of(pid), signal.SIGSTOP)
    group.wipe()
    assert owner.end()[0] == 75
    assert has_ended(pid)


def test_a_leader_without_a_guardian_leads_again_with_another(start: Callable[..., Command]) -> None:
    leader = start("lead", "dock", *LONG, "--json", "--", "sleep", "1000")
    os.kill(parent_of(leader.news("started")["pid"]), signal.SIGKILL)
    leader.news("lost")
    assert is_alive(leader.news("started")["pid"])
    assert leader.stop(signal.SIGTERM)[0] == 143


def test_a_command_that_ends_leaves_no_process_behind(where: dict[str, str], tmp_path: Path) -> None:
    mark = f"HANSA_TEST_MARK={tmp_path}"
    name, _, value = mark.partition("=")
    status, out, _ = run("lock", "dock", *LONG, "--", "sh", "-c", "echo $PPID", env={**where, name: value})
    assert status == 0
    assert has_ended(int(out))
    assert not [path for path in Path("/proc").glob("[0-9]*/environ") if mark.encode() in environ(path)]


def environ(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.spec("CRD-08")
def test_one_leads_and_the_other_takes_over_when_it_is_killed(start: Callable[..., Command]) -> None:
    script = "echo $HANSA_TERM; exec sleep 1000"
    first = start("lead", "harbour", *TTL, "--json", "--", "sh", "-c", script)
    term = int(first.line())
    assert first.news("leading")["term"] == term
    second = start("lead", "harbour", *TTL, "--json", "--", "sh", "-c", script)
    second.news("campaigning")
    first.process.kill()
    assert int(second.line()) > term
    assert second.stop(signal.SIGTERM)[0] == 143


@pytest.mark.spec("CRD-08")
def test_a_leader_that_lost_it_campaigns_again(group: EtcdGroup, start: Callable[..., Command]) -> None:
    script = "echo $HANSA_TERM; exec sleep 1000"
    leader = start("lead", "harbour", *TTL, "--json", "--", "sh", "-c", script)
    term = int(leader.line())
    group.pause_all()
    assert "could not renew" in leader.news("lost")["text"]
    group.resume_all()
    assert int(leader.line()) > term
    assert leader.stop(signal.SIGTERM)[0] == 143
    once = start("lead", "harbour", *TTL, "--once", "--json", "--", "sh", "-c", script)
    once.line()
    group.wipe()
    assert once.end()[0] == 75


@pytest.mark.spec("CRD-08", "CRD-11")
def test_who_waits_to_lead_outlives_a_store_that_is_away(
    group: EtcdGroup, start: Callable[..., Command]
) -> None:
    leader = start(
        "lead", "harbour", "--ttl", "5", "--once", "--json", "--", "sh", "-c", READY + "exec sleep 1000"
    )
    leader.line()
    candidate = start("lead", "harbour", "--ttl", "5", "--json", "--", "echo", "takes over")
    candidate.news("campaigning")
    group.pause_all()
    candidate.news("trouble")
    assert leader.end()[0] == 75
    group.resume_all()
    assert candidate.end()[:2] == (0, "takes over\n")


def test_a_leader_whose_command_ends_hands_over_and_ends(where: dict[str, str]) -> None:
    status, out, err = run(
        "lead", "harbour", *LONG, "--", "sh", "-c", "echo $HANSA_ELECTION; exit 5", env=where
    )
    assert (status, out) == (5, "harbour\n")
    assert "leading harbour, term" in err


@pytest.mark.parametrize("kind", ["lock", "lead"])
def test_what_cannot_work_is_told_in_a_sentence(kind: str, where: dict[str, str]) -> None:
    nowhere = ("--ttl", "1", "--store", "etcd://127.0.0.1:1")
    for arguments, status in (
        (["x"], 2),
        (["a/b", "--", "true"], 2),
        (["x", "--tyr", "--", "true"], 2),
        (["x", "--store", "memory://x", "--", "true"], 2),
        (["x", *nowhere, "--", "true"], 1),
    ):
        found, out, err = (run_here if status == 2 else run)(kind, *arguments, env=where)
        assert (found, out) == (status, ""), err
        assert "Traceback" not in err
        assert err.startswith(f"hansa {kind}: ")
    failed, out, err = run(kind, "x", *nowhere, "--json", "--", "true", env=where)
    assert (failed, out) == (1, "")
    told = json.loads(err.splitlines()[-1])
    assert told["event"] == "failed"
    assert told["error"] in ("store-unavailable", "timed-out")


def test_the_help_has_examples_and_options_that_contradict_are_refused(where: dict[str, str]) -> None:
    assert run_here("lock", "x", "--try", "--timeout", "1", "--", "true", env=where)[0] == 2
    assert "hansa lock nightly -- ./backup.sh" in run_here("lock", "--help")[1]
    assert "hansa lead scheduler -- ./scheduler --port 8080" in run_here("lead", "--help")[1]
