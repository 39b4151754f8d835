"""Clusters that are cut and healed, nodes that stand still for too long, registries that come and go."""

import asyncio
from typing import Any

import pytest

from hansa import Discovery, Environment, SubscriptionActivated, SubscriptionSuspended, TopicExists
from hansa.ids import routing_id
from hansa.topics import MessagesMissed, TopicDemoted
from tests.support.discovery_cast import BEAT_S, OPTIONS, WITHIN_S, until
from tests.support.discovery_processes import RegistryProcess
from tests.support.reserved_ports import reserved_endpoints
from tests.support.topics_cast import NODES, TopicCast, meshed, numbered, payloads, waiting
from tests.support.topics_processes import NodeProcess

ROOM = "chat:room1"

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("SPT-12")
async def test_two_clusters_that_become_one_have_one_owner_afterwards_and_all_receive() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        # The registries do not know each other, so neither do their nodes: each side has its owner.
        east, west = [await cast.registry() for _ in range(2)]
        mid, high = await cast.mesh(east, 5, 9)
        low = await cast.node(west, 2)
        spots = [node.spot() for node in (low, mid, high)]
        ann, bob, cyd = spots
        heard = cast.heard(cyd)
        await ann.create_topic(ROOM)
        await cyd.create_topic(ROOM)
        subscriptions = [await spot.subscribe(ROOM) for spot in spots]
        for subscription in subscriptions:
            await subscription.active()
        await bob.publish(ROOM, b"east")
        assert await payloads(subscriptions[1], 1) == await payloads(subscriptions[2], 1) == [b"east"]
        await ann.publish(ROOM, b"west")
        assert await payloads(subscriptions[0], 1) == [b"west"]
        # They come to know each other. One of the two stays the owner, and all know which.
        for one, other in ((east, west), (west, east)):
            one.add_peer(str(other.pub))
        demoted = await heard.wait(TopicDemoted)
        assert (demoted.topic, demoted.winner) == (ROOM, low.routing_id)
        await meshed(low, mid, high)
        await until(lambda: len(low.subscribers(ROOM)) == 2, "both have subscribed there")
        for subscription in subscriptions:
            await subscription.active()
        assert [node.topics for node in (low, mid, high)] == [{ROOM: low.routing_id}] * 3
        assert (low.owned, high.owned, high.subscribers(ROOM)) == ((ROOM,), (), ())
        for spot in spots:
            for payload in numbered(range(10)):
                await spot.publish(ROOM, payload)
        for subscription in subscriptions:
            assert sorted(await payloads(subscription, 30)) == sorted(3 * numbered(range(10)))
            assert waiting(subscription) == []
            assert (subscription.missed_count, subscription.dropped_count) == (0, 0)


@pytest.mark.spec("SPT-14")
@pytest.mark.spec("SPT-22")
@pytest.mark.parametrize("number", [1, 9], ids=["it dials", "it is dialled"])
async def test_a_node_that_stood_still_until_it_was_given_up_comes_back_and_knows_what_it_missed(
    number: int,
) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry(heartbeat_timeout=1.5)
        home = await cast.node(registry, 5)
        owner = home.spot()
        await owner.create_topic(ROOM)

        def listed() -> list[bytes]:
            return [entry.routing_id for entry in registry.services.get(NODES, ())]

        async with NodeProcess(number, str(registry.pub), str(registry.router)) as node:
            await node.ready()
            await node.do("subscribe", text="chat:*")
            assert "code" not in await node.do("active", text="chat:*")
            for payload in numbered(range(10)):
                await owner.publish(ROOM, payload)
            node.freeze()
            await until(lambda: routing_id(number) not in listed(), "the registry has given it up")
            for payload in numbered(range(10, 60)):
                await owner.publish(ROOM, payload)
            await until(lambda: home.peers == (), "we have let it go")
            for payload in numbered(range(60, 70)):
                await owner.publish(ROOM, payload)
            node.thaw()
            await until(lambda: routing_id(number) in listed(), "it is listed again")
            await until(lambda: len(home.subscribers(ROOM)) == 1, "it has subscribed again")
            await owner.publish(ROOM, b"100")
            while (books := await node.books("chat:*"))["last"] != 100:
                await asyncio.sleep(0.005)
            assert (books["received"] + books["missed"], books["is_in_order"]) == (71, True)
            assert books["dropped"] == 0


