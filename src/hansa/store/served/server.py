"""A store served over etcd's API, so that `etcdctl` and every client of etcd's work on it.

    async with StoreServer("127.0.0.1:0", folder="data") as server:
        print(server.address)

Where etcd's API has more than hansa's store (users, adding members, etcd's own kind of backups) the answer is
gRPC's UNIMPLEMENTED, or etcd's own words for "not enabled".
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NoReturn, Protocol, Self, TypeVar

import grpc

from hansa.control.server import Context, ControlServer, Status
from hansa.errors import BadEndpoint, HansaError, LeaseLost
from hansa.limits import (
    STORE_GRACE_S,
    STORE_JOURNAL_BYTES,
    STORE_LEASE_TTL_S_MAX,
    STORE_PROGRESS_S,
    STORE_REQUEST_BYTES_MAX,
    STORE_WATCHERS_MAX,
)
from hansa.runtime.tasks import Closing
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd import messages
from hansa.store.etcd.messages import lease_info_to_message
from hansa.store.served.answers import (
    LEASE_EXISTS,
    LEASE_TOO_LONG,
    NO_AUTH,
    RequestRefused,
    answer_delete,
    answer_put,
    answer_range,
    answer_txn,
    refusal_of,
)
from hansa.store.served.recorded import RecordedStore
from hansa.store.served.served_store import ServedStore
from hansa.store.served.watch_stream import WatchStats, WatchStream
from hansa.store.values import as_lease
from hansa.transport.environment import Environment

# The version of the API. Clients look at it to know what they may ask for.
API_VERSION: Final = "3.4.0"


class _Answer(Protocol):
    @property
    def header(self) -> api.ResponseHeader: ...


AnswerT = TypeVar("AnswerT", bound=_Answer)

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", STORE_REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", STORE_WATCHERS_MAX),
    # Clients ping to find out whether a quiet server is there; they may do so every second.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # And a client that is gone without a word must not keep its watchers for ever.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


class StoreServer:
    """A store at an address. An async context manager; leaving it flushes everything and closes.

    A folder whose journal is damaged is refused. With `give_up_damage` the journal is cut off where it can no
    longer be read, whoever was told of what was there; the rest is kept in a file beside it.

    Entering raises what `ServedStore` raises, `AddressInUse`, `BadEndpoint`.
    """

    def __init__(
        self,
        listen: str = "127.0.0.1:2379",
        *,
        folder: str | Path | None = None,
        fsync: bool = True,
        environment: Environment | None = None,
        name: str = "hansa",
        snapshot_bytes: int = STORE_JOURNAL_BYTES,
        progress_interval: float = STORE_PROGRESS_S,
        give_up_damage: bool = False,
    ) -> None:
        self._host, _, port = listen.rpartition(":")
        if not self._host or "/" in self._host or not port.isdecimal() or int(port) > 65_535:
            raise BadEndpoint(f"listen at {listen!r}: write host:port, 0 for any free port")
        self._port = int(port)
        environment = environment or Environment()
        self._tls = environment.tls
        self._name = name
        self._progress_s = progress_interval
        self.watch_stats = WatchStats()
        self.store = ServedStore(
            folder,
            fsync=fsync,
            environment=environment,
            snapshot_bytes=snapshot_bytes,
            give_up_damage=give_up_damage,
        )
        self._stack = AsyncExitStack()
        self._closing = Closing()

    @property
    def address(self) -> str:
        """Where clients find it: `host:port`, with the port that was taken."""
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.address}"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.store)
            server = ControlServer(_status, tls=self._tls, options=_OPTIONS)
            self._give_methods(server)
            self._port = await server.start(self.address)
            stack.push_async_callback(server.stop, STORE_GRACE_S)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all calls, flush all changes to the disk, free the port. Closing twice does no harm."""
        await self._closing.once(self._stack.aclose)

    def _give_methods(self, server: ControlServer) -> None:
        server.answer(messages.RANGE, self._range)
        server.answer(messages.PUT, self._put)
        server.answer(messages.DELETE_RANGE, self._delete_range)
        server.answer(messages.TXN, self._txn)
        server.answer(messages.COMPACT, self._compact)
        server.answer(messages.LEASE_GRANT, self._lease_grant)
        server.answer(messages.LEASE_REVOKE, self._lease_revoke)
        server.answer(messages.LEASE_TIME_TO_LIVE, self._lease_time_to_live)
        server.answer(messages.LEASE_LEASES, self._lease_leases)
        server.answer(messages.MEMBER_LIST, self._member_list)
        server.answer(messages.STATUS, self._status)
        server.answer(messages.ALARM, self._alarm)
        server.answer(messages.DEFRAGMENT, self._defragment)
        server.answer(messages.AUTHENTICATE, self._authenticate)
        server.stream(messages.LEASE_KEEP_ALIVE, self._keep_alive)
        server.stream(messages.WATCH, self._watch)

    @property
    def _term(self) -> int:
        """There is one member, and each start begins a new term: clients distinguish the runs by it."""
        return self.store.run_revision

    def _header(self, revision: int) -> api.ResponseHeader:
        identity = self.store.identity
        return api.ResponseHeader(
            cluster_id=identity.cluster_id,
            member_id=identity.member_id,
            revision=revision,
            raft_term=self._term,
        )

    # ---- keys

    async def _range(self, request: api.RangeRequest) -> api.RangeResponse:
        def read(store: RecordedStore, revision: int) -> api.RangeResponse:
            answer = answer_range(store, request, revision=revision)
            # At 0 the current state was read, and all of it is safe by the time the answer is sent.
            answer.header.CopyFrom(self._header(self.store.safe_revision if revision else store.revision))
            return answer

        return await self.store.read(read, max(request.revision, 0))

    async def _put(self, request: api.PutRequest) -> api.PutResponse:
        return await self._change(lambda store, _: answer_put(store, request))

    async def _delete_range(self, request: api.DeleteRangeRequest) -> api.DeleteRangeResponse:
        return await self._change(lambda store, _: answer_delete(store, request))

    async def _txn(self, request: api.TxnRequest) -> api.TxnResponse:
        return await self._change(lambda store, _: answer_txn(store, request))

    async def _compact(self, request: api.CompactionRequest) -> api.CompactionResponse:
        def compact(store: RecordedStore, now: float) -> api.CompactionResponse:
            store.compact(request.revision)
            return api.CompactionResponse()

        return await self._change(compact)

    async def _change(self, work: Callable[[RecordedStore, float], AnswerT]) -> AnswerT:
        """Do it, and give its answer the header of the moment it was done."""

        def act(store: RecordedStore, now: float) -> AnswerT:
            answer = work(store, now)
            answer.header.CopyFrom(self._header(store.revision))
            return answer

        return await self.store.act(act)

    # ---- leases

    async def _lease_grant(self, request: api.LeaseGrantRequest) -> api.LeaseGrantResponse:
        # etcd grants at least what it can keep; here that is its smallest unit.
        ttl_s = max(request.TTL, 1)

        def grant(store: RecordedStore, now: float) -> api.LeaseGrantResponse:
            if as_lease(request.ID) in store:
                raise RequestRefused(*LEASE_EXISTS)
            if ttl_s > STORE_LEASE_TTL_S_MAX:
                raise RequestRefused(*LEASE_TOO_LONG)
            return api.LeaseGrantResponse(ID=store.grant(float(ttl_s), request.ID, now=now), TTL=ttl_s)

        return await self._change(grant)

    async def _lease_revoke(self, request: api.LeaseRevokeRequest) -> api.LeaseRevokeResponse:
        def revoke(store: RecordedStore, now: float) -> api.LeaseRevokeResponse:
            store.revoke(request.ID)
            return api.LeaseRevokeResponse()

        return await self._change(revoke)

    async def _lease_time_to_live(self, request: api.LeaseTimeToLiveRequest) -> api.LeaseTimeToLiveResponse:
        def look(store: RecordedStore, now: float) -> api.LeaseTimeToLiveResponse:
            answer = lease_info_to_message(request.ID, store.lease_info(request.ID, now=now))
            if not request.keys:
                answer.ClearField("keys")
            return answer

        return await self._change(look)

    async def _lease_leases(self, request: api.LeaseLeasesRequest) -> api.LeaseLeasesResponse:
        def look(store: RecordedStore, now: float) -> api.LeaseLeasesResponse:
            return api.LeaseLeasesResponse(leases=[api.LeaseStatus(ID=lease) for lease in store.leases()])

        return await self._change(look)

    async def _keep_alive(self, context: Context) -> None:
        while (request := await context.read()) is not grpc.aio.EOF:
            lease = request.ID

            def renew(store: RecordedStore, now: float, lease: int = lease) -> api.LeaseKeepAliveResponse:
                try:
                    ttl_s = store.renew(lease, now=now)
                except LeaseLost:
                    # This is how etcd says that the lease is gone.
                    ttl_s = 0.0
                return api.LeaseKeepAliveResponse(ID=lease, TTL=int(ttl_s))

            await context.write(await self._change(renew))

    # ---- watches

    async def _watch(self, context: Context) -> None:
        stream = WatchStream(self.store, self._header, self.watch_stats, context, progress_s=self._progress_s)
        await stream.run()

    # ---- the server itself

    async def _member_list(self, request: api.MemberListRequest) -> api.MemberListResponse:
        member = api.Member(
            ID=self.store.identity.member_id, name=self._name, peerURLs=(), clientURLs=[self.url]
        )
        return api.MemberListResponse(header=self._header(self.store.safe_revision), members=[member])

    async def _status(self, request: api.StatusRequest) -> api.StatusResponse:
        appended, safe = self.store.records
        failure = self.store.failure
        return api.StatusResponse(
            header=self._header(self.store.safe_revision),
            version=API_VERSION,
            dbSize=self.store.state.live_bytes,
            dbSizeInUse=self.store.state.live_bytes,
            leader=self.store.identity.member_id,
            raftIndex=appended,
            raftAppliedIndex=safe,
            raftTerm=self._term,
            errors=[] if failure is None else [str(failure)],
        )

    async def _alarm(self, request: api.AlarmRequest) -> api.AlarmResponse:
        if request.action != api.AlarmRequest.GET:
            raise RequestRefused("UNIMPLEMENTED", "hansa store: alarms end when the store is started again")
        # etcd has only this one alarm under which reads go on and changes do not.
        alarm = api.AlarmMember(memberID=self.store.identity.member_id, alarm=api.NOSPACE)
        return api.AlarmResponse(
            header=self._header(self.store.safe_revision),
            alarms=[] if self.store.failure is None else [alarm],
        )

    async def _defragment(self, request: api.DefragmentRequest) -> api.DefragmentResponse:
        await self.store.snapshot()
        return api.DefragmentResponse(header=self._header(self.store.safe_revision))

    async def _authenticate(self, request: api.AuthenticateRequest) -> NoReturn:
        raise RequestRefused(*NO_AUTH)


def _status(error: HansaError) -> Status:
    refusal = refusal_of(error)
    return Status(refusal.status, str(refusal))
