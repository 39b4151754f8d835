"""Providers that talk nonsense, and gateways that close in the middle of things."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hansa.errors import AlreadyClosed, BadFrame, ProviderLost
from hansa.limits import STRIKES_MAX
from hansa.services.gateway import Completion, Gateway, RetryPolicy
from hansa.transport import CloseReason, Disconnected
from hansa.wire.business import ERROR_MSG_ID, encode_call
from tests.support.gateway_stage import Stage, until
from tests.support.lanes import Lane, quick
from tests.support.leftovers import alive
from tests.support.scripted_provider import Asked, echo, refusing, silence

pytestmark = pytest.mark.parametrize("lane", ["tcp", "inproc"], indirect=True)

GARBAGE = [[b""], [b"x"], [b"12345678"], [b"1234567", b"\0\0"], [b"12345678", b"\0"], [b"", b"", b""]]


async def asked_twice(stage: Stage) -> tuple[Gateway, list[Asked], asyncio.Task[list[bytes]]]:
    """A silent provider with one request of a task."""
    ann = await stage.provider("ann", "echo", answer=silence)
    gateway = await stage.gateway()
    await gateway.wait_connected("echo")
    task = asyncio.ensure_future(gateway.request("echo", b"?", timeout=None))
    return gateway, await ann.wait_asked(1), task


async def test_garbage_is_counted_and_hurts_nobody(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")

        def noisy(asked: Asked) -> list[bytes]:
            for frames in GARBAGE:
                ann.say(asked.peer, frames)
            return asked.reply(b"the reply")

        ann.answer = noisy
        assert await gateway.request("echo", b"?") == [b"the reply"]
        assert sum(gateway.stats.bad_frames.values()) == len(GARBAGE)
        assert gateway.stats.expelled_count == 0
        assert gateway.connection_count("echo") == 1


async def test_who_talks_nothing_but_garbage_is_expelled(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann, bob) = await stage.echo_service("ann", "bob")
        await asyncio.gather(*(gateway.request("echo", b"?") for _ in range(2)))
        peer = ann.asked[0].peer
        for _ in range(STRIKES_MAX - 1):
            ann.say(peer, [b"garbage"])
        await until(lambda: gateway.stats.bad_frames == {"bad-frame": STRIKES_MAX - 1})
        assert gateway.stats.expelled_count == 0
        ann.answer = silence
        tasks = [asyncio.ensure_future(gateway.request("echo", b"?", timeout=None)) for _ in range(2)]
        await ann.wait_asked(2)
        ann.say(peer, [b"garbage"])
        await asyncio.wait(tasks)
        assert {type(task.exception()) for task in tasks} == {ProviderLost, type(None)}
        assert gateway.stats.expelled_count == 1
        await ann.wait_left()
        assert bob.events.of(Disconnected) == []
        # It may come back, and starts anew.
        await gateway.wait_connected("echo", 2)
        ann.say(peer, [b"garbage"])
        await until(lambda: gateway.stats.bad_frames["bad-frame"] == STRIKES_MAX + 1)
        assert gateway.connection_count("echo") == 2


async def test_a_new_connection_starts_without_the_strikes_of_the_former(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        await gateway.request("echo", b"?")
        peer = ann.asked[0].peer
        for round_count in (1, 2):
            for _ in range(STRIKES_MAX - 1):
                ann.say(peer, [b"garbage"])
            wanted = round_count * (STRIKES_MAX - 1)
            await until(lambda wanted=wanted: gateway.stats.bad_frames == {"bad-frame": wanted})  # type: ignore[misc]
            ann.vanish()
            await until(lambda: gateway.connection_count("echo") == 0)
            await gateway.wait_connected("echo")
            await gateway.request("echo", b"?")
        assert gateway.stats.expelled_count == 0


async def test_replies_under_unknown_ids_are_counted_as_late(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")

        def twice(asked: Asked) -> list[bytes]:
            ann.say(asked.peer, encode_call(asked.request_id + 1000, 0, [b"whose?"]))
            ann.say(asked.peer, asked.reply(b"right"))
            return asked.reply(b"again")

        ann.answer = twice
        assert await gateway.request("echo", b"?") == [b"right"]
        await until(lambda: gateway.stats.late_replies_count == 2)
        assert gateway.stats.bad_frames == {}
        assert gateway.stats.replied_count == 1


@pytest.mark.spec("DIS-19")
async def test_a_reply_of_another_provider_is_not_taken(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann, bob) = await stage.echo_service("ann", "bob")
        ann.answer = bob.answer = silence
        await gateway.router("echo").send(b"ann", 1, b"for ann", timeout=None)
        await gateway.router("echo").send(b"bob", 2, b"for bob", timeout=None)
        (for_ann,), (for_bob,) = await ann.wait_asked(1), await bob.wait_asked(1)
        bob.say(for_bob.peer, for_ann.reply(b"forged"))
        bob.say(for_bob.peer, for_ann.failure("own"))
        await until(lambda: gateway.stats.stray_replies_count == 2)
        assert gateway.stats.in_flight_count == 2
        ann.reply(for_ann, b"true")
        assert (await gateway.recv()).parts == [b"true"]


@pytest.mark.spec("DIS-24")
@pytest.mark.parametrize("payload", [[], [b"only-a-code"], [b"", b"no code"], [b"\xff\xfe", b"?"]])
async def test_an_error_that_cannot_be_read_is_an_outcome_too(lane: Lane, payload: list[bytes]) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        ann.answer = lambda asked: encode_call(asked.request_id, ERROR_MSG_ID, payload)
        with pytest.raises(BadFrame):
            await gateway.request("echo", b"?", timeout=None)
        assert gateway.stats.bad_frames == {"bad-frame": 1}
        assert gateway.stats.failed == {"bad-frame": 1}
        ann.answer = echo
        assert await gateway.request("echo", b"?") == [b"?"]


@pytest.mark.spec("DIS-24")
async def test_closing_ends_every_request_once(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _, task = await asked_twice(stage)
        got: list[Completion] = []
        gateway.submit("echo", b"?", got.append, timeout=None)
        await gateway.send("echo", b"?")
        await gateway.router("echo").send(b"ann", 1, b"?")
        await gateway.close()
        with pytest.raises(AlreadyClosed, match="was closed before request"):
            await task
        assert [type(one.error) for one in got] == [AlreadyClosed]
        # What ended can still be taken.
        assert [type((await gateway.recv()).error) for _ in range(2)] == [AlreadyClosed] * 2
        with pytest.raises(AlreadyClosed):
            await gateway.recv()
        assert gateway.stats.failed == {"closed": 4}


async def test_closing_wakes_whoever_waits_inside(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.provider("ann", "echo", answer=silence)
        await stage.raw_provider("mute", b"mute")
        gateway = await stage.gateway(in_flight_max=2)
        await gateway.wait_connected("echo")
        await stage.listed("mute", 1)
        waiting = [
            asyncio.ensure_future(work)
            for work in (
                gateway.request("echo", b"?", timeout=None),
                gateway.request("mute", b"?", timeout=None),
                gateway.request("echo", b"waits for room", timeout=None),
                gateway.send("echo", b"waits for room"),
                gateway.recv(),
                gateway.request_recv(),
                gateway.wait_connected("echo", 2),
            )
        ]
        await until(lambda: len(gateway._line) == 2)
        first, second = asyncio.ensure_future(gateway.close()), asyncio.ensure_future(gateway.close())
        await asyncio.wait(waiting)
        assert {type(one.exception()) for one in waiting} == {AlreadyClosed}
        await asyncio.wait({first, second})


Scenario = Callable[[Stage], Awaitable[None]]


async def with_requests_in_flight(stage: Stage) -> None:
    gateway, _, task = await asked_twice(stage)
    await gateway.close()
    await asyncio.wait({task})
    assert isinstance(task.exception(), AlreadyClosed)


async def with_a_provider_that_is_leaving(stage: Stage) -> None:
    gateway, _, task = await asked_twice(stage)
    (ann,) = stage.discovery.providers("echo")
    stage.retract("echo", ann.endpoint)
    await until(lambda: gateway.connection_count("echo") == 0)
    await gateway.close()
    await asyncio.wait({task})
    assert isinstance(task.exception(), AlreadyClosed)


async def with_requests_in_a_pause(stage: Stage) -> None:
    await stage.provider("ann", "echo", answer=refusing("busy"))
    gateway = await stage.gateway(retry=RetryPolicy(pause_s_min=600, pause_s_max=600))
    await gateway.wait_connected("echo")
    task = asyncio.ensure_future(gateway.request("echo", b"?", timeout=None))
    given_up = asyncio.ensure_future(gateway.request("echo", b"?", timeout=None))
    await until(lambda: gateway.stats.moved_count == 2)
    given_up.cancel()
    await asyncio.wait({given_up})
    await gateway.close()
    await asyncio.wait({task})
    assert isinstance(task.exception(), AlreadyClosed)


async def with_a_callback_that_asks_again(stage: Stage) -> None:
    await stage.provider("ann", "echo", answer=silence)
    gateway = await stage.gateway()
    await gateway.wait_connected("echo")
    ends: list[Completion] = []

    def again(completion: Completion) -> None:
        ends.append(completion)
        if len(ends) < 3:
            gateway.submit("echo", b"?", again, timeout=0.0)
        elif len(ends) == 3:
            gateway.submit("echo", b"?", ends.append, timeout=600.0)

    gateway.submit("echo", b"?", again, timeout=0.0)
    await until(lambda: len(ends) == 3)
    await gateway.close()
    assert isinstance(ends[3].error, AlreadyClosed)


async def while_a_dial_is_under_way(stage: Stage) -> None:
    await stage.raw_provider("echo", b"mute")
    gateway = await stage.gateway()
    await stage.listed("echo", 1)
    task = asyncio.ensure_future(gateway.request("echo", b"?"))
    await until(lambda: gateway.stats.parked_count == 1)
    await gateway.close()
    await asyncio.wait({task})
    assert isinstance(task.exception(), AlreadyClosed)


async def while_it_disconnects(stage: Stage) -> None:
    gateway, providers = await stage.echo_service("ann", "bob")
    await asyncio.gather(*(gateway.request("echo", b"?") for _ in range(4)))
    for one in providers:
        stage.retract("echo", one.endpoint)
    await until(lambda: gateway.connection_count("echo") == 0)
    await gateway.close()


async def with_stalled_providers_and_an_impatient_closer(stage: Stage) -> None:
    gateway = await stage.gateway(options=quick(linger=60.0))
    raws = [await stage.stalled_provider(service, b"p-" + service.encode()) for service in ("one", "two")]
    for service in ("one", "two"):
        await gateway.wait_connected(service)
        for _ in range(200):
            gateway.submit(service, bytes(65_536), lambda completion: None)
    closing = asyncio.ensure_future(gateway.close())
    await asyncio.wait({closing}, timeout=0.05)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()
    for raw in raws:
        raw.abort()
        await raw.lost


async def before_anything_happened(stage: Stage) -> None:
    gateway = await stage.gateway()
    await gateway.close()


@pytest.mark.parametrize(
    "scenario",
    [
        with_requests_in_flight,
        with_a_provider_that_is_leaving,
        with_requests_in_a_pause,
        with_a_callback_that_asks_again,
        while_a_dial_is_under_way,
        while_it_disconnects,
        with_stalled_providers_and_an_impatient_closer,
        before_anything_happened,
    ],
)
async def test_after_closing_nothing_is_left(lane: Lane, scenario: Scenario) -> None:
    async with Stage(lane) as stage:
        # Whatever is made once and kept by the loop is there from now on.
        await stage.echo_service("ann")
    before = alive()
    async with Stage(lane) as stage:
        await scenario(stage)
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert not [name for name in names if name.startswith("gateway")]
    await lane.end()
    lane.listeners.clear()
    lane.raw.clear()
    after = alive()
    assert after.tasks - before.tasks == frozenset()
    assert after.descriptors - before.descriptors == frozenset()
    assert after.timers == before.timers
    assert after.threads - before.threads == frozenset()


async def test_a_connection_of_a_closed_gateway_ends_in_order(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        await gateway.request("echo", b"?")
        await gateway.close()
        await ann.wait_left()
        assert ann.events.of(Disconnected)[0].reason is CloseReason.CLOSED_BY_PEER
