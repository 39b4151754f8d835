"""The books of topics that move: under which number each message was given out, and who was given it.

A counting is what one founder and epoch have numbered, over any number of owners. A node that owns a topic
and listens to it sees what it gives out itself; so for each counting the books know which message had which
number. A number is given once, and none is left out, whoever owns in between: also when an owner dies at the
worst moment and the next one goes on with what was sealed.

An account is one subscription. No message comes to it twice, and those of one publisher keep their order.
What it was not given of a counting between two that it was given was lost on the way, and it must have been
told so: exactly so many, and no more than were given out at all.

The first message of a retained topic that comes to an account is not older than what was given out before the
account was opened, unless the topic has begun anew meanwhile: an owner that was handed nothing counts from 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hansa.testing.scenarios.spot_posts import Post, Posts
from hansa.testing.world import World
from hansa.topics.inbox import TopicMessage
from hansa.topics.spot import Subscription

__all__ = ["Counting", "TopicAccount", "TopicBooks"]


@dataclass(slots=True, kw_only=True, eq=False)
class Counting:
    """What was numbered one after the other, by one owner and those that it was handed over to."""

    topic: str
    founder: bytes
    epoch: int
    given: dict[int, Post] = field(default_factory=dict)
    """By number."""

    def __str__(self) -> str:
        return f"the counting {self.epoch} of {self.topic}"


@dataclass(slots=True, kw_only=True, eq=False)
class TopicAccount:
    """One subscription to one topic, from its beginning to its end."""

    label: str
    topic: str
    subscription: Subscription
    floor: int = 0
    """A number that was given out before it began: of a retained topic it gets no older message. 0 from when
    the topic begins anew."""
    given: dict[Post, None] = field(default_factory=dict)
    suspended_count: int = 0
    last: dict[str, Post] = field(default_factory=dict)
    """By publisher."""

    def __str__(self) -> str:
        return f"{self.label} on {self.topic}"


class TopicBooks:
    """All countings and accounts of a run. `posts` has what was published."""

    def __init__(self, world: World, *, retained: frozenset[str]) -> None:
        self.posts = Posts(world)
        self.accounts: list[TopicAccount] = []
        self.keeps_order = True
        """Whether the messages of one publisher come in their order."""
        self._world = world
        self._retained = retained
        self._countings: dict[tuple[str, bytes, int], Counting] = {}
        self._counting_of: dict[Post, Counting] = {}
        self._last: dict[str, int] = {}

    def open(self, label: str, topic: str, subscription: Subscription, *, floor: int = 0) -> TopicAccount:
        """Somebody subscribes to a topic."""
        account = TopicAccount(label=label, topic=topic, subscription=subscription, floor=floor)
        self.accounts.append(account)
        return account

    def begin_anew(self, topic: str) -> None:
        """Somebody came to own the topic who was handed nothing: no number of before says anything."""
        for account in self.accounts:
            if account.topic == topic:
                account.floor = 0

    def heard(self, account: TopicAccount, message: TopicMessage) -> Post:
        """A message was read from a subscription."""
        post = self.posts.receive(account.label, message.topic, message.payload, message.sequence)
        if post in account.given:
            self._world.fail("nothing is delivered twice", f"{post} came to {account} again")
        before = account.last.get(post.publisher)
        if self.keeps_order and before is not None and before.number > post.number:
            self._world.fail("order is kept", f"{post} came to {account} after {before}")
        if not account.given and account.topic in self._retained and post.sequence < account.floor:
            self._world.fail(
                "the latest message is retained", f"{account} began with {post.sequence}, not {account.floor}"
            )
        account.given[post] = None
        account.last[post.publisher] = post
        self._last[post.topic] = max(self.last(post.topic), post.sequence)
        return post

    def last(self, topic: str) -> int:
        """The highest number that was seen so far, of any counting."""
        return self._last.get(topic, 0)

    def gave(self, topic: str, founder: bytes, epoch: int, post: Post) -> None:
        """An owner gave this out."""
        counting = self._countings.get((topic, founder, epoch))
        if counting is None:
            counting = Counting(topic=topic, founder=founder, epoch=epoch)
            self._countings[topic, founder, epoch] = counting
        other = counting.given.setdefault(post.sequence, post)
        if other is not post:
            self._world.fail(
                "a number is given once", f"{counting}: number {post.sequence} to {other}, then to {post}"
            )
        if self._counting_of.setdefault(post, counting) is not counting:
            self._world.fail("a message is given out once", f"{post}: {self._counting_of[post]}, {counting}")

    # Judgement, when everything has come to rest.

    def judge(self, watched: frozenset[str]) -> None:
        """Fail if a number is left out, or if what an account lost is not what it was told."""
        for counting in self._countings.values():
            missing = [number for number in range(1, max(counting.given) + 1) if number not in counting.given]
            if counting.topic in watched and missing:
                self._world.fail("no number is left out", f"{counting}: nobody gave out {missing[:20]}")
        for account in self.accounts:
            if account.topic in watched:
                self._judge(account)

    def _judge(self, account: TopicAccount) -> None:
        numbers: dict[Counting, list[int]] = {}
        for post in account.given:
            counting = self._counting_of.get(post)
            if counting is None:
                self._world.fail("only what an owner gave out is delivered", f"{post} came to {account}")
            numbers.setdefault(counting, []).append(post.sequence)
        low = sum(max(found) - min(found) + 1 - len(found) for found in numbers.values())
        high = sum(len(one.given) for one in self._countings.values() if one.topic == account.topic)
        high -= len(account.given)
        told = account.subscription.inbox.missed_count
        if not low <= told <= high:
            self._world.fail(
                "what is lost is told, and no more",
                f"{account}: {told} were told as missed, and lost were {low} to {high}",
            )

    def holes_count(self) -> int:
        """What is missing between the numbers that accounts were given, if each topic had one counting."""
        numbers = [[post.sequence for post in account.given] for account in self.accounts if account.given]
        return sum(max(found) - min(found) + 1 - len(found) for found in numbers)

    def missed_count(self) -> int:
        """What all accounts together were told as missed."""
        return sum(account.subscription.inbox.missed_count for account in self.accounts)
