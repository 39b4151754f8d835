"""One run of a registry: its sockets and its timer, from a start to a stop.

What the driver owes the machines. It tells the catalogue every message and every end of a connection, with
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
from dataclasses import replace
from typing import Final

from hansa.endpoint import Endpoint
from hansa.errors import BadFrame, Unavailable
from hansa.services.registry.announcer import Announcement, Announcer
from hansa.services.registry.catalogue import Catalogue, ProviderAnswer, ProviderMessage
from hansa.services.registry.stats import RegistryStats
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
# Counted under this word: it can be read, and has no business where it came.
_MISPLACED: Final = "misplaced"


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
            # that find no room are dropped: nobody waits for one who asks without reading.
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
                self._strikes.by_reason[error.reason] += 1
                continue
            if isinstance(message, RegistrySync):
                self._answer(self.catalogue.sync(message, connection, now=now))
            else:
                self._strikes.by_reason[_MISPLACED] += 1
        self._arm(now)

    def _on_registry_event(self, event: SocketEvent) -> None:
        if isinstance(event, Disconnected) and not self._is_ending:
            now = self._look_at_clock()
            self._readers.pop(event.peer, None)
            self._answer(self.catalogue.registry_gone(event.peer, now=now))
            self._arm(now)

    def _on_subscription(self, peer: bytes, prefix: bytes, wanted: bool) -> None:
        """Who is new gets the list that the others have; what changed since is told to all, in its time."""
        if self._is_ending or not wanted:
            return
        now = self._look_at_clock()
        # After a stop of the process the last list may name what has expired since.
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
        """Tell a peer that it makes no sense; whether it has been sent away for it."""
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
        """What time it is; if the process was stopped, the next list waits for those who are still there."""
        now = self._loop.time()
        if now - self._awake_at > self._stopped_s:
            self.announcer.wake(now=now)
            self._answer(self.catalogue.overslept(now=now))
        self._awake_at = now
        return now

    def _arm(self, now: float) -> None:
        """See to it that the timer rings when something is due; too early does no harm.

        And often enough to notice that the process was stopped.
        """
        due_at = min(self.announcer.deadline(), now + self._stopped_s / 2)
        if (expiry_at := self.catalogue.deadline()) is not None and expiry_at < due_at:
            due_at = expiry_at
        if self._timer is not None:
            if self._timer_at <= due_at:
                return
            self._timer.cancel()
        self._timer_at = due_at
        # Not at once: what else arrived in this turn of the loop goes into the same list.
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
    """What a provider says. Raises `BadFrame`; a list is not even looked into, it may be long."""
    if frames[0] in (_SERVICE_LIST_TOPIC, _REGISTRY_SYNC_TOPIC):
        raise BadFrame("a list is told at a PUB, not to a registry's ROUTER", _MISPLACED)
    message = decode(frames)
    if not isinstance(message, Register | Unregister | Heartbeat | UpdateWeight):
        raise BadFrame("a registry gives answers and takes none", _MISPLACED)
    return message
