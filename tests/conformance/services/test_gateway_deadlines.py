"""Requests that run out of time, callers that give up, and the bound on what is in flight."""

import asyncio
import time
from errno import ETIMEDOUT
from inspect import signature

import pytest

from hansa.errors import Backlogged, NoProvider, TimedOut
from hansa.services.gateway import Completion, DirectRouter, Gateway, RetryPolicy
from hansa.transport import Overflow
from hansa.wire.business import ErrorReply, encode_error
from tests.support.gateway_stage import Stage, until
from tests.support.lanes import Lane, quick
from tests.support.scripted_provider import ScriptedProvider, echo, refusing, silence

pytestmark = pytest.mark.parametrize("lane", ["tcp", "inproc"], indirect=True)


async def silent_service(stage: Stage, *, in_flight_max: int = 100) -> tuple[Gateway, ScriptedProvider]:
    provider = await stage.provider("ann", "echo", answer=silence)
    gateway = await stage.gateway(in_flight_max=in_flight_max)
    await gateway.wait_connected("echo")
    return gateway, provider


def block(seconds: float) -> None:
    """As a callback does that computes, or calls what waits."""
    time.sleep(seconds)


async def waiting(gateway: Gateway, count: int) -> None:
    """Until so many callers wait for room."""
    await until(lambda: len(gateway._line) == count)


@pytest.mark.spec("DIS-20")
async def test_a_request_times_out_once_and_its_late_reply_is_dropped_and_counted(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimedOut, match="no reply from") as caught:
            await gateway.request("echo", b"?", timeout=0.05)
        assert loop.time() - began >= 0.049  # uvloop counts whole milliseconds.
        assert caught.value.errno == ETIMEDOUT
        assert gateway.stats.failed == {"timed-out": 1}
        provider.reply((await provider.wait_asked(1))[0], b"late")
        await until(lambda: gateway.stats.late_replies_count == 1)
        assert gateway.stats.replied_count == 0
        assert gateway.stats.in_flight_count == 0


@pytest.mark.spec("DIS-20")
async def test_a_callback_hears_of_the_timeout_and_nothing_after_it(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage)
        got: list[Completion] = []
        gateway.submit("echo", b"?", got.append, timeout=0.01)
        await until(lambda: bool(got))
        assert isinstance(got[0].error, TimedOut)
        provider.reply((await provider.wait_asked(1))[0], b"late")
        await until(lambda: gateway.stats.late_replies_count == 1)
        assert len(got) == 1


@pytest.mark.spec("DIS-20")
async def test_a_request_waits_five_seconds_unless_told_otherwise(lane: Lane) -> None:
    for form in (Gateway.request, Gateway.submit, Gateway.request_send, DirectRouter.send):
        assert signature(form).parameters["timeout"].default == 5.0
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("echo", b"?"))
            gateway.submit("echo", b"?", lambda completion: None)
            await gateway.request_send("echo", b"?")
            await gateway.router("echo").send(b"ann", 1, b"?")
            asked = await provider.wait_asked(4)
            task.cancel()
        # What the provider is told is what the gateway waits.
        assert [one.header.remaining_ms for one in asked] == [5_000] * 4
        board = gateway._board
        assert board is not None
        now = asyncio.get_running_loop().time()
        assert {round(call.deadline - call.started_at, 6) for call in board.calls.open.values()} == {5.0}
        assert all(now < call.deadline <= now + 5.0 for call in board.calls.open.values())


