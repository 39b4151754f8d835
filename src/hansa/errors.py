"""All errors that hansa raises, in one small tree that says whose fault an error is.

The branches come first: `UsageError` (you), `PeerError` (them), `Unavailable` (the world, worth a retry),
`Fenced` (ownership is lost, never retry) and `InvariantBroken` (us, stop). Only `StoreCorrupt` is outside of
them and blames nobody. A leaf has a stable `code` for programs and for the wire, an `errno` where one fits,
and `retryable`. The text is for people.
"""

from errno import (
    EADDRINUSE,
    EAGAIN,
    EBADMSG,
    ECANCELED,
    ECONNREFUSED,
    ECONNRESET,
    EEXIST,
    EHOSTUNREACH,
    EINVAL,
    EIO,
    EMSGSIZE,
    ENOBUFS,
    ENOENT,
    ENOSYS,
    EPERM,
    ERANGE,
    ESTALE,
    ETIMEDOUT,
)
from typing import ClassVar

__all__ = [
    "AddressInUse",
    "AlreadyClosed",
    "Backlogged",
    "BadArgument",
    "BadEndpoint",
    "BadFrame",
    "BadRecord",
    "Compacted",
    "Conflict",
    "Fenced",
    "FutureRevision",
    "GroupRefused",
    "HandlerFailed",
    "HandoverWithdrawn",
    "HandshakeRefused",
    "HansaError",
    "InvariantBroken",
    "JoinRefused",
    "KafkaRefused",
    "KafkaUnavailable",
    "LeadershipLost",
    "LeaseLost",
    "LimitExceeded",
    "LockLost",
    "MemberFenced",
    "MixedModes",
    "NoOwner",
    "NoProvider",
    "NoSuccessor",
    "NotHeld",
    "NotOwner",
    "NotRegistered",
    "NotThere",
    "PeerAway",
    "PeerError",
    "ProtocolViolation",
    "ProviderBusy",
    "ProviderDraining",
    "ProviderLost",
    "RaftRefused",
    "RegistrationRefused",
    "SessionLost",
    "StaleFence",
    "StoreCorrupt",
    "StoreUnavailable",
    "StoreWentBack",
    "TimedOut",
    "TopicExists",
    "Unavailable",
    "UnknownMsgId",
    "UnknownPeer",
    "UsageError",
    "WatchOverrun",
    "WouldBlock",
    "error_from_code",
    "invariant",
]


class HansaError(Exception):
    """The root: catch this to catch everything that hansa raises on purpose."""

    code: ClassVar[str] = "error"
    errno: ClassVar[int | None] = None
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)


class UsageError(HansaError):
    """The caller asked for something impossible; asking again will not help."""

    code = "usage"


class PeerError(HansaError):
    """A peer sent or did something forbidden. `reason` is a stable word to count by, by default the code."""

    code = "peer"

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason: str = reason or self.code


class Unavailable(HansaError):
    """The environment prevents the call now; the same call may succeed later."""

    code = "unavailable"
    retryable = True


class Fenced(HansaError):
    """Something that the caller owned belongs to somebody else now. Never retry with the same token."""

    code = "fenced"


class InvariantBroken(HansaError):
    """hansa itself is wrong. Stop, and report it."""

    code = "invariant-broken"


class StoreCorrupt(HansaError):
    """Something that a store kept on disk is damaged. The message says where, and what can be done.

    It is in no branch: a disk or a person caused it, and not the caller; trying again does not help.
    """

    code = "store-corrupt"
    errno = EIO


class BadEndpoint(UsageError):
    """An endpoint that cannot be read or used; the text says what to write instead."""

    code = "bad-endpoint"
    errno = EINVAL


class BadArgument(UsageError):
    """An argument that the call does not accept."""

    code = "bad-argument"
    errno = EINVAL


class AlreadyClosed(UsageError):
    """The object was closed before the call, or while the call waited."""

    code = "closed"


class NotRegistered(UsageError):
    """This provider has no such service registered."""

    code = "not-registered"
    errno = ENOENT


class RegistrationRefused(UsageError):
    """A registry refused the service. `status` says why: 1 duplicate, 2 bad endpoint, 255 anything else."""

    code = "registration-refused"
    errno = EEXIST

    def __init__(self, message: str, status: int = 0xFF) -> None:
        super().__init__(message)
        self.status = status


