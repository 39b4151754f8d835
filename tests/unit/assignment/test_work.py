"""A work: its block, its notes and saves, and its messages. Its boss and its claim are played here."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from hansa.assignment.handoff import Handoff, HandoffSave, SavedHandoff
from hansa.assignment.partition import Partition
from hansa.assignment.work import Work, WorkState
from hansa.coordination.placed import PlacedClaim, Placement
from hansa.coordination.session import Session
from hansa.errors import BadArgument, Fenced, NotHeld, TimedOut, UsageError
from hansa.store.values import KeyValue, Operation, Put
from tests.support.virtual_store import TroubledStore, virtual


class Boss:
    """Saves into a list, and lets each work end at once."""

    def __init__(self) -> None:
        self.saves: list[tuple[Handoff, int]] = []
        self.errors: list[BaseException | None] = []
        self.trouble: Exception | None = None
        self.is_sent = True
        """Whether what fails was sent."""
        self.takes_s = 0.0

    def save_until_s(self) -> float:
        return 0.0

    def prepared(self, work: Work, handoff: Handoff, operations: Sequence[Operation]) -> HandoffSave:
        return HandoffSave(
            saved=SavedHandoff(handoff=handoff, node="a", epoch=work.epoch),
            packed=b"",
            is_compressed=False,
            operations=tuple(operations),
            known_revision=0,
            known_blob="",
        )

    async def carry_out(self, work: Work, save: HandoffSave, until_s: float) -> SavedHandoff:
        save.is_sent = save.is_sent or self.is_sent
        await asyncio.sleep(self.takes_s)
        if self.trouble is not None:
            raise self.trouble
        self.saves.append((save.saved.handoff, len(save.operations)))
        return save.saved

    def left(self, work: Work, error: BaseException | None) -> None:
        self.errors.append(error)
        work.end()


class Place:
    """A claim of a live session, and works under it."""

    def __init__(self, session: Session) -> None:
        placement = Placement(node="a", lease=session.lease, epoch=7)
        item = KeyValue(key=b"entries/p", value=b"", create_revision=1, mod_revision=1, version=1)
        self.claim = PlacedClaim(session, item, placement)
        self.boss = Boss()

    def work(self, saved: Handoff | None = None, **options: Any) -> Work:
        before = None if saved is None else SavedHandoff(handoff=saved, node="z", epoch=1)
        definition = Partition(name="p", resources=("x",))
        return Work(self.claim, definition, before, self.boss, **options)


def placed(test: Any) -> Any:
    """The test in virtual time, with a claim."""

    async def run(store: TroubledStore) -> None:
        async with Session(store, 1_000.0) as session:
            await test(Place(session))

    run.__name__, run.__module__ = test.__name__, test.__module__
    return virtual(run)


@placed
async def test_a_work_says_what_it_is_and_where_to_begin(place: Place) -> None:
    work = place.work(Handoff(state=b"s", last_offset=4))
    assert (work.partition, work.resources, work.epoch) == ("p", ("x",), 7)
    assert work.guards == place.claim.guards
    assert work.handoff == Handoff(state=b"s", last_offset=4)
    assert (work.state, work.is_unsaved, work.is_ending) == (WorkState.READY, False, False)
    assert place.work().handoff == Handoff()
    # Found by the user: nobody has saved it yet.
    found = place.work(Handoff(state=b"s"), handoff=Handoff(state=b"other"))
    assert found.handoff.state == b"other"
    assert found.is_unsaved


@placed
async def test_what_is_noted_is_what_has_changed_and_is_saved_by_whoever_saves(place: Place) -> None:
    work = place.work(Handoff(state=b"s", checkpoint="c", last_offset=4))
    work.note(last_offset=5)
    assert work.handoff == Handoff(state=b"s", checkpoint="c", last_offset=5)
    work.note(Handoff(state=b"t"), processed_at=1.0)
    assert work.handoff == Handoff(state=b"t", processed_at=1.0)
    assert work.is_unsaved
    await work.save()
    assert not work.is_unsaved
    assert place.boss.saves == [(work.handoff, 0)]
    await work.save(Handoff(last_offset=9))
    assert work.handoff == Handoff(last_offset=9)
    for bad in ({"state": "text"}, {"last_offset": -2}):
        with pytest.raises(BadArgument):
            work.note(**bad)
        with pytest.raises(BadArgument):
            await work.save(Handoff(**bad), operations=[Put("k", b"")])
    with pytest.raises(TypeError):
        work.note(offset=3)
    assert work.handoff == Handoff(last_offset=9)


@placed
async def test_what_is_noted_during_a_save_is_not_taken_for_saved(place: Place) -> None:
    work, place.boss.takes_s = place.work(), 1.0
    work.note(last_offset=1)
    saving = asyncio.ensure_future(work.save())
    await asyncio.sleep(0.5)
    work.note(last_offset=2)
    await saving
    assert work.is_unsaved
    assert work.handoff.last_offset == 2
    # One save at a time, and what was noted last is saved last.
    await asyncio.gather(work.save(Handoff(last_offset=3)), work.save(Handoff(last_offset=4)))
    assert len(place.boss.saves) == 3
    assert place.boss.saves[-1][0] == work.handoff
    assert not work.is_unsaved


@placed
async def test_a_handoff_with_operations_is_noted_with_its_save(place: Place) -> None:
    work, operations = place.work(), [Put("k", b"")]
    work.note(last_offset=1)
    await work.save(Handoff(last_offset=2), operations=operations)
    assert (work.handoff.last_offset, work.is_unsaved, work.is_in_doubt) == (2, False, False)
    assert place.boss.saves == [(Handoff(last_offset=2), 1)]


@pytest.mark.spec("ASG-04")
@placed
async def test_operations_in_doubt_are_repeated_with_their_handoff_before_anything_else(place: Place) -> None:
    """What was noted after them was forgotten, where an earlier save without an answer was found instead."""
    work, operations = place.work(), [Put("k", b"")]
    place.boss.trouble = TimedOut("for the test")
    with pytest.raises(TimedOut):
        await work.save(Handoff(last_offset=3), operations=operations)
    # It may be done, so it is what goes on.
    assert (work.handoff.last_offset, work.is_unsaved, work.is_in_doubt) == (3, True, True)
    work.note(last_offset=4)
    with pytest.raises(TimedOut):
        await work.save(Handoff(last_offset=5), operations=operations)
    # The second one was never begun: the first one is under way.
    assert (work.handoff.last_offset, work.is_in_doubt) == (4, True)
    place.boss.trouble = None
    await work.save()
    assert (work.handoff.last_offset, work.is_unsaved, work.is_in_doubt) == (4, False, False)
    assert place.boss.saves == [(Handoff(last_offset=3), 1), (Handoff(last_offset=4), 0)]


@placed
async def test_the_same_save_once_more_is_the_answer_to_the_one_in_doubt(place: Place) -> None:
    work, operations = place.work(), [Put("k", b"")]
    for again in (Handoff(last_offset=1), None):
        place.boss.trouble = TimedOut("for the test")
        with pytest.raises(TimedOut):
            await work.save(Handoff(last_offset=1), operations=operations)
        place.boss.trouble = None
        await work.save(again, operations=operations)
        assert (place.boss.saves.pop(), work.is_unsaved) == ((Handoff(last_offset=1), 1), False)
    place.boss.trouble = TimedOut("for the test")
    with pytest.raises(TimedOut):
        await work.save(operations=operations)
    place.boss.trouble = None
    await work.save()
    await work.settle()
    assert place.boss.saves == [(Handoff(last_offset=1), 1)]


@placed
async def test_what_was_never_sent_is_not_in_doubt(place: Place) -> None:
    work, place.boss.trouble, place.boss.is_sent = place.work(), TimedOut("for the test"), False
    with pytest.raises(TimedOut):
        await work.save(Handoff(last_offset=3), operations=[Put("k", b"")])
    assert (work.handoff, work.is_unsaved, work.is_in_doubt) == (Handoff(), False, False)


@placed
async def test_a_save_that_is_cancelled_with_its_operations_is_in_doubt(place: Place) -> None:
    work, place.boss.takes_s = place.work(), 5.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await work.save(Handoff(last_offset=1), operations=[Put("k", b"")])
    assert (work.handoff.last_offset, work.is_in_doubt) == (1, True)
    # Nothing else was noted: nothing else is saved.
    await work.save()
    assert (place.boss.saves, work.is_unsaved) == ([(Handoff(last_offset=1), 1)], False)


@placed
async def test_nothing_is_saved_after_the_end(place: Place) -> None:
    work = place.work()
    async with work:
        assert str(work.state) == str(WorkState.RUNNING)
    assert str(work.state) == str(WorkState.ENDED)
    with pytest.raises(NotHeld, match="after its end"):
        await work.save(Handoff(last_offset=1))
    assert place.boss.saves == []


@pytest.mark.spec("ASG-05")
@placed
async def test_a_block_is_entered_once_cancelled_at_the_loss_and_raises_it(place: Place) -> None:
    work = place.work()
    with pytest.raises(UsageError, match="not begun"):
        await work.__aexit__(None, None, None)
    async with work:
        with pytest.raises(UsageError, match="once"):
            await work.__aenter__()
    error = ValueError("of the user's own")
    with pytest.raises(ValueError, match="own"):
        async with place.work():
            raise error
    with pytest.raises(Fenced, match="somebody else"):
        async with place.work() as lost:
            place.claim.drop("somebody else has it")
            await asyncio.Event().wait()
    with pytest.raises(Fenced):
        lost.check()
    with pytest.raises(Fenced):
        async with place.work():
            raise AssertionError("it is lost")
    assert place.boss.errors[0] is None
    assert place.boss.errors[1] is error
    assert isinstance(place.boss.errors[2], Fenced)
    await lost.ended()


# -- its messages


async def numbers(*, every_s: float = 1.0, count: int = 1_000) -> AsyncIterator[int]:
    for number in range(count):
        yield number
        await asyncio.sleep(every_s)


@placed
async def test_loops_over_a_work_and_over_each_end_when_it_is_asked_for(place: Place) -> None:
    work = place.work(source=lambda work: numbers())
    found = []
    asyncio.get_running_loop().call_later(3.5, work.ask, "b is to have it")
    async for number in work:
        found.append(number)
    assert found == [0, 1, 2, 3]
    assert (work.is_ending, work.reason, await work.ending()) == (True, "b is to have it", "b is to have it")
    # Asked again, for another reason: the first counts.
    work.ask("c is to have it")
    assert work.reason == "b is to have it"
    assert [number async for number in work.each(numbers())] == []


@placed
async def test_a_loop_ends_with_its_source_and_raises_what_that_raises(place: Place) -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise ValueError("of the user's own")

    work, tasks = place.work(), asyncio.all_tasks()
    assert [number async for number in work.each(numbers(count=3))] == [0, 1, 2]
    found = []
    with pytest.raises(ValueError, match="own"):
        async for number in work.each(broken()):
            found.append(number)
    assert found == [1]
    assert asyncio.all_tasks() == tasks


@placed
async def test_a_step_that_waits_when_it_is_asked_for_is_cancelled(place: Place) -> None:
    ended = []

    async def waits() -> AsyncIterator[int]:
        try:
            await asyncio.Event().wait()
            yield 1
        finally:
            ended.append(True)

    work = place.work()
    asyncio.get_running_loop().call_later(1.0, work.ask, "")
    assert [number async for number in work.each(waits())] == []
    assert ended == [True]
    assert work.reason


@placed
async def test_a_work_without_messages_says_what_to_do(place: Place) -> None:
    with pytest.raises(UsageError, match="source"):
        aiter(place.work())


@placed
async def test_messages_of_the_mode_are_told_to_stop(place: Place) -> None:
    class Messages:
        is_stopped = False

        def __aiter__(self) -> AsyncIterator[int]:
            return numbers()

        def stop(self) -> None:
            self.is_stopped = True

    messages = Messages()
    work = place.work(messages=messages, source=lambda work: numbers(count=0))
    async for number in work:
        assert number == 0
        break
    work.ask("")
    assert messages.is_stopped
