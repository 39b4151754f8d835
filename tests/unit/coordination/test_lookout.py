"""Who looks after others: what it asks, when, and what it does not say."""

import asyncio
from typing import Any

import pytest

from hansa.coordination import MemberStatus, MemberSuspected
from hansa.coordination.member import NodeRecord
from hansa.coordination.roster import is_overdue
from hansa.keys import Keys
from hansa.store.values import LeaseInfo
from tests.support.member_stage import MemberStage, told

INTERVAL_S, TIMEOUT_S = 1.0, 5.0
# Looks come an interval apart, up to a fifth later.
LOOK_S_MAX = 1.2 * INTERVAL_S


@pytest.mark.spec("CRD-06")
@pytest.mark.parametrize("seed", range(6))
def test_slow_answers_make_nobody_suspected_later_than_by_one_look(seed: int) -> None:
    """What is left of a lease was told when the store was asked, and not when the answer came."""
    late_s = 0.8

    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        ask = stage.store.lease_info

        async def slow(lease: int, *, timeout: float | None = None) -> LeaseInfo | None:
            answer = await ask(lease, timeout=timeout)
            await asyncio.sleep(late_s)
            return answer

        stage.store.lease_info = slow  # type: ignore[method-assign]
        await stage.passed(3.0)
        left = await ask(b.me.lease)
        assert left is not None
        stage.pause("b")
        overdue_s = stage.loop.time() + left.ttl_s - TIMEOUT_S
        await a.until(lambda view: view["b"].status is MemberStatus.SUSPECT, timeout=20)
        assert stage.loop.time() - overdue_s <= LOOK_S_MAX + late_s + 0.01

    MemberStage.play(scene, seed=seed)


def test_it_forgets_those_whom_it_looks_after_no_more() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        await stage.join("b")
        await stage.passed(3.0)
        assert set(a.heartbeats_s) == {"b"}
        await stage.leave("b")
        await stage.passed(3.0)
        assert a.heartbeats_s == {}

    MemberStage.play(scene)


def test_who_has_said_that_it_leaves_is_not_suspected_any_more() -> None:
    """Its word came between the question and the answer, and its lease is still there."""

    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        ask, store, key = stage.store.lease_info, stage.store, Keys().node("b")

        async def answered_late(lease: int, *, timeout: float | None = None) -> LeaseInfo | None:
            answer = await ask(lease, timeout=timeout)
            if answer is not None and lease == b.me.lease and is_overdue(answer):
                found = await store.get(key)
                assert found is not None
                word = NodeRecord.decode(found.value).saying(MemberStatus.LEFT, "left").encode()
                await store.put(key, word, lease=lease)
                await a.until(lambda view: view["b"].status is MemberStatus.LEFT, timeout=1)
            return answer

        store.lease_info = answered_late  # type: ignore[method-assign]
        stage.pause("b")
        await a.until(lambda view: view["b"].status is MemberStatus.LEFT, timeout=20)
        await stage.passed(0.5)
        assert await store.get(Keys().suspect("b")) is None
        assert a.stats.suspicions_count == 0

    MemberStage.play(scene)


def test_of_two_who_see_the_same_one_says_it() -> None:
    async def scene(stage: MemberStage) -> None:
        a, c = await stage.join("a"), await stage.join("c")
        b = await stage.join("b")
        for each in (a, c):
            await each.until(lambda view: len(view.up()) == 3, timeout=1)
        events, ask, asked = a.events(), stage.store.lease_info, asyncio.Barrier(2)

        async def both_at_once(lease: int, *, timeout: float | None = None) -> Any:
            answer = await ask(lease, timeout=timeout)
            if answer is not None and lease == b.me.lease and is_overdue(answer):
                await asked.wait()
            return answer

        stage.store.lease_info = both_at_once  # type: ignore[method-assign]
        stage.pause("b")
        await a.until(lambda view: view["b"].status is MemberStatus.SUSPECT, timeout=20)
        await stage.passed(1.0)
        assert a.stats.suspicions_count + c.stats.suspicions_count == 1
        assert len([event for event in told(events) if isinstance(event, MemberSuspected)]) == 1

    MemberStage.play(scene)
