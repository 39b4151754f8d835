"""Channels to gRPC servers, and questions with a deadline over them.

`open_channel` dials one server the way all of hansa does. A `ControlClient` is such a channel with one way to
ask and one translation of errors; a client of several servers that decides call by call which server to ask
next (`store.etcd.caller`) uses the channels alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import grpc
import grpc.aio

from hansa.control.method import Method, RequestT, ResponseT
from hansa.errors import AlreadyClosed, BadArgument, Conflict, HansaError, StoreUnavailable, TimedOut
from hansa.limits import CONTROL_CONNECT_S, CONTROL_REDIAL_S_MAX

Options = Sequence[tuple[str, int]]

_DIAL_OPTIONS: Final[Options] = (
    # gRPC's minimum.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # The time that gRPC gives an attempt to connect, whatever the name says.
    ("grpc.min_reconnect_backoff_ms", int(CONTROL_CONNECT_S * 1000)),
    ("grpc.max_reconnect_backoff_ms", int(CONTROL_REDIAL_S_MAX * 1000)),
    # The caller decides, call by call, what may be repeated.
    ("grpc.enable_retries", 0),
    # A connection of its own for each channel: a stuck one does not affect the others.
    ("grpc.use_local_subchannel_pool", 1),
    # Servers are reached directly, whatever a web browser on this machine needs.
    ("grpc.enable_http_proxy", 0),
)


class CredentialFiles(Protocol):
    """Files of a certificate, its key and the authority that both sides trust: `transport.Tls` is one."""

    @property
    def cert(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def ca(self) -> str: ...


def channel_credentials(tls: CredentialFiles | None) -> grpc.ChannelCredentials | None:
    """The credentials for TLS; None without it. Raises `BadArgument` for files that cannot be read."""
    if tls is None:
        return None
    try:
        ca, key, cert = (Path(file).read_bytes() for file in (tls.ca, tls.key, tls.cert))
    except OSError as error:
        raise BadArgument(f"cannot use the credentials {tls}: {error}") from error
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def open_channel(
    address: str, *, credentials: grpc.ChannelCredentials | None = None, options: Options = ()
) -> grpc.aio.Channel:
    """A channel to a server, for the running event loop. Nothing is sent yet."""
    options = (*_DIAL_OPTIONS, *options)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


def open_blocking_channel(
    address: str, *, credentials: grpc.ChannelCredentials | None = None, options: Options = ()
) -> grpc.Channel:
    """As `open_channel`, for a thread without an event loop."""
    options = (*_DIAL_OPTIONS, *options)
    if credentials is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, credentials, options=options)


class ControlClient:
    """Asks one server, over a channel of its own. It belongs to the event loop in which it was made."""

    def __init__(self, address: str, *, options: Options = ()) -> None:
        self.address = address
        self._channel = open_channel(address, options=options)
        self._is_closed = False

    async def close(self) -> None:
        """End the channel. Questions that are under way raise `AlreadyClosed`."""
        self._is_closed = True
        await self._channel.close()

    async def ask(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout_s: float
    ) -> ResponseT:
        """Ask, and return the answer, within this time.

        Raises `TimedOut`, `StoreUnavailable` when the server is away or cannot do it now, `Conflict` with the
        server's reason for refusing, `AlreadyClosed`, and what the method's form raises for an answer that
        cannot be read. Cancelling leaves open whether it was done.
        """
        if self._is_closed:
            raise self._closed()
        # Decoded here: gRPC logs an answer that it cannot decode, and returns None instead.
        call: grpc.aio.UnaryUnaryMultiCallable[RequestT, bytes] = self._channel.unary_unary(
            method.path, request_serializer=method.form.encode
        )
        try:
            data = await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _translated(error, f"{method.name} at {self.address}") from error
        except asyncio.CancelledError:
            # Closing a channel cancels its calls. The task that waits for one was not cancelled itself.
            task = asyncio.current_task()
            if self._is_closed and (task is None or not task.cancelling()):
                raise self._closed() from None
            raise
        except grpc.aio.UsageError as error:
            raise self._closed() from error
        answer: ResponseT = method.form.decoder(method.response)(data)
        return answer

    def _closed(self) -> AlreadyClosed:
        return AlreadyClosed(f"the connection to {self.address} is closed")


def _translated(error: grpc.aio.AioRpcError, what: str) -> HansaError:
    said = f"{what}: {error.details()}"
    match error.code():
        case grpc.StatusCode.FAILED_PRECONDITION | grpc.StatusCode.NOT_FOUND:
            return Conflict(said)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return TimedOut(said)
    return StoreUnavailable(said)