class TopicExists(UsageError):
    """The topic has an owner already, here or at another node."""

    code = "topic-exists"
    errno = EEXIST


class NotOwner(UsageError):
    """Only the spot that owns the topic may do this."""

    code = "not-owner"
    errno = EPERM


class UnknownMsgId(UsageError):
    """The provider has no handler for the request's msgId."""

    code = "unknown-msg-id"
    errno = ENOSYS


class FutureRevision(UsageError):
    """The store never had this revision: it has not reached it yet, or had it in a history that was lost."""

    code = "future-revision"
    errno = ERANGE


class BadFrame(PeerError):
    """Bytes that are not a message of the protocol. Decoders raise this and nothing else."""

    code = "bad-frame"
    errno = EBADMSG


class ProtocolViolation(PeerError):
    """Readable bytes in the wrong place: the peer broke the protocol's order or rules."""

    code = "protocol-violation"


class LimitExceeded(PeerError):
    """A peer went over a bound of `hansa.limits`, and was stopped before it cost memory."""

    code = "limit-exceeded"
    errno = EMSGSIZE


class HandshakeRefused(PeerError):
    """The two sides could not agree to talk: version, mechanism, socket type or identity."""

    code = "handshake-refused"


class HandlerFailed(PeerError):
    """The provider ran the request and its handler failed; `reason` is the handler's own word, or the code.

    A handler may raise it to tell the caller why: `HandlerFailed("not enough money", "insufficient-funds")`.
    """

    code = "handler-failed"


class AddressInUse(Unavailable):
    """Another socket listens on this endpoint."""

    code = "address-in-use"
    errno = EADDRINUSE


class UnknownPeer(Unavailable):
    """No peer with this routing id is known to the socket."""

    code = "unknown-peer"
    errno = EHOSTUNREACH


class PeerAway(Unavailable):
    """The peer is known and not connected now."""

    code = "peer-away"
    errno = EHOSTUNREACH


class Backlogged(Unavailable):
    """An outgoing buffer is full; nothing of the message was taken."""

    code = "backlogged"
    errno = EAGAIN


class WouldBlock(Unavailable):
    """Nothing is there yet, and the caller did not want to wait."""

    code = "would-block"
    errno = EAGAIN


class TimedOut(Unavailable):
    """The deadline passed. The request may or may not have been carried out."""

    code = "timed-out"
    errno = ETIMEDOUT


class NoProvider(Unavailable):
    """No provider of the service is connected. The request was not sent."""

    code = "no-provider"
    errno = EHOSTUNREACH


class NoOwner(Unavailable):
    """Nobody owns the topic now, as far as this node knows. Nothing was published."""

    code = "no-owner"
    errno = ENOENT


class ProviderLost(Unavailable):
    """The connection broke with the request in flight: it may or may not have been carried out."""

    code = "provider-lost"
    errno = ECONNRESET


class ProviderBusy(Unavailable):
    """The provider has as much work as it accepts. The request was not started."""

    code = "busy"
    errno = EAGAIN


class ProviderDraining(Unavailable):
    """The provider is leaving. The request was not started."""

    code = "draining"
    errno = EAGAIN


class StoreUnavailable(Unavailable):
    """The store cannot be reached, or accepts no more of this now. Nothing was changed."""

    code = "store-unavailable"
    errno = EAGAIN


class StoreWentBack(StoreUnavailable):
    """The store was restored so that it gives out revisions once more. The text says how to fix it.

    Changes are refused until it is beyond all that was seen of it, because fences would go down; reads and
    watches go on, with what is left.
    """

    code = "store-went-back"
    errno = ESTALE


class Compacted(Unavailable):
    """The store has forgotten this revision, or has lost its history. Read again, and go on from there.

    `compacted_revision` is the oldest that it still remembers; for a lost history, where the store is now.
    """

    code = "compacted"
    errno = ERANGE

    def __init__(self, message: str, compacted_revision: int = 0) -> None:
        super().__init__(message)
        self.compacted_revision = compacted_revision


class LeaseLost(Unavailable):
    """The lease has expired, was revoked, or never existed. Its keys are gone; grant another one."""

    code = "lease-lost"
    errno = ENOENT


