"""The error tree: blame, codes, numbers."""

import copy
import errno
from collections.abc import Iterator

import pytest

import hansa
from hansa import errors
from hansa.errors import (
    AddressInUse,
    AlreadyClosed,
    Backlogged,
    BadArgument,
    BadEndpoint,
    BadFrame,
    BadRecord,
    Compacted,
    Conflict,
    Fenced,
    FutureRevision,
    GroupRefused,
    HandlerFailed,
    HandoverWithdrawn,
    HandshakeRefused,
    HansaError,
    InvariantBroken,
    JoinRefused,
    KafkaRefused,
    KafkaUnavailable,
    LeadershipLost,
    LeaseLost,
    LimitExceeded,
    LockLost,
    MemberFenced,
    MixedModes,
    NoOwner,
    NoProvider,
    NoSuccessor,
    NotHeld,
    NotOwner,
    NotRegistered,
    NotThere,
    PeerAway,
    PeerError,
    ProtocolViolation,
    ProviderBusy,
    ProviderDraining,
    ProviderLost,
    RaftRefused,
    RegistrationRefused,
    SessionLost,
    StaleFence,
    StoreCorrupt,
    StoreUnavailable,
    StoreWentBack,
    TimedOut,
    TopicExists,
    Unavailable,
    UnknownMsgId,
    UnknownPeer,
    UsageError,
    WatchOverrun,
    WouldBlock,
    error_from_code,
    invariant,
)

LEAVES: list[tuple[type[HansaError], type[HansaError], str, int | None]] = [
    (BadEndpoint, UsageError, "bad-endpoint", errno.EINVAL),
    (BadArgument, UsageError, "bad-argument", errno.EINVAL),
    (AlreadyClosed, UsageError, "closed", None),
    (NotRegistered, UsageError, "not-registered", errno.ENOENT),
    (RegistrationRefused, UsageError, "registration-refused", errno.EEXIST),
    (TopicExists, UsageError, "topic-exists", errno.EEXIST),
    (NotOwner, UsageError, "not-owner", errno.EPERM),
    (UnknownMsgId, UsageError, "unknown-msg-id", errno.ENOSYS),
    (FutureRevision, UsageError, "future-revision", errno.ERANGE),
    (BadFrame, PeerError, "bad-frame", errno.EBADMSG),
    (ProtocolViolation, PeerError, "protocol-violation", None),
    (LimitExceeded, PeerError, "limit-exceeded", errno.EMSGSIZE),
    (HandshakeRefused, PeerError, "handshake-refused", None),
    (HandlerFailed, PeerError, "handler-failed", None),
    (AddressInUse, Unavailable, "address-in-use", errno.EADDRINUSE),
    (UnknownPeer, Unavailable, "unknown-peer", errno.EHOSTUNREACH),
    (PeerAway, Unavailable, "peer-away", errno.EHOSTUNREACH),
    (Backlogged, Unavailable, "backlogged", errno.EAGAIN),
    (WouldBlock, Unavailable, "would-block", errno.EAGAIN),
    (TimedOut, Unavailable, "timed-out", errno.ETIMEDOUT),
    (NoProvider, Unavailable, "no-provider", errno.EHOSTUNREACH),
    (NoOwner, Unavailable, "no-owner", errno.ENOENT),
    (ProviderLost, Unavailable, "provider-lost", errno.ECONNRESET),
    (ProviderBusy, Unavailable, "busy", errno.EAGAIN),
    (ProviderDraining, Unavailable, "draining", errno.EAGAIN),
    (StoreUnavailable, Unavailable, "store-unavailable", errno.EAGAIN),
    (StoreWentBack, StoreUnavailable, "store-went-back", errno.ESTALE),
    (Compacted, Unavailable, "compacted", errno.ERANGE),
    (LeaseLost, Unavailable, "lease-lost", errno.ENOENT),
    (WatchOverrun, Unavailable, "watch-overrun", errno.ENOBUFS),
    (SessionLost, Fenced, "session-lost", errno.ESTALE),
    (LockLost, Fenced, "lock-lost", errno.ESTALE),
    (LeadershipLost, Fenced, "leadership-lost", errno.ESTALE),
    (MemberFenced, Fenced, "member-fenced", errno.ESTALE),
    (StaleFence, Fenced, "stale-fence", errno.ESTALE),
    (NotHeld, UsageError, "not-held", errno.EPERM),
    (NotThere, UsageError, "not-there", errno.ENOENT),
    (RaftRefused, UsageError, "raft-refused", errno.EINVAL),
    (GroupRefused, UsageError, "group-refused", errno.EPERM),
    (MixedModes, UsageError, "mixed-modes", errno.EINVAL),
    (KafkaRefused, UsageError, "kafka-refused", errno.EINVAL),
    (StoreCorrupt, HansaError, "store-corrupt", errno.EIO),
    (BadRecord, PeerError, "bad-record", errno.EBADMSG),
    (Conflict, Unavailable, "conflict", errno.EAGAIN),
    (JoinRefused, Unavailable, "join-refused", errno.ECONNREFUSED),
    (KafkaUnavailable, Unavailable, "kafka-unavailable", errno.EAGAIN),
    (NoSuccessor, Unavailable, "no-successor", errno.EHOSTUNREACH),
    (HandoverWithdrawn, Unavailable, "handover-withdrawn", errno.ECANCELED),
]
# What a peer may say and mean the same by it as we do.
FROM_PEERS: set[type[HansaError]] = {
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
}


