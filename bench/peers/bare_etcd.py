"""grpc.aio calls to etcd with nothing around them: no retries, no failover, no resumed watches, no sessions.

What it measures is the floor of every Python client over grpc.aio. Its lock is the two commits that a lock
needs at least, when nobody else wants it.
"""

import asyncio
import time

import grpc

from bench.job import Job
from bench.link import Link
from bench.load import keep_in_flight
from bench.peers import store_server
from hansa.store.etcd import api_pb2 as api

KEY, LOCK = b"/bench/key", b"/bench/lock"


def broker(job: Job, link: Link) -> None:
    """The same etcd as for hansa's client."""
    store_server.serve_etcd(job, link)


async def put(job: Job, link: Link) -> None:
    """One key is put again and again."""
    async with grpc.aio.insecure_channel(job.address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[api.PutRequest, api.PutResponse] = channel.unary_unary(
            "/etcdserverpb.KV/Put",
            request_serializer=api.PutRequest.SerializeToString,
            response_deserializer=api.PutResponse.FromString,
        )

        async def request(payload: bytes) -> bytes:
            await call(api.PutRequest(key=KEY, value=payload))
            return payload

        await request(job.payload)
        link.ready()
        await keep_in_flight(request, job, link)


async def get(job: Job, link: Link) -> None:
    """One key is read again and again, linearizably."""
    async with grpc.aio.insecure_channel(job.address) as channel:
        await _commit(channel, api.TxnRequest(success=[_put(KEY, job.payload)]))
        call: grpc.aio.UnaryUnaryMultiCallable[api.RangeRequest, api.RangeResponse] = channel.unary_unary(
            "/etcdserverpb.KV/Range",
            request_serializer=api.RangeRequest.SerializeToString,
            response_deserializer=api.RangeResponse.FromString,
        )

        async def request(_payload: bytes) -> bytes:
            found = await call(api.RangeRequest(key=KEY))
            return found.kvs[0].value

        link.ready()
        await keep_in_flight(request, job, link)


async def lock(job: Job, link: Link) -> None:
    """A key is created if it is not there, and deleted if it is ours."""
    taking = api.TxnRequest(
        compare=[api.Compare(key=LOCK, target=api.Compare.CREATE, create_revision=0)],
        success=[_put(LOCK, b"")],
    )
    async with grpc.aio.insecure_channel(job.address) as channel:

        async def request(payload: bytes) -> bytes:
            taken = await _commit(channel, taking)
            mine = api.Compare(key=LOCK, target=api.Compare.CREATE, create_revision=taken.header.revision)
            gone = api.RequestOp(request_delete_range=api.DeleteRangeRequest(key=LOCK))
            given = await _commit(channel, api.TxnRequest(compare=[mine], success=[gone]))
            assert taken.succeeded
            assert given.succeeded
            return payload

        await request(b"")
        link.ready()
        await keep_in_flight(request, job, link)


async def fan(job: Job, link: Link) -> None:
    """Put, and wait until every watch of one stream has told of it."""
    async with (
        grpc.aio.insecure_channel(job.address) as channel,
        grpc.aio.insecure_channel(job.address) as other,
    ):
        call: grpc.aio.StreamStreamMultiCallable[api.WatchRequest, api.WatchResponse] = other.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=api.WatchRequest.SerializeToString,
            response_deserializer=api.WatchResponse.FromString,
        )
        stream = call()
        for _ in range(job.case.width):
            await stream.write(api.WatchRequest(create_request=api.WatchCreateRequest(key=KEY)))
        for _ in range(job.case.width):
            await stream.read()
        link.ready()
        while True:
            begun_ns = time.perf_counter_ns()
            async with asyncio.TaskGroup() as both:
                both.create_task(_commit(channel, api.TxnRequest(success=[_put(KEY, job.payload)])))
                both.create_task(_read(stream, job.case.width))
            link.latencies_ns.append(time.perf_counter_ns() - begun_ns)
            link.count += job.case.width


async def _read(stream: "grpc.aio.StreamStreamCall[api.WatchRequest, api.WatchResponse]", count: int) -> None:
    for _ in range(count):
        await stream.read()


def _put(key: bytes, value: bytes) -> api.RequestOp:
    return api.RequestOp(request_put=api.PutRequest(key=key, value=value))


async def _commit(channel: grpc.aio.Channel, request: api.TxnRequest) -> api.TxnResponse:
    call: grpc.aio.UnaryUnaryMultiCallable[api.TxnRequest, api.TxnResponse] = channel.unary_unary(
        "/etcdserverpb.KV/Txn",
        request_serializer=api.TxnRequest.SerializeToString,
        response_deserializer=api.TxnResponse.FromString,
    )
    return await call(request)
