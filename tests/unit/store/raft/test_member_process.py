"""When a member is started again, and that its process is started, stopped and shown so."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.clock import SystemClock
from hansa.errors import InvariantBroken
from hansa.limits import RAFT_CRASHES_MAX
from hansa.runtime.backoff import Backoff
from hansa.runtime.tasks import in_thread
from hansa.store.raft import member_process
from hansa.store.raft.member_process import (
    Kill,
    Launch,
    MemberProcess,
    ProcessState,
    Report,
    Supervision,
    Terminate,
)


@pytest.fixture
def supervision() -> Supervision:
    backoff = Backoff(s_min=1.0, s_max=8.0, jitter=0.2, chance=Chance.seeded(1))
    return Supervision(backoff, stable_s=30.0, stop_s_max=10.0)


def crash(supervision: Supervision, now: float) -> float:
    """Let it end, wait, and start again; gives the pause."""
    supervision.exited(now=now)
    assert supervision.deadline is not None
    pause_s = supervision.deadline - now
    assert supervision.tick(now=supervision.deadline - 0.001) == []
    assert supervision.tick(now=supervision.deadline) == [Launch()]
    return pause_s


def test_it_is_started_once(supervision: Supervision) -> None:
    assert supervision.start() == [Launch()]
    with pytest.raises(InvariantBroken):
        supervision.start()


def test_pauses_between_starts_grow_to_their_bound_and_are_moved_by_chance(supervision: Supervision) -> None:
    supervision.start()
    supervision.ready(now=0.0)
    pauses = [crash(supervision, 0.0) for _ in range(6)]
    for pause_s, planned_s in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert planned_s * 0.8 <= pause_s <= planned_s * 1.2
        assert pause_s != planned_s
    assert supervision.restarts_count == 6


def test_one_that_ran_for_long_starts_again_soon(supervision: Supervision) -> None:
    supervision.start()
    for _ in range(3):
        supervision.ready(now=0.0)
        crash(supervision, 1.0)
    supervision.ready(now=100.0)
    assert crash(supervision, 130.0) <= 1.2
    assert supervision.crashes_count == 1


def test_one_that_was_never_ready_is_given_up_and_reported(supervision: Supervision) -> None:
    supervision.start()
    for _ in range(RAFT_CRASHES_MAX - 1):
        crash(supervision, 0.0)
    assert supervision.exited(now=0.0) == [Report(crashes_count=RAFT_CRASHES_MAX, is_final=True)]
    assert supervision.state is ProcessState.ENDED
    assert supervision.deadline is None


def test_one_that_was_ready_once_is_reported_and_tried_for_ever(supervision: Supervision) -> None:
    supervision.start()
    supervision.ready(now=0.0)
    for _ in range(RAFT_CRASHES_MAX - 1):
        crash(supervision, 0.0)
    assert supervision.exited(now=0.0) == [Report(crashes_count=RAFT_CRASHES_MAX, is_final=False)]
    assert supervision.state is ProcessState.RESTING
    assert supervision.tick(now=100.0) == [Launch()]


def test_stopping_asks_first_and_kills_at_the_deadline(supervision: Supervision) -> None:
    supervision.start()
    assert supervision.stop(now=5.0) == [Terminate()]
    assert supervision.tick(now=14.9) == []
    assert supervision.tick(now=15.0) == [Kill()]
    assert supervision.tick(now=16.0) == []
    assert supervision.exited(now=16.0) == []
    assert supervision.state is ProcessState.ENDED


def test_asking_to_stop_twice_is_asking_once(supervision: Supervision) -> None:
    supervision.start()
    supervision.stop(now=0.0)
    assert supervision.stop(now=9.0) == []
    assert supervision.tick(now=10.0) == [Kill()]


def test_one_that_rests_is_not_started_after_it_was_stopped(supervision: Supervision) -> None:
    supervision.start()
    supervision.exited(now=0.0)
    assert supervision.stop(now=0.1) == []
    assert supervision.state is ProcessState.ENDED
    assert supervision.tick(now=100.0) == []


def test_one_that_ends_when_asked_is_not_started_again(supervision: Supervision) -> None:
    supervision.start()
    supervision.stop(now=0.0)
    supervision.exited(now=0.1)
    assert supervision.tick(now=100.0) == []
    assert supervision.crashes_count == 0


WITHIN_S = 20.0


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the log do not wake it: what must be acted on at once wakes it by itself."""
    monkeypatch.setattr(member_process, "_LOG_LOOK_S", 3600.0)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return write


class Stage:
    """A process and what was told of it."""

    def __init__(self, program: Path, *, stop_s_max: float = 10.0) -> None:
        self.restarts: list[int | None] = []
        self.reports: list[Report] = []
        self.log_path = program.parent / "log"
        backoff = Backoff(s_min=0.01, s_max=0.02, jitter=0.1, chance=Chance.seeded(1))
        self.process = MemberProcess(
            [str(program), "a b"],
            env={"PATH": os.environ["PATH"], "WORD": "hello"},
            log_path=self.log_path,
            supervision=Supervision(backoff, stop_s_max=stop_s_max),
            clock=SystemClock(),
            on_restart=self.restarts.append,
            on_report=self.reports.append,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MemberProcess]:
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
            task = group.create_task(self.process.run())
            try:
                yield self.process
            finally:
                task.cancel()

    async def logged(self, word: str) -> None:
        while not self.log_path.exists() or word not in self.log_path.read_text():
            await asyncio.sleep(0.01)


