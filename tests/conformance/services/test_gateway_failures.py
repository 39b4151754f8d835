"""Providers that vanish, refuse or do not read: each request still has exactly one outcome."""

import asyncio
from collections import Counter

import pytest

from hansa.errors import (
    HandlerFailed,
    HansaError,
    NoProvider,
    ProviderBusy,
    ProviderDraining,
    ProviderLost,
    TimedOut,
)
from hansa.services.gateway import Completion, Gateway, RetryPolicy
from hansa.transport import Disconnected
from tests.support.gateway_stage import Stage, until
from tests.support.lanes import Lane
from tests.support.scripted_provider import Answer, Asked, ScriptedProvider, echo, refusing, saying, silence

pytestmark = pytest.mark.parametrize("lane", ["tcp", "inproc"], indirect=True)

QUICKLY = RetryPolicy(tries_max=3, pause_s_min=0.001, pause_s_max=0.002)


async def service(
    stage: Stage, *answers: Answer, retry: RetryPolicy = QUICKLY
) -> tuple[Gateway, list[ScriptedProvider]]:
    """A gateway connected to one provider of "work" for each answer."""
    providers = [
        await stage.provider(f"p{number}", "work", answer=answer) for number, answer in enumerate(answers)
    ]
    gateway = await stage.gateway(retry=retry)
    await gateway.wait_connected("work", len(providers))
    return gateway, providers


async def outcomes(gateway: Gateway, count: int, **arguments: object) -> list[list[bytes] | BaseException]:
    requests = [gateway.request("work", b"%d" % number, **arguments) for number in range(count)]  # type: ignore[arg-type]
    return await asyncio.gather(*requests, return_exceptions=True)


def only_with(gateway: Gateway, peer: bytes) -> list[object]:
    """The open requests that nobody but this provider may answer."""
    board = gateway._board
    assert board is not None
    return [call for call in board.calls.open.values() if {call.peer, *call.beside} == {peer}]


def totals(gateway: Gateway) -> int:
    """Requests that have an outcome, whichever."""
    stats = gateway.stats
    return stats.replied_count + sum(stats.failed.values()) + stats.abandoned_count


@pytest.mark.spec("DIS-24")
@pytest.mark.parametrize("way", ["vanish", "close"])
async def test_a_provider_that_dies_fails_its_requests_at_once(lane: Lane, way: str) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await service(stage, silence)
        async with asyncio.TaskGroup() as group:
            # Without a timeout: nothing but the loss of the provider can end them.
            task = group.create_task(outcomes(gateway, 20, timeout=None))
            await provider.wait_asked(20)
            if way == "vanish":
                provider.vanish()
            else:
                await provider.close()
        errors = task.result()
        assert {type(error) for error in errors} == {ProviderLost}
        assert all(isinstance(error, HansaError) and error.retryable for error in errors)
        assert "may or may not" in str(errors[0])
        assert gateway.stats.failed == {"provider-lost": 20}
        assert totals(gateway) == gateway.stats.requests_count == 20


