"""What is lost between nodes of a PUB/SUB mesh is known exactly, by the next message of that topic."""

import asyncio
from dataclasses import replace

import pytest

from hansa.topics import MessagesMissed, PeerLeft
from hansa.transport import Sub
from hansa.wire.publication import decode_publication
from tests.support.discovery_cast import OPTIONS, WITHIN_S, until
from tests.support.reserved_ports import reserved_endpoints
from tests.support.tcp_proxy import TcpProxy
from tests.support.topics_cast import TopicCast
from tests.support.topics_pubsub import PUBSUB, ZONE, Flow

pytestmark = pytest.mark.timeout(60)


async def number_of_next(sub: Sub) -> int:
    return decode_publication((await sub.recv()).parts)[3]


@pytest.mark.spec("SPT-20")
@pytest.mark.spec("SPT-21")
@pytest.mark.spec("SPT-22")
async def test_a_slow_node_learns_exactly_what_it_missed_and_the_others_lose_nothing() -> None:
    # More than the kernel holds for two connections that are not read, and the bound.
    size_bytes, batch, batches = 16 * 1024, 32, 40
    bounded = replace(OPTIONS, outgoing_bytes_max=1024 * 1024)
    with reserved_endpoints(1) as (bind,):
        async with TopicCast() as cast, TcpProxy(bind) as proxy, Sub() as fast, asyncio.timeout(2 * WITHIN_S):
            registry = await cast.registry(heartbeat_timeout=60.0)
            home = await cast.node(
                registry, 1, bind=bind, advertise=proxy.endpoint, options=bounded, **PUBSUB
            )
            away = await cast.node(registry, 2, **PUBSUB)
            events = cast.heard(away)
            near, slow = await home.spot().subscribe("flood"), await away.spot().subscribe("flood")
            flow = Flow(home.spot(), slow)
            await flow.begin()
            # The other one goes past the proxy.
            fast.subscribe(b"flood")
            await fast.connect(bind).up()
            await until(lambda: flow.post() and fast.stats.received_count > 0, "it hears")
            await flow.caught_up()
            heard = [await number_of_next(fast)]
            for round_number in range(2):
                proxy.hold()
                for _ in range(batches):
                    await flow.publish(batch, size_bytes)
                    while heard[-1] < flow.published:
                        heard.append(await number_of_next(fast))
                proxy.forward()
                missed_before = slow.missed_count
                await flow.caught_up()
                assert slow.missed_count > missed_before, round_number
            while heard[-1] < flow.published:
                heard.append(await number_of_next(fast))
            assert heard == list(range(heard[0], flow.published + 1))
            assert (near.received_count, near.missed_count) == (flow.published, 0)
            assert slow.dropped_count == 0
            assert sum(event.count for event in events.of(MessagesMissed)) == slow.missed_count
            assert away.stats.missed_count == home.stats.dropped_count == slow.missed_count


@pytest.mark.spec("SPT-20")
@pytest.mark.spec("SPT-22")
async def test_what_is_published_while_a_connection_is_cut_is_missed_exactly() -> None:
    with reserved_endpoints(1) as (bind,):
        async with TopicCast() as cast, TcpProxy(bind) as proxy, asyncio.timeout(2 * WITHIN_S):
            registry = await cast.registry()
            home = await cast.node(registry, 1, bind=bind, advertise=proxy.endpoint, **PUBSUB)
            away = await cast.node(registry, 2, **PUBSUB)
            events = cast.heard(away)
            subscription = await away.spot().subscribe(ZONE)
            flow = Flow(home.spot(), subscription)
            await flow.begin()
            for number in (1, 2, 3):
                await flow.publish(100)
                proxy.hold()
                await flow.publish(100)
                proxy.refuse()
                await events.wait(PeerLeft, peer=home.routing_id, count=number)
                await flow.publish(50)
                proxy.forward()
                await flow.caught_up()
                assert subscription.missed_count >= number * 50
                assert away.peers == (home.routing_id,)


@pytest.mark.spec("SPT-22")
async def test_large_messages_in_a_row_do_not_overrun_a_reader_that_keeps_up() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        bounded = replace(OPTIONS, outgoing_bytes_max=8 * 1024 * 1024)
        here, there = await cast.mesh(await cast.registry(), 1, 2, options=bounded, **PUBSUB)
        subscription = await here.spot().subscribe(ZONE)
        flow = Flow(there.spot(), subscription)
        await flow.begin()
        await flow.publish(200, 256 * 1024)
        await flow.caught_up()
        assert (subscription.missed_count, there.stats.dropped_count) == (0, 0)
