"""The books of ownership: each message is allotted to who gave it out, and to nobody else."""

from collections.abc import Iterator

import pytest

from hansa.ids import routing_id
from hansa.testing import Broken, World
from hansa.testing.scenarios.spot_posts import Post, Posts
from hansa.testing.scenarios.spot_tenures import Tenure, Tenures

TOPIC = "shared:1"
LOW, HIGH = routing_id(3), routing_id(9)


class Books:
    def __init__(self, world: World) -> None:
        self.now = 0.0
        world.elapsed_s = lambda: self.now  # type: ignore[method-assign]
        self.posts = Posts(world)
        self.tenures = Tenures(world)

    def tenure(self, owner: bytes = LOW, *, epoch: int = 1) -> Tenure:
        return self.tenures.begin(TOPIC, owner, epoch, retain=False, node=f"n{owner[-1]}")

    def post(self, publisher: str = "s1") -> Post:
        return self.posts.open(publisher, "n1", TOPIC, size_bytes=0)

    def saw(self, tenure: Tenure, *numbered: tuple[int, Post]) -> None:
        for sequence, post in numbered:
            self.tenures.saw(tenure, sequence, post)


@pytest.fixture
def books() -> Iterator[Books]:
    with World(1) as world:
        yield Books(world)


def broken(books: Books) -> str:
    with pytest.raises(Broken) as caught:
        books.tenures.resolve()
    return caught.value.invariant


def test_messages_belong_to_the_tenure_whose_witness_saw_them(books: Books) -> None:
    tenure, posts = books.tenure(), [books.post() for _ in range(3)]
    for at_s, post in enumerate(posts, 1):
        books.now = float(at_s)
        books.saw(tenure, (at_s, post))
    books.tenures.resolve()
    assert tenure.posts == posts
    assert [post.tenure for post in posts] == [tenure] * 3
    assert (tenure.count_before(2.0), tenure.count_until(2.0), tenure.count_until(9.0)) == (1, 2, 3)


def test_a_tenure_is_found_by_its_owner_and_epoch(books: Books) -> None:
    first, second = books.tenure(), books.tenure(epoch=2)
    assert books.tenures.find(TOPIC, LOW, 2) is second
    assert books.tenures.find(TOPIC, LOW, 1) is first
    assert books.tenures.find(TOPIC, HIGH, 1) is None
    with pytest.raises(Broken, match="never used twice"):
        books.tenure()


@pytest.mark.parametrize("numbers", [(2,), (1, 1), (1, 3), (1, 2, 1)])
def test_numbers_that_are_not_the_next_are_noticed(books: Books, numbers: tuple[int, ...]) -> None:
    tenure = books.tenure()
    books.saw(tenure, *((number, books.post()) for number in numbers))
    assert broken(books) == "an owner numbers its messages one by one"


def test_a_message_given_out_by_two_owners_is_noticed(books: Books) -> None:
    both = books.post()
    books.saw(books.tenure(LOW), (1, both))
    books.saw(books.tenure(HIGH), (1, both))
    assert broken(books) == "an owner numbers its messages one by one"


def test_what_a_loser_saw_after_it_gave_way_is_the_winners(books: Books) -> None:
    loser, winner = books.tenure(HIGH), books.tenure(LOW)
    own, others = books.post(), [books.post("s2"), books.post("s2")]
    # The winner's second message has the number that would be the loser's next.
    books.saw(loser, (1, own), (2, others[1]))
    books.saw(winner, (1, others[0]), (2, others[1]))
    loser.is_demoted = True
    books.tenures.resolve()
    assert loser.posts == [own]
    assert winner.posts == others


def test_what_a_publisher_said_later_must_come_later(books: Books) -> None:
    tenure, first, other, second = books.tenure(), books.post(), books.post("s2"), books.post()
    books.saw(tenure, (1, other), (2, second), (3, first))
    assert broken(books) == "messages of one publisher keep their order"
