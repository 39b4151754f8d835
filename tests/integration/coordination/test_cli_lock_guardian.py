"""The guardian of a command: a real process, with real commands and signals, and no store."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hansa import clock
from hansa.cli import command_guardian
from hansa.cli.command_guardian import now_s
from hansa.cli.guarded_command import Ended, GuardedCommand, Guardian, StopTimes, TooLate

# Far enough for a command that a test ends by itself.
LONG_S = 600.0
WAIT_S = 30.0


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    with Guardian() as guardian:
        yield guardian


@pytest.fixture
async def command(guardian: Guardian) -> AsyncIterator[GuardedCommand]:
    command = GuardedCommand(guardian)
    yield command
    if command.pid and command.end is None:
        await command.force()


def soon(seconds: float) -> StopTimes:
    now = now_s()
    return StopTimes.between(now + seconds, now + 2 * seconds)


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def said(path: Path) -> str:
    """What a command wrote to a file, once it is a whole line."""
    async with asyncio.timeout(WAIT_S):
        while not (text := read(path)).endswith("\n"):
            await asyncio.sleep(0.005)
    return text.strip()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while is_there(pid):
            await asyncio.sleep(0.005)


def test_the_guardian_goes_by_the_clock_of_the_session() -> None:
    """They exchange absolute times; the guardian is run without the rest of hansa, and so has its own."""
    assert command_guardian._UNRESTING == clock._UNRESTING


async def test_a_command_has_its_arguments_and_variables_and_a_session_of_its_own(
    command: GuardedCommand, tmp_path: Path
) -> None:
    script = 'echo "$0|$1|$2|$COLOUR|$(ps -o sid= -p $$ | tr -d " ")" > "$OUT"; exit 9'
    env = {"COLOUR": "a=b\n ", "OUT": str(tmp_path / "out")}
    await command.start(["sh", "-c", script, "", "\n", "c d"], env, soon(LONG_S))
    assert await command.wait() == Ended(status=9, was_stopped=False)
    assert (tmp_path / "out").read_text() == f"|\n|c d|a=b\n |{command.pid}\n"


async def test_an_argument_longer_than_any_buffer_arrives(command: GuardedCommand) -> None:
    words = ["x" * 100_000] * 8
    await command.start(["sh", "-c", f'test "${{#8}}" -eq {len(words[0])}', "sh", *words], {}, soon(LONG_S))
    assert await command.wait() == Ended(status=0, was_stopped=False)


async def test_what_cannot_run_is_an_error_and_the_next_one_runs(command: GuardedCommand) -> None:
    with pytest.raises(FileNotFoundError):
        await command.start(["/no/such/command"], {}, soon(LONG_S))
    with pytest.raises(PermissionError):
        await command.start(["/etc"], {}, soon(LONG_S))
    with pytest.raises(TooLate):
        await command.start(["true"], {}, soon(-1.0))
    await command.start(["true"], {}, soon(LONG_S))
    assert await command.wait() == Ended(status=0, was_stopped=False)


async def test_signals_reach_all_of_a_command_also_those_sent_before_it_ran(command: GuardedCommand) -> None:
    command.signal(signal.SIGUSR1)
    await command.start(["sleep", "1000"], {}, soon(LONG_S))
    assert await command.wait() == Ended(status=-signal.SIGUSR1, was_stopped=False)


async def test_signals_of_an_interpreter_are_as_a_command_expects_them(
    command: GuardedCommand, tmp_path: Path
) -> None:
    script = 'grep SigIgn /proc/self/status > "$OUT"'
    await command.start(["sh", "-c", script], {"OUT": str(tmp_path / "out")}, soon(LONG_S))
    await command.wait()
    ignored = int((tmp_path / "out").read_text().split()[1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGTERM - 1 | 1 << signal.SIGCHLD - 1)


@pytest.mark.spec("CRD-09")
async def test_silence_of_the_owner_stops_the_command_with_all_that_it_started(
    command: GuardedCommand, tmp_path: Path
) -> None:
    script = 'trap "" TERM; sleep 1000 & echo $! > "$OUT"; wait'
    times = soon(1.0)
    await command.start(["sh", "-c", script], {"OUT": str(tmp_path / "out")}, times)
    sleeper = int(await said(tmp_path / "out"))
    assert await command.wait() == Ended(status=-signal.SIGKILL, was_stopped=True)
    assert times.kill_s <= now_s() < times.kill_s + 1.0
    await gone(sleeper)


async def test_a_command_runs_on_while_the_owner_says_so(command: GuardedCommand, tmp_path: Path) -> None:
    first = soon(0.3)
    await command.start(["sleep", "1000"], {}, first)
    second = StopTimes.between(first.force_s + 0.3, first.force_s + 0.6)
    command.keep(second)
    assert await command.wait() == Ended(status=-signal.SIGTERM, was_stopped=True)
    assert now_s() >= second.term_s


async def test_a_lost_command_may_end_by_itself_and_those_it_left_are_killed(
    command: GuardedCommand, tmp_path: Path
) -> None:
    script = "trap 'exit 4' TERM; (trap '' TERM; exec sleep 1000) & echo $! > \"$OUT\"; wait"
    await command.start(["sh", "-c", script], {"OUT": str(tmp_path / "out")}, soon(LONG_S))
    sleeper = int(await said(tmp_path / "out"))
    command.stop(soon(LONG_S))
    assert await command.wait() == Ended(status=4, was_stopped=True)
    await gone(sleeper)


async def test_without_time_left_a_command_is_killed_at_once(command: GuardedCommand) -> None:
    await command.start(["sh", "-c", "trap '' TERM; sleep 1000"], {}, soon(LONG_S))
    command.stop(StopTimes.at_once(now_s()))
    assert await command.wait() == Ended(status=-signal.SIGKILL, was_stopped=True)


async def test_an_early_word_ends_what_a_command_left_in_the_background_alone(
    command: GuardedCommand, tmp_path: Path
) -> None:
    script = 'sleep 1000 & echo $! > "$OUT"'
    await command.start(["sh", "-c", script], {"OUT": str(tmp_path / "out")}, soon(LONG_S))
    assert await command.wait() == Ended(status=0, was_stopped=False)
    sleeper = int(await said(tmp_path / "out"))
    assert is_there(sleeper)
    os.kill(sleeper, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_the_guardian_does_not_end_by_a_signal_that_is_meant_for_others(
    guardian: Guardian, command: GuardedCommand, number: int
) -> None:
    await command.start(["sleep", "1000"], {}, soon(LONG_S))
    os.kill(guardian.pid, number)
    command.signal(signal.SIGUSR2)
    assert await command.wait() == Ended(status=-signal.SIGUSR2, was_stopped=False)
    assert os.getsid(guardian.pid) == guardian.pid


async def test_a_killed_guardian_is_noticed_and_replaced(guardian: Guardian, command: GuardedCommand) -> None:
    await command.start(["sleep", "1000"], {}, soon(LONG_S))
    first = guardian.pid
    os.kill(first, signal.SIGKILL)
    assert await command.wait() is None
    await command.force()
    assert not is_there(command.pid)
    again = GuardedCommand(guardian)
    await again.start(["true"], {}, soon(LONG_S))
    assert await again.wait() == Ended(status=0, was_stopped=False)
    assert guardian.pid != first


async def test_a_guardian_that_stands_still_is_passed_over(
    guardian: Guardian, command: GuardedCommand
) -> None:
    await command.start(["sleep", "1000"], {}, soon(LONG_S))
    os.kill(guardian.pid, signal.SIGSTOP)
    command.stop(StopTimes.at_once(now_s()))
    await command.force()
    assert not is_there(command.pid)
    assert not is_there(guardian.pid)


async def test_a_guardian_that_stands_still_starts_nothing_later(guardian: Guardian, tmp_path: Path) -> None:
    os.kill(guardian.pid, signal.SIGSTOP)
    with pytest.raises(TooLate):
        await GuardedCommand(guardian).start(["touch", str(tmp_path / "out")], {}, soon(0.05))
    assert not is_there(guardian.pid)
    assert not (tmp_path / "out").exists()


async def test_a_start_that_is_cancelled_leaves_nothing(guardian: Guardian, tmp_path: Path) -> None:
    os.kill(guardian.pid, signal.SIGSTOP)
    script = 'echo $$ > "$OUT"; exec sleep 1000'
    command = GuardedCommand(guardian)
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(
            command.start(["sh", "-c", script], {"OUT": str(tmp_path / "out")}, soon(LONG_S))
        )
        await asyncio.sleep(0)
        starting.cancel()
    os.kill(guardian.pid, signal.SIGCONT)
    started, pid = await guardian.answer()
    assert started == b"started"
    assert (await guardian.answer())[0] == b"ended"
    assert not is_there(int(pid))
