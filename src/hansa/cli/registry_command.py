"""`hansa registry`: a registry as a process of its own."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated, Final

from hansa.cli.arguments import Parameter
from hansa.cli.log_lines import LogLines
from hansa.cli.registry_options import ENDPOINT, NO_TLS, PUB, ROUTER, SECONDS, AsJson, TlsOptions, Whole
from hansa.cli.services_command import tell_change
from hansa.cli.stop_signals import stop_signals
from hansa.limits import BROADCAST_INTERVAL_S, HEARTBEAT_TIMEOUT_S, PROVIDER_ENTRIES_MAX
from hansa.presence.provider_info import ProviderInfo
from hansa.runtime.loops import run
from hansa.services.discovery.events import events_between
from hansa.services.registry import Registry

# As fast as a person or a test can follow; a look at an unchanged registry costs microseconds.
LOOK_INTERVAL_S: Final = 0.1


def registry(
    *,
    pub: Annotated[str, ENDPOINT] = PUB,
    router: Annotated[str, ENDPOINT] = ROUTER,
    peer: Annotated[tuple[str, ...], ENDPOINT] = (),
    registry_id: Annotated[Whole | None, Parameter(name="--id", metavar="NUMBER")] = None,
    heartbeat_interval: Annotated[float | None, SECONDS] = None,
    heartbeat_timeout: Annotated[float, SECONDS] = HEARTBEAT_TIMEOUT_S,
    broadcast_interval: Annotated[float, SECONDS] = BROADCAST_INTERVAL_S,
    provider_entries_max: Annotated[Whole, Parameter(metavar="COUNT")] = PROVIDER_ENTRIES_MAX,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Run a registry: providers register with it, callers learn from it who provides what.

    It says when it is ready and what changes, until SIGTERM or Ctrl-C. Port 0 takes any free port; the
    ready line tells which.

    Examples:

        hansa registry
        hansa registry --pub tcp://0.0.0.0:5550 --router tcp://0.0.0.0:5551 --peer tcp://other-host:5550

    Parameters
    ----------
    pub
        Where discoveries and other registries listen.
    router
        Where providers register.
    peer
        The PUB endpoint of another registry of the cluster; repeat it for each.
    registry_id
        The number of this registry; random when not given.
    heartbeat_interval
        How often providers are expected to say that they are alive; a third of the timeout unless given, but
        not less often than every 5 s.
    heartbeat_timeout
        A provider that was silent for so long is removed.
    broadcast_interval
        How often the list is told even if nothing changed.
    provider_entries_max
        How many entries one provider may have; more are refused.
    """
    made = Registry(
        pub,
        router,
        peers=peer,
        registry_id=registry_id,
        heartbeat_interval=heartbeat_interval,
        heartbeat_timeout=heartbeat_timeout,
        broadcast_interval=broadcast_interval,
        provider_entries_max=provider_entries_max,
        environment=tls.environment(),
    )
    run(serve(made, as_json=as_json))


async def serve(registry: Registry, *, as_json: bool) -> None:
    """Run until a signal says stop. Raises what starting it raises."""
    with stop_signals() as stop, LogLines(as_json=as_json) as log:
        async with registry:
            number, pub, router = registry.registry_id, str(registry.pub), str(registry.router)
            log.tell(
                "ready",
                f"registry {number} ready: pub {pub} router {router} pid {os.getpid()}",
                registry_id=number,
                pub=pub,
                router=router,
                pid=os.getpid(),
            )
            news = RegistryNews(registry, log)
            news.look()
            while not await stop.within(LOOK_INTERVAL_S):
                news.look()
            news.look()
        stats = registry.stats
        log.tell(
            "stopped",
            f"registry {number} stopped: {stats.registered_count} registered, "
            f"{stats.unregistered_count} unregistered, {stats.expired_count} expired, "
            f"{stats.heartbeats_count} heartbeats, {stats.broadcasts_count} broadcasts, "
            f"{sum(stats.bad_frames.values())} bad messages",
            registry_id=number,
            stats=asdict(stats),
        )


class RegistryNews:
    """Compares the registry with the last look and reports the differences."""

    def __init__(self, registry: Registry, log: LogLines) -> None:
        self._registry = registry
        self._log = log
        self._services: dict[str, tuple[ProviderInfo, ...]] = {}
        self._peers: tuple[int, ...] = ()
        self._broadcasts_count = -1

    def look(self) -> None:
        """Tell what is new: providers registered and removed, weights, peers heard and silent."""
        self._look_at_peers()
        count = self._registry.stats.broadcasts_count
        if count == self._broadcasts_count:
            return
        self._broadcasts_count = count
        before, self._services = self._services, self._registry.services
        for service in sorted(before.keys() | self._services.keys()):
            for event in events_between(service, before.get(service, ()), self._services.get(service, ())):
                tell_change(self._log, event)

    def _look_at_peers(self) -> None:
        before, self._peers = self._peers, self._registry.peers_heard
        for peer in self._peers:
            if peer not in before:
                self._log.tell("peer-heard", f"registry {peer} is heard", peer=peer)
        for peer in before:
            if peer not in self._peers:
                self._log.tell("peer-silent", f"registry {peer} is not heard any more", peer=peer)
