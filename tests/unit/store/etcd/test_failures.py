"""What a refusal of etcd means, and what may be asked again after it."""

import pytest

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
from hansa.store.etcd.failures import Doubt, judge


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Compacted),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", FutureRevision),
        ("NOT_FOUND", "etcdserver: requested lease not found", LeaseLost),
        ("FAILED_PRECONDITION", "etcdserver: lease already exists", Conflict),
        ("INVALID_ARGUMENT", "etcdserver: too many operations in txn request", BadArgument),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", BadArgument),
        ("INVALID_ARGUMENT", "etcdserver: something that a later etcd refuses", BadArgument),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", StoreUnavailable),
        ("PERMISSION_DENIED", "etcdserver: permission denied", HandshakeRefused),
        (
            "INVALID_ARGUMENT",
            "etcdserver: authentication failed, invalid user ID or password",
            HandshakeRefused,
        ),
    ],
)
def test_what_the_store_refuses_is_told_as_what_it_is(code: str, text: str, error: type[HansaError]) -> None:
    failure = judge(code, text)
    assert (failure.doubt, type(failure.error)) == (Doubt.REFUSED, error)
    assert text in str(failure.error)


@pytest.mark.parametrize(
    ("code", "text", "doubt"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: Connection refused", Doubt.UNDONE),
        ("UNAVAILABLE", "DNS resolution failed for nowhere:2379", Doubt.UNDONE),
        ("UNAVAILABLE", "errors resolving nowhere:2379: [Domain name not found]", Doubt.UNDONE),
        ("UNIMPLEMENTED", "Received http2 header with status: 404", Doubt.UNDONE),
        ("UNAVAILABLE", "etcdserver: no leader", Doubt.UNDONE),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Doubt.UNDONE),
        ("UNAVAILABLE", "etcdserver: rpc not supported for learner", Doubt.UNDONE),
        ("UNAVAILABLE", "etcdserver: leader changed", Doubt.DOUBTFUL),
        ("UNAVAILABLE", "etcdserver: request timed out", Doubt.DOUBTFUL),
        ("UNAVAILABLE", "etcdserver: server stopped", Doubt.DOUBTFUL),
        ("UNAVAILABLE", "Socket closed", Doubt.DOUBTFUL),
        ("UNAVAILABLE", "recvmsg:Connection reset by peer", Doubt.DOUBTFUL),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Doubt.DOUBTFUL),
        ("UNKNOWN", "", Doubt.DOUBTFUL),
        ("INTERNAL", "something new", Doubt.DOUBTFUL),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Doubt.STRANGER),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", Doubt.STRANGER),
    ],
)
def test_what_is_not_known_to_be_undone_may_have_been_done(code: str, text: str, doubt: Doubt) -> None:
    failure = judge(code, text)
    assert (failure.doubt, failure.error) == (doubt, None)
    assert failure.text


def test_a_connection_that_failed_is_told_without_what_grpc_says_around_it() -> None:
    text = (
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:2379: Failed to connect to"
        " remote host: Connection refused"
    )
    assert judge("UNAVAILABLE", text).text == (
        "cannot connect to ipv4:127.0.0.1:2379: Failed to connect to remote host: Connection refused"
    )


def test_an_answer_that_is_too_large_was_given_to_a_call_that_was_done() -> None:
    failure = judge("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (9 vs. 8)")
    assert failure.doubt is Doubt.DOUBTFUL
    assert isinstance(failure.error, LimitExceeded)