@pytest.mark.spec("DIS-24")
async def test_only_the_requests_of_the_lost_provider_fail(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (one, two) = await service(stage, silence, silence)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(outcomes(gateway, 20, timeout=None))
            await one.wait_asked(10)
            await two.wait_asked(10)
            one.vanish()
            await until(lambda: gateway.stats.failed == {"provider-lost": 10})
            for asked in list(two.asked):
                two.reply(asked, *asked.parts)
        results = task.result()
        assert [result for result in results if isinstance(result, list)] == [one.parts for one in two.asked]
        assert sum(isinstance(result, ProviderLost) for result in results) == 10


@pytest.mark.spec("DIS-24")
async def test_what_never_left_this_process_moves_to_another_provider(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await stage.gateway(retry=QUICKLY)
        raw = await stage.stalled_provider("work", b"stalled")
        await gateway.wait_connected("work")
        board = gateway._board
        assert board is not None
        lane_out = board.links["work"].router.lanes[b"stalled"]
        got: list[Completion] = []
        # Until the peer takes no more, and a few that stay in the outbox.
        while not lane_out.outbox.held_count:
            gateway.submit("work", bytes(100_000), got.append, timeout=None)
            await asyncio.sleep(0)
        for number in range(5):
            gateway.submit("work", b"small %d" % number, got.append, timeout=None)
        held_count = lane_out.outbox.held_count
        assert held_count >= 5
        total = gateway.stats.requests_count
        other = await stage.provider("other", "work", answer=saying(b"done"))
        await gateway.wait_connected("work", 2)
        raw.abort()
        await until(lambda: len(got) == total)
        ends = Counter("reply" if one.error is None else one.error.code for one in got)
        assert ends == {"reply": held_count, "provider-lost": total - held_count}
        assert len({one.request_id for one in got}) == total
        assert [one.parts for one in other.asked][-5:] == [[b"small %d" % number] for number in range(5)]
        assert gateway.stats.moved_count == held_count
        # The first ones were handed over, the last ones were not: none of the former went anywhere else.
        assert {one.request_id for one in got if one.error} == {
            one.request_id for one in sorted(got, key=lambda one: one.request_id)[: total - held_count]
        }


@pytest.mark.spec("DIS-24")
async def test_an_idempotent_request_is_tried_again_elsewhere(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(stage, silence, silence)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("work", b"?", idempotent=True, timeout=None))
            await until(lambda: any(one.asked for one in providers))
            first, second = sorted(providers, key=lambda one: -len(one.asked))
            second.answer = saying(b"second")
            first.vanish()
        assert task.result() == [b"second"]
        assert second.asked[0].request_id == first.asked[0].request_id
        assert (gateway.stats.retried_count, gateway.stats.moved_count) == (1, 0)


@pytest.mark.spec("DIS-24")
async def test_an_idempotent_request_goes_back_to_the_only_provider_when_it_returns(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await service(stage, silence)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("work", b"?", idempotent=True, timeout=None))
            await provider.wait_asked(1)
            provider.answer = saying(b"back again")
            provider.vanish()
        assert task.result() == [b"back again"]


async def test_tries_are_bounded(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await service(stage, silence)

        def vanishing(asked: Asked) -> None:
            provider.vanish()

        provider.answer = vanishing
        with pytest.raises(ProviderLost):
            await gateway.request("work", b"?", idempotent=True, timeout=None)
        assert len(provider.asked) == 3
        assert gateway.stats.retried_count == 2


async def test_one_try_is_what_a_policy_of_one_try_allows(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(
            stage, refusing("busy"), refusing("busy"), retry=RetryPolicy(tries_max=1)
        )
        with pytest.raises(ProviderBusy):
            await gateway.request("work", b"?", idempotent=True)
        assert sum(len(one.asked) for one in providers) == 1


@pytest.mark.spec("DIS-24")
@pytest.mark.parametrize("code", ["busy", "draining"])
async def test_a_request_that_was_not_started_moves_on_unnoticed(lane: Lane, code: str) -> None:
    async with Stage(lane) as stage:
        gateway, (one, two) = await service(stage, refusing(code), echo)
        results = await outcomes(gateway, 10)
        assert results == [[b"%d" % number] for number in range(10)]
        assert len(two.asked) == 10
        assert gateway.stats.moved_count == len(one.asked) >= 1
        assert gateway.stats.replied_count == 10


@pytest.mark.spec("DIS-24")
async def test_all_busy_is_busy_after_every_try(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(stage, refusing("busy"), refusing("busy"))
        with pytest.raises(ProviderBusy):
            await gateway.request("work", b"?")
        # Each once, then one of them again after a pause.
        assert sorted(len(one.asked) for one in providers) == [1, 2]
        assert gateway.stats.failed == {"busy": 1}
        assert gateway.stats.in_flight_count == 0


async def test_a_busy_provider_that_recovers_serves_the_next_try(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await service(stage, silence)

        def busy_once(asked: Asked) -> list[bytes]:
            return asked.failure("busy") if len(provider.asked) == 1 else asked.reply(b"now")

        provider.answer = busy_once
        assert await gateway.request("work", b"?") == [b"now"]


@pytest.mark.spec("DIS-29")
async def test_a_draining_provider_gets_no_more_and_answers_what_it_has(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (one, _) = await service(stage, silence, echo)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(outcomes(gateway, 4))
            await one.wait_asked(2)
            one.fail(one.asked[0], "draining")
            await until(lambda: gateway.connection_count("work") == 1)
            assert await outcomes(gateway, 6) == [[b"%d" % number] for number in range(6)]
            assert len(one.asked) == 2
            assert one.events.of(Disconnected) == []
            one.reply(one.asked[1], *one.asked[1].parts)
        assert task.result() == [[b"%d" % number] for number in range(4)]
        # It is the list that says whether another process is to come there.
        stage.retract("work", one.endpoint)
        await one.wait_left()


@pytest.mark.spec("DIS-29")
@pytest.mark.parametrize("is_told", [True, False])
async def test_after_a_draining_provider_the_next_process_there_is_asked(lane: Lane, is_told: bool) -> None:
    """It may come so soon, under the same id, that no list shows that its predecessor has left."""
    async with Stage(lane) as stage:
        gateway, (one,) = await service(stage, silence)
        (entry,) = stage.lists["work"].values()
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(outcomes(gateway, 1)) for _ in range(2)]
            await one.wait_asked(2)
            one.fail(one.asked[0], "draining")
            await until(lambda: gateway.connection_count("work") == 0)
            if is_told:
                stage.retract("work", entry.endpoint)
                await stage.listed("work", 0)
                stage.offer("work", entry)
                await stage.listed("work", 1)
            one.reply(one.asked[1], *one.asked[1].parts)
        refused, answered = [task.result() for task in asking]
        assert isinstance(refused[0], ProviderDraining)
        assert answered == [[b"0"]]
        one.answer = echo
        one.vanish()
        await gateway.wait_connected("work", 1)
        assert await outcomes(gateway, 3) == [[b"0"], [b"1"], [b"2"]]


async def test_when_the_only_provider_drains_the_caller_is_told(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await service(stage, refusing("draining"))
        with pytest.raises(ProviderDraining):
            await gateway.request("work", b"?", timeout=None)
        with pytest.raises(NoProvider, match="1 is draining and no other is connected"):
            await gateway.request("work", b"?")


async def test_what_a_handler_said_is_not_tried_again(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(stage, refusing("own"), refusing("own"))
        with pytest.raises(HandlerFailed):
            await gateway.request("work", b"?", idempotent=True)
        assert sum(len(one.asked) for one in providers) == 1


async def test_only_idempotent_requests_are_tried_again_when_the_provider_had_trouble(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (one, two) = await service(stage, refusing("timed-out"), refusing("timed-out"))
        with pytest.raises(TimedOut):
            await gateway.request("work", b"?")
        assert len(one.asked) + len(two.asked) == 1
        with pytest.raises(TimedOut):
            await gateway.request("work", b"?", idempotent=True)
        assert len(one.asked) + len(two.asked) == 4


@pytest.mark.spec("DIS-23")
@pytest.mark.parametrize("how", ["busy", "vanish"])
async def test_a_direct_request_never_goes_to_another_provider(lane: Lane, how: str) -> None:
    async with Stage(lane) as stage:
        gateway, (one, two) = await service(stage, silence, echo)
        await gateway.router("work").send(b"p0", 77, b"?", timeout=None)
        (asked,) = await one.wait_asked(1)
        if how == "busy":
            one.fail(asked, "busy")
        else:
            one.vanish()
        completion = await gateway.recv()
        assert completion.request_id == 77
        assert type(completion.error) is (ProviderBusy if how == "busy" else ProviderLost)
        assert two.asked == []
        assert gateway.stats.moved_count == gateway.stats.retried_count == 0


@pytest.mark.spec("DIS-24")
@pytest.mark.parametrize("timeout", [0.2, None])
async def test_under_a_storm_of_losses_every_request_has_exactly_one_outcome(
    lane: Lane, timeout: float | None
) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await service(stage, echo, silence, refusing("busy"), echo)
        got: Counter[int] = Counter()
        kinds: Counter[str] = Counter()

        def ended(completion: Completion) -> None:
            got[completion.request_id] += 1
            kinds["reply" if completion.error is None else completion.error.code] += 1

        opened = []
        for number in range(600):
            try:
                opened.append(
                    gateway.submit("work", b"%d" % number, ended, idempotent=number % 2 == 0, timeout=timeout)
                )
            except NoProvider:
                kinds["refused"] += 1
            if number % 40 == 0:
                providers[number // 40 % 4].vanish()
            await asyncio.sleep(0)
        if timeout is None:
            # What is with the silent one has no deadline: nothing but its loss can end it.
            await until(lambda: gateway.stats.in_flight_count == len(only_with(gateway, b"p1")))
            providers[1].answer = echo
            providers[1].vanish()
        await until(lambda: gateway.stats.in_flight_count == 0)
        assert got == Counter(opened)
        assert totals(gateway) == gateway.stats.requests_count == len(opened)
        assert kinds["reply"] > 0
        assert kinds["provider-lost"] > 0
        board = gateway._board
        assert board is not None
        assert all(member.in_flight_count == 0 for member in board.links["work"].pool.members.values())
