"""The registry as a program uses it: start, stop and queries; and one run, from a start to the next stop.

Each start makes a new `RegistryRun`, with new machines and sockets, and follows the same peers. Three things
last from one run to the next: the peers; the number of the last list, so that the next run's numbers are
higher under the same id; and the last counts.

What a run must do for the machines. It tells the catalogue every message and every end of a connection, with
the time of `_look_at_clock`, which notices a stop of the process before anything else is believed. It posts
each answer once; a provider that misses one asks again. After each of these, and after a subscription, it
sets its one timer to whatever is due first: a broadcast, an expiry, or the next look at the clock. A tick
lets overdue entries expire, then publishes the lists, to discoveries and to other registries. A new
subscriber gets the last lists at once. What belongs to a connection (strikes, the reader of its lists) ends
with the connection.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self

from hansa.endpoint import Endpoint
from hansa.errors import BadArgument, BadEndpoint, BadFrame, Unavailable, UsageError
from hansa.limits import BROADCAST_INTERVAL_S, HEARTBEAT_TIMEOUT_S, PROVIDER_ENTRIES_MAX, REGISTRIES_MAX
from hansa.presence.provider_info import ProviderInfo, beat_s
from hansa.presence.statements import first_epoch
from hansa.runtime.loops import Home
from hansa.services.registry.announcer import Announcement, Announcer
from hansa.services.registry.catalogue import Catalogue, ProviderAnswer, ProviderMessage
from hansa.transport import Disconnected, Environment, Overflow, Pub, Router, SocketEvent, Sub
from hansa.transport.admission import Strikes
from hansa.wire.listing import REGISTRY_SYNC, SERVICE_LIST, ListReader, RegistrySync
from hansa.wire.registry import (
    AckStatus,
    Heartbeat,
    Register,
    RegisterAck,
    Unregister,
    UpdateWeight,
    decode,
    encode,
)

_SERVICE_LIST_TOPIC: Final = SERVICE_LIST.to_bytes(2, "little")
_REGISTRY_SYNC_TOPIC: Final = REGISTRY_SYNC.to_bytes(2, "little")
# The word under which messages are counted that can be read, but do not belong where they came.
_MISPLACED: Final = "misplaced"
_UINT32_MAX: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryStats:
    """A snapshot. All counts are since the start, except those of what is there now.

    Current values: `direct_count` entries registered here, `synced_count` claims told by peers,
    `providers_count` entries of `services_count` services in the merged list, `tombstones_count`,
    `broadcast_bytes_count` of the last SERVICE_LIST. `left_out_count` entries did not fit into the list when
    they were told. `conceded_count` entries were given up because of a peer's claim. `stale_lists_count`
    lists of peers were old or repeated, `echoed_lists_count` carried our own id. `answers_dropped_count`
    answers found no room or no peer. `unknown_entries_count` requests to remove or reweigh named no entry of
    their sender. `beyond_share_count` of the `refused_count` were refused because their provider has its
    maximum. `behind_count` requests came late, or from a clock that is behind, and changed nothing.
    `bad_frames` counts by reason, and a peer that sends too many is expelled. `ended` counts the connections
    of both sockets by the reason of their end, refused ones included.
    """

    registered_count: int = 0
    unregistered_count: int = 0
    expired_count: int = 0
    duplicates_count: int = 0
    refused_count: int = 0
    beyond_share_count: int = 0
    behind_count: int = 0
    heartbeats_count: int = 0
    unknown_heartbeats_count: int = 0
    unknown_entries_count: int = 0
    weight_updates_count: int = 0
    conceded_count: int = 0
    left_out_count: int = 0
    broadcasts_count: int = 0
    broadcast_bytes_count: int = 0
    lists_count: int = 0
    stale_lists_count: int = 0
    echoed_lists_count: int = 0
    registries_evicted_count: int = 0
    tombstones_evicted_count: int = 0
    answers_dropped_count: int = 0
    expelled_count: int = 0
    bad_frames: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    direct_count: int = 0
    synced_count: int = 0
    services_count: int = 0
    providers_count: int = 0
    tombstones_count: int = 0


class Registry:
    """Keeps the entries of providers and tells them to discoveries and to the other registries.

    Providers register at `router`, discoveries and other registries listen at `pub`; `peers` are the PUB
    endpoints of the others. Use it as `async with`, or `start` and `stop` it, again and again: each start
    begins empty, under a new random id unless one is given. Leaving the block frees the ports. One provider
    has at most `provider_entries_max` entries, and more are refused, so that no single one can fill the list.

    An entry that is silent for `heartbeat_timeout` is removed. Providers are told so, and beat at a third of
    it or every 5 s, whichever is sooner; `heartbeat_interval` says when other beats are expected.
    """

    def __init__(
        self,
        pub: str,
        router: str,
        *,
        peers: Sequence[str] = (),
        registry_id: int | None = None,
        heartbeat_interval: float | None = None,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT_S,
        broadcast_interval: float = BROADCAST_INTERVAL_S,
        provider_entries_max: int = PROVIDER_ENTRIES_MAX,
        environment: Environment | None = None,
        name: str = "registry",
    ) -> None:
        """Raises `BadEndpoint`, `BadArgument`."""
        if registry_id is not None and not 0 <= registry_id <= _UINT32_MAX:
            raise BadArgument(f"registry id {registry_id} is not in 0..{_UINT32_MAX}")
        if heartbeat_interval is None:
            heartbeat_interval = beat_s(heartbeat_timeout)
        if not (heartbeat_interval > 0 and broadcast_interval > 0):
            raise BadArgument(
                f"{name}: intervals of heartbeats and broadcasts are longer than no time at all"
            )
        if not heartbeat_timeout > heartbeat_interval:  # In this form NaN is refused too.
            raise BadArgument(
                f"{name}: a heartbeat timeout of {heartbeat_timeout} s is not longer than the interval of "
                f"{heartbeat_interval} s, so every provider would expire"
            )
        if provider_entries_max < 1:
            raise BadArgument(f"{name}: provider_entries_max is {provider_entries_max}; 1 is the least")
        self.name = name
        self._given_pub = Endpoint.parse(pub)
        self._given_router = Endpoint.parse(router)
        self._given_id = registry_id
        self._registry_id = registry_id or 0
        self._heartbeat_interval_s = heartbeat_interval
        self._heartbeat_timeout_s = heartbeat_timeout
        self._broadcast_interval_s = broadcast_interval
        self._provider_entries_max = provider_entries_max
        self._environment = environment or Environment()
        self._peers: dict[Endpoint, None] = {}
        self._run: RegistryRun | None = None
        self._home: Home | None = None
        self._last_list_seq = 0
        self._last_stats = RegistryStats()
        # One start or stop at a time: half of one and half of the other would leave a socket behind.
        self._turn = asyncio.Lock()
        for peer in peers:
            self.add_peer(peer)

    # -- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def close(self) -> None:
        """The same as `stop`, by the name that every component has."""
        await self.stop()

    async def start(self) -> None:
        """Bind both endpoints and follow the peers. If cancelled or failed, it leaves nothing behind.

        Raises `UsageError` when it is running, `AddressInUse`, `BadEndpoint`.
        """
        async with self._turn:
            if self._run is not None:
                raise UsageError(f"{self.name} is running already, at {self.router}")
            registry_id = self._environment.chance.uint32() if self._given_id is None else self._given_id
            run = self._new_run(registry_id)
            await run.open(self._given_pub, self._given_router, list(self._peers))
            self._registry_id = registry_id
            self._home = Home(self.name, "make one here, or use hansa.sync.Registry for all threads")
            self._run = run

    async def stop(self) -> None:
        """End everything and free the ports; does nothing when it does not run. Cancelling hurries it."""
        self._check_home()
        async with self._turn:
            run, self._run = self._run, None
            if run is not None:
                self._last_list_seq = run.announcer.list_seq
                self._last_stats = run.stats()
                try:
                    await run.close()
                finally:
                    self._last_stats = run.stats()

    def add_peer(self, pub_endpoint: str) -> None:
        """Follow another registry of the cluster, at once or from the next start on. Raises `BadEndpoint`."""
        peer = Endpoint.parse(pub_endpoint)
        if not peer.is_dialable:
            raise BadEndpoint(f"{peer} cannot be dialled: give the host and port of the other registry's PUB")
        if peer in self._peers:
            return
        if len(self._peers) >= REGISTRIES_MAX:
            raise BadArgument(f"{self.name} follows {REGISTRIES_MAX} registries, which is the most")
        self._check_home()
        if self._run is not None:
            self._run.follow(peer)
        self._peers[peer] = None

    # -- what there is

    @property
    def is_running(self) -> bool:
        return self._run is not None

    @property
    def registry_id(self) -> int:
        """The id of the current or last run; before the first, the given one or 0."""
        return self._registry_id

    @property
    def pub(self) -> Endpoint:
        """Where lists are published: with its real port while it runs, else as it was given."""
        return self._given_pub if self._run is None else self._run.pub_bound

    @property
    def router(self) -> Endpoint:
        """Where providers register: with its real port while it runs, else as it was given."""
        return self._given_router if self._run is None else self._run.router_bound

    @property
    def services(self) -> dict[str, tuple[ProviderInfo, ...]]:
        """The merged list, as discoveries are told it; empty when it does not run."""
        self._check_home()
        return {} if self._run is None else self._run.catalogue.services()

    @property
    def peers_heard(self) -> tuple[int, ...]:
        """The ids of the other registries whose entries are in the list."""
        return () if self._run is None else self._run.catalogue.synced.heard

    @property
    def stats(self) -> RegistryStats:
        """The counts of the current or last run."""
        return self._last_stats if self._run is None else self._run.stats()

    def _check_home(self) -> None:
        if self._run is not None and self._home is not None:
            self._home.check()

    def _new_run(self, registry_id: int) -> RegistryRun:
        catalogue = Catalogue(
            registry_id,
            heartbeat_interval_s=self._heartbeat_interval_s,
            heartbeat_timeout_s=self._heartbeat_timeout_s,
            broadcast_interval_s=self._broadcast_interval_s,
            provider_entries_max=self._provider_entries_max,
        )
        announcer = Announcer(
            catalogue,
            interval_s=self._broadcast_interval_s,
            # A living provider has reported by then, or it would have expired in the run before.
            settling_s=self._heartbeat_timeout_s,
            # Above the numbers of an earlier run under this id, even within its millisecond or if the clock
            # went back.
            list_seq=max(first_epoch(int(self._environment.clock.wall() * 1000)), self._last_list_seq),
            now=asyncio.get_running_loop().time(),
        )
        return RegistryRun(
            catalogue,
            announcer,
            name=self.name,
            # A provider that was heard within a beat before such a stop would be overdue after it.
            stopped_s=max(
                self._heartbeat_timeout_s - self._heartbeat_interval_s, self._heartbeat_timeout_s / 2
            ),
            environment=self._environment,
        )


class RegistryRun:
    """Moves messages between the sockets and the machines. It is opened once and closed once."""

    def __init__(
        self,
        catalogue: Catalogue,
        announcer: Announcer,
        *,
        name: str,
        stopped_s: float,
        environment: Environment,
    ) -> None:
        """`stopped_s` without a turn of the loop mean that the process was stopped."""
        self.catalogue = catalogue
        self.announcer = announcer
        self._clock = environment.clock
        self._loop = asyncio.get_running_loop()
        self._stopped_s = stopped_s
        self._awake_at = self._loop.time()
        self._strikes = Strikes()
        self._readers: dict[bytes, ListReader] = {}
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._is_ending = False
        self._answers_dropped_count = 0
        self._broadcast_bytes_count = 0
        self.pub_bound: Endpoint
        self.router_bound: Endpoint
        self._pub = Pub(
            on_subscription=self._on_subscription,
            environment=environment,
            name=f"{name} pub",
        )
        self._sub = Sub(
            on_messages=self._on_lists,
            on_event=self._on_registry_event,
            environment=environment,
            name=f"{name} sub",
        )
        self._router = Router(
            on_messages=self._on_requests,
            on_event=self._on_provider_event,
            # A provider that comes back after a half-open cut has the id it had, and must get in. Answers
            # that find no room are dropped: nobody waits for a peer that asks without reading.
            environment=environment.but(
                options=replace(environment.options, takeover=True, overflow=Overflow.DROP)
            ),
            name=f"{name} router",
        )

    async def open(self, pub: Endpoint, router: Endpoint, peers: Sequence[Endpoint]) -> None:
        """Bind both sockets and follow the peers; if one cannot be bound, the other is closed again."""
        try:
            self.pub_bound = await self._pub.bind(pub)
            self.router_bound = await self._router.bind(router)
            self._sub.subscribe(_REGISTRY_SYNC_TOPIC)
            for peer in peers:
                self.follow(peer)
        except BaseException:
            await self.close()
            raise
        self._arm(self._loop.time())

    async def close(self) -> None:
        """End everything. Cancelling it only shortens how long it waits for peers to read."""
        self._is_ending = True
        if self._timer is not None:
            self._timer.cancel()
        async with asyncio.TaskGroup() as group:
            for socket in (self._pub, self._router, self._sub):
                group.create_task(socket.close(), name=f"closing {socket.name}")

    def follow(self, peer: Endpoint) -> None:
        """Listen to another registry from now on."""
        self._sub.connect(peer)

    # -- what arrives

    def _on_requests(self, peer: bytes, messages: list[list[bytes]]) -> None:
        if self._is_ending:
            return
        now, wall_ms = self._look_at_clock(), int(self._clock.wall() * 1000)
        for frames in messages:
            try:
                message = _read_request(frames)
            except BadFrame as error:
                if self._strike(peer, error):
                    break
                continue
            self._answer(self.catalogue.hear(peer, message, now=now, wall_ms=wall_ms))
        self._arm(now)

    def _on_provider_event(self, event: SocketEvent) -> None:
        if isinstance(event, Disconnected) and not self._is_ending:
            now = self._look_at_clock()
            self._strikes.forget(event.peer)
            self._answer(self.catalogue.provider_gone(event.peer, now=now))
            self._arm(now)

    def _on_lists(self, connection: bytes, messages: list[list[bytes]]) -> None:
        if self._is_ending:
            return
        now = self._look_at_clock()
        reader = self._readers.setdefault(connection, ListReader())
        for frames in messages:
            try:
                message = reader.read(frames)
            except BadFrame as error:
                self._strikes.note(error.reason)
                continue
            if isinstance(message, RegistrySync):
                self._answer(self.catalogue.sync(message, connection, now=now))
            else:
                self._strikes.note(_MISPLACED)
        self._arm(now)

    def _on_registry_event(self, event: SocketEvent) -> None:
        if isinstance(event, Disconnected) and not self._is_ending:
            now = self._look_at_clock()
            self._readers.pop(event.peer, None)
            self._answer(self.catalogue.registry_gone(event.peer, now=now))
            self._arm(now)

    def _on_subscription(self, peer: bytes, prefix: bytes, wanted: bool) -> None:
        """A new subscriber gets the list that the others have; later changes are told to all in time."""
        if self._is_ending or not wanted:
            return
        now = self._look_at_clock()
        # After a stop of the process the last list may name entries that have expired since.
        self._answer(self.catalogue.expire(now=now))
        latest = self.announcer.latest
        if self.announcer.is_held and self.announcer.deadline() > now:
            pass  # It is told with the others, when there is something to tell again.
        elif latest is None or self.announcer.deadline() <= now:
            self._broadcast(self.announcer.announce(now=now))
        else:
            if _SERVICE_LIST_TOPIC.startswith(prefix):
                self._pub.post_wire_to(peer, latest.service_list)
            if _REGISTRY_SYNC_TOPIC.startswith(prefix):
                self._pub.post_wire_to(peer, latest.registry_sync)
        self._arm(now)

    # -- what leaves

    def _strike(self, peer: bytes, error: BadFrame) -> bool:
        """Tell a peer that its message is bad; returns whether it was expelled for it."""
        self._answer(
            [ProviderAnswer(peer, RegisterAck(status=AckStatus.OTHER, error=f"not understood: {error}"))]
        )
        if not self._strikes.strike(peer, error):
            return False
        self._router.expel(peer, f"too many messages that make no sense, the last: {error}")
        return True

    def _answer(self, answers: list[ProviderAnswer]) -> None:
        for peer, ack in answers:
            try:
                if not self._router.post(peer, encode(ack)):
                    self._answers_dropped_count += 1
            except Unavailable:
                # It left before the answer; it will ask again wherever it registers next.
                self._answers_dropped_count += 1

    def _broadcast(self, announcement: Announcement) -> None:
        self._broadcast_bytes_count = sum(map(len, announcement.service_list))
        self._pub.post_wire(_SERVICE_LIST_TOPIC, announcement.service_list)
        self._pub.post_wire(_REGISTRY_SYNC_TOPIC, announcement.registry_sync)

    # -- time

    def _look_at_clock(self) -> float:
        """The time. If the process was stopped, delay the next list for providers that are still there."""
        now = self._loop.time()
        if now - self._awake_at > self._stopped_s:
            self.announcer.wake(now=now)
            self._answer(self.catalogue.overslept(now=now))
        self._awake_at = now
        return now

    def _arm(self, now: float) -> None:
        """Set the timer for the next thing that is due; too early does no harm.

        It also rings often enough to notice that the process was stopped.
        """
        due_at = min(self.announcer.deadline(), now + self._stopped_s / 2)
        if (expiry_at := self.catalogue.deadline()) is not None and expiry_at < due_at:
            due_at = expiry_at
        if self._timer is not None:
            if self._timer_at <= due_at:
                return
            self._timer.cancel()
        self._timer_at = due_at
        # Not at once: other messages of this turn of the loop go into the same list.
        self._timer = (
            self._loop.call_soon(self._tick) if due_at <= now else self._loop.call_at(due_at, self._tick)
        )

    def _tick(self) -> None:
        self._timer = None
        now = self._look_at_clock()
        self._answer(self.catalogue.expire(now=now))
        if self.announcer.deadline() <= now:
            self._broadcast(self.announcer.announce(now=now))
        self._arm(now)

    def stats(self) -> RegistryStats:
        catalogue, tally = self.catalogue, self.catalogue.tally
        return RegistryStats(
            registered_count=tally.registered_count,
            unregistered_count=tally.unregistered_count,
            expired_count=tally.expired_count,
            duplicates_count=tally.duplicates_count,
            refused_count=tally.refused_count,
            beyond_share_count=tally.beyond_share_count,
            behind_count=tally.behind_count,
            heartbeats_count=tally.heartbeats_count,
            unknown_heartbeats_count=tally.unknown_heartbeats_count,
            unknown_entries_count=tally.unknown_entries_count,
            weight_updates_count=tally.weight_updates_count,
            conceded_count=tally.conceded_count,
            left_out_count=tally.left_out_count,
            broadcasts_count=self.announcer.announced_count,
            broadcast_bytes_count=self._broadcast_bytes_count,
            lists_count=catalogue.synced.lists_count,
            stale_lists_count=catalogue.synced.stale_count,
            echoed_lists_count=tally.echoed_lists_count,
            registries_evicted_count=catalogue.synced.evicted_count,
            tombstones_evicted_count=catalogue.tombstones.evicted_count,
            answers_dropped_count=self._answers_dropped_count,
            expelled_count=self._strikes.expelled_count,
            bad_frames=dict(self._strikes.by_reason),
            ended=dict(Counter(self._pub.ended) + Counter(self._router.ended)),
            direct_count=catalogue.direct_count,
            synced_count=catalogue.synced.count,
            services_count=catalogue.merged.services_count,
            providers_count=catalogue.merged.providers_count,
            tombstones_count=len(catalogue.tombstones),
        )


def _read_request(frames: list[bytes]) -> ProviderMessage:
    """A provider's message. Raises `BadFrame`, also for a list, without parsing it: it may be long."""
    if frames[0] in (_SERVICE_LIST_TOPIC, _REGISTRY_SYNC_TOPIC):
        raise BadFrame("a list is told at a PUB, not to a registry's ROUTER", _MISPLACED)
    message = decode(frames)
    if not isinstance(message, Register | Unregister | Heartbeat | UpdateWeight):
        raise BadFrame("a registry gives answers and takes none", _MISPLACED)
    return message
