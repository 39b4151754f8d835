"""The programs of hosts that find providers and send them requests."""

from __future__ import annotations

import asyncio
from functools import partial

from hansa.chance import Chance
from hansa.endpoint import Endpoint
from hansa.errors import AlreadyClosed, HansaError
from hansa.limits import REPLY_S_MAX
from hansa.services.discovery import Discovery, DiscoveryEvent
from hansa.services.gateway import (
    Balancer,
    Completion,
    Gateway,
    Rendezvous,
    RetryPolicy,
    RoundRobin,
    TwoChoices,
    Weighted,
)
from hansa.testing.host import Host
from hansa.testing.scenarios.cluster import (
    POLL_S,
    PUB_PORT,
    REGISTRIES,
    SERVICES,
    Caller,
    Cluster,
    ClusterPhase,
    socket_options,
)
from hansa.testing.scenarios.cluster_books import Entry, Errand, View
from hansa.transport.connection import Connection

PAUSE_S_MAX = 0.5
# How often it is checked which providers are well while a caller waits, and the errors with which a request
# must not end if one is well all along.
WATCH_S = 0.05
PATIENCE_S = 2.0
AVOIDABLE = ("timed-out", "provider-lost", "no-provider")
STALL_PAUSE_S_MAX = 10.0
# Their replies fill the buffers between a provider and a caller that does not read.
STALLED_COUNT = 6
ALL_SERVICES = tuple(sorted({service for services in SERVICES.values() for service in services}))
# The services of more than one provider.
SHARED_SERVICES = ("alpha", "beta", "gamma")


def entries(shown: Discovery) -> list[Entry]:
    """All entries that a discovery shows."""
    return [
        (one.service, one.endpoint, one.routing_id, one.weight)
        for providers in shown.services.values()
        for one in providers
    ]


