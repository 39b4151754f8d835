"""The programs of spots: every call there is, with the errors that each may raise, and every way to read.

`Acting` makes the calls of one node's spots; `Reading` reads one spot, its messages and its events, fast or
slowly.
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
from hansa.testing.host import Host
from hansa.testing.scenarios.spot_accounts import Account, matches
from hansa.testing.scenarios.spot_cast import Cast, NodeRun, SpotPlayer
from hansa.testing.scenarios.spot_posts import Fate, Post
from hansa.testing.scenarios.spot_witness import Witness, floor_of, is_asked
from hansa.topics.inbox import TopicMessage, WhenSlow

WAYS = ("recv", "recv", "all", "nowait", "iterate", "subscription")
ITERATED_MAX = 5

SPOTS_MAX = 4
PUBLISH_S_MAX = 1.0
AWAY_S_MAX = 3.0
ROOMY_COUNT = 10_000
PACES_S = (0.0, 0.0, 0.0, 1.0, 3.0)
NOBODYS_TOPIC = "nobody:home"


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
