"""Tasks with a parent end with it, however it is made to end."""

import asyncio

import pytest

from hansa.transport.over_tasks import TaskScope


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
