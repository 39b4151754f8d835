"""The members of an etcd group: where they are, which one is asked next, and what their refusals mean. Pure.

- `EtcdAddress`, `EtcdAccess`: where the members are, and as which user they are asked.
- `judge`: what a refusal means for the caller, and whether the same request may be sent again.
- `Rotation`, `Trail`: which member is asked next, and what the tries of one call have left in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import unquote

from hansa.chance import Chance
from hansa.endpoint import Endpoint
from hansa.errors import (
    BadArgument,
    BadEndpoint,
    Compacted,
    Conflict,
    FutureRevision,
    HandshakeRefused,
    HansaError,
    LeaseLost,
    LimitExceeded,
    StoreUnavailable,
)
from hansa.limits import (
    STORE_ENDPOINTS_MAX,
    STORE_RETRY_JITTER,
    STORE_RETRY_S_MAX,
    STORE_RETRY_S_MIN,
    STORE_TRY_DOUBLINGS_MAX,
)
from hansa.runtime.backoff import Backoff
from hansa.transport.environment import Tls

ETCD_EXAMPLE = "write etcd://host:2379,host2:2379, or etcd://user:password@host:2379"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAddress:
    """The members of a group, and the user. The password is never shown."""

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> EtcdAddress:
        """Read what follows `etcd://`. Raises `BadEndpoint`, without the password in it."""
        credentials, at, hosts = text.rpartition("@")
        user, colon, password = credentials.partition(":")
        if at and (not user or not colon or "," in credentials):
            raise BadEndpoint(
                "an etcd address names user:password once, before the first host, and writes a comma or a"
                f" colon in them as %2C or %3A; {ETCD_EXAMPLE}"
            )
        return cls(
            endpoints=checked_endpoints(hosts.split(",")),
            user=unquote(user) if at else None,
            password=unquote(password) if at else None,
        )


def checked_endpoints(endpoints: Sequence[str]) -> tuple[str, ...]:
    """Hosts with ports, in one spelling each. Raises `BadEndpoint`."""
    if not 1 <= len(endpoints) <= STORE_ENDPOINTS_MAX:
        raise BadEndpoint(f"{len(endpoints)} endpoints of etcd: give 1 to {STORE_ENDPOINTS_MAX}")
    found = []
    for text in endpoints:
        try:
            endpoint = Endpoint.parse(f"tcp://{text}")
        except BadEndpoint as error:
            raise BadEndpoint(f"etcd endpoint {text!r}: {ETCD_EXAMPLE}") from error
        if not endpoint.is_dialable:
            raise BadEndpoint(f"etcd endpoint {text!r} cannot be dialled: {ETCD_EXAMPLE}")
        found.append(str(endpoint).removeprefix("tcp://"))
    if len(set(found)) < len(found):
        raise BadEndpoint(f"etcd endpoints {','.join(found)}: name each once")
    return tuple(found)


@dataclass(slots=True)
class EtcdAccess:
    """The members of a group, and the user. All who ask share the token.

    A member has a number, its place in `endpoints`, and keeps it when others come and go.
    """

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    # Whether the first endpoint is asked first; else a random one.
    begins_first: bool = False
    # None: not requested yet. Empty: the group needs none.
    token: str | None = field(default=None, repr=False)
    # The numbers of the current members.
    members: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.members = tuple(range(len(self.endpoints)))

    def use(self, endpoints: Sequence[str]) -> None:
        """From now on these are the members."""
        # In this order: another thread that sees a number finds its endpoint.
        self.endpoints += tuple(endpoint for endpoint in endpoints if endpoint not in self.endpoints)
        self.members = tuple(self.endpoints.index(endpoint) for endpoint in endpoints)

    @property
    def needs_token(self) -> bool:
        return self.user is not None and self.token is None

    def forget(self, token: str | None) -> None:
        """Forget a token that was refused, unless there is a newer one by now."""
        if self.token == token:
            self.token = None


class Doubt(Enum):
    """Whether a call that failed was carried out."""

    # The store said no, for good.
    REFUSED = "refused"
    # Surely not: anybody may be asked again.
    UNDONE = "undone"
    # Surely not, and it will not be before the caller has authenticated again.
    STRANGER = "stranger"
    # Nobody knows.
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTry:
    """A judged failure. `error` is what to raise when asking again cannot help."""

    doubt: Doubt
    text: str
    error: HansaError | None = None


def judge(code: str, text: str) -> FailedTry:
    """The meaning of a gRPC status, by its code's name and its text.

    etcd uses one code for several meanings, so the text decides where it is known: etcd's own words, which
    have not changed since 3.0. An unknown text means the worst: the call may have been carried out.
    """
    said = text.lower()
    shown = _PREAMBLE.sub("cannot connect to ", text) or code
    for words, making in _REFUSALS:
        if words in said:
            return FailedTry(doubt=Doubt.REFUSED, text=shown, error=making(f"the store says: {shown}"))
    if any(words in said for words in _STRANGERS):
        return FailedTry(doubt=Doubt.STRANGER, text=shown)
    if any(words in said for words in _UNDONE):
        return FailedTry(doubt=Doubt.UNDONE, text=shown)
    if _TOO_LARGE in said:
        return FailedTry(
            doubt=Doubt.DOUBTFUL, text=shown, error=LimitExceeded(f"an answer is too large: {shown}")
        )
    if code == "UNIMPLEMENTED":
        # Not etcd, but another program answers there: the other members are asked.
        return FailedTry(doubt=Doubt.UNDONE, text=f"this is no etcd, or one that cannot do it: {shown}")
    if code in ("INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"):
        return FailedTry(doubt=Doubt.REFUSED, text=shown, error=BadArgument(f"the store says: {shown}"))
    return FailedTry(doubt=Doubt.DOUBTFUL, text=shown)


_Making = Callable[[str], HansaError]


def _auth_failed(text: str) -> HansaError:
    return HandshakeRefused(text, "auth-failed")


def _nameless(text: str) -> HansaError:
    return _auth_failed(f"{text}; say who asks: {ETCD_EXAMPLE}")


def _permission_denied(text: str) -> HansaError:
    return HandshakeRefused(text, "permission-denied")


_REFUSALS: tuple[tuple[str, _Making], ...] = (
    ("required revision has been compacted", Compacted),
    ("required revision is a future revision", FutureRevision),
    ("requested lease not found", LeaseLost),
    ("lease already exists", Conflict),
    ("too large lease ttl", BadArgument),
    ("too many operations in txn request", BadArgument),
    ("duplicate key given in txn request", BadArgument),
    ("request is too large", BadArgument),
    ("key is not provided", BadArgument),
    ("database space exceeded", StoreUnavailable),
    ("authentication failed", _auth_failed),
    ("user name is empty", _nameless),
    ("permission denied", _permission_denied),
)
_STRANGERS = ("invalid auth token", "revision of auth store is old", "user name not found")
# gRPC itself says the first ones, before a byte was sent; a member that has not begun says the rest.
_UNDONE = (
    "failed to connect to all addresses",
    "dns resolution failed",
    "errors resolving",
    "etcdserver: no leader",
    "too many requests",
    "not capable",
    "not supported for learner",
    "unhealthy cluster",
)
# gRPC says this on our side, about an answer: the request has been carried out.
_TOO_LARGE = "received message larger than max"
# Before the actual error, gRPC says that it happened to all addresses, and a code that adds nothing.
_PREAMBLE = re.compile(r"failed to connect to all addresses; last error: ([A-Z_]+: )?", re.IGNORECASE)


class Rotation:
    """The member that answered last, until it fails: then the next one, for all callers that share this.

    Members are numbers, which they keep when others come and go.
    """

    def __init__(self, count: int, chance: Chance, *, begins_first: bool = False) -> None:
        self._members: Sequence[int] = range(count)
        self._chance = chance
        # Not all clients start at the same member, unless each has one of its own.
        self.current = 0 if begins_first else chance.below(count)

    def failed(self, index: int) -> None:
        """Turn to the next member, unless another caller has turned already."""
        if index == self.current:
            at = self._members.index(index)
            self.current = self._members[(at + 1) % len(self._members)]

    def use(self, members: Sequence[int]) -> None:
        """From now on these are the members; the one that answered last is kept if it is among them."""
        self._members = members
        if self.current not in members:
            self.current = self._chance.choose(members)


class Trail:
    """The tries of one call: how long each may take, how long to wait before the next, what is known."""

    def __init__(self, members_count: int, chance: Chance) -> None:
        self._members_count = members_count
        self._chance = chance
        # Made at the first failure: most calls have none.
        self._backoff: Backoff | None = None
        self._failures_count = 0
        self.strangers_count = 0
        self.is_doubtful = False
        # A try was sent and has no answer yet.
        self.is_under_way = False
        self.last_text = "no answer came"

    @property
    def may_be_done(self) -> bool:
        """Whether some try may have been carried out."""
        return self.is_doubtful or self.is_under_way

    def try_s(self, base_s: float) -> float:
        """How long the next try may take."""
        if not self._failures_count:
            return base_s
        rounds = self._failures_count // self._members_count
        return float(base_s * 2 ** min(rounds, STORE_TRY_DOUBLINGS_MAX))

    def note(self, failure: FailedTry) -> float:
        """Note a failed try; returns how long to wait before the next one.

        Each member is tried once without a pause.
        """
        self._failures_count += 1
        self.last_text = failure.text
        if failure.doubt is Doubt.DOUBTFUL:
            self.is_doubtful = True
        if failure.doubt is Doubt.STRANGER:
            self.strangers_count += 1
        if self._failures_count % self._members_count:
            return 0.0
        if self._backoff is None:
            self._backoff = Backoff(
                s_min=STORE_RETRY_S_MIN,
                s_max=STORE_RETRY_S_MAX,
                jitter=STORE_RETRY_JITTER,
                chance=self._chance,
            )
        return self._backoff.next_s()
