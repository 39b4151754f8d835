"""Where the members of a group are, which one is asked next, and what their refusals mean."""

import pytest

from hansa.chance import Chance
from hansa.errors import (
    AlreadyClosed,
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
    UsageError,
)
from hansa.limits import STORE_RETRY_JITTER, STORE_RETRY_S_MAX, STORE_RETRY_S_MIN
from hansa.store.etcd.client import EtcdStore
from hansa.store.etcd.members import Doubt, EtcdAccess, EtcdAddress, FailedTry, Rotation, Trail, judge
from hansa.store.opening import open_store
from hansa.transport import Environment, Tls

SECRET = "s3cret"


def test_an_address_names_all_members() -> None:
    address = EtcdAddress.parse("Alpha:2379,127.0.0.1:1,[::1]:65535")
    assert address == EtcdAddress(endpoints=("alpha:2379", "127.0.0.1:1", "[::1]:65535"))


def test_user_and_password_stand_before_the_hosts_and_may_hold_anything() -> None:
    address = EtcdAddress.parse("a%3Ada:p@ss%2C%3A%25@host:2379")
    assert (address.user, address.password) == ("a:da", "p@ss,:%")


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "host",
        "host:0",
        "*:2379",
        "host:2379,",
        "host:99999",
        "host:2379/path",
        "host:2379,HOST:2379",
        ",".join(f"host{number}:2379" for number in range(65)),
        f"ada:{SECRET}@",
        f"ada:{SECRET}@host",
        f"ada:{SECRET}@a:1,ada:{SECRET}@b:1",
        f"{SECRET}@host:2379",
        f":{SECRET}@host:2379",
    ],
)
def test_what_cannot_be_dialled_is_refused_without_telling_the_password(rest: str) -> None:
    with pytest.raises(BadEndpoint) as caught:
        open_store(f"etcd://{rest}")
    assert SECRET not in str(caught.value)


def test_a_store_is_made_with_what_the_address_says() -> None:
    store = open_store(f"etcd://ada:{SECRET}@host:2379,other:2379", try_timeout=0.5)
    assert isinstance(store, EtcdStore)
    assert store.name == "etcd://host:2379,other:2379"
    for shown in (
        repr(store),
        repr(EtcdAddress.parse(f"ada:{SECRET}@host:2379")),
        repr(store._caller.access),
    ):
        assert SECRET not in shown


def test_an_address_may_be_written_as_the_store_prints_it() -> None:
    store = open_store("http://host:2379/,http://other:2379")
    assert isinstance(store, EtcdStore)
    assert store.name == "etcd://host:2379,other:2379"
    with pytest.raises(BadEndpoint, match="--tls-cert"):
        open_store("https://host:2379")
    with pytest.raises(BadEndpoint, match="write https://"):
        open_store(
            "http://host:2379", environment=Environment(tls=Tls(cert="cert.pem", key="key.pem", ca="ca.pem"))
        )


def test_an_unknown_kind_tells_the_known_ones_and_no_password() -> None:
    with pytest.raises(BadEndpoint, match="etcd://host:2379") as caught:
        open_store(f"zookeeper://ada:{SECRET}@host")
    assert SECRET not in str(caught.value)


def test_a_memory_store_takes_no_options() -> None:
    with pytest.raises(BadArgument):
        open_store("memory://docks", try_timeout=1.0)


async def test_a_store_is_used_inside_its_block() -> None:
    store = EtcdStore(["127.0.0.1:1"])
    with pytest.raises(UsageError, match="async with"):
        await store.get("k")
    async with store:
        pass
    with pytest.raises(AlreadyClosed):
        store.watch("k")
    with pytest.raises(AlreadyClosed):
        async with store:
            pass


def test_a_try_takes_time() -> None:
    with pytest.raises(BadArgument):
        EtcdStore(["host:1"], try_timeout=0.0)


def test_a_member_keeps_its_number_and_gets_it_again() -> None:
    access = EtcdAccess(endpoints=("a:1", "b:1"))
    assert access.members == (0, 1)
    access.use(["b:1", "c:1"])
    assert [access.endpoints[member] for member in access.members] == ["b:1", "c:1"]
    assert access.members == (1, 2)
    access.use(["a:1", "d:1"])
    assert access.members == (0, 3)
    assert access.endpoints == ("a:1", "b:1", "c:1", "d:1")


def test_the_one_that_answers_is_kept_while_it_is_a_member() -> None:
    for seed in range(20):
        rotation = Rotation(3, Chance.seeded(seed))
        kept = rotation.current
        rotation.use((kept, 7))
        assert rotation.current == kept
        rotation.failed(kept)
        assert rotation.current == 7
        rotation.failed(7)
        assert rotation.current == kept


def test_clients_go_to_different_ones_of_the_new_members() -> None:
    found = set()
    for seed in range(30):
        rotation = Rotation(2, Chance.seeded(seed))
        rotation.use((4, 6, 9))
        # One that is no member any more fails late.
        rotation.failed(0)
        found.add(rotation.current)
    assert found == {4, 6, 9}


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


UNDONE = FailedTry(doubt=Doubt.UNDONE, text="away")
DOUBTFUL = FailedTry(doubt=Doubt.DOUBTFUL, text="silent")


def test_clients_begin_at_different_members() -> None:
    assert {Rotation(3, Chance.seeded(seed)).current for seed in range(30)} == {0, 1, 2}


def test_a_client_with_a_member_of_its_own_begins_there() -> None:
    assert {Rotation(3, Chance.seeded(seed), begins_first=True).current for seed in range(30)} == {0}


def test_a_member_that_failed_is_left_once_by_all_who_share_it() -> None:
    rotation = Rotation(3, Chance.seeded(1))
    first = rotation.current
    rotation.failed(first)
    rotation.failed(first)
    assert rotation.current == (first + 1) % 3
    rotation.failed(rotation.current)
    # Somebody who waited long for the first learns of it now.
    rotation.failed(first)
    assert rotation.current == (first + 2) % 3
    rotation.failed(rotation.current)
    assert rotation.current == first


def test_each_member_is_tried_once_before_there_is_a_pause() -> None:
    trail = Trail(3, Chance.seeded(1))
    delays = [trail.note(UNDONE) for _ in range(30)]
    assert [delay > 0 for delay in delays] == [False, False, True] * 10
    pauses = delays[2::3]
    assert pauses[0] >= STORE_RETRY_S_MIN * (1 - STORE_RETRY_JITTER)
    assert max(pauses) <= STORE_RETRY_S_MAX * (1 + STORE_RETRY_JITTER)
    assert min(pauses[-3:]) > max(pauses[:2])


def test_tries_grow_longer_after_each_round_and_not_for_ever() -> None:
    trail = Trail(2, Chance.seeded(1))
    tries = []
    for _ in range(12):
        tries.append(trail.try_s(1.0))
        trail.note(UNDONE)
    assert tries == [1, 1, 2, 2, 4, 4, 8, 8, 8, 8, 8, 8]


def test_one_doubtful_try_makes_the_whole_call_doubtful() -> None:
    trail = Trail(1, Chance.seeded(1))
    trail.note(UNDONE)
    assert not trail.may_be_done
    trail.is_under_way = True
    assert trail.may_be_done
    trail.is_under_way = False
    trail.note(DOUBTFUL)
    trail.note(UNDONE)
    assert trail.may_be_done
    assert trail.last_text == "away"
