"""The registry for threads."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from hansa.chance import Chance
from hansa.clock import Clock
from hansa.endpoint import Endpoint
from hansa.limits import BROADCAST_INTERVAL_S, HEARTBEAT_TIMEOUT_S, PROVIDER_ENTRIES_MAX
from hansa.presence.provider_info import ProviderInfo
from hansa.services.registry import Registry as AsyncRegistry
from hansa.services.registry import RegistryStats
from hansa.sync.mirror import Mirror
from hansa.transport import Network, SocketOptions, Tls


class Registry(Mirror):
    """Keeps the entries of providers and tells them to discoveries and to the other registries.

    As `hansa.Registry`, for threads: use it in a `with` block, or `start` and `stop` it, again and again.
    """

    def __init__(
        self,
        pub: str,
        router: str,
        *,
        peers: Sequence[str] = (),
        registry_id: int | None = None,
        heartbeat_interval_s: float | None = None,
        heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S,
        broadcast_interval_s: float = BROADCAST_INTERVAL_S,
        provider_entries_max: int = PROVIDER_ENTRIES_MAX,
        tls: Tls | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        options: SocketOptions | None = None,
        name: str = "registry",
    ) -> None:
        """Raises `BadEndpoint`, `BadArgument`."""
        super().__init__(name)
        self._inner = AsyncRegistry(
            pub,
            router,
            peers=peers,
            registry_id=registry_id,
            heartbeat_interval_s=heartbeat_interval_s,
            heartbeat_timeout_s=heartbeat_timeout_s,
            broadcast_interval_s=broadcast_interval_s,
            provider_entries_max=provider_entries_max,
            tls=tls,
            network=network,
            clock=clock,
            chance=chance,
            options=options,
            name=name,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Bind both endpoints and follow the peers.

        Raises `UsageError` when it is running, `AddressInUse`, `BadEndpoint`.
        """
        self._open(self._inner.start)

    def stop(self) -> None:
        """End everything and free the ports; nothing happens when it does not run."""
        self._close(self._inner.stop)

    def add_peer(self, pub_endpoint: str) -> None:
        """Follow another registry of the cluster, now or from the start on. Raises `BadEndpoint`."""
        self._ask(lambda: self._inner.add_peer(pub_endpoint))

    @property
    def is_running(self) -> bool:
        return self._ask(lambda: self._inner.is_running)

    @property
    def registry_id(self) -> int:
        """The id of the present or last run; before the first, the given one or 0."""
        return self._ask(lambda: self._inner.registry_id)

    @property
    def pub(self) -> Endpoint:
        """Where lists are told: with its real port while it runs, else as it was given."""
        return self._ask(lambda: self._inner.pub)

    @property
    def router(self) -> Endpoint:
        """Where providers register: with its real port while it runs, else as it was given."""
        return self._ask(lambda: self._inner.router)

    @property
    def services(self) -> dict[str, tuple[ProviderInfo, ...]]:
        """The merged list, as discoveries are told it; empty when it does not run."""
        return self._ask(lambda: self._inner.services)

    @property
    def peers_heard(self) -> tuple[int, ...]:
        """The ids of the other registries whose entries are in the list."""
        return self._ask(lambda: self._inner.peers_heard)

    @property
    def stats(self) -> RegistryStats:
        """What the present or last run has counted."""
        return self._ask(lambda: self._inner.stats)
