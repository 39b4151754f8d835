"""The processes of the demo: registries, providers, nodes of topics, and a client that calls and counts.

Each is started as `python -m hansa.demo.cast ROLE SETTINGS`; `acting` says how it takes orders and reports.

The client's books: a request is open from the call until its one outcome, an answer or a failure. The client
marks its requests as idempotent, so that one whose provider was killed goes to another.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterable
from time import perf_counter

from hansa import Discovery, Gateway, HansaError, Provider, ProviderInfo, Registry, Request
from hansa.demo.acting import (
    BROADCAST_INTERVAL_S,
    ENVIRONMENT,
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_TIMEOUT_S,
    START_S_MAX,
    TICK_S,
    Facts,
    Orders,
    Reporter,
    act,
)
from hansa.demo.latencies import Latencies
from hansa.demo.node import play_node
from hansa.runtime.loops import run

SERVICE = "greeter"


async def play_registry(settings: Facts) -> None:
    """A registry, under the same id in every life."""
    registry = Registry(
        settings["pub"],
        settings["router"],
        peers=settings["peers"],
        registry_id=settings["number"],
        heartbeat_interval=HEARTBEAT_INTERVAL_S,
        heartbeat_timeout=HEARTBEAT_TIMEOUT_S,
        broadcast_interval=BROADCAST_INTERVAL_S,
        environment=ENVIRONMENT,
    )

    def state() -> Facts:
        return {
            "peers_heard": registry.peers_heard,
            "listed": listing(registry.services.get(SERVICE, ())),
        }

    def numbers() -> Facts:
        return {"broadcasts_count": registry.stats.broadcasts_count}

    async with registry:
        await act(Orders(), Reporter(state, numbers).report())


async def play_provider(settings: Facts) -> None:
    """A provider that greets, under a new routing id in every life."""
    provider = Provider(
        settings["bind"],
        settings["registries"],
        heartbeat_interval=HEARTBEAT_INTERVAL_S,
        environment=ENVIRONMENT,
    )

    @provider.handler()
    async def greet(request: Request) -> bytes:
        return b"hello, " + request.payload

    def state() -> Facts:
        return {
            "endpoint": str(provider.endpoint),
            "id": provider.routing_id.hex(),
            "registry": provider.registry,
            "state": provider.state(SERVICE).value,
        }

    def numbers() -> Facts:
        return {"answered_count": provider.stats.replied_count}

    async with provider:
        await provider.register(SERVICE)
        await act(Orders(), Reporter(state, numbers).report())


class Books:
    """What the client asked, and what came of it."""

    def __init__(self) -> None:
        self.asked_count = 0
        self.answered_count = 0
        self.failed: dict[str, int] = {}
        self.latencies = Latencies()
        self.asking = True

    async def ask(self, gateway: Gateway, payload: bytes) -> None:
        """One question after the other, until told to stop."""
        while self.asking:
            self.asked_count += 1
            asked_at = perf_counter()
            try:
                await gateway.request(SERVICE, payload, idempotent=True)
            except HansaError as error:
                self.failed[error.code] = self.failed.get(error.code, 0) + 1
                await asyncio.sleep(TICK_S)  # A failure is counted; a thousand a second would be no news.
            else:
                self.answered_count += 1
                self.latencies.note(perf_counter() - asked_at)

    def numbers(self) -> Facts:
        """Since the start, and the latencies since the last report."""
        facts = {
            "asked_count": self.asked_count,
            "answered_count": self.answered_count,
            "failed": dict(self.failed),
            "latencies": self.latencies.as_json(),
        }
        self.latencies.clear()
        return facts


async def play_client(settings: Facts) -> None:
    """Call until told to stop, then wait for the last outcomes, and tell the final numbers."""
    discovery = Discovery(
        settings["registries"], silence_timeout=3 * BROADCAST_INTERVAL_S, environment=ENVIRONMENT
    )
    discovery.subscribe(SERVICE)
    async with discovery, Gateway(discovery, environment=ENVIRONMENT) as gateway:
        books = Books()

        def state() -> Facts:
            return {
                "registries_heard": discovery.registries_heard,
                "listed": listing(discovery.providers(SERVICE)),
                "connections_count": gateway.connection_count(SERVICE),
            }

        def numbers() -> Facts:
            return {"retried_count": gateway.stats.retried_count, **books.numbers()}

        reporter, orders = Reporter(state, numbers), Orders()
        await discovery.wait_available(SERVICE, timeout=START_S_MAX)
        async with asyncio.TaskGroup() as group:
            payload = bytes(settings["payload_bytes"])
            asking = [
                group.create_task(books.ask(gateway, payload), name=f"asker {number}")
                for number in range(settings["in_flight_count"])
            ]
            await act(orders, reporter.report())
            books.asking = False
            if orders.end.is_set():
                for task in asking:
                    task.cancel()
        reporter.tell(done=True)


def listing(providers: Iterable[ProviderInfo]) -> dict[str, str]:
    """Endpoints with the routing ids behind them."""
    return {provider.endpoint: provider.routing_id.hex() for provider in providers}


ROLES = {"registry": play_registry, "provider": play_provider, "client": play_client, "node": play_node}


def main(arguments: list[str]) -> None:
    # Ctrl-C reaches every process of the terminal; the demo itself decides how its cast ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    role, settings = arguments
    run(ROLES[role](json.loads(settings)))


if __name__ == "__main__":
    main(sys.argv[1:])
