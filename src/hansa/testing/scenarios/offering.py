"""The programs of providers' hosts: they register, change weights, leave and come back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hansa.chance import Chance
from hansa.endpoint import Endpoint
from hansa.errors import HandlerFailed, NotRegistered, RegistrationRefused, TimedOut
from hansa.ids import new_routing_id
from hansa.limits import OUTGOING_BYTES_MAX, WRITE_TURN_BYTES
from hansa.presence.provider_info import ProviderState
from hansa.services.provider.server import Provider
from hansa.services.provider.work import Request
from hansa.testing.host import Host
from hansa.testing.scenarios.cluster import (
    HEARTBEAT_INTERVAL_S,
    POLL_S,
    PROVIDER_PORT,
    REGISTRIES,
    ROUTER_PORT,
    SERVICES,
    Cluster,
    ClusterPhase,
    ProviderRun,
    socket_options,
)

WORK_S_MAX = 0.4
# Two of these are more than a stream takes while nobody reads it.
LARGE_BYTES = WRITE_TURN_BYTES
PAUSE_S_MAX = 3.0
RETRY_S = 0.5
DRAIN_S_MAX = 10.0


class Offering:
    """The program of one provider's host."""

    def __init__(self, host: Host, cluster: Cluster) -> None:
        self._host = host
        self._cluster = cluster
        self._chance = host.chance
        self._services = SERVICES[host.name]

    async def run(self) -> None:
        """Run one provider after the other, until the host is stopped."""
        number = 0
        while True:
            number += 1
            session = self._session(number)
            async with session.provider:
                self._cluster.sessions[self._host.name] = session
                self._host.record(f"session {session.label} at {session.provider.endpoint}")
                for service in self._services:
                    # Services that the life before offered and this one does not must be gone in the end.
                    if len(self._services) == 1 or self._chance.flip(0.5):
                        await self._register(session, service)
                await self._live(session)

    def _session(self, number: int) -> ProviderRun:
        host, environment = self._host, self._host.environment.fork(f"session {number}")
        chance = environment.chance
        label = f"{host.life}.{number}"
        first = chance.below(len(REGISTRIES))
        registries = REGISTRIES[first:] + REGISTRIES[:first]
        is_faithful = host.name in self._cluster.faithful
        # Set between two programs: the next one may stamp earlier than the last one did.
        host.clock.wall_skew_s = self._cluster.wall_skew_s(chance.fork("clock"))
        provider = Provider(
            f"tcp://*:{PROVIDER_PORT}",
            [f"tcp://{name}:{ROUTER_PORT}" for name in registries],
            advertise=f"tcp://{host.name}:{PROVIDER_PORT}",
            routing_id=new_routing_id(Chance.seeded(host.name)) if is_faithful else b"",
            concurrency_max=chance.choose((2, 100)),
            waiting_max=chance.choose((0, 2, 100)),
            heartbeat_interval=HEARTBEAT_INTERVAL_S,
            environment=environment.fork("provider").but(
                options=replace(
                    socket_options(chance.fork("options")),
                    outgoing_bytes_max=chance.fork("room").choose((LARGE_BYTES // 2, OUTGOING_BYTES_MAX)),
                )
            ),
            name=label,
        )
        work = chance.fork("work")

        @provider.handler()
        async def carry_out(request: Request) -> list[bytes]:
            errand = self._cluster.errands.carried_out(label, self._services, request.payload)
            host.record(f"carries out {errand}")
            await asyncio.sleep(work.uniform(0.0, WORK_S_MAX))
            if self._cluster.is_chaotic and work.flip(0.05):
                raise HandlerFailed("as planned", "planned")
            return [request.payload, label.encode(), *([bytes(LARGE_BYTES)] if errand.is_large else [])]

        return ProviderRun(provider, label, f"tcp://{host.name}:{PROVIDER_PORT}")

    async def _live(self, session: ProviderRun) -> None:
        """Live; returns when the provider has left in good order."""
        cluster, chance = self._cluster, self._chance
        while cluster.is_chaotic:
            await asyncio.sleep(chance.uniform(0.0, PAUSE_S_MAX))
            service = chance.choose(self._services)
            match chance.choose(
                ("register", "reweigh", "reweigh", "unregister", "nothing", "nothing", "drain")
            ):
                case "register":
                    await self._register(session, service)
                case "reweigh" if service in session.offers:
                    await self._reweigh(session, service)
                case "unregister" if service in session.offers:
                    await self._unregister(session, service)
                case "drain" if chance.flip(0.3):
                    await self._drain(session, chance.uniform(0.0, 3.0))
                    return
        for service in self._services:
            # Not every provider offers everything in the end.
            while service not in session.offers and (len(self._services) == 1 or chance.flip(0.3)):
                await self._register(session, service)
        session.is_steady = True
        while True:
            await asyncio.sleep(POLL_S)
            is_leaver = cluster.leaver == self._host.name and not cluster.has_left
            if is_leaver and cluster.phase is ClusterPhase.ROLLING:
                break
        session.is_steady = False
        cluster.has_left = True
        if not await self._drain(session, DRAIN_S_MAX):
            cluster.world.fail("a provider that nobody needs can leave", f"{session.label} could not drain")

    async def _register(self, session: ProviderRun, service: str) -> None:
        cluster, host = self._cluster, self._host
        former = session.offers.get(service)
        offer = former or cluster.offers.open(service, session.endpoint, session.provider.routing_id)
        weight = cluster.offers.weigh(offer)
        session.offers[service] = offer
        host.record(f"registers {offer} with weight {weight}")
        try:
            await session.provider.register(service, weight=weight, timeout=3.0)
        except (TimedOut, RegistrationRefused) as error:
            host.record(f"cannot register {offer}: {error.code}: {error}")
            if former is None:
                del session.offers[service]
            await asyncio.sleep(RETRY_S)

    async def _reweigh(self, session: ProviderRun, service: str) -> None:
        weight = self._cluster.offers.weigh(session.offers[service])
        self._host.record(f"gives {session.offers[service]} weight {weight}")
        try:
            await session.provider.update_weight(service, weight, timeout=2.0)
        except TimedOut as error:
            self._host.record(f"cannot weigh {session.offers[service]}: {error}")

    async def _unregister(self, session: ProviderRun, service: str) -> None:
        offer = session.offers.pop(service)
        self._host.record(f"withdraws {offer}")
        try:
            await session.provider.unregister(service, timeout=3.0)
        except (TimedOut, NotRegistered) as error:
            self._host.record(f"cannot withdraw {offer}: {error}")
            return
        registry = session.provider.registry
        if registry is not None:
            name = Endpoint.parse(registry).host
            self._host.record(f"has withdrawn {offer} at {name}")
            self._cluster.offers.withdraw(offer, self._cluster.registry_labels[name])

    async def _drain(self, session: ProviderRun, timeout_s: float) -> bool:
        self._host.record("drains")
        is_done = await session.provider.drain(timeout=timeout_s)
        session.offers.clear()
        self._host.record("has drained" if is_done else "could not drain in time")
        return is_done


def registered(session: ProviderRun) -> list[tuple[str, int]] | None:
    """The services and weights that the provider believes registered; None while something is under way."""
    provider, found = session.provider, []
    for service in sorted(session.offers):
        registration = provider.registration(service)
        if provider.state(service) is not ProviderState.REGISTERED or registration is None:
            return None
        found.append((service, registration.weight))
    return found
