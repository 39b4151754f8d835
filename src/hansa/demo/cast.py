"""The cast: the demo's processes, which are registries, providers, a client that calls, and nodes of topics.

Each is started as `python -m hansa.demo.cast ROLE SETTINGS`. It reports its state on stdout as lines of JSON,
and obeys what it reads from stdin: "go" means begin, "stop" means begin nothing more, and the end of stdin
means end at once, so that no process outlives a killed demo.

The client's books: a request is open from the call until its one outcome, an answer or a failure. The client
marks its requests as idempotent, so that one whose provider was killed goes to another.

Node N owns the topics `zone:N:state` and `zone:N:events`, and publishes there. Node 2 also owns `chat`, where
every node publishes, the others through node 2. A reader takes all messages of all topics as they come. One
node has a second reader that is slow on purpose: it reads now and then from a small queue, so most of its
messages are dropped, and their number is known exactly. `books` counts everything, and hansa does so
independently.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any

from hansa import (
    Discovery,
    Gateway,
    HansaError,
    NoOwner,
    Provider,
    ProviderInfo,
    Registry,
    Request,
    Spot,
    SpotNode,
    Subscription,
    SubscriptionActivated,
    SubscriptionSuspended,
)
from hansa.demo.books import Latencies, ReaderLedger, stream_name, write_message
from hansa.runtime.loops import run
from hansa.topics import SubscriptionState
from hansa.transport import Environment, SocketOptions

SERVICE = "greeter"
ZONES = "zone:*"
CHAT = "chat"
CHAT_OWNER = 2
PUBLISH_INTERVAL_S = 0.01
# The slow reader: how often it reads, and how many messages wait for it.
SLOW_INTERVAL_S = 0.5
SLOW_COUNT_MAX = 100

# A change is reported within a tick, everything else now and then.
TICK_S = 0.02
START_S_MAX = 60.0
REPORT_INTERVAL_S = 0.25
# Short, so that a few seconds show a whole recovery.
HEARTBEAT_INTERVAL_S = 0.5
HEARTBEAT_TIMEOUT_S = 2.0
BROADCAST_INTERVAL_S = 2.0
ENVIRONMENT = Environment(options=SocketOptions(reconnect_s_min=0.05, reconnect_s_max=0.5))

Facts = dict[str, Any]


# ---- orders and reports ------------------------------------------------------------------------------------


class Orders:
    """The orders from stdin: the words set `go` and `stop`, the end of the stream sets `end`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.stop = asyncio.Event()
        self.end = asyncio.Event()

    async def read(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        words = {b"go": self.go, b"stop": self.stop}
        try:
            while line := await reader.readline():
                if order := words.get(line.strip()):
                    order.set()
            self.end.set()
        finally:
            transport.close()


class Reporter:
    """Reports `state` as soon as it changes, and `state` with `numbers` at intervals."""

    def __init__(self, state: Callable[[], Facts], numbers: Callable[[], Facts]) -> None:
        self._state = state
        self._numbers = numbers

    def tell(self, **more: Any) -> None:
        """Write one line of JSON for the parent process."""
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


async def act(
    orders: Orders, *steps: Coroutine[Any, Any, None], until: tuple[asyncio.Event, ...] | None = None
) -> None:
    """Run the steps, all at once, until stdin says "stop" or ends, or sets the other event waited for."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(step, name="act") for step in (*steps, orders.read())]
        events = (orders.stop, orders.end) if until is None else until
        waits = [group.create_task(event.wait(), name="wait") for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, *waits):
            task.cancel()


# ---- services ----------------------------------------------------------------------------------------------


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
        return {"peers_heard": registry.peers_heard, "listed": listing(registry.services.get(SERVICE, ()))}

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
    """The client's requests and their outcomes."""

    def __init__(self) -> None:
        self.asked_count = 0
        self.answered_count = 0
        self.failed: dict[str, int] = {}
        self.latencies = Latencies()
        self.asking = True

    async def ask(self, gateway: Gateway, payload: bytes) -> None:
        """Ask one question after the other, until told to stop."""
        while self.asking:
            self.asked_count += 1
            asked_at = perf_counter()
            try:
                await gateway.request(SERVICE, payload, idempotent=True)
            except HansaError as error:
                self.failed[error.code] = self.failed.get(error.code, 0) + 1
                await asyncio.sleep(TICK_S)  # A failure is counted; a thousand a second would add nothing.
            else:
                self.answered_count += 1
                self.latencies.note(perf_counter() - asked_at)

    def numbers(self) -> Facts:
        """Counts since the start, and the latencies since the last report."""
        facts = {
            "asked_count": self.asked_count,
            "answered_count": self.answered_count,
            "failed": dict(self.failed),
            "latencies": self.latencies.as_json(),
        }
        self.latencies.clear()
        return facts


async def play_client(settings: Facts) -> None:
    """Call until told to stop, then wait for the last outcomes, and report the final numbers."""
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


# ---- topics ------------------------------------------------------------------------------------------------


def owned_topics(number: int) -> list[str]:
    """The topics that the node of this number owns."""
    return [f"zone:{number}:state", f"zone:{number}:events", *([CHAT] if number == CHAT_OWNER else [])]


def published_topics(number: int) -> list[str]:
    """The topics to which it publishes."""
    return list(dict.fromkeys([*owned_topics(number), CHAT]))


class Publisher:
    """Numbers messages and publishes them, to all topics in turn."""

    def __init__(self, spot: Spot, source: str, topics: list[str]) -> None:
        self.published = dict.fromkeys(topics, 0)
        self.is_quiet = False
        """Whether it has stopped publishing, so that its numbers are final."""
        self._spot = spot
        self._source = source

    async def publish(self, orders: Orders) -> None:
        """Publish from "go" to "stop"."""
        await orders.go.wait()
        while not orders.stop.is_set():
            for topic in self.published:
                message = write_message(self._source, self.published[topic] + 1, monotonic())
                with suppress(NoOwner):
                    await self._spot.publish(topic, message)
                    self.published[topic] += 1
            await asyncio.sleep(PUBLISH_INTERVAL_S)
        self.is_quiet = True

    def numbers(self) -> dict[str, int]:
        return {stream_name(topic, self._source): count for topic, count in self.published.items()}


class TopicReader:
    """Reads its subscriptions and keeps its ledger, as fast as it can or once in `interval_s`."""

    def __init__(self, spot: Spot, subscriptions: list[Subscription], interval_s: float = 0.0) -> None:
        self.subscriptions = subscriptions
        self.ledger = ReaderLedger()
        self.latencies = Latencies()
        self._spot = spot
        self._interval_s = interval_s

    async def read(self) -> None:
        while True:
            messages = await self._spot.recv_all()
            now = monotonic()
            for message in messages:
                self.latencies.note(now - self.ledger.note(message.topic, message.payload))
            await asyncio.sleep(self._interval_s)

    def numbers(self) -> Facts:
        return {
            "wants": [subscription.text for subscription in self.subscriptions],
            "streams": self.ledger.as_json(),
            "received_count": self.ledger.received_count,
            "unordered_count": self.ledger.unordered_count,
            "missed_count": sum(subscription.missed_count for subscription in self.subscriptions),
            "dropped_count": sum(subscription.dropped_count for subscription in self.subscriptions),
        }


class HandOvers:
    """The longest time that a topic had no owner, from suspended to active again."""

    def __init__(self) -> None:
        self.longest_s: float | None = None
        self._suspended_at: dict[str, float] = {}

    async def follow(self, spot: Spot) -> None:
        async for event in spot.events():
            match event:
                case SubscriptionSuspended(topic=topic):
                    self._suspended_at[topic] = monotonic()
                case SubscriptionActivated(topic=topic) if topic in self._suspended_at:
                    elapsed_s = monotonic() - self._suspended_at.pop(topic)
                    self.longest_s = max(elapsed_s, self.longest_s or 0.0)


async def play_node(settings: Facts) -> None:
    """Own, subscribe, and read at once; publish between "go" and "stop"; report until the end."""
    number, life = settings["number"], settings["life"]
    discovery = Discovery(settings["pubs"], silence_timeout=3 * BROADCAST_INTERVAL_S, environment=ENVIRONMENT)
    node = SpotNode(
        settings["bind"],
        settings["registries"],
        discovery=discovery,
        heartbeat_interval=HEARTBEAT_INTERVAL_S,
        environment=ENVIRONMENT,
    )
    async with discovery, node, node.spot() as owner, node.spot() as spot, node.spot() as slow_spot:
        await node.registered(START_S_MAX)
        reader = TopicReader(spot, [await spot.subscribe(ZONES), await spot.subscribe(CHAT)])
        readers = {"reader": reader}
        if settings["has_slow_reader"]:
            subscription = await slow_spot.subscribe(ZONES, count_max=SLOW_COUNT_MAX)
            readers["slow reader"] = TopicReader(slow_spot, [subscription], SLOW_INTERVAL_S)
        hand_overs = HandOvers()
        for topic in owned_topics(number):
            await owner.create_topic(topic)
        publisher = Publisher(owner, f"{number}.{life}", published_topics(number))
        orders = Orders()

        def state() -> Facts:
            active = [
                topic
                for subscription in reader.subscriptions
                for topic, state in subscription.topics.items()
                if state is SubscriptionState.ACTIVE
            ]
            return {
                "id": node.routing_id.hex(),
                "peers": sorted(peer.hex() for peer in node.peers),
                "active": sorted(active),
                "handover_s": hand_overs.longest_s,
                "is_quiet": publisher.is_quiet,
            }

        def numbers() -> Facts:
            facts = {
                "published": publisher.numbers(),
                "readers": {name: one.numbers() for name, one in readers.items()},
                "latencies": reader.latencies.as_json(),
            }
            reader.latencies.clear()
            return facts

        reading = (one.read() for one in readers.values())
        report = Reporter(state, numbers).report()
        await act(
            orders,
            *(report, publisher.publish(orders), hand_overs.follow(spot), *reading),
            until=(orders.end,),
        )


# ---- which of them -----------------------------------------------------------------------------------------

ROLES = {"registry": play_registry, "provider": play_provider, "client": play_client, "node": play_node}


def main(arguments: list[str]) -> None:
    # Ctrl-C reaches every process of the terminal; the demo itself decides how its cast ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    role, settings = arguments
    run(ROLES[role](json.loads(settings)))


if __name__ == "__main__":
    main(sys.argv[1:])
