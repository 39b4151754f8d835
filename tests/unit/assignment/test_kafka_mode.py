"""A worker in a Kafka group whose broker is the test: what is assigned, revoked, lost, and the messages."""

import asyncio
import sys
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from hansa.assignment import kafka_group
from hansa.assignment.handoff import FailedHandoff, Handoff, Handoffs
from hansa.assignment.kafka_group import ConfluentMember, KafkaSettings, as_error
from hansa.assignment.kafka_mode import KafkaMode
from hansa.assignment.kafka_share import Membership
from hansa.assignment.topology import (
    EntryNote,
    HandoffFailed,
    PartitionAssigned,
    PartitionLost,
    PartitionRevoked,
)
from hansa.assignment.work import Work, WorkState
from hansa.coordination.placed import Placement
from hansa.errors import (
    BadArgument,
    Fenced,
    GroupRefused,
    KafkaUnavailable,
    MemberFenced,
    UsageError,
)
from hansa.keys import Keys
from hansa.limits import KAFKA_SEEKS_COUNT_MAX, KAFKA_WAITING_COUNT_MAX
from hansa.store.memory import MemoryStore
from hansa.store.store import Store
from hansa.store.values import Put
from tests.support.kafka_stage import GROUP, FailingStore, HandMessage, KafkaStage, part

A, B = part(0), part(1)


@pytest.mark.spec("ASG-03")
@pytest.mark.spec("ASG-04")
async def test_a_partition_is_read_from_behind_the_handoff_that_the_last_owner_left() -> None:
    async with MemoryStore() as store:
        async with KafkaStage(store, name="a") as first:
            first.member.logs[A] = 10
            await first.member.assign(A, generation=1)
            await first.until(lambda: len(first.read.get(A.name, ())) == 10)
            await first.member.revoke(A)
            saved = await first.handoff(A)
            assert saved is not None
            assert (saved.handoff.last_offset, saved.handoff.state) == (9, b"45")
            placement, note = await first.entry(A)
            assert (placement.node, note.is_handed, note.previous) == ("", True, "a")
            assert first.member.committed[A] == 10
        async with KafkaStage(store, name="b") as second:
            second.member.logs[A] = 15
            await second.member.assign(A, generation=2)
            await second.until(lambda: len(second.read.get(A.name, ())) == 5)
            assert second.member.sought == [(A, 10)]
            assert second.began == [(A.name, 9)]
            assert second.read[A.name] == [10, 11, 12, 13, 14]
            taken, note = await second.entry(A)
            assert (taken.node, note.is_handed, note.generation) == ("b", True, 2)
            assert taken.epoch > placement.epoch
            (told,) = second.told(PartitionAssigned)
            assert told.handoff.last_offset == 9


async def test_the_revoke_returns_when_the_handoff_is_written_and_not_before() -> None:
    written = asyncio.Event()

    async def slow(work: Work) -> None:
        async with work:
            async for message in work:
                work.note(last_offset=message.offset())
            await written.wait()
            work.note(checkpoint="done")

    async with KafkaStage(handler=slow) as stage:
        stage.member.logs[A] = 3
        await stage.member.assign(A)
        await stage.until(lambda: stage.worker.works and stage.worker.works[A.name].handoff.last_offset == 2)
        revoking = asyncio.create_task(stage.member.revoke(A))
        await stage.until(lambda: stage.worker.works[A.name].is_ending)
        await asyncio.sleep(0.02)
        assert not revoking.done()
        written.set()
        await revoking
        saved = await stage.handoff(A)
        assert saved is not None
        assert saved.handoff.checkpoint == "done"
        (told,) = stage.told(PartitionRevoked)
        assert told.handoff.last_offset == 2
        assert not stage.told(PartitionLost)


