"""Numbers of messages in the mesh machine: exact gaps, and nothing twice."""

import pytest

from hansa.topics.events import SubscriptionActivated
from hansa.wire.topics import Mark, Message, TopicAnnounce, TopicRemove
from tests.support.spot_gaps import active, missed, missed_by, numbers, returned
from tests.support.spot_mesh import (
    EPOCH,
    A,
    MeshBench,
    X,
    Y,
    sent,
    told,
    told_to,
)

# -- one connection


@pytest.mark.spec("SPT-22")
def test_messages_in_order_are_delivered_and_nothing_is_said() -> None:
    bench, one = active(7)
    assert bench.message(X, "t", 8, 9, 10) == []
    assert numbers(one) == [8, 9, 10]
    assert bench.mesh.tally.missed_count == 0


@pytest.mark.spec("SPT-22")
def test_a_gap_is_told_with_its_size_to_everybody_who_receives_and_the_message_delivered() -> None:
    bench, one = active(7)
    other = bench.subscribe("*")
    effects = bench.message(X, "t", 8, 12)
    assert told_to(effects, one) == [missed(one, 3)]
    assert told_to(effects, other) == [missed(other, 3)]
    assert numbers(one) == numbers(other) == [8, 12]
    assert (one.inbox.missed_count, bench.mesh.tally.missed_count) == (3, 3)


@pytest.mark.spec("SPT-22")
def test_a_spot_that_matches_twice_misses_once() -> None:
    bench = MeshBench()
    spot = object()
    pattern, exact = bench.subscribe("*", spot), bench.subscribe("t", spot)
    bench.join(X, "t")
    bench.confirm(X, "t")
    effects = bench.message(X, "t", 3)
    assert told(effects) == [missed(exact, 2)]
    assert (pattern.inbox.missed_count, exact.inbox.missed_count) == (0, 2)


@pytest.mark.spec("SPT-22")
def test_a_number_that_came_already_is_counted_and_not_delivered() -> None:
    bench, one = active(7)
    assert bench.message(X, "t", 8, 8, 7, 1, 9) == []
    assert numbers(one) == [8, 9]
    assert bench.mesh.tally.duplicates_count == 3


@pytest.mark.spec("SPT-22")
def test_a_mark_tells_what_was_dropped_even_if_nobody_publishes_any_more() -> None:
    bench, one = active(7)
    mark = Mark(epoch=EPOCH, sequence=11)
    assert told(bench.hear(X, TopicAnnounce(topic="t", mark=mark))) == [missed(one, 4)]
    assert bench.hear(X, TopicAnnounce(topic="t", mark=mark)) == []
    assert bench.message(X, "t", 12) == []
    assert numbers(one) == [12]


@pytest.mark.spec("SPT-22")
@pytest.mark.parametrize(("epoch", "sequence"), [(EPOCH, 7), (EPOCH, 3), (EPOCH - 1, 20)])
def test_a_mark_that_is_behind_says_nothing(epoch: int, sequence: int) -> None:
    bench, one = active(7)
    assert bench.hear(X, TopicAnnounce(topic="t", mark=Mark(epoch=epoch, sequence=sequence))) == []
    bench.message(X, "t", 8)
    assert numbers(one) == [8]


@pytest.mark.spec("SPT-22")
def test_a_mark_of_another_node_says_nothing() -> None:
    bench, _ = active(7)
    bench.join(Y, "t")
    assert bench.hear(Y, TopicAnnounce(topic="t", mark=Mark(epoch=EPOCH, sequence=20))) == []


@pytest.mark.spec("SPT-22")
def test_the_final_mark_tells_what_was_dropped_before_the_end() -> None:
    bench, one = active(7)
    bench.message(X, "t", 8)
    effects = bench.hear(X, TopicRemove(topic="t", mark=Mark(epoch=EPOCH, sequence=10)))
    assert told_to(effects, one)[0] == missed(one, 2)
    assert one.inbox.missed_count == 2


# -- after a broken connection


@pytest.mark.spec("SPT-22")
def test_what_was_published_while_the_connection_was_broken_is_told_exactly() -> None:
    bench, one = active(7)
    bench.message(X, "t", 8)
    bench.leave(X)
    events = returned(bench, 13)
    assert missed(one, 5) in events
    assert bench.message(X, "t", 14) == []
    assert numbers(one) == [8, 14]
    assert one.inbox.missed_count == 5


