"""A gRPC server at one address: bound, started, answering, stopped.

A method is answered by a coroutine that takes a request and returns its answer. hansa's own errors that it
raises, and errors of the request's form, go to `failed`, which returns an answer of the method instead, or
the `Status` to end the call with. Methods without such a coroutine get gRPC's UNIMPLEMENTED.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from errno import EADDRINUSE
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from hansa.control.client import CredentialFiles, Options
from hansa.control.method import Method, RequestT, ResponseT
from hansa.errors import AddressInUse, BadArgument, BadEndpoint, HansaError

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Status:
    """The end of a call that has no answer: the name of gRPC's code, and a text."""

    code: str
    text: str


class ControlServer:
    """A server, from `start` to `stop`. Add its methods before it starts."""

    def __init__(
        self,
        failed: Callable[[HansaError], Any],
        *,
        tls: CredentialFiles | None = None,
        calls_max: int | None = None,
        options: Options = (),
    ) -> None:
        self._failed = failed
        self._tls = tls
        self._calls_max = calls_max
        # Two servers on one port would each get some of the calls.
        self._options = (("grpc.so_reuseport", 0), *options)
        self._handlers = _Handlers()
        # The tasks of the calls that are being answered: gRPC starts them.
        self._calls: set[asyncio.Task[Any]] = set()
        self._server: grpc.aio.Server | None = None

    def answer(
        self, method: Method[RequestT, ResponseT], answer: Callable[[RequestT], Awaitable[ResponseT]]
    ) -> None:
        """Answer a plain method with this coroutine."""
        encode, decode = method.form.encode, method.form.decoder(method.request)

        async def serve(data: bytes, context: Context) -> bytes:
            self._follow_call()
            try:
                return encode(await answer(decode(data)))
            except HansaError as error:
                found = self._failed(error)
            return encode(await _unless_status(found, context))

        self._handlers.by_path[method.path] = grpc.unary_unary_rpc_method_handler(serve)

    def stream(self, method: Method[RequestT, ResponseT], run: Callable[[Context], Awaitable[None]]) -> None:
        """Answer a method whose two sides stream: `run` reads requests and writes answers."""

        async def serve(requests: object, context: Context) -> None:
            self._follow_call()
            try:
                await run(context)
            except HansaError as error:
                await _unless_status(self._failed(error), context)
            except grpc.aio.InternalError as error:
                # This is how gRPC says that the client is gone: there is nobody to tell.
                logger.debug("%s: the client is gone: %s", method.path, error)

        self._handlers.by_path[method.path] = grpc.stream_stream_rpc_method_handler(
            serve,
            request_deserializer=method.form.decoder(method.request),
            response_serializer=method.form.encode,
        )

    async def start(self, address: str, *, what: str = "") -> int:
        """Listen at `host:port` and answer; returns the port. `what` stands before the address in errors.

        Raises `AddressInUse`, `BadEndpoint`, and `BadArgument` for TLS files that cannot be used.
        """
        server = grpc.aio.server(options=self._options, maximum_concurrent_rpcs=self._calls_max)
        server.add_generic_rpc_handlers((self._handlers,))
        _check_free(address, what)
        try:
            if self._tls is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, _server_credentials(self._tls))
        except RuntimeError as error:
            raise AddressInUse(f"{what}{address} cannot be listened at: {error}") from error
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_s: float | None = None) -> None:
        """Take no more calls, and give running ones `grace_s`; returns when all have ended."""
        if self._server is None:
            return
        server, self._server = self._server, None
        await server.stop(grace_s)
        # By now gRPC has told all calls to end, but it does not wait until they have.
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    def _follow_call(self) -> None:
        """Every call does this first, so that `stop` can wait for it."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)


class _Handlers(grpc.GenericRpcHandler):
    """The methods by their path, as gRPC looks for them."""

    def __init__(self) -> None:
        self.by_path: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self.by_path.get(handler_call_details.method)


async def _unless_status(found: Any, context: Context) -> Any:
    if isinstance(found, Status):
        await context.abort(grpc.StatusCode[found.code], found.text)
    return found


def _check_free(address: str, what: str) -> None:
    """Raise `AddressInUse` or `BadEndpoint` if it is impossible to listen at the address.

    gRPC would only say that it failed, and write its own words to stderr.
    """
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, bound = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(bound)
    except OSError as error:
        sentence = f"{what}{address} cannot be listened at: {error.strerror}"
        if error.errno == EADDRINUSE:
            raise AddressInUse(sentence) from error
        raise BadEndpoint(sentence) from error


def _server_credentials(tls: CredentialFiles) -> grpc.ServerCredentials:
    try:
        key, cert, authority = (Path(file).read_bytes() for file in (tls.key, tls.cert, tls.ca))
        return grpc.ssl_server_credentials([(key, cert)], authority, require_client_auth=True)
    except (OSError, ValueError) as error:
        raise BadArgument(f"the TLS files cannot be used: {error}") from error