class Calling:
    """The program of one caller's host."""

    def __init__(self, host: Host, cluster: Cluster) -> None:
        self._host = host
        self._cluster = cluster
        self._label = str(host.life)
        self._view = View(who=self._label)
        self._list_seqs: dict[int, int] = {}
        self._sent: dict[int, Errand] = {}
        self._early: dict[int, Completion] = {}
        self._is_hedging = False

    async def run(self) -> None:
        """Send requests until the host is stopped."""
        host, chance = self._host, self._host.chance
        names = REGISTRIES if chance.flip(0.7) else REGISTRIES[chance.below(2) :][:2]
        discovery = Discovery(
            [f"tcp://{name}:{PUB_PORT}" for name in names],
            silence_timeout=3 * self._cluster.broadcast_interval_s,
            environment=host.environment.fork("discovery").but(
                options=socket_options(chance.fork("discovery options"))
            ),
            name=f"{self._label} discovery",
        )
        in_flight_max = chance.choose((3, 100))
        retry = chance.choose((None, RetryPolicy(tries_max=1), RetryPolicy(tries_max=5)))
        # Such a request neither waits for room nor lacks a second try.
        self._is_hedging = in_flight_max == 100 and (retry is None or retry.tries_max > 1)
        gateway = Gateway(
            discovery,
            in_flight_max=in_flight_max,
            retry=retry,
            environment=host.environment.fork("gateway").but(
                options=socket_options(chance.fork("gateway options"))
            ),
            name=f"{self._label} gateway",
        )
        balancers: tuple[Balancer, ...] = (RoundRobin(), Weighted(), TwoChoices(), Rendezvous())
        for service in ALL_SERVICES:
            gateway.set_balancer(service, chance.choose(balancers))
            discovery.subscribe(service)
        if chance.flip(0.5):
            discovery.subscribe_all()
        discovery.listen(lambda event: self._happened(discovery, event))
        async with discovery, gateway, asyncio.TaskGroup() as group:
            caller = self._cluster.callers[host.name] = Caller(self._label, discovery, gateway)
            group.create_task(self._read(gateway), name=f"{self._label} reader")
            if self._is_hedging:
                patient = self._ask_patiently(caller, chance.fork("patient calls"))
                group.create_task(patient, name=f"{self._label} patient")
            group.create_task(
                self._stall(gateway, group, chance.fork("stalls")), name=f"{self._label} stalls"
            )
            await self._live(caller, group, chance.fork("calls"))

    async def _live(self, caller: Caller, group: asyncio.TaskGroup, chance: Chance) -> None:
        cluster, gateway = self._cluster, caller.gateway
        while cluster.is_chaotic:
            await asyncio.sleep(chance.uniform(0.0, PAUSE_S_MAX))
            self._look(caller.discovery)
            for _ in range(chance.choose((1, 1, 3))):
                errand = cluster.errands.open(
                    self._label, chance.choose(ALL_SERVICES), idempotent=chance.flip(0.4)
                )
                timeout_s = chance.choose((0.05, 0.5, 3.0))
                match chance.choose(("ask", "ask", "ask", "impatient", "submit", "send")):
                    case "ask":
                        group.create_task(self._ask(gateway, errand, timeout_s), name=f"{errand}")
                    case "impatient":
                        patience_s = chance.uniform(0.0, PAUSE_S_MAX)
                        group.create_task(
                            self._ask_impatiently(gateway, errand, timeout_s, patience_s), name=f"{errand}"
                        )
                    case "submit":
                        self._submit(gateway, errand, timeout_s)
                    case "send":
                        group.create_task(self._send(gateway, errand, timeout_s), name=f"{errand}")
        while cluster.phase is ClusterPhase.CALM:
            await asyncio.sleep(POLL_S)
            self._look(caller.discovery)
        while cluster.phase is ClusterPhase.ROLLING:
            await asyncio.sleep(chance.uniform(0.0, 0.1))
            await self._ask_surely(gateway, chance.choose(self._shared_services()))
        for service in caller.discovery.services:
            await self._ask_surely(gateway, service)
        caller.has_finished = True
        await asyncio.Event().wait()

    def _shared_services(self) -> tuple[str, ...]:
        """Services that do not depend on the provider that leaves."""
        staying = [s for name, s in self._cluster.sessions.items() if name != self._cluster.leaver]
        return tuple(sorted({service for session in staying for service in session.offers}))

    # Ways to ask.

    async def _stall(self, gateway: Gateway, group: asyncio.TaskGroup, chance: Chance) -> None:
        """Now and then send much without a deadline, and do not read for longer than a provider waits."""
        while True:
            await asyncio.sleep(chance.uniform(0.0, STALL_PAUSE_S_MAX))
            service = chance.choose(ALL_SERVICES)
            if not self._cluster.is_chaotic:
                return
            if not gateway.connection_count(service):
                continue
            providers = [name for name, services in SERVICES.items() if service in services]
            ends = [
                end for name in providers for end in self._cluster.world.network.ends(self._host.name, name)
            ]
            # Not the streams themselves: from its paused reader a connection knows that its own silence
            # proves nothing.
            readers = [one for end in ends if isinstance(one := end.get_protocol(), Connection)]
            for _ in range(STALLED_COUNT):
                errand = self._cluster.errands.open(self._label, service, idempotent=False, is_large=True)
                group.create_task(self._ask(gateway, errand, None), name=f"{errand}")
            self._host.record(f"reads nothing of {service}")
            self._cluster.unread.update(providers)
            for reader in readers:
                reader.pause_reading()
            await asyncio.sleep(chance.uniform(REPLY_S_MAX, 2 * REPLY_S_MAX))
            self._cluster.unread.subtract(providers)
            self._host.record(f"reads {service} again")
            for reader in readers:
                reader.resume_reading()

    async def _ask(self, gateway: Gateway, errand: Errand, timeout_s: float | None) -> None:
        self._host.record(f"asks {errand}{', idempotent' if errand.idempotent else ''}, {timeout_s} s")
        try:
            parts = await gateway.request(
                errand.service,
                errand.payload,
                timeout=timeout_s,
                idempotent=errand.idempotent,
                key=str(errand.number),
            )
        except HansaError as error:
            self._failed(errand, error)
        except asyncio.CancelledError:
            self._cluster.errands.given_up(errand)
            raise
        else:
            self._replied(errand, parts)

    async def _ask_impatiently(
        self, gateway: Gateway, errand: Errand, timeout_s: float, patience_s: float
    ) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await self._ask(gateway, errand, timeout_s)
        except TimeoutError:
            self._host.record(f"gave up {errand}")

    async def _ask_patiently(self, caller: Caller, chance: Chance) -> None:
        """Send idempotent requests with time enough for all tries, one after the other."""
        while self._cluster.is_chaotic:
            await asyncio.sleep(chance.uniform(0.0, PAUSE_S_MAX))
            service = chance.choose(SHARED_SERVICES)
            errand = self._cluster.errands.open(self._label, service, idempotent=True)
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(
                    self._ask(caller.gateway, errand, PATIENCE_S), name=f"{errand}, patiently"
                )
                await self._judge(caller, errand, asking)

    async def _judge(self, caller: Caller, errand: Errand, asking: asyncio.Task[None]) -> None:
        """The request must not fail if a provider was well all the while."""
        well, loop = self._well(caller, errand.service), asyncio.get_running_loop()
        while well and not asking.done():
            looked_at = loop.time()
            await asyncio.wait({asking}, timeout=WATCH_S)
            is_excused = loop.time() - looked_at > 2 * WATCH_S  # This host itself stood still.
            well = set() if is_excused else well & self._well(caller, errand.service)
        if well and errand.outcome in AVOIDABLE:
            self._cluster.world.fail(
                "no idempotent request fails that has a well provider",
                f"{errand} of {self._label} ended as {errand.outcome}; {sorted(well)} was well",
            )

    def _well(self, caller: Caller, service: str) -> set[tuple[str, int]]:
        """Hosts of providers that this caller could ask now: up, connected, and no fault between.

        With each, how often it was too busy: one that refuses a request meanwhile is not well.
        """
        world, here = self._cluster.world, self._host.name
        connected = caller.gateway.router(service).peers
        hosts = {
            Endpoint.parse(one.endpoint).host
            for one in caller.discovery.providers(service)
            if one.routing_id in connected
        }
        return {
            (name, self._cluster.sessions[name].provider.stats.busy_count)
            for name in hosts
            if name in self._cluster.sessions
            and not self._cluster.unread[name]
            and world.hosts[name].is_up
            and not world.hosts[name].is_paused
            and all(
                not world.network.is_cut(*way) and world.network.rate(*way) is None
                for way in ((here, name), (name, here))
            )
        }

    async def _ask_surely(self, gateway: Gateway, service: str) -> None:
        errand = self._cluster.errands.open(self._label, service, idempotent=False)
        await self._ask(gateway, errand, 5.0)
        if errand.outcome not in ("a reply", "given up"):
            self._cluster.world.fail(
                "no request fails that has a living provider", f"{errand} ended as {errand.outcome}"
            )

    def _submit(self, gateway: Gateway, errand: Errand, timeout_s: float) -> None:
        self._host.record(f"submits {errand}")
        try:
            gateway.submit(
                errand.service,
                errand.payload,
                partial(self._completed, errand),
                timeout=timeout_s,
                idempotent=errand.idempotent,
            )
        except HansaError as error:
            self._failed(errand, error)

    async def _send(self, gateway: Gateway, errand: Errand, timeout_s: float) -> None:
        self._host.record(f"sends {errand}")
        try:
            request_id = await gateway.send(
                errand.service, errand.payload, timeout=timeout_s, idempotent=errand.idempotent
            )
        except HansaError as error:
            self._failed(errand, error)
            return
        except asyncio.CancelledError:
            self._cluster.errands.given_up(errand)
            raise
        self._sent[request_id] = errand
        if (completion := self._early.pop(request_id, None)) is not None:
            self._received(completion)

    async def _read(self, gateway: Gateway) -> None:
        try:
            while True:
                completion = await gateway.recv()
                if completion.request_id in self._sent:
                    self._received(completion)
                else:
                    # It came before the call that sent the request had returned.
                    self._early[completion.request_id] = completion
        except AlreadyClosed:
            return
        finally:
            # An unread completion of a gateway that closes is an outcome that nobody hears.
            for errand in self._sent.values():
                self._cluster.errands.given_up(errand)

    # How a request ended.

    def _received(self, completion: Completion) -> None:
        self._completed(self._sent.pop(completion.request_id), completion)

    def _completed(self, errand: Errand, completion: Completion) -> None:
        if completion.error is not None:
            self._failed(errand, completion.error)
        else:
            self._replied(errand, completion.parts)

    def _replied(self, errand: Errand, parts: list[bytes]) -> None:
        self._host.record(f"got the reply to {errand}")
        self._cluster.errands.replied(errand, parts)

    def _failed(self, errand: Errand, error: HansaError) -> None:
        self._host.record(f"{errand} failed: {error.code}")
        self._cluster.errands.failed(errand, error)

    # What is shown.

    def _happened(self, discovery: Discovery, event: DiscoveryEvent) -> None:
        self._host.record(_line(event))
        self._look(discovery)

    def _look(self, discovery: Discovery) -> None:
        for registry_id, list_seq in discovery.lists_heard.items():
            former = self._list_seqs.get(registry_id, -1)
            if list_seq < former:
                self._cluster.world.fail(
                    "a discovery goes by the newest list",
                    f"{self._label} goes by list {list_seq} of registry {registry_id}, after {former}",
                )
            self._list_seqs[registry_id] = list_seq
        self._cluster.offers.heard_lists(self._view, discovery.lists_heard)
        self._cluster.offers.look(self._view, entries(discovery))


def _line(event: DiscoveryEvent) -> str:
    fields = [f"{name}={getattr(event, name)!s}" for name in type(event).__dataclass_fields__]
    return f"{type(event).__name__} {' '.join(fields)}"
