"""A node of the demo's topic mesh: it owns topics, publishes, and reads everything.

Node N owns `zone:N:state` and `zone:N:events`, and publishes there. Node 2 also owns `chat`, where every node
publishes, the others through node 2. A reader takes all messages of all topics as they come. One node has a
second reader that is slow on purpose: it reads now and then from a small queue, so most of its messages are
dropped, and how many is known exactly. Everything is counted by `ledger`, and independently by hansa.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic

from hansa import (
    Discovery,
    NoOwner,
    Spot,
    SpotNode,
    Subscription,
    SubscriptionActivated,
    SubscriptionSuspended,
)
from hansa.demo.acting import (
    BROADCAST_INTERVAL_S,
    ENVIRONMENT,
    HEARTBEAT_INTERVAL_S,
    START_S_MAX,
    Facts,
    Orders,
    Reporter,
    act,
)
from hansa.demo.latencies import Latencies
from hansa.demo.ledger import ReaderLedger, stream_name, write_message
from hansa.topics import SubscriptionState

ZONES = "zone:*"
CHAT = "chat"
CHAT_OWNER = 2
PUBLISH_INTERVAL_S = 0.01
# The slow reader: how often it looks, and how many messages wait for it.
SLOW_INTERVAL_S = 0.5
SLOW_COUNT_MAX = 100


def owned_topics(number: int) -> list[str]:
    """What the node of this number owns."""
    return [f"zone:{number}:state", f"zone:{number}:events", *([CHAT] if number == CHAT_OWNER else [])]


def published_topics(number: int) -> list[str]:
    """Where it publishes."""
    return list(dict.fromkeys([*owned_topics(number), CHAT]))


class Publisher:
    """Numbers and publishes, to all topics in turn."""

    def __init__(self, spot: Spot, source: str, topics: list[str]) -> None:
        self.published = dict.fromkeys(topics, 0)
        self.is_quiet = False
        """It publishes nothing more: its numbers are final."""
        self._spot = spot
        self._source = source

    async def publish(self, orders: Orders) -> None:
        """From "go" to "stop"."""
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
    """How long topics had no owner, from suspended to active again: the longest."""

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