@pytest.mark.spec("ASG-03")
async def test_what_is_lost_is_told_at_once_and_nothing_is_written() -> None:
    late: list[BaseException] = []

    async def stubborn(work: Work) -> None:
        try:
            async with work:
                async for message in work:
                    work.note(last_offset=message.offset())
        except Fenced:
            try:
                await work.save()
            except Fenced as refused:
                late.append(refused)
            raise

    async with KafkaStage(handler=stubborn) as stage:
        stage.member.logs[A] = 3
        await stage.member.assign(A)
        await stage.until(lambda: stage.worker.works and stage.worker.works[A.name].handoff.last_offset == 2)
        before = await stage.entry(A)
        await stage.member.lose(A)
        await stage.until(lambda: late)
        assert await stage.handoff(A) is None
        assert await stage.entry(A) == before
        assert not stage.told(PartitionRevoked)
        assert stage.worker.stats.lost_count == 1
        assert stage.mode.stats.lost_count == 1


async def test_other_partitions_flow_while_one_is_taken_read_or_given_up() -> None:
    waits = asyncio.Event()

    async def handler(work: Work) -> None:
        async with work:
            async for message in work:
                work.note(last_offset=message.offset())
            if work.partition == A.name:
                await waits.wait()

    async with KafkaStage(handler=handler) as stage:
        stage.member.logs |= {A: 5, B: 5}
        stage.member.named[B] = Membership("other", 1)
        await Handoffs(stage.store, GROUP).load(B.name)
        # B is taken only when the broker names this member.
        note = EntryNote(generation=9, member="other")
        entry = Placement(node="z", lease=7, epoch=1, body=note.encode())
        await stage.store.commit([], [Put(Keys().assignment(GROUP, B.name), entry.encode())])
        await stage.member.assign(A, B)
        await stage.until(lambda: stage.worker.works.get(A.name) is not None)
        await stage.until(lambda: stage.worker.works[A.name].handoff.last_offset == 4)
        await stage.until(lambda: stage.mode.stats.refused_count > 1)
        assert B.name not in stage.worker.works
        assert B in stage.member.paused
        stage.member.named[B] = Membership("m", 1)
        await stage.until(lambda: B.name in stage.worker.works)
        stage.member.logs[A] = 9
        await stage.until(lambda: stage.worker.works[A.name].handoff.last_offset == 8)
        assert stage.mode.stats.confirmed_count == 1
        waits.set()


@pytest.mark.spec("ASG-05")
async def test_a_member_of_an_earlier_generation_takes_nothing_and_reads_nothing() -> None:
    async with MemoryStore() as store, KafkaStage(store, name="new") as new:
        new.member.logs[A] = 5
        await new.member.assign(A, generation=5, member="new")
        await new.until(lambda: len(new.read.get(A.name, ())) == 5)
        async with KafkaStage(store, name="old") as old:
            old.member.logs[A] = 5
            old.member.named[A] = Membership("new", 5)
            await old.member.assign(A, generation=4, member="old")
            await old.until(lambda: old.mode.stats.refused_count > 1)
            assert not old.worker.works
            await old.member.lose(A)
        assert (await new.entry(A))[0].node == "new"
        assert not new.losses
        assert new.worker.works


@pytest.mark.spec("ASG-05")
async def test_an_old_owner_is_told_its_loss_by_the_store_before_the_broker_says_so() -> None:
    async with MemoryStore() as store, KafkaStage(store, name="old") as old:
        old.member.logs[A] = 5
        await old.member.assign(A, generation=1, member="old")
        await old.until(lambda: len(old.read.get(A.name, ())) == 5)
        work = old.worker.works[A.name]
        async with KafkaStage(store, name="new") as new:
            new.member.logs[A] = 5
            old.member.named[A] = Membership("new", 2)
            await new.member.assign(A, generation=2, member="new")
            await new.until(lambda: A.name in new.worker.works)
            await old.until(lambda: A.name in old.losses)
            with pytest.raises(Fenced):
                await work.save()
            assert A in old.member.paused or old.mode.stats.retries_count
            # It does not take it back on its own word, however long its assignment stands.
            await old.until(lambda: old.mode.stats.refused_count > 2)
            assert (await new.entry(A))[0].node == "new"
            await old.member.lose(A)


