"""A topic goes from process to process under load: nothing is lost, doubled or out of order."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from hansa.ids import format_id, routing_id
from tests.support.discovery_cast import WITHIN_S
from tests.support.store_process import StoreProcess
from tests.support.topics_cast import TopicCast
from tests.support.topics_processes import NodeProcess

ROOM = "chat:room1"
OWNERS = (3, 70)
PUBLISHERS = (20, 60)
SUBSCRIBERS = (10, 30, 50, 80)
RATE = 20_000.0
MOVES_COUNT = 6

pytestmark = [pytest.mark.timeout(90)]


async def _all(nodes: list[NodeProcess], order: str, **arguments: Any) -> list[dict[str, Any]]:
    return list(await asyncio.gather(*(node.do(order, **arguments) for node in nodes)))


@pytest.mark.spec("OWN-03")
async def test_a_topic_moves_under_load_and_nobody_loses_doubles_or_reorders_anything(tmp_path: Path) -> None:
    with StoreProcess(tmp_path) as store:
        async with TopicCast() as cast, AsyncExitStack() as stack, asyncio.timeout(4 * WITHIN_S):
            registry = await cast.registry()
            where = str(registry.pub), str(registry.router)
            nodes = {
                number: await stack.enter_async_context(
                    NodeProcess(number, *where, store=f"etcd://{store.address}", claim_ttl=10.0)
                )
                for number in (*OWNERS, *PUBLISHERS, *SUBSCRIBERS)
            }
            for node in nodes.values():
                await node.ready()
            owners = [nodes[number] for number in OWNERS]
            publishers = [nodes[number] for number in PUBLISHERS]
            subscribers = [nodes[number] for number in SUBSCRIBERS]
            assert await owners[0].do("create", topic=ROOM) == {"event": "create"}
            bounds = {"count_max": 1_000_000, "bytes_max": 1 << 30}
            await _all(subscribers, "subscribe", text=ROOM, **bounds)
            await _all(subscribers, "active", text=ROOM)
            count = len(publishers)
            for lane, node in enumerate(publishers):
                await node.do("flow", topic=ROOM, rate=RATE / count, lane=lane, lanes=count)
            await asyncio.sleep(0.5)
            pauses_ms = []
            for turn in range(MOVES_COUNT):
                await _all(subscribers, "gap", text=ROOM)
                source, target = owners[turn % 2], OWNERS[1 - turn % 2]
                moved = await source.do("hand_over", topic=ROOM, to=format_id(routing_id(target)))
                assert moved["step"] in ("taken", "done"), moved
                await asyncio.sleep(0.2)
                pauses_ms += [facts["gap_ms"] for facts in await _all(subscribers, "gap", text=ROOM)]
            published = [facts["count"] for facts in await _all(publishers, "halt")]
            async with asyncio.timeout(WITHIN_S):
                while any(
                    [lane["count"] for lane in facts["lanes"]] < published
                    for facts in await _all(subscribers, "lanes", text=ROOM, lanes=count)
                ):
                    await asyncio.sleep(0.05)
            for facts in await _all(subscribers, "lanes", text=ROOM, lanes=count):
                assert facts["lanes"] == [{"count": each, "is_whole": True} for each in published]
            for facts in await _all(list(nodes.values()), "stats"):
                stats, happened = facts["stats"], facts["happened"]
                assert (stats["missed_count"], stats["dropped_count"], stats["refused_count"]) == (0, 0, 0)
                assert "SubscriptionSuspended" not in happened
                assert "TopicLost" not in happened
                assert happened["TopicMoved"] == MOVES_COUNT
            median_ms, worst_ms = quantiles(pauses_ms, n=100)[49], quantiles(pauses_ms, n=100)[98]
            print(f"published {sum(published):,}; pause p50 {median_ms:.1f} ms, p99 {worst_ms:.1f} ms")
            assert worst_ms < 5_000.0
