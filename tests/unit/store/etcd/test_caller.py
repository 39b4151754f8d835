"""How calls to a store that is elsewhere end: by their deadlines, by closing, by those who cancel."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, StoreUnavailable, TimedOut, UsageError
from hansa.store.etcd.caller import StoreLife
from hansa.store.etcd.members import Trail
from tests.support.leftovers import alive

pytestmark = [pytest.mark.spec("CRD-11"), pytest.mark.timeout(20)]


def trail(*, is_sent: bool = False) -> Trail:
    made = Trail(1, Chance.seeded(1))
    made.is_under_way = is_sent
    return made


@pytest.fixture
def life() -> StoreLife:
    return StoreLife("elsewhere")


async def forever(_trail: Trail) -> None:
    await asyncio.get_running_loop().create_future()


def answering(answer: asyncio.Future[int]) -> Callable[[Trail], Awaitable[int]]:
    return lambda _trail: answer


async def test_each_call_ends_by_its_own_deadline_and_the_others_go_on(life: StoreLife) -> None:
    life.enter()
    loop = asyncio.get_running_loop()
    ends: dict[float | None, float] = {}
    answer: asyncio.Future[int] = loop.create_future()

    async def call(timeout: float) -> None:
        began_s = loop.time()
        with pytest.raises(TimedOut, match=f"within {timeout} s: no answer came"):
            await life.within(forever, timeout, trail(is_sent=True))
        ends[timeout] = loop.time() - began_s

    waiting = [asyncio.ensure_future(life.within(answering(answer), at, trail())) for at in (60.0, None)]
    # A later deadline after an earlier one, and an earlier one after a later one.
    await asyncio.gather(*(call(timeout) for timeout in (0.1, 0.2, 0.05)))
    assert all(timeout - 0.002 <= took < timeout + 0.1 for timeout, took in ends.items() if timeout)
    answer.set_result(7)
    assert await asyncio.gather(*waiting) == [7, 7]


async def test_what_was_never_sent_was_surely_not_done(life: StoreLife) -> None:
    life.enter()
    with pytest.raises(StoreUnavailable):
        await life.within(forever, 0.01, trail())
    for timeout in (0.0, -1.0, float("nan")):
        with pytest.raises(TimedOut, match="no time"):
            await life.within(forever, timeout, trail())


@pytest.mark.parametrize("first", ["the store", "somebody"])
async def test_who_cancels_is_heard_also_together_with_the_end_of_the_call(
    life: StoreLife, first: str
) -> None:
    life.enter()
    task = asyncio.ensure_future(life.within(forever, 5.0, trail(is_sent=True)))
    await asyncio.sleep(0)
    # Both in one turn of the loop.
    for end in (life.leave, task.cancel) if first == "the store" else (task.cancel, life.leave):
        end()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_deadline_leaves_no_cancellation_in_the_task(life: StoreLife) -> None:
    life.enter()

    async def work() -> str:
        async with asyncio.timeout(60.0):
            with pytest.raises(TimedOut):
                await life.within(forever, 0.01, trail(is_sent=True))
            await asyncio.sleep(0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await life.within(forever, 60.0, trail(is_sent=True))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return "went on"

    assert await work() == "went on"


async def test_an_error_that_comes_with_the_deadline_is_told(life: StoreLife) -> None:
    life.enter()

    async def refused(_trail: Trail) -> None:
        try:
            await forever(_trail)
        except asyncio.CancelledError:
            raise UsageError("refused") from None

    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(UsageError, match="refused"):
        await life.within(refused, 0.01, trail())
    assert task.cancelling() == 0


async def test_closing_ends_every_call_and_leaves_no_timer(life: StoreLife) -> None:
    before = alive()
    assert life.enter()
    assert not life.enter()
    calls = [
        asyncio.ensure_future(life.within(forever, timeout, trail())) for timeout in (5.0, None) for _ in "ab"
    ]
    await asyncio.sleep(0)
    assert not life.leave()
    assert not any(call.done() for call in calls)
    assert life.leave()
    await life.left()
    for call in calls:
        with pytest.raises(AlreadyClosed):
            await call
    with pytest.raises(AlreadyClosed):
        await life.within(forever, 1.0, trail())
    assert alive().timers == before.timers


async def test_an_answer_leaves_no_timer_of_its_own(life: StoreLife) -> None:
    life.enter()
    before = len(alive().timers)

    async def done(_trail: Trail) -> int:
        return 1

    for _ in range(100):
        assert await life.within(done, 5.0, trail()) == 1
    assert len(alive().timers) <= before + 1
