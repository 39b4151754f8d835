"""The topic mesh finds what it is there to find: each test plants one bug, which is caught."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hansa.presence.statements import Stamps
from hansa.testing.scenarios import SpotMesh
from hansa.topics import mesh as mesh_module
from hansa.topics import owners
from hansa.topics.inbox import Inbox, TopicMessage
from hansa.topics.mesh import Mesh
from hansa.topics.router_mesh import RouterMesh
from hansa.topics.spot import Spot, Subscription
from hansa.topics.wants import Want, Wants
from tests.support.planted_bugs import first_failure

SEEDS_MAX = 60

SETTLED = "all is well 60 s after the last fault"
UNHANDLED = "no error goes unhandled"
LOST = "what is lost is reported, and nothing else"
UNREPORTED = "a publish that reached nobody is reported"


def broken(first_seed: int = 0) -> str:
    return first_failure(SpotMesh, range(first_seed, first_seed + SEEDS_MAX)).failure.broken.invariant


def nothing(*arguments: Any, **settings: Any) -> None:
    """What should be done is not."""


# Who owns what.


def test_nodes_that_never_ask_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mesh, "_ask", nothing)
    assert broken() in (SETTLED, UNHANDLED)


def test_topics_that_outlive_their_owner_s_connection_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Mesh.peer_disconnected

    def forgetful(self: Mesh, peer: bytes, reason: str, *, in_doubt_count: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owners.Owners, "claims", lambda self, peer: ())
            return original(self, peer, reason, in_doubt_count=in_doubt_count)

    monkeypatch.setattr(Mesh, "peer_disconnected", forgetful)
    assert broken() in (SETTLED, UNHANDLED)


def test_two_owners_that_both_stay_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_module, "precedence", lambda peer: 0)
    assert broken() in (SETTLED, "an owner numbers its messages one by one")


def test_a_higher_id_that_wins_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def reversed_precedence(peer: bytes) -> tuple[int, bytes]:
        return -int.from_bytes(peer[1:], "big"), peer

    monkeypatch.setattr(mesh_module, "precedence", reversed_precedence)
    monkeypatch.setattr(owners, "precedence", reversed_precedence)
    assert broken() == "the lower id wins"


def test_a_topic_that_is_created_twice_under_one_epoch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stamps, "next", lambda self, wall_ms: 7)
    assert broken() in ("an epoch is never used twice", LOST, SETTLED, UNHANDLED)


# Who is subscribed.


def test_an_owner_that_ignores_unsubscribe_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mesh, "_unsubscribe", nothing)
    assert broken() == SETTLED


def test_a_confirmation_that_is_lost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Wants._confirmed
    heard_counts: Counter[Wants] = Counter()

    def forgetful(self: Wants, *arguments: Any) -> None:
        heard_counts[self] += 1
        if heard_counts[self] % 20:
            original(self, *arguments)

    monkeypatch.setattr(Wants, "_confirmed", forgetful)
    assert broken() == SETTLED


def test_a_subscription_that_is_not_asked_for_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Wants._seek

    def lazy(self: Wants, want: Any, owner: bytes) -> None:
        if owner != want.feed.owner:
            original(self, want, owner)

    monkeypatch.setattr(Wants, "_seek", lazy)
    assert broken() == SETTLED


# What is given to whom.


def with_each_chunk(
    monkeypatch: pytest.MonkeyPatch, deed: Callable[[Any, Any, list[list[bytes]]], list[list[bytes]]]
) -> None:
    """Let something else happen to the messages of a chunk before they are received."""
    original = RouterMesh._received

    def received(self: RouterMesh, peer: bytes, messages: list[list[bytes]]) -> None:
        original(self, peer, deed(self, peer, messages))

    monkeypatch.setattr(RouterMesh, "_received", received)


def test_a_message_that_is_given_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(mesh: RouterMesh, peer: bytes, messages: list[list[bytes]]) -> list[list[bytes]]:
        feed = mesh.exchange.feeds.get(messages[0][1]) if len(messages[0]) == 4 else None
        if feed is not None and feed.source is not None:
            sequence = int.from_bytes(messages[0][3], "little")
            message = TopicMessage(feed.topic, messages[0][2], sequence)
            feed.deliver(message, len(message.payload), mesh.exchange)
        return messages

    with_each_chunk(monkeypatch, again)
    assert broken() in ("nothing is delivered twice", "a spot receives once")


def test_a_message_that_vanishes_on_its_way_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {"count": 0}

    def some(mesh: RouterMesh, peer: bytes, messages: list[list[bytes]]) -> list[list[bytes]]:
        seen["count"] += 1
        return messages if seen["count"] % 20 else [one for one in messages if len(one) != 4]

    with_each_chunk(monkeypatch, some)
    monkeypatch.setattr(Wants, "_missed", nothing)
    assert broken() in (LOST, SETTLED)


def test_messages_in_another_order_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(mesh: RouterMesh, peer: bytes, messages: list[list[bytes]]) -> list[list[bytes]]:
        return messages[::-1] if all(len(one) == 3 for one in messages) else messages

    with_each_chunk(monkeypatch, swapped)
    assert broken() in ("order is kept", "messages of one publisher keep their order")


def test_what_is_missed_and_not_counted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wants, "_missed", nothing)
    assert broken() == LOST


def test_what_is_missed_and_counted_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Wants._missed

    def twice(self: Wants, want: Any, count: int, **settings: Any) -> None:
        original(self, want, 2 * count, **settings)

    monkeypatch.setattr(Wants, "_missed", twice)
    assert broken() == LOST


@pytest.mark.parametrize(
    ("first_seed", "invariant"),
    [
        (11, "a spot that stays receives once"),
        (17, "what a spot missed is told, whatever it subscribed meanwhile"),
    ],
)
def test_a_subscription_that_is_taken_for_its_spot_is_caught(
    monkeypatch: pytest.MonkeyPatch, first_seed: int, invariant: str
) -> None:
    """Whoever subscribed while the owner was away was taken for a newcomer, and its spot may be none."""
    suspend, confirmed = Want.suspend, Wants._confirmed
    before: dict[Want, list[Inbox]] = {}

    def remembering(self: Want) -> None:
        suspend(self)
        before[self] = list(self.feed.inboxes)

    def mistaken(self: Wants, want: Want, *arguments: Any) -> None:
        for one in self.interests.targets(want.topic):
            if one.inbox not in before.get(want, ()):
                want.spots_before.pop(id(one.spot), None)
        confirmed(self, want, *arguments)

    monkeypatch.setattr(Want, "suspend", remembering)
    monkeypatch.setattr(Wants, "_confirmed", mistaken)
    assert broken(first_seed) == invariant


def test_what_is_dropped_and_not_counted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subscription, "dropped_count", property(lambda self: self.inbox.dropped_count // 2))
    assert broken() in (LOST, "a subscription counts what it gave", "a message comes through a subscription")


def test_a_topic_that_retains_unasked_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Mesh.create

    def hoarding(self: Mesh, topic: bytes, spot: object, **settings: Any) -> Any:
        return original(self, topic, spot, **{**settings, "retain": True})

    monkeypatch.setattr(Mesh, "create", hoarding)
    assert broken() in (
        "of what was before, only the latest is delivered, if it is retained",
        "a spot receives once",
        LOST,
    )


# What is said about it.


def test_publishes_that_are_refused_silently_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Mesh._removed

    def silent(self: Mesh, member: Any, removed: Any) -> None:
        if not removed.refused_count:
            original(self, member, removed)

    monkeypatch.setattr(Mesh, "_removed", silent)
    assert broken() in (UNREPORTED, SETTLED)


def test_publishes_that_are_in_doubt_silently_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Mesh.peer_disconnected

    def confident(self: Mesh, peer: bytes, reason: str, *, in_doubt_count: int) -> Any:
        return original(self, peer, reason, in_doubt_count=0)

    monkeypatch.setattr(Mesh, "peer_disconnected", confident)
    assert broken() == UNREPORTED


def test_a_closed_spot_that_does_not_say_so_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spot, "_check", nothing)
    assert broken() in ("a closed spot says so", UNHANDLED)
