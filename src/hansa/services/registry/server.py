"""The registry as a program uses it: start, stop, look inside.

Each start makes a new `RegistryRun`, with new machines and sockets, and follows the same peers. Three things
last from one run to the next: the peers; the number of the last list, so that the next run's numbers are
higher under the same id; and the last counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from hansa.endpoint import Endpoint
from hansa.errors import BadArgument, BadEndpoint, UsageError
from hansa.limits import BROADCAST_INTERVAL_S, HEARTBEAT_TIMEOUT_S, PROVIDER_ENTRIES_MAX, REGISTRIES_MAX
from hansa.presence.provider_info import ProviderInfo, beat_s
from hansa.presence.statements import first_epoch
from hansa.runtime.loops import Home
from hansa.services.registry.announcer import Announcer
from hansa.services.registry.catalogue import Catalogue
from hansa.services.registry.run import RegistryRun
from hansa.services.registry.stats import RegistryStats
from hansa.transport import Environment

_UINT32_MAX: Final = 0xFFFF_FFFF


class Registry:
    """Keeps the entries of providers and tells them to discoveries and to the other registries.

    Providers register at `router`, discoveries and other registries listen at `pub`; `peers` are the PUB
    endpoints of the others. Use it as `async with`, or `start` and `stop` it, again and again: each start
    begins empty, under a new random id unless one is given. Leaving the block frees the ports. One provider
    has at most `provider_entries_max` entries, and more are refused; it cannot fill the list of all.

    An entry that is silent for `heartbeat_timeout` is removed. Providers are told so, and beat at a third
    of it or every 5 s, whichever is sooner; `heartbeat_interval` says when other beats are expected.
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
        if not heartbeat_timeout > heartbeat_interval:  # So written, "not a number" is refused too.
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
        """Bind both endpoints and follow the peers. Cancelled or failed, it leaves nothing behind.

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
        """End everything and free the ports; nothing happens when it does not run. Cancelling hurries it."""
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
        """Follow another registry of the cluster, now or from the start on. Raises `BadEndpoint`."""
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
        """The id of the present or last run; before the first, the given one or 0."""
        return self._registry_id

    @property
    def pub(self) -> Endpoint:
        """Where lists are told: with its real port while it runs, else as it was given."""
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
        """What the present or last run has counted."""
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
            # A provider that lives has said so by then, or it would have expired at the run before.
            settling_s=self._heartbeat_timeout_s,
            # Above what an earlier run under this id said, even within its millisecond or after a step back.
            list_seq=max(first_epoch(int(self._environment.clock.wall() * 1000)), self._last_list_seq),
            now=asyncio.get_running_loop().time(),
        )
        return RegistryRun(
            catalogue,
            announcer,
            name=self.name,
            # Who was heard within a beat before such a stop would be overdue after it.
            stopped_s=max(
                self._heartbeat_timeout_s - self._heartbeat_interval_s, self._heartbeat_timeout_s / 2
            ),
            environment=self._environment,
        )
