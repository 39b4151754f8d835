"""Three registries, their providers and their callers under every fault.

The registries r1 to r3 follow each other, with clocks that are seconds apart. The providers p1 to p5 register
with one of them, change their weights, unregister, drain, and come back at the same endpoint under another
id and with another clock. The callers d1 and d2 discover, hear of changes, send requests in every way there
is, and at times send more than they read, without a deadline.

Always: one entry per key; the numbers of lists grow, and a discovery goes by the newest; only what was
offered is shown, with a weight it was given; what was removed does not come back; a request ends once, is
carried out at most once unless it is idempotent, and never if it ended as not started; a reply answers its
request; an idempotent request with a few seconds' time does not fail while one provider is well, even if
others stand still or die.

When the faults are over: all lists are equal, and equal to what the providers believe; the gateways are
connected to exactly these. Then one provider leaves and returns, and no request may fail that has another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import ClassVar

from hansa.chance import Chance
from hansa.endpoint import Endpoint
from hansa.errors import HandlerFailed, NotRegistered, RegistrationRefused, TimedOut
from hansa.ids import new_routing_id
from hansa.limits import OUTGOING_BYTES_MAX, WRITE_TURN_BYTES
from hansa.presence.provider_info import ProviderState
from hansa.services.provider.server import Provider
from hansa.services.provider.work import Request
from hansa.services.registry import Registry
from hansa.testing.faults import FaultPlan, Pause
from hansa.testing.host import Host
from hansa.testing.scenarios.calling import Calling, entries
from hansa.testing.scenarios.cluster import (
    CALLERS,
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_TIMEOUT_S,
    POLL_S,
    PROVIDER_PORT,
    PUB_PORT,
    REGISTRIES,
    ROUTER_PORT,
    SERVICES,
    Cluster,
    ClusterPhase,
    ProviderRun,
    socket_options,
)
from hansa.testing.scenarios.cluster_books import Entry, View
from hansa.testing.simulation import Scenario
from hansa.testing.world import World
from hansa.transport import Sub
from hansa.wire.listing import SERVICE_LIST, ListReader, ServiceList

# The registries are three of ten hosts, and what happens between them matters most.
PAIRS = (
    list(combinations(REGISTRIES, 2)) * 4
    + list(product(REGISTRIES, (*SERVICES, *CALLERS)))
    + list(product(CALLERS, SERVICES)) * 2
)

STANDSTILL_S = (3.0, 8.0)
WORK_S_MAX = 0.4
# Two of these are more than a stream takes while nobody reads it.
LARGE_BYTES = WRITE_TURN_BYTES
PAUSE_S_MAX = 3.0
RETRY_S = 0.5
DRAIN_S_MAX = 10.0


class RegistryCluster(Scenario):
    """Registries, providers and callers: lists converge, nothing removed returns, requests end once."""

    name: ClassVar[str] = "registry_cluster"
    chaos_s: ClassVar[float] = 15.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._chance = world.chance.fork("registry_cluster")
        self.cluster = Cluster(world, self._chance)

    def begin(self) -> None:
        for name in REGISTRIES:
            skew_s = self.cluster.wall_skew_s(self._chance)
            self.world.host(name, self._keep_registry, wall_skew_s=skew_s).start()
        for name in SERVICES:
            self.world.host(name, lambda host: Offering(host, self.cluster).run()).start()
        for name in CALLERS:
            self.world.host(name, lambda host: Calling(host, self.cluster).run()).start()

    def pairs(self) -> Sequence[tuple[str, str]]:
        return PAIRS

    def plan(self, chance: Chance) -> FaultPlan:
        """Every other time a provider stands still, too, for longer than any caller waits."""
        plan = super().plan(chance)
        if chance.flip(0.5):
            return plan
        still = Pause(
            at_s=chance.uniform(1.0, self.chaos_s / 2),
            lasting_s=chance.uniform(*STANDSTILL_S),
            host=chance.choose(tuple(SERVICES)),
        )
        return tuple(sorted((*plan, still), key=lambda fault: fault.at_s))

    def calm(self) -> None:
        self.cluster.phase = ClusterPhase.CALM

    def unsettled(self) -> str:
        cluster = self.cluster
        missing = self._differences()
        if missing:
            return f"{cluster.phase.name}: {missing}"
        match cluster.phase:
            case ClusterPhase.CALM if waiting := cluster.errands.waiting(cluster.callers_now):
                return f"{waiting[0]} and {len(waiting) - 1} others have no outcome"
            case ClusterPhase.CALM:
                cluster.phase = ClusterPhase.ROLLING
                return f"{cluster.leaver} did not leave"
            case ClusterPhase.ROLLING if not cluster.has_left:
                return f"{cluster.leaver} did not leave and return"
            case ClusterPhase.ROLLING:
                cluster.phase = ClusterPhase.CLOSING
                return "nobody was asked for the last time"
        return ", ".join(one.label for one in cluster.callers.values() if not one.has_finished)

    def check(self) -> None:
        if self.cluster.phase is ClusterPhase.CLOSING and not any(
            host.is_up for host in self.world.hosts.values()
        ):
            unended = self.cluster.errands.unended(excused=self.world.crashed_lives)
            if unended:
                self.world.fail("every request ends", "\n".join(unended[:20]))

    # Convergence.

    def _differences(self) -> str:
        """The first thing that is not yet as it must be in the end."""
        expected = self._believed()
        if isinstance(expected, str):
            return expected
        for name, registry in self.cluster.registries.items():
            listed = [
                (one.service, one.endpoint, one.routing_id, one.weight)
                for providers in registry.services.values()
                for one in providers
            ]
            if problem := _difference(expected, listed):
                return f"{name} lists {problem}"
        for caller in self.cluster.callers.values():
            if problem := _difference(expected, entries(caller.discovery)):
                return f"{caller.label} shows {problem}"
            for service in sorted({entry[0] for entry in expected}):
                wanted = sorted(entry[2] for entry in expected if entry[0] == service)
                is_connected = caller.gateway.connection_count(service) > 0
                peers = sorted(caller.gateway.router(service).peers) if is_connected else []
                if peers != wanted:
                    return f"{caller.label} is connected to {peers} for {service}, not to {wanted}"
        return ""

    def _believed(self) -> list[Entry] | str:
        """The entries that the providers believe are registered, or the provider that is not done yet."""
        expected: list[Entry] = []
        for session in self.cluster.sessions.values():
            services = _registered(session) if session.is_steady else None
            if services is None:
                return f"{session.label} is not done with registering"
            expected += [
                (service, session.endpoint, session.provider.routing_id, weight)
                for service, weight in services
            ]
        return sorted(expected)

    # What runs on the registries' hosts.

    async def _keep_registry(self, host: Host) -> None:
        cluster, chance = self.cluster, host.chance
        registry = Registry(
            f"tcp://*:{PUB_PORT}",
            f"tcp://*:{ROUTER_PORT}",
            peers=[f"tcp://{name}:{PUB_PORT}" for name in REGISTRIES if name != host.name],
            registry_id=REGISTRIES.index(host.name) + 1 if cluster.has_fixed_ids else None,
            heartbeat_interval=HEARTBEAT_INTERVAL_S,
            heartbeat_timeout=HEARTBEAT_TIMEOUT_S,
            broadcast_interval=cluster.broadcast_interval_s,
            environment=host.environment.fork("registry").but(options=socket_options(chance.fork("options"))),
            name=str(host.life),
        )
        witness = ListWitness(host, cluster)
        cluster.registries[host.name] = registry
        run_number = 0
        async with (
            Sub(
                environment=host.environment.fork("witness"),
                on_messages=witness.hear,
                name=f"{host.life} witness",
            ) as sub,
            registry,
        ):
            sub.subscribe(SERVICE_LIST.to_bytes(2, "little"))
            sub.connect(f"tcp://localhost:{PUB_PORT}")
            while True:
                run_number += 1
                witness.begin(f"{host.life}.{run_number}")
                host.record(f"is registry {registry.registry_id}")
                await asyncio.sleep(chance.uniform(5.0, 60.0))
                if not cluster.is_chaotic:
                    await asyncio.Event().wait()
                host.record("stops its registry and starts it again")
                await registry.stop()
                await asyncio.sleep(_rest_s(chance))
                await registry.start()


class ListWitness:
    """Watches a registry and hears every list that it publishes."""

    def __init__(self, host: Host, cluster: Cluster) -> None:
        self._host = host
        self._cluster = cluster
        self._reader = ListReader()
        self._label = ""
        self._view = View(who="")

    def begin(self, label: str) -> None:
        """A new run of the registry, which knows nothing of the one before."""
        self._label = self._cluster.registry_labels[self._host.name] = label
        self._view = View(who=label)

    def hear(self, peer: bytes, messages: list[list[bytes]]) -> None:
        for frames in messages:
            told = self._reader.read(frames)
            if isinstance(told, ServiceList):
                self._host.record(f"tells {_shown(told)}")
                self._cluster.offers.heard_list(self._label, self._view, told)


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


def _registered(session: ProviderRun) -> list[tuple[str, int]] | None:
    """The services and weights that the provider believes registered; None while something is under way."""
    provider, found = session.provider, []
    for service in sorted(session.offers):
        registration = provider.registration(service)
        if provider.state(service) is not ProviderState.REGISTERED or registration is None:
            return None
        found.append((service, registration.weight))
    return found


def _rest_s(chance: Chance) -> float:
    return chance.choose((0.0, 0.0, chance.uniform(0.0, 2.0)))


def _difference(expected: Sequence[Entry], found: Sequence[Entry]) -> str:
    missing = [entry for entry in expected if entry not in found]
    surplus = [entry for entry in found if entry not in expected]
    if not missing and not surplus and len(found) == len(expected):
        return ""
    return f"{surplus} which nobody offers, and not {missing}"


def _shown(told: ServiceList) -> str:
    entries_told = [
        f"{service}@{one.endpoint.removeprefix('tcp://')} w{one.weight} e{one.epoch}"
        for service, providers in told.services.items()
        for one in providers
    ]
    buried = [f"{one.service}@{one.endpoint.removeprefix('tcp://')} e{one.epoch}" for one in told.tombstones]
    return f"list {told.list_seq}: {', '.join(entries_told)}; buried: {', '.join(buried)}"
