"""What the client of etcd does with each kind of answer: a server that says what the test tells it to."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from hansa.chance import Chance
from hansa.errors import LeaseLost, TimedOut
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd import messages
from hansa.store.etcd.client import EtcdStore
from hansa.store.etcd.messages import EtcdCall
from hansa.store.values import Delete, Get, Put
from hansa.transport import Environment

pytestmark = [pytest.mark.spec("CRD-11"), pytest.mark.timeout(30)]

AT_9 = api.ResponseHeader(revision=9)
CHANGED = "etcdserver: leader changed"
TIMED_OUT = "etcdserver: request timed out"
NO_LEADER = "etcdserver: no leader"
EXISTS = "etcdserver: lease already exists"
UNARY: list[EtcdCall[Any, Any]] = [
    messages.RANGE,
    messages.PUT,
    messages.DELETE_RANGE,
    messages.TXN,
    messages.LEASE_GRANT,
    messages.LEASE_KEEP_ALIVE,
    messages.STATUS,
    messages.AUTHENTICATE,
]


class Scripted(grpc.GenericRpcHandler):
    """Answers each call with the next of its answers, and with the last one ever after. Text is a refusal."""

    def __init__(self, answers: dict[str, list[Message | str]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    def names(self) -> list[str]:
        return [name for name, _ in self.asked if name != "Status"]

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        call = next((call for call in UNARY if call.path == details.method), None)
        if call is None:
            return None

        async def answer(request: Message, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
            self.asked.append((call.name, request))
            line = self.answers.get(call.name, [call.response()])
            said = line.pop(0) if len(line) > 1 else line[0]
            if isinstance(said, str):
                await context.abort(grpc.StatusCode.UNAVAILABLE, said)
            assert isinstance(said, Message)
            return said

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=call.request.FromString,
            response_serializer=call.form.encode,
        )


@asynccontextmanager
async def scripted(**answers: list[Message | str]) -> AsyncIterator[tuple[EtcdStore, Scripted]]:
    script = Scripted(answers)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((script,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with EtcdStore([f"127.0.0.1:{port}"]) as store:
            yield store, script
    finally:
        await server.stop(None)


@pytest.mark.parametrize("text", [CHANGED, TIMED_OUT, "Socket closed"])
async def test_a_change_that_may_have_been_made_is_never_asked_for_again(text: str) -> None:
    async with scripted(Put=[text], DeleteRange=[text], Txn=[text]) as (store, script):
        for call in (
            store.put("k", b""),
            store.delete("k"),
            store.delete_prefix("k"),
            store.commit((), [Put("k", b"")]),
            store.commit((), (), [Delete("k")]),
        ):
            with pytest.raises(TimedOut, match="may or may not"):
                await call
        assert script.names() == ["Put", "DeleteRange", "DeleteRange", "Txn", "Txn"]


@pytest.mark.parametrize("text", [NO_LEADER, "etcdserver: too many requests"])
async def test_a_change_that_was_surely_not_made_is_asked_for_again(text: str) -> None:
    done = api.PutResponse(header=AT_9)
    async with scripted(Put=[text, text, done]) as (store, script):
        assert await store.put("k", b"") == 9
        assert script.names() == ["Put"] * 3


async def test_a_read_is_asked_for_again_whatever_happened() -> None:
    found = api.RangeResponse(header=AT_9, kvs=[api.KeyValue(key=b"k", value=b"v")], count=1)
    read = api.TxnResponse(header=AT_9, succeeded=True, responses=[api.ResponseOp(response_range=found)])
    refusals: list[Message | str] = [CHANGED, TIMED_OUT]
    async with scripted(Range=[*refusals, found], Txn=[*refusals, read]) as (store, script):
        item = await store.get("k")
        assert item is not None
        assert item.value == b"v"
        assert (await store.commit((), [Get("k")])).revision == 9
        assert script.names() == ["Range"] * 3 + ["Txn"] * 3


async def test_a_grant_is_one_lease_however_often_it_is_asked_for() -> None:
    async with scripted(LeaseGrant=[TIMED_OUT, EXISTS]) as (store, script):
        lease = await store.grant(1.5)
        assert [(request.ID, request.TTL) for _, request in script.asked] == [(lease, 2)] * 2


async def test_a_number_that_is_taken_is_not_our_lease() -> None:
    async with scripted(LeaseGrant=[EXISTS, api.LeaseGrantResponse(header=AT_9)]) as (store, script):
        lease = await store.grant(2.0)
        taken, granted = (request.ID for _, request in script.asked)
        assert taken != granted == lease


async def test_a_token_that_is_refused_is_not_shown_again() -> None:
    tokens: list[Message | str] = [api.AuthenticateResponse(token=token) for token in ("old", "new")]
    refusal = "etcdserver: invalid auth token"
    async with scripted(Authenticate=tokens, Range=[refusal, api.RangeResponse(header=AT_9)]) as (
        known,
        script,
    ):
        async with EtcdStore(known._caller.access.endpoints, user="ada", password="pw") as store:
            assert await store.get("k") is None
            assert store._caller.access.token == "new"
        assert script.names() == ["Authenticate", "Range"] * 2


async def test_a_lease_is_gone_when_it_is_said_twice() -> None:
    gone, there = api.LeaseKeepAliveResponse(ID=7), api.LeaseKeepAliveResponse(ID=7, TTL=5)
    async with scripted(LeaseKeepAlive=[gone, there, gone, gone]) as (store, script):
        assert await store.keep_alive(7) == 5.0
        with pytest.raises(LeaseLost):
            await store.keep_alive(7)
        assert script.names() == ["LeaseKeepAlive"] * 4


async def test_a_write_is_not_entrusted_to_a_member_that_was_never_reached() -> None:
    # The kernel takes connections for it, and nobody ever answers.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        async with scripted(Put=[api.PutResponse(header=AT_9)]) as (known, script):
            endpoints = [endpoint, *known._caller.access.endpoints]
            chance = Chance.seeded(first_seed(lambda drawn: drawn.below(2) == 0))
            async with EtcdStore(endpoints, try_timeout=0.2, environment=Environment(chance=chance)) as store:
                assert await store.put("k", b"") == 9
            assert script.names() == ["Put"]


def first_seed(wanted: Callable[[Chance], bool]) -> int:
    return next(seed for seed in range(1_000) if wanted(Chance.seeded(seed)))
