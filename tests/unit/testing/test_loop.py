"""Virtual time: asyncio as it is, without waiting and without chance."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.testing import Deadlocked, NotSimulated, SimLoop, Stuck


def run(main: Coroutine[Any, Any, Any], *, seed: int = 1, **settings: Any) -> tuple[Any, SimLoop]:
    loop = SimLoop(Chance.seeded(seed), **settings)
    try:
        return loop.run_until_complete(main), loop
    finally:
        loop.close()


async def interleaved(names: str, rounds: int) -> str:
    order: list[str] = []

    async def work(name: str) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0.1)
            order.append(name)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(work(name), name=name)
    return "".join(order)


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        await asyncio.sleep(3_600.0)
        await asyncio.sleep(0.25)
        return loop.time() - start_s

    elapsed_s, loop = run(main())
    assert elapsed_s == 3_600.25
    assert loop.steps < 20


def test_time_stands_still_while_callbacks_run() -> None:
    async def main() -> set[float]:
        loop = asyncio.get_running_loop()
        times = set()
        for _ in range(1_000):
            await asyncio.sleep(0)
            times.add(loop.time())
        return times

    times, _ = run(main())
    assert len(times) == 1


def test_timers_fire_in_order_of_their_times() -> None:
    async def main() -> list[int]:
        loop, fired = asyncio.get_running_loop(), list[int]()
        for delay in (5, 1, 4, 2, 3):
            loop.call_later(delay, fired.append, delay)
        loop.call_later(2.5, fired.append, 0).cancel()
        await asyncio.sleep(10)
        return fired

    assert run(main())[0] == [1, 2, 3, 4, 5]


def test_the_order_of_tasks_depends_on_the_seed_and_only_on_it() -> None:
    orders = {seed: run(interleaved("abcd", 3), seed=seed)[0] for seed in range(10)}
    assert len(set(orders.values())) > 5
    for seed, order in orders.items():
        assert run(interleaved("abcd", 3), seed=seed)[0] == order


def test_a_task_group_cancels_its_tasks_in_an_order_of_the_seed() -> None:
    async def main() -> list[str]:
        ended: list[str] = []

        async def wait(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(wait(str(number)), name=str(number))
                await asyncio.sleep(0.1)
                raise ValueError
        return ended

    found = []
    held = []
    for _ in range(20):
        # Tasks lie elsewhere in memory each time.
        held.append([object() for _ in range(1_001)])
        found.append(run(main())[0])
    assert found == found[:1] * 20


def test_the_digest_tells_histories_apart() -> None:
    digests = [run(interleaved("abcd", 3), seed=seed)[1].digest() for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("seed", range(5))
def test_plain_callbacks_keep_the_order_in_which_they_were_scheduled(seed: int) -> None:
    async def main() -> list[int]:
        loop, order = asyncio.get_running_loop(), list[int]()
        for number in range(20):
            loop.call_soon(order.append, number)
            # Another lane, so that there is something to shuffle.
            await asyncio.sleep(0)
            loop.call_soon(order.append, number)
        await asyncio.sleep(1)
        return order

    assert run(main(), seed=seed)[0] == sorted([*range(20), *range(20)])


def test_what_a_turn_schedules_runs_in_the_next_turn() -> None:
    async def main() -> list[str]:
        loop, order = asyncio.get_running_loop(), list[str]()

        def first() -> None:
            loop.call_soon(order.append, "scheduled by the first")
            order.append("first")

        loop.call_soon(first)
        loop.call_soon(order.append, "second")
        await asyncio.sleep(1)
        return order

    assert run(main())[0] == ["first", "second", "scheduled by the first"]


def test_a_deadlock_is_an_error_that_says_who_waits() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait(), name="the one who waits for nothing")

    with pytest.raises(Deadlocked, match="the one who waits for nothing"):
        run(main())


def test_a_busy_loop_is_an_error_instead_of_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansa.testing.loop.INSTANT_STEPS_MAX", 1_000)

    async def main() -> None:
        for _ in range(1_000_000):
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="no time passed"):
        run(main())


def test_the_number_of_steps_is_bounded() -> None:
    async def main() -> None:
        for _ in range(1_000_000):
            await asyncio.sleep(1)

    with pytest.raises(Stuck, match="more than 500 steps"):
        run(main(), steps_max=500)


def test_timeouts_fire_at_their_virtual_time() -> None:
    async def main() -> list[float]:
        loop, times = asyncio.get_running_loop(), list[float]()
        start_s = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(100)
        times.append(loop.time() - start_s)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 7)
        times.append(loop.time() - start_s)
        async with asyncio.timeout(100):
            await asyncio.sleep(1)
        times.append(loop.time() - start_s)
        return times

    assert run(main())[0] == [5, 12, 13]


def test_a_task_group_cancels_the_rest_when_one_fails() -> None:
    async def main() -> list[str]:
        ended = []

        async def patient() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                ended.append("patient")

        async def failing() -> None:
            await asyncio.sleep(1)
            raise ValueError("enough")

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(patient())
                group.create_task(failing())

        with pytest.raises(ExceptionGroup):
            await both()
        return ended

    assert run(main())[0] == ["patient"]


def test_queues_locks_and_events_work() -> None:
    async def main() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        taken = []

        async def fill() -> None:
            for number in range(10):
                await queue.put(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(fill())
            for _ in range(10):
                taken.append(await queue.get())
        return taken

    assert run(main())[0] == list(range(10))


def test_a_dropped_generator_is_closed() -> None:
    closed = []

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(1)
            closed.append("closed")

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(2)

    run(main())
    assert closed == ["closed"]


def test_the_runner_of_asyncio_takes_the_loop() -> None:
    with asyncio.Runner(loop_factory=lambda: SimLoop(Chance.seeded(1))) as runner:
        assert runner.run(asyncio.sleep(1_000, "done")) == "done"


async def use_a_thread() -> None:
    await asyncio.to_thread(print)


async def open_a_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 80)


async def start_a_process() -> None:
    await asyncio.create_subprocess_exec("true")


async def look_up_a_name() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


@pytest.mark.parametrize("ask", [use_a_thread, open_a_connection, start_a_process, look_up_a_name])
def test_the_real_world_is_refused(ask: Any) -> None:
    with pytest.raises(NotSimulated, match="needs the real world"):
        run(ask())


def test_other_threads_are_refused() -> None:
    async def main() -> list[BaseException]:
        loop, errors = asyncio.get_running_loop(), list[BaseException]()

        def intrude() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except NotSimulated as error:
                errors.append(error)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        return errors

    assert len(run(main())[0]) == 1


def test_errors_of_callbacks_reach_the_handler() -> None:
    heard: list[str] = []

    def fail() -> None:
        raise ValueError("from a callback")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: heard.append(str(context["exception"])))
        loop.call_soon(fail)
        await asyncio.sleep(1)

    run(main())
    assert heard == ["from a callback"]


def test_closing_ends_every_task_without_a_warning() -> None:
    ended: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            await asyncio.sleep(1)
            ended.append("stubborn")

    loop = SimLoop(Chance.seeded(1))

    async def main() -> None:
        tasks.append(loop.create_task(stubborn()))
        await asyncio.sleep(1)

    tasks: list[asyncio.Task[None]] = []
    loop.run_until_complete(main())
    loop.close()
    assert ended == ["stubborn"]
    assert tasks[0].cancelled()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)


def test_the_collector_is_as_before_after_a_run() -> None:
    was_enabled, frozen_before = gc.isenabled(), gc.get_freeze_count()
    run(asyncio.sleep(1))
    assert gc.isenabled() == was_enabled
    assert gc.get_freeze_count() <= frozen_before


def test_many_cancelled_timers_are_swept_away() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        for _ in range(5_000):
            loop.call_later(1_000, print).cancel()
        return len(loop._timers)

    assert run(main())[0] < 1_000
