"""The programs of nodes' hosts: a node and its spots, which act, come to rest, and publish a last time."""

from __future__ import annotations

import asyncio

from hansa.chance import Chance
from hansa.ids import new_routing_id, precedence
from hansa.services.discovery.client import Discovery
from hansa.testing.host import Host
from hansa.testing.scenarios.cluster import (
    HEARTBEAT_INTERVAL_S,
    POLL_S,
    PUB_PORT,
    ROUTER_PORT,
    socket_options,
)
from hansa.testing.scenarios.spot_acting import NOBODYS_TOPIC, SPOTS_MAX, Acting
from hansa.testing.scenarios.spot_cast import MESH_PORT, Cast, NodeRun, SpotPlayer
from hansa.testing.scenarios.spot_posts import Fate, Post
from hansa.testing.scenarios.spot_witness import Witness
from hansa.topics.events import PublishesInDoubt, PublishesRefused, SpotEvent, TopicDemoted
from hansa.topics.node import SpotNode
from hansa.transport.environment import Environment

PAUSE_S_MAX = 0.6
REST_S_MAX = 2.0
# A packet that is sent again is later than this only when a fault holds it.
GENTLE_S = 0.4
BURST_COUNT = 5

DEEDS = (
    *("publish",) * 8,
    *("subscribe",) * 3,
    *("create",) * 3,
    "unsubscribe",
    *("destroy",) * 2,
    "wait",
    "open",
    "close",
    "ask",
    "leave",
)


