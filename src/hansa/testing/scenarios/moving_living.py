"""The programs of nodes whose topics move: they listen, publish, own, hand over, and leave."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Final

from hansa.chance import Chance
from hansa.coordination.handover import HandoverStep
from hansa.errors import (
    AlreadyClosed,
    Backlogged,
    Conflict,
    Fenced,
    HandoverWithdrawn,
    NoOwner,
    NoSuccessor,
    NotOwner,
    StoreUnavailable,
    TimedOut,
    TopicExists,
    WouldBlock,
)
from hansa.ids import format_id
from hansa.presence.provider_info import ProviderInfo
from hansa.testing.host import Host
from hansa.testing.scenarios.cluster import socket_options
from hansa.testing.scenarios.moving_cast import MESH_PORT, TIMEOUTS_S, TOPICS, MovingCast, MovingNode
from hansa.testing.scenarios.spot_posts import Fate, Post
from hansa.testing.scenarios.strikes import StruckLink
from hansa.topics import SpotNode
from hansa.topics.events import (
    PeerLeft,
    PublishesInDoubt,
    PublishesRefused,
    SubscriptionSuspended,
    TopicLost,
    TopicMoved,
)

__all__ = ["MovingLife"]

# How often a node looks who else is there.
LISTING_S: Final = 0.25
# More than the record of a hand-over takes.
BULKY_BYTES: Final = 9_000
BURST_COUNT: Final = 5
DRAIN_S: Final = 5.0


class MovingLife:
    """The program of one node's host."""

    def __init__(self, host: Host, cast: MovingCast) -> None:
        self._host = host
        self._cast = cast

    async def run(self) -> None:
        """One node after the other, until the host is stopped."""
        host = self._host
        number = 0
        async with self._cast.store.link(host) as link:
            while True:
                number += 1
                await self._be_node(link, number)

    async def _be_node(self, link: StruckLink, number: int) -> None:
        host = self._host
        environment = host.environment.fork(f"session {number}")
        chance = environment.chance
        options = replace(
            socket_options(chance.fork("options")), heartbeat_timeout=self._cast.heartbeat_timeout_s
        )
        node = SpotNode(
            f"tcp://*:{MESH_PORT}",
            advertise=f"tcp://{host.name}:{MESH_PORT}",
            query_interval=chance.choose((1.0, 5.0)),
            store=link,
            claim_ttl=self._cast.ttl_s,
            environment=environment.fork("node").but(options=options),
            name=str(host.life),
        )
        async with asyncio.TaskGroup() as group:
            await node.__aenter__()
            one = MovingNode(host, node, f"{host.life}.{number}")
            self._cast.nodes.append(one)
            host.record(f"is node {format_id(node.routing_id)}")
            try:
                group.create_task(self._hear_events(one), name=f"{one} hears")
                await self._listen(one)
                group.create_task(self._read(one), name=f"{one} reads")
                group.create_task(self._publish(one, chance.fork("publisher")), name=f"{one} publishes")
                group.create_task(self._own(one, chance.fork("owner")), name=f"{one} owns")
                group.create_task(self._be_guest(one, chance.fork("guest")), name=f"{one} has guests")
                leaves_s = (
                    chance.uniform(1.0, 2 * self._cast.chaos_s) if self._cast.leaves else self._cast.chaos_s
                )
                await self._keep_listing(one, until_s=leaves_s, is_patient=chance.flip(0.8))
                await self._leave(one)
                one.left_in_order = True
            finally:
                if not one.left_in_order and not self._cast.is_calm:
                    self._cast.disturb(f"{one} is stopped")
                one.is_listed, one.is_leaving = False, True
                # First who owns, then what it has given out.
                for spot in one.own_spots:
                    await spot.close()
                self._cast.drain(one)
                self._cast.books.posts.end_node(one.label)
                await node.close()

    async def _keep_listing(self, one: MovingNode, *, until_s: float, is_patient: bool) -> None:
        """Do what a discovery does, in the chaotic phase for so long: then the node leaves.

        A patient one leaves when everybody hears everybody.
        """
        began_s = self._cast.world.elapsed_s()
        listed: list[ProviderInfo] = []
        while (
            self._cast.is_calm
            or not self._cast.leaves
            or self._cast.world.elapsed_s() < began_s + until_s
            or (is_patient and not self._cast.is_restful())
        ):
            one.seen_s = self._cast.world.elapsed_s()
            listed = self._list(one, listed)
            await asyncio.sleep(LISTING_S)

    def _list(self, one: MovingNode, listed: list[ProviderInfo]) -> list[ProviderInfo]:
        infos = [other.info for other in self._cast.newest().values() if other is not one and other.is_listed]
        for info in listed:
            if info not in infos:
                one.node.mesh.unlist_node(info)
        for info in infos:
            if info not in listed:
                one.node.mesh.list_node(info)
        return infos

    async def _leave(self, one: MovingNode) -> None:
        """Publish no more, hand all topics over, and see that what was published has come."""
        one.is_leaving = True
        one.host.record("leaves")
        moved = await one.node.drain(DRAIN_S)
        one.host.record(f"has drained {sorted(moved)}")
        if one.node.owned:
            self._cast.disturb(f"nobody takes {one.node.owned}")
        posts = [post for post in self._cast.books.posts.lost(TOPICS) if post.node == one.label]
        for _ in range(50):
            if all(post.seen_by for post in posts):
                break
            await asyncio.sleep(0.1)
        if one.node.owned:
            self._cast.disturb(f"{one.node.owned} came back")
        self._cast.left.add(one.node.routing_id)

    # Listening.

    async def _listen(self, one: MovingNode) -> None:
        for topic in TOPICS:
            if topic == TOPICS[0] or one.host.name != self._cast.deaf:
                subscription = await one.listener.subscribe(topic)
                one.accounts[topic] = self._cast.books.open(f"{one.label} listener", topic, subscription)

    async def _read(self, one: MovingNode) -> None:
        async for message in one.listener:
            self._cast.hear(one, message)

    async def _hear_events(self, one: MovingNode) -> None:
        async for event in one.node.events():
            match event:
                case PublishesRefused():
                    self._cast.books.posts.report_refused(one.label, event.topic, event.count)
                    self._cast.told_count += event.count
                    self._cast.notice(f"{one}: {event.count} refused on {event.topic}")
                case PublishesInDoubt():
                    self._cast.books.posts.report_in_doubt(one.label, event.count)
                    self._cast.told_count += event.count
                case PeerLeft() if event.peer not in self._cast.left and not one.is_leaving:
                    self._cast.disturb(f"{one} has lost {format_id(event.peer)}: {event.reason}")
                case TopicLost():
                    self._cast.disturb(f"{one} has lost {event.topic}: {event.reason}")
                case SubscriptionSuspended():
                    self._cast.notice(f"{one} waits for {event.topic}")
                case TopicMoved() if event.target == one.node.routing_id:
                    one.host.record(f"has taken {event.topic} in {event.epoch}")

    async def _be_guest(self, one: MovingNode, chance: Chance) -> None:
        """Subscribe for a while, now and then."""
        number = 0
        with suppress(AlreadyClosed):
            while not one.is_leaving:
                await asyncio.sleep(chance.uniform(0.0, 1.5) if not self._cast.is_late else 0.0)
                if self._cast.round_called.is_set() and not self._cast.is_late:
                    continue
                number += 1
                unserved = sorted((self._cast.retaining or frozenset()) - one.served)
                if self._cast.is_late and not unserved:
                    return
                topic = unserved[0] if self._cast.is_late else chance.choose(TOPICS)
                await self._visit(one, f"{one.label} guest {number}", topic, chance)

    async def _visit(self, one: MovingNode, label: str, topic: str, chance: Chance) -> None:
        """Read a topic through a subscription of its own."""
        spot = one.node.spot(label)
        floor = self._floor(one, topic)
        subscription = await spot.subscribe(topic)
        account = self._cast.books.open(label, topic, subscription, floor=floor)
        lasting_s = chance.uniform(0.0, 2.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(lasting_s):
                async for message in spot:
                    self._cast.books.heard(account, message)
                    if self._cast.is_late:
                        one.served.add(topic)
                        break
        with suppress(WouldBlock, AlreadyClosed):
            while True:
                self._cast.books.heard(account, spot.recv_nowait())
        await spot.close()

    def _floor(self, one: MovingNode, topic: str) -> int:
        """The number of the oldest message that the topic may retain, as far as is known."""
        if self._cast.is_late:
            return max(post.sequence for post in self._cast.last_posts if post.topic == topic)
        if self._cast.trouble:
            return 0  # It may have begun anew.
        # A node that listens has a copy of its own, which may not be the last one.
        account = one.accounts.get(topic)
        posts = () if account is None else account.given
        return (
            self._cast.books.last(topic)
            if account is None
            else max((post.sequence for post in posts), default=0)
        )

    # Publishing.

    async def _publish(self, one: MovingNode, chance: Chance) -> None:
        try:
            while not one.is_leaving and not self._cast.round_called.is_set():
                await asyncio.sleep(chance.uniform(0.0, 1.0 if self._cast.is_calm else 0.3))
                topic = chance.choose(TOPICS)
                for _ in range(BURST_COUNT if chance.flip(0.2) else 1):
                    if not one.is_leaving:
                        await self._post(one, topic, chance)
            if one.is_leaving:
                return
            await self._cast.round_called.wait()
            for topic in TOPICS:
                self._cast.last_posts.append(await self._post(one, topic, chance))
            one.has_finished = True
        except AlreadyClosed:
            return

    async def _post(self, one: MovingNode, topic: str, chance: Chance) -> Post:
        posts = self._cast.books.posts
        size_bytes = BULKY_BYTES if topic == self._cast.bulky else chance.choose((0, 10, 100))
        post = posts.open(one.label, one.label, topic, size_bytes=size_bytes)
        try:
            if chance.flip(0.3):
                one.publisher.post(topic, post.payload)
            else:
                await one.publisher.publish(topic, post.payload)
        except (NoOwner, Backlogged) as error:
            posts.settle(post, Fate.REFUSED)
            if topic in one.known:
                self._cast.notice(f"{one} cannot publish {post}: {error}")
        except (AlreadyClosed, asyncio.CancelledError):
            posts.settle(post, Fate.GIVEN_UP)
            raise
        else:
            one.known.add(topic)
            posts.settle(post, Fate.DONE)
        return post

    # Owning.

    async def _own(self, one: MovingNode, chance: Chance) -> None:
        """Create what nobody owns, and hand over what this node owns."""
        with suppress(AlreadyClosed):
            for topic in TOPICS:
                if self._cast.homes[topic] == one.host.name and not self._cast.truths[topic].owner:
                    await self._create(one, topic)
            while not one.is_leaving:
                await asyncio.sleep(chance.uniform(0.1, 0.7))
                topic = chance.choose(sorted(self._cast.unmoved) or TOPICS)
                if topic in one.node.owned:
                    await self._move(one, topic, chance)
                elif topic not in one.node.topics and self._cast.truths[topic].steps:
                    await asyncio.sleep(chance.uniform(0.0, 1.0))
                    if topic not in one.node.topics:
                        await self._create(one, topic)
                elif topic not in one.node.topics and self._cast.is_calm:
                    await self._create(one, topic)

    async def _create(self, one: MovingNode, topic: str) -> None:
        try:
            await one.publisher.create_topic(topic, retain=topic in self._cast.retained)
        except (TopicExists, StoreUnavailable, TimedOut, Fenced) as error:
            one.host.record(f"does not own {topic}: {error.code}")
        else:
            one.host.record(f"creates {topic}")
            self._cast.look(topic, "it was created")

    async def _move(self, one: MovingNode, topic: str, chance: Chance) -> None:
        """Hand it over to some other node; in the end each topic once."""
        if self._cast.is_calm:
            if topic not in self._cast.unmoved:
                return
        elif self._cast.is_asked_only and self._cast.store.is_awaited:
            return
        takers = list(one.node.takers)
        spot = next((spot for spot in one.own_spots if topic in spot.owned), None)
        if not takers or spot is None:
            return
        if not self._cast.is_restful() and chance.flip(0.9):
            return
        target = chance.choose(takers)
        patience_s = chance.uniform(0.0, 0.3) if not self._cast.is_calm and chance.flip(0.1) else None
        try:
            async with asyncio.timeout(patience_s):
                record = await spot.hand_over(
                    topic, target, timeout=chance.choose(TIMEOUTS_S), reason="it is its turn"
                )
        except (
            HandoverWithdrawn,
            NoSuccessor,
            NotOwner,
            Conflict,
            Fenced,
            TimedOut,
            TopicExists,
            StoreUnavailable,
        ) as error:
            one.host.record(f"does not hand over {topic}: {error.code}: {error}")
            return
        except TimeoutError:
            one.host.record(f"does not wait until {topic} is handed over")
            return
        one.host.record(f"has handed over {topic} to {record.target}: {record.number}")
        self._cast.moved_count += 1
        if self._cast.is_calm:
            self._cast.unmoved.discard(topic)
        if record.step not in (HandoverStep.TAKEN, HandoverStep.DONE) or not self._cast.truths[
            topic
        ].was_taken(record):
            self._cast.world.fail("the record says what happened", f"{one} was told {record}")