def whole_tree(root: type[HansaError] = HansaError) -> Iterator[type[HansaError]]:
    yield root
    for child in root.__subclasses__():
        yield from whole_tree(child)


TRAVEL = sorted(FROM_PEERS, key=lambda kind: kind.code)
STAY_AT_HOME = sorted(
    {kind for kind in whole_tree() if kind.__module__ == "hansa.errors"} - FROM_PEERS - {HandlerFailed},
    key=lambda kind: kind.code,
)


@pytest.mark.parametrize(("leaf", "branch", "code", "number"), LEAVES)
def test_a_leaf_has_its_branch_its_code_and_its_errno(
    leaf: type[HansaError], branch: type[HansaError], code: str, number: int | None
) -> None:
    assert issubclass(leaf, branch)
    assert (leaf.code, leaf.errno) == (code, number)


def test_only_unavailable_is_retryable() -> None:
    assert {kind for kind in whole_tree() if kind.retryable} == set(whole_tree(Unavailable))


def test_every_code_names_one_class_and_is_a_plain_word() -> None:
    codes = [kind.code for kind in whole_tree()]
    assert len(codes) == len(set(codes))
    assert all(code == code.lower() and code.replace("-", "").isalpha() and len(code) <= 64 for code in codes)


def test_the_branches_do_not_overlap() -> None:
    branches = [UsageError, PeerError, Unavailable, Fenced, InvariantBroken]
    assert set(HansaError.__subclasses__()) == {*branches, StoreCorrupt}


def test_damage_on_disk_is_blamed_on_nobody_and_is_not_tried_again() -> None:
    assert StoreCorrupt.__bases__ == (HansaError,)
    assert not StoreCorrupt.retryable


def test_an_error_shows_its_text() -> None:
    assert str(PeerAway("peer 01:0a0b0c0d is away")) == "peer 01:0a0b0c0d is away"


def test_a_peer_error_keeps_its_reason_and_falls_back_on_its_code() -> None:
    assert ProtocolViolation("no greeting", "bad-version").reason == "bad-version"
    assert ProtocolViolation("no greeting").reason == "protocol-violation"
    assert BadFrame("short").reason == "bad-frame"


def test_a_copied_error_keeps_its_text_and_reason() -> None:
    # Worker processes and some executors hand errors on as copies.
    copied = copy.copy(LimitExceeded("70 MiB", "frame-too-large"))
    assert (type(copied), str(copied), copied.reason) == (LimitExceeded, "70 MiB", "frame-too-large")


@pytest.mark.spec("DIS-26")
@pytest.mark.parametrize("kind", TRAVEL)
def test_the_code_of_an_error_that_travels_stands_for_its_class(kind: type[HansaError]) -> None:
    error = error_from_code(kind.code, "as it was told")
    assert type(error) is kind
    assert str(error) == "as it was told"


@pytest.mark.spec("DIS-26")
@pytest.mark.parametrize("kind", STAY_AT_HOME)
def test_what_went_wrong_over_there_did_not_go_wrong_here(kind: type[HansaError]) -> None:
    error = error_from_code(kind.code, "over there")
    assert type(error) is HandlerFailed
    assert error.reason == kind.code


@pytest.mark.spec("DIS-26")
@pytest.mark.parametrize("code", ["insufficient-funds", "handler-failed", "", "BUSY", "exit-1"])
def test_a_word_of_the_peers_own_is_the_reason_of_a_failed_handler(code: str) -> None:
    error = error_from_code(code, "not enough money")
    assert type(error) is HandlerFailed
    assert error.reason == (code or "handler-failed")
    assert str(error) == "not enough money"
    assert not error.retryable


def test_a_refusal_keeps_the_registrys_number() -> None:
    assert RegistrationRefused("twice", 1).status == 1
    assert RegistrationRefused("why not").status == 0xFF
    copied = copy.copy(RegistrationRefused("twice", 1))
    assert (type(copied), str(copied), copied.status) == (RegistrationRefused, "twice", 1)


def test_the_errors_of_a_store_keep_where_to_go_on() -> None:
    compacted, overrun = copy.copy(Compacted("gone", 7)), copy.copy(WatchOverrun("slow", 8))
    assert (str(compacted), compacted.compacted_revision) == ("gone", 7)
    assert (str(overrun), overrun.resume_revision) == ("slow", 8)


def test_invariant_passes_when_it_holds_and_raises_when_it_does_not() -> None:
    invariant(True, "never seen")
    with pytest.raises(InvariantBroken, match="two owners of zone:12"):
        invariant(False, "two owners of zone:12")


def test_every_error_class_is_exported_and_the_branches_are_names_of_a_first_week() -> None:
    classes = {kind.__name__ for kind in whole_tree() if kind.__module__ == "hansa.errors"}
    assert classes | {"error_from_code", "invariant"} == set(errors.__all__)
    assert {"HansaError", "UsageError", "PeerError", "Unavailable", "Fenced"} <= set(hansa.__all__)
    assert hansa.__version__ == "0.1.0"
    assert all(hasattr(hansa, name) for name in hansa.__all__)
