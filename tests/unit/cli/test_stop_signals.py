"""Signals end a block in order."""

import asyncio
import os
import signal

import pytest

from hansa.cli.stop_signals import until_stopped

WITHIN_S = 20.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_cancels_the_block_and_the_program_goes_on(number: int) -> None:
    closed = False
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    async with asyncio.timeout(WITHIN_S), until_stopped() as cut:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # Closing takes its time, and is not cancelled again.
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
            closed = True
    assert closed
    assert cut.was_made
    assert problems == []


async def test_a_block_that_ends_by_itself_was_not_cut() -> None:
    async with until_stopped() as cut:
        pass
    assert not cut.was_made
    handlers = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    assert handlers == (signal.SIG_DFL, signal.default_int_handler)


async def test_errors_and_other_cancellations_pass_through() -> None:
    with pytest.raises(KeyError):
        async with until_stopped():
            raise KeyError
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0), until_stopped():
            await asyncio.Event().wait()