@pytest.mark.spec("SPT-22")
def test_when_nothing_was_published_meanwhile_nothing_was_missed() -> None:
    bench, one = active(7)
    bench.leave(X)
    assert missed_by(returned(bench, 7)) == 0
    bench.message(X, "t", 8)
    assert numbers(one) == [8]


@pytest.mark.spec("SPT-22")
def test_an_owner_that_began_anew_has_other_numbers_and_nothing_was_missed() -> None:
    bench, one = active(7)
    bench.leave(X)
    assert missed_by(returned(bench, 3, epoch=EPOCH + 1)) == 0
    bench.message(X, "t", 4)
    assert numbers(one) == [4]


@pytest.mark.spec("SPT-22")
def test_another_owner_with_the_same_epoch_is_another_owner() -> None:
    bench, one = active(7)
    bench.leave(X)
    bench.join(A, "t")
    assert missed_by(told(bench.confirm(A, "t", 20))) == 0
    bench.message(A, "t", 21)
    assert numbers(one) == [21]


@pytest.mark.spec("SPT-22")
def test_only_those_who_were_there_before_have_missed_anything() -> None:
    bench, one = active(7)
    bench.leave(X)
    late = bench.subscribe("t")
    events = returned(bench, 9)
    assert (missed(one, 2) in events, missed_by(events)) == (True, 2)
    assert (one.inbox.missed_count, late.inbox.missed_count) == (2, 0)


@pytest.mark.spec("SPT-22")
def test_a_connection_that_breaks_again_before_it_is_confirmed_forgets_nothing() -> None:
    bench, one = active(7)
    bench.leave(X)
    bench.join(X, "t")
    bench.leave(X)
    assert missed(one, 4) in returned(bench, 11)


@pytest.mark.spec("SPT-22")
def test_who_unsubscribed_and_came_back_has_missed_nothing() -> None:
    bench, one = active(7)
    bench.mesh.unsubscribe(one)
    again = bench.subscribe("t")
    # What was sent before the owner heard of it.
    bench.message(X, "t", 8)
    assert missed_by(told(bench.confirm(X, "t", 9))) == 0
    bench.message(X, "t", 10)
    assert numbers(again) == [10]
    assert bench.mesh.tally.unwanted_count == 1


@pytest.mark.spec("SPT-22")
def test_of_two_subscribes_in_a_row_only_the_last_is_confirmed() -> None:
    # SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE: after the first confirmation the owner has yet to unsubscribe us.
    bench = MeshBench()
    bench.join(X, "t")
    bench.mesh.unsubscribe(bench.subscribe("t"))
    one = bench.subscribe("t")
    assert bench.confirm(X, "t", 5) == []
    bench.message(X, "t", 6)
    (event,) = told_to(bench.confirm(X, "t", 8), one)
    assert isinstance(event, SubscriptionActivated)
    bench.message(X, "t", 9)
    assert numbers(one) == [9]
    assert bench.mesh.tally.missed_count == 0


def test_refused_subscribes_are_answered_too() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    bench.mesh.unsubscribe(bench.subscribe("t"))
    one = bench.subscribe("t")
    # The topic went before either arrived, and came again.
    for _ in range(2):
        bench.hear(X, TopicRemove(topic="t", refused_count=0))
    bench.announce(X, "t")
    bench.confirm(X, "t", 1)
    bench.message(X, "t", 2)
    assert numbers(one) == [2]


def test_a_new_connection_owes_no_answers() -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X, "t")
    bench.leave(X)
    bench.join(X, "t")
    bench.confirm(X, "t", 1)
    bench.message(X, "t", 2)
    assert numbers(one) == [2]


# -- patterns remember topics whose owner was lost


@pytest.mark.spec("SPT-22")
def test_a_pattern_is_told_what_it_missed_of_a_topic_whose_owner_was_lost() -> None:
    bench, one = active(7, text="*")
    bench.leave(X)
    assert missed(one, 3) in returned(bench, 10)