async def test_after_a_session_that_was_lost_partitions_are_taken_again_in_a_new_epoch() -> None:
    async with KafkaStage() as stage:
        stage.member.logs[A] = 5
        await stage.member.assign(A)
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 5)
        await stage.worker.works[A.name].save()
        before = stage.worker.works[A.name].epoch
        assert stage.keeper.session is not None
        stage.keeper.session.end_lost("for the test")
        await stage.until(lambda: A.name in stage.losses)
        await stage.until(lambda: A.name in stage.worker.works)
        assert stage.worker.works[A.name].epoch > before
        stage.member.logs[A] = 7
        await stage.until(lambda: len(stage.read[A.name]) == 7)
        assert stage.read[A.name] == list(range(7))
        await stage.until(lambda: stage.works)


async def test_what_the_consumer_had_from_before_the_seek_reaches_no_work() -> None:
    async with KafkaStage() as stage:
        stage.member.logs[A] = 5
        stage.member.committed[A] = 2
        stage.member.strays += [HandMessage(A, 3), HandMessage(B, 1)]
        await stage.member.assign(A)
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 3)
        assert stage.read[A.name] == [2, 3, 4]
        assert stage.mode.stats.dropped_count == 2
        # One that comes once more is not counted twice.
        stage.member.strays += [HandMessage(A, 4)]
        stage.member.logs[A] = 6
        await stage.until(lambda: len(stage.read[A.name]) == 4)
        assert stage.read[A.name] == [2, 3, 4, 5]
        assert stage.mode.stats.dropped_count == 3


async def test_a_work_that_is_slow_pauses_its_partition_alone_and_misses_nothing() -> None:
    may_go = asyncio.Event()
    read: dict[str, list[int]] = {}

    async def handler(work: Work) -> None:
        async with work:
            async for message in work:
                read.setdefault(work.partition, []).append(message.offset())
                if work.partition == A.name:
                    await may_go.wait()

    async with KafkaStage(handler=handler) as stage:
        count = 5 * KAFKA_WAITING_COUNT_MAX
        stage.member.logs |= {A: count, B: count}
        await stage.member.assign(A, B)
        await stage.until(lambda: len(read.get(B.name, ())) == count)
        await stage.until(lambda: A in stage.member.paused)
        assert stage.mode.stats.received_count <= count + KAFKA_WAITING_COUNT_MAX + 100
        may_go.set()
        await stage.until(lambda: len(read[A.name]) == count)
        assert read[A.name] == list(range(count))
        assert A in stage.member.pauses
        assert stage.mode.stats.dropped_count == 0


async def test_a_work_whose_partition_is_somebody_elses_by_now_keeps_no_rebalance_waiting() -> None:
    cancelled = asyncio.Event()

    async def deaf(work: Work) -> None:
        async with work:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    async with KafkaStage(handler=deaf) as stage:
        await stage.member.assign(A)
        await stage.until(lambda: A.name in stage.worker.works)
        await stage.until(lambda: stage.worker.works[A.name].state is WorkState.RUNNING)
        revoking = asyncio.create_task(stage.member.revoke(A))
        await stage.until(lambda: stage.worker.works[A.name].is_ending)
        epoch = stage.worker.works[A.name].epoch + 1
        other = Placement(node="z", lease=7, epoch=epoch, body=EntryNote(generation=9).encode())
        await stage.store.commit([], [Put(Keys().assignment(GROUP, A.name), other.encode())])
        await stage.until(revoking.done)
        assert cancelled.is_set()
        assert stage.mode.stats.cut_off_count == 0
        assert stage.mode.stats.revoke_s < 2.0
        assert (await stage.entry(A))[0] == other


