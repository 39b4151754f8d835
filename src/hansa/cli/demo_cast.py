"""The processes of the demo: registries, providers, and a client that calls and keeps the books.

Each is started as `python -m hansa.cli.demo_cast ROLE SETTINGS`, tells its state on stdout as lines of JSON,
and does what it reads from stdin: "stop" means ask nothing more and end when everything has its outcome; the
end of stdin means end at once, so that nothing outlives a demo that was killed.

The books: a request is open from the moment it is asked until its one outcome, which is an answer or a
failure. The client marks its requests idempotent, so that one whose provider was killed goes to another.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from time import perf_counter
from typing import Any

from hansa import Discovery, Gateway, HansaError, Provider, ProviderInfo, Registry, Request
from hansa.cli.fast_loop import run
from hansa.cli.latencies import Latencies
from hansa.transport import SocketOptions

SERVICE = "greeter"
# A change is told within a tick, everything else now and then.
TICK_S = 0.02
START_S_MAX = 20.0
REPORT_INTERVAL_S = 0.25
# Short, so that a few seconds show a whole recovery.
HEARTBEAT_INTERVAL_S = 0.5
HEARTBEAT_TIMEOUT_S = 2.0
BROADCAST_INTERVAL_S = 2.0
OPTIONS = SocketOptions(reconnect_s_min=0.05, reconnect_s_max=0.5)

Facts = dict[str, Any]


class Orders:
    """What stdin says: `stop` is set by the word, `end` by the end of the stream."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.end = asyncio.Event()

    async def read(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        try:
            while line := await reader.readline():
                if line.strip() == b"stop":
                    self.stop.set()
            self.end.set()
        finally:
            transport.close()


class Reporter:
    """Tells `state` as soon as it changes, and `state` with `numbers` every so often."""

    def __init__(self, state: Callable[[], Facts], numbers: Callable[[], Facts]) -> None:
        self._state = state
        self._numbers = numbers

    def tell(self, **more: Any) -> None:
        """One line of JSON to whoever started this process."""
        print(json.dumps({"pid": os.getpid(), **self._state(), **self._numbers(), **more}), flush=True)

    async def report(self) -> None:
        told: Facts = {}
        told_at = 0.0
        while True:
            now, state = perf_counter(), self._state()
            if state != told or now - told_at >= REPORT_INTERVAL_S:
                told, told_at = state, now
                self.tell()
            await asyncio.sleep(TICK_S)


async def play_registry(settings: Facts) -> None:
    """A registry, under the same id in every life."""
    registry = Registry(
        settings["pub"],
        settings["router"],
        peers=settings["peers"],
        registry_id=settings["number"],
        heartbeat_interval_s=HEARTBEAT_INTERVAL_S,
        heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
        broadcast_interval_s=BROADCAST_INTERVAL_S,
        options=OPTIONS,
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
        heartbeat_interval_s=HEARTBEAT_INTERVAL_S,
        options=OPTIONS,
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
    discovery = Discovery(settings["registries"], silence_s=3 * BROADCAST_INTERVAL_S, options=OPTIONS)
    discovery.subscribe(SERVICE)
    async with discovery, Gateway(discovery, options=OPTIONS) as gateway:
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


async def act(orders: Orders, report: Coroutine[Any, Any, None]) -> None:
    """Report until stdin says "stop" or ends."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(step, name="act") for step in (report, orders.read())]
        waits = [group.create_task(event.wait(), name="wait") for event in (orders.stop, orders.end)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, *waits):
            task.cancel()


ROLES = {"registry": play_registry, "provider": play_provider, "client": play_client}


def main(arguments: list[str]) -> None:
    # Ctrl-C reaches every process of the terminal; the demo itself decides how its cast ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    role, settings = arguments
    run(ROLES[role](json.loads(settings)))


if __name__ == "__main__":
    main(sys.argv[1:])