@pytest.mark.spec("SPT-22")
@pytest.mark.parametrize("leaving", ["*", "t", "t*"])
def test_it_is_told_also_when_another_subscription_has_left_meanwhile(leaving: str) -> None:
    bench = MeshBench()
    one, other = bench.subscribe("*"), bench.subscribe(leaving)
    bench.join(X, "t")
    bench.confirm(X, "t", 7)
    bench.leave(X)
    bench.mesh.unsubscribe(other)
    assert missed(one, 3) in returned(bench, 10)


@pytest.mark.spec("SPT-22")
def test_it_is_told_also_when_somebody_subscribed_the_name_meanwhile_and_left() -> None:
    bench, one = active(7, text="*")
    bench.leave(X)
    bench.mesh.unsubscribe(bench.subscribe("t"))
    assert missed(one, 3) in returned(bench, 10)


def test_when_the_last_pattern_goes_what_it_remembers_goes_too() -> None:
    bench, one = active(7, text="*")
    bench.leave(X)
    assert set(bench.mesh.wants.all) == {b"t"}
    assert bench.mesh.unsubscribe(one) == []
    assert (bench.mesh.wants.all, bench.exchange.feeds) == ({}, {})


def test_what_nobody_remembers_is_forgotten_whoever_else_might_want_it() -> None:
    bench, one = active(7)
    bench.leave(X)
    # This pattern came when the topic had no owner: it knows nothing of it, and needs to know nothing.
    pattern = bench.subscribe("*")
    bench.mesh.unsubscribe(one)
    assert bench.mesh.wants.all == {}
    bench.mesh.unsubscribe(pattern)
    assert sent(bench.join(X, "t")) == []


@pytest.mark.spec("SPT-22")
def test_an_owner_that_never_confirmed_takes_nothing_with_it_of_what_is_known_of_another() -> None:
    bench, one = active(7, text="*")
    bench.leave(X)
    bench.join(A, "t")
    bench.remove(A, "t")
    assert missed(one, 3) in returned(bench, 10)


def test_a_pattern_remembers_nothing_of_an_owner_that_never_confirmed() -> None:
    bench = MeshBench()
    bench.subscribe("*")
    bench.join(X, "t")
    bench.leave(X)
    assert bench.mesh.wants.all == {}


def test_former_topics_are_bounded_and_the_oldest_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hansa.topics.wants.FORMER_TOPICS_MAX", 3)
    bench = MeshBench()
    pattern = bench.subscribe("*")
    kept = bench.subscribe("u0")
    topics = [f"u{number}" for number in range(6)]
    bench.join(X, *topics)
    for topic in topics:
        bench.confirm(X, topic, 1)
    bench.leave(X)
    # What is subscribed by name is no memory, and stays.
    assert set(bench.mesh.wants.all) == {b"u0", b"u3", b"u4", b"u5"}
    assert set(bench.exchange.feeds) == set(pattern.matched) == set(bench.mesh.wants.all)
    assert set(kept.matched) == {b"u0"}
    bench.join(X, *topics)
    told_counts = {topic: missed_by(told(bench.confirm(X, topic, 4))) for topic in topics}
    assert told_counts == {"u0": 6, "u1": 0, "u2": 0, "u3": 3, "u4": 3, "u5": 3}


def test_a_former_topic_that_is_subscribed_by_name_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansa.topics.wants.FORMER_TOPICS_MAX", 1)
    bench, _ = active(7, text="*")
    bench.leave(X)
    by_name = bench.subscribe("t")
    bench.join(Y, "u", "v")
    bench.leave(Y)
    assert set(by_name.matched) == {b"t"}
    assert b"t" in bench.mesh.wants.all


# -- raw owners


def test_a_raw_owner_numbers_nothing_and_everything_it_sends_is_delivered() -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join_raw(X, "t")
    for payload in (b"a", b"b"):
        assert bench.hear(X, Message(topic="t", payload=payload)) == []
    assert one.received == [("t", b"a", 0), ("t", b"b", 0)]
    assert bench.mesh.tally.missed_count == 0


def test_the_first_number_of_an_owner_that_confirmed_nothing_only_says_where_it_is() -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join_raw(X, "t")
    assert bench.message(X, "t", 40, 41) == []
    assert told(bench.message(X, "t", 44)) == [missed(one, 2)]
    assert numbers(one) == [40, 41, 44]
