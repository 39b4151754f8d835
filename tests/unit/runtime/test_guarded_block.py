"""A block that is cancelled at a loss: told apart from every other cancellation."""

import asyncio

import pytest

from hansa.errors import LockLost, SessionLost
from hansa.runtime.tasks import GuardedBlock, Loss


def lose_soon(loss: Loss[LockLost], text: str = "gone") -> None:
    asyncio.get_running_loop().call_soon(loss.set, LockLost(text))


async def test_the_body_is_cancelled_and_the_loss_raised() -> None:
    loss: Loss[LockLost] = Loss()
    ended = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(LockLost, match="gone"):
        async with GuardedBlock(loss):
            lose_soon(loss)
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
    assert ended.is_set()
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_body_that_ends_before_is_left_alone() -> None:
    loss: Loss[LockLost] = Loss()
    async with GuardedBlock(loss):
        await asyncio.sleep(0)
    loss.set(LockLost("late"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_block_on_what_is_lost_already_does_not_begin() -> None:
    loss: Loss[LockLost] = Loss()
    loss.set(LockLost("gone"))
    with pytest.raises(LockLost):
        async with GuardedBlock(loss):
            raise AssertionError("the body ran")


async def test_a_body_that_ended_without_noticing_the_loss_is_told() -> None:
    loss: Loss[LockLost] = Loss()
    with pytest.raises(LockLost):
        async with GuardedBlock(loss):
            loss.set(LockLost("gone"))
    # The cancellation that was on its way does not come any more.
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_the_bodys_own_error_goes_first() -> None:
    loss: Loss[LockLost] = Loss()
    with pytest.raises(ZeroDivisionError):
        async with GuardedBlock(loss):
            lose_soon(loss)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ZeroDivisionError from None
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_body_that_learns_of_the_loss_itself_carries_no_cancellation_out() -> None:
    loss: Loss[LockLost] = Loss()
    with pytest.raises(LockLost, match="seen"):
        async with GuardedBlock(loss):
            loss.set(LockLost("gone"))
            raise LockLost("seen by the body")
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_cancellation_from_outside_stays_one() -> None:
    loss: Loss[LockLost] = Loss()

    async def body() -> None:
        async with GuardedBlock(loss):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(body())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("first", ["loss", "outside"])
async def test_a_cancellation_from_outside_wins_when_both_come_together(first: str) -> None:
    loss: Loss[LockLost] = Loss()

    async def body() -> None:
        async with GuardedBlock(loss):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(body())
    await asyncio.sleep(0)
    if first == "outside":
        task.cancel()
    loss.set(LockLost("gone"))
    if first == "loss":
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_inner_block_of_two_that_are_lost_together_lets_the_outer_speak() -> None:
    outer: Loss[SessionLost] = Loss()
    inner: Loss[LockLost] = Loss()
    with pytest.raises(SessionLost, match="outer"):
        async with GuardedBlock(outer), GuardedBlock(inner):
            inner.set(LockLost("inner"))
            outer.set(SessionLost("outer"))
            await asyncio.Event().wait()
    with pytest.raises(LockLost, match="only"):
        async with GuardedBlock(Loss[SessionLost]()):
            only: Loss[LockLost] = Loss()
            async with GuardedBlock(only):
                lose_soon(only, "only")
                await asyncio.Event().wait()


async def test_it_stands_around_task_groups_and_inside_timeouts() -> None:
    loss: Loss[LockLost] = Loss()
    ended = 0

    async def work() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    with pytest.raises(LockLost):
        async with asyncio.timeout(60), GuardedBlock(loss), asyncio.TaskGroup() as tasks:
            tasks.create_task(work())
            tasks.create_task(work())
            await asyncio.sleep(0)
            lose_soon(loss)
    assert ended == 2
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001), GuardedBlock(Loss[LockLost]()):
            await asyncio.Event().wait()


async def test_it_stands_inside_a_task_of_a_group() -> None:
    loss: Loss[LockLost] = Loss()

    async def body() -> None:
        async with GuardedBlock(loss):
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(body())
            await asyncio.sleep(0)
            loss.set(LockLost("gone"))
    assert [type(error) for error in caught.value.exceptions] == [LockLost]
