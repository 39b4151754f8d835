"""The mailbox between callbacks and tasks."""

import asyncio

import pytest

from hansa.errors import AlreadyClosed, WouldBlock
from hansa.runtime.mailboxes import Bell, Mailbox


async def test_items_come_out_in_order_to_whoever_waits() -> None:
    box: Mailbox[int] = Mailbox("a test")
    async with asyncio.TaskGroup() as group:
        getters = [group.create_task(box.get()) for _ in range(3)]
        await asyncio.sleep(0)
        box.put_all([1, 2])
        box.put(3)
    assert [getter.result() for getter in getters] == [1, 2, 3]


async def test_a_cancelled_getter_takes_nothing_and_passes_its_wake_up_on() -> None:
    box: Mailbox[int] = Mailbox("a test")
    first, second = (asyncio.ensure_future(box.get()) for _ in range(2))
    await asyncio.sleep(0)
    box.put(1)
    first.cancel()
    assert await asyncio.wait_for(second, 1) == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_getter_cancelled_while_it_waits_is_forgotten() -> None:
    box: Mailbox[int] = Mailbox("a test")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(box.get(), 0.001)
    box.put(1)
    assert box.get_nowait() == 1


async def test_a_closed_box_gives_what_it_has_and_then_ends() -> None:
    box: Mailbox[int] = Mailbox("a test")
    with pytest.raises(WouldBlock):
        box.get_nowait()
    waiting = asyncio.ensure_future(box.get())
    await asyncio.sleep(0)
    box.close()
    with pytest.raises(AlreadyClosed):
        await waiting
    box.put(1)
    assert await box.get() == 1
    with pytest.raises(AlreadyClosed):
        await box.get()


async def test_a_bell_calls_once_for_all_that_rang_it_in_a_turn_of_its_own() -> None:
    bell, calls = Bell(), []
    bell.wake_all()
    bell.call_back(lambda: calls.append(1))
    bell.wake_all()
    assert not calls
    await asyncio.sleep(0)
    assert calls == [1]
    waiting = asyncio.ensure_future(bell.wait())
    await asyncio.sleep(0)
    bell.wake_all()
    await waiting
    assert calls == [1, 1]


async def test_a_bell_that_is_silenced_calls_nobody() -> None:
    bell, calls = Bell(), []
    bell.call_back(lambda: calls.append(1))
    bell.silence()
    bell.wake_all()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not calls
