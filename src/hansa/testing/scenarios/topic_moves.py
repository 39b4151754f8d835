"""Topics that move from node to node while they are published to and read, and trouble at each step of it.

Three or four nodes share two topics, claimed in a store. All publish to both, and listen; guests subscribe
and unsubscribe. Whoever owns a topic hands it over now and then, or somebody outside asks for it; some nodes
drain and leave, and others take their place. In some runs one node does not listen to the second topic, a
topic retains its last message, and its messages are too large for the record of the hand-over. Clocks run up
to a hundredth fast or slow.

Each seed has a strike of its own, at a step of a hand-over (`strikes`): 240 seeds in a row have all of them.
Who is cut off is cut off from the store or from all. In some runs connections between nodes break as well at
that moment, and in some there is trouble at random.

Always: at most one of the nodes that run publishes a topic, it is whose the topic is in the store, and nobody
does while it is sealed; the steps of a record follow each other, and what was sealed is what the next owner
is given. A number is given once and none is left out, over all owners of a counting; no subscription is given
a message twice, nor those of one publisher in another order; what it lost is told exactly. A publish that
reached nobody is told to a node, or an owner died at that time.

Where nobody dies, stands still for longer than its lease, or is cut off, nothing happens that a program could
notice: every message reaches every listener, no publish is refused, no subscription is suspended.

When the faults are over: every topic has one owner and moves once more, no hand-over is open, nothing is
held, and everybody publishes a last message of each topic, which comes to everybody; who subscribes then to a
retained topic is given the last one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from itertools import combinations
from typing import ClassVar, Final

from hansa.chance import Chance
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.handovers import Handovers
from hansa.coordination.line import decode_signed
from hansa.errors import (
    AlreadyClosed,
    Backlogged,
    Conflict,
    Fenced,
    HandoverWithdrawn,
    InvariantBroken,
    NoOwner,
    NoSuccessor,
    NotOwner,
    StoreUnavailable,
    TimedOut,
    TopicExists,
    WouldBlock,
)
from hansa.ids import format_id
from hansa.keys import topic_name
from hansa.presence.provider_info import ProviderInfo
from hansa.store.values import EventKind, WatchBatch
from hansa.testing.faults import FaultPlan, draw_plan
from hansa.testing.host import Host
from hansa.testing.life import LifeState
from hansa.testing.scenario import Scenario
from hansa.testing.scenarios.cluster import socket_options
from hansa.testing.scenarios.handover_truth import LineTruth
from hansa.testing.scenarios.spot_posts import Fate, Post
from hansa.testing.scenarios.strikes import Harm, StruckLink, StruckStore, Victim, cells, draw_strike
from hansa.testing.scenarios.topic_books import TopicAccount, TopicBooks
from hansa.testing.store_faults import draw_store_plan
from hansa.testing.world import World
from hansa.topics import Spot, SpotNode, SubscriptionState
from hansa.topics.events import (
    PeerLeft,
    PublishesInDoubt,
    PublishesRefused,
    SubscriptionSuspended,
    TopicLost,
    TopicMoved,
)
from hansa.topics.inbox import TopicMessage
from hansa.topics.mesh import Mesh
from hansa.topics.names import SERVICE
from hansa.topics.router_mesh import RouterMesh
from hansa.transport.environment import Environment

__all__ = ["CELLS", "TopicMoves"]

TOPICS: Final = ("zone:east", "zone:west")
NAMES: Final = {topic: topic_name(SERVICE, topic) for topic in TOPICS}
MESH_PORT: Final = 6200
ASKER: Final = "asker"
CELLS: Final = cells(Victim.OLD, Victim.NEW, Victim.ASKER, Victim.STORE)
# Shares no factor with their number: a few seeds in a row have something of all moments, harms and victims.
CELLS_STRIDE: Final = 77
TIMEOUTS_S: Final = (0.5, 2.0, 4.0)
# How often a node looks who else is there.
LISTING_S: Final = 0.25
# What came due while a node was paused runs when it goes on, in the same instant.
MOMENT_S: Final = 0.001
# Whoever stands still for so long may be given up by others.
LONG_S: Final = 3.0
# What an owner had taken and not given out when it died: a hand-over may take so long.
UNDERWAY_S: Final = 12.0
# More than the record of a hand-over takes.
BULKY_BYTES: Final = 9_000
# So long after it died it may still be taken for the owner.
DETECTION_S: Final = 12.0
BURST_COUNT: Final = 5


class MovingNode:
    """One node from its opening to its end; a program has one after the other."""

    def __init__(self, host: Host, node: SpotNode, label: str) -> None:
        self.host = host
        self.life = host.life
        self.node = node
        self.label = label
        self.listener = node.spot("listener")
        self.publisher = node.spot("publisher")
        self.accounts: dict[str, TopicAccount] = {}
        """Those of the listener, by topic."""
        self.is_listed = True
        self.is_leaving = False
        self.known: set[str] = set()
        """Topics to which it has published."""
        self.has_finished = False
        """It has published its last messages."""
        self.left_in_order = False
        self.seen_s = 0.0
        """When it was alive last."""
        self.served: set[str] = set()
        """Retained topics whose last message a late guest was given."""
        self.info = ProviderInfo(
            service=SERVICE,
            endpoint=f"tcp://{host.name}:{MESH_PORT}",
            routing_id=node.routing_id,
            weight=1,
            registered_at=host.world.elapsed_s(),
        )

    def __str__(self) -> str:
        return f"{self.label} {format_id(self.node.routing_id)}"

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.left_in_order or self.is_leaving or self.life.state is LifeState.DEAD

    @property
    def machine(self) -> Mesh:
        """What decides behind the node."""
        driver = self.node.mesh
        if not isinstance(driver, RouterMesh):
            raise InvariantBroken("the scenario plays on the ROUTER mesh")
        return driver._mesh

    @property
    def own_spots(self) -> list[Spot]:
        """Those that may own topics."""
        return [self.publisher] if self.publisher.is_closed else [self.publisher, self.node.heir]


class TopicMoves(Scenario):
    """Topics that are handed over while they are used: nobody notices, or is told exactly what was lost."""

    name: ClassVar[str] = "topic_moves"
    chaos_s: ClassVar[float] = 6.0
    quiet_s: ClassVar[float] = 90.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("topic moves")
        self.cell = CELLS[world.seed * CELLS_STRIDE % len(CELLS)]
        self.store = StruckStore(world, witness=self._witness, hosts_of=self._hosts_of)
        self.truths = {topic: LineTruth(self.store, "topic", NAMES[topic]) for topic in TOPICS}
        self.names = [f"n{number}" for number in range(1, 4 + chance.below(2))]
        # Patient ones outlast a pause of five seconds.
        self._ttl_s, self._heartbeat_timeout_s = chance.choose(((2.0, 3.0), (3.0, 8.0), (8.0, 8.0)))
        self._homes = {topic: chance.choose(self.names) for topic in TOPICS}
        retained = frozenset(topic for topic in TOPICS if chance.flip(0.5))
        self.books = TopicBooks(world, retained=retained)
        self._retained = retained
        self._deaf = chance.choose(self.names) if chance.flip(0.4) else ""
        """The node that does not listen to the second topic."""
        self._bulky = TOPICS[1] if chance.flip(0.2) else ""
        self._is_asked = self.cell.victim is Victim.ASKER or chance.flip(0.3)
        self._breaks = chance.flip(0.15)
        """Whether connections between nodes break at steps of hand-overs."""
        self._misfortune = chance.fork("misfortune")
        self._leaves = chance.flip(0.5)
        self.moved_count = 0
        """How often somebody was told that its topic is another one's now."""
        self.was_smooth = False
        """Whether programs had to notice nothing at all."""
        self._phase_is_calm = False
        self._round = asyncio.Event()
        self._is_late = False
        """Everything was published and received: late guests may come."""
        self._unmoved = set(TOPICS)
        """Topics that have not moved since the faults were over."""
        self._nodes: list[MovingNode] = []
        self._left: set[bytes] = set()
        """Nodes that left in good order."""
        self._last_posts: list[Post] = []
        self._trouble = ""
        """Why programs may notice something; empty while they may not."""
        self._noticed: list[str] = []
        self._told_count = 0
        """Publishes that nodes were told of as refused or in doubt."""

    @property
    def steps(self) -> Counter[HandoverStep]:
        """How often each step was taken."""
        steps: Counter[HandoverStep] = Counter()
        for truth in self.truths.values():
            steps.update(truth.steps)
        return steps

    @property
    def watched(self) -> frozenset[str]:
        """Topics to which all nodes listen: of these is known what was given out."""
        return frozenset(TOPICS[:1] if self._deaf else TOPICS)

    def begin(self) -> None:
        for name in self.names:
            self.world.host(name, self._run).start()
        self.world.host(ASKER, self._ask).start()
        self.store.start()

    def plan(self, chance: Chance) -> FaultPlan:
        strike = draw_strike(
            chance.fork("strike"), self.cell, self.store.name, skipped_max=2, may_be_wide=True
        )
        if chance.flip(0.7):
            # Most others are not told of this trouble, and must not notice any.
            strike = replace(strike, companion=None)
        if strike.companion is not None or (
            strike.cell.victim in (Victim.OLD, Victim.NEW)
            and strike.cell.harm is not Harm.CUT
            and strike.lasting_s > LONG_S
        ):
            self._trouble = "the strike"
        if chance.flip(0.75):
            return (strike,)
        self._trouble = "trouble at random"
        trouble = draw_store_plan(
            chance, self.names, self.store.name, chaos_s=self.chaos_s, ttl_s=self._ttl_s
        )
        if chance.flip(0.5):
            pairs = list(combinations(self.names, 2))
            trouble += draw_plan(chance.fork("mesh"), self.names, chaos_s=self.chaos_s, pairs=pairs)
        return tuple(sorted((strike, *trouble), key=lambda fault: fault.at_s))

    def calm(self) -> None:
        self.store.calm()
        self._phase_is_calm = True

    # What runs on the hosts.

    async def _run(self, host: Host) -> None:
        number = 0
        async with self.store.link(host) as link:
            while True:
                number += 1
                await self._be_node(host, link, number)

    async def _be_node(self, host: Host, link: StruckLink, number: int) -> None:
        environment = host.environment.fork(f"session {number}")
        chance = environment.chance
        options = replace(socket_options(chance.fork("options")), heartbeat_timeout=self._heartbeat_timeout_s)
        node = SpotNode(
            f"tcp://*:{MESH_PORT}",
            advertise=f"tcp://{host.name}:{MESH_PORT}",
            query_interval=chance.choose((1.0, 5.0)),
            store=link,
            claim_ttl=self._ttl_s,
            environment=environment.fork("node").but(options=options),
            name=str(host.life),
        )
        async with asyncio.TaskGroup() as group:
            await node.__aenter__()
            one = MovingNode(host, node, f"{host.life}.{number}")
            self._nodes.append(one)
            host.record(f"is node {format_id(node.routing_id)}")
            try:
                group.create_task(self._hear_events(one), name=f"{one} hears")
                await self._listen(one)
                group.create_task(self._read(one), name=f"{one} reads")
                group.create_task(self._publish(one, chance.fork("publisher")), name=f"{one} publishes")
                group.create_task(self._own(one, chance.fork("owner")), name=f"{one} owns")
                group.create_task(self._be_guest(one, chance.fork("guest")), name=f"{one} has guests")
                leaves_s = chance.uniform(1.0, 2 * self.chaos_s) if self._leaves else self.chaos_s
                await self._keep_listing(one, until_s=leaves_s, is_patient=chance.flip(0.8))
                await self._leave(one)
                one.left_in_order = True
            finally:
                if not one.left_in_order and not self._phase_is_calm:
                    self._disturbed(f"{one} is stopped")
                one.is_listed, one.is_leaving = False, True
                self._drain(one)
                self.books.posts.end_node(one.label)
                await node.close()

    async def _keep_listing(self, one: MovingNode, *, until_s: float, is_patient: bool) -> None:
        """Do what a discovery does, in the chaotic phase for so long: then the node leaves.

        A patient one leaves when everybody hears everybody.
        """
        began_s = self.world.elapsed_s()
        listed: list[ProviderInfo] = []
        while (
            self._phase_is_calm
            or not self._leaves
            or self.world.elapsed_s() < began_s + until_s
            or (is_patient and not self._is_restful())
        ):
            one.seen_s = self.world.elapsed_s()
            listed = self._list(one, listed)
            await asyncio.sleep(LISTING_S)

    def _list(self, one: MovingNode, listed: list[ProviderInfo]) -> list[ProviderInfo]:
        infos = [other.info for other in self._newest().values() if other is not one and other.is_listed]
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
        moved = await one.node.drain(5.0)
        one.host.record(f"has drained {sorted(moved)}")
        if one.node.owned:
            self._disturbed(f"nobody takes {one.node.owned}")
        posts = [post for post in self.books.posts.lost(TOPICS) if post.node == one.label]
        for _ in range(50):
            if all(post.seen_by for post in posts):
                break
            await asyncio.sleep(0.1)
        if one.node.owned:
            self._disturbed(f"{one.node.owned} came back")
        self._left.add(one.node.routing_id)

    # Listening.

    async def _listen(self, one: MovingNode) -> None:
        for topic in TOPICS:
            if topic == TOPICS[0] or one.host.name != self._deaf:
                subscription = await one.listener.subscribe(topic)
                one.accounts[topic] = self.books.open(f"{one.label} listener", topic, subscription)

    async def _read(self, one: MovingNode) -> None:
        async for message in one.listener:
            self._heard(one, message)

    def _drain(self, one: MovingNode) -> None:
        """See what waits: its node ends now, or has crashed."""
        with suppress(WouldBlock, AlreadyClosed):
            while True:
                self._heard(one, one.listener.recv_nowait())

    def _heard(self, one: MovingNode, message: TopicMessage) -> None:
        topic = message.topic
        post = self.books.heard(one.accounts[topic], message)
        frame = topic.encode()
        outlet = one.machine.exchange.outlets.get(frame)
        feed = one.machine.exchange.feeds.get(frame)
        if outlet is not None and message.sequence > outlet.began_at:
            self.books.gave(topic, outlet.founder, outlet.epoch, post)
        elif outlet is None and feed is not None and feed.owner == one.node.routing_id:
            # It was lost just now, and was its own when this was given out.
            self.books.gave(topic, feed.founder, feed.epoch, post)

    async def _hear_events(self, one: MovingNode) -> None:
        async for event in one.node.events():
            match event:
                case PublishesRefused():
                    self.books.posts.report_refused(one.label, event.topic, event.count)
                    self._told_count += event.count
                    self._notice(f"{one}: {event.count} refused on {event.topic}")
                case PublishesInDoubt():
                    self.books.posts.report_in_doubt(one.label, event.count)
                    self._told_count += event.count
                case PeerLeft() if event.peer not in self._left and not one.is_leaving:
                    self._disturbed(f"{one} has lost {format_id(event.peer)}: {event.reason}")
                case TopicLost():
                    self._disturbed(f"{one} has lost {event.topic}: {event.reason}")
                case SubscriptionSuspended():
                    self._notice(f"{one} waits for {event.topic}")
                case TopicMoved() if event.target == one.node.routing_id:
                    one.host.record(f"has taken {event.topic} in {event.epoch}")

    async def _be_guest(self, one: MovingNode, chance: Chance) -> None:
        """Subscribe for a while, now and then."""
        number = 0
        with suppress(AlreadyClosed):
            while not one.is_leaving:
                await asyncio.sleep(chance.uniform(0.0, 1.5) if not self._is_late else 0.0)
                if self._round.is_set() and not self._is_late:
                    continue
                number += 1
                unserved = sorted(self._retained - one.served)
                if self._is_late and not unserved:
                    return
                topic = unserved[0] if self._is_late else chance.choose(TOPICS)
                await self._visit(one, f"{one.label} guest {number}", topic, chance)

    async def _visit(self, one: MovingNode, label: str, topic: str, chance: Chance) -> None:
        """Read a topic through a subscription of its own."""
        spot = one.node.spot(label)
        floor = self._floor(one, topic)
        subscription = await spot.subscribe(topic)
        account = self.books.open(label, topic, subscription, floor=floor)
        lasting_s = chance.uniform(0.0, 2.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(lasting_s):
                async for message in spot:
                    self.books.heard(account, message)
                    if self._is_late:
                        one.served.add(topic)
                        break
        with suppress(WouldBlock, AlreadyClosed):
            while True:
                self.books.heard(account, spot.recv_nowait())
        await spot.close()

    def _floor(self, one: MovingNode, topic: str) -> int:
        """The number of the oldest message that the topic may retain, as far as is known."""
        if self._is_late:
            return max(post.sequence for post in self._last_posts if post.topic == topic)
        if self._trouble:
            return 0  # It may have begun anew.
        # A node that listens has a copy of its own, which may not be the last one.
        account = one.accounts.get(topic)
        posts = () if account is None else account.given
        return (
            self.books.last(topic) if account is None else max((post.sequence for post in posts), default=0)
        )

    # Publishing.

    async def _publish(self, one: MovingNode, chance: Chance) -> None:
        try:
            while not one.is_leaving and not self._round.is_set():
                await asyncio.sleep(chance.uniform(0.0, 1.0 if self._phase_is_calm else 0.3))
                topic = chance.choose(TOPICS)
                for _ in range(BURST_COUNT if chance.flip(0.2) else 1):
                    if not one.is_leaving:
                        await self._post(one, topic, chance)
            if one.is_leaving:
                return
            await self._round.wait()
            for topic in TOPICS:
                self._last_posts.append(await self._post(one, topic, chance))
            one.has_finished = True
        except AlreadyClosed:
            return

    async def _post(self, one: MovingNode, topic: str, chance: Chance) -> Post:
        posts = self.books.posts
        size_bytes = BULKY_BYTES if topic == self._bulky else chance.choose((0, 10, 100))
        post = posts.open(one.label, one.label, topic, size_bytes=size_bytes)
        try:
            if chance.flip(0.3):
                one.publisher.post(topic, post.payload)
            else:
                await one.publisher.publish(topic, post.payload)
        except (NoOwner, Backlogged) as error:
            posts.settle(post, Fate.REFUSED)
            if topic in one.known:
                self._notice(f"{one} cannot publish {post}: {error}")
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
                if self._homes[topic] == one.host.name and not self.truths[topic].owner:
                    await self._create(one, topic)
            while not one.is_leaving:
                await asyncio.sleep(chance.uniform(0.1, 0.7))
                topic = chance.choose(sorted(self._unmoved) or TOPICS)
                if topic in one.node.owned:
                    await self._move(one, topic, chance)
                elif topic not in one.node.topics and self.truths[topic].steps:
                    await asyncio.sleep(chance.uniform(0.0, 1.0))
                    if topic not in one.node.topics:
                        await self._create(one, topic)
                elif topic not in one.node.topics and self._phase_is_calm:
                    await self._create(one, topic)

    async def _create(self, one: MovingNode, topic: str) -> None:
        try:
            await one.publisher.create_topic(topic, retain=topic in self._retained)
        except (TopicExists, StoreUnavailable, TimedOut, Fenced) as error:
            one.host.record(f"does not own {topic}: {error.code}")
        else:
            one.host.record(f"creates {topic}")
            self._look(topic, "it was created")

    async def _move(self, one: MovingNode, topic: str, chance: Chance) -> None:
        """Hand it over to some other node; in the end each topic once."""
        if self._phase_is_calm and topic not in self._unmoved:
            return
        takers = list(one.node.takers)
        spot = next((spot for spot in one.own_spots if topic in spot.owned), None)
        if not takers or spot is None:
            return
        if not self._is_restful() and chance.flip(0.9):
            return
        target = chance.choose(takers)
        patience_s = chance.uniform(0.0, 0.3) if not self._phase_is_calm and chance.flip(0.1) else None
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
        self.moved_count += 1
        if self._phase_is_calm:
            self._unmoved.discard(topic)
        if record.step not in (HandoverStep.TAKEN, HandoverStep.DONE) or not self.truths[topic].was_taken(
            record
        ):
            self.world.fail("the record says what happened", f"{one} was told {record}")

    async def _ask(self, host: Host) -> None:
        """Look after what others hand over, and ask them to."""
        chance = host.chance.fork("asker")
        async with self.store.link(host) as link:
            handovers = Handovers(link, name=ASKER, environment=Environment(chance=chance.fork("handovers")))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(handovers.look_after(), name="looks after hand-overs")
                while True:
                    await asyncio.sleep(chance.uniform(0.0, 1.0))
                    if not self._is_asked or self._phase_is_calm or not self._is_restful():
                        continue
                    target = chance.choose(list(self._newest().values()) or [None])
                    try:
                        if target is not None:
                            await handovers.move(
                                "topic",
                                NAMES[chance.choose(TOPICS)],
                                format_id(target.node.routing_id),
                                timeout=chance.choose(TIMEOUTS_S),
                                reason="somebody wants it there",
                            )
                    except (Conflict, NoOwner, StoreUnavailable, TimedOut) as error:
                        host.record(f"asks in vain: {error.code}")

    def _is_whole(self) -> bool:
        """Whether all nodes hear each other: who does not hear the new owner misses what it gives out."""
        nodes = self._newest().values()
        return all(len(one.node.peers) >= len(self.names) - 1 for one in nodes)

    def _is_restful(self) -> bool:
        """Whether they do, and nobody is about to leave."""
        return self._is_whole() and not any(one.is_over for one in self._newest().values())

    # What befalls those who hand something over.

    def _hosts_of(self, victim: Victim, record: Handover) -> Sequence[str]:
        match victim:
            case Victim.OLD:
                name = self._host_of(record.source)
            case Victim.NEW:
                name = self._host_of(record.target)
            case Victim.ASKER:
                name = record.asked_by
            case _:
                name = self.store.name
        return [name] if name in self.world.hosts else []

    def _host_of(self, node: str) -> str:
        """The host of a node, by its name in the store."""
        found = (one.host.name for one in self._nodes if format_id(one.node.routing_id) == node)
        return next(found, "")

    def _break(self, record: Handover) -> None:
        """The connection of one of the two who hand it over to another node breaks, now or soon."""
        chance = self._misfortune
        first = self._host_of(chance.choose((record.source, record.target)))
        second = chance.choose([name for name in self.names if name != first])
        after_s = chance.choose((0.0, chance.uniform(0.0, 0.05)))
        if first:
            self._disturbed("a connection breaks")
            self.world.loop.call_later(after_s, self.world.network.reset, first, second, context=Context())

    # The judge, while it goes on.

    def _disturbed(self, why: str) -> None:
        """From now on programs may notice something."""
        if not self._trouble:
            self._trouble = why
            self.world.history.record("", f"trouble: {why}")

    def _notice(self, what: str) -> None:
        """A program notices something."""
        self.world.history.record("", f"noticed: {what}")
        self._noticed.append(what)

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        for topic, truth in self.truths.items():
            truth.follow(batch, origin)
            for event in batch.events:
                key = event.item.key
                if key.startswith(truth.prefix) and event.kind is EventKind.DELETE and not origin:
                    self._disturbed(f"a lease has ended, and with it {key!r}")
                if key == truth.record_key and event.kind is EventKind.PUT and truth.record is not None:
                    if truth.record.step is HandoverStep.TAKEN and not self._is_whole():
                        self._disturbed("not all nodes hear each other")
                    is_chaotic = not self._phase_is_calm
                    if self._breaks and is_chaotic and self._misfortune.flip(0.2):
                        self._break(truth.record)
            self._look(topic, f"revision {batch.revision}")

    def _look(self, topic: str, when: str) -> None:
        """Judge the owners at this instant; when one of them goes on after a pause just now, a moment later.

        It learns of its loss at this very instant, and others may have their turn before it.
        """
        if not (problem := self._problem(topic)):
            return
        if any(one.life.resumed_s == self.world.loop.time() for one in self._publishing(topic)):
            self.world.loop.call_later(MOMENT_S, self._look, topic, when, context=Context())
        else:
            self.world.fail("a topic has one owner", f"{topic}, after {when}: {problem}")

    def _problem(self, topic: str) -> str:
        owners = self._publishing(topic)
        if len(owners) > 1:
            return f"{', '.join(map(str, owners))} own it"
        owner = self._owner(topic)
        if owners and owners[0].node.routing_id != owner:
            return f"{owners[0]} owns it, and in the store {owner.hex() or 'nobody'}"
        return ""

    def _publishing(self, topic: str) -> list[MovingNode]:
        """Those that run and give messages out: whoever closes a topic still owns it, and does nothing."""
        frame = topic.encode()
        return [
            one
            for one in self._nodes
            if one.life.state is LifeState.RUNNING and frame in one.machine.exchange.open_outlets
        ]

    def _owner(self, topic: str) -> bytes:
        """Who owns it, as the store has it."""
        truth = self.truths[topic]
        item = None if truth.owner is None else self.store.item(truth.owner[0])
        is_sealed = truth.record is not None and truth.record.step is HandoverStep.SEALED
        return b"" if item is None or is_sealed else decode_signed(item.value).body

    # The judge, in the end.

    def _newest(self) -> dict[str, MovingNode]:
        """By host, the node that took the place of all before."""
        return {one.host.name: one for one in self._nodes}

    def unsettled(self) -> str:
        nodes = self._newest()
        if parting := [str(one) for one in nodes.values() if one.is_over]:
            return f"{parting} are about to leave"
        problem = self._unowned() or next(filter(None, map(self._restless, nodes.values())), "")
        if problem or self._unmoved:
            return f"{sorted(self._unmoved)} have not moved; {problem}"
        self._round.set()
        if not all(one.has_finished for one in nodes.values()):
            return "the last messages are not published"
        for one in nodes.values():
            for topic, account in one.accounts.items():
                for post in self._last_posts:
                    if post.topic == topic and post.fate is Fate.DONE and post not in account.given:
                        return f"{post} has not come to {account}"
        self._is_late = True
        for one in nodes.values():
            if self._retained - one.served:
                return f"nobody has given the latest of {sorted(self._retained - one.served)} to {one}"
        self._judge()
        return ""

    def _unowned(self) -> str:
        for topic, truth in self.truths.items():
            owners = self._publishing(topic)
            if len(owners) != 1:
                return f"{topic} is owned by {list(map(str, owners))}"
            if truth.record is not None and truth.record.is_open:
                return f"a hand-over is open: {truth.record}"
        counts = Counter(self.store.living_leases().values())
        surplus = {name: count for name, count in counts.items() if count > 1}
        return f"leases that nobody needs: {surplus}" if surplus else ""

    def _restless(self, one: MovingNode) -> str:
        """What a node still waits for."""
        owners = {topic: self._owner(topic) for topic in TOPICS}
        if one.node.topics != owners:
            return f"{one} knows {one.node.topics}, not {owners}"
        if len(one.node.peers) != len(self.names) - 1:
            return f"{one} has {len(one.node.peers)} peers"
        for subscription in one.listener.subscriptions:
            if subscription.state is not SubscriptionState.ACTIVE:
                return f"{one} has {subscription.text} {subscription.state}"
        moves, wants = one.machine.moves, one.machine.wants
        waiting = {
            "holds": moves.holds,
            "is switching": moves.switching,
            "forwards": moves.leaving,
            "expects": moves.arrivals,
            "adopts": moves.adoptions,
            "crosses": wants.crossings,
        }
        return "; ".join(f"{one} {what} {list(found)}" for what, found in waiting.items() if found)

    def _judge(self) -> None:
        for one in self._nodes:
            self._drain(one)
        self.books.judge(self.watched)
        lost = [post for post in self.books.posts.lost(self.watched) if not self._is_excused(post)]
        if len(lost) > self._told_count:
            self.world.fail(
                "a publish that reached nobody is told",
                f"{self._told_count} were told, and lost are {', '.join(map(str, lost))}",
            )
        self.was_smooth = not self._trouble
        if self._trouble:
            return
        missed_count = self.books.missed_count()
        if self._noticed or lost or missed_count or self.books.holes_count():
            self.world.fail(
                "without trouble nobody notices a hand-over",
                f"{self._noticed}, {missed_count} were missed, and lost are {', '.join(map(str, lost))}",
            )

    def _is_excused(self, post: Post) -> bool:
        """Whether its publisher had no time to hear of it, or an owner that had it died."""
        for one in self._nodes:
            if one.label == post.node and one.is_over:
                # What it held when it ended.
                return True
            is_crashed = str(one.life) in self.world.crashed_lives
            if is_crashed and one.seen_s - UNDERWAY_S < post.settled_s < one.seen_s + DETECTION_S:
                return True
        return False