async def test_a_timeout_that_the_program_caused_itself_says_so(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await silent_service(stage, in_flight_max=1)
        task = asyncio.ensure_future(gateway.request("echo", b"?", timeout=0.2))
        await until(lambda: gateway.stats.in_flight_count == 1)
        waiting_for_room = asyncio.ensure_future(gateway.request("echo", b"?", timeout=0.2))
        await waiting(gateway, 1)
        block(0.6)
        for one in (task, waiting_for_room):
            with pytest.raises(TimedOut, match=r"this program's own event loop stood still"):
                await one


@pytest.mark.spec("DIS-20")
async def test_many_deadlines_end_in_their_order(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await silent_service(stage)
        got: list[Completion] = []
        ids = [
            gateway.submit("echo", b"?", got.append, timeout=timeout)
            for timeout in (0.12, 0.01, 0.06, None, -1, 0.0)
        ]
        await until(lambda: len(got) == 4)
        assert {one.request_id for one in got[:2]} == {ids[1], ids[5]}
        assert [one.request_id for one in got[2:]] == [ids[2], ids[0]]
        assert gateway.stats.in_flight_count == 2


@pytest.mark.spec("DIS-20")
async def test_without_a_timeout_a_request_waits_on(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(gateway.request("echo", b"%d" % number, timeout=timeout))
                for number, timeout in enumerate((None, -1, float("inf")))
            ]
            await provider.wait_asked(3)
            # Others come and go with their deadlines meanwhile.
            for _ in range(3):
                with pytest.raises(TimedOut):
                    await gateway.request("echo", b"short", timeout=0.01)
            assert not any(task.done() for task in tasks)
            for asked in provider.asked[:3]:
                provider.reply(asked, *asked.parts)
        assert [task.result() for task in tasks] == [[b"0"], [b"1"], [b"2"]]
        assert [one.header.remaining_ms is None for one in provider.asked[:2]] == [True, True]


async def test_a_stream_of_short_deadlines_does_not_put_off_the_others(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await silent_service(stage, in_flight_max=100_000)
        got: list[Completion] = []
        first = gateway.submit("echo", b"first", got.append, timeout=0.02)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not any(one.request_id == first for one in got):
            gateway.submit("echo", b"?", got.append, timeout=0.0)
            await asyncio.sleep(0.001)
            assert loop.time() - began < 5.0


async def test_a_callback_of_a_timeout_may_ask_again(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await silent_service(stage)
        ends: list[Completion] = []

        def again(completion: Completion) -> None:
            ends.append(completion)
            if len(ends) < 5:
                gateway.submit("echo", b"?", again, timeout=0.001)

        gateway.submit("echo", b"?", again, timeout=0.001)
        await until(lambda: len(ends) == 5)
        assert gateway.stats.failed == {"timed-out": 5}


@pytest.mark.spec("DIS-20")
async def test_the_remaining_time_travels_and_shrinks_with_every_try(lane: Lane) -> None:
    async with Stage(lane) as stage:
        ann = await stage.provider("ann", "echo", answer=silence)
        gateway = await stage.gateway()
        await gateway.wait_connected("echo")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("echo", b"?", timeout=10.0))
            (first,) = await ann.wait_asked(1)
            loop = asyncio.get_running_loop()
            later = loop.time() + 0.02
            await until(lambda: loop.time() > later)
            ann.answer = echo
            ann.fail(first, "busy")
            await task
        assert first.header.remaining_ms == 10_000
        second = ann.asked[1].header.remaining_ms
        assert second is not None
        assert 0 < second <= 9_980


async def test_a_cancelled_request_is_abandoned_and_leaves_nothing(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("echo", b"?"))
            (asked,) = await provider.wait_asked(1)
            task.cancel()
        stats = gateway.stats
        assert (stats.abandoned_count, stats.in_flight_count, stats.failed) == (1, 0, {})
        provider.reply(asked, b"late")
        await until(lambda: gateway.stats.late_replies_count == 1)
        (member,) = gateway._board.links["echo"].pool.ready  # type: ignore[union-attr]
        assert member.in_flight_count == 0


async def test_a_submitted_request_can_be_abandoned(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage)
        got: list[Completion] = []
        request_id = gateway.submit("echo", b"?", got.append)
        assert gateway.abandon(request_id)
        assert not gateway.abandon(request_id)
        provider.reply((await provider.wait_asked(1))[0], b"late")
        await until(lambda: gateway.stats.late_replies_count == 1)
        assert got == []


@pytest.mark.parametrize("code", ["", "own"])
@pytest.mark.parametrize("cancel_first", [True, False])
async def test_a_cancellation_in_the_turn_of_the_outcome_leaves_one_outcome(
    lane: Lane, code: str, cancel_first: bool
) -> None:
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage)
        board = gateway._board
        assert board is not None
        task = asyncio.ensure_future(gateway.request("echo", b"?"))
        (asked,) = await provider.wait_asked(1)
        frames = asked.failure(code) if code else asked.reply(b"!")
        if cancel_first:
            task.cancel()
        board._replies(board.links["echo"], b"ann", [frames])
        if not cancel_first:
            task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        stats = gateway.stats
        assert stats.replied_count + sum(stats.failed.values()) + stats.abandoned_count == 1
        assert stats.in_flight_count == 0


@pytest.mark.spec("DIS-24")
async def test_at_the_limit_requests_wait_and_go_on_in_their_order(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage, in_flight_max=2)
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number in range(10):
                tasks.append(group.create_task(gateway.request("echo", b"%d" % number)))
                await waiting(gateway, max(0, number - 1))
            for number in range(10):
                asked = await provider.wait_asked(number + 1)
                assert gateway.stats.in_flight_count <= 2
                provider.reply(asked[number], *asked[number].parts)
        assert [one.parts for one in provider.asked] == [[b"%d" % number] for number in range(10)]
        assert [task.result() for task in tasks] == [[b"%d" % number] for number in range(10)]


async def test_callbacks_that_ask_again_do_not_keep_out_those_who_wait(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.provider("ann", "echo")
        gateway = await stage.gateway(in_flight_max=2)
        await gateway.wait_connected("echo")
        refused: list[Backlogged] = []

        def again(completion: Completion) -> None:
            try:
                gateway.submit("echo", b"greedy", again)
            except Backlogged as error:
                refused.append(error)

        for _ in range(2):
            gateway.submit("echo", b"greedy", again)
        assert await gateway.request("echo", b"patient") == [b"patient"]
        assert refused


async def test_a_deadline_passes_while_waiting_for_room(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage, in_flight_max=1)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(gateway.request("echo", b"first"))
            (asked,) = await provider.wait_asked(1)
            with pytest.raises(TimedOut, match="nothing was sent"):
                await gateway.request("echo", b"second", timeout=0.02)
            third = group.create_task(gateway.request("echo", b"third"))
            await waiting(gateway, 1)
            provider.reply(asked, b"1")
            provider.reply((await provider.wait_asked(2))[1], b"3")
        assert (first.result(), third.result()) == ([b"1"], [b"3"])
        assert [one.parts for one in provider.asked] == [[b"first"], [b"third"]]
        stats = gateway.stats
        assert stats.requests_count == stats.replied_count + stats.failed["timed-out"] == 3


async def test_who_is_cancelled_or_fails_when_let_in_passes_the_room_on(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, provider = await silent_service(stage, in_flight_max=1)
        board = gateway._board
        assert board is not None
        first = asyncio.ensure_future(gateway.request("echo", b"first"))
        (asked,) = await provider.wait_asked(1)
        provider.answer = echo
        tasks = []
        for service in ("echo", "nobody", "echo"):
            tasks.append(asyncio.ensure_future(gateway.request(service, b"next", timeout=None)))
            await waiting(gateway, len(tasks))
        # As if the reply came in the very turn in which the one that it lets in is cancelled.
        board._replies(board.links["echo"], b"ann", [asked.reply(b"1")])
        tasks[0].cancel()
        cancelled, failed, served = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(cancelled, asyncio.CancelledError)
        assert isinstance(failed, NoProvider)
        assert served == [b"next"]
        assert await first == [b"1"]
        assert gateway._taken_count == 0


async def test_completions_that_nobody_took_hold_room_until_they_are_taken(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.provider("ann", "echo")
        gateway = await stage.gateway(in_flight_max=3)
        await gateway.wait_connected("echo")
        for number in range(3):
            await gateway.send("echo", b"%d" % number)
        await until(lambda: gateway.stats.completions_count == 3)
        async with asyncio.TaskGroup() as group:
            fourth = group.create_task(gateway.send("echo", b"3"))
            await waiting(gateway, 1)
            assert [(await gateway.recv()).parts for _ in range(4)] == [
                [b"%d" % number] for number in range(4)
            ]
        assert fourth.done()


@pytest.mark.parametrize("overflow", list(Overflow))
async def test_a_provider_that_does_not_read_makes_callers_wait(lane: Lane, overflow: Overflow) -> None:
    async with Stage(lane) as stage:
        # Whatever the policy of the sockets: nothing that was taken may be dropped.
        gateway = await stage.gateway(options=quick(outgoing_count_max=2, overflow=overflow))
        raw = await stage.stalled_provider("echo", b"ann")
        await gateway.wait_connected("echo")
        got: list[Completion] = []
        with pytest.raises(Backlogged):
            while True:
                gateway.submit("echo", bytes(200_000), got.append, timeout=None)
        sent_count = gateway.stats.requests_count
        with pytest.raises(TimedOut, match="did not read"):
            await gateway.request("echo", b"?", timeout=0.02)
        with pytest.raises(TimedOut, match="did not read"):
            await gateway.router("echo").send(b"ann", 1, b"?", timeout=0.02)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(gateway.send("echo", b"last"))
            raw.go_on_reading()
            await sending
        assert gateway.stats.in_flight_count == sent_count + 1
        while (await raw.read_message())[2] != b"last":
            pass


@pytest.mark.spec("DIS-24")
async def test_a_request_in_a_pause_between_tries_times_out_or_is_cancelled_cleanly(lane: Lane) -> None:
    async with Stage(lane) as stage:
        provider = await stage.provider("ann", "echo", answer=refusing("busy"))
        gateway = await stage.gateway(retry=RetryPolicy(pause_s_min=60.0, pause_s_max=60.0))
        await gateway.wait_connected("echo")
        with pytest.raises(TimedOut):
            await gateway.request("echo", b"?", timeout=0.02)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("echo", b"?"))
            await until(lambda: gateway.stats.moved_count == 2)
            task.cancel()
        assert gateway.stats.abandoned_count == 1
        assert len(provider.asked) == 2


async def test_a_parked_request_times_out_or_is_cancelled_cleanly(lane: Lane) -> None:
    async with Stage(lane) as stage:
        listener, _ = await stage.raw_provider("echo", b"ann")
        gateway = await stage.gateway()
        await stage.listed("echo", 1)
        with pytest.raises(TimedOut, match="no provider was ready"):
            await gateway.request("echo", b"?", timeout=0.02)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("echo", b"?"))
            await until(lambda: gateway.stats.parked_count == 1)
            task.cancel()
        assert gateway.stats.parked_count == gateway.stats.in_flight_count == 0
        raw = await listener.accept()
        await raw.shake_hands(b"ROUTER", b"ann")
        await gateway.wait_connected("echo")
        got: list[Completion] = []
        gateway.submit("echo", b"now", got.append)
        assert (await raw.read_message())[2:] == [b"now"]


async def test_more_parked_requests_than_the_outbox_takes_leave_one_after_another(lane: Lane) -> None:
    async with Stage(lane) as stage:
        listener, _ = await stage.raw_provider("echo", b"ann")
        gateway = await stage.gateway(options=quick(outgoing_count_max=2))
        await stage.listed("echo", 1)
        got: list[Completion] = []
        for number in range(6):
            gateway.submit("echo", b"%d" % number, got.append)
        raw = await listener.accept()
        await raw.shake_hands(b"ROUTER", b"ann")
        messages = [await raw.read_message() for _ in range(6)]
        assert {message[2] for message in messages} == {b"%d" % number for number in range(6)}
        assert got == []


async def test_a_try_after_the_deadline_does_not_say_that_there_is_none(lane: Lane) -> None:
    async with Stage(lane) as stage:
        providers = {name: await stage.provider(name, "echo", answer=silence) for name in ("ann", "bob")}
        gateway = await stage.gateway()
        await gateway.wait_connected("echo", 2)
        board = gateway._board
        assert board is not None
        got: list[Completion] = []
        request_id = gateway.submit("echo", b"?", got.append, timeout=0.0)
        first = board.calls.open[request_id].peer
        # Before the alarm can ring.
        board._replies(board.links["echo"], first, [encode_error(request_id, ErrorReply("busy"))])
        (second,) = providers.keys() - {first.decode()}
        (asked,) = await providers[second].wait_asked(1)
        assert asked.header.remaining_ms == 1