async def test_a_work_that_does_not_end_is_cut_off_with_what_it_noted() -> None:
    cancelled = asyncio.Event()

    async def deaf(work: Work) -> None:
        async with work:
            async for message in work:
                work.note(state=b"%d" % message.offset(), last_offset=message.offset())
                if message.offset() == 4:
                    try:
                        await asyncio.Event().wait()
                    finally:
                        cancelled.set()

    async with KafkaStage(handler=deaf, revoke_timeout=3.0) as stage:
        stage.member.logs[A] = 9
        await stage.member.assign(A)
        await stage.until(lambda: A.name in stage.worker.works)
        await stage.until(lambda: stage.worker.works[A.name].handoff.last_offset == 4)
        await stage.member.revoke(A)
        await cancelled.wait()
        saved = await stage.handoff(A)
        assert saved is not None
        assert saved.handoff == Handoff(state=b"4", last_offset=4)
        placement, note = await stage.entry(A)
        assert (placement.node, note.is_handed) == ("", True)
        assert stage.mode.stats.cut_off_count == 1
        assert stage.mode.stats.revoke_s < 3.0
        assert stage.member.committed[A] == 5


@pytest.mark.spec("ASG-06")
@pytest.mark.spec("ASG-14")
async def test_a_handoff_that_cannot_be_written_is_told_and_the_partition_given_back_all_the_same() -> None:
    failed: list[FailedHandoff] = []

    async def recover(failure: FailedHandoff) -> Handoff | None:
        failed.append(failure)
        return None

    stores: list[FailingStore] = []

    def through(store: Store) -> Store:
        stores.append(FailingStore(store))
        return cast(Store, stores[-1])

    async with KafkaStage(through=through, recover=recover, revoke_timeout=2.0) as stage:
        stage.member.logs[A] = 5
        await stage.member.assign(A)
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 5)
        stores[0].is_away = True
        await stage.member.revoke(A)
        (failure,) = failed
        assert (failure.partition, failure.handoff.last_offset, failure.is_reading) == (A.name, 4, False)
        (told,) = stage.told(HandoffFailed)
        assert "away" in told.reason
        assert stage.worker.stats.save_retries_count > 0
        assert stage.mode.stats.revoke_s < 2.0
        stores[0].is_away = False
        assert await stage.handoff(A) is None
        assert not stage.worker.works


async def test_a_recovery_that_never_returns_does_not_hold_the_rebalance() -> None:
    async def recover(_failure: FailedHandoff) -> Handoff | None:
        await asyncio.Event().wait()
        return None

    stores: list[FailingStore] = []

    def through(store: Store) -> Store:
        stores.append(FailingStore(store))
        return cast(Store, stores[-1])

    async with KafkaStage(through=through, recover=recover, revoke_timeout=0.5) as stage:
        stage.member.logs[A] = 5
        await stage.member.assign(A)
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 5)
        stores[0].is_away = True
        async with asyncio.timeout(5.0):
            await stage.member.revoke(A)
        stores[0].is_away = False


async def test_store_trouble_while_taking_is_tried_again_and_the_partition_stays_paused() -> None:
    stores: list[FailingStore] = []

    def through(store: Store) -> Store:
        stores.append(FailingStore(store))
        return cast(Store, stores[-1])

    async with KafkaStage(through=through) as stage:
        stage.member.logs[A] = 5
        stores[0].is_away = True
        await stage.member.assign(A)
        await stage.until(lambda: stage.mode.stats.retries_count > 1)
        assert A in stage.member.paused
        assert stage.member.sought == []
        stores[0].is_away = False
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 5)


