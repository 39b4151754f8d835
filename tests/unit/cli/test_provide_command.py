"""A shell command as a handler: its output, its failures, its end."""

import asyncio
import os
from pathlib import Path

import pytest

from hansa.cli.provide_command import ShellHandler, failure
from hansa.errors import HandlerFailed, TimedOut
from hansa.limits import ERROR_TEXT_BYTES_MAX
from hansa.services.provider import Request
from tests.support.held_pipe import HeldPipe

WITHIN_S = 20.0


async def answer(command: str, *parts: bytes, within_s: float = WITHIN_S) -> bytes:
    failures: list[HandlerFailed] = []
    handler = ShellHandler(command, "service", on_failure=failures.append)
    deadline = asyncio.get_running_loop().time() + within_s
    try:
        return await handler(Request(list(parts), 7, 42, b"peer", deadline))
    except HandlerFailed as error:
        assert failures == [error]
        raise


@pytest.mark.spec("DIS-26")
async def test_the_parts_are_stdin_and_stdout_is_the_reply() -> None:
    assert await answer("cat", b"one", b"two") == b"onetwo"
    assert await answer('echo "$HANSA_SERVICE $HANSA_MSG_ID $HANSA_REQUEST_ID"') == b"service 7 42\n"
    assert await answer("true") == b""


async def test_more_than_a_pipe_holds_goes_both_ways() -> None:
    payload = os.urandom(1_000_000)
    assert await answer("cat", payload) == payload


@pytest.mark.parametrize("command", ["true", "exec 0<&-; sleep 0.01; true", "head -c 1 > /dev/null"])
async def test_a_command_that_does_not_read_its_input_has_not_failed(command: str) -> None:
    for _ in range(5):
        assert await answer(command, bytes(1_000_000)) == b""


@pytest.mark.parametrize(
    ("command", "reason", "text"),
    [
        ("echo why >&2; exit 3", "exit-3", "why"),
        ("exit 1", "exit-1", "the command ended with status 1 and said nothing on stderr"),
        ("kill -9 $$", "signal-9", "the command was killed by signal 9 and said nothing on stderr"),
        ("no-such-command-here", "exit-127", None),
    ],
)
async def test_a_failure_has_the_status_and_the_last_words(
    command: str, reason: str, text: str | None
) -> None:
    with pytest.raises(HandlerFailed) as failed:
        await answer(command)
    assert failed.value.reason == reason
    assert text is None or str(failed.value) == text


def test_last_words_fit_into_a_reply_whatever_they_are() -> None:
    for words in (b"x" * 5000, b"\xff" * 5000, "ü".encode() * 5000):
        assert len(str(failure(2, words)).encode()) <= ERROR_TEXT_BYTES_MAX


async def test_too_much_output_is_a_failure_and_the_command_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hansa.cli.provide_command.FRAME_BYTES_MAX", 100_000)
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(HandlerFailed) as failed:
            await answer("yes")
    assert failed.value.reason == "reply-too-large"


async def test_after_the_deadline_nothing_of_the_command_is_left(tmp_path: Path) -> None:
    held = HeldPipe(tmp_path / "held")
    with pytest.raises(TimedOut, match="killed"):
        # The shell itself has ended by then, and what it started has not.
        await answer(f"exec 9>'{held.path}'; echo began >&9; sleep 1000 &", within_s=1.5)
    async with asyncio.timeout(WITHIN_S):
        assert await asyncio.get_running_loop().run_in_executor(None, held.read_to_end) == b"began\n"


async def test_cancelling_kills_it_too(tmp_path: Path) -> None:
    held = HeldPipe(tmp_path / "held")
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        task = group.create_task(answer(f"exec 9>'{held.path}'; echo began >&9; sleep 1000"), name="handler")
        in_thread = asyncio.get_running_loop().run_in_executor
        assert await in_thread(None, held.read_line) == b"began\n"
        task.cancel()
        assert await in_thread(None, held.read_to_end) == b""


async def test_giving_up_at_any_moment_of_the_start_leaves_nothing(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    for turns_count in range(12):
        held = HeldPipe(tmp_path / f"held {turns_count}")
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
            command = f"exec 9>'{held.path}'; echo began >&9; sleep 1000"
            task = group.create_task(answer(command), name="handler")
            for _ in range(turns_count):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        with held.path.open("wb"):  # So that there is an end even if the command never came so far.
            pass
        assert await loop.run_in_executor(None, held.read_to_end) in (b"", b"began\n")
