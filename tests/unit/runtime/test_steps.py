"""What threads ask of a loop is done there, in order, or refused; it is never forgotten."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from hansa.errors import AlreadyClosed, HansaError, UsageError
from hansa.limits import SIGNAL_LOOK_S
from hansa.runtime.steps import Answer, LooseStep, Step, Steps, wait_for
from tests.support.interrupts import interrupted_after
from tests.support.loop_thread import WITHIN_S, LoopThread, loop_thread


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with loop_thread() as thread:
        yield thread


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def test_steps_run_in_the_loops_thread_in_the_order_of_each_thread(loop: LoopThread) -> None:
    seen: list[tuple[int, int, str]] = []

    def note(number: int, step: int) -> None:
        seen.append((number, step, threading.current_thread().name))

    def post(number: int) -> None:
        for step in range(500):
            loop.steps.post(LooseStep(partial(note, number, step)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(post, range(4)))
    loop.inside(lambda: None)  # After all of them.
    assert {name for _, _, name in seen} == {"test loop"}
    for number in range(4):
        assert [step for who, step, _ in seen if who == number] == list(range(500))


def test_a_step_that_posts_another_lets_the_loop_run_in_between(loop: LoopThread) -> None:
    happened: list[str] = []

    def first() -> None:
        asyncio.get_running_loop().call_soon(happened.append, "the loop")
        loop.steps.post(LooseStep(lambda: happened.append("second")))

    loop.inside(first)
    loop.inside(lambda: None)
    assert happened == ["the loop", "second"]


def test_values_and_errors_come_to_the_thread_that_asked(loop: LoopThread) -> None:
    async def succeed() -> int:
        await asyncio.sleep(0)
        return 7

    async def fail() -> int:
        await asyncio.sleep(0)
        raise LookupError("not here")

    assert loop.steps.call(succeed, "asking") == 7
    with pytest.raises(LookupError, match="not here"):
        loop.steps.call(fail, "asking")
    assert loop.steps.run(lambda: 8) == 8
    with pytest.raises(ZeroDivisionError):
        loop.steps.run(lambda: 1 // 0)


def test_in_the_loops_own_thread_waiting_is_refused_with_advice(loop: LoopThread) -> None:
    def inside() -> None:
        assert loop.steps.run(lambda: 3) == 3  # Does not wait.
        loop.steps.call(forever, "waiting for Godot")

    with pytest.raises(UsageError, match=r"waiting for Godot waits, .*: ask somebody else"):
        loop.inside(inside)


def test_closing_ends_what_waits_and_refuses_what_comes() -> None:
    loop = LoopThread()
    with ThreadPoolExecutor(3) as pool:
        begun = threading.Semaphore(0)

        async def wait() -> None:
            begun.release()
            await forever()

        waiting = [pool.submit(loop.steps.call, wait, "waiting") for _ in range(3)]
        for _ in range(3):
            assert begun.acquire(timeout=WITHIN_S)
        loop.leave()
        for future in waiting:
            with pytest.raises(AlreadyClosed, match="waiting was given up"):
                future.result(WITHIN_S)
    with pytest.raises(AlreadyClosed, match="closed before the call"):
        loop.steps.run(lambda: None)
    with pytest.raises(AlreadyClosed):
        loop.steps.call(forever, "waiting")


async def test_what_was_begun_has_ended_when_it_is_closed() -> None:
    steps = Steps("test", "")
    begun, ended = asyncio.Event(), []

    async def wait() -> None:
        try:
            begun.set()
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append("ended")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(steps.call, wait, "waiting")
        await begun.wait()
        await steps.close()
        assert ended == ["ended"]
        assert isinstance(waiting.exception(WITHIN_S), AlreadyClosed)
    await steps.close()  # Twice does no harm.


def test_every_call_has_one_outcome_while_another_thread_closes() -> None:
    async def soon() -> None:
        await asyncio.sleep(0)

    for _ in range(20):
        loop = LoopThread()
        begun = threading.Semaphore(0)

        def caller(steps: Steps, begun: threading.Semaphore) -> str:
            begun.release()
            while True:
                try:
                    steps.run(lambda: None)
                    steps.call(soon, "a short wait")
                except AlreadyClosed:
                    return "closed"

        with ThreadPoolExecutor(6) as pool:
            callers = [pool.submit(caller, loop.steps, begun) for _ in range(6)]
            for _ in callers:
                assert begun.acquire(timeout=WITHIN_S)
            loop.leave()
            assert Counter(future.result(WITHIN_S) for future in callers) == {"closed": 6}


def test_a_loop_that_ends_without_closing_refuses_as_well() -> None:
    loop = LoopThread(closes=False)
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await forever()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(loop.steps.call, wait, "waiting")
        assert begun.wait(WITHIN_S)
        loop.leave()
        assert isinstance(waiting.exception(WITHIN_S), AlreadyClosed)
    with pytest.raises(AlreadyClosed, match="the event loop of test has ended"):
        loop.steps.run(lambda: None)


def test_a_loop_that_was_closed_with_its_tasks_alive_refuses() -> None:
    async def make() -> Steps:
        steps = Steps("test", "")
        await asyncio.sleep(0)
        return steps

    loop = asyncio.new_event_loop()
    # It tells of the task that was never ended, which is what this is about.
    loop.set_exception_handler(lambda loop, context: None)
    steps = loop.run_until_complete(make())
    loop.close()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(steps.run, lambda: None)
        with pytest.raises(AlreadyClosed, match="the event loop of test is closed"):
            asked.result(WITHIN_S)
    del steps, asked
    gc.collect()


def test_an_interrupt_returns_when_what_it_interrupts_has_ended(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), []

    async def wait() -> None:
        try:
            begun.set()
            await forever()
        finally:
            await asyncio.sleep(0.05)  # Tidying up takes its time.
            ended.append("ended")

    def interrupted(outcome: Answer[None]) -> None:
        monkeypatch.undo()
        assert begun.wait(WITHIN_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(Answer, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.steps.call(wait, "waiting")
    assert ended == ["ended"]


@pytest.mark.parametrize("wakes", [True, False])
def test_an_interrupt_ends_a_wait_that_has_begun_and_one_that_is_about_to(
    loop: LoopThread, wakes: bool
) -> None:
    begun, ends = threading.Event(), []

    async def wait() -> None:
        begun.set()
        try:
            ends.append(await asyncio.sleep(WITHIN_S, "waited to the end"))
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    with interrupted_after(lambda: begun.wait(WITHIN_S), wakes=wakes):
        loop.steps.call(wait, "waiting")
    assert ends == ["cancelled"]


def test_a_thread_that_no_interrupt_ends_waits_without_looking_up() -> None:
    class CountingLock:
        """What is waited on; released at the third look."""

        def __init__(self) -> None:
            self.waits_s: list[float] = []

        def acquire(self, blocking: bool, timeout_s: float) -> bool:
            self.waits_s.append(timeout_s)
            return timeout_s < 0 or len(self.waits_s) == 3

    def waits_s() -> list[float]:
        lock: Any = CountingLock()
        assert wait_for(lock)
        return list(lock.waits_s)

    assert waits_s() == [SIGNAL_LOOK_S] * 3
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(waits_s).result(WITHIN_S) == [-1]


def test_an_interrupt_before_anything_was_asked_waits_for_nothing(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(steps: Steps, step: Step) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Steps, "post", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.steps.call(forever, "waiting")


def test_an_interrupt_while_it_is_closed_returns_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LoopThread()

    def interrupted(outcome: Answer[None]) -> None:
        monkeypatch.undo()
        loop.leave()
        outcome.is_settled = False  # As if this thread had not seen it yet.
        raise KeyboardInterrupt

    monkeypatch.setattr(Answer, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.steps.call(forever, "waiting")


class InterruptedLoop:
    """A loop of which a thread is interrupted, once, just before or just after it has woken it."""

    def __init__(self, inner: asyncio.AbstractEventLoop, *, is_woken: bool) -> None:
        self._inner = inner
        self._is_woken = is_woken
        self._is_due = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        is_due, self._is_due = self._is_due, False
        if self._is_woken or not is_due:
            self._inner.call_soon_threadsafe(callback)
        if is_due:
            raise KeyboardInterrupt


@pytest.mark.parametrize("is_woken", [True, False])
def test_an_interrupt_on_the_way_in_leaves_the_way_open_and_no_task(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch, is_woken: bool
) -> None:
    steps = loop.steps
    monkeypatch.setattr(steps, "_loop", InterruptedLoop(steps._loop, is_woken=is_woken))
    with pytest.raises(KeyboardInterrupt):
        steps.call(forever, "waiting")
    assert loop.awaited(five) == 5
    assert loop.inside(lambda: len(steps._tasks._tasks)) == 1  # That of the steps themselves.
    monkeypatch.setattr(steps, "_loop", InterruptedLoop(steps._loop, is_woken=is_woken))
    with pytest.raises(KeyboardInterrupt):
        steps.run(lambda: None)
    assert loop.awaited(five) == 5
    monkeypatch.undo()


async def five() -> int:
    await asyncio.sleep(0)
    return 5


def test_after_a_fork_everything_is_refused_and_the_loop_is_left_alone(loop: LoopThread) -> None:
    async def make() -> Steps:
        return Steps("copy", "")

    copy = loop.awaited(make)
    copy.forked()
    calls: list[Callable[[], None]] = [
        lambda: copy.run(lambda: None),
        lambda: copy.call(forever, "waiting"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="fork"):
            call()
        # A child that was forked in the loop's thread has that thread's number.
        with pytest.raises(UsageError, match="fork"):
            loop.inside(call)
    loop.awaited(copy.close)


def test_an_old_thread_number_is_no_longer_the_loops() -> None:
    loop = LoopThread()
    ident = loop.steps.ident
    loop.leave()
    assert ident != 0
    assert loop.steps.ident == 0


def test_each_refusal_is_an_error_of_its_own() -> None:
    loop = LoopThread()
    loop.leave()
    found: list[HansaError] = []
    for _ in range(2):
        with pytest.raises(AlreadyClosed) as caught:
            loop.steps.run(lambda: None)
        found.append(caught.value)
    assert found[0] is not found[1]
