"""Owners of one topic that change and change back: nothing comes twice, and what was missed is counted."""

from hansa.limits import FORMER_OWNERS_MAX
from hansa.topics.events import SubscriptionActivated
from hansa.wire.topics import Mark, TopicAnnounce
from tests.support.spot_gaps import active, missed, missed_by, numbers, returned
from tests.support.spot_mesh import EPOCH, MeshBench, X, Y, told


def owned_meanwhile(bench: MeshBench, peer: bytes, epoch: int) -> None:
    """Somebody else owns the topic for a while, and leaves."""
    bench.join(peer, "t")
    bench.confirm(peer, "t", 7, epoch=epoch)
    bench.message(peer, "t", 8)
    bench.leave(peer)


def test_a_retained_message_does_not_come_again_after_another_owner_was_there() -> None:
    bench, one = active(5, retain=True)
    bench.message(X, "t", 5)
    bench.leave(X)
    owned_meanwhile(bench, Y, EPOCH + 1)
    assert missed_by(returned(bench, 5, retain=True)) == 0
    bench.message(X, "t", 5, 6)
    assert numbers(one) == [5, 8, 6]


def test_a_retained_message_does_not_come_again_after_the_topic_was_our_own() -> None:
    bench, one = active(5, retain=True)
    bench.message(X, "t", 5)
    bench.leave(X)
    bench.create("t")
    bench.publish("t", b"ours")
    bench.destroy("t")
    assert missed_by(returned(bench, 5, retain=True)) == 0
    bench.message(X, "t", 5, 6)
    assert numbers(one) == [5, 1, 6]


def test_who_came_meanwhile_gets_the_retained_message() -> None:
    bench, _ = active(5, retain=True)
    bench.message(X, "t", 5)
    bench.leave(X)
    owned_meanwhile(bench, Y, EPOCH + 1)
    late = bench.subscribe("t")
    returned(bench, 5, retain=True)
    bench.message(X, "t", 5)
    assert numbers(late) == [5]


def test_what_was_missed_meanwhile_is_counted_for_those_who_were_there() -> None:
    bench, one = active(5)
    bench.message(X, "t", 6)
    bench.leave(X)
    owned_meanwhile(bench, Y, EPOCH + 1)
    late = bench.subscribe("t")
    assert missed(one, 3) in returned(bench, 9)
    assert (one.inbox.missed_count, late.inbox.missed_count) == (3, 0)
    bench.message(X, "t", 10)
    assert numbers(one) == [6, 8, 10]


def test_the_one_between_is_known_again_too() -> None:
    bench, one = active(5)
    bench.leave(X)
    owned_meanwhile(bench, Y, EPOCH + 1)
    returned(bench, 5)
    bench.leave(X)
    bench.join(Y, "t")
    assert missed(one, 2) in told(bench.confirm(Y, "t", 10, epoch=EPOCH + 1))


def test_an_owner_that_began_anew_is_another() -> None:
    bench, one = active(5)
    bench.leave(X)
    owned_meanwhile(bench, Y, EPOCH + 1)
    events = returned(bench, 9, epoch=EPOCH + 2)
    assert missed_by(events) == 0
    assert any(isinstance(event, SubscriptionActivated) for event in events)
    assert one.inbox.missed_count == 0


def test_of_many_owners_the_oldest_is_forgotten() -> None:
    bench, one = active(5)
    bench.leave(X)
    for number in range(FORMER_OWNERS_MAX + 1):
        owned_meanwhile(bench, Y, EPOCH + 1 + number)
    assert missed_by(returned(bench, 9)) == 0
    assert one.inbox.missed_count == 0


def test_a_kept_copy_that_is_the_latest_no_more_is_not_given_to_anybody() -> None:
    bench, one = active(5, retain=True)
    bench.message(X, "t", 5)
    bench.hear(X, TopicAnnounce(topic="t", mark=Mark(epoch=EPOCH, sequence=8, retain=True)))
    late = bench.subscribe("t")
    assert numbers(late) == []
    bench.message(X, "t", 9)
    assert numbers(late) == [9]
    assert numbers(one) == [5, 9]
