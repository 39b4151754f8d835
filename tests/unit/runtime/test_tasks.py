"""Tasks with a parent end with it, however it is made to end."""

import asyncio

import pytest

from hansa.runtime.tasks import Closing, TaskScope


async def forever(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)  # A task that tidies up takes its time.
        ended.append(name)


def scope() -> TaskScope:
    return TaskScope("test", lambda error: pytest.fail(str(error)))


async def test_closing_waits_for_what_ends_by_itself_and_cancels_the_rest() -> None:
    ended: list[str] = []
    tasks = scope()
    short = tasks.spawn(asyncio.sleep(0.01), "short")
    tasks.spawn(forever(ended, "long"), "long")
    await asyncio.sleep(0)
    await tasks.close(grace_s=0.05)
    assert not short.cancelled()
    assert ended == ["long"]


@pytest.mark.parametrize("grace_s", [0.0, 60.0])
async def test_a_cancelled_close_leaves_no_task_behind(grace_s: float) -> None:
    ended: list[str] = []
    tasks = scope()
    for name in ("one", "two"):
        tasks.spawn(forever(ended, name), name)
    await asyncio.sleep(0)
    closing = asyncio.create_task(tasks.close(grace_s=grace_s))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert ended == ["one", "two"]


# ---- one end for all who ask for it --------------------------------------------------------------


class Component:
    """Closes when it is let, and tells how often."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.begun_count = self.ended_count = 0
        self._closing = Closing()

    async def close(self) -> None:
        await self._closing.once(self._close)

    async def _close(self) -> None:
        self.begun_count += 1
        await self.let.wait()
        self.ended_count += 1


async def test_who_closes_second_returns_when_the_first_has_finished() -> None:
    component = Component()
    closes = [asyncio.create_task(component.close()) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert not any(each.done() for each in closes)
    component.let.set()
    await asyncio.gather(*closes)
    await component.close()
    assert (component.begun_count, component.ended_count) == (1, 1)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_after_a_close_that_did_not_come_to_its_end_the_next_one_closes(is_cancelled: bool) -> None:
    component = Component()
    first, second = (asyncio.create_task(component.close()) for _ in range(2))
    await asyncio.sleep(0.01)
    (first if is_cancelled else second).cancel()
    await asyncio.sleep(0.01)
    component.let.set()
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in results if each is not None] == [asyncio.CancelledError]
    assert component.ended_count == 1
    assert component.begun_count == 1 + is_cancelled
