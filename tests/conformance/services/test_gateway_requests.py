"""Requests and their replies: every form of asking, several services, any order."""

import asyncio
from typing import Any

import pytest

from hansa.errors import (
    AlreadyClosed,
    Backlogged,
    BadArgument,
    HandlerFailed,
    TimedOut,
    UnknownMsgId,
    UsageError,
)
from hansa.services.gateway import Completion, Gateway
from hansa.wire.business import ERROR_MSG_ID, TraceContext
from tests.support.gateway_stage import Stage, until
from tests.support.lanes import Lane
from tests.support.scripted_provider import refusing, saying, silence

pytestmark = pytest.mark.parametrize("lane", ["tcp", "inproc"], indirect=True)


@pytest.mark.spec("DIS-19")
@pytest.mark.parametrize("parts", [[b"one"], [b""], [b"a", b"", b"c"], [bytes(100_000), b"tail"]])
async def test_a_request_is_answered_with_all_parts_of_the_reply(lane: Lane, parts: list[bytes]) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await stage.echo_service("ann")
        assert await gateway.request("echo", parts, msg_id=0x1234) == parts
        assert provider.asked[0].msg_id == 0x1234
        assert gateway.stats.replied_count == 1


async def test_a_reply_may_have_no_parts_and_a_payload_may_come_alone(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.provider("ann", "echo", answer=saying())
        gateway = await stage.gateway()
        await gateway.wait_connected("echo")
        assert await gateway.request("echo", b"alone") == []
        assert await gateway.request("echo", [b""]) == []


@pytest.mark.spec("DIS-19")
async def test_replies_find_their_requests_in_any_order(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await stage.echo_service("ann")
        provider.answer = silence
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gateway.request("echo", b"%d" % number)) for number in range(50)]
            asked = await provider.wait_asked(50)
            for one in reversed(asked):
                provider.reply(one, b"to " + one.parts[0])
        assert [task.result() for task in tasks] == [[b"to %d" % number] for number in range(50)]
        ids = [one.request_id for one in asked]
        assert len(set(ids)) == 50
        assert ids == sorted(ids)


