"""A provider and its callers: handlers, failures, bounds, bad requests."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from hansa.errors import (
    BadArgument,
    BadFrame,
    HandlerFailed,
    ProviderBusy,
    TimedOut,
    UnknownMsgId,
    UsageError,
)
from hansa.limits import STRIKES_MAX
from hansa.services.provider.server import Provider
from hansa.services.provider.work import Request
from hansa.transport import CloseReason, Disconnected, Overflow
from hansa.transport.memory_network import MemoryNetwork
from hansa.wire.business import CallHeader, ErrorReply, TraceContext, encode_call, encode_error, encode_header
from tests.support.lanes import Lane, gathered, quick
from tests.support.scripted import Gate, ScriptedGateway, until


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


# -- handlers


async def answers(
    provider: Provider, gateway: ScriptedGateway, *payloads: bytes, first_id: int = 0
) -> list[bytes]:
    """The replies to requests that came in one chunk."""
    numbered = list(enumerate(payloads, first_id))
    requests = [encode_call(number, 0, [payload]) for number, payload in numbered]
    provider._runner.take(gateway.router.routing_id, requests)
    return [(await gateway.reply(number))[1][0] for number, _ in numbered]


async def test_handlers_of_one_chunk_that_do_not_suspend_share_a_task(lane: Lane) -> None:
    provider = provide(lane)
    tasks = []

    @provider.handler()
    async def echo(request: Request) -> bytes:
        tasks.append(asyncio.current_task())
        return request.payload

    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        assert await answers(provider, gateway, b"a", b"b", b"c") == [b"a", b"b", b"c"]
        assert len(tasks) == 3
        assert len(set(tasks)) == 1
        assert provider.stats.running_count == 0


async def test_a_handler_that_suspends_holds_up_none_of_its_chunk(lane: Lane) -> None:
    provider = provide(lane)
    gate, tasks = asyncio.Event(), []

    @provider.handler()
    async def wait(request: Request) -> bytes:
        tasks.append(asyncio.current_task())
        if request.payload != b"prompt":
            async with asyncio.timeout(10):  # Which needs a task of its own.
                await gate.wait()
        return request.payload

    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        asked = asyncio.ensure_future(answers(provider, gateway, b"prompt", b"slow", b"slower", b"prompt"))
        await until(lambda: provider.stats.replied_count == 2 and len(tasks) == 4)
        assert len(set(tasks)) == 3  # Only the two that stood first had one together.
        gate.set()
        assert await asked == [b"prompt", b"slow", b"slower", b"prompt"]
        assert provider.stats.running_count == 0


async def test_what_a_handler_sets_in_its_context_no_other_sees(lane: Lane) -> None:
    provider = provide(lane)
    user: ContextVar[bytes] = ContextVar("user", default=b"nobody")

    @provider.handler()
    async def note(request: Request) -> bytes:
        before = user.get()
        if request.payload != b"looks":
            user.set(request.payload)
        if request.payload == b"sleeps":
            await asyncio.sleep(0)
        return before

    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        for base in (b"nobody", b"root"):
            if base != user.get():
                user.set(base)
            chunk = (b"looks", b"ann", b"looks", b"sleeps", b"looks", b"ben", b"ben", b"looks")
            first_id = 0 if base == b"nobody" else 8
            assert await answers(provider, gateway, *chunk, first_id=first_id) == [base] * 8


async def test_a_handler_that_cancels_its_task_and_returns_harms_no_other(lane: Lane) -> None:
    provider = provide(lane)

    @provider.handler()
    async def cancel(request: Request) -> bytes:
        if request.payload == b"cancels" and (task := asyncio.current_task()):
            task.cancel()
        else:
            await asyncio.sleep(0)
        return request.payload

    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        assert await answers(provider, gateway, b"cancels", b"sleeps", b"sleeps") == [
            b"cancels",
            b"sleeps",
            b"sleeps",
        ]


@pytest.mark.spec("DIS-26")
async def test_handlers_are_chosen_by_msg_id(lane: Lane) -> None:
    provider = provide(lane)

    @provider.handler()
    async def echo(request: Request) -> list[bytes]:
        return request.parts

    @provider.handler(7)
    def plain(request: Request) -> bytes:
        return threading.current_thread().name.encode()

    @provider.handler(8)
    async def nothing(request: Request) -> None: ...

    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        assert await gateway.reply(gateway.ask(b"a", b"", b"c")) == (0, [b"a", b"", b"c"])
        msg_id, (thread,) = await gateway.reply(gateway.ask(b"", msg_id=7))
        assert msg_id == 7
        assert thread.startswith(b"provider handler")
        assert await gateway.call(b"", msg_id=8) == [b""]
        assert provider.stats.replied_count == provider.stats.requests_count == 3


@pytest.mark.spec("DIS-26")
async def test_a_handler_sees_the_whole_request(lane: Lane) -> None:
    provider = provide(lane)
    seen: list[Request] = []

    @provider.handler(3)
    async def look(request: Request) -> None:
        seen.append(request)

    trace = TraceContext(b"t" * 16, b"s" * 8, 1)
    async with provider, ScriptedGateway(lane, b"gate") as gateway:
        await gateway.connect(provider)
        now = asyncio.get_running_loop().time()
        gateway.send_raw(encode_call(99, 3, [b"x"], encode_header(CallHeader(2_000, trace))))
        await gateway.reply(99)
        await gateway.call(b"y", msg_id=3)
    first, second = seen
    assert (first.parts, first.msg_id, first.request_id, first.peer) == ([b"x"], 3, 99, b"gate")
    assert first.trace == trace
    assert first.deadline is not None
    assert now + 1.9 < first.deadline < now + 3.0
    assert (second.deadline, second.trace) == (None, None)


@pytest.mark.spec("DIS-26")
@pytest.mark.parametrize("kind", ["task", "thread"])
async def test_a_failure_reaches_the_caller_and_the_provider_goes_on(
    lane: Lane, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Request) -> bytes:
        match request.payload:
            case b"own":
                raise HandlerFailed("not enough", "insufficient-funds")
            case b"hansa":
                raise TimedOut("the bank did not answer")
            case b"python":
                raise ValueError("never heard of it")
            case b"stop":
                raise StopIteration(1)
            case b"type":
                return "text"  # type: ignore[return-value]
            case b"large":
                return bytes(300)
        return request.payload

    async def fail_async(request: Request) -> bytes:
        return fail(request)

    provider = provide(lane, options=quick(frame_bytes_max=255))
    provider.handler()(fail if kind == "thread" else fail_async)
    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        errors = {what: await gateway.error(gateway.ask(what)) for what in (b"own", b"hansa", b"python")}
        assert isinstance(errors[b"own"], HandlerFailed)
        assert errors[b"own"].reason == "insufficient-funds"
        assert isinstance(errors[b"hansa"], TimedOut)
        assert str(errors[b"hansa"]) == "the bank did not answer"
        assert str(errors[b"python"]) == "ValueError: never heard of it"
        for what, text in ((b"type", "returned str"), (b"large", "too large"), (b"stop", "StopIteration")):
            error = await gateway.error(gateway.ask(what))
            assert isinstance(error, HandlerFailed)
            assert text in str(error)
        assert await gateway.call(b"fine") == [b"fine"]
        assert provider.stats.failed_count == 6
    # The traceback stays here, where somebody can use it.
    assert [r.exc_info[0] for r in caplog.records if r.exc_info and r.levelno == logging.ERROR] == [
        ValueError
    ]


@pytest.mark.spec("DIS-26")
async def test_an_unknown_msg_id_is_told_what_is_known(lane: Lane) -> None:
    provider = provide(lane)
    for msg_id in (5, 3):
        provider.handler(msg_id)(Gate())
    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        error = await gateway.error(gateway.ask(b"x", msg_id=9))
        assert isinstance(error, UnknownMsgId)
        assert "msgId 9" in str(error)
        assert "3, 5" in str(error)
        assert provider.stats.unknown_msg_id_count == 1


async def test_handlers_that_cannot_be_are_refused(lane: Lane) -> None:
    provider = provide(lane)
    provider.handler(1)(Gate())
    with pytest.raises(UsageError, match="already has a handler"):
        provider.handler(1)(Gate())
    for msg_id in (-1, 0xFFFF, 0x1_0000):
        with pytest.raises(BadArgument, match="msgId"):
            provider.handler(msg_id)(Gate())
    with pytest.raises(UsageError, match="parentheses"):
        provider.handler(Gate())  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="a function"):
        provider.handler(2)("echo")  # type: ignore[type-var]


@pytest.mark.spec("DIS-26")
async def test_replies_come_as_handlers_end_not_as_requests_came(lane: Lane) -> None:
    gate = Gate()
    provider = provide(lane)
    provider.handler()(gate)

    @provider.handler(1)
    async def at_once(request: Request) -> bytes:
        return b"quick"

    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        slow = gateway.ask(b"slow")
        assert await gateway.call(b"", msg_id=1) == [b"quick"]
        assert not gateway.has_reply(slow)
        gate.open()
        assert (await gateway.reply(slow))[1] == [b"slow"]


# -- bounds


@pytest.mark.spec("DIS-26")
async def test_concurrency_is_bounded_and_what_is_too_much_is_told_busy(lane: Lane) -> None:
    gate = Gate()
    provider = provide(lane, concurrency_max=2, waiting_max=3)
    provider.handler()(gate)
    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        asked = [gateway.ask(b"%d" % number) for number in range(8)]
        for request_id in asked[5:]:
            assert isinstance(await gateway.error(request_id), ProviderBusy)
        assert gate.entered == [b"0", b"1"]
        stats = provider.stats
        assert (stats.running_count, stats.waiting_count, stats.busy_count) == (2, 3, 3)
        gate.open()
        assert [(await gateway.reply(request_id))[1] for request_id in asked[:5]] == [
            [b"%d" % number] for number in range(5)
        ]
        assert gate.entered == [b"%d" % number for number in range(5)]


@pytest.mark.spec("DIS-26")
async def test_plain_functions_have_so_many_threads_and_do_not_stop_the_loop(lane: Lane) -> None:
    provider = provide(lane, threads_max=2)
    release = threading.Event()
    inside: list[str] = []

    @provider.handler(0)
    def block(request: Request) -> bytes:
        inside.append(threading.current_thread().name)
        release.wait(10)
        return request.payload

    @provider.handler(1)
    async def quick_one(request: Request) -> bytes:
        return b"quick"

    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        asked = [gateway.ask(b"%d" % number) for number in range(5)]
        await until(lambda: len(inside) == 2)
        assert await gateway.call(b"", msg_id=1) == [b"quick"]
        assert (provider.stats.running_count, provider.stats.waiting_count) == (2, 3)
        release.set()
        for number, request_id in enumerate(asked):
            assert (await gateway.reply(request_id))[1] == [b"%d" % number]
        assert len(set(inside)) <= 2


@pytest.mark.spec("DIS-26")
async def test_work_whose_caller_has_given_up_is_never_started(lane: Lane) -> None:
    gate = Gate()
    provider = provide(lane, concurrency_max=1)
    provider.handler()(gate)
    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        gateway.ask(b"expired on arrival", remaining_ms=0)
        running = gateway.ask(b"running")
        gateway.ask(b"impatient", remaining_ms=1)
        patient = gateway.ask(b"patient", remaining_ms=60_000)
        await until(lambda: provider.stats.waiting_count == 2)
        waiting_since = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > waiting_since + 0.001)
        gate.open()
        await gateway.reply(running)
        await gateway.reply(patient)
        assert gate.entered == [b"running", b"patient"]
        assert provider.stats.expired_count == 2


@pytest.mark.spec("DIS-26")
async def test_work_whose_caller_has_left_is_dropped_and_counted(lane: Lane) -> None:
    gate = Gate()
    provider = provide(lane, concurrency_max=1)
    provider.handler()(gate)
    async with provider, ScriptedGateway(lane) as stays:
        await stays.connect(provider)
        async with ScriptedGateway(lane) as leaves:
            await leaves.connect(provider)
            leaves.ask(b"running")
            await gate.has(1)
            leaves.ask(b"waiting")
            await until(lambda: provider.stats.waiting_count == 1)
        other = stays.ask(b"other")
        await until(lambda: provider.stats.abandoned_count == 1)
        gate.open()
        assert (await stays.reply(other))[1] == [b"other"]
        assert gate.entered == [b"running", b"other"]
        assert provider.stats.replies_dropped_count == 1


@pytest.mark.spec("DIS-30")
async def test_a_caller_that_does_not_read_is_disconnected_and_holds_up_nobody_else(
    lane: Lane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hansa.services.provider.handlers.REPLY_S_MAX", 0.05)
    provider = provide(lane, options=quick(outgoing_count_max=4), concurrency_max=20)
    provider.handler()(large_reply)
    async with provider, ScriptedGateway(lane) as deaf, ScriptedGateway(lane) as other:
        await other.connect(provider)
        await deaf.connect(provider)
        (connection,) = deaf.router._connections
        connection.pause_reading()
        for _ in range(40):
            deaf.ask(b"more")
        await until(lambda: provider.stats.not_reading_count == 1)
        stats = provider.stats
        assert stats.waiting_count == 0
        assert stats.abandoned_count > 0  # Nobody runs what nobody will hear of.
        assert len(await other.call(b"one")) == 1
        await until(lambda: provider.stats.running_count == 0)
        connection.resume_reading()
        await deaf.seen.wait(Disconnected)  # So the caller knows, whatever its deadlines.
        await until(lambda: provider.stats.peers_count == 1)
        assert provider.router.stats.ended[CloseReason.NOT_READING] == 1
        stats = provider.stats
        assert 0 < stats.replies_dropped_count < stats.replied_count
        assert stats.not_reading_count == 1
    assert "does not read its replies" in caplog.text


@pytest.mark.spec("DIS-30")
async def test_a_caller_that_gave_up_on_an_unread_reply_keeps_its_connection(lane: Lane) -> None:
    provider = provide(lane, options=quick(outgoing_count_max=1))
    provider.handler()(large_reply)
    async with provider, ScriptedGateway(lane) as slow:
        await slow.connect(provider)
        (connection,) = slow.router._connections
        connection.pause_reading()
        for _ in range(40):
            slow.ask(b"hurry", remaining_ms=50)
        await until(lambda: provider.stats.replies_dropped_count > 0 and not provider.stats.running_count)
        connection.resume_reading()
        assert len(await slow.call(b"again")) == 1
        assert provider.stats.not_reading_count == 0


@pytest.mark.spec("DIS-30")
async def test_a_caller_that_reads_late_gets_an_answer_to_every_request(lane: Lane) -> None:
    provider = provide(lane, options=quick(outgoing_count_max=1), concurrency_max=20, waiting_max=0)
    provider.handler()(large_reply)
    async with provider, ScriptedGateway(lane) as slow:
        await slow.connect(provider)
        (connection,) = slow.router._connections
        connection.pause_reading()
        asked = [slow.ask(b"more") for _ in range(20)]
        await until(lambda: provider.stats.replied_count == 20)
        asked += [slow.ask(b"more") for _ in range(20)]
        await until(lambda: provider.stats.busy_count > 0 and provider.stats.requests_count == 40)
        connection.resume_reading()
        outcomes = [(await asyncio.gather(slow.reply(one), return_exceptions=True))[0] for one in asked]
        assert sum(isinstance(outcome, ProviderBusy) for outcome in outcomes) == provider.stats.busy_count
        assert provider.stats.replies_dropped_count == 0


@pytest.mark.spec("DIS-30")
async def test_a_caller_that_asks_on_without_reading_that_we_are_busy_is_disconnected(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansa.services.provider.handlers.REPLY_S_MAX", 60.0)
    monkeypatch.setattr("hansa.transport.router_dealer.CONTROL_COUNT_MAX", 5)
    provider = provide(lane, options=quick(outgoing_count_max=1), concurrency_max=20, waiting_max=0)
    provider.handler()(large_reply)
    async with provider, ScriptedGateway(lane) as deaf:
        await deaf.connect(provider)
        (connection,) = deaf.router._connections
        connection.pause_reading()
        while not provider.stats.not_reading_count:
            deaf.ask(b"more")
            await asyncio.sleep(0)
        connection.resume_reading()
        await deaf.seen.wait(Disconnected)
        await until(lambda: provider.stats.running_count == 0)  # Who waited for room waits no longer.


async def large_reply(request: Request) -> bytes:
    return bytes(1_000_000)


async def test_replies_to_a_slow_reader_wait_rather_than_fail(lane: Lane) -> None:
    provider = provide(lane, options=quick(outgoing_count_max=1))

    @provider.handler()
    async def large(request: Request) -> bytes:
        return bytes(100_000)

    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        asked = [gateway.ask(b"x") for _ in range(100)]
        for request_id in asked:
            assert len((await gateway.reply(request_id))[1][0]) == 100_000
        assert provider.stats.replies_dropped_count == 0


@pytest.mark.spec("DIS-30")
@pytest.mark.parametrize("overflow", [Overflow.DROP, Overflow.FAIL])
async def test_a_reply_without_room_ends_the_connection_at_once_where_waiting_is_not_the_policy(
    lane: Lane, overflow: Overflow
) -> None:
    gate = Gate()
    provider = provide(lane, options=quick(outgoing_count_max=1, overflow=overflow))
    provider.handler()(gate)
    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        for _ in range(10):
            gateway.ask(b"x")
        await gate.has(10)
        gate.open()  # All replies come in one turn: one fits.
        await gateway.seen.wait(Disconnected)
        await until(lambda: provider.stats.running_count == 0)
        assert provider.stats.not_reading_count == 1
        assert provider.stats.replies_dropped_count == 9


# -- bad input


@pytest.mark.spec("DIS-26")
async def test_bad_requests_are_answered_where_possible_counted_and_cost_nobody_else(lane: Lane) -> None:
    provider = provide(lane)
    provider.handler()(lambda request: request.payload)
    async with provider, ScriptedGateway(lane) as bad, ScriptedGateway(lane) as good:
        await bad.connect(provider)
        await good.connect(provider)
        no_msg_id, half_a_header = (77).to_bytes(8, "little"), (78).to_bytes(8, "little")
        for frames in ([b"short", b"\0\0"], [b""], [b"only one"], [b"x" * 9, b"\0\0", b"p"]):
            bad.send_raw(frames)
        for request_id, frames in {
            77: [no_msg_id, b"\0"],
            78: [half_a_header, b"\0\0\x01"],
        }.items():
            bad.send_raw(frames)
            assert isinstance(await bad.error(request_id), BadFrame)
        assert provider.stats.bad_frames == {"bad-frame": 6}
        assert await bad.call(b"still welcome") == [b"still welcome"]
        assert await good.call(b"me too") == [b"me too"]


@pytest.mark.spec("DIS-30")
async def test_a_request_without_a_part_is_refused_with_a_typed_error_and_counted(lane: Lane) -> None:
    gate = Gate()
    provider = provide(lane)
    provider.handler()(gate)
    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        gateway.send_raw(encode_call(9, 0, []))
        error = await gateway.error(9)
        assert isinstance(error, BadFrame)
        assert "at least one part" in str(error)
        assert provider.stats.bad_frames == {"no-parts": 1}
        assert gate.entered == []


@pytest.mark.spec("DIS-26")
async def test_a_peer_that_sends_only_nonsense_is_expelled(lane: Lane) -> None:
    provider = provide(lane)
    provider.handler()(lambda request: request.payload)
    async with provider, ScriptedGateway(lane) as bad, ScriptedGateway(lane) as good:
        await good.connect(provider)
        await bad.connect(provider)
        for _ in range(STRIKES_MAX):
            bad.send_raw([b"nonsense"])
        await bad.seen.wait(Disconnected)
        assert provider.stats.expelled_count == 1
        assert provider.router.stats.ended[CloseReason.PROTOCOL_VIOLATION] == 1
        assert await good.call(b"hello") == [b"hello"]


@pytest.mark.spec("DIS-26")
async def test_a_peer_that_leaves_and_returns_starts_without_strikes(lane: Lane) -> None:
    provider = provide(lane)
    provider.handler()(lambda request: request.payload)
    async with provider:
        for _ in range(2):
            async with ScriptedGateway(lane, b"clumsy") as gateway:
                await gateway.connect(provider)
                for _ in range(STRIKES_MAX - 1):
                    gateway.send_raw([b"nonsense"])
                assert await gateway.call(b"hello") == [b"hello"]
            await until(lambda: provider.stats.peers_count == 0)
        assert provider.stats.expelled_count == 0
        assert sum(provider.stats.bad_frames.values()) == 2 * (STRIKES_MAX - 1)


async def test_a_failed_reply_sent_as_a_request_is_never_answered(lane: Lane) -> None:
    provider = provide(lane)
    async with provider, ScriptedGateway(lane) as gateway:
        await gateway.connect(provider)
        gateway.send_raw(encode_error(5, ErrorReply("busy", "ping")))
        assert isinstance(await gateway.error(gateway.ask(b"")), UnknownMsgId)
        assert not gateway.has_reply(5)
        assert provider.stats.bad_frames == {"not-a-request": 1}
