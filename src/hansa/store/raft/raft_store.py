"""The store that a raft group keeps, through the members that it has at the moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from hansa.clock import Clock
from hansa.errors import AlreadyClosed, HansaError, StoreUnavailable
from hansa.limits import (
    FOLLOW_RETRY_S_MAX,
    FOLLOW_RETRY_S_MIN,
    RAFT_SEEK_S_MAX,
    RAFT_SEEK_S_MIN,
    RECONNECT_JITTER,
    STORE_TIMEOUT_S,
)
from hansa.runtime.backoff import Backoff
from hansa.runtime.tasks import Closing, TaskScope
from hansa.store.etcd.client import EtcdStore
from hansa.store.raft.group_record import GroupRecord, RaftKeys, decode
from hansa.store.raft.join_client import JoinClient, read_group_address
from hansa.store.store import Store
from hansa.store.values import EventKind
from hansa.transport.environment import Environment

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAddresses:
    """Where a group's members are, and the keys of its record. `own`: the address to begin with, if any."""

    keys: RaftKeys
    addresses: tuple[str, ...]
    own: str = ""


def _forwarded(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[RaftStore, P], T]:
    """The same method of the store underneath, with the signature and promise of `Store`."""
    name = method.__name__

    @wraps(method)
    def call(self: RaftStore, /, *arguments: P.args, **named: P.kwargs) -> T:
        found: T = getattr(self._store, name)(*arguments, **named)
        return found

    return call


