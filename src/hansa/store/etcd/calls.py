"""The methods of etcd's API that hansa calls and answers. `LeaseKeepAlive` and `Watch` stream both ways."""

from dataclasses import dataclass
from typing import Final

from hansa.control.method import Method, RequestT, ResponseT
from hansa.store.etcd import api_pb2 as api


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdCall(Method[RequestT, ResponseT]):
    """A method of etcd's API.

    The header of an answer that `is_ordered` is not older than any that was told before it was asked for.
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
