"""What a served store says when it refuses: etcd's codes and words, by which clients tell them apart."""

from typing import Final

from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    Compacted,
    FutureRevision,
    HansaError,
    LeaseLost,
    StoreUnavailable,
    UsageError,
)


class Refusal(UsageError):
    """A request that is answered with a status. `status` is the name of gRPC's code for it."""

    code = "refused"

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


INVALID: Final = "INVALID_ARGUMENT"
OUT_OF_RANGE: Final = "OUT_OF_RANGE"
EXHAUSTED: Final = "RESOURCE_EXHAUSTED"
AWAY: Final = "UNAVAILABLE"

COMPACTED: Final = (OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
FUTURE: Final = (OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
NO_LEASE: Final = ("NOT_FOUND", "etcdserver: requested lease not found")
LEASE_EXISTS: Final = ("FAILED_PRECONDITION", "etcdserver: lease already exists")
LEASE_TOO_LONG: Final = (OUT_OF_RANGE, "etcdserver: too large lease TTL")
EMPTY_KEY: Final = (INVALID, "etcdserver: key is not provided")
NO_KEY: Final = (INVALID, "etcdserver: key not found")
VALUE_GIVEN: Final = (INVALID, "etcdserver: value is provided")
LEASE_GIVEN: Final = (INVALID, "etcdserver: lease is provided")
TOO_MANY_OPERATIONS: Final = (INVALID, "etcdserver: too many operations in txn request")
DUPLICATE_KEY: Final = (INVALID, "etcdserver: duplicate key given in txn request")
BAD_SORT: Final = (INVALID, "etcdserver: invalid sort option")
TOO_LARGE: Final = (INVALID, "etcdserver: request is too large")
FULL: Final = (EXHAUSTED, "etcdserver: mvcc: database space exceeded")
BUSY: Final = (EXHAUSTED, "etcdserver: too many requests")
NO_AUTH: Final = ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled")
STOPPED: Final = (AWAY, "etcdserver: server stopped")
# It may or may not have happened: etcd says so when its answer is late, and clients know the words.
IN_DOUBT: Final = (AWAY, "etcdserver: request timed out")


def refusal_of(error: HansaError) -> Refusal:
    """An error of the store as its clients are told of it."""
    match error:
        case Refusal():
            return error
        case Compacted():
            return Refusal(*COMPACTED)
        case FutureRevision():
            return Refusal(*FUTURE)
        case LeaseLost():
            return Refusal(*NO_LEASE)
        case BadArgument():
            return Refusal(INVALID, f"hansa store: {error}")
        case AlreadyClosed():
            return Refusal(*STOPPED)
        case StoreUnavailable():
            # Etcd's words, so that every client knows that nothing happened; and the reason behind them.
            return Refusal(EXHAUSTED, f"{FULL[1]}: {error}")
    return Refusal("INTERNAL", f"hansa store: {error}")
