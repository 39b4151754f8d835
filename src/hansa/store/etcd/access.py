"""Who the members of an etcd group are, how they are dialled, and who we are to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import grpc.aio

from hansa.limits import (
    KIB,
    STORE_ANSWER_BYTES_MAX,
    STORE_PING_S,
    STORE_PING_TIMEOUT_S,
    STORE_TXN_BYTES_MAX,
)
from hansa.transport.environment import Tls

# A transaction of many small operations has more words around them than keys and values.
_REQUEST_BYTES_MAX: Final = STORE_TXN_BYTES_MAX + 512 * KIB
CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
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
    """The members of a group, and who asks them. The token is shared by all who ask.

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
    # The numbers of the members that there are now.
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
