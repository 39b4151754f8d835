"""Reads one spot: its messages in every way there is, fast or slowly, and its events."""

from __future__ import annotations

import asyncio

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, WouldBlock
from hansa.messaging.spot.events import (
    MessagesDropped,
    MessagesMissed,
    SubscriptionActivated,
    SubscriptionSuspended,
)
from hansa.messaging.spot.inbox import TopicMessage
from hansa.testing.host import Host
from hansa.testing.scenarios.spot_accounts import Account
from hansa.testing.scenarios.spot_cast import Cast, Player

__all__ = ["Reading"]

WAYS = ("recv", "recv", "all", "nowait", "iterate", "subscription")
ITERATED_MAX = 5


class Reading:
    """What is read from one spot goes into the books of its subscriptions."""

    def __init__(self, host: Host, cast: Cast, player: Player, chance: Chance) -> None:
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
        accounts = self._cast.accounts
        async for event in self._player.spot.events():
            match event:
                case (
                    SubscriptionActivated(subscription=text)
                    | SubscriptionSuspended(subscription=text)
                    | MessagesMissed(subscription=text)
                    | MessagesDropped(subscription=text)
                ):
                    account = self._player.accounts.get(text)
                case _:
                    continue
            if isinstance(event, MessagesMissed):
                accounts.missed(self._player.label, event.topic, event.count)
            if account is None:
                continue  # It has ended meanwhile, and so have its books.
            match event:
                case SubscriptionActivated():
                    self._host.record(f"{account} is active on {event.topic}")
                    accounts.activated(account, event.topic, event.owner, event.epoch)
                case SubscriptionSuspended():
                    self._host.record(f"{account} waits for an owner of {event.topic}")
                    accounts.suspended(account, event.topic)
                case MessagesMissed():
                    self._host.record(f"{account} missed {event.count} of {event.topic}")
                    account.told_missed_count += event.count
                case MessagesDropped():
                    self._host.record(f"{account} dropped {event.count}")
                    account.told_dropped_count += event.count

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
        """Whose counter says that it gave one more than the books know."""
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
