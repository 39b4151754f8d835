"""What happens to subscriptions is told in sentences and as JSON, with exact counts."""

import json
import os
from collections.abc import Callable
from typing import Any, cast

import pytest

from hansa.cli.log_lines import LogLines
from hansa.cli.subscribe_command import tell_end, tell_event, tell_start
from hansa.topics import (
    MessagesDropped,
    MessagesMissed,
    PeerJoined,
    SpotEvent,
    SpotNode,
    Subscription,
    SubscriptionActivated,
    SubscriptionSuspended,
)

OWNER = b"\x01abcd"


def told(say: Callable[[LogLines], None], *, as_json: bool = False) -> list[str]:
    reading, writing = os.pipe()
    with os.fdopen(reading) as file:
        with LogLines(as_json=as_json, descriptor=writing) as log:
            say(log)
        os.close(writing)
        return file.read().splitlines()


@pytest.mark.parametrize(
    ("event", "sentence", "facts"),
    [
        (
            SubscriptionActivated(subscription="chat:*", topic="chat:a", owner=OWNER, epoch=1),
            "chat:a (chat:*): active, owned by 01:61626364",
            {"event": "active", "subscription": "chat:*", "topic": "chat:a", "owner": "01:61626364"},
        ),
        (
            SubscriptionSuspended(subscription="chat:a", topic="chat:a", owner=OWNER),
            "chat:a: pending, 01:61626364 no longer owns it",
            {"event": "pending", "subscription": "chat:a", "topic": "chat:a", "owner": "01:61626364"},
        ),
        (
            MessagesMissed(subscription="chat:*", topic="chat:a", count=12),
            "chat:a (chat:*): 12 missed on their way from the owner",
            {"event": "missed", "subscription": "chat:*", "topic": "chat:a", "count": 12},
        ),
        (
            MessagesDropped(subscription="chat:*", count=1234),
            "chat:*: 1234 dropped, because the reader of the lines was too slow",
            {"event": "dropped", "subscription": "chat:*", "count": 1234},
        ),
    ],
)
def test_each_event_is_a_line(event: SpotEvent, sentence: str, facts: dict[str, Any]) -> None:
    assert told(lambda log: tell_event(log, event)) == [sentence]
    (line,) = told(lambda log: tell_event(log, event), as_json=True)
    assert json.loads(line) == facts


def test_what_concerns_no_subscription_is_not_told() -> None:
    assert told(lambda log: tell_event(log, PeerJoined(peer=OWNER))) == []


async def test_those_without_an_owner_are_told_at_the_start() -> None:
    async with SpotNode() as node, node.spot() as spot:
        await spot.create_topic("owned:a")
        subscriptions = [await spot.subscribe(text) for text in ("owned:a", "owned:*", "none", "none:*")]
        assert told(lambda log: tell_start(log, subscriptions, node.topics)) == [
            "none: pending, nobody owns it yet",
            "none:*: pending, no topic matches yet",
        ]


def test_the_end_adds_up_what_did_not_come() -> None:
    class Counted:
        missed_count = 3
        dropped_count = 4

    subscriptions = [cast(Subscription, Counted())] * 2
    assert told(lambda log: tell_end(log, 5, subscriptions)) == ["5 messages, 6 missed, 8 dropped"]