class WatchOverrun(Unavailable):
    """A watcher read more slowly than the store changed, and was ended. It was told everything before that.

    Watch again from `resume_revision`: the first revision that it was not told.
    """

    code = "watch-overrun"
    errno = ENOBUFS

    def __init__(self, message: str, resume_revision: int = 0) -> None:
        super().__init__(message)
        self.resume_revision = resume_revision


class SessionLost(Fenced):
    """The session's lease ended, or could not be renewed in time. Everything that hung on it is lost."""

    code = "session-lost"
    errno = ESTALE


class LockLost(Fenced):
    """The lock is no longer held: its session ended, or its key was deleted."""

    code = "lock-lost"
    errno = ESTALE


class LeadershipLost(Fenced):
    """This process no longer leads: its session ended, or its key was deleted."""

    code = "leadership-lost"
    errno = ESTALE


class MemberFenced(Fenced):
    """Another process has this member's place in a Kafka group: it was started with the same member id."""

    code = "member-fenced"
    errno = ESTALE


class StaleFence(Fenced):
    """A newer owner has raised the fence. Nothing was written."""

    code = "stale-fence"
    errno = ESTALE


class NotHeld(UsageError):
    """The caller does not hold the thing that it wants to use or give back."""

    code = "not-held"
    errno = EPERM


class NotThere(UsageError):
    """The named thing was deleted, or never existed; asking again will not bring it back."""

    code = "not-there"
    errno = ENOENT


class RaftRefused(UsageError):
    """A raft group cannot be run like this: the program, its version, or the data folder is wrong."""

    code = "raft-refused"
    errno = EINVAL


class GroupRefused(UsageError):
    """A Kafka group will never accept this process: its settings, rights or version do not fit."""

    code = "group-refused"
    errno = EPERM


class MixedModes(UsageError):
    """The group has a worker of another mode. The message names the group and both modes."""

    code = "mixed-modes"
    errno = EINVAL


class KafkaRefused(UsageError):
    """A Kafka broker cannot be run: Java or Maven is missing or too old, or the data folder is wrong."""

    code = "kafka-refused"
    errno = EINVAL


class BadRecord(PeerError):
    """A value in the store is not what hansa writes there."""

    code = "bad-record"
    errno = EBADMSG


class Conflict(Unavailable):
    """Somebody else has changed it meanwhile. Read it again, and decide again."""

    code = "conflict"
    errno = EAGAIN


class NoSuccessor(Unavailable):
    """The node to which something should be handed over does not wait for it. It stays where it is."""

    code = "no-successor"
    errno = EHOSTUNREACH


class HandoverWithdrawn(Unavailable):
    """A hand-over was given up: the old owner keeps it. `step` says how far it was, and `reason` why."""

    code = "handover-withdrawn"
    errno = ECANCELED

    def __init__(self, message: str, step: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.step = step
        self.reason = reason


class KafkaUnavailable(Unavailable):
    """Kafka cannot be fetched, started or reached now. The message says what was tried."""

    code = "kafka-unavailable"
    errno = EAGAIN


class JoinRefused(Unavailable):
    """A raft group did not accept a new peer. The message has the reason."""

    code = "join-refused"
    errno = ECONNREFUSED


_FROM_PEERS: dict[str, type[HansaError]] = {
    kind.code: kind
    for kind in (
        BadArgument,
        BadFrame,
        Backlogged,
        Fenced,
        NoProvider,
        PeerAway,
        ProviderBusy,
        ProviderDraining,
        ProviderLost,
        TimedOut,
        Unavailable,
        UnknownMsgId,
        UsageError,
    )
}


def error_from_code(code: str, text: str) -> HansaError:
    """The error for a peer's stable code; an unknown code becomes a `HandlerFailed`.

    Codes that say "hansa itself is wrong" or are about the local process become `HandlerFailed` too: what
    went wrong over there did not go wrong here.
    """
    kind = _FROM_PEERS.get(code)
    return HandlerFailed(text, code) if kind is None else kind(text)


def invariant(condition: bool, what_broke: str) -> None:
    """Raise `InvariantBroken` unless the condition holds. Unlike `assert`, it stays on under `python -O`."""
    if not condition:
        raise InvariantBroken(what_broke)