@pytest.mark.spec("DIS-19")
async def test_several_services_are_served_at_once(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.provider("ann", "sums", "names", answer=saying(b"ann"))
        await stage.provider("bob", "times", answer=saying(b"bob"))
        gateway = await stage.gateway()
        for service in ("sums", "names", "times"):
            await gateway.wait_connected(service)
        async with asyncio.TaskGroup() as group:
            tasks = {
                service: group.create_task(gateway.request(service, b"?"))
                for service in ("sums", "names", "times")
            }
        assert {name: task.result() for name, task in tasks.items()} == {
            "sums": [b"ann"],
            "names": [b"ann"],
            "times": [b"bob"],
        }


@pytest.mark.spec("DIS-17")
async def test_two_gateways_share_one_discovery_and_a_provider(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.provider("ann", "echo")
        one, two = await stage.gateway(), await stage.gateway()
        await one.wait_connected("echo")
        await two.wait_connected("echo")
        assert await one.request("echo", b"1") == [b"1"]
        assert await two.request("echo", b"2") == [b"2"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [("unknown-msg-id", UnknownMsgId), ("bad-argument", BadArgument), ("own", HandlerFailed)],
)
async def test_what_a_provider_says_went_wrong_is_raised(lane: Lane, code: str, kind: type[Any]) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await stage.echo_service("ann")
        provider.answer = refusing(code)
        with pytest.raises(kind, match="as the test says"):
            await gateway.request("echo", b"?")
        assert gateway.stats.failed == {kind.code: 1}
        provider.answer = saying(b"fine")
        assert await gateway.request("echo", b"?") == [b"fine"]


@pytest.mark.spec("DIS-20")
async def test_a_submitted_request_calls_back_once(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await stage.echo_service("ann")
        got: list[Completion] = []
        request_id = gateway.submit("echo", b"hello", got.append)
        await until(lambda: bool(got))
        assert got == [Completion(service="echo", request_id=request_id, parts=[b"hello"], error=None)]
        assert got[0].result() == [b"hello"]
        provider.say(provider.asked[0].peer, provider.asked[0].reply(b"again"))
        await until(lambda: gateway.stats.late_replies_count == 1)
        assert len(got) == 1


@pytest.mark.spec("DIS-20")
async def test_a_submitted_request_that_fails_calls_back_with_its_error(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await stage.echo_service("ann")
        provider.answer = refusing("own")
        got: list[Completion] = []
        gateway.submit("echo", b"hello", got.append)
        await until(lambda: bool(got))
        assert isinstance(got[0].error, HandlerFailed)
        assert got[0].parts == []
        with pytest.raises(HandlerFailed):
            got[0].result()


async def test_a_callback_that_raises_is_reported_and_hurts_nobody(lane: Lane) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with Stage(lane) as stage:
        gateway, _ = await stage.echo_service("ann")

        def clumsy(completion: Completion) -> None:
            raise ZeroDivisionError

        got: list[Completion] = []
        gateway.submit("echo", b"1", clumsy)
        gateway.submit("echo", b"2", got.append)
        await until(lambda: bool(got))
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]
        assert "callback of request" in reported[0]["message"]
        assert gateway.stats.replied_count == 2
        assert gateway.stats.in_flight_count == 0


async def test_submitting_at_the_limit_is_backlogged_and_sends_nothing(lane: Lane) -> None:
    async with Stage(lane) as stage:
        provider = await stage.provider("ann", "echo", answer=silence)
        gateway = await stage.gateway(in_flight_max=2)
        await gateway.wait_connected("echo")
        got: list[Completion] = []
        for _ in range(2):
            gateway.submit("echo", b"?", got.append)
        with pytest.raises(Backlogged, match="2 requests in flight"):
            gateway.submit("echo", b"?", got.append)
        asked = await provider.wait_asked(2)
        provider.reply(asked[0])
        await until(lambda: len(got) == 1)
        gateway.submit("echo", b"third", got.append)
        assert (await provider.wait_asked(3))[2].parts == [b"third"]
        assert gateway.stats.requests_count == 3


@pytest.mark.spec("DIS-19")
async def test_what_was_sent_completes_at_recv(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await stage.echo_service("ann")
        ids = [await gateway.send("echo", [b"%d" % number]) for number in range(10)]
        completions = [await gateway.recv() for _ in ids]
        assert [(one.request_id, one.parts, one.error) for one in completions] == [
            (request_id, [b"%d" % number], None) for number, request_id in enumerate(ids)
        ]


@pytest.mark.spec("DIS-21")
async def test_request_send_and_request_recv_tell_service_id_error_and_parts(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.provider("ann", "good", answer=saying(b"x", b"y"))
        await stage.provider("bob", "bad", answer=refusing("own"))
        gateway = await stage.gateway()
        await gateway.wait_connected("good")
        await gateway.wait_connected("bad")
        good = await gateway.request_send("good", b"?")
        assert await gateway.request_recv(timeout=5) == Completion(
            service="good", request_id=good, parts=[b"x", b"y"]
        )
        bad = await gateway.request_send("bad", b"?")
        failed = await gateway.request_recv()
        assert (failed.service, failed.request_id, failed.parts) == ("bad", bad, [])
        assert isinstance(failed.error, HandlerFailed)


@pytest.mark.spec("DIS-21")
async def test_request_recv_gives_up_in_time_and_loses_nothing(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await stage.echo_service("ann")
        provider.answer = silence
        with pytest.raises(TimedOut):
            await gateway.request_recv(timeout=0.01)
        request_id = await gateway.request_send("echo", b"?")
        with pytest.raises(TimedOut):
            await gateway.request_recv(timeout=0)
        provider.reply((await provider.wait_asked(1))[0], b"!")
        assert (await gateway.request_recv(timeout=-1)).request_id == request_id


async def test_a_trace_travels_with_the_request(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (provider,) = await stage.echo_service("ann")
        trace = TraceContext(bytes(range(16)), bytes(8), 1)
        await gateway.request("echo", b"?", trace=trace)
        assert provider.asked[0].header.trace == trace
        await gateway.request("echo", b"?")
        assert provider.asked[1].header.trace is None


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"msg_id": ERROR_MSG_ID}, "choose another"),
        ({"msg_id": 0x1_0000}, "u16"),
        ({"msg_id": -1}, "u16"),
        ({"parts": "text"}, r"the payload is str, not bytes: encode it, as in text.encode\(\)"),
        ({"parts": bytearray(b"abc")}, r"the payload is bytearray, not bytes: make it bytes, as in bytes\("),
        ({"parts": memoryview(b"abc")}, "the payload is memoryview, not bytes"),
        ({"parts": 7}, "the payload is int, neither bytes nor a list of bytes"),
        ({"parts": [b"fine", "no bytes"]}, r"parts\[1\] is str, not bytes: encode it"),
        ({"parts": [bytearray(b"abc")]}, r"parts\[0\] is bytearray, not bytes: make it bytes"),
        ({"parts": [b"", None]}, r"parts\[1\] is NoneType, not bytes"),
        ({"parts": []}, "a request has at least one part; send b'' for an empty one"),
        ({"trace": TraceContext(b"short", b"")}, "trace"),
    ],
)
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.spec("DIS-30")
async def test_what_cannot_be_sent_is_told_at_once_and_counts_for_nothing(
    lane: Lane, arguments: dict[str, Any], what: str, parked: bool
) -> None:
    async with Stage(lane) as stage:
        given = {"parts": b"?", **arguments}
        if parked:
            await stage.raw_provider("echo", b"ann")
            gateway = await stage.gateway()
            await stage.listed("echo", 1)
        else:
            gateway, _ = await stage.echo_service("ann")
        with pytest.raises(BadArgument, match=what):
            await gateway.request("echo", **given)
        with pytest.raises(BadArgument, match=what):
            gateway.submit("echo", callback=lambda completion: None, **given)
        with pytest.raises(BadArgument, match=what):
            await gateway.send("echo", **given)
        assert gateway.stats.requests_count == gateway.stats.in_flight_count == 0
        if not parked:
            assert await gateway.request("echo", b"next") == [b"next"]


async def test_a_service_that_the_discovery_does_not_follow_is_a_usage_error(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await stage.echo_service("ann")
        stage.discovery.unsubscribe("other")
        with pytest.raises(BadArgument, match=r"discovery.subscribe\('other'\)"):
            await gateway.request("other", b"?")
        with pytest.raises(BadArgument, match="subscribe"):
            gateway.router("other")


async def test_a_gateway_says_clearly_that_it_was_not_entered(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = Gateway(stage.discovery)
        with pytest.raises(UsageError, match="async with"):
            await gateway.request("echo", b"?")
        with pytest.raises(UsageError, match="async with"):
            await gateway.send("echo", b"?")
        with pytest.raises(UsageError, match="async with"):
            await gateway.recv()
        with pytest.raises(UsageError, match="async with"):
            await gateway.request_recv(1.0)
        with pytest.raises(UsageError, match="async with"):
            gateway.submit("echo", b"?", lambda completion: None)
        with pytest.raises(UsageError, match="async with"):
            gateway.router("echo")
        with pytest.raises(UsageError, match="async with"):
            await gateway.wait_connected("echo")
        assert gateway.connection_count("echo") == 0


async def test_a_gateway_says_clearly_that_it_is_closed(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await stage.echo_service("ann")
        router = gateway.router("echo")
        await gateway.close()
        await gateway.close()
        for waiting in (
            gateway.request("echo", b"?"),
            gateway.send("echo", b"?"),
            gateway.recv(),
            gateway.request_recv(1.0),
            gateway.wait_connected("echo"),
            router.send(b"ann", 1, b"?"),
        ):
            with pytest.raises(AlreadyClosed):
                await waiting
        with pytest.raises(AlreadyClosed):
            gateway.submit("echo", b"?", lambda completion: None)
        with pytest.raises(UsageError, match="entered before"):
            await gateway.__aenter__()
        assert gateway.connection_count("echo") == 0
