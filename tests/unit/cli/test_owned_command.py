"""What signals do to a command, and to the wait for one; and how one is stopped to be moved."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from hansa.cli.guarded_command import Ended, GuardedCommand, Guardian, StopTimes
from hansa.cli.log_lines import LogLines
from hansa.cli.owned_command import Relay, until_end_or_loss
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.session import Session
from hansa.errors import Fenced, HandoverWithdrawn, LeadershipLost
from hansa.store.memory import MemoryStore


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


# ---- moved to another node -------------------------------------------------------------------------------

ASKED = Handover(
    kind="leader",
    name="harbour",
    number=1,
    step=HandoverStep.OFFERED,
    source="host-1",
    target="host-2",
    epoch=7,
    owner_key="k",
    timeout=30.0,
    asked_by="ops",
)
Outcome = Handover | Exception
State = Callable[[], Awaitable[bytes]]


class Commanded(GuardedCommand):
    """A command that ends when it is stopped, unless it was told otherwise."""

    def __init__(self) -> None:
        super().__init__(Guardian())
        self.ends_when_stopped = True
        self.stopped: list[StopTimes] = []
        self.was_forced = False
        self._over = asyncio.Event()

    def end_with(self, status: int, *, was_stopped: bool = False) -> None:
        self.end = Ended(status=status, was_stopped=was_stopped)
        self._over.set()

    def keep(self, times: StopTimes) -> None:
        pass

    def stop(self, times: StopTimes) -> None:
        self.stopped.append(times)
        if self.ends_when_stopped:
            self.end_with(-15, was_stopped=True)

    async def wait(self) -> Ended | None:
        await self._over.wait()
        return self.end

    async def force(self) -> None:
        self.was_forced = True
        self._over.set()


class Owned:
    """Something owned that is asked for now, and what becomes of it when it is handed over."""

    def __init__(self, *outcomes: Callable[[State], Awaitable[Handover]]) -> None:
        self.outcomes = list(outcomes)
        self.loss: asyncio.Future[Fenced] = asyncio.get_running_loop().create_future()
        self.handed: list[Handover | str] = []

    async def wanted(self) -> Handover:
        if not self.outcomes:
            await asyncio.Event().wait()
        return ASKED

    async def hand_over(self, to: Handover | str, *, state: State) -> Handover:
        self.handed.append(to)
        return await self.outcomes.pop(0)(state)

    async def lost(self) -> Fenced:
        return await asyncio.shield(self.loss)

    def check(self) -> None:
        if self.loss.done():
            raise self.loss.result()


async def is_taken(state: State) -> Handover:
    """As it goes when all goes well."""
    assert await state() == b""
    return ASKED


async def is_never_ready(state: State) -> Handover:
    raise HandoverWithdrawn("the new owner was not there")


async def is_given_back(state: State) -> Handover:
    await state()
    raise HandoverWithdrawn("the new owner is gone")


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with MemoryStore() as store, Session(store, ttl=60.0, node="host-1") as session:
        yield session


@pytest.fixture
def ending(session: Session) -> Callable[[Commanded, Any], Awaitable[Any]]:
    """Waits for the end of a command as `Runner.run` does."""

    async def wait(command: Commanded, owned: Any) -> Any:
        with LogLines(as_json=True, descriptor=os.open(os.devnull, os.O_WRONLY)) as log:
            return await asyncio.wait_for(until_end_or_loss(command, owned, session, log), 10.0)

    return wait


Ending = Callable[[Commanded, Any], Awaitable[Any]]


async def test_a_command_is_stopped_and_what_was_asked_for_is_handed_over(ending: Ending) -> None:
    command, owned = Commanded(), Owned(is_taken)
    assert await ending(command, owned) is ASKED
    # That very hand-over, and not another one to the same node.
    assert owned.handed == [ASKED]
    assert len(command.stopped) == 1


async def test_a_command_runs_on_while_no_new_owner_is_ready(ending: Ending) -> None:
    command, owned = Commanded(), Owned(is_never_ready, is_never_ready, is_taken)
    stopped_counts = []

    async def counting(state: State) -> Handover:
        stopped_counts.append(len(command.stopped))
        return await is_taken(state)

    owned.outcomes[2] = counting
    assert await ending(command, owned) is ASKED
    assert stopped_counts == [0]


async def test_a_command_that_was_stopped_for_nothing_is_to_run_again(ending: Ending) -> None:
    assert await ending(Commanded(), Owned(is_given_back)) is None


async def test_a_command_that_ends_by_itself_in_the_last_moment_is_not_moved(ending: Ending) -> None:
    command = Commanded()
    command.ends_when_stopped = False
    failures: list[BaseException] = []

    async def just_too_late(state: State) -> Handover:
        asyncio.get_running_loop().call_soon(lambda: command.end_with(3))
        try:
            await state()
        except BaseException as error:
            failures.append(error)
            raise
        raise AssertionError("it was stopped")

    assert await ending(command, Owned(just_too_late)) == Ended(status=3, was_stopped=False)
    assert len(failures) == 1


async def test_a_command_that_ends_before_anybody_is_ready_calls_it_off(ending: Ending) -> None:
    command, was_called_off = Commanded(), asyncio.Event()

    async def waiting(state: State) -> Handover:
        command.end_with(3)
        try:
            await asyncio.Event().wait()
        finally:
            was_called_off.set()
        raise AssertionError

    assert await ending(command, Owned(waiting)) == Ended(status=3, was_stopped=False)
    assert was_called_off.is_set()
    assert command.stopped == []


async def test_a_loss_while_the_command_is_stopped_is_a_loss(ending: Ending) -> None:
    command, lost = Commanded(), LeadershipLost("deposed")
    command.ends_when_stopped = False

    async def losing(state: State) -> Handover:
        asyncio.get_running_loop().call_soon(owned.loss.set_result, lost)
        # As a claim does, it cancels what it waits for.
        asyncio.get_running_loop().call_later(0.01, command.end_with, -9)
        try:
            await asyncio.wait_for(state(), 0.005)
        except TimeoutError:
            raise lost from None
        raise AssertionError

    owned = Owned(losing)
    assert await ending(command, owned) is lost
    # Once more, and at once: somebody else may lead already.
    first, second = command.stopped
    assert second.kill_s < first.kill_s


async def test_a_loss_after_the_command_has_ended_is_not_taken_for_a_move(ending: Ending) -> None:
    lost = LeadershipLost("deposed")

    async def losing(state: State) -> Handover:
        await state()
        owned.loss.set_result(lost)
        raise lost

    owned = Owned(losing)
    assert await ending(Commanded(), owned) is lost


async def test_a_command_that_its_guardian_does_not_stop_is_killed_before_it_is_handed_over(
    ending: Ending, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Commanded()
    command.ends_when_stopped = False
    monkeypatch.setattr("hansa.cli.owned_command._MOVE_SHARE", 0.0)

    async def taken(state: State) -> Handover:
        await state()
        assert command.was_forced
        return ASKED

    assert await ending(command, Owned(taken)) is ASKED


async def test_a_command_is_killed_after_half_of_the_time_or_before_the_lease_can_end(
    ending: Ending, session: Session
) -> None:
    clock = session.store.clock
    for timeout_s, kill_s_max in ((10.0, 5.0), (3_600.0, session.vacant_until_s - clock.monotonic())):
        command, now = Commanded(), clock.monotonic()
        owned = Owned(is_taken)
        owned.wanted = partial(_asked, timeout_s)  # type: ignore[method-assign]
        await ending(command, owned)
        (times,) = command.stopped
        assert 0.8 * kill_s_max < times.kill_s - now < kill_s_max + 0.1


async def _asked(timeout_s: float) -> Handover:
    return replace(ASKED, timeout=timeout_s)