async def test_a_work_that_failed_is_given_again_from_what_it_noted() -> None:
    tries: list[int] = []
    read: list[int] = []

    async def handler(work: Work) -> None:
        tries.append(work.handoff.last_offset)
        async with work:
            async for message in work:
                if message.offset() == 3 and len(tries) == 1:
                    raise ValueError("for the test")
                read.append(message.offset())
                work.note(last_offset=message.offset())

    async with KafkaStage(handler=handler) as stage:
        stage.member.logs[A] = 6
        await stage.member.assign(A)
        await stage.until(lambda: len(read) == 6)
        assert read == list(range(6))
        assert tries == [-1, 2]
        assert stage.member.sought == [(A, 0), (A, 3)]


async def test_a_work_that_waits_to_be_given_again_is_given_up_at_once() -> None:
    async def handler(work: Work) -> None:
        async with work:
            async for message in work:
                work.note(last_offset=message.offset())
                if message.offset() >= 3:
                    raise ValueError("for the test")

    async with KafkaStage(handler=handler) as stage:
        stage.member.logs[A] = 7
        await stage.member.assign(A)
        await stage.until(lambda: stage.worker.stats.again_count == 4)
        began_s = asyncio.get_running_loop().time()
        await stage.member.revoke(A)
        assert asyncio.get_running_loop().time() - began_s < 0.3
        saved = await stage.handoff(A)
        assert saved is not None
        assert saved.handoff.last_offset == 6


@pytest.mark.parametrize(("reset", "start"), [(None, 0), ("earliest", 0), ("latest", 8)])
async def test_without_a_handoff_a_partition_begins_as_committed_or_as_the_settings_say(
    reset: str | None, start: int
) -> None:
    settings = {} if reset is None else {"auto.offset.reset": reset}
    async with KafkaStage(settings=settings) as stage:
        stage.member.logs |= {A: 8, B: 8}
        stage.member.committed[B] = 5
        await stage.member.assign(A, B)
        await stage.until(lambda: len(stage.member.sought) == 2)
        assert sorted(stage.member.sought) == [(A, start), (B, 5)]
        # Whoever comes next begins there, although nothing was noted.
        await stage.until(lambda: stage.member.committed.get(A) == start)


async def test_what_the_broker_has_no_more_is_counted_and_reading_goes_on_behind_it() -> None:
    async with KafkaStage() as stage:
        stage.member.logs[A] = 20
        stage.member.committed[A] = 5
        stage.member.firsts[A] = 12
        await stage.member.assign(A)
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 8)
        assert stage.read[A.name] == list(range(12, 20))
        await stage.until(lambda: stage.mode.stats.missing_count == 7)


async def test_a_client_that_goes_elsewhere_than_it_was_sent_is_sent_once_more() -> None:
    async with KafkaStage() as stage:
        stage.member.logs[A] = 1_000
        stage.member.committed[A] = 900
        stage.member.strayed = {A}
        await stage.member.assign(A)
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 100)
        assert stage.read[A.name] == list(range(900, 1_000))
        assert stage.member.sought == [(A, 900), (A, 900)]
        assert stage.mode.stats.dropped_count <= 100
        assert stage.mode.stats.missing_count == 0


async def test_what_came_before_the_seek_does_not_end_the_messages_of_the_next_work() -> None:
    ends: list[str] = []

    async def handler(work: Work) -> None:
        async with work:
            if not ends:
                ends.append("failed")
                raise ValueError("for the test")
            async for message in work:
                work.note(last_offset=message.offset())
            ends.append(work.reason)

    async with KafkaStage(handler=handler) as stage:
        stage.member.committed[A] = 5
        stage.member.logs[A] = 5
        flows = stage.mode._flows
        await stage.member.assign(A)
        await stage.until(lambda: A in flows)
        first = flows[A]
        # The next work waits for its seek while a message from before that of the first one comes.
        stage.member.trouble = KafkaUnavailable("for the test")
        await stage.until(lambda: stage.mode._openings)
        stage.member.strays.append(HandMessage(A, 3))
        await stage.until(lambda: stage.mode.stats.dropped_count == 1)
        stage.member.trouble = None
        await stage.until(lambda: flows[A] is not first and not stage.mode._openings)
        stage.member.logs[A] = 8
        await stage.until(lambda: stage.worker.works[A.name].handoff.last_offset == 7)
        assert ends == ["failed"]
        await stage.member.revoke(A)
        assert ends[1:] == ["the group gives it to another member"]


