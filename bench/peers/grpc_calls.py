"""grpc.aio unary calls over one insecure channel; request and reply are plain bytes, no protobuf at all.

Settings: the library's defaults. HTTP/2 stream ids match replies to callers. gRPC has no publish, so it has
no part in that kind.
"""

from collections.abc import Awaitable
from typing import Any

import grpc

from bench.job import Job
from bench.link import Link
from bench.load import keep_in_flight

SERVICE = "bench.Echo"
METHOD = "Call"


async def serve(job: Job, link: Link) -> None:
    """Echo through a generic handler."""

    async def echo(request: bytes, _context: Any) -> bytes:
        return request

    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        METHOD: grpc.unary_unary_rpc_method_handler(echo)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(job.address)
    await server.start()
    link.ready()
    await server.wait_for_termination()


async def call(job: Job, link: Link) -> None:
    """One channel, one call object a request."""
    async with grpc.aio.insecure_channel(job.address) as channel:
        await channel.channel_ready()
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")

        def request(payload: bytes) -> Awaitable[bytes]:
            return method(payload)

        link.ready()
        await keep_in_flight(request, job, link)
