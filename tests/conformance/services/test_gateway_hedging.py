"""Providers that stand still: idempotent requests are sent to another one as well, and have one outcome."""

import asyncio
from collections import Counter

import pytest

from hansa.errors import HandlerFailed, ProviderLost, TimedOut
from hansa.services.gateway import Completion, Gateway, RetryPolicy, tries
from tests.support.gateway_stage import Stage, until
from tests.support.lanes import Lane
from tests.support.scripted_provider import Answer, ScriptedProvider, echo, saying, silence

pytestmark = pytest.mark.parametrize("lane", ["tcp"], indirect=True)

TIMEOUT_S = 5.0
POLICY = RetryPolicy(pause_s_min=0.001, pause_s_max=0.002)


class InOrder:
    """Chooses the first in the order in which they were listed, so that a test knows who is asked."""

    def choose(self, members, key, chance):  # type: ignore[no-untyped-def]
        return members[0]


async def service(
    stage: Stage, *answers: Answer, retry: RetryPolicy = POLICY
) -> tuple[Gateway, list[ScriptedProvider]]:
    """A gateway connected to one provider of "work" for each answer, asked in that order."""
    gateway = await stage.gateway(retry=retry)
    gateway.set_balancer("work", InOrder())
    providers = []
    for number, answer in enumerate(answers):
        providers.append(await stage.provider(f"p{number}", "work", answer=answer))
        await gateway.wait_connected("work", number + 1)
    assert gateway._board is not None
    for _ in range(20):
        # Known to be quick, so that its tries have the least time there is.
        gateway._board.links["work"].hedging.answered(0.001)
    return gateway, providers


def in_flight(gateway: Gateway) -> list[int]:
    board = gateway._board
    assert board is not None
    return [member.in_flight_count for member in board.links["work"].pool.members.values()]


