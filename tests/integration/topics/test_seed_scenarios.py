"""The scenarios of the specification (seed 000, 9.2), step by step; who goes down is a process."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from hansa import SubscriptionSuspended
from hansa.topics import SubscriptionState
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.discovery_processes import RegistryProcess
from tests.support.topics_cast import TopicCast, messages, payloads, waiting
from tests.support.topics_processes import NodeProcess

ROOM = "chat:room1"

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("SPT-01")
@pytest.mark.spec("SPT-05")
async def test_spot_scenario_1_one_server_many_spots() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        # 1. One node; 2. ten spots.
        node = await cast.local()
        first, *others = (node.spot() for _ in range(10))
        # 3. One of them creates a topic; 4. the others subscribe.
        await first.create_topic(ROOM)
        for spot in others:
            assert (await spot.subscribe(ROOM)).state is SubscriptionState.ACTIVE
        # 5. It publishes, and all others receive.
        await first.publish(ROOM, b"hello")
        for spot in others:
            (got,) = await messages(spot, 1)
            assert (got.topic, got.payload) == (ROOM, b"hello")
        assert waiting(first) == []


@pytest.mark.spec("SPT-05")
@pytest.mark.spec("SPT-11")
async def test_spot_scenario_2_two_nodes() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(WITHIN_S):
        # 1. A registry (each node has a discovery); 2. nodes A and B register, each a process.
        registry = await stack.enter_async_context(RegistryProcess(heartbeat_interval=0.1))
        await registry.ready()
        a, b = [
            await stack.enter_async_context(NodeProcess(number, registry.pub, registry.router))
            for number in (1, 2)
        ]
        for node in (a, b):
            await node.ready()
        # 3. A creates a topic; 4. B subscribes.
        await a.do("create", topic=ROOM)
        await b.do("subscribe", text=ROOM)
        assert "code" not in await b.do("active", text=ROOM)
        # 5. A publishes, B receives.
        await a.do("publish", topic=ROOM, first=0, count=100)
        while (books := await b.books(ROOM))["received"] < 100:
            pass
        assert (books["first"], books["last"], books["is_in_order"]) == (0, 99, True)
        assert (books["missed"], books["dropped"]) == (0, 0)


@pytest.mark.spec("SPT-04")
@pytest.mark.spec("SPT-13")
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "closed"])
@pytest.mark.parametrize("number", [1, 9], ids=["the owner dials", "the owner is dialled"])
async def test_spot_scenario_3_owner_down_and_up(is_killed: bool, number: int) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        b = await cast.node(registry, 5)
        spot = b.spot()
        heard = cast.heard(spot)

        def a() -> NodeProcess:
            return NodeProcess(number, str(registry.pub), str(registry.router), create=ROOM)

        async with a() as first:
            # 1. A creates a topic; 2. B subscribes.
            await first.ready()
            subscription = await spot.subscribe(ROOM)
            await subscription.active()
            await first.do("publish", topic=ROOM, first=0, count=10)
            assert [int(payload) for payload in await payloads(spot, 10)] == list(range(10))
            # 3. A ends: B's subscription is pending again.
            await (first.kill() if is_killed else first.do("leave"))
            await subscription.pending()
            assert b.topics == {}
            (suspended,) = heard.of(SubscriptionSuspended)
            assert (suspended.topic, suspended.owner) == (ROOM, b"\x01" + number.to_bytes(4, "big"))
        # 4. A starts again and creates the topic: B receives, and nobody has done anything for it.
        async with a() as second:
            await second.ready()
            await subscription.active()
            await second.do("publish", topic=ROOM, first=100, count=10)
            assert [int(payload) for payload in await payloads(spot, 10)] == list(range(100, 110))
        # A new owner counts anew, and what went between the two concerns nobody.
        assert subscription.missed_count == 0
        await until(lambda: b.peers == (), "it has gone again")