class Living:
    """The program of one node's host."""

    def __init__(self, host: Host, cast: Cast) -> None:
        self._host = host
        self._cast = cast
        self._chance = host.chance

    async def run(self) -> None:
        """Run one node after the other, until the host is stopped."""
        number = 0
        while True:
            number += 1
            environment = self._host.environment.fork(f"session {number}")
            chance = environment.chance
            session = self._session(number, environment)
            # The tasks end because the things that they read are closed before.
            async with asyncio.TaskGroup() as group, session.discovery, session.node:
                self._cast.sessions[self._host.name] = session
                self._host.record(f"is node {session.node.routing_id.hex()} in session {session.label}")
                witness = session.witness = Witness(self._host, self._cast, session.label, session.node)
                group.create_task(witness.run(), name=f"{session.label} witness")
                group.create_task(self._listen(session, witness), name=f"{session.label} listener")
                acting = Acting(self._host, self._cast, session, witness, chance.fork("deeds"))
                try:
                    await self._live(session, acting, group, chance.fork("life"))
                finally:
                    self._cast.close_session(session, crashed=False)
            await asyncio.sleep(chance.choose((0.0, chance.uniform(0.0, REST_S_MAX))))

    def _session(self, number: int, environment: Environment) -> NodeRun:
        host, cast, chance = self._host, self._cast, environment.chance
        label = f"{host.life}.{number}"
        # Set between two programs: the next one may number its epochs before those of the last one.
        host.clock.wall_skew_s = cast.wall_skew_s(chance.fork("clock"))
        discovery = Discovery(
            [f"tcp://{name}:{PUB_PORT}" for name in cast.registries],
            silence_timeout=3 * cast.broadcast_interval_s,
            environment=environment.fork("discovery").but(
                options=socket_options(chance.fork("discovery options"))
            ),
            name=f"{label} discovery",
        )
        node = SpotNode(
            f"tcp://*:{MESH_PORT}",
            [f"tcp://{name}:{ROUTER_PORT}" for name in cast.registries],
            discovery=discovery,
            advertise=f"tcp://{host.name}:{MESH_PORT}",
            routing_id=new_routing_id(Chance.seeded(host.name)) if host.name in cast.faithful else b"",
            join_timeout=chance.choose((0.1, 1.0)),
            query_interval=cast.query_interval_s,
            heartbeat_interval=HEARTBEAT_INTERVAL_S,
            environment=environment.fork("node").but(options=cast.mesh_options(chance.fork("options"))),
            name=label,
        )
        return NodeRun(host.name, label, node, discovery)

    async def _listen(self, session: NodeRun, witness: Witness) -> None:
        async for event in session.node.events():
            self._host.record(_line(event))
            match event:
                case PublishesRefused():
                    self._cast.posts.report_refused(session.label, event.topic, event.count)
                case PublishesInDoubt():
                    self._cast.posts.report_in_doubt(session.label, event.count)
                case TopicDemoted():
                    if precedence(event.winner) >= precedence(session.node.routing_id):
                        self._cast.world.fail("the lower id wins", f"{session.label}: {_line(event)}")
                    await witness.demoted(event.topic)

    # The phases.

    async def _live(self, session: NodeRun, acting: Acting, group: asyncio.TaskGroup, chance: Chance) -> None:
        """Live; returns when the node leaves, to come back as another."""
        cast = self._cast
        for _ in range(1 + chance.below(SPOTS_MAX)):
            acting.open_spot(group)
        for player in session.players:
            await self._act("create", session, acting, group, chance)
            await acting.subscribe(player, chance.choose((*cast.topics, *cast.patterns)))
        while cast.is_chaotic:
            await asyncio.sleep(chance.uniform(0.0, PAUSE_S_MAX))
            deed = chance.choose(DEEDS)
            if deed == "leave" and chance.flip(0.15):
                return
            if cast.is_restless and chance.flip(0.7 if self._away(session) else 0.1):
                deed = "change"
            elif cast.is_restless and chance.flip(0.02):
                deed = "part"
            await self._act(deed, session, acting, group, chance)
        await self._come_to_rest(session, acting, chance)
        session.is_steady = True
        await cast.round_called.wait()
        await self._publish_rounds(session, acting, chance)
        session.has_finished = True
        await asyncio.Event().wait()

    async def _act(
        self, deed: str, session: NodeRun, acting: Acting, group: asyncio.TaskGroup, chance: Chance
    ) -> None:
        cast, players = self._cast, session.players
        player = chance.choose(players)
        text = chance.choose(list(player.accounts)) if player.accounts else chance.choose(cast.patterns)
        match deed:
            case "publish":
                topic = self._topic_to_publish(session, player, chance)
                for _ in range(chance.choose((1, 1, 3, 16))):
                    if (await acting.publish(player, topic)).fate is not Fate.DONE:
                        break
            case "subscribe":
                names = cast.patterns if chance.flip(0.3) else cast.topics
                await acting.subscribe(player, chance.choose(names))
            case "create":
                await acting.create(player, self._topic_to_create(chance))
            case "unsubscribe":
                await acting.unsubscribe(player, text)
            case "change":
                somewhere = [(player, chance.choose(cast.topics))]
                await acting.change(*chance.choose(self._away(session) or somewhere))
            case "part":
                await acting.leave_for_a_while()
            case "destroy":
                topics = player.spot.owned if chance.flip(0.8) else ()
                is_hot = cast.hot_topic in topics
                await acting.destroy(
                    player, cast.hot_topic if is_hot else chance.choose(topics or cast.topics)
                )
            case "wait" if text in player.accounts:
                await acting.await_state(player, text)
            case "open" if len(players) < SPOTS_MAX:
                acting.open_spot(group)
            case "close" if len(players) > 1:
                await acting.close_spot(player)
            case "ask":
                await acting.ask()

    async def _come_to_rest(self, session: NodeRun, acting: Acting, chance: Chance) -> None:
        """Own this node's topics, except some, and subscribe to everything that is not subscribed yet."""
        cast = self._cast
        for topic in cast.homes[self._host.name]:
            # No other node creates it, but a life before may not have been forgotten yet.
            while chance.flip(0.7) and topic not in session.node.owned:
                if await acting.create(chance.choose(session.players), topic):
                    break
                await asyncio.sleep(POLL_S)
        for topic in sorted(cast.contested):
            if chance.flip(0.5):
                await acting.create(chance.choose(session.players), topic)
        for player in session.players:
            await acting.subscribe_roomily(player, chance.choose((*cast.topics, *cast.patterns)))

    async def _publish_rounds(self, session: NodeRun, acting: Acting, chance: Chance) -> None:
        """Publish gentle rounds that must arrive, a burst that must be counted, and a last round."""
        for count in (1, 1, BURST_COUNT, 1):
            await asyncio.sleep(GENTLE_S)
            for player in session.players:
                topics = list(player.spot.owned)
                if count == 1 and session.node.topics:
                    topics.append(chance.choose(sorted(session.node.topics)))
                for topic in topics:
                    for _ in range(count):
                        self._expect(session, await acting.publish(player, topic))
                    if count > 1:
                        # It has left by then, also where there is little room on the way to a peer.
                        await asyncio.sleep(GENTLE_S)
        await self._publish_in_vain(session, acting)

    def _expect(self, session: NodeRun, post: Post) -> None:
        if post.fate is not Fate.DONE:
            self._cast.world.fail("an owned topic can be published to", f"{session.label}: {post}")
        for player in self._cast.players():
            account = player.target(post.topic)
            if account is not None and account.is_roomy:
                self._cast.accounts.expect(account, post)

    async def _publish_in_vain(self, session: NodeRun, acting: Acting) -> None:
        """Publish to a topic that nobody owns, and create one that is owned: both must fail."""
        player = session.players[0]
        if (await acting.publish(player, NOBODYS_TOPIC)).fate is not Fate.REFUSED:
            self._cast.world.fail("what nobody owns cannot be published to", session.label)
        for topic in session.node.topics:
            if await acting.create(player, topic):
                self._cast.world.fail("a topic has one owner", f"{session.label} created {topic} again")

    # Choices of topics and spots.

    def _away(self, session: NodeRun) -> list[tuple[SpotPlayer, str]]:
        """Spots, and topics of theirs whose owner is away: changes of these are easily got wrong."""
        accounts = self._cast.accounts
        return [(player, topic) for player in session.players for topic in accounts.away(player.label)]

    def _topic_to_publish(self, session: NodeRun, player: SpotPlayer, chance: Chance) -> str:
        known = sorted(session.node.topics)
        match chance.choose(("own", "own", "known", "known", "known", "any")):
            case "own" if player.spot.owned:
                return chance.choose(player.spot.owned)
            case "known" if known:
                is_hot = self._cast.hot_topic in known and chance.flip(0.5)
                return self._cast.hot_topic if is_hot else chance.choose(known)
        return chance.choose((*self._cast.topics, NOBODYS_TOPIC))

    def _topic_to_create(self, chance: Chance) -> str:
        contested = sorted(self._cast.contested)
        if contested and chance.flip(0.4):
            return chance.choose(contested)
        homes = self._cast.homes[self._host.name]
        is_hot = self._cast.hot_topic in homes and chance.flip(0.5)
        return self._cast.hot_topic if is_hot else chance.choose(homes)


def _line(event: SpotEvent) -> str:
    values = [getattr(event, name) for name in type(event).__dataclass_fields__]
    shown = [value.hex() if isinstance(value, bytes) else str(value) for value in values]
    return f"{type(event).__name__} {' '.join(shown)}"
