"""What the driver of the ROUTER mesh owes its machines: timers that ring, and everybody told of an end.

In virtual time, so that a mesh can be quiet: while anything else happens, that sets the timers too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from hansa.ids import routing_id
from hansa.limits import LAGGING_S, QUERY_INTERVAL_S, RECONNECT_S_MAX
from hansa.presence.provider_info import ProviderInfo
from hansa.services.discovery.client import Discovery
from hansa.services.registry import Registry
from hansa.testing import Host, World
from hansa.testing.network import NetworkSettings
from hansa.topics.node import SpotNode
from hansa.topics.spot import Spot, Subscription
from hansa.transport import SocketOptions

# Longer than anything that a new connection is watched for, shorter than until everybody is asked again.
QUIET_S = 15.0
ROOM_COUNT = 50
OPTIONS = SocketOptions(outgoing_count_max=ROOM_COUNT, heartbeat_interval=None)


@dataclass
class Pair:
    """An owner of topic t on host "home", and a subscription on host "away"."""

    world: World
    home: SpotNode
    away: SpotNode
    owner: Spot
    subscription: Subscription

    async def overflow(self) -> int:
        """Publish, in one go, until messages were dropped for want of room; how many."""
        while not self.home.stats.dropped_count:
            for _ in range(ROOM_COUNT):
                self.owner.post("t", bytes(1_000))
        return self.home.stats.dropped_count

    async def within(self, is_so: Callable[[], bool]) -> float:
        """Wait for it; how long that took."""
        began_s = self.world.elapsed_s()
        async with asyncio.timeout(1_000.0):
            while not is_so():
                await asyncio.sleep(0.01)
        return self.world.elapsed_s() - began_s


def play(course: Callable[[Pair], Awaitable[None]]) -> None:
    """Run this on a pair of nodes that has been quiet for a while."""
    world = World(1, settings=NetworkSettings(spike_probability=0.0))
    nodes: dict[str, SpotNode] = {}

    async def registry(host: Host) -> None:
        async with Registry("tcp://*:5550", "tcp://*:5551", environment=host.environment):
            await asyncio.Event().wait()

    async def node(host: Host) -> None:
        number = 1 if host.name == "home" else 2
        async with (
            Discovery(["tcp://r:5550"], environment=host.environment) as discovery,
            SpotNode(
                "tcp://*:7000",
                ["tcp://r:5551"],
                discovery=discovery,
                advertise=f"tcp://{host.name}:7000",
                routing_id=routing_id(number),
                environment=host.environment.but(options=OPTIONS),
            ) as nodes[host.name],
        ):
            await asyncio.Event().wait()

    async def run() -> None:
        for name, program in (("r", registry), ("home", node), ("away", node)):
            world.host(name, program).start()
        while len(nodes) < 2 or not all(one.peers for one in nodes.values()):
            await asyncio.sleep(0.1)
        owner = nodes["home"].spot()
        await owner.create_topic("t")
        subscription = await nodes["away"].spot().subscribe("t", count_max=1_000_000)
        await subscription.active(timeout=10.0)
        await asyncio.sleep(QUIET_S)
        await course(Pair(world, nodes["home"], nodes["away"], owner, subscription))

    with world:
        world.run(run())


@pytest.mark.spec("SPT-22")
def test_a_gap_is_told_soon_when_nothing_else_happens() -> None:
    async def course(pair: Pair) -> None:
        dropped_count = await pair.overflow()
        took_s = await pair.within(lambda: pair.subscription.missed_count == dropped_count)
        assert took_s < 10 * LAGGING_S

    play(course)


@pytest.mark.spec("SPT-22")
def test_a_node_that_has_no_room_for_long_is_told_soon_after_it_has() -> None:
    async def course(pair: Pair) -> None:
        pair.world.pause("away")
        dropped_count = await pair.overflow()
        await asyncio.sleep(5.0)
        pair.world.resume("away")
        took_s = await pair.within(lambda: pair.subscription.missed_count == dropped_count)
        assert took_s < 10 * LAGGING_S

    play(course)


@pytest.mark.spec("SPT-11")
def test_every_peer_is_asked_again_and_again_when_nothing_else_happens() -> None:
    async def course(pair: Pair) -> None:
        before_count = pair.home.stats.queries_count
        await asyncio.sleep(3 * QUERY_INTERVAL_S)
        assert pair.home.stats.queries_count == before_count + 3

    play(course)


def test_a_survey_does_not_wait_for_a_node_that_leaves() -> None:
    async def course(pair: Pair) -> None:
        pair.world.pause("away")
        async with asyncio.TaskGroup() as group:
            survey = group.create_task(pair.home.survey(timeout=1_000.0))
            await asyncio.sleep(1.0)
            pair.world.crash("away")
            assert await pair.within(survey.done) < 1.0
        assert [report.topic for report in survey.result()] == ["t"]

    play(course)


@pytest.mark.spec("SPT-24")
def test_a_node_that_does_not_list_us_is_dialled_ever_more_slowly_and_found_when_it_does() -> None:
    async def course(pair: Pair) -> None:
        us = ProviderInfo(
            service="spot-node",
            endpoint="tcp://home:7000",
            routing_id=pair.home.routing_id,
            weight=1,
            registered_at=1,
        )
        pair.away.mesh.unlist_node(us)
        await pair.subscription.pending(timeout=10.0)
        await asyncio.sleep(60.0)
        assert pair.home.peers == pair.away.peers == ()
        # After 0.1 s, then twice that and so on up to five seconds, not ten times a second.
        assert 10 <= pair.away.stats.unlisted_count <= 30
        pair.away.mesh.list_node(us)
        assert await pair.within(lambda: bool(pair.away.peers)) < 2 * RECONNECT_S_MAX
        await pair.subscription.active(timeout=10.0)

    play(course)