@pytest.mark.spec("DIS-24")
async def test_a_second_provider_answers_for_one_that_stands_still(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (still, well) = await service(stage, silence, echo)
        assert await gateway.request("work", b"?", idempotent=True, timeout=TIMEOUT_S) == [b"?"]
        assert still.asked[0].request_id == well.asked[0].request_id
        stats = gateway.stats
        assert (stats.hedged_count, stats.retried_count, stats.suspected_count) == (1, 0, 1)
        assert in_flight(gateway) == [0, 0]
        left_ms = well.asked[0].header.remaining_ms
        assert left_ms is not None
        assert left_ms <= 4_900
        # It comes to: what it says is too late, and it is well.
        still.reply(still.asked[0], b"late")
        await until(lambda: gateway.stats.late_replies_count == 1)
        assert gateway.stats.suspected_count == 0
        assert gateway.stats.replied_count == gateway.stats.requests_count == 1


@pytest.mark.spec("DIS-24")
async def test_the_first_provider_may_still_be_the_first_to_answer(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (slow, still) = await service(stage, silence, silence)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("work", b"?", idempotent=True, timeout=TIMEOUT_S))
            (second,) = await still.wait_asked(1)
            slow.reply(slow.asked[0], b"first")
        assert task.result() == [b"first"]
        still.reply(second, b"second")
        await until(lambda: gateway.stats.late_replies_count == 1)
        assert gateway.stats.replied_count == 1
        assert in_flight(gateway) == [0, 0]


async def test_what_is_not_idempotent_is_never_sent_twice(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (_, well) = await service(stage, silence, echo)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("work", b"once", timeout=None))
            direct = gateway.router("work").send(b"p0", 77, b"direct", timeout=None)
            await direct
            # One that may be shows that the time of the others' tries has passed.
            assert await gateway.request("work", b"twice", idempotent=True, timeout=TIMEOUT_S) == [b"twice"]
            assert [one.parts for one in well.asked] == [[b"twice"]]
            task.cancel()


@pytest.mark.parametrize(
    ("policy", "asked_count"),
    [(POLICY, 3), (RetryPolicy(tries_max=1), 1), (RetryPolicy(hedge_share=0.0), 1)],
)
async def test_tries_beside_each_other_are_bounded(lane: Lane, policy: RetryPolicy, asked_count: int) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(stage, *[silence] * 4, retry=policy)
        with pytest.raises(TimedOut) as caught:
            await gateway.request("work", b"?", idempotent=True, timeout=0.8)
        asked = [one for one in providers if one.asked]
        assert len(asked) == asked_count
        # Everybody who might have answered is named.
        assert all(one.endpoint in str(caught.value) for one in asked)
        assert gateway.stats.hedged_count == asked_count - 1
        assert in_flight(gateway) == [0] * 4


@pytest.mark.parametrize("lost", [0, 1])
async def test_the_loss_of_one_of_two_tries_leaves_the_other(lane: Lane, lost: int) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(
            stage, silence, silence, retry=RetryPolicy(tries_max=2, pause_s_min=0.001, pause_s_max=0.002)
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("work", b"?", idempotent=True, timeout=TIMEOUT_S))
            await providers[1].wait_asked(1)
            providers[lost].vanish()
            await until(lambda: gateway.connection_count("work") == 1)
            other = providers[1 - lost]
            other.reply(other.asked[0], b"!")
        assert task.result() == [b"!"]


async def test_when_every_try_is_lost_the_caller_is_told_so(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(stage, silence, silence, retry=RetryPolicy(tries_max=2))
        task = asyncio.ensure_future(gateway.request("work", b"?", idempotent=True, timeout=TIMEOUT_S))
        await providers[1].wait_asked(1)
        for one in providers:
            one.vanish()
        with pytest.raises(ProviderLost):
            await task
        assert gateway.stats.failed == {"provider-lost": 1}


async def test_a_lost_try_is_followed_by_another_while_one_stands_still(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(stage, silence, silence, echo)
        task = asyncio.ensure_future(gateway.request("work", b"?", idempotent=True, timeout=TIMEOUT_S))
        await providers[1].wait_asked(1)
        providers[1].vanish()
        assert await task == [b"?"]
        assert len(providers[2].asked) == 1


@pytest.mark.parametrize("who", [0, 1])
async def test_a_refusal_leaves_the_other_try_and_an_answer_ends_both(lane: Lane, who: int) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(stage, silence, silence, retry=RetryPolicy(tries_max=2))
        other = providers[1 - who]
        for code, number in (("busy", 1), ("own", 2)):
            task = asyncio.ensure_future(gateway.request("work", b"?", idempotent=True, timeout=TIMEOUT_S))
            await asyncio.gather(*(one.wait_asked(number) for one in providers))
            providers[who].fail(providers[who].asked[-1], code)
            if code == "busy":
                other.reply(other.asked[-1], b"!")
                assert await task == [b"!"]
            else:
                with pytest.raises(HandlerFailed):
                    await task
        other.reply(other.asked[-1], b"late")
        await until(lambda: gateway.stats.late_replies_count == 1)
        assert in_flight(gateway) == [0, 0]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_who_stands_still_gets_no_requests_until_it_answers(lane: Lane, idempotent: bool) -> None:
    async with Stage(lane) as stage:
        gateway, (still, well) = await service(stage, silence, echo)
        await gateway.request("work", b"first", idempotent=True, timeout=TIMEOUT_S)
        for _ in range(5):
            assert await gateway.request("work", b"next", idempotent=idempotent, timeout=TIMEOUT_S) == [
                b"next"
            ]
        assert len(still.asked) == 1
        assert len(well.asked) == 6
        still.answer = saying(b"well")
        still.reply(still.asked[0], b"late")
        await until(lambda: gateway.stats.suspected_count == 0)
        assert await gateway.request("work", b"?", idempotent=idempotent) == [b"well"]


async def test_who_stands_still_is_tried_again_after_a_while(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (still, _) = await service(stage, silence, echo)
        await gateway.request("work", b"first", idempotent=True, timeout=TIMEOUT_S)
        still.answer = saying(b"well")
        # Nothing but time passes, and nothing is in flight.
        await until(lambda: gateway.stats.suspected_count == 0)
        assert await gateway.request("work", b"?") == [b"well"]


async def test_a_provider_that_comes_is_asked_by_those_who_wait_for_one_that_stands_still(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (still,) = await service(stage, silence)
        task = asyncio.ensure_future(gateway.request("work", b"?", idempotent=True, timeout=10.0))
        await until(lambda: gateway.stats.suspected_count == 1)
        await stage.provider("p1", "work", answer=saying(b"new"))
        assert await task == [b"new"]
        assert len(still.asked) == 1


async def test_beyond_the_budget_requests_wait_for_their_first_try(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "HEDGES_COUNT_MAX", 2)
    monkeypatch.setattr(tries, "HEDGES_PER_S", 0.0)
    async with Stage(lane) as stage:
        gateway, (still, well) = await service(stage, silence, silence)
        got: list[Completion] = []
        for number in range(5):
            gateway.submit("work", b"%d" % number, got.append, idempotent=True, timeout=1.0)
        await until(lambda: gateway.stats.withheld_count == 3)
        assert len(await well.wait_asked(2)) == 2
        for asked in still.asked[2:]:
            still.reply(asked, b"after all")
        await until(lambda: len(got) == 5)
        assert Counter(one.error is None for one in got) == {True: 3, False: 2}
        assert len(well.asked) == gateway.stats.hedged_count == 2


async def test_many_tries_beside_each_other_and_losses_give_each_request_one_outcome(lane: Lane) -> None:
    async with Stage(lane) as stage:
        policy = RetryPolicy(tries_max=20, pause_s_min=0.001, pause_s_max=0.002)
        gateway, providers = await service(stage, silence, echo, silence, echo, retry=policy)
        gateway.set_balancer("work", None)
        got: Counter[int] = Counter()
        opened = []

        def submit(timeout: float | None) -> None:
            opened.append(
                gateway.submit(
                    "work",
                    b"?",
                    lambda completion: got.update([completion.request_id]),
                    idempotent=True,
                    timeout=timeout,
                )
            )

        for number in range(200):
            submit((0.6, None)[number % 2])
            if number % 20 == 10:
                providers[number // 20 % 4].vanish()
                await gateway.wait_connected("work")
            await asyncio.sleep(0)
        # No more losses: what is with the silent ones now is answered by the others, or not at all.
        await gateway.wait_connected("work", 4)
        for _ in range(8):
            submit(None)
        await until(lambda: gateway.stats.in_flight_count == 0)
        assert got == Counter(opened)
        assert gateway.stats.hedged_count > 0
        assert in_flight(gateway) == [0, 0, 0, 0]
