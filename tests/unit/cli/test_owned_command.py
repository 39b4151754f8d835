"""What signals do to a command, and to the wait for one."""

from __future__ import annotations

import asyncio
import signal

import pytest

from hansa.cli.guarded_command import GuardedCommand, Guardian
from hansa.cli.owned_command import Relay


class Recorded(GuardedCommand):
    """A command that only writes down what it is sent."""

    def __init__(self) -> None:
        super().__init__(Guardian())
        self.got: list[int] = []

    def signal(self, number: int) -> None:
        self.got.append(number)


async def test_the_first_signal_ends_a_wait_and_others_leave_it_in_peace() -> None:
    async with asyncio.timeout(None) as never:
        relay = Relay(never)
        relay.receive(signal.SIGUSR1)
        relay.receive(signal.SIGWINCH)
        await asyncio.sleep(0)
        assert relay.signalled is None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as scope:
            relay = Relay(scope)
            relay.receive(signal.SIGINT)
            try:
                await asyncio.Event().wait()
            finally:
                # While it ends, which may take a while.
                relay.receive(signal.SIGTERM)
    assert relay.signalled == signal.SIGINT


async def test_while_a_command_runs_signals_are_for_it_alone() -> None:
    async with asyncio.timeout(None) as scope:
        relay, command = Relay(scope), Recorded()
        with relay.running(command):
            for number in (signal.SIGTERM, signal.SIGWINCH):
                relay.receive(number)
            await asyncio.sleep(0)
        assert command.got == [signal.SIGTERM, signal.SIGWINCH]
        assert relay.signalled is None


async def test_a_signal_to_a_command_that_is_being_stopped_means_the_owner_too() -> None:
    async with asyncio.timeout(None) as scope:
        relay, command = Relay(scope), Recorded()
        with relay.running(command):
            command.is_stopped = True
            relay.receive(signal.SIGUSR2)
            assert relay.signalled is None
            relay.receive(signal.SIGTERM)
            # It may use up the time that it has.
            await asyncio.sleep(0)
        assert command.got == [signal.SIGUSR2, signal.SIGTERM]
        assert relay.signalled == signal.SIGTERM
