"""The books of what was published: every wrong delivery is noticed, and every loss that nobody reported."""

from collections.abc import Iterator

import pytest

from hansa.testing import Broken, World
from hansa.testing.scenarios.spot_posts import Fate, Post, Posts

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
