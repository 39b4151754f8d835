"""What the programs of the topic mesh share: the books of a subscription hold all that its spot was told."""

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from hansa.chance import Chance
from hansa.ids import routing_id
from hansa.runtime.mailboxes import EventFeeds, EventStream
from hansa.testing import Broken, World
from hansa.testing.scenarios.spot_accounts import Account
from hansa.testing.scenarios.spot_cast import Cast, SpotPlayer
from hansa.topics.events import MessagesMissed, SpotEvent, SubscriptionActivated
from hansa.topics.inbox import Inbox, Reader, TopicMessage, WhenSlow
from hansa.topics.spot import Spot, Subscription

OWNER, EPOCH = routing_id(3), 7
TEXT = "zone:*"


class SilentSpot:
    """Stands for a spot whose program has not had its turn: what it is told waits, and so do its messages."""

    def __init__(self) -> None:
        self._told: EventFeeds[SpotEvent] = EventFeeds("the spot's events", count_max=100)
        self.reader = Reader(self)

    def wake(self) -> None:
        """Nobody waits."""

    def events(self) -> EventStream[SpotEvent]:
        return self._told.open()

    def tell(self, event: SpotEvent) -> None:
        self._told.put(event)


class Stage:
    """One spot with a pattern, and an owner of one topic that has given out some messages."""

    def __init__(self, world: World) -> None:
        self.cast = Cast(world, Chance.seeded(1))
        self.topic = next(topic for topic in sorted(self.cast.watched) if topic.startswith("zone:"))
        self.spot = SilentSpot()
        spot = cast(Spot, self.spot)
        self.player = SpotPlayer(spot, "n1", "n1/1.1.s1", pace_s=0.0, is_roomy=True)
        self.inbox = Inbox(self.spot.reader, 100, 10_000, WhenSlow.DROP_OLDEST)
        self.account = self.cast.accounts.open(self.player.label, TEXT, ())
        self.player.accounts[TEXT] = self.account
        self.player.subscriptions[TEXT] = Subscription(spot, TEXT, b"zone:", True, self.inbox)
        self.tenure = self.cast.tenures.begin(self.topic, OWNER, EPOCH, retain=False, node="n2/1.1")

    def become_active(self) -> None:
        event = SubscriptionActivated(subscription=TEXT, topic=self.topic, owner=OWNER, epoch=EPOCH)
        self.spot.tell(event)

    def give_out(self, count: int) -> None:
        """The owner publishes, and all of it comes to the inbox."""
        for _ in range(count):
            post = self.cast.posts.open("s1", "n2/1.1", self.topic, size_bytes=0)
            sequence = len(self.tenure.sightings) + 1
            self.cast.posts.receive("witness", self.topic, post.payload, sequence)
            self.cast.tenures.saw(self.tenure, sequence, post)
            self.inbox.put(TopicMessage(self.topic, post.payload, sequence), len(post.payload))

    def end(self, how: Callable[[], None]) -> Account:
        """Judge the account, which ends in this way."""
        how()
        self.cast.tenures.resolve()
        self.cast.accounts.judge()
        return self.account


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(1) as world:
        yield Stage(world)


def test_a_subscription_that_ends_is_judged_by_all_that_it_was_told(stage: Stage) -> None:
    """Seed 7948351: a host went on after a pause, and one task ended what others had not heard of yet."""
    stage.become_active()
    stage.give_out(3)
    account = stage.end(lambda: stage.cast.close_account(stage.player, TEXT))
    assert account.unread_count == 3
    assert list(account.runs) == [stage.topic]


def test_a_spot_that_closes_is_judged_by_all_that_it_was_told(stage: Stage) -> None:
    stage.become_active()
    stage.give_out(3)
    assert stage.end(lambda: stage.cast.close_player(stage.player)).unread_count == 3


def test_what_it_was_told_last_is_counted(stage: Stage) -> None:
    stage.become_active()
    stage.give_out(1)
    stage.spot.tell(MessagesMissed(subscription=TEXT, topic=stage.topic, count=2))
    stage.cast.close_account(stage.player, TEXT)
    assert stage.account.told_missed_count == 2


def test_messages_of_a_topic_on_which_it_never_was_active_are_noticed(stage: Stage) -> None:
    stage.give_out(3)
    with pytest.raises(Broken, match="what is lost is reported"):
        stage.end(lambda: stage.cast.close_account(stage.player, TEXT))
