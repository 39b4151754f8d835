"""Connections to the members of an etcd group: one channel a member, and who we are to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import grpc
import grpc.aio

from hansa.errors import BadArgument
from hansa.limits import (
    KIB,
    STORE_ANSWER_BYTES_MAX,
    STORE_CONNECT_S,
    STORE_PING_S,
    STORE_PING_TIMEOUT_S,
    STORE_RETRY_S_MAX,
    STORE_TXN_BYTES_MAX,
)
from hansa.transport.options import Tls

# A transaction of many small operations has more words around them than keys and values.
_REQUEST_BYTES_MAX: Final = STORE_TXN_BYTES_MAX + 512 * KIB
# How a group's members, and the peers beside them, are dialled.
DIAL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    # The least that gRPC takes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # The time that gRPC gives an attempt to connect, whatever the name says.
    ("grpc.min_reconnect_backoff_ms", int(STORE_CONNECT_S * 1000)),
    ("grpc.max_reconnect_backoff_ms", int(STORE_RETRY_S_MAX * 1000)),
    # What may be repeated is decided here, call by call.
    ("grpc.enable_retries", 0),
    # A connection of its own for each channel: one that is stuck is nobody else's.
    ("grpc.use_local_subchannel_pool", 1),
    # Members are reached directly, whatever a web browser on this machine needs.
    ("grpc.enable_http_proxy", 0),
)
_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *DIAL_OPTIONS,
    ("grpc.keepalive_time_ms", int(STORE_PING_S * 1000)),
    ("grpc.keepalive_timeout_ms", int(STORE_PING_TIMEOUT_S * 1000)),
    # etcd counts pings without a call as an attack.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", STORE_ANSWER_BYTES_MAX),
    ("grpc.max_send_message_length", _REQUEST_BYTES_MAX),
)
# A member without a leader says so at once, instead of letting its callers wait; of streams, after a while.
_WITH_LEADER: Final = grpc.aio.Metadata(("hasleader", "true"))


@dataclass(slots=True)
class EtcdAccess:
    """Where the members are, how they are spoken to, and who asks. The token is shared by all who ask.

    A member has a number, its place in `endpoints`, and keeps it when others come and go.
    """

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    # Whether the first endpoint is asked first; else any of them.
    begins_first: bool = False
    # None: to be asked for. Empty: the group wants none.
    token: str | None = field(default=None, repr=False)
    # Those that there are just now.
    members: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.members = tuple(range(len(self.endpoints)))

    def use(self, endpoints: Sequence[str]) -> None:
        """There are these members from now on."""
        # In this order: another thread that sees a number finds its endpoint.
        self.endpoints += tuple(endpoint for endpoint in endpoints if endpoint not in self.endpoints)
        self.members = tuple(self.endpoints.index(endpoint) for endpoint in endpoints)

    @property
    def needs_token(self) -> bool:
        return self.user is not None and self.token is None

    def forget(self, token: str | None) -> None:
        """A token was refused. Not if there is a newer one by now."""
        if self.token == token:
            self.token = None

    def metadata(self) -> grpc.aio.Metadata:
        """What goes with every call."""
        return grpc.aio.Metadata(*_WITH_LEADER, ("token", self.token)) if self.token else _WITH_LEADER

    def credentials(self) -> grpc.ChannelCredentials | None:
        """What TLS needs; None without it. Raises `BadArgument` for files that cannot be read."""
        if self.tls is None:
            return None
        try:
            ca, key, cert = (_content(path) for path in (self.tls.ca, self.tls.key, self.tls.cert))
        except OSError as error:
            raise BadArgument(f"cannot use the credentials {self.tls}: {error}") from error
        return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def open_channel(endpoint: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    """A channel to a member, for the running event loop. Nothing is sent yet."""
    if credentials is None:
        return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
    return grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)


def open_blocking_channel(endpoint: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    """The same for a thread without an event loop."""
    if credentials is None:
        return grpc.insecure_channel(endpoint, options=_OPTIONS)
    return grpc.secure_channel(endpoint, credentials, options=_OPTIONS)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
