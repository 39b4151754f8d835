"""What can be ordered from `hansa publish`, and how it tells what became of it."""

from typing import Any

import pytest

from hansa.cli.publish_command import Published, Publishing
from hansa.errors import BadArgument, NoOwner, TimedOut, TopicExists


@pytest.mark.parametrize(
    "order",
    [
        Publishing(topic="chat:room1", payload="hello"),
        Publishing(topic="chat:room1", payload="hello", create=True, retain=True, wait=0, hold=True, count=3),
        Publishing(topic="chat:room1", lines=True),
        Publishing(topic="chat:room1", has_owners=False, wait=2),
    ],
)
def test_orders_that_make_sense_are_taken(order: Publishing) -> None:
    order.check()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "chat:*"}, "whole name"),
        ({"topic": ""}, "no name"),
        ({"topic": "a", "retain": True}, "--retain .* --create"),
        ({"topic": "a", "wait": 0}, "--wait .* --create"),
        ({"topic": "a", "hold": True}, "--hold .* --create"),
        ({"topic": "a", "has_owners": False, "create": True}, "--create .* --mesh pubsub have none"),
        ({"topic": "a", "has_owners": False, "hold": True}, "--hold .* --mesh pubsub have none"),
        ({"topic": "a", "lines": True, "payload": "text"}, "leave out the payload"),
        ({"topic": "a", "lines": True, "count": 2}, "--lines publishes each line once"),
    ],
)
def test_orders_that_cannot_be_carried_out_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        Publishing(**options).check()


def test_errors_say_what_to_do() -> None:
    outcome = Published(topic="chat:room1")
    assert "give --create" in str(outcome.explained(NoOwner("nobody"), Publishing(topic="a")))
    lost = str(outcome.explained(NoOwner("nobody"), Publishing(topic="a", create=True)))
    assert "was lost" in lost
    assert "give --create" not in lost
    assert "Leave out --create" in str(
        outcome.explained(TopicExists("it is owned by 01:0000"), Publishing(topic="a", create=True))
    )
    assert "it is owned by 01:0000" in str(
        outcome.explained(TopicExists("it is owned by 01:0000"), Publishing(topic="a", create=True))
    )
    late = TimedOut("late")
    assert outcome.explained(late, Publishing(topic="a")) is late
    outcome.published_count = 1_200
    assert "any more, after 1,200 published" in str(
        outcome.explained(NoOwner("nobody"), Publishing(topic="a"))
    )


def test_all_is_well_only_when_everything_reached_the_owner() -> None:
    assert not Published(topic="a").is_well
    assert Published(topic="a", is_complete=True, dropped_count=3).is_well
    assert not Published(topic="a", is_complete=True, refused_count=1).is_well
    assert not Published(topic="a", is_complete=True, in_doubt_count=1).is_well


def test_the_sentence_has_exactly_what_there_is_to_say() -> None:
    assert Published(topic="a", published_count=1).sentence() == "1 published to a"
    full = Published(
        topic="a\u202e",
        published_count=1_000,
        nodes_count=2,
        dropped_count=3,
        refused_count=4,
        in_doubt_count=5,
    )
    assert full.sentence() == (
        r"1,000 published to a\u202e, 2 nodes subscribed, 3 dropped for nodes that were too slow, 4 refused, "
        "because the owner had left the topic, at most 5 lost, because the connection to the owner broke "
        "under them"
    )
    assert full.facts()["refused_count"] == 4
