"""The store in an etcd group, as its users call it.

Reads are linearizable. Each call goes to the member that answered last, and to the next one when that fails:
again and again until the deadline if repeating is harmless, else only when it was surely not done. So a put,
a delete or a commit ends with `TimedOut` when its answer was lost, also before its deadline, and with
`StoreUnavailable` when no member could be reached at all.

When the store went back in time (see `Lineage`), all watches end with `Compacted`, so that their readers read
again, and all kept leases end, with any keys that are on them once more. If it went back behind a revision
that this object has seen, it can be read, and every change is refused with `StoreWentBack`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from types import TracebackType
from typing import Self, TypeVar

from hansa.clock import Clock
from hansa.control.method import RequestT, ResponseT
from hansa.errors import BadArgument, Compacted, Conflict, FutureRevision, LeaseLost, LimitExceeded
from hansa.limits import (
    STORE_SCAN_PART_COUNT,
    STORE_SCAN_PART_COUNT_MIN,
    STORE_TIMEOUT_S,
    STORE_TRY_S,
)
from hansa.runtime.tasks import Closing
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd.caller import EtcdCaller, StoreLife
from hansa.store.etcd.heart import EtcdHeart, EtcdKeeping, KeptLease
from hansa.store.etcd.lineage import HistoryLost
from hansa.store.etcd.members import EtcdAccess, Trail, checked_endpoints
from hansa.store.etcd.messages import (
    COMPACT,
    DELETE_RANGE,
    LEASE_GRANT,
    LEASE_KEEP_ALIVE,
    LEASE_REVOKE,
    LEASE_TIME_TO_LIVE,
    PUT,
    RANGE,
    TXN,
    EtcdCall,
    commit_to_message,
    delete_to_message,
    get_to_message,
    item_from_message,
    lease_info_from_message,
    outcome_from_message,
    put_to_message,
)
from hansa.store.etcd.watch_book import WatchTape
from hansa.store.etcd.watches import EtcdWatch, EtcdWatches
from hansa.store.leases import check_ttl
from hansa.store.store import Store
from hansa.store.values import (
    FROM_KEY,
    Compare,
    Delete,
    Get,
    KeyValue,
    LeaseInfo,
    Operation,
    Outcome,
    Put,
    Scan,
    StoreStatus,
    as_key,
    as_lease,
    as_revision,
    check_commit,
    prefix_range,
)
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A member that lags may not know a lease yet: ask again a little later.
_GONE_PAUSE_S = 0.05


class EtcdStore(Store):
    """A `Store` in an etcd group. See `Store` for what the calls promise.

    `async with` may be entered more than once; leaving the last time closes it. Calls from another event loop
    raise `UsageError`. A wrong user, password or permission raises `HandshakeRefused`. Leases have whole
    seconds: a requested time is rounded up. Kept leases (`keep`) are renewed by a thread of the store. With
    `begins_first` it begins at the first endpoint, else at any of them.

    It shares no calls with `EngineStore`: each is a method of etcd's own, which may be repeated or not.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        user: str | None = None,
        password: str | None = None,
        begins_first: bool = False,
        try_timeout: float = STORE_TRY_S,
        environment: Environment | None = None,
        name: str = "",
    ) -> None:
        checked = checked_endpoints(endpoints)
        if not try_timeout > 0.0:
            raise BadArgument(f"a try of {try_timeout} s: give more than 0")
        environment = environment or Environment()
        self.name = name or f"etcd://{','.join(checked)}"
        self._clock, self._chance = environment.clock, environment.chance
        self._access = access = EtcdAccess(
            endpoints=checked, user=user, password=password, tls=environment.tls, begins_first=begins_first
        )
        self._life = StoreLife(self.name)
        self._closing = Closing()
        self._caller = EtcdCaller(
            access, try_timeout_s=try_timeout, chance=self._chance, name=f"store {self.name}"
        )
        self._watches = EtcdWatches(self._caller, self._life, chance=self._chance)
        self._heart = EtcdHeart(
            access,
            self._caller.lineage,
            self._watches.look,
            clock=self._clock,
            chance=self._chance,
            try_timeout_s=try_timeout,
            name=self.name,
        )
        self._caller.on_doubt = self._watches.look
        self._caller.on_lost = self._lost

    def __repr__(self) -> str:
        return f"<EtcdStore {self.name!r}>"

    @property
    def is_closed(self) -> bool:
        return self._life.is_closed

    @property
    def clock(self) -> Clock:
        return self._clock

    async def __aenter__(self) -> Self:
        if self._life.enter():
            self._caller.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._life.leave() or self._life.is_closed:
            await self.close()

    async def close(self) -> None:
        self._life.close()
        await self._closing.once(self._close)

    async def set_endpoints(self, endpoints: Sequence[str]) -> None:
        """Continue with these members of the same group: other ones, more or fewer.

        Watches go on there without a gap, kept leases are renewed there, calls under way end where they are.
        Raises `BadEndpoint`, and `AlreadyClosed` or `UsageError` where calls do. If cancelled, it has been
        done.
        """
        checked = checked_endpoints(endpoints)
        self._life.check_usable()
        self._access.use(checked)
        self._watches.use()
        self._heart.use()
        await self._caller.use()

    async def get(
        self, key: bytes | str, *, revision: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> KeyValue | None:
        request = api.RangeRequest(key=as_key(key), revision=as_revision(revision))
        answer = await self._ask(RANGE, request, timeout)
        return self._seen(item_from_message(answer.kvs[0])) if answer.kvs else None

    async def scan(
        self,
        prefix_or_key: bytes | str,
        range_end: bytes | str | None = None,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Scan:
        start, end = prefix_range(prefix_or_key) if range_end is None else (prefix_or_key, range_end)
        what = Get(start, end, limit, keys_only)
        as_revision(revision)

        async def work(trail: Trail) -> Scan:
            while True:
                try:
                    return await self._scan(what, revision, trail)
                except (Compacted, FutureRevision):
                    # The revision was compacted between two parts, or the store went back in time: read the
                    # current state from the beginning.
                    if revision:
                        raise

        return await self._within(work, timeout)

    async def put(
        self, key: bytes | str, value: bytes, *, lease: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> int:
        request = put_to_message(Put(key, value, lease))
        answer = await self._ask(PUT, request, timeout, repeatable=False)
        return answer.header.revision

    async def delete(self, key: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> bool:
        return await self._delete(Delete(key), timeout) > 0

    async def delete_prefix(self, prefix: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        return await self._delete(Delete(*prefix_range(prefix)), timeout)

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        check_commit(compares, then, otherwise)
        request = commit_to_message(compares, then, otherwise)
        is_read = all(isinstance(operation, Get) for operation in (*then, *otherwise))
        return outcome_from_message(await self._ask(TXN, request, timeout, repeatable=is_read))

    async def grant(self, ttl: float, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        check_ttl(ttl)

        async def work(trail: Trail) -> int:
            while True:
                # A random number of our own, which nobody else draws: so the request may be repeated.
                lease = (self._chance.uint64() >> 1) or 1
                request = api.LeaseGrantRequest(TTL=ceil(ttl), ID=lease)
                try:
                    await self._caller.ask(LEASE_GRANT, request, trail=trail)
                except Conflict:
                    if not trail.is_doubtful:
                        continue
                return lease

        return await self._within(work, timeout)

    async def keep_alive(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> float:
        request = api.LeaseKeepAliveRequest(ID=as_lease(lease))

        async def work(trail: Trail) -> float:
            answer = await self._caller.ask(LEASE_KEEP_ALIVE, request, trail=trail)
            if answer.TTL <= 0:
                await asyncio.sleep(_GONE_PAUSE_S)
                answer = await self._caller.ask(LEASE_KEEP_ALIVE, request, trail=trail)
            if answer.TTL <= 0:
                raise LeaseLost(f"there is no lease {lease}: it expired, was revoked, or never was")
            return float(answer.TTL)

        return await self._within(work, timeout)

    def keep(
        self,
        lease: int,
        *,
        ttl: float,
        granted_s: float,
        interval: float,
        loop_silence_s_max: float,
        on_change: Callable[[], None],
    ) -> EtcdKeeping:
        as_lease(lease)
        self._life.check_usable()
        kept = KeptLease(
            lease,
            ttl_s=ttl,
            granted_s=granted_s,
            interval_s=interval,
            silence_s_max=loop_silence_s_max,
        )
        return self._heart.keep(kept, on_change)

    async def revoke(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        request = api.LeaseRevokeRequest(ID=as_lease(lease))

        async def work(trail: Trail) -> None:
            try:
                await self._caller.ask(LEASE_REVOKE, request, trail=trail)
            except LeaseLost:
                # It is gone, and an earlier try of this call may be the reason.
                if not trail.is_doubtful:
                    raise

        await self._within(work, timeout)

    async def lease_info(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> LeaseInfo | None:
        request = api.LeaseTimeToLiveRequest(ID=as_lease(lease), keys=True)

        async def work(trail: Trail) -> LeaseInfo | None:
            try:
                answer = await self._caller.ask(LEASE_TIME_TO_LIVE, request, trail=trail)
            except LeaseLost:
                return None
            return lease_info_from_message(answer)

        return await self._within(work, timeout)

    async def compact(self, revision: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        if not as_revision(revision):
            raise BadArgument("compact to revision 0: give one that was")
        request = api.CompactionRequest(revision=revision)

        async def work(trail: Trail) -> None:
            try:
                await self._caller.ask(COMPACT, request, trail=trail)
            except Compacted:
                if not trail.is_doubtful:
                    raise

        await self._within(work, timeout)

    def watch(
        self, prefix: bytes | str, *, start_revision: int = 0, before: bool = False, exact: bool = False
    ) -> EtcdWatch:
        key, range_end = (as_key(prefix), b"") if exact else prefix_range(prefix)
        tape = WatchTape(key, range_end, start_revision=as_revision(start_revision), before=before)
        self._life.check_usable()
        return EtcdWatch(self._watches, tape)

    async def status(self, *, timeout: float | None = STORE_TIMEOUT_S) -> StoreStatus:
        # A read, and not etcd's own status call, which tells how far only one member is.
        answer = await self._ask(RANGE, api.RangeRequest(key=FROM_KEY, keys_only=True), timeout)
        return StoreStatus(engine="etcd", name=self.name, revision=answer.header.revision)

    async def _delete(self, delete: Delete, timeout: float | None) -> int:
        answer = await self._ask(DELETE_RANGE, delete_to_message(delete), timeout, repeatable=False)
        return answer.deleted

    async def _scan(self, what: Get, revision: int, trail: Trail) -> Scan:
        """Read in parts, all at the revision of the first."""
        items: list[KeyValue] = []
        part_count, key, store_revision, count = STORE_SCAN_PART_COUNT, what.key, 0, 0
        while True:
            part = min(part_count, what.limit - len(items)) if what.limit else part_count
            request = get_to_message(
                Get(key, what.range_end, part, what.keys_only), revision or store_revision
            )
            try:
                answer = await self._caller.ask(RANGE, request, trail=trail)
            except LimitExceeded:
                if part_count == STORE_SCAN_PART_COUNT_MIN:
                    raise
                part_count = max(part_count // 8, STORE_SCAN_PART_COUNT_MIN)
                continue
            if not store_revision:
                store_revision, count = answer.header.revision, answer.count
            items += [item_from_message(item) for item in answer.kvs]
            if items and not what.keys_only:
                self._seen(items[-1])
            if not answer.more or (what.limit and len(items) >= what.limit):
                return Scan(revision=store_revision, items=tuple(items), count=count, more=count > len(items))
            key = items[-1].key + b"\0"

    def _ask(
        self,
        call: EtcdCall[RequestT, ResponseT],
        request: RequestT,
        timeout: float | None,
        *,
        repeatable: bool = True,
    ) -> Awaitable[ResponseT]:
        """Make one call, and return its answer."""
        return self._within(
            lambda trail: self._caller.ask(call, request, trail=trail, repeatable=repeatable), timeout
        )

    def _within(self, work: Callable[[Trail], Awaitable[T]], timeout: float | None) -> Awaitable[T]:
        return self._life.within(work, timeout, self._caller.trail())

    def _seen(self, item: KeyValue) -> KeyValue:
        self._caller.lineage.seen(item.mod_revision, item)
        return item

    def _lost(self, lost: HistoryLost) -> None:
        refusal = self._caller.lineage.refusal(f"store {self.name}")
        logger.error(
            "store %s went back in time: %s. Watches read anew, and sessions are lost. %s",
            *(self.name, lost.why, refusal or "Its revisions go on: changes are taken."),
        )
        self._watches.lose_all(lost)
        self._heart.lose_all()

    async def _close(self) -> None:
        try:
            await self._life.left()
        finally:
            try:
                await self._watches.close()
            finally:
                try:
                    await self._heart.close()
                finally:
                    await self._caller.close()
