"""The programs of nodes' hosts: a node and its spots, which act, come to rest, and publish a last time.

`Living` runs one node after the other. `Acting` makes every call of the node's spots that there is, with the
errors that each may raise; `Reading` reads one spot in every way there is, its messages and its events, fast
or slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hansa.chance import Chance
from hansa.errors import (
    AlreadyClosed,
    Backlogged,
    BadArgument,
    NoOwner,
    NotOwner,
    RegistrationRefused,
    TimedOut,
    TopicExists,
    WouldBlock,
)
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
from hansa.testing.scenarios.spot_accounts import Account, matches
from hansa.testing.scenarios.spot_cast import (
    MESH_PORT,
    Cast,
    NodeRun,
    SpotPlayer,
    Witness,
    floor_of,
    is_asked,
)
from hansa.testing.scenarios.spot_posts import Fate, Post
from hansa.topics.events import PublishesInDoubt, PublishesRefused, SpotEvent, TopicDemoted
from hansa.topics.inbox import TopicMessage, WhenSlow
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

WAYS = ("recv", "recv", "all", "nowait", "iterate", "subscription")
ITERATED_MAX = 5

SPOTS_MAX = 4
PUBLISH_S_MAX = 1.0
AWAY_S_MAX = 3.0
ROOMY_COUNT = 10_000
PACES_S = (0.0, 0.0, 0.0, 1.0, 3.0)
NOBODYS_TOPIC = "nobody:home"


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


class Acting:
    """The calls of one session, each with the errors with which it may end."""

    def __init__(self, host: Host, cast: Cast, session: NodeRun, witness: Witness, chance: Chance) -> None:
        self._host = host
        self._cast = cast
        self._session = session
        self._witness = witness
        self._chance = chance
        self._spots_count = 0

    # Spots.

    def open_spot(self, group: asyncio.TaskGroup) -> SpotPlayer:
        """Open one more spot, with a reader."""
        self._spots_count += 1
        label = f"{self._session.label}.s{self._spots_count}"
        chance = self._chance.fork(f"spot {self._spots_count}")
        pace_s = chance.choose(PACES_S)
        is_roomy = self._cast.is_restless and chance.flip(0.7)
        spot = self._session.node.spot(label)
        player = SpotPlayer(spot, self._host.name, label, pace_s=pace_s, is_roomy=is_roomy)
        reading = Reading(self._host, self._cast, player, chance)
        group.create_task(reading.read(), name=f"{label} reader")
        group.create_task(reading.listen(), name=f"{label} listener")
        self._session.players.append(player)
        self._host.record(f"opens {label}")
        return player

    async def close_spot(self, player: SpotPlayer) -> None:
        self._host.record(f"closes {player.label}")
        self._session.players.remove(player)
        topics = player.spot.owned
        self._cast.close_player(player)
        await player.spot.close()
        for topic in topics:
            await self._witness.end(topic)
        await self._try_closed(player)

    async def _try_closed(self, player: SpotPlayer) -> None:
        """Every call of a closed spot is an error that says so."""
        spot = player.spot
        topic = self._chance.choose(self._cast.topics)
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: spot.create_topic(topic),
            lambda: spot.destroy_topic(topic),
            lambda: spot.publish(topic, b"too late"),
            lambda: spot.subscribe(topic),
            lambda: spot.subscribe_pattern("zone:*"),
            lambda: spot.unsubscribe(topic),
            lambda: spot.recv(),
            lambda: spot.recv_all(),
        )
        try:
            await self._chance.choose(calls)()
        except AlreadyClosed:
            await spot.close()
        else:
            self._cast.world.fail("a closed spot says so", f"{player.label} did as it was asked")

    # Topics.

    async def create(self, player: SpotPlayer, topic: str) -> bool:
        """Create the topic; returns whether the spot owns it now."""
        retain = topic in self._cast.retained
        try:
            await self._witness.create(player.spot, topic, retain=retain)
        except TopicExists as error:
            self._host.record(f"{player.label} cannot create: {error}")
            return False
        self._host.record(f"{player.label} creates {topic}{', retained' if retain else ''}")
        return True

    async def destroy(self, player: SpotPlayer, topic: str) -> None:
        is_owned = topic in player.spot.owned
        try:
            await player.spot.destroy_topic(topic)
        except NotOwner as error:
            if is_owned:
                self._cast.world.fail("an owner may destroy its topic", f"{player.label}: {error}")
            return
        self._host.record(f"{player.label} destroys {topic}")
        if not is_owned:
            self._cast.world.fail("only the owner destroys a topic", f"{player.label} destroyed {topic}")
        await self._witness.end(topic)

    # Publishing.

    async def publish(self, player: SpotPlayer, topic: str) -> Post:
        """Publish one message, waiting for room or not."""
        posts, chance = self._cast.posts, self._chance
        size_bytes = chance.choose((0, 10, 100, 700)) if self._cast.is_chaotic else 10
        post = posts.open(player.label, self._session.label, topic, size_bytes=size_bytes)
        self._host.record(f"publishes {post}")
        try:
            if chance.flip(0.3):
                player.spot.post(topic, post.payload)
            else:
                async with asyncio.timeout(PUBLISH_S_MAX):
                    await player.spot.publish(topic, post.payload)
        except (NoOwner, Backlogged) as error:
            self._host.record(f"cannot publish {post}: {error.code}")
            posts.settle(post, Fate.REFUSED)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._host.record(f"gave up {post}")
            posts.settle(post, Fate.GIVEN_UP)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            posts.settle(post, Fate.DONE)
        return post

    # Subscribing.

    async def subscribe(self, player: SpotPlayer, text: str) -> None:
        chance = self._chance
        if player.is_roomy:
            await self.subscribe_roomily(player, text)
            return
        when_slow = chance.choose(tuple(WhenSlow))
        count_max = chance.choose((1, 3, ROOMY_COUNT, ROOMY_COUNT))
        await self._subscribe(player, text, count_max=count_max, when_slow=when_slow)

    async def subscribe_roomily(self, player: SpotPlayer, text: str) -> None:
        """Subscribe so that nothing is ever dropped."""
        await self._subscribe(player, text, count_max=ROOMY_COUNT, when_slow=WhenSlow.DROP_OLDEST)

    async def _subscribe(self, player: SpotPlayer, text: str, *, count_max: int, when_slow: WhenSlow) -> None:
        if text in player.accounts:
            await self._subscribe_again(player, text)
            return
        # Events of an earlier subscription to the same topic have been heard by then.
        await asyncio.sleep(0.001)
        is_pattern = text.endswith("*")
        subscribe = player.spot.subscribe_pattern if is_pattern and self._chance.flip(0.5) else None
        subscription = await (subscribe or player.spot.subscribe)(
            text, count_max=count_max, when_slow=when_slow
        )
        account = self._cast.accounts.open(player.label, text, player.accounts.values())
        account.is_roomy = count_max == ROOMY_COUNT and when_slow is not WhenSlow.KEEP_LATEST
        for topic in filter(account.matches, self._cast.topics):
            floor = floor_of(self._session.node, topic)
            if floor is not None:
                account.floors[topic] = floor
            elif is_asked(self._session.node, topic):
                account.asked.add(topic)
        self._cast.accounts.stay(account)
        player.accounts[text] = account
        player.subscriptions[text] = subscription
        self._host.record(f"subscribes {account}, {count_max}, {when_slow.value}")

    async def _subscribe_again(self, player: SpotPlayer, text: str) -> None:
        former = player.subscriptions[text]
        try:
            again = await player.spot.subscribe(text)
        except BadArgument:
            return  # It is subscribed with other options.
        if again is not former:
            self._cast.world.fail("subscribing again changes nothing", f"{player.label}: {text}")

    async def unsubscribe(self, player: SpotPlayer, text: str) -> None:
        if text not in player.accounts:
            try:
                await player.spot.unsubscribe(text)
            except BadArgument:
                return
            self._cast.world.fail("only what was subscribed is unsubscribed", f"{player.label}: {text}")
        self._host.record(f"unsubscribes {player.accounts[text]}")
        subscription = player.subscriptions[text]
        self._cast.close_account(player, text)
        if self._chance.flip(0.5):
            await player.spot.unsubscribe(text)
        else:
            await subscription.close()

    async def change(self, player: SpotPlayer, topic: str) -> None:
        """Receive the topic through another subscription than before, without a gap between the two."""
        texts = [text for text in (*self._cast.patterns, topic) if matches(text, topic)]
        held = [text for text in texts if text in player.accounts]
        if len(held) > 1 and self._chance.flip(0.5):
            await self.unsubscribe(player, self._chance.choose(held))
        elif len(held) < len(texts):
            text = self._chance.choose([text for text in texts if text not in held])
            await self.subscribe_roomily(player, text)

    async def await_state(self, player: SpotPlayer, text: str) -> None:
        """Wait a while for the subscription to become active, or pending."""
        subscription, chance = player.subscriptions[text], self._chance
        wait = subscription.active if chance.flip(0.7) else subscription.pending
        try:
            await wait(timeout=chance.uniform(0.0, 2.0))
        except TimedOut:
            self._host.record(f"waited in vain for {player.accounts[text]}")

    async def ask(self) -> None:
        """Call every question that the node itself can answer."""
        node, chance = self._session.node, self._chance
        try:
            match chance.choose(("survey", "survey", "registered", "in step")):
                case "survey":
                    await self._survey()
                case "registered":
                    await node.registered(timeout=chance.uniform(0.0, 1.0))
                case "in step":
                    await node.in_step(timeout=chance.uniform(0.0, 1.0))
        except (TimedOut, RegistrationRefused) as error:
            self._host.record(f"{self._session.label} is told: {error}")

    async def leave_for_a_while(self) -> None:
        """Unregister without closing, and register again."""
        node, chance = self._session.node, self._chance
        self._host.record(f"{self._session.label} unregisters")
        try:
            await node.unregister(timeout=chance.uniform(0.1, 1.0))
        except TimedOut as error:
            self._host.record(f"{self._session.label} is told: {error}")
        await asyncio.sleep(chance.uniform(0.0, AWAY_S_MAX))
        self._host.record(f"{self._session.label} registers again")
        try:
            await node.register(timeout=chance.uniform(0.1, 1.0))
        except (TimedOut, RegistrationRefused) as error:
            self._host.record(f"{self._session.label} is told: {error}")

    async def _survey(self) -> None:
        """Ask all nodes; those that are not heard are left out."""
        reports = await self._session.node.survey(timeout=0.5)
        topics = [report.topic for report in reports]
        if topics != sorted(topics):
            self._cast.world.fail("a survey is sorted", f"{self._session.label}: {topics}")


class Reading:
    """The messages that are read from one spot go into the books of its subscriptions."""

    def __init__(self, host: Host, cast: Cast, player: SpotPlayer, chance: Chance) -> None:
        self._host = host
        self._cast = cast
        self._player = player
        self._chance = chance

    async def read(self) -> None:
        """Read until the spot closes."""
        player, chance = self._player, self._chance
        try:
            while not player.is_over:
                if self._cast.is_chaotic and player.pace_s:
                    await asyncio.sleep(chance.uniform(0.0, player.pace_s))
                match chance.choose(WAYS):
                    case "all" if not any(account.shared for account in player.accounts.values()):
                        self._got(await player.spot.recv_all())
                    case "nowait":
                        self._got([await player.spot.recv()])
                        self._read_what_waits()
                    case "iterate":
                        await self._iterate()
                    case "subscription" if player.subscriptions:
                        self._read_one(chance.choose(list(player.subscriptions)))
                        self._got([await player.spot.recv()])
                    case _:
                        self._got([await player.spot.recv()])
        except AlreadyClosed:
            return

    async def listen(self) -> None:
        """Hear the spot's events until it closes."""
        async for event in self._player.events:
            self._cast.hear(self._player, event)

    # Ways to read.

    def _read_what_waits(self) -> None:
        try:
            while True:
                self._got([self._player.spot.recv_nowait()])
        except WouldBlock:
            return

    def _read_one(self, text: str) -> None:
        """One message of one subscription."""
        try:
            message = self._player.subscriptions[text].recv_nowait()
        except WouldBlock:
            return
        self._deliver(self._player.accounts[text], message)

    async def _iterate(self) -> None:
        count = 0
        async for message in self._player.spot:
            self._got([message])
            count += 1
            if count == ITERATED_MAX:
                return
        if not self._player.spot.is_closed:
            self._cast.world.fail("iteration ends with the spot", f"{self._player.label} is open still")
        raise AlreadyClosed(f"{self._player.label} is closed")

    # Into the books.

    def _got(self, messages: list[TopicMessage]) -> None:
        for message in messages:
            if not self._player.is_over:
                self._deliver(self._account_of(message), message)

    def _deliver(self, account: Account, message: TopicMessage) -> None:
        self._host.record(f"{account} got {message.topic} {message.sequence}")
        post = self._cast.posts.receive(account.label, message.topic, message.payload, message.sequence)
        self._cast.accounts.deliver(account, post)

    def _account_of(self, message: TopicMessage) -> Account:
        """The account whose counter says that it gave one more message than the books know."""
        player = self._player
        ahead = [
            account
            for text, account in player.accounts.items()
            if player.read_count(text) > account.given_count
        ]
        fitting = [account for account in ahead if account.matches(message.topic)]
        if not fitting:
            self._cast.world.fail(
                "a message comes through a subscription",
                f"{player.label} got {message!r}; ahead are {[str(account) for account in ahead]}",
            )
        return max(fitting, key=lambda one: (not one.is_pattern, len(one.text)))
