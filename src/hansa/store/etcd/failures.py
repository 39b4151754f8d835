"""What an etcd server's refusal means: for the caller, and for whether the same may be asked again. Pure.

A gRPC status has a code and a text. etcd gives several meanings to one code, so the text decides where it is
known: etcd's own words, which have not changed since 3.0. A text that is not known means the worst: the call
may have been carried out.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from hansa.errors import (
    BadArgument,
    Compacted,
    Conflict,
    FutureRevision,
    HandshakeRefused,
    HansaError,
    LeaseLost,
    LimitExceeded,
    StoreUnavailable,
)
from hansa.store.etcd.address import ETCD_EXAMPLE


class Doubt(Enum):
    """Whether a call that failed was carried out."""

    # The store said no, for good.
    REFUSED = "refused"
    # Surely not: anybody may be asked again.
    UNDONE = "undone"
    # Surely not, and it will not be before the caller has said anew who it is.
    STRANGER = "stranger"
    # Nobody knows.
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A judged failure. `error` is what to raise, where asking again cannot help."""

    doubt: Doubt
    text: str
    error: HansaError | None = None


def judge(code: str, text: str) -> Failure:
    """What a gRPC status means, by its code's name and its text."""
    said = text.lower()
    shown = _PREAMBLE.sub("cannot connect to ", text) or code
    for words, making in _REFUSALS:
        if words in said:
            return Failure(doubt=Doubt.REFUSED, text=shown, error=making(f"the store says: {shown}"))
    if any(words in said for words in _STRANGERS):
        return Failure(doubt=Doubt.STRANGER, text=shown)
    if any(words in said for words in _UNDONE):
        return Failure(doubt=Doubt.UNDONE, text=shown)
    if _TOO_LARGE in said:
        return Failure(
            doubt=Doubt.DOUBTFUL, text=shown, error=LimitExceeded(f"an answer is too large: {shown}")
        )
    if code == "UNIMPLEMENTED":
        # No etcd, but something else that answers there: the other members are asked.
        return Failure(doubt=Doubt.UNDONE, text=f"this is no etcd, or one that cannot do it: {shown}")
    if code in ("INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"):
        return Failure(doubt=Doubt.REFUSED, text=shown, error=BadArgument(f"the store says: {shown}"))
    return Failure(doubt=Doubt.DOUBTFUL, text=shown)


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
# The first are said by gRPC itself, before a byte was sent; the rest by a member that has not begun.
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
# Said by gRPC on our side, about an answer: what was asked has been done.
_TOO_LARGE = "received message larger than max"
# Before what happened, gRPC says that it happened to all addresses, and a code that is no news.
_PREAMBLE = re.compile(r"failed to connect to all addresses; last error: ([A-Z_]+: )?", re.IGNORECASE)
