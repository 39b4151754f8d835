"""etcd's methods, and the store's values as etcd's messages and back: for client and server. Pure.

A value from a message is checked like one that a caller makes: `BadArgument` names what is impossible. What
etcd has and hansa's store has not (transactions inside transactions, compares of ranges) is refused in the
same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from hansa.control.method import Method, RequestT, ResponseT
from hansa.errors import BadArgument
from hansa.store.etcd import api_pb2 as api
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
    Result,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdCall(Method[RequestT, ResponseT]):
    """A method of etcd's API.

    If `is_ordered`, the header of an answer is not older than any header that was told before the request.
    """

    is_ordered: bool = False


KV: Final = "etcdserverpb.KV"
LEASE: Final = "etcdserverpb.Lease"
WATCH_SERVICE: Final = "etcdserverpb.Watch"
CLUSTER: Final = "etcdserverpb.Cluster"
MAINTENANCE: Final = "etcdserverpb.Maintenance"
AUTH: Final = "etcdserverpb.Auth"

RANGE: Final = EtcdCall(
    service=KV, name="Range", request=api.RangeRequest, response=api.RangeResponse, is_ordered=True
)
PUT: Final = EtcdCall(
    service=KV, name="Put", request=api.PutRequest, response=api.PutResponse, is_ordered=True
)
DELETE_RANGE: Final = EtcdCall(
    service=KV,
    name="DeleteRange",
    request=api.DeleteRangeRequest,
    response=api.DeleteRangeResponse,
    is_ordered=True,
)
TXN: Final = EtcdCall(
    service=KV, name="Txn", request=api.TxnRequest, response=api.TxnResponse, is_ordered=True
)
COMPACT: Final = EtcdCall(
    service=KV, name="Compact", request=api.CompactionRequest, response=api.CompactionResponse
)
LEASE_GRANT: Final = EtcdCall(
    service=LEASE, name="LeaseGrant", request=api.LeaseGrantRequest, response=api.LeaseGrantResponse
)
LEASE_REVOKE: Final = EtcdCall(
    service=LEASE, name="LeaseRevoke", request=api.LeaseRevokeRequest, response=api.LeaseRevokeResponse
)
LEASE_KEEP_ALIVE: Final = EtcdCall(
    service=LEASE,
    name="LeaseKeepAlive",
    request=api.LeaseKeepAliveRequest,
    response=api.LeaseKeepAliveResponse,
)
LEASE_TIME_TO_LIVE: Final = EtcdCall(
    service=LEASE,
    name="LeaseTimeToLive",
    request=api.LeaseTimeToLiveRequest,
    response=api.LeaseTimeToLiveResponse,
)
LEASE_LEASES: Final = EtcdCall(
    service=LEASE, name="LeaseLeases", request=api.LeaseLeasesRequest, response=api.LeaseLeasesResponse
)
WATCH: Final = EtcdCall(
    service=WATCH_SERVICE,
    name="Watch",
    request=api.WatchRequest,
    response=api.WatchResponse,
)
MEMBER_ADD: Final = EtcdCall(
    service=CLUSTER, name="MemberAdd", request=api.MemberAddRequest, response=api.MemberAddResponse
)
MEMBER_REMOVE: Final = EtcdCall(
    service=CLUSTER, name="MemberRemove", request=api.MemberRemoveRequest, response=api.MemberRemoveResponse
)
MEMBER_LIST: Final = EtcdCall(
    service=CLUSTER, name="MemberList", request=api.MemberListRequest, response=api.MemberListResponse
)
MEMBER_PROMOTE: Final = EtcdCall(
    service=CLUSTER,
    name="MemberPromote",
    request=api.MemberPromoteRequest,
    response=api.MemberPromoteResponse,
)
STATUS: Final = EtcdCall(
    service=MAINTENANCE, name="Status", request=api.StatusRequest, response=api.StatusResponse
)
MOVE_LEADER: Final = EtcdCall(
    service=MAINTENANCE, name="MoveLeader", request=api.MoveLeaderRequest, response=api.MoveLeaderResponse
)
DEFRAGMENT: Final = EtcdCall(
    service=MAINTENANCE, name="Defragment", request=api.DefragmentRequest, response=api.DefragmentResponse
)
ALARM: Final = EtcdCall(
    service=MAINTENANCE, name="Alarm", request=api.AlarmRequest, response=api.AlarmResponse
)
AUTHENTICATE: Final = EtcdCall(
    service=AUTH, name="Authenticate", request=api.AuthenticateRequest, response=api.AuthenticateResponse
)


_OPERATORS = {
    CompareOperator.EQUAL: api.Compare.EQUAL,
    CompareOperator.NOT_EQUAL: api.Compare.NOT_EQUAL,
    CompareOperator.LESS: api.Compare.LESS,
    CompareOperator.GREATER: api.Compare.GREATER,
}
_OPERATORS_BACK = {number: operator for operator, number in _OPERATORS.items()}
# The number that says what is compared, and the field with the value to compare with.
_TARGETS = {
    CompareTarget.CREATED: (api.Compare.CREATE, "create_revision"),
    CompareTarget.REVISION: (api.Compare.MOD, "mod_revision"),
    CompareTarget.VERSION: (api.Compare.VERSION, "version"),
    CompareTarget.VALUE: (api.Compare.VALUE, "value"),
    CompareTarget.LEASE: (api.Compare.LEASE, "lease"),
}
_TARGETS_BACK = {number: (target, field) for target, (number, field) in _TARGETS.items()}


# ---- keys and their changes --------------------------------------------------------------------


def item_from_message(message: api.KeyValue) -> KeyValue:
    return KeyValue(
        key=message.key,
        value=message.value,
        create_revision=message.create_revision,
        mod_revision=message.mod_revision,
        version=message.version,
        lease=message.lease,
    )


def item_to_message(item: KeyValue) -> api.KeyValue:
    return api.KeyValue(
        key=item.key,
        value=item.value,
        create_revision=item.create_revision,
        mod_revision=item.mod_revision,
        version=item.version,
        lease=item.lease,
    )


def event_from_message(message: api.Event) -> Event:
    return Event(
        kind=EventKind.DELETE if message.type == api.Event.DELETE else EventKind.PUT,
        item=item_from_message(message.kv),
        before=item_from_message(message.prev_kv) if message.HasField("prev_kv") else None,
    )


def event_to_message(event: Event) -> api.Event:
    return api.Event(
        type=api.Event.DELETE if event.kind is EventKind.DELETE else api.Event.PUT,
        kv=item_to_message(event.item),
        prev_kv=None if event.before is None else item_to_message(event.before),
    )


# ---- what is asked -----------------------------------------------------------------------------


def fill_compare(message: api.Compare, compare: Compare) -> None:
    number, field = _TARGETS[compare.target]
    message.key = compare.key
    message.target = number
    message.result = _OPERATORS[compare.operator]
    setattr(message, field, compare.operand)


def compare_from_message(message: api.Compare) -> Compare:
    """Raises `BadArgument` for a compare of a whole range, and for one whose target does not exist."""
    if message.range_end:
        raise BadArgument(f"a compare of all keys from {message.key!r} on: compare one key")
    if message.target not in _TARGETS_BACK or message.result not in _OPERATORS_BACK:
        raise BadArgument(f"a compare of {message.key!r} by unknown means")
    target, field = _TARGETS_BACK[message.target]
    return Compare(message.key, target, _OPERATORS_BACK[message.result], getattr(message, field))


def put_to_message(put: Put) -> api.PutRequest:
    return api.PutRequest(key=put.key, value=put.value, lease=put.lease)


def delete_to_message(delete: Delete) -> api.DeleteRangeRequest:
    return api.DeleteRangeRequest(key=delete.key, range_end=delete.range_end)


def get_to_message(get: Get, revision: int = 0) -> api.RangeRequest:
    return api.RangeRequest(
        key=get.key, range_end=get.range_end, limit=get.limit, keys_only=get.keys_only, revision=revision
    )


def fill_operation(message: api.RequestOp, operation: Operation) -> None:
    if isinstance(operation, Put):
        put = message.request_put
        put.key, put.value, put.lease = operation.key, operation.value, operation.lease
    elif isinstance(operation, Delete):
        delete = message.request_delete_range
        delete.key, delete.range_end = operation.key, operation.range_end
    else:
        read = message.request_range
        read.key, read.range_end = operation.key, operation.range_end
        read.limit, read.keys_only = operation.limit, operation.keys_only


def commit_to_message(
    compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]
) -> api.TxnRequest:
    # Filled in place: a message that is passed to another one's constructor is copied by its bytes, which
    # made this three times as slow (`make bench`, lock).
    request = api.TxnRequest()
    for compare in compares:
        fill_compare(request.compare.add(), compare)
    for operation in then:
        fill_operation(request.success.add(), operation)
    for operation in otherwise:
        fill_operation(request.failure.add(), operation)
    return request


# ---- what is answered --------------------------------------------------------------------------


def result_from_message(message: api.ResponseOp) -> Result:
    kind = message.WhichOneof("response")
    if kind == "response_put":
        return PutResult(revision=message.response_put.header.revision)
    if kind == "response_delete_range":
        return DeleteResult(count=message.response_delete_range.deleted)
    found = message.response_range
    return GetResult(
        items=tuple([item_from_message(item) for item in found.kvs]), count=found.count, more=found.more
    )


def outcome_from_message(message: api.TxnResponse) -> Outcome:
    return Outcome(
        is_success=message.succeeded,
        revision=message.header.revision,
        results=tuple([result_from_message(result) for result in message.responses]),
    )


def lease_info_from_message(message: api.LeaseTimeToLiveResponse) -> LeaseInfo | None:
    """The lease's state; None when the lease is gone: then it was granted for nothing.

    An ending one has 0 left.
    """
    if not message.grantedTTL:
        return None
    return LeaseInfo(
        lease=message.ID,
        ttl_s=float(max(message.TTL, 0)),
        granted_ttl_s=float(message.grantedTTL),
        keys=tuple(sorted(message.keys)),
    )


def lease_info_to_message(lease: int, info: LeaseInfo | None) -> api.LeaseTimeToLiveResponse:
    """In whole seconds, as in etcd: the remaining time is rounded down, so that nobody trusts it too long."""
    if info is None:
        return api.LeaseTimeToLiveResponse(ID=lease, TTL=-1)
    return api.LeaseTimeToLiveResponse(
        ID=lease, TTL=int(info.ttl_s), grantedTTL=ceil(info.granted_ttl_s), keys=info.keys
    )
