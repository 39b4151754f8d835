"""Values become etcd's messages and come back as they were; what hansa's store has not is refused."""

import pytest
from google.protobuf.message import Message

from hansa.errors import BadArgument
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd import messages
from hansa.store.etcd.messages import EtcdCall
from hansa.store.values import (
    Compare,
    CompareOperator,
    CompareTarget,
    Delete,
    DeleteResult,
    Event,
    EventKind,
    Get,
    GetResult,
    KeyValue,
    LeaseInfo,
    Operation,
    Outcome,
    Put,
    PutResult,
)

ITEM = KeyValue(key=b"k", value=b"\0v", create_revision=3, mod_revision=7, version=2, lease=2**62)
CALLS = [call for call in vars(messages).values() if isinstance(call, EtcdCall)]


def wired(message: Message) -> Message:
    """As it comes out on the other side."""
    return type(message).FromString(message.SerializeToString())


@pytest.mark.parametrize("target", CompareTarget)
@pytest.mark.parametrize("operator", CompareOperator)
def test_a_compare_comes_back(target: CompareTarget, operator: CompareOperator) -> None:
    compare = Compare("k", target, operator, b"v" if target is CompareTarget.VALUE else 7)
    message = wired(messages.commit_to_message([compare], (), ()))
    assert isinstance(message, api.TxnRequest)
    assert messages.compare_from_message(message.compare[0]) == compare


def test_a_compare_with_nothing_is_no_compare_with_another_thing() -> None:
    message = messages.commit_to_message([Compare.absent("k")], (), ()).compare[0]
    assert (message.target, message.result) == (api.Compare.CREATE, api.Compare.EQUAL)
    assert message.WhichOneof("target_union") == "create_revision"


def test_a_transaction_has_its_compares_and_both_branches() -> None:
    then: tuple[Operation, ...] = (Put("a", b"1", 5), Delete("b", "c"), Get("d", b"\0", 3, True))
    message = messages.commit_to_message([Compare.exists("k")], then, [Get("e")])
    assert [messages.compare_from_message(compare) for compare in message.compare] == [Compare.exists("k")]
    assert list(message.success) == [
        api.RequestOp(request_put=api.PutRequest(key=b"a", value=b"1", lease=5)),
        api.RequestOp(request_delete_range=api.DeleteRangeRequest(key=b"b", range_end=b"c")),
        api.RequestOp(request_range=api.RangeRequest(key=b"d", range_end=b"\0", limit=3, keys_only=True)),
    ]
    assert list(message.failure) == [api.RequestOp(request_range=api.RangeRequest(key=b"e"))]


@pytest.mark.parametrize(
    "refused",
    [
        api.Compare(key=b"a", range_end=b"b"),
        api.Compare(key=b"a", target=9),  # type: ignore[arg-type]
        api.Compare(key=b"a", result=9),  # type: ignore[arg-type]
    ],
)
def test_a_compare_that_the_store_cannot_make_is_refused(refused: api.Compare) -> None:
    with pytest.raises(BadArgument):
        messages.compare_from_message(refused)


def test_an_outcome_has_the_result_of_each_operation() -> None:
    header = api.ResponseHeader(revision=9)
    put = api.PutResponse(header=header)
    deleted = api.DeleteRangeResponse(header=header, deleted=4)
    found = api.RangeResponse(header=header, kvs=[messages.item_to_message(ITEM)], count=3, more=True)
    message = api.TxnResponse(
        header=header,
        succeeded=True,
        responses=[
            api.ResponseOp(response_put=put),
            api.ResponseOp(response_delete_range=deleted),
            api.ResponseOp(response_range=found),
        ],
    )
    assert messages.outcome_from_message(message) == Outcome(
        is_success=True,
        revision=9,
        results=(
            PutResult(revision=9),
            DeleteResult(count=4),
            GetResult(items=(ITEM,), count=3, more=True),
        ),
    )


def test_an_event_comes_back() -> None:
    gone = KeyValue(key=b"k", value=b"", create_revision=0, mod_revision=8, version=0)
    for event in (
        Event(kind=EventKind.PUT, item=ITEM),
        Event(kind=EventKind.DELETE, item=gone, before=ITEM),
    ):
        told = wired(messages.event_to_message(event))
        assert isinstance(told, api.Event)
        assert messages.event_from_message(told) == event


def test_a_lease_has_whole_seconds_and_one_that_is_gone_is_none() -> None:
    info = LeaseInfo(lease=5, ttl_s=2.9, granted_ttl_s=9.5, keys=(b"a", b"b"))
    message = messages.lease_info_to_message(5, info)
    assert (message.TTL, message.grantedTTL) == (2, 10)
    back = messages.lease_info_from_message(message)
    assert back == LeaseInfo(lease=5, ttl_s=2.0, granted_ttl_s=10.0, keys=(b"a", b"b"))
    assert messages.lease_info_from_message(messages.lease_info_to_message(5, None)) is None
    ending = api.LeaseTimeToLiveResponse(ID=5, TTL=-1, grantedTTL=10)
    found = messages.lease_info_from_message(ending)
    assert found is not None
    assert found.ttl_s == 0.0


def test_every_call_has_a_path_of_its_own_that_a_server_can_be_found_by() -> None:
    assert len({call.path for call in CALLS}) == len(CALLS) == 20
    assert messages.RANGE.path == "/etcdserverpb.KV/Range"
