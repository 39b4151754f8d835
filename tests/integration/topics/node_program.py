"""One node in a process of its own, which does as it is told in lines of JSON: {"do": "create", ...}.

It answers each order with a line under the order's name, with `code` where it failed. Every subscription is
read at once, and books are kept: what came, in which order, what was missed. Payloads begin with a number.
What `--tell` names is told when it happens: {"event": "happened", "kind": "TopicDemoted", ...}.
"""

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa import (  # noqa: E402
    Discovery,
    HansaError,
    Spot,
    SpotEvent,
    SpotNode,
    Store,
    Subscription,
    WhenSlow,
    open_store,
)
from hansa.coordination.handover import HandoverStep  # noqa: E402
from hansa.errors import AlreadyClosed  # noqa: E402
from hansa.ids import format_id, routing_id  # noqa: E402
from hansa.limits import CLAIM_TTL_S, OUTGOING_BYTES_MAX, OUTGOING_COUNT_MAX  # noqa: E402
from hansa.runtime.loops import run  # noqa: E402
from hansa.runtime.tasks import TaskScope  # noqa: E402
from hansa.transport import Environment, SocketOptions  # noqa: E402
from tests.integration.faults.orders import orders, rss_kib, tell  # noqa: E402
from tests.support.held_store import HeldStore  # noqa: E402

STREAM_TICK_S = 0.005
FLOW_TICK_S = 0.001


