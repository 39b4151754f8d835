"""The books of topics that move: a wrong delivery is noticed, and what goes with a dead owner is forgiven."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hansa.testing import Broken, World
from hansa.testing.scenarios.moving_cast import TopicAccount, TopicBooks
from hansa.testing.scenarios.spot_posts import Post
from hansa.topics.inbox import TopicMessage

RETAINED, PLAIN = "zone:west", "zone:east"


class Books:
    """Books of two topics, of which one retains its latest message."""

    def __init__(self, world: World) -> None:
        world.elapsed_s = lambda: 0.0  # type: ignore[method-assign]
        self.books = TopicBooks(world, retained=frozenset({RETAINED}))

    def open(self, topic: str = RETAINED, *, floor: int) -> TopicAccount:
        subscription = cast(Any, SimpleNamespace(inbox=SimpleNamespace(missed_count=0)))
        return self.books.open("guest", topic, subscription, floor=floor)

    def deliver(self, account: TopicAccount, sequence: int) -> Post:
        post = self.books.posts.open("n1", "n1", account.topic, size_bytes=0)
        return self.books.heard(account, TopicMessage(account.topic, post.payload, sequence))


@pytest.fixture
def books() -> Iterator[Books]:
    with World(1) as world:
        yield Books(world)


def test_an_account_of_a_retained_topic_begins_with_the_latest_message_or_a_newer_one(books: Books) -> None:
    books.deliver(books.open(floor=73), 73)
    books.deliver(books.open(floor=73), 74)
    with pytest.raises(Broken, match="the latest message is retained"):
        books.deliver(books.open(floor=73), 72)


def test_only_the_first_message_of_an_account_says_what_was_retained(books: Books) -> None:
    account = books.open(floor=73)
    books.deliver(account, 73)
    books.deliver(account, 1)


def test_a_topic_that_begins_anew_has_not_the_latest_message_of_before(books: Books) -> None:
    account, other = books.open(floor=73), books.open(floor=73)
    books.books.begin_anew(PLAIN)
    with pytest.raises(Broken, match="the latest message is retained"):
        books.deliver(other, 28)
    books.books.begin_anew(RETAINED)
    books.deliver(account, 28)


def test_who_subscribes_after_a_topic_began_anew_gets_no_older_message_of_that_counting(books: Books) -> None:
    books.books.begin_anew(RETAINED)
    with pytest.raises(Broken, match="the latest message is retained"):
        books.deliver(books.open(floor=28), 27)