async def test_of_a_log_that_was_cut_nothing_is_read_twice() -> None:
    async with KafkaStage() as stage:
        stage.member.logs[A] = 4
        stage.member.committed[A] = 6
        await stage.member.assign(A)
        await stage.until(lambda: stage.mode.stats.dropped_count >= 4)
        stage.member.logs[A] = 9
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 3)
        assert stage.read[A.name] == [6, 7, 8]
        assert len(stage.member.sought) <= KAFKA_SEEKS_COUNT_MAX
        assert stage.mode.stats.missing_count == 0


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_group, "KAFKA_LOOK_S_MIN", 0.02)


@pytest.mark.spec("ASG-03")
@pytest.mark.usefixtures("looks_often")
async def test_a_member_that_missed_what_it_was_assigned_joins_again_and_is_told() -> None:
    async with KafkaStage() as stage:
        stage.member.logs |= {A: 5, B: 5}
        await stage.member.assign(A)
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 5)
        missed = stage.member
        missed.untold, missed.late_count = {B}, 1
        await stage.until(lambda: stage.member is not missed and stage.member.heard is not None)
        # It has left in order.
        assert missed.is_closed
        saved = await stage.handoff(A)
        assert saved is not None
        assert saved.handoff.last_offset == 4
        assert not stage.told(PartitionLost)
        await stage.member.assign(A, B, generation=2, member="n")
        await stage.until(lambda: len(stage.read.get(B.name, ())) == 5)
        stage.member.logs[A] = 7
        await stage.until(lambda: len(stage.read[A.name]) == 7)
        assert stage.read[A.name] == list(range(7))
        assert stage.mode.stats.rejoined_count == 1


@pytest.mark.usefixtures("looks_often")
async def test_a_member_that_missed_a_revocation_joins_again() -> None:
    async with KafkaStage() as stage:
        stage.member.logs |= {A: 5, B: 5}
        await stage.member.assign(A, B)
        await stage.until(lambda: len(stage.worker.works) == 2)
        missed = stage.member
        missed.named[B] = Membership("other", 2)
        missed.late_count = 1
        await stage.until(lambda: stage.mode.stats.rejoined_count)
        assert missed.is_closed
        assert (await stage.entry(B))[0].node == ""


@pytest.mark.usefixtures("looks_often")
async def test_a_member_that_has_what_the_broker_says_stays_and_asks_only_after_a_late_answer() -> None:
    async with KafkaStage() as stage:
        await stage.member.assign(A)
        while stage.member.views_count < 3:
            stage.member.late_count += 1
            await stage.until(lambda: stage.member.views_count == stage.member.late_count)
        await stage.member.assign(B)
        await stage.member.revoke(A)
        began_s = asyncio.get_running_loop().time()
        await stage.until(lambda: asyncio.get_running_loop().time() - began_s > 0.2)
        assert stage.member.views_count == 3
        assert stage.mode.stats.rejoined_count == 0


async def test_leaving_gives_all_back_in_order() -> None:
    async with KafkaStage() as stage:
        stage.member.logs |= {A: 5, B: 5}
        await stage.member.assign(A, B)
        await stage.until(lambda: sum(map(len, stage.read.values())) == 10)
        await stage.worker.leave()
        assert stage.member.is_closed
        for each in (A, B):
            saved = await stage.handoff(each)
            assert saved is not None
            assert saved.handoff.last_offset == 4
            assert (await stage.entry(each))[0].node == ""
        assert len(stage.told(PartitionRevoked)) == 2