class Books:
    """What one subscription got."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.numbers: list[int] = []
        self.gap_s_max = 0.0
        self._came_at = 0.0

    async def keep(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            try:
                messages = await self.subscription.recv_all()
            except AlreadyClosed:
                return
            now = clock()
            if self._came_at:
                self.gap_s_max = max(self.gap_s_max, now - self._came_at)
            self._came_at = now
            self.numbers += [int(message.payload.split(b" ", 1)[0]) for message in messages]

    def lanes(self, count: int) -> list[dict[str, Any]]:
        """Of publishers that share the numbers out among them: how many came of each, and whether all did."""
        of_each = [
            [number // count for number in self.numbers if number % count == at] for at in range(count)
        ]
        return [{"count": len(lane), "is_whole": lane == list(range(len(lane)))} for lane in of_each]

    def facts(self) -> dict[str, Any]:
        subscription, numbers = self.subscription, self.numbers
        return {
            "state": subscription.state,
            "received": len(numbers),
            "first": numbers[0] if numbers else None,
            "last": numbers[-1] if numbers else None,
            "is_in_order": all(one < other for one, other in pairwise(numbers)),
            "missed": subscription.missed_count,
            "dropped": subscription.dropped_count,
            "waiting": subscription.waiting_count,
        }


class Obeying:
    """Carries out the orders, one after another."""

    def __init__(self, node: SpotNode, spot: Spot, store: HeldStore, told: frozenset[str]) -> None:
        self._node, self._spot, self._store, self._told = node, spot, store, told
        self._books: dict[str, Books] = {}
        self._happened: Counter[str] = Counter()
        self._streaming: asyncio.Task[None] | None = None
        self._streamed_count = 0
        self._tasks = TaskScope("node program", self._failed)
        self._tasks.spawn(self._listen(), "events")

    async def obey(self) -> None:
        async for line in orders():
            order = json.loads(line)
            what = order.pop("do")
            try:
                facts = await getattr(self, f"do_{what}")(**order)
            except HansaError as error:
                facts = {"code": error.code, "text": str(error)}
            tell(what, **(facts or {}))
        await self._tasks.close()

    async def do_create(self, topic: str, retain: bool = False) -> None:
        await self._spot.create_topic(topic, retain=retain)

    async def do_create_many(self, prefix: str, count: int) -> None:
        for number in range(count):
            await self._spot.create_topic(f"{prefix}{number}")

    async def do_destroy(self, topic: str) -> None:
        await self._spot.destroy_topic(topic)

    async def do_subscribe(self, text: str, when_slow: str = "DROP_OLDEST", **bounds: int) -> None:
        subscription = await self._spot.subscribe(text, when_slow=WhenSlow[when_slow], **bounds)
        books = self._books[text] = Books(subscription)
        self._tasks.spawn(books.keep(), f"reader of {text}")

    async def do_active(self, text: str, timeout: float = 20.0) -> None:
        await self._books[text].subscription.active(timeout)

    async def do_pending(self, text: str, timeout: float = 20.0) -> None:
        await self._books[text].subscription.pending(timeout)

    async def do_publish(self, topic: str, first: int, count: int, size: int = 0) -> dict[str, Any]:
        for number in range(first, first + count):
            await self._spot.publish(topic, b"%d " % number + bytes(size))
        return {"count": count}

    async def do_stream(self, topic: str, rate: float) -> None:
        """Publish so many a second until `halt`, numbered from 0."""
        self._streaming = self._tasks.spawn(self._stream(topic, rate), f"stream of {topic}")

    async def do_halt(self) -> dict[str, Any]:
        assert self._streaming is not None
        self._streaming.cancel()
        return {"count": self._streamed_count}

    async def do_flow(self, topic: str, rate: float, lane: int, lanes: int) -> None:
        """As `stream`, by `publish`, with every so manieth number."""
        self._streaming = self._tasks.spawn(self._flow(topic, rate, lane, lanes), f"flow of {topic}")

    async def do_lanes(self, text: str, lanes: int) -> dict[str, Any]:
        return {"lanes": self._books[text].lanes(lanes)}

    async def do_gap(self, text: str) -> dict[str, Any]:
        """The longest time in which nothing came, since this was asked last."""
        books = self._books[text]
        gap_s, books.gap_s_max = books.gap_s_max, 0.0
        return {"gap_ms": gap_s * 1000}

    async def do_hand_over(self, topic: str, to: str, **settings: Any) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        source = self._spot if topic in self._spot.owned else self._node.heir
        record = await source.hand_over(topic, to, **settings)
        return {"step": record.step.value, "took_ms": (loop.time() - began_at) * 1000}

    async def do_drain(self) -> dict[str, Any]:
        moved = await self._node.drain()
        return {"moved": {topic: format_id(node) for topic, node in moved.items()}}

    async def do_books(self, text: str) -> dict[str, Any]:
        return self._books[text].facts()

    async def do_peers(self) -> dict[str, Any]:
        return {"peers": sorted(map(format_id, self._node.peers))}

    async def do_topics(self) -> dict[str, Any]:
        node = self._node
        topics = {topic: format_id(owner) for topic, owner in node.topics.items()}
        return {"topics": topics, "owned": node.owned, "wanted": node.wanted}

    async def do_stats(self) -> dict[str, Any]:
        return {
            "stats": asdict(self._node.stats),
            "rss_kib": rss_kib(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "happened": self._happened,
        }

    async def do_open(self) -> None:
        self._store.open()

    async def do_leave(self) -> None:
        await self._node.close()

    async def _stream(self, topic: str, rate: float) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while True:
            while self._streamed_count < (loop.time() - began_at) * rate:
                self._spot.post(topic, b"%d " % self._streamed_count)
                self._streamed_count += 1
            await asyncio.sleep(STREAM_TICK_S)

    async def _flow(self, topic: str, rate: float, lane: int, lanes: int) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while True:
            while self._streamed_count < (loop.time() - began_at) * rate:
                await self._spot.publish(topic, b"%d " % (self._streamed_count * lanes + lane))
                self._streamed_count += 1
            await asyncio.sleep(FLOW_TICK_S)

    async def _listen(self) -> None:
        async for event in self._node.events():
            kind = type(event).__name__
            self._happened[kind] += 1
            if kind in self._told:
                tell("happened", kind=kind, **_facts(event))

    @staticmethod
    def _failed(error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": "node program", "exception": error})


def _facts(event: SpotEvent) -> dict[str, Any]:
    """What fits into JSON: ids as people read them."""
    facts = asdict(event)
    return {name: format_id(value) if isinstance(value, bytes) else value for name, value in facts.items()}


def _tell_held(event: str, entry: str = "", **found: Any) -> None:
    tell(event, record=entry, **found)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, required=True, help="of its routing id")
    parser.add_argument("--pub", action="append", required=True)
    parser.add_argument("--router", action="append", required=True)
    parser.add_argument("--service", default="spot-node")
    parser.add_argument("--bind", default="tcp://127.0.0.1:0")
    parser.add_argument("--advertise")
    parser.add_argument("--create", action="append", default=[], help="topics to own from the beginning")
    parser.add_argument("--tell", default="", help="kinds of events, with commas between them")
    parser.add_argument("--store", default="memory://node", help="where topics are claimed with --claim-ttl")
    parser.add_argument("--claim-ttl", type=float, help="claim topics in the store, for so long")
    parser.add_argument(
        "--held", type=json.loads, default={}, help="by record, the step of a hand-over to hold until `open`"
    )
    parser.add_argument("--heartbeat-interval", type=float, default=0.1)
    parser.add_argument("--query-interval", type=float, default=30.0)
    parser.add_argument("--outgoing-count-max", type=int, default=OUTGOING_COUNT_MAX)
    parser.add_argument("--outgoing-bytes-max", type=int, default=OUTGOING_BYTES_MAX)
    arguments = parser.parse_args()
    options = SocketOptions(
        reconnect_s_min=0.02,
        reconnect_s_max=0.1,
        outgoing_count_max=arguments.outgoing_count_max,
        outgoing_bytes_max=arguments.outgoing_bytes_max,
    )
    async with (
        open_store(arguments.store) as store,
        Discovery(arguments.pub, environment=Environment(options=options)) as discovery,
    ):
        steps = {name: HandoverStep(step) for name, step in arguments.held.items()}
        held = HeldStore(store, steps, _tell_held)
        node = SpotNode(
            arguments.bind,
            arguments.router,
            discovery=discovery,
            service=arguments.service,
            advertise=arguments.advertise,
            routing_id=routing_id(arguments.number),
            heartbeat_interval=arguments.heartbeat_interval,
            query_interval=arguments.query_interval,
            store=None if arguments.claim_ttl is None else cast(Store, held),
            claim_ttl=arguments.claim_ttl or CLAIM_TTL_S,
            environment=Environment(options=options),
            name=f"node {arguments.number}",
        )
        async with node:
            spot = node.spot()
            for topic in arguments.create:
                await spot.create_topic(topic)
            await node.registered(timeout=20.0)
            tell("ready", endpoint=str(node.endpoint))
            await Obeying(node, spot, held, frozenset(arguments.tell.split(","))).obey()


if __name__ == "__main__":
    run(main())
