"""How long a Kafka group keeps its handoffs, and who deletes them; the broker is the test."""

import asyncio

import pytest

from hansa.assignment import kafka_entries
from hansa.assignment.assignments import Assignments
from hansa.assignment.handoff import Handoffs
from hansa.assignment.topology import EntryNote
from hansa.coordination.placed import Placement
from hansa.errors import KafkaUnavailable, UsageError
from hansa.keys import Keys
from hansa.store.memory import MemoryStore
from hansa.store.values import Put
from tests.support.kafka_stage import GROUP, KafkaStage, part

A, B = part(0), part(1)


@pytest.mark.spec("ASG-06")
async def test_handoffs_that_go_before_the_messages_are_refused_with_both_numbers() -> None:
    stage = KafkaStage(handoff_lifetime=3_600.0, kept_s=604_800.0)
    with pytest.raises(UsageError, match=r"3600 s.*604800 s"):
        async with stage:
            raise await stage.ended() or AssertionError("it was not refused")


@pytest.mark.spec("ASG-07")
async def test_one_worker_of_the_group_leads_and_the_others_are_standby_for_what_they_do_not_have() -> None:
    async with (
        MemoryStore() as store,
        KafkaStage(store, name="a", handoff_lifetime=10.0) as first,
        KafkaStage(store, name="b", handoff_lifetime=10.0) as second,
    ):
        await first.member.assign(A, generation=1, member="a")
        await second.member.assign(B, generation=1, member="b")
        await first.until(lambda: first.worker.works and second.worker.works)
        await first.until(lambda: first.mode.is_leading or second.mode.is_leading)
        assert first.mode.is_leading is not second.mode.is_leading
        found = await Assignments(store, GROUP).all()
        assert (found[A.name].owner, found[A.name].standby) == ("a", ("b",))
        assert (found[B.name].owner, found[B.name].standby) == ("b", ("a",))
        assert found[A.name].generation == 1


@pytest.mark.spec("ASG-06")
async def test_old_handoffs_go_but_for_partitions_that_somebody_has_or_had_when_it_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_entries, "ASSIGNMENT_SWEEP_S", 0.05)
    gone = part(7)
    async with MemoryStore() as store:
        async with KafkaStage(store, name="a") as before:
            before.member.logs |= {A: 3, gone: 3}
            await before.member.assign(A, gone, generation=1)
            await before.until(lambda: sum(map(len, before.read.values())) == 6)
        # As one that died: the entry still names it.
        placement = Placement(node="dead", lease=7, epoch=1, body=EntryNote(generation=1).encode())
        await store.commit([], [Put(Keys().assignment(GROUP, A.name), placement.encode())])
        async with KafkaStage(store, name="b", handoff_lifetime=0.2, kept_s=0.1) as stage:
            await stage.until(lambda: stage.mode.is_leading)
            handoffs = Handoffs(store, GROUP)
            async with asyncio.timeout(20.0):
                while await handoffs.load(gone.name) is not None:
                    await asyncio.sleep(0.02)
            assert await handoffs.load(A.name) is not None


@pytest.mark.spec("ASG-06")
@pytest.mark.parametrize("kept_s", [0.3, None])
async def test_handoffs_stay_when_the_topics_retention_is_raised_later(
    kept_s: float | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka_entries, "ASSIGNMENT_SWEEP_S", 0.02)
    async with KafkaStage(handoff_lifetime=0.2, kept_s=0.1) as stage:
        stage.member.logs[A] = 3
        await stage.member.assign(A)
        await stage.until(lambda: len(stage.read.get(A.name, ())) == 3)
        stage.member.kept_s = kept_s
        await stage.member.revoke(A)
        await stage.until(lambda: caplog.text.count("deletes no handoffs") > 1)
        began_s = asyncio.get_running_loop().time()
        await stage.until(lambda: asyncio.get_running_loop().time() - began_s > 0.6)
        assert await stage.handoff(A) is not None


async def test_a_worker_leaves_though_its_broker_was_never_there() -> None:
    async with KafkaStage(handoff_lifetime=60.0, trouble=KafkaUnavailable("away")) as stage:
        await stage.until(lambda: stage.mode.stats.errors_count > 1)
