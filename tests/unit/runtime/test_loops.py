"""What belongs to one event loop says so everywhere else."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from hansa.errors import UsageError
from hansa.runtime.loops import Home


async def made() -> Home:
    return Home("the thing", "make another")


def in_thread(work: Callable[[], object]) -> BaseException | None:
    """What the work raised in a thread of its own."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_its_own_loop_may_use_it_and_its_thread_between_two_runs() -> None:
    async def use(home: Home) -> None:
        home.check()

    with asyncio.Runner() as runner:
        home = runner.run(made())
        home.check()
        runner.run(use(home))


def test_another_loop_of_the_same_thread_is_refused() -> None:
    async def use(home: Home) -> None:
        home.check()

    home = asyncio.run(made())
    with pytest.raises(UsageError, match="the thing belongs to another event loop: make another"):
        asyncio.run(use(home))


def test_another_thread_is_refused_with_and_without_a_loop_of_its_own() -> None:
    async def use(home: Home) -> None:
        home.check()

    with asyncio.Runner() as runner:
        home = runner.run(made())
        for work in (home.check, lambda: asyncio.run(use(home))):
            error = in_thread(work)
            assert isinstance(error, UsageError)
            assert str(error) == "the thing belongs to the event loop of another thread: make another"
