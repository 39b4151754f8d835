"""A thread that keeps the leases of one store alive, whatever its event loop is doing.

`LeaseBook` decides when a lease is renewed, and watches the event loop by its `Pulse`. Two threads look at
these objects: the renewing thread makes all changes, except `Pulse.answered`, which the event loop calls.
Each number has one writer, so nothing is locked. What the driver, `EtcdHeart`, must do for the book:

    the thread  looks when the book says so, and whenever it gets news
                asks the loop for a sign of life when the book wants one
                notes when a renewal is sent, before it is sent, and that it is under way
                gives each renewal a deadline, and turns to the next member when one fails
                reports each answer and each failure, and forgets leases that are lost or dropped
    the loop    wakes the thread when it was late itself, for what was held back, and tells all keepers

Code that holds the interpreter stops both threads. Nothing can be renewed then: a lease survives only if that
is over before the lease's time is. The renewing thread notices afterwards that it was late itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from hansa.chance import Chance
from hansa.clock import Clock
from hansa.control.client import channel_credentials, open_blocking_channel
from hansa.errors import LeaseLost
from hansa.limits import STORE_PULSE_S_MAX, STORE_PULSE_S_MIN
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd.caller import CHANNEL_OPTIONS, NOT_ENABLED, metadata_of
from hansa.store.etcd.lineage import Lineage
from hansa.store.etcd.members import Doubt, EtcdAccess, Rotation, judge
from hansa.store.etcd.messages import AUTHENTICATE, LEASE_KEEP_ALIVE, EtcdCall

logger = logging.getLogger(__name__)

# When an answer says that a lease is gone, ask once more: a member that lags may not know it yet.
_GONE_ANSWERS_MAX = 2
_ASK_AGAIN_S = 0.1
# After a failed renewal the next one comes this much sooner, so that a lost answer costs little of the lease.
_HASTE = 4
# How many pulses there are in the shortest interval between two renewals.
_PULSES = 4


class Pulse:
    """Asks the event loop for a sign of life, again and again, and measures how long it takes."""

    def __init__(self) -> None:
        self._sent_count = 0
        self._sent_s = 0.0
        self._answered_count = 0
        self._lag_s = 0.0

    @property
    def is_awaited(self) -> bool:
        return self._answered_count < self._sent_count

    def sent(self, *, now: float) -> None:
        self._sent_s = now
        self._sent_count += 1

    def answered(self, *, now: float) -> float:
        """The loop has answered; returns how late it was."""
        self._lag_s = now - self._sent_s
        self._answered_count = self._sent_count
        return self._lag_s

    def silence_s(self, *, now: float) -> float:
        """How long the loop has not answered; 0 when it was not asked."""
        return now - self._sent_s if self.is_awaited else 0.0

    def lag_s(self, *, now: float) -> float:
        """How late the loop was, or is."""
        return max(self.silence_s(now=now), self._lag_s) if self.is_awaited else self._lag_s

    def due_s(self, interval_s: float) -> float:
        """When to ask next."""
        return self._sent_s + interval_s


class KeptLease:
    """One lease: until when it is surely kept, and when to renew it next."""

    def __init__(
        self, lease: int, *, ttl_s: float, granted_s: float, interval_s: float, silence_s_max: float
    ) -> None:
        self.lease = lease
        self.interval_s = interval_s
        self.silence_s_max = silence_s_max
        self.kept_until_s = granted_s + ttl_s
        self.is_lost = False
        self.failures_count = 0
        self.due_s = granted_s + interval_s
        self.is_asked = False
        self._ttl_s = ttl_s
        self._gone_count = 0

    def is_due(self, *, now: float, silence_s: float) -> bool:
        """Whether to renew now. Not while the loop is silent: a stuck program must not look alive."""
        waiting = not self.is_lost and not self.is_asked
        return waiting and self.due_s <= now and silence_s <= self.silence_s_max

    def asked(self) -> None:
        self.is_asked = True

    def answered(self, ttl_s: float, *, sent_s: float) -> None:
        """The store renewed the lease for `ttl_s` seconds; 0 when it says that the lease is gone."""
        self.is_asked = False
        if ttl_s <= 0.0:
            self._gone_count += 1
            self.due_s = sent_s + min(self.interval_s / _HASTE, _ASK_AGAIN_S)
            self.is_lost = self.is_lost or self._gone_count >= _GONE_ANSWERS_MAX
            return
        self._gone_count = 0
        self.failures_count = 0
        # Counted from when the request was sent: the store began to count after that.
        self.kept_until_s = sent_s + min(ttl_s, self._ttl_s)
        self.due_s = sent_s + self.interval_s

    def lose(self) -> None:
        """The store is not the one that granted the lease: whatever it answers now, the lease is gone."""
        self.is_lost = True

    def failed(self, *, now: float, members_count: int) -> None:
        """No member answered. Each member is asked once without a pause."""
        self.is_asked = False
        self.failures_count += 1
        pause_s = 0.0 if self.failures_count % members_count else self.interval_s / _HASTE
        self.due_s = now + pause_s


class LeaseBook:
    """All leases that are kept, and the pulse."""

    def __init__(self) -> None:
        self.pulse = Pulse()
        # How often the loop is asked for a sign of life, in seconds.
        self.pulse_s = STORE_PULSE_S_MAX
        # When the keeper meant to look again; inf while there is nothing to look at.
        self._look_s = inf
        self._leases: dict[KeptLease, None] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: KeptLease) -> None:
        self._leases[lease] = None
        self._set_pulse()

    def remove(self, lease: KeptLease) -> None:
        """Forget a lease. Removing twice is once."""
        self._leases.pop(lease, None)
        self._set_pulse()

    def due(self, *, now: float) -> list[KeptLease]:
        """The leases to renew now."""
        silence_s = self.pulse.silence_s(now=now)
        return [lease for lease in self._leases if lease.is_due(now=now, silence_s=silence_s)]

    def wants_pulse(self, *, now: float) -> bool:
        """Whether to ask the loop for a sign of life; never while an answer is outstanding."""
        return bool(self._leases) and not self.pulse.is_awaited and self.pulse.due_s(self.pulse_s) <= now

    def send_pulse(self, *, now: float) -> None:
        """The loop is asked. A delay of the keeper delayed the loop as well: both were due before now."""
        self.pulse.sent(now=min(now, self._look_s))

    def deadline(self, *, now: float) -> float | None:
        """When to look again; None when there is nothing to look at."""
        if not self._leases:
            self._look_s = inf
            return None
        silence_s = self.pulse.silence_s(now=now)
        # A renewal that was held back because the loop is silent is checked again with the next pulse.
        times = [
            lease.due_s
            for lease in self._leases
            if not lease.is_asked and not lease.is_lost and silence_s <= lease.silence_s_max
        ]
        self._look_s = min([now + self.pulse_s, *times])
        return self._look_s

    def _set_pulse(self) -> None:
        # Stored, and not computed when asked: the loop asks too, while leases come and go here.
        shortest_s = min((lease.interval_s for lease in self._leases), default=STORE_PULSE_S_MAX)
        self.pulse_s = min(max(shortest_s / _PULSES, STORE_PULSE_S_MIN), STORE_PULSE_S_MAX)


class EtcdHeart:
    """All kept leases of a store. Its thread starts with the first lease, and ends with `close`.

    The thread owns the book; the event loop speaks to it through a queue, and it to the loop with
    `call_soon_threadsafe`. `on_doubt` is called there when an answer is strange to the lineage.
    """

    def __init__(
        self,
        access: EtcdAccess,
        lineage: Lineage,
        on_doubt: Callable[[], None],
        *,
        clock: Clock,
        chance: Chance,
        try_timeout_s: float,
        name: str,
    ) -> None:
        self._access = access
        self._lineage = lineage
        self._on_doubt = on_doubt
        self._clock = clock
        self._try_timeout_s = try_timeout_s
        self._name = name
        self._rotation = Rotation(len(access.endpoints), chance, begins_first=access.begins_first)
        self._book = LeaseBook()
        self._by_lease: dict[KeptLease, EtcdKeeping] = {}
        # What the thread shall do. An item also wakes it, to check again the renewals that were held back.
        self._news: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._is_running = True
        self._credentials: grpc.ChannelCredentials | None = None
        self._channels: dict[int, grpc.Channel] = {}
        # Renewals that are under way, by member.
        self._asked_count: Counter[int] = Counter()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None
        # Used on the event loop only: the keepings that are told when the loop was late.
        self._keepings: dict[EtcdKeeping, None] = {}

    @property
    def loop_lag_s(self) -> float:
        return self._book.pulse.lag_s(now=self._clock.monotonic())

    def keep(self, kept: KeptLease, on_change: Callable[[], None]) -> EtcdKeeping:
        """Renew this lease from now on. Raises `BadArgument` for credentials that cannot be used."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._ended = self._loop.create_future()
            self._credentials = channel_credentials(self._access.tls)
            # A daemon thread: a program that ends without closing its store is not held up by it.
            self._thread = threading.Thread(target=self._run, name=f"{self._name} heart", daemon=True)
            self._thread.start()
        keeping = EtcdKeeping(self, kept, on_change)
        self._keepings[keeping] = None
        self._news.put(lambda: self._begin(keeping))
        return keeping

    def drop(self, keeping: EtcdKeeping) -> None:
        self._keepings.pop(keeping, None)
        self._news.put(lambda: self._forget(keeping))

    def use(self) -> None:
        """The access names other members now: later requests go to them."""
        self._news.put(self._move)

    def lose_all(self) -> None:
        """The store went back in time: all kept leases are lost, also those that the store still has."""
        self._news.put(self._lose_kept)

    async def close(self) -> None:
        """End the thread and wait for it."""
        self._keepings.clear()
        if self._thread is None or self._ended is None:
            return
        self._news.put(self._stop)
        try:
            # It ends soon: whatever it waits for has a deadline. A cancelled close has ended it, too.
            await asyncio.shield(self._ended)
        finally:
            if self._ended.done():
                self._thread.join()

    # ---- on the event loop ----

    def _answer_pulse(self) -> None:
        lag_s = self._book.pulse.answered(now=self._clock.monotonic())
        if lag_s > self._book.pulse_s:
            self._news.put(lambda: None)
            for keeping in tuple(self._keepings):
                keeping.changed()

    # ---- in the thread ----

    def _run(self) -> None:
        try:
            while self._is_running:
                self._step()
        except Exception as error:
            logger.exception("%s: leases are no longer renewed: %s", self._name, error)
        finally:
            for channel in self._channels.values():
                channel.close()
            if self._ended is not None:
                self._tell(self._ended.set_result, None)

    def _step(self) -> None:
        now = self._clock.monotonic()
        if self._book.wants_pulse(now=now):
            self._book.send_pulse(now=now)
            self._tell(self._answer_pulse)
        for kept in self._book.due(now=now):
            self._renew(self._by_lease[kept])
        deadline_s = self._book.deadline(now=now)
        with suppress(Empty):
            self._news.get(timeout=None if deadline_s is None else max(deadline_s - now, 0.0))()

    def _begin(self, keeping: EtcdKeeping) -> None:
        self._by_lease[keeping.kept] = keeping
        self._book.add(keeping.kept)

    def _lose_kept(self) -> None:
        for keeping in tuple(self._by_lease.values()):
            keeping.kept.lose()
            self._forget(keeping)
            self._tell(keeping.changed)

    def _move(self) -> None:
        self._rotation.use(self._access.members)
        self._close_unused()

    def _stop(self) -> None:
        self._is_running = False

    def _renew(self, keeping: EtcdKeeping) -> None:
        index = self._rotation.current
        if self._access.needs_token and not self._authenticate(index):
            self._failed(keeping, index)
            return
        token = self._access.token
        timeout_s = min(self._try_timeout_s, keeping.kept.interval_s)
        keeping.kept.asked()
        self._asked_count[index] += 1
        sent_s = self._clock.monotonic()
        call = self._stub(index, LEASE_KEEP_ALIVE).future(
            api.LeaseKeepAliveRequest(ID=keeping.kept.lease),
            timeout=timeout_s,
            metadata=tuple(metadata_of(self._access)),
        )
        call.add_done_callback(
            lambda done: self._news.put(lambda: self._take(keeping, index, token, sent_s, done))
        )

    def _take(self, keeping: EtcdKeeping, index: int, token: str | None, sent_s: float, call: Any) -> None:
        self._asked_count[index] -= 1
        self._judge(keeping, index, token, sent_s, call)
        self._close_unused()

    def _judge(self, keeping: EtcdKeeping, index: int, token: str | None, sent_s: float, call: Any) -> None:
        kept = keeping.kept
        code = call.code()
        if code is grpc.StatusCode.OK:
            found = call.result()
            kept.answered(float(found.TTL), sent_s=sent_s)
            if self._lineage.is_strange(
                found.header.cluster_id, found.header.raft_term, found.header.revision
            ):
                self._tell(self._on_doubt)
        else:
            failure = judge(code.name, call.details() or "")
            if isinstance(failure.error, LeaseLost):
                kept.answered(0.0, sent_s=sent_s)
            elif failure.doubt is Doubt.STRANGER:
                self._access.forget(token)
                self._failed(keeping, self._rotation.current)
                return
            else:
                self._failed(keeping, index)
                return
        if kept.is_lost:
            self._forget(keeping)
        self._tell(keeping.changed)

    def _failed(self, keeping: EtcdKeeping, index: int) -> None:
        self._rotation.failed(index)
        keeping.kept.failed(now=self._clock.monotonic(), members_count=len(self._access.members))
        self._tell(keeping.changed)

    def _authenticate(self, index: int) -> bool:
        request = api.AuthenticateRequest(name=self._access.user, password=self._access.password)
        try:
            answer = self._stub(index, AUTHENTICATE)(request, timeout=self._try_timeout_s)
        except grpc.RpcError as error:
            if not isinstance(error, grpc.Call) or NOT_ENABLED not in (error.details() or ""):
                logger.warning("%s: cannot authenticate to renew leases: %s", self._name, error)
                return False
            self._access.token = ""
        else:
            self._access.token = answer.token
        return True

    def _forget(self, keeping: EtcdKeeping) -> None:
        self._book.remove(keeping.kept)
        self._by_lease.pop(keeping.kept, None)

    def _stub(self, index: int, call: EtcdCall[Any, Any]) -> grpc.UnaryUnaryMultiCallable[Any, Any]:
        channel = self._channels.get(index)
        if channel is None:
            channel = self._channels[index] = open_blocking_channel(
                self._access.endpoints[index], credentials=self._credentials, options=CHANNEL_OPTIONS
            )
        return call.blocking_stub(channel)

    def _close_unused(self) -> None:
        """Close the channels to former members that owe no answer."""
        for index in tuple(self._channels):
            if index not in self._access.members and not self._asked_count[index]:
                self._channels.pop(index).close()

    def _tell(self, callback: Callable[..., object], *arguments: object) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop was closed without closing the store: nobody is left to renew for.
            self._news.put(self._stop)


class EtcdKeeping:
    """A `Keeping` whose lease is renewed by the heart's thread."""

    def __init__(self, heart: EtcdHeart, kept: KeptLease, on_change: Callable[[], None]) -> None:
        self.kept = kept
        self._heart = heart
        self._on_change = on_change
        self._is_stopped = False

    @property
    def kept_until_s(self) -> float:
        return self.kept.kept_until_s

    @property
    def is_lost(self) -> bool:
        return self.kept.is_lost

    @property
    def failures_count(self) -> int:
        return self.kept.failures_count

    @property
    def loop_lag_s(self) -> float:
        return self._heart.loop_lag_s

    def stop(self) -> None:
        self._is_stopped = True
        self._heart.drop(self)

    async def stopped(self) -> None:
        # A keeping has no task of its own: the thread belongs to the store, and ends with it.
        self.stop()

    def changed(self) -> None:
        """Called on the event loop: something has changed."""
        if not self._is_stopped:
            self._on_change()
