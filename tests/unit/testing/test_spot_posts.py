"""The books of what was published: every wrong delivery is noticed, and every loss that nobody reported.

Each message is allotted to who gave it out, and to nobody else.
"""

from collections.abc import Iterator

import pytest

from hansa.ids import routing_id
from hansa.testing import Broken, World
from hansa.testing.scenarios.spot_posts import Fate, Post, Posts, Tenure, Tenures

TOPIC = "zone:1:state"
WATCHED = {TOPIC}


@pytest.fixture
def world() -> Iterator[World]:
    with World(1) as world:
        yield world


@pytest.fixture
def posts(world: World) -> Posts:
    return Posts(world)


def published(posts: Posts, *, fate: Fate = Fate.DONE, node: str = "n1/1.1") -> Post:
    post = posts.open(f"{node}.s1", node, TOPIC, size_bytes=3)
    posts.settle(post, fate)
    return post


def seen(posts: Posts, post: Post, sequence: int = 1) -> Post:
    return posts.receive("n2", post.topic, post.payload, sequence)


def broken(call: object, *arguments: object, **settings: object) -> str:
    with pytest.raises(Broken) as caught:
        call(*arguments, **settings)  # type: ignore[operator]
    return caught.value.invariant


def test_a_message_is_found_again_by_its_payload(posts: Posts) -> None:
    published(posts)
    second = published(posts)
    assert seen(posts, second) is second
    assert seen(posts, second) is second, "by another receiver, under the same number"


def test_what_nobody_published_is_noticed(posts: Posts) -> None:
    post = published(posts)
    for payload in (b"", b"7 zone:1:state ", b"x", b"-1 "):
        assert broken(posts.receive, "n2", TOPIC, payload, 1) == "only what was published is delivered"
    assert broken(posts.receive, "n2", "zone:2:state", post.payload, 1) == "a message keeps its topic"
    assert broken(posts.receive, "n2", TOPIC, post.payload[:-1], 1) == "messages arrive whole and alone"


def test_one_message_under_two_numbers_or_none_is_noticed(posts: Posts) -> None:
    post = published(posts)
    assert broken(seen, posts, post, 0) == "one message has one number"
    seen(posts, post, 4)
    assert broken(seen, posts, post, 5) == "one message has one number"


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.GIVEN_UP])
def test_what_was_not_published_must_not_arrive(posts: Posts, fate: Fate) -> None:
    late = published(posts, fate=fate)
    assert broken(seen, posts, late) == "what was not published is not delivered"
    early = posts.open("n1/1.1.s1", "n1/1.1", TOPIC, size_bytes=0)
    seen(posts, early)
    assert broken(posts.settle, early, fate) == "what was not published is not delivered"


def test_what_was_seen_or_never_published_is_not_lost(posts: Posts) -> None:
    seen(posts, published(posts))
    published(posts, fate=Fate.REFUSED)
    published(posts, fate=Fate.GIVEN_UP)
    posts.open("n1/1.1.s1", "n1/1.1", TOPIC, size_bytes=0)
    posts.judge(WATCHED, crashed=())


def test_a_loss_must_be_reported(posts: Posts) -> None:
    published(posts)
    published(posts)
    posts.report_in_doubt("n1/1.1", 1)
    posts.report_in_doubt("n2/1.1", 5)
    assert broken(posts.judge, WATCHED, crashed=()) == "a publish that reached nobody is reported"
    posts.judge({"another topic"}, crashed=())
    posts.judge(WATCHED, crashed={"n1/1.1"})
    posts.report_refused("n1/1.1", TOPIC, 1)
    posts.judge(WATCHED, crashed=())


def test_a_node_that_stops_is_excused_for_its_last_posts_only(
    world: World, posts: Posts, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(world, "elapsed_s", lambda: now[0])
    published(posts)
    now[0] = 109.0
    posts.end_node("n1/1.1")
    posts.judge(WATCHED, crashed=())
    old = published(posts, node="n2/1.1")
    now[0] = 140.0
    posts.end_node("n2/1.1")
    assert broken(posts.judge, WATCHED, crashed=()) == "a publish that reached nobody is reported"
    assert old.settled_s == 109.0


def test_more_refused_than_unseen_is_noticed(posts: Posts) -> None:
    seen(posts, published(posts))
    posts.report_refused("n1/1.1", TOPIC, 1)
    assert broken(posts.judge, WATCHED, crashed=()) == "what is reported as refused was given to nobody"
    posts.judge((), crashed=())


# ---- who gave it out ------------------------------------------------------------------------------

SHARED = "shared:1"
LOW, HIGH = routing_id(3), routing_id(9)


class Books:
    def __init__(self, world: World) -> None:
        self.now = 0.0
        world.elapsed_s = lambda: self.now  # type: ignore[method-assign]
        self.posts = Posts(world)
        self.tenures = Tenures(world)

    def tenure(self, owner: bytes = LOW, *, epoch: int = 1) -> Tenure:
        return self.tenures.begin(SHARED, owner, epoch, retain=False, node=f"n{owner[-1]}")

    def post(self, publisher: str = "s1") -> Post:
        return self.posts.open(publisher, "n1", SHARED, size_bytes=0)

    def saw(self, tenure: Tenure, *numbered: tuple[int, Post]) -> None:
        for sequence, post in numbered:
            self.tenures.saw(tenure, sequence, post)


@pytest.fixture
def books() -> Iterator[Books]:
    with World(1) as world:
        yield Books(world)


def unresolved(books: Books) -> str:
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
    assert books.tenures.find(SHARED, LOW, 2) is second
    assert books.tenures.find(SHARED, LOW, 1) is first
    assert books.tenures.find(SHARED, HIGH, 1) is None
    with pytest.raises(Broken, match="never used twice"):
        books.tenure()


@pytest.mark.parametrize("numbers", [(2,), (1, 1), (1, 3), (1, 2, 1)])
def test_numbers_that_are_not_the_next_are_noticed(books: Books, numbers: tuple[int, ...]) -> None:
    tenure = books.tenure()
    books.saw(tenure, *((number, books.post()) for number in numbers))
    assert unresolved(books) == "an owner numbers its messages one by one"


def test_a_message_given_out_by_two_owners_is_noticed(books: Books) -> None:
    both = books.post()
    books.saw(books.tenure(LOW), (1, both))
    books.saw(books.tenure(HIGH), (1, both))
    assert unresolved(books) == "an owner numbers its messages one by one"


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
    assert unresolved(books) == "messages of one publisher keep their order"
