"""The discovery for threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from hansa.chance import Chance
from hansa.clock import Clock
from hansa.limits import BROADCAST_INTERVAL_S, BROADCASTS_MISSED_MAX
from hansa.presence.provider_info import ProviderInfo
from hansa.services.discovery import Discovery as AsyncDiscovery
from hansa.services.discovery import DiscoveryEvent, DiscoveryStats, ServiceState
from hansa.sync.event_stream import EventStream
from hansa.sync.mirror import Mirror, shielded
from hansa.transport import Network, SocketOptions, Tls


class Discovery(Mirror):
    """Knows who provides what, from any number of registries at once.

    As `hansa.Discovery`, for threads: use it in a `with` block; subscribing, listening and connecting are
    possible before that. After the block queries still answer with what was known last.
    """

    def __init__(
        self,
        registries: Sequence[str] = (),
        *,
        silence_s: float = BROADCAST_INTERVAL_S * BROADCASTS_MISSED_MAX,
        tls: Tls | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        options: SocketOptions | None = None,
        name: str = "discovery",
    ) -> None:
        """Raises BadEndpoint, BadArgument."""
        super().__init__(name)
        self._inner = AsyncDiscovery(
            registries,
            silence_s=silence_s,
            tls=tls,
            network=network,
            clock=clock,
            chance=chance,
            options=options,
            name=name,
        )

    def __enter__(self) -> Self:
        self._open(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hear no more. Iterators end; who waits gets AlreadyClosed. Closing twice does no harm."""
        self._close(self._inner.close)

    def connect_registry(self, endpoint: str) -> None:
        """Hear the registry that publishes there, too. Once more for the same one changes nothing.

        Returns at once, and keeps dialling while it is away. Raises BadEndpoint, AlreadyClosed.
        """
        self._ask(lambda: self._inner.connect_registry(endpoint))

    # -- the filter

    def subscribe(self, service: str) -> None:
        """Show this service; providers known already are told to listeners at once.

        Not counted: one `unsubscribe` ends any number of them. Raises BadArgument for what cannot be a name.
        """
        self._ask(lambda: self._inner.subscribe(service))

    def unsubscribe(self, service: str) -> None:
        """Show it no more, also not under `subscribe_all`; listeners are told of its providers as removed."""
        self._ask(lambda: self._inner.unsubscribe(service))

    def subscribe_all(self) -> None:
        """Show every service there is and will be."""
        self._ask(self._inner.subscribe_all)

    def follows(self, service: str) -> bool:
        """True when the service is subscribed, by name or with all."""
        return self._ask(lambda: self._inner.follows(service))

    # -- queries

    def providers(self, service: str) -> tuple[ProviderInfo, ...]:
        """In the order of their endpoints; empty for a service that is not subscribed."""
        return self._ask(lambda: self._inner.providers(service))

    def provider_count(self, service: str) -> int:
        """How many providers a subscribed service has."""
        return len(self.providers(service))

    def is_available(self, service: str) -> bool:
        """True when a subscribed service has a provider."""
        return bool(self.providers(service))

    def state(self, service: str) -> ServiceState:
        """EMPTY, AVAILABLE or UNAVAILABLE; EMPTY for a service that is not subscribed."""
        return self._ask(lambda: self._inner.state(service))

    @property
    def services(self) -> dict[str, tuple[ProviderInfo, ...]]:
        """All subscribed services that have providers, in the order of their names."""
        return self._ask(lambda: self._inner.services)

    @property
    def registries_heard(self) -> tuple[int, ...]:
        """Ids of the registries that are connected and have spoken within `silence_s`, ascending."""
        return self._ask(lambda: self._inner.registries_heard)

    @property
    def stats(self) -> DiscoveryStats:
        """What it has counted."""
        return self._ask(lambda: self._inner.stats)

    @property
    def has_heard(self) -> bool:
        """True once a registry has told its list. Before that nobody is known, whoever may be there."""
        return self._ask(lambda: self._inner.has_heard)

    # -- being told

    def wait_heard(self, timeout: float | None = None) -> None:
        """Return as soon as a registry has told its list, at once if one has.

        From then on it is known who provides what. Raises TimedOut, AlreadyClosed when the discovery closes.
        """
        self._call(lambda: self._inner.wait_heard(timeout), "wait_heard")

    def wait_available(self, service: str, timeout: float | None = None) -> None:
        """Return as soon as the service has a provider.

        Raises TimedOut, whose text says which registries were heard; BadArgument for a service that is not
        subscribed, for which one could wait for ever; AlreadyClosed when the discovery closes.
        """
        self._call(lambda: self._inner.wait_available(service, timeout), "wait_available")

    def listen(self, callback: Callable[[DiscoveryEvent], None]) -> Callable[[], None]:
        """Call it with every event from now on, at once; call what is returned to stop.

        The callback runs in the thread of the event loop, which everything else waits for: it must be quick
        and must not wait. Queries and `submit` are allowed in it.
        """
        stop = self._ask(lambda: self._inner.listen(shielded(callback)))
        return lambda: self._ask(stop)

    def events(self) -> DiscoveryEvents:
        """An iterator over everything that happens from this call on; it blocks until there is more.

        It keeps a bounded number of events for a slow reader; then the oldest go, counted.
        """
        return DiscoveryEvents(self, self._ask(self._inner.events))


class DiscoveryEvents(EventStream[DiscoveryEvent]):
    """A blocking iterator over a discovery's events, from the call that made it on.

    It ends after `close`, or when the discovery closes, once what it kept is read. Several threads may share
    one: each event goes to one of them. An interrupted step takes nothing out.
    """
