"""What is lost between nodes is known exactly: stopped processes, cut connections, owners that come back."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from hansa import Registry, Spot
from hansa.topics import MessagesMissed, SubscriptionState
from hansa.transport import SocketOptions
from tests.support.discovery_cast import OPTIONS, WITHIN_S, until
from tests.support.reserved_ports import reserved_endpoints
from tests.support.tcp_proxy import TcpProxy
from tests.support.topics_cast import TopicCast, meshed, numbered, payloads, waiting
from tests.support.topics_processes import NodeProcess
from tests.support.topics_wire import ANNOUNCE, REMOVE, WirePeer, mark, message

FLOOD = "flood"
MIB = 1024 * 1024
# More than the kernel holds for a process that is stopped (about 10 MiB) and the owner's bound together.
SIZE_BYTES = 16 * 1024
BATCH, BATCHES = 64, 40
BOUNDED: SocketOptions = replace(OPTIONS, outgoing_bytes_max=4 * MIB)

pytestmark = pytest.mark.timeout(100)


async def publish(spot: Spot, topic: str, first: int, count: int, size: int = 0) -> None:
    for number in range(first, first + count):
        await spot.publish(topic, b"%d " % number + bytes(size))


async def eventually(ask: Callable[[], Awaitable[dict[str, Any]]], **wanted: Any) -> dict[str, Any]:
    """Ask again and again until the answer has these facts."""
    told: dict[str, Any] = {}
    try:
        async with asyncio.timeout(WITHIN_S):
            while not wanted.items() <= (told := await ask()).items():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{wanted} is not in {told}") from None
    return told


@pytest.mark.spec("SPT-21")
@pytest.mark.spec("SPT-22")
async def test_one_stopped_node_among_four_learns_what_it_missed_and_the_others_lose_nothing() -> None:
    async with TopicCast() as cast, AsyncExitStack() as stack, asyncio.timeout(80):
        registry = await cast.registry(heartbeat_timeout=60.0)
        home = await cast.node(registry, 5, options=BOUNDED)
        owner = home.spot()
        await owner.create_topic(FLOOD)
        nodes = [
            await stack.enter_async_context(NodeProcess(number, str(registry.pub), str(registry.router)))
            for number in (1, 8, 9)
        ]
        for node in nodes:
            await node.ready()
            await node.do("subscribe", text=FLOOD)
            assert "code" not in await node.do("active", text=FLOOD)
        stopped, *running = nodes
        await publish(owner, FLOOD, 0, 10)
        await eventually(lambda: stopped.books(FLOOD), received=10)
        stopped.freeze()
        published = 10
        for _ in range(BATCHES):
            await publish(owner, FLOOD, published, BATCH, SIZE_BYTES)
            published += BATCH
            for node in running:
                await eventually(lambda node=node: node.books(FLOOD), received=published)  # type: ignore[misc]
        # Nobody publishes any more: it must learn of what it missed all the same.
        stopped.thaw()
        last = published - 1
        books = await stopped.books(FLOOD)
        while books["received"] + books["missed"] < published:
            books = await stopped.books(FLOOD)
        assert books["missed"] > 0
        assert (books["received"] + books["missed"], books["dropped"]) == (published, 0)
        assert (books["is_in_order"], books["state"]) == (True, "active")
        # And it goes on from there.
        await publish(owner, FLOOD, published, 10)
        for node in nodes:
            await eventually(lambda node=node: node.books(FLOOD), last=last + 10)  # type: ignore[misc]
        for node in running:
            books = await node.books(FLOOD)
            assert (books["received"], books["missed"], books["dropped"]) == (published + 10, 0, 0)
            assert books["is_in_order"]
        # The owner knows it too.
        after = await stopped.books(FLOOD)
        assert after["received"] + after["missed"] == published + 10
        (report,) = [one for one in await home.survey() if one.topic == FLOOD]
        assert (report.published_count, report.dropped_count) == (published + 10, after["missed"])
        assert report.subscribers_count == 3


@pytest.mark.spec("SPT-22")
@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)], ids=["the owner dials", "the owner is dialled"])
@pytest.mark.parametrize("held", [0, 300], ids=["cut", "cut with messages under way"])
async def test_what_is_published_while_a_connection_is_cut_is_missed_exactly(
    numbers: tuple[int, int], held: int
) -> None:
    with reserved_endpoints(1) as (bind,):
        async with TopicCast() as cast, TcpProxy(bind) as proxy, asyncio.timeout(2 * WITHIN_S):
            registry = await cast.registry()
            # The one of the higher id is dialled, through the proxy.
            through: dict[str, Any] = {"bind": bind, "advertise": proxy.endpoint}
            owning = await cast.node(registry, numbers[0], **(through if numbers[0] == 2 else {}))
            asking = await cast.node(registry, numbers[1], **(through if numbers[1] == 2 else {}))
            await meshed(owning, asking)
            owner, spot = owning.spot(), asking.spot()
            events = cast.heard(spot)
            await owner.create_topic(FLOOD)
            subscription = await spot.subscribe(FLOOD)
            await subscription.active()
            published = 0
            for _ in range(3):
                await publish(owner, FLOOD, published, 100)
                published += 100
                await payloads(subscription, 100)
                proxy.hold()
                await publish(owner, FLOOD, published, held)
                published += held
                proxy.refuse()
                await subscription.pending()
                await until(lambda: owning.subscribers(FLOOD) == (), "the owner knows, too")
                await publish(owner, FLOOD, published, 50)
                published += 50
                proxy.forward()
                await subscription.active()
                waiting(subscription)
                assert subscription.received_count + subscription.missed_count == published
            assert subscription.missed_count >= 3 * 50
            # Nothing of it was published after the confirmation, and it was told as it was counted.
            await publish(owner, FLOOD, published, 1)
            assert await payloads(subscription, 1) == [b"%d " % published]
            told = events.of(MessagesMissed)
            assert sum(event.count for event in told) == subscription.missed_count
            assert {(event.subscription, event.topic) for event in told} == {(FLOOD, FLOOD)}
            assert subscription.dropped_count == 0


@pytest.mark.spec("SPT-22")
async def test_what_is_missed_is_told_also_when_subscriptions_change_while_the_connection_is_cut() -> None:
    with reserved_endpoints(1) as (bind,):
        async with TopicCast() as cast, TcpProxy(bind) as proxy, asyncio.timeout(2 * WITHIN_S):
            registry = await cast.registry()
            owning = await cast.node(registry, 2, bind=bind, advertise=proxy.endpoint)
            asking = await cast.node(registry, 1)
            await meshed(owning, asking)
            owner, spot = owning.spot(), asking.spot()
            events = cast.heard(spot)
            await owner.create_topic(FLOOD, retain=True)
            subscription = await spot.subscribe("*")
            await subscription.active()
            # What is begun, what is ended, and which subscription receives then.
            for begun, ended, receiving in (
                (FLOOD, "", FLOOD),
                ("flo*", "", FLOOD),
                ("", FLOOD, "flo*"),
                (FLOOD, "*", FLOOD),
                ("*", FLOOD, "flo*"),
            ):
                told_count = sum(event.count for event in events.of(MessagesMissed))
                await publish(owner, FLOOD, 0, 1)
                await payloads(spot, 1)
                proxy.refuse()
                await subscription.pending()
                await until(lambda: owning.subscribers(FLOOD) == (), "the owner knows, too")
                await publish(owner, FLOOD, 1, 5)
                if begun:
                    await spot.subscribe(begun)
                if ended:
                    await spot.unsubscribe(ended)
                subscription = next(one for one in spot.subscriptions if one.text == receiving)
                proxy.forward()
                await subscription.active()
                # Four were missed; the fifth is the retained one.
                assert await payloads(spot, 1) == [b"5 "]
                assert waiting(spot) == []
                told = events.of(MessagesMissed)
                assert sum(event.count for event in told) == told_count + 4
                assert (told[-1].subscription, told[-1].count) == (receiving, 4)
            assert asking.stats.missed_count == 5 * 4


@pytest.mark.spec("SPT-22")
async def test_an_owner_that_destroys_its_topic_says_how_far_it_had_come() -> None:
    async with TopicCast() as cast, WirePeer(9, FLOOD, is_hansa=True) as owner, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        await owner.register(registry)
        await owner.meet(node)
        spot = node.spot()
        events = cast.heard(spot)
        subscription = await spot.subscribe(FLOOD)
        await owner.heard_all(node)
        owner.say(node, ANNOUNCE, FLOOD.encode(), mark(7, 40, confirm=True))
        for number in (41, 42, 45, 45, 44, 46):
            owner.say(node, *message(FLOOD, b"%d" % number, number))
        # 43 and 44 were missed; what comes twice, or late, is not given out twice nor out of order.
        assert await payloads(subscription, 4) == numbered([41, 42, 45, 46])
        assert subscription.missed_count == 2
        # A mark without a message.
        owner.say(node, ANNOUNCE, FLOOD.encode(), mark(7, 50))
        await until(lambda: subscription.missed_count == 6, "47 to 50 are missed")
        owner.say(node, REMOVE, FLOOD.encode(), mark(7, 53))
        await subscription.pending()
        assert subscription.missed_count == 9
        # The same ownership goes on, as after a cut: what went meanwhile was missed.
        owner.say(node, ANNOUNCE, FLOOD.encode())
        await owner.heard_all(node)
        owner.say(node, ANNOUNCE, FLOOD.encode(), mark(7, 60, confirm=True))
        await subscription.active()
        assert subscription.missed_count == 16
        # Another ownership counts anew.
        owner.say(node, REMOVE, FLOOD.encode())
        await subscription.pending()
        owner.say(node, ANNOUNCE, FLOOD.encode())
        owner.say(node, ANNOUNCE, FLOOD.encode(), mark(8, 1_000, confirm=True))
        owner.say(node, *message(FLOOD, b"1001", 1001))
        assert await payloads(subscription, 1) == [b"1001"]
        assert subscription.missed_count == 16
        await until(lambda: sum(one.count for one in events.of(MessagesMissed)) == 16, "all was told")
        assert [one.count for one in events.of(MessagesMissed)] == [2, 4, 3, 7]


@pytest.mark.spec("SPT-13")
@pytest.mark.spec("SPT-22")
async def test_an_owner_killed_under_load_comes_back_and_the_stream_goes_on_in_order() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry: Registry = await cast.registry()
        node = await cast.node(registry, 5)
        subscription = await node.spot().subscribe("load:*", count_max=200_000)
        numbers: list[int] = []
        for round_number in range(3):
            async with NodeProcess(9, str(registry.pub), str(registry.router), create="load:1") as owner:
                await owner.ready()
                await subscription.active()
                await owner.begin("publish", topic="load:1", first=round_number * 10**6, count=10**6)
                # It dies while it publishes.
                numbers += map(int, await payloads(subscription, 2_000))
            await subscription.pending()
            numbers += map(int, waiting(subscription))
        assert numbers == sorted(set(numbers))
        # One owner lost nothing on the way, as long as it lived: each begins at its first and leaves no gap.
        for round_number in range(3):
            mine = [number for number in numbers if number // 10**6 == round_number]
            assert mine == list(range(round_number * 10**6, round_number * 10**6 + len(mine)))
        assert subscription.state is SubscriptionState.PENDING
