"""A provider that leaves: drain, the end of its block, and nothing left behind."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hansa.errors import (
    HandlerFailed,
    ProviderDraining,
    ProviderLost,
    UsageError,
)
from hansa.presence.provider_info import ProviderState
from hansa.services.provider.server import Provider
from hansa.services.provider.work import Request
from hansa.transport.memory_network import MemoryNetwork
from hansa.wire.business import encode_call
from tests.support.lanes import Lane, gathered, quick
from tests.support.leftovers import alive
from tests.support.scripted import Gate, ScriptedGateway, ScriptedRegistry, until


@pytest.fixture(params=["tcp", "inproc"])
async def lane(request: pytest.FixtureRequest, socket_folder: Path) -> AsyncIterator[Lane]:
    """What happens above the sockets does not depend on all the transports: a real one, and the memory."""
    memory = MemoryNetwork() if request.param == "inproc" else None
    lane = Lane(name=request.param, folder=socket_folder, memory=memory)
    yield lane
    await lane.end()


def provide(lane: Lane, *registries: str, **arguments: Any) -> Provider:
    return Provider(
        lane.endpoint(),
        registries,
        **gathered({"network": lane.memory, "options": quick(), **arguments}),
    )


@pytest.mark.spec("DIS-29")
async def test_drain_serves_until_every_gateway_has_left(lane: Lane) -> None:
    gate = Gate()
    async with ScriptedRegistry(lane) as registry:
        provider = provide(lane, registry.endpoint)
        provider.handler()(gate)
        async with provider, ScriptedGateway(lane) as first, ScriptedGateway(lane) as second:
            await provider.register("pay")
            await provider.register("user")
            await first.connect(provider)
            await second.connect(provider)
            running = first.ask(b"running")
            await gate.has(1)
            async with asyncio.TaskGroup() as group:
                draining = group.create_task(provider.drain())
                await until(lambda: registry.entries == {})
                assert provider.state("pay") is ProviderState.UNREGISTERED
                late = second.ask(b"the gateway has not seen it yet")
                await gate.has(2)
                gate.open()
                assert (await first.reply(running))[1] == [b"running"]
                assert (await second.reply(late))[1]
                await first.router.close()
                await until(lambda: provider.stats.peers_count == 1)
                assert not draining.done()
                await second.router.close()
            assert draining.result() is True
            async with ScriptedGateway(lane) as newcomer:
                await newcomer.connect(provider)
                assert isinstance(await newcomer.error(newcomer.ask(b"x")), ProviderDraining)
            with pytest.raises(UsageError, match="leaving"):
                await provider.register("pay")
        assert provider.stats.failed_count == 0


@pytest.mark.spec("DIS-29")
async def test_drain_ends_at_its_timeout_and_says_so(lane: Lane) -> None:
    gate = Gate()
    provider = provide(lane)
    provider.handler()(gate)
    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        running = gateway.ask(b"slow")
        await gate.has(1)
        assert await provider.drain(timeout=0.02) is False
        assert isinstance(await gateway.error(gateway.ask(b"new")), ProviderDraining)
        gate.open()
        assert (await gateway.reply(running))[1] == [b"slow"]
        assert await provider.drain(timeout=0.02) is False  # Somebody idle is still connected.
        await gateway.router.close()
        assert await provider.drain() is True


@pytest.mark.spec("DIS-29")
async def test_a_drain_without_callers_is_done_at_once(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        await provider.register("pay")
        assert await provider.drain() is True
        assert registry.entries == {}


async def test_a_drain_fails_a_registration_under_way(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        registry.script = lambda message: None
        async with asyncio.TaskGroup() as group:
            registering = group.create_task(refused(provider.register("pay")))
            await until(lambda: bool(registry.heard.events))
            registry.script = None
            assert await provider.drain() is True
        assert registering.result() is not None
        assert "unregistered meanwhile" in str(registering.result())


async def refused(work: Any) -> UsageError | None:
    try:
        await work
    except UsageError as error:
        return error
    return None


@pytest.mark.spec("DIS-29")
async def test_leaving_the_block_lets_what_runs_finish(lane: Lane) -> None:
    gate = Gate()
    # Far longer than this test may take: the block ends with the last handler, not with the time it may wait.
    provider = provide(lane, options=quick(linger=60.0), concurrency_max=1)
    provider.handler()(gate)
    async with ScriptedGateway(lane) as gateway:
        async with provider:
            await gateway.connect(provider)
            asked = [gateway.ask(b"running"), gateway.ask(b"waiting")]
            await until(lambda: provider.stats.waiting_count == 1)
            asyncio.get_running_loop().call_later(0.02, gate.open)
        assert [(await gateway.reply(request_id))[1] for request_id in asked] == [[b"running"], [b"waiting"]]
    assert gate.cancelled == []


@pytest.mark.spec("DIS-29")
async def test_a_provider_that_finishes_its_last_requests_takes_no_new_ones(lane: Lane) -> None:
    gate = Gate()
    provider = provide(lane, options=quick(linger=60.0))
    provider.handler()(gate)
    async with ScriptedGateway(lane) as gateway, asyncio.TaskGroup() as group:
        await provider.__aenter__()
        await gateway.connect(provider)
        running = gateway.ask(b"running")
        await gate.has(1)
        group.create_task(provider.__aexit__(None, None, None))
        await asyncio.sleep(0)
        assert isinstance(await gateway.error(gateway.ask(b"new")), ProviderDraining)
        with pytest.raises(UsageError, match="leaving"):
            await provider.register("pay")
        gate.open()
        assert (await gateway.reply(running))[1] == [b"running"]


async def test_what_does_not_finish_is_cancelled_and_its_caller_told_the_truth(lane: Lane) -> None:
    gate = Gate()
    provider = provide(lane, concurrency_max=1)
    provider.handler()(gate)
    async with ScriptedGateway(lane) as gateway:
        async with provider:
            await gateway.connect(provider)
            running, waiting = gateway.ask(b"running"), gateway.ask(b"waiting")
            await until(lambda: provider.stats.waiting_count == 1)
        assert isinstance(await gateway.error(running), ProviderLost)  # It may have been carried out.
        assert isinstance(await gateway.error(waiting), ProviderDraining)  # It was not started.
    assert gate.cancelled == [b"running"]
    stats = provider.stats
    assert (stats.running_count, stats.waiting_count, stats.failed_count, stats.draining_count) == (
        0,
        0,
        1,
        1,
    )


@pytest.mark.spec("DIS-24")
async def test_a_handler_that_swallows_its_cancellation_is_left_behind_and_its_caller_told_once(
    lane: Lane, caplog: pytest.LogCaptureFixture
) -> None:
    told, over = asyncio.Event(), asyncio.Event()
    provider = provide(lane, cancel_s_max=0.02)

    @provider.handler(4)
    async def stubborn(request: Request) -> bytes:
        while not told.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await told.wait()
        over.set()
        return b"too late"

    async with ScriptedGateway(lane) as gateway:
        async with provider:
            await gateway.connect(provider)
            asked = gateway.ask(b"x", msg_id=4)
            await until(lambda: provider.stats.running_count == 1)
            closing = asyncio.ensure_future(provider.__aexit__(None, None, None))
            assert isinstance(await gateway.error(asked), ProviderLost)
            assert provider.stats.running_count == 1  # It is honest about what goes on.
            told.set()  # Now, while the sockets still stand, the handler returns.
            await over.wait()
            await closing
        assert provider.router.stats.sent_count == 1
    assert provider.stats.running_count == 0
    assert "stubborn (msgId 4)" in caplog.text


async def test_a_plain_handler_that_runs_on_is_named_and_does_not_hold_up_the_end(
    lane: Lane, caplog: pytest.LogCaptureFixture
) -> None:
    begun, over = threading.Event(), threading.Event()
    provider = provide(lane)

    @provider.handler()
    def blocking(request: Request) -> None:
        begun.set()
        over.wait()

    try:
        async with ScriptedGateway(lane) as gateway:
            async with provider:
                await gateway.connect(provider)
                asked = gateway.ask(b"x")
                await until(begun.is_set)
            assert isinstance(await gateway.error(asked), ProviderLost)
    finally:
        over.set()
    assert "blocking (msgId 0)" in caplog.text


async def test_a_request_that_had_no_turn_yet_is_told_that_it_was_not_started(lane: Lane) -> None:
    gate = Gate()
    provider = provide(lane)
    provider.handler()(gate)
    async with provider, ScriptedGateway(lane, b"gate") as gateway:
        await gateway.connect(provider)
        runner = provider._runner
        chunks = ((1,), (2, 3))  # A task each.
        for chunk in chunks:
            runner.take(b"gate", [encode_call(number, 0, [b"x"]) for number in chunk])
        await runner.close()  # In the same turn: the tasks have not begun.
        for number in (1, 2, 3):
            assert isinstance(await gateway.error(number), ProviderDraining)
        assert provider.stats.running_count == 0
    assert gate.entered == []


async def test_a_handler_that_cancels_itself_is_a_failure_like_any_other(lane: Lane) -> None:
    provider = provide(lane)

    @provider.handler()
    async def give_in(request: Request) -> bytes:
        raise asyncio.CancelledError

    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        error = await gateway.error(gateway.ask(b"x"))
        assert isinstance(error, HandlerFailed)
        assert "CancelledError" in str(error)
        assert provider.stats.running_count == 0


async def test_threads_and_tasks_are_gone_after_the_block(lane: Lane) -> None:
    async def once() -> None:
        provider = provide(lane)
        provider.handler(0)(lambda request: b"plain")
        provider.handler(1)(Gate())
        async with ScriptedGateway(lane) as gateway, provider:
            await gateway.connect(provider)
            for _ in range(4):
                await gateway.call(b"")
                gateway.ask(b"", msg_id=1)

    await once()
    before = alive()
    await once()
    await asyncio.sleep(0)
    after = alive()
    assert (after.tasks, after.timers, after.threads) == (before.tasks, before.timers, before.threads)


async def test_every_request_is_accounted_for(lane: Lane) -> None:
    provider = provide(lane, concurrency_max=3, waiting_max=5)
    gate = Gate()
    provider.handler()(gate)
    provider.handler(1)(lambda request: 1)  # type: ignore[type-var]
    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        for number in range(40):
            gateway.ask(b"%d" % number, msg_id=number % 3, remaining_ms=number % 5 * 100)
        gateway.send_raw([b"bad"])
        gate.open()
        await until(lambda: provider.stats.requests_count == 41)
        await until(lambda: provider.stats.running_count == provider.stats.waiting_count == 0)
    stats = provider.stats
    outcomes = (stats.replied_count, stats.failed_count, stats.busy_count, stats.expired_count)
    assert sum(outcomes) + stats.unknown_msg_id_count + sum(stats.bad_frames.values()) == 41
    assert stats.draining_count == stats.abandoned_count == 0