@pytest.mark.parametrize("kind", [MemberFenced, GroupRefused])
async def test_a_place_that_is_gone_for_good_is_told_to_the_user(kind: type[Exception]) -> None:
    async with KafkaStage() as stage:
        stage.member.logs[A] = 5
        await stage.member.assign(A)
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 5)
        stage.mode.failed(kind("for the test"))  # type: ignore[arg-type]  # Both are hansa's.
        assert isinstance(await stage.ended(), kind)
        assert stage.losses == [A.name]
        assert stage.member.is_closed


async def test_what_the_client_gets_over_is_counted_and_told() -> None:
    async with KafkaStage() as stage:
        stage.member.logs[A] = 5
        stage.member.trouble = KafkaUnavailable("the broker is away")
        await stage.member.assign(A)
        await stage.until(lambda: stage.mode.stats.errors_count > 1)
        assert isinstance(stage.mode.last_error, KafkaUnavailable)
        stage.member.trouble = None
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 5)


@pytest.mark.parametrize(
    "bad",
    [
        {"settings": {"group.id": "g"}},
        {"settings": {"enable.auto.commit": True}},
        {"settings": {"auto.offset.reset": "error"}},
        {"protocol": "eager"},
    ],
)
def test_settings_that_cannot_be_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        KafkaMode("broker", "orders", **bad)


def test_each_protocol_is_cooperative_and_leaves_offsets_to_the_mode() -> None:
    classic = KafkaSettings(servers="b", group="g", protocol="classic", member_id="m-1").of_consumer()
    assert classic["partition.assignment.strategy"] == "cooperative-sticky"
    assert classic["group.instance.id"] == "m-1"
    new = KafkaSettings(servers="b", group="g", settings={"max.poll.interval.ms": 10_000}).of_consumer()
    assert "partition.assignment.strategy" not in new
    for made in (classic, new):
        assert made["enable.auto.commit"] is False
        assert made["auto.offset.reset"] == "earliest"


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (KafkaError.FENCED_INSTANCE_ID, "", MemberFenced),
        # As the client tells those that are fatal.
        (KafkaError._FATAL, "Fatal error: " + KafkaError(KafkaError.FENCED_INSTANCE_ID).str(), MemberFenced),
        (
            KafkaError._FATAL,
            "Fatal error: " + KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str(),
            MemberFenced,
        ),
        (KafkaError._FATAL, "Fatal error: who knows", GroupRefused),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "", GroupRefused),
        (KafkaError.UNSUPPORTED_VERSION, "", GroupRefused),
        (KafkaError._ALL_BROKERS_DOWN, "", KafkaUnavailable),
        (KafkaError._MAX_POLL_EXCEEDED, "", KafkaUnavailable),
    ],
)
def test_an_error_of_the_client_says_whether_it_is_worth_another_try(
    code: int, text: str, kind: type[Exception]
) -> None:
    error = KafkaError(code, text) if text else KafkaError(code)
    assert type(as_error(error, "the member")) is kind


async def test_a_close_that_is_cancelled_goes_on_and_is_waited_for_by_the_next_one() -> None:
    may_end = asyncio.Event()
    calls: list[str] = []

    class SlowConsumer:
        async def close(self) -> None:
            calls.append("begins")
            await may_end.wait()
            calls.append("ends")

    member = ConfluentMember(KafkaSettings(servers="b", group="g"))
    member._consumer = SlowConsumer()
    first = asyncio.create_task(member.close())
    while not calls:
        await asyncio.sleep(0.001)
    first.cancel()
    await asyncio.wait((first,))
    assert first.cancelled()
    second = asyncio.create_task(member.close())
    asyncio.get_running_loop().call_later(0.02, may_end.set)
    await second
    assert calls == ["begins", "ends"]


def test_without_the_client_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.aio", None)
    with pytest.raises(UsageError, match=r"pip install hansa\[kafka\]"):
        KafkaMode("broker", "orders")
