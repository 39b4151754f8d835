"""Retained messages in the mesh machine: the last one for whoever comes later, and nobody gets it twice."""

import pytest

from hansa.wire.topics import Mark, Message, SpotCommand, Subscribe, TopicAnnounce
from tests.support.spot_gaps import active, missed, missed_by, numbers, returned
from tests.support.spot_mesh import EPOCH, MeshBench, X, sent


def test_a_subscriber_of_a_retained_topic_gets_the_last_message_once() -> None:
    bench, one = active(5, retain=True)
    assert bench.message(X, "t", 5) == []
    assert bench.message(X, "t", 5, 6) == []
    assert numbers(one) == [5, 6]
    assert bench.mesh.tally.missed_count == 0


def test_a_retained_topic_without_a_message_begins_at_nothing() -> None:
    bench, one = active(0, retain=True)
    assert bench.message(X, "t", 1) == []
    assert numbers(one) == [1]


def test_after_a_broken_connection_the_retained_message_counts_as_not_missed() -> None:
    bench, one = active(5, retain=True)
    bench.message(X, "t", 5, 6)
    bench.leave(X)
    assert missed(one, 2) in returned(bench, 9, retain=True)
    bench.message(X, "t", 9)
    assert numbers(one) == [5, 6, 9]
    assert one.inbox.missed_count == 2


def test_after_a_broken_connection_the_retained_message_is_not_delivered_twice() -> None:
    bench, one = active(5, retain=True)
    bench.message(X, "t", 5)
    bench.leave(X)
    assert missed_by(returned(bench, 5, retain=True)) == 0
    bench.message(X, "t", 5)
    assert numbers(one) == [5]
    assert bench.mesh.tally.duplicates_count == 1


def test_a_later_local_subscriber_gets_the_copy_that_the_node_has_kept() -> None:
    bench, one = active(5, retain=True)
    bench.message(X, "t", 5, 6)
    late = bench.subscriber("t")
    assert sent(bench.mesh.subscribe(late)) == []
    assert numbers(late) == [6]
    assert numbers(one) == [5, 6]


def test_who_waits_is_woken_by_the_kept_copy() -> None:
    bench, _ = active(5, retain=True)
    bench.message(X, "t", 5)
    late = bench.subscriber("t")
    late.inbox.reader.expect()
    bench.mesh.subscribe(late)
    assert bench.exchange.readers == [late.inbox.reader]
    assert bench.exchange.is_due


def test_who_subscribes_while_the_connection_is_broken_gets_the_retained_message_all_the_same() -> None:
    bench, one = active(5, retain=True)
    bench.message(X, "t", 5)
    bench.leave(X)
    late = bench.subscribe("t")
    returned(bench, 5, retain=True)
    bench.message(X, "t", 5)
    assert numbers(late) == [5]
    assert numbers(one) == [5]


def test_who_subscribes_before_the_retained_message_comes_again_gets_no_older_copy() -> None:
    bench, _ = active(5, retain=True)
    bench.message(X, "t", 5, 6)
    bench.leave(X)
    returned(bench, 9, retain=True)
    late = bench.subscriber("t")
    bench.mesh.subscribe(late)
    assert numbers(late) == []
    bench.message(X, "t", 9)
    assert numbers(late) == [9]
    assert late.inbox.missed_count == 0


def test_a_kept_copy_of_an_owner_that_began_anew_is_not_given_to_anybody() -> None:
    bench, _ = active(5, retain=True)
    bench.message(X, "t", 5)
    bench.leave(X)
    returned(bench, 0, epoch=EPOCH + 1, retain=True)
    assert numbers(bench.subscribe("t")) == []


def test_nothing_is_kept_of_a_topic_that_does_not_retain() -> None:
    bench, _ = active(5)
    bench.message(X, "t", 6)
    assert numbers(bench.subscribe("t")) == []
    assert bench.exchange.feeds[b"t"].kept is None


def test_two_subscribes_in_a_row_do_not_lose_the_retained_message() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    bench.mesh.unsubscribe(bench.subscribe("t"))
    one = bench.subscribe("t")
    bench.confirm(X, "t", 5, retain=True)
    bench.message(X, "t", 5, 6)
    bench.confirm(X, "t", 8, retain=True)
    bench.message(X, "t", 8)
    assert numbers(one) == [8]


def test_an_owner_that_retains_sends_its_last_message_again_after_the_confirmation() -> None:
    bench = MeshBench()
    bench.create("t", retain=True)
    bench.join(X)
    epoch = bench.outlet("t").epoch

    def confirmed(sequence: int) -> SpotCommand:
        mark = Mark(epoch=epoch, sequence=sequence, retain=True, confirm=True)
        return TopicAnnounce(topic="t", mark=mark)

    assert sent(bench.hear(X, Subscribe(topic="t"))) == [(X, confirmed(0))]
    bench.publish("t", b"one", b"two")
    again = Message(topic="t", payload=b"two", sequence=2)
    assert sent(bench.hear(X, Subscribe(topic="t"))) == [(X, confirmed(2)), (X, again)]


def test_a_raw_subscriber_of_a_retained_topic_gets_its_last_message_too() -> None:
    bench = MeshBench()
    bench.create("t", retain=True)
    bench.publish("t", b"one")
    bench.join_raw(X)
    again = Message(topic="t", payload=b"one", sequence=1)
    assert sent(bench.hear(X, Subscribe(topic="t"))) == [(X, again)]


@pytest.mark.parametrize("text", ["t", "*"])
def test_local_subscribers_of_our_own_retained_topic_get_the_last_message_once(text: str) -> None:
    bench = MeshBench()
    bench.create("t", retain=True)
    bench.publish("t", b"one", b"two")
    first, second = bench.subscribe(text), bench.subscribe(text)
    bench.publish("t", b"three")
    assert numbers(first) == numbers(second) == [2, 3]


def test_the_second_subscription_of_a_spot_does_not_get_the_retained_message_again() -> None:
    bench = MeshBench()
    bench.create("t", retain=True)
    bench.publish("t", b"one")
    spot = object()
    first, second = bench.subscribe("*", spot), bench.subscribe("t", spot)
    assert (numbers(first), numbers(second)) == ([1], [])