def open_files() -> set[str]:
    return {os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_gets_its_arguments_and_environment_and_writes_its_log(
    script: Callable[[str], Path],
) -> None:
    stage = Stage(script('echo "$1 $WORD" $ETCD_NAME >&2; exec sleep 60'))
    async with stage.running() as process:
        await stage.logged("a b hello")
        assert process.pid is not None
        # Ctrl-C in a terminal is for the peer alone.
        assert os.getpgid(process.pid) == process.pid
        # The log is the process's own: its writer is not held open here, restart after restart.
        assert str(stage.log_path) not in open_files()


async def test_it_is_started_again_with_how_it_ended(script: Callable[[str], Path]) -> None:
    stage = Stage(script("exec sleep 60"))
    async with stage.running() as process:
        while process.pid is None:
            await asyncio.sleep(0.01)
        process.ready()
        first = process.pid
        os.kill(first, signal.SIGKILL)
        while not stage.restarts:
            await asyncio.sleep(0.01)
        assert stage.restarts == [-signal.SIGKILL]
        assert process.pid not in (None, first)
        assert not is_alive(first)


async def test_one_that_does_not_listen_is_killed_in_the_end(script: Callable[[str], Path]) -> None:
    stage = Stage(script("trap '' TERM; echo ready; while :; do sleep 0.05; done"), stop_s_max=0.2)
    async with stage.running() as process:
        await stage.logged("ready")
        pid = process.pid
        assert pid is not None
        await process.stop()
        assert not is_alive(pid)
        assert process.exit_status == -signal.SIGKILL
        assert process.state is ProcessState.ENDED
        await process.stop()


async def test_one_that_listens_ends_by_itself(script: Callable[[str], Path]) -> None:
    stage = Stage(script("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
    async with stage.running() as process:
        await stage.logged("ready")
        await process.stop()
        assert process.exit_status == 7
    assert stage.restarts == []


async def test_cancelling_ends_the_process_before_it_returns(script: Callable[[str], Path]) -> None:
    stage = Stage(script("trap '' TERM; echo ready; while :; do sleep 0.05; done"))
    async with stage.running() as process:
        await stage.logged("ready")
        pid = process.pid
        assert pid is not None
    assert not is_alive(pid)


async def test_one_that_never_was_ready_is_given_up_with_its_words(script: Callable[[str], Path]) -> None:
    stage = Stage(script("echo no such disk; exit 1"))
    async with stage.running() as process:
        await process.ended.wait()
    assert [report.is_final for report in stage.reports] == [True]
    assert process.log_tail() == "no such disk"


async def test_one_that_cannot_be_started_for_a_while_is_tried_again(
    script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(script("exec sleep 60"))
    start, failures = subprocess.Popen, [OSError(12, "Cannot allocate memory")] * 7

    def sometimes(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        if failures:
            raise failures.pop()
        return start(*arguments, **options)

    async with stage.running() as process:
        while process.pid is None:
            await asyncio.sleep(0.01)
        process.ready()
        first = process.pid
        monkeypatch.setattr(subprocess, "Popen", sometimes)
        os.kill(first, signal.SIGKILL)
        while not stage.reports:
            await asyncio.sleep(0.01)
        assert "Cannot allocate memory" in process.log_tail()
        while process.pid in (None, first):
            await asyncio.sleep(0.01)
        assert not failures
        assert "Cannot allocate memory" not in process.log_tail()
        assert not process.ended.is_set()


async def test_the_log_is_bounded_and_the_one_before_is_kept(
    script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_process, "RAFT_LOG_BYTES_MAX", 1000)
    monkeypatch.setattr(member_process, "_LOG_LOOK_S", 0.01)
    stage = Stage(script("while :; do echo 0123456789 0123456789 0123456789; sleep 0.001; done"))
    before = stage.log_path.with_suffix(".log.before")
    async with stage.running():
        while not before.exists():
            await asyncio.sleep(0.01)
        while stage.log_path.stat().st_size == 0:
            await asyncio.sleep(0.001)
    assert before.stat().st_size > 1000
    assert stage.log_path.stat().st_size < 100_000


async def test_one_that_nobody_can_wait_for_is_killed_before_the_next_one_starts(
    script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[subprocess.Popen[bytes]] = []

    def all_but_the_first(wait: Any, name: str) -> Any:
        launched.append(wait.__self__)
        if len(launched) == 1:
            raise RuntimeError("can't start new thread")
        return in_thread(wait, name)

    monkeypatch.setattr(member_process, "in_thread", all_but_the_first)
    stage = Stage(script("exec sleep 60"))
    async with stage.running():
        while len(launched) < 2:
            await asyncio.sleep(0.01)
        while (status := launched[0].poll()) is None:
            await asyncio.sleep(0.01)
        assert status == -signal.SIGKILL
        assert launched[1].poll() is None
