"""One question to one server, as everything in hansa that speaks gRPC asks and answers it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from hansa.control.client import ControlClient, channel_credentials, open_blocking_channel, open_channel
from hansa.control.method import Form, Method
from hansa.control.server import Context, ControlServer, Status
from hansa.errors import (
    AddressInUse,
    AlreadyClosed,
    BadArgument,
    BadEndpoint,
    BadFrame,
    BadRecord,
    Conflict,
    HansaError,
    StoreUnavailable,
    TimedOut,
)
from hansa.store.etcd import api_pb2 as api
from hansa.transport.environment import Tls

CALL_S_MAX = 20.0


def text_decoder(kind: type[Any]) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        try:
            return kind(json.loads(data))
        except ValueError as error:
            raise BadRecord(f"this is no JSON: {error}") from error

    return decode


JSON = Form(encode=lambda text: json.dumps(text).encode(), decoder=text_decoder)
ECHO = Method(service="test.Desk", name="Echo", request=str, response=str, form=JSON)
STATUS = Method(service="test.Desk", name="Status", request=api.StatusRequest, response=api.StatusResponse)
# Not of texts, which gRPC turns into bytes before it gives them to a form.
STREAM = Method(service="test.Desk", name="Stream", request=list, response=list, form=JSON)


@dataclass
class Desk:
    stack: AsyncExitStack

    async def serve(
        self,
        *,
        echo: Callable[[str], Awaitable[str]] | None = None,
        stream: Callable[[Context], Awaitable[None]] | None = None,
        failed: Callable[[HansaError], Any] = lambda error: Status("ABORTED", error.code),
        address: str = "127.0.0.1:0",
    ) -> tuple[ControlServer, str]:
        server = ControlServer(failed)
        if echo is not None:
            server.answer(ECHO, echo)
        if stream is not None:
            server.stream(STREAM, stream)
        port = await server.start(address)
        self.stack.push_async_callback(server.stop)
        return server, f"127.0.0.1:{port}"

    def client(self, address: str) -> ControlClient:
        client = ControlClient(address)
        self.stack.push_async_callback(client.close)
        return client


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with asyncio.timeout(CALL_S_MAX), AsyncExitStack() as stack:
        yield Desk(stack)


async def same(text: str) -> str:
    return text


async def test_a_question_in_json_is_answered(desk: Desk) -> None:
    _, address = await desk.serve(echo=same)
    assert await desk.client(address).ask(ECHO, "ahoy", timeout_s=CALL_S_MAX) == "ahoy"


async def test_a_question_in_protobuf_is_answered_in_a_loop_and_in_a_thread() -> None:
    async def status(request: api.StatusRequest) -> api.StatusResponse:
        return api.StatusResponse(version="1")

    server = ControlServer(lambda error: error)
    server.answer(STATUS, status)
    address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"

    def ask() -> Any:
        with open_blocking_channel(address) as channel:
            return STATUS.blocking_stub(channel)(api.StatusRequest(), timeout=CALL_S_MAX)

    try:
        assert (await asyncio.to_thread(ask)).version == "1"
        async with open_channel(address) as channel:
            assert (await STATUS.stub(channel)(api.StatusRequest(), timeout=CALL_S_MAX)).version == "1"
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("FAILED_PRECONDITION", Conflict),
        ("NOT_FOUND", Conflict),
        ("DEADLINE_EXCEEDED", TimedOut),
        ("UNAVAILABLE", StoreUnavailable),
        ("INTERNAL", StoreUnavailable),
    ],
)
async def test_a_status_becomes_an_error_that_names_method_and_server(
    desk: Desk, code: str, error: type[HansaError]
) -> None:
    async def refuse(text: str) -> str:
        raise BadArgument(text)

    _, address = await desk.serve(echo=refuse, failed=lambda error: Status(code, f"no {error}"))
    with pytest.raises(error, match=f"Echo at {address}: no ahoy"):
        await desk.client(address).ask(ECHO, "ahoy", timeout_s=CALL_S_MAX)


async def test_a_failure_may_be_an_answer_of_the_method(desk: Desk) -> None:
    async def refuse(text: str) -> str:
        raise BadArgument(text)

    _, address = await desk.serve(echo=refuse, failed=lambda error: f"failed: {error}")
    assert await desk.client(address).ask(ECHO, "ahoy", timeout_s=CALL_S_MAX) == "failed: ahoy"


async def test_a_request_that_cannot_be_read_fails_as_one_that_the_method_refuses(desk: Desk) -> None:
    server, address = await desk.serve(echo=same)
    server.answer(STATUS, cast(Any, same))
    async with open_channel(address) as channel:
        for method, code in ((ECHO, BadRecord.code), (STATUS, BadFrame.code)):
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method.path)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"\xff\xff", timeout=CALL_S_MAX)
            assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.ABORTED, code)


async def test_an_answer_that_cannot_be_read_is_an_error_of_its_form(desk: Desk) -> None:
    _, address = await desk.serve(echo=same)
    wanted = Method(service=ECHO.service, name=ECHO.name, request=str, response=int, form=JSON)
    with pytest.raises(BadRecord):
        await desk.client(address).ask(wanted, "no number", timeout_s=CALL_S_MAX)


async def test_a_method_that_nobody_answers_is_not_there(desk: Desk) -> None:
    _, address = await desk.serve()
    with pytest.raises(StoreUnavailable, match="Echo"):
        await desk.client(address).ask(ECHO, "ahoy", timeout_s=CALL_S_MAX)


async def test_a_stream_reads_and_writes_until_it_returns_or_fails(desk: Desk) -> None:
    async def shout(context: Context) -> None:
        while (words := await context.read()) is not grpc.aio.EOF:
            if not words:
                raise BadArgument("nothing")
            await context.write([word.upper() for word in words])

    _, address = await desk.serve(stream=shout)
    async with open_channel(address) as channel:
        stream = STREAM.stream_stub(channel)(timeout=CALL_S_MAX)
        await stream.write(["ahoy"])
        assert await stream.read() == ["AHOY"]
        await stream.write([])
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        assert (refused.value.code(), refused.value.details()) == (
            grpc.StatusCode.ABORTED,
            BadArgument.code,
        )


async def test_stopping_returns_when_every_call_has_ended(desk: Desk) -> None:
    begun = asyncio.Event()
    ended: list[str] = []

    async def stay(text: str) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
            return text
        finally:
            ended.append(text)

    server, address = await desk.serve(echo=stay)
    async with asyncio.TaskGroup() as group:

        async def ask() -> None:
            with pytest.raises(StoreUnavailable):
                await desk.client(address).ask(ECHO, "ahoy", timeout_s=CALL_S_MAX)

        group.create_task(ask())
        await begun.wait()
        await server.stop()
        assert ended == ["ahoy"]
    await server.stop()


async def test_closing_a_client_ends_its_questions_with_an_error(desk: Desk) -> None:
    begun = asyncio.Event()

    async def stay(text: str) -> str:
        begun.set()
        await asyncio.Event().wait()
        return text

    _, address = await desk.serve(echo=stay)
    client = desk.client(address)
    async with asyncio.TaskGroup() as group:

        async def ask() -> None:
            with pytest.raises(AlreadyClosed, match=address):
                await client.ask(ECHO, "ahoy", timeout_s=CALL_S_MAX)

        group.create_task(ask())
        await begun.wait()
        await client.close()
    with pytest.raises(AlreadyClosed, match=address):
        await client.ask(ECHO, "ahoy", timeout_s=CALL_S_MAX)


async def test_an_address_that_cannot_be_had_is_refused_with_the_reason(desk: Desk) -> None:
    _, address = await desk.serve()
    with pytest.raises(AddressInUse, match=f"^{address} cannot be listened at"):
        await desk.serve(address=address)
    with pytest.raises(BadEndpoint, match=r"^the desk 192.0.2.1:0 cannot be listened at"):
        await ControlServer(lambda error: error).start("192.0.2.1:0", what="the desk ")


async def test_tls_files_that_are_not_there_are_a_bad_argument() -> None:
    tls = Tls(cert="no.crt", key="no.key", ca="no.ca")
    with pytest.raises(BadArgument, match=r"no\.ca"):
        channel_credentials(tls)
    with pytest.raises(BadArgument, match=r"no\.key"):
        await ControlServer(lambda error: error, tls=tls).start("127.0.0.1:0")
