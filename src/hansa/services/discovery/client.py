"""Discovery: receives the lists of registries on a SUB, and knows which providers offer which service.

It drives a `Directory`. It passes every list and every lost connection to it, with the loop's time; the
events that the directory returns go to the listeners, in order, before anything else happens. One timer is
set to the directory's deadline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from hansa.endpoint import Endpoint
from hansa.errors import AlreadyClosed, BadArgument, BadEndpoint, BadFrame, TimedOut
from hansa.limits import BROADCAST_INTERVAL_S, BROADCASTS_MISSED_MAX, EVENTS_COUNT_MAX
from hansa.presence.provider_info import ProviderInfo
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import EventFeed, EventStream, Waiters
from hansa.services.discovery.directory import Directory
from hansa.services.discovery.events import DiscoveryEvent, Listeners, ServiceAvailable, ServiceState
from hansa.transport import Disconnected, Environment, Outbound, SocketEvent, Sub
from hansa.wire.listing import SERVICE_LIST, ListReader, RegistrySync

_PREFIX = SERVICE_LIST.to_bytes(2, "little")
_SILENCE_S = BROADCAST_INTERVAL_S * BROADCASTS_MISSED_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryStats:
    """A snapshot of counts. Of the lists that arrived, `lists_count` were applied.

    `lists_older_count` were older than the last list of the same registry and `lists_repeated_count` the same
    as it: both change nothing. `refused` counts messages that were no list, by reason. `events_dropped_count`
    events found an iterator full, which dropped its oldest event. `services_count` and `providers_count` are
    those known now, subscribed or not.
    """

    lists_count: int
    lists_older_count: int
    lists_repeated_count: int
    refused: dict[str, int]
    events_count: int
    events_dropped_count: int
    listener_failures_count: int
    listeners_count: int
    registries_count: int
    services_count: int
    providers_count: int


class DiscoveryEvents(EventStream[DiscoveryEvent]):
    """An async iterator over a discovery's events, from the call that made it on.

    It ends after `close`, or when the discovery closes, once what it kept is read. Cancelling a step loses no
    event. If it is dropped without `close`, it costs nothing more.
    """


class Discovery:
    """Knows which providers offer which service, from any number of registries at once.

    `registries` are PUB endpoints. A registry's list counts until the registry has been silent for
    `silence_timeout`, or until a few seconds after its connection broke, in which its providers move to
    another one; when no registry is heard any longer, the last known providers stay. Subscriptions are a
    local filter: queries and events know only subscribed services. Wrong messages of registries are counted
    by reason and change nothing; their connections are kept, because the user chose them.

    Use it with `async with`; subscribing, listening and connecting are possible before that. After the block
    queries still answer with the last known state. In it, it belongs to the event loop that it was entered
    in, and raises UsageError elsewhere; threads use `hansa.sync.Discovery`. Raises BadEndpoint, BadArgument.
    """

    def __init__(
        self,
        registries: Sequence[str] = (),
        *,
        silence_timeout: float = _SILENCE_S,
        environment: Environment | None = None,
        name: str = "discovery",
    ) -> None:
        if isinstance(registries, str):
            raise BadArgument(f"registries is a list of endpoints: write [{registries!r}]")
        self.name = name
        self._directory = Directory(silence_s=silence_timeout)
        self._listeners = Listeners(self._listener_failed)
        self._registries: dict[Endpoint, Outbound | None] = {_registry(text): None for text in registries}
        self._sub = Sub(
            environment=environment,
            on_messages=self._received,
            on_event=self._happened,
            name=name,
        )
        self._readers: dict[bytes, ListReader] = {}
        self._feeds: dict[EventFeed[DiscoveryEvent], None] = {}
        self._waiters: dict[str, Waiters] = {}
        self._first_list = Waiters()
        self._timer: asyncio.TimerHandle | None = None
        # Kept here, because uvloop's handle for a time in the past does not have it.
        self._timer_at = 0.0
        self._refused: Counter[str] = Counter()
        self._events_count = 0
        self._events_dropped_count = 0
        self._home: Home | None = None
        self._running = False
        self._closed = False

    # -- life

    async def __aenter__(self) -> Self:
        self._check_open()
        if self._running:
            raise BadArgument(f"{self.name} is entered already: one `async with` is its whole life")
        self._home = Home(self.name, "make one here, or use hansa.sync.Discovery, which serves all threads")
        self._running = True
        self._sub.subscribe(_PREFIX)
        try:
            for endpoint in self._registries:
                self._registries[endpoint] = self._sub.connect(endpoint)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop hearing registries. Iterators end; waiting calls raise AlreadyClosed.

        Closing twice does no harm.
        """
        self._check_home()
        # First of all: connections that end now say nothing about the registries.
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for feed in self._feeds:
            feed.close()
        for waiters in self._waiters.values():
            waiters.wake_all()
        self._first_list.wake_all()
        await self._sub.close()

    def connect_registry(self, endpoint: str) -> None:
        """Hear the registry that publishes there, too. A second call for the same endpoint changes nothing.

        Returns at once, and keeps dialling while it is away. Raises BadEndpoint, AlreadyClosed, and
        BadArgument for a tls endpoint without credentials.
        """
        self._check_open()
        where = _registry(endpoint)
        if where in self._registries:
            return
        self._registries[where] = self._sub.connect(where) if self._running else None

    # -- the filter

    def subscribe(self, service: str) -> None:
        """Show this service; providers known already are told to listeners at once.

        Not counted: one `unsubscribe` ends any number of them. Raises BadArgument for an impossible name.
        """
        self._tell(self._known.subscribe(service))

    def unsubscribe(self, service: str) -> None:
        """Stop showing it, also under `subscribe_all`; listeners are told that its providers were removed."""
        self._tell(self._known.unsubscribe(service))

    def subscribe_all(self) -> None:
        """Show every service, also those that come later."""
        self._tell(self._known.subscribe_all())

    def follows(self, service: str) -> bool:
        """True when the service is subscribed, by name or with all."""
        return self._known.follows(service)

    # -- queries

    def providers(self, service: str) -> tuple[ProviderInfo, ...]:
        """The service's providers, in the order of their endpoints; none if it is not subscribed."""
        return self._known.providers(service)

    def provider_count(self, service: str) -> int:
        """How many providers a subscribed service has."""
        return len(self._known.providers(service))

    def is_available(self, service: str) -> bool:
        """True when a subscribed service has a provider."""
        return bool(self._known.providers(service))

    def state(self, service: str) -> ServiceState:
        """EMPTY, AVAILABLE or UNAVAILABLE; EMPTY for a service that is not subscribed."""
        return self._known.state(service)

    @property
    def services(self) -> dict[str, tuple[ProviderInfo, ...]]:
        """All subscribed services that have providers, in the order of their names."""
        return self._known.services

    @property
    def registries_heard(self) -> tuple[int, ...]:
        """Ids of the registries that are connected and have spoken within `silence_timeout`, ascending."""
        return self._known.registries_heard

    @property
    def has_heard(self) -> bool:
        """True once a registry has told its list. Before that no provider is known, even if one is there."""
        return self._known.lists_count > 0

    @property
    def awaits_first_list(self) -> bool:
        """True while it has registries to hear and none of them has told its list yet."""
        return not self.has_heard and self._running and not self._closed and bool(self._registries)

    @property
    def situation(self) -> str:
        """Which registries are heard, and why none may be, as a text for people."""
        if heard := self.registries_heard:
            names = ", ".join(map(str, heard))
            return f"registry {names} was heard" if len(heard) == 1 else f"registries {names} were heard"
        if self._closed:
            return f"{self.name} is closed"
        if not self._registries:
            return "no registry was given: call connect_registry() with a registry's PUB endpoint"
        if not self._running:
            return f"{self.name} was not entered: write `async with`"
        tried = ", ".join(
            f"{endpoint} ({_standing(outbound)})" for endpoint, outbound in self._registries.items()
        )
        if self.has_heard:
            return f"no registry is heard any more; tried {tried}"
        return f"no registry answered; tried {tried}. Is it running, and is that its PUB endpoint?"

    @property
    def lists_heard(self) -> dict[int, int]:
        """The number of each heard registry's newest list, by registry id. What is shown follows from it."""
        return self._known.lists_heard

    @property
    def stats(self) -> DiscoveryStats:
        directory = self._directory
        return DiscoveryStats(
            lists_count=directory.lists_count,
            lists_older_count=directory.older_count,
            lists_repeated_count=directory.repeated_count,
            refused=dict(self._refused),
            events_count=self._events_count,
            events_dropped_count=self._events_dropped_count,
            listener_failures_count=self._listeners.failures_count,
            listeners_count=len(self._listeners),
            registries_count=len(directory.registries_heard),
            services_count=directory.services_count,
            providers_count=directory.providers_count,
        )

    # -- being told

    def listen(self, callback: Callable[[DiscoveryEvent], None]) -> Callable[[], None]:
        """Call it with every event from now on, in the loop and at once; call the result to stop.

        A callback that raises is reported to the loop's exception handler, and called again for the next
        event.
        """
        self._check_open()
        return self._listeners.add(callback)

    def events(self) -> DiscoveryEvents:
        """An async iterator over everything that happens from this call on.

        It keeps a bounded number of events for a slow reader; then the oldest are dropped and counted.
        """
        self._check_open()
        feed: EventFeed[DiscoveryEvent] = EventFeed(
            f"events of {self.name}", count_max=EVENTS_COUNT_MAX, on_drop=self._dropped
        )
        self._feeds[feed] = None
        unlisten = self._listeners.add(feed.put)

        def stop() -> None:
            unlisten()
            self._feeds.pop(feed, None)

        return DiscoveryEvents(feed, stop)

    async def wait_available(self, service: str, timeout: float | None = None) -> None:
        """Return as soon as the service has a provider. Cancelling it leaves nothing behind.

        Raises TimedOut, whose text says which registries were heard; BadArgument for a service that is not
        subscribed, since that wait might never end; AlreadyClosed when the discovery closes.
        """
        if not self._known.follows(service):
            raise BadArgument(f"{self.name} does not watch {service!r}: call subscribe({service!r}) first")
        try:
            async with asyncio.timeout(timeout):
                while not self.is_available(service):
                    self._check_open()
                    # Looked up each time: the last waiter that leaves removes the entry.
                    await self._waiters.setdefault(service, Waiters()).wait()
        except TimeoutError:
            without = ", without one" if self.registries_heard else ""
            raise TimedOut(
                f"no provider of {service!r} after {timeout} s: {self.situation}{without}"
            ) from None
        finally:
            if not self._waiters.get(service, True):
                del self._waiters[service]

    async def wait_heard(self, timeout: float | None = None) -> None:
        """Return as soon as a registry has told its list, at once if one has. Cancelling leaves nothing.

        From then on the providers are known. Raises TimedOut, AlreadyClosed when the discovery closes.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self.has_heard:
                    self._check_open()
                    await self._first_list.wait()
        except TimeoutError:
            raise TimedOut(f"no registry was heard within {timeout} s: {self.situation}") from None

    # -- from the socket and the timer

    def _received(self, peer: bytes, messages: list[list[bytes]]) -> None:
        if self._closed:
            return
        reader = self._readers.get(peer)
        if reader is None:
            reader = self._readers[peer] = ListReader()
        for frames in messages:
            try:
                told = reader.read(frames)
            except BadFrame as error:
                self._refused[error.reason] += 1
                continue
            if isinstance(told, RegistrySync):
                self._refused["not-a-service-list"] += 1
                continue
            self._tell(self._directory.hear(told, source=peer, now=self._now()))
        if self._first_list and self.has_heard:
            self._first_list.wake_all()
        self._set_timer()

    def _happened(self, event: SocketEvent) -> None:
        if self._closed or not isinstance(event, Disconnected):
            return
        self._readers.pop(event.peer, None)
        self._tell(self._directory.lost(event.peer, now=self._now()))
        self._set_timer()

    def _ticked(self) -> None:
        self._timer = None
        self._tell(self._directory.tick(now=self._now()))
        self._set_timer()

    def _set_timer(self) -> None:
        """Wake up when the machine wants to. A timer that is too early stays: it looks again then."""
        deadline = self._directory.deadline()
        if deadline is None or self._closed:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._ticked)

    # -- small things

    def _tell(self, events: list[DiscoveryEvent]) -> None:
        self._events_count += len(events)
        for event in events:
            if isinstance(event, ServiceAvailable) and event.service in self._waiters:
                self._waiters[event.service].wake_all()
        self._listeners.tell(events)

    def _dropped(self) -> None:
        self._events_dropped_count += 1

    def _listener_failed(self, error: Exception) -> None:
        context = {"message": f"a listener of {self.name} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    @property
    def _known(self) -> Directory:
        """The directory, for callers in this event loop. Raises UsageError in other threads and loops."""
        self._check_home()
        return self._directory

    def _check_home(self) -> None:
        if self._home is not None and not self._closed:
            self._home.check()

    def _check_open(self) -> None:
        self._check_home()
        if self._closed:
            raise AlreadyClosed(f"{self.name} is closed")

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _standing(outbound: Outbound | None) -> str:
    if outbound is not None and outbound.is_up:
        return "connected, no list yet"
    return (
        f"not connected: {outbound.trouble}" if outbound is not None and outbound.trouble else "not connected"
    )


def _registry(text: str) -> Endpoint:
    endpoint = Endpoint.parse(text)
    if not endpoint.is_dialable:
        raise BadEndpoint(
            f"{endpoint} says where to listen, not where to dial: give the registry's host and port"
        )
    return endpoint