@pytest.mark.spec("SPT-16")
async def test_a_registry_that_is_killed_and_comes_back_disturbs_no_topic() -> None:
    with reserved_endpoints(2) as (pub, router):
        first = RegistryProcess(pub, router, heartbeat_interval=BEAT_S, heartbeat_timeout=15.0)
        async with first, TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
            await first.ready()
            home, away = [await cast.node_at([pub], [router], number) for number in (1, 2)]
            await meshed(home, away)
            owner = home.spot()
            await owner.create_topic(ROOM)
            subscription = await away.spot().subscribe(ROOM)
            await subscription.active()
            events = cast.heard(away)
            await first.kill()
            await owner.publish(ROOM, b"without a registry")
            async with first.again() as second:
                await second.ready()
                watching = await cast.discovery(pub, services=(NODES,))
                await until(lambda: watching.provider_count(NODES) == 2, "both have registered again")
                await owner.publish(ROOM, b"with the next one")
                # Who comes now finds both.
                third = await cast.node_at([pub], [router], 3)
                await meshed(home, away, third)
                late = await third.spot().subscribe(ROOM)
                await late.active()
                await owner.publish(ROOM, b"to both")
                assert await payloads(late, 1) == [b"to both"]
            assert await payloads(subscription, 3) == [
                b"without a registry",
                b"with the next one",
                b"to both",
            ]
            assert subscription.missed_count == 0
            assert not events.of(SubscriptionSuspended)
            assert not events.of(MessagesMissed)


@pytest.mark.spec("SPT-13")
async def test_a_node_that_returns_at_once_under_its_id_takes_the_place_of_the_one_before() -> None:
    """The old connection is not known to be dead: its process was stopped, not killed."""
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry(heartbeat_timeout=60.0)
        node = await cast.node(registry, 5)
        spot = node.spot()
        events = cast.heard(spot)
        subscription = await spot.subscribe(ROOM)
        where: tuple[Any, ...] = (1, str(registry.pub), str(registry.router))
        async with NodeProcess(*where, create=ROOM) as first:
            await first.ready()
            await subscription.active()
            await first.do("publish", topic=ROOM, first=0, count=10)
            assert [int(payload) for payload in await payloads(subscription, 10)] == list(range(10))
            first.freeze()
            async with NodeProcess(*where, create=ROOM) as second:
                await second.ready()
                await events.wait(SubscriptionActivated, count=2)
                await second.do("publish", topic=ROOM, first=10, count=10)
                assert [int(payload) for payload in await payloads(subscription, 10)] == list(range(10, 20))
            assert node.stats.taken_over_count == 1
            before, after = events.of(SubscriptionActivated)
            assert after.epoch > before.epoch
            assert subscription.missed_count == 0


@pytest.mark.spec("SPT-02")
@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)], ids=["the owner dials", "the owner is dialled"])
async def test_a_node_that_has_just_come_in_knows_who_owns_what(numbers: tuple[int, int]) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        home = await cast.node(registry, numbers[0])
        owner = home.spot()
        await owner.create_topic(ROOM)
        mine = await owner.subscribe(ROOM)
        for number in range(15):
            async with (
                Discovery([str(registry.pub)], environment=Environment(options=OPTIONS)) as discovery,
                TopicCast() as inner,
            ):
                node = await inner.node(registry, numbers[1], discovery=discovery)
                spot = node.spot()
                with pytest.raises(TopicExists):
                    await spot.create_topic(ROOM)
                await spot.publish(ROOM, b"%d" % number)
                assert await payloads(mine, 1) == [b"%d" % number]