class RaftStore(Store):
    """A `Store` in a raft group; see there. It uses the members that the group's record names.

    When they change, watches go on at the new ones without a gap, and kept leases are renewed there. When
    none of them answers for a while, the group's peers are asked again: all may have been replaced meanwhile.
    `changes_count` counts how often the members changed.
    """

    def __init__(
        self,
        find: Callable[[], Awaitable[MemberAddresses]],
        *,
        name: str,
        environment: Environment | None = None,
    ) -> None:
        self.name = name
        self.changes_count = 0
        self._find = find
        environment = environment or Environment()
        # Without its credentials: the members' ports use no TLS.
        self._environment = Environment(clock=environment.clock, chance=environment.chance)
        self._entered_count = 0
        self._opening = asyncio.Lock()
        self._closing = Closing()
        self._changing = asyncio.Lock()
        self._stack: AsyncExitStack | None = None
        self._etcd: EtcdStore | None = None
        self._addresses: tuple[str, ...] = ()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<RaftStore {self.name!r}>"

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def clock(self) -> Clock:
        return self._environment.clock

    @property
    def addresses(self) -> tuple[str, ...]:
        """The client addresses that calls go to."""
        return self._addresses

    async def __aenter__(self) -> Self:
        """Raises `StoreUnavailable` or `TimedOut` when no peer of the group answers."""
        async with self._opening:
            if self._is_closed:
                raise AlreadyClosed(f"{self.name} is closed")
            if self._stack is None:
                members = await self._find()
                key = members.keys.group
                self._addresses = tuple(sorted(members.addresses))
                async with AsyncExitStack() as stack:
                    etcd = EtcdStore(
                        sorted(self._addresses, key=lambda address: address != members.own),
                        begins_first=members.own in self._addresses,
                        environment=self._environment,
                        name=self.name,
                    )
                    self._etcd = await stack.enter_async_context(etcd)
                    scope = TaskScope(self.name, self._failed)
                    stack.push_async_callback(scope.close)
                    scope.spawn(self._follow(key), "members")
                    scope.spawn(self._seek(key), "seeking")
                    self._stack = stack.pop_all()
            self._entered_count += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._entered_count -= 1
        if self._entered_count <= 0:
            await self.close()

    async def close(self) -> None:
        async with self._opening:
            self._is_closed = True
        if self._stack is not None:
            await self._closing.once(self._stack.aclose)

    get = _forwarded(Store.get)
    scan = _forwarded(Store.scan)
    put = _forwarded(Store.put)
    delete = _forwarded(Store.delete)
    delete_prefix = _forwarded(Store.delete_prefix)
    commit = _forwarded(Store.commit)
    grant = _forwarded(Store.grant)
    keep_alive = _forwarded(Store.keep_alive)
    keep = _forwarded(Store.keep)
    revoke = _forwarded(Store.revoke)
    lease_info = _forwarded(Store.lease_info)
    compact = _forwarded(Store.compact)
    watch = _forwarded(Store.watch)
    status = _forwarded(Store.status)

    @property
    def _store(self) -> EtcdStore:
        if self._etcd is None or self._is_closed:
            raise AlreadyClosed(f"{self.name} is not open")
        return self._etcd

    async def _use(self, addresses: Sequence[str]) -> None:
        """Continue with these members; if a record names none, the known members stay in use."""
        found = tuple(sorted(addresses))
        # Two tasks may have found other members at once: what is noted must be what is used.
        async with self._changing:
            if found and found != self._addresses:
                await self._store.set_endpoints(found)
                self._addresses = found
                self.changes_count += 1

    async def _seek(self, key: bytes) -> None:
        """While none of the known members answers, ask again and again where the members are."""
        backoff = Backoff(
            s_min=RAFT_SEEK_S_MIN,
            s_max=RAFT_SEEK_S_MAX,
            jitter=RECONNECT_JITTER,
            chance=self._environment.chance.fork("seek"),
        )
        pause_s = RAFT_SEEK_S_MAX
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._store.get(key, timeout=STORE_TIMEOUT_S)
                backoff.reset()
                pause_s = RAFT_SEEK_S_MAX
            except AlreadyClosed:
                return
            except HansaError as silence:
                pause_s = backoff.next_s()
                await self._find_others(silence)

    async def _find_others(self, silence: HansaError) -> None:
        try:
            await self._use((await self._find()).addresses)
        except HansaError as error:
            _log.info("%s is cut off (%s), and finds no other members: %s", self.name, silence, error)

    async def _follow(self, key: bytes) -> None:
        """Follow the members in the group's record, for as long as the store is open."""
        backoff = Backoff(
            s_min=FOLLOW_RETRY_S_MIN,
            s_max=FOLLOW_RETRY_S_MAX,
            jitter=RECONNECT_JITTER,
            chance=self._environment.chance.fork("follow"),
        )
        while True:
            try:
                found = await self._store.get(key)
                if found is not None:
                    await self._read(found.value)
                start = found.mod_revision + 1 if found is not None else 0
                async for batch in self._store.watch(key, start_revision=start, exact=True):
                    backoff.reset()
                    for event in batch.events:
                        if event.kind is EventKind.PUT:
                            await self._read(event.item.value)
            except AlreadyClosed:
                return
            except HansaError:
                # A group without a leader, or a record that cannot be read: the known members stay in use.
                await asyncio.sleep(backoff.next_s())

    async def _read(self, value: bytes) -> None:
        record = decode(GroupRecord, value)
        await self._use([peer.client_address for peer in record.peers])

    def _failed(self, error: BaseException) -> None:
        """Following ended by a fault of ours: the store continues with the members it knows."""
        _log.error("%s does not follow its members any more: %s", self.name, error, exc_info=error)


def open_raft_store(rest: str, environment: Environment | None = None) -> RaftStore:
    """The store of `host:port,host:port/app`, the join addresses of some peers. Raises `BadEndpoint`."""
    addresses, app = read_group_address(rest)

    async def find() -> MemberAddresses:
        async with JoinClient(app, addresses, environment=environment) as client:
            group = await client.describe(timeout=STORE_TIMEOUT_S)
        # A founder that has never started has no address yet.
        voters = [one.peer.client_address for one in group.peers if one.is_voter and one.peer.client_address]
        if not voters:
            raise StoreUnavailable(f"no peer of {app} says where its store is")
        return MemberAddresses(keys=RaftKeys(group.cluster, app), addresses=tuple(voters))

    return RaftStore(find, name=f"raft://{','.join(addresses)}/{app}", environment=environment)
