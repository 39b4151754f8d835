"""Local subscriptions in the mesh machine: refcounts, states, patterns, who receives."""

import pytest

from hansa.errors import BadArgument
from hansa.ids import routing_id
from hansa.topics.events import (
    SpotEvent,
    SubscriptionActivated,
    SubscriptionSuspended,
    TopicAnnounced,
)
from hansa.topics.wants import WantState
from hansa.wire.topics import QueryResp, Subscribe, TopicAnnounce, TopicRemove, Unsubscribe
from tests.support.spot_mesh import (
    EPOCH,
    NODE,
    A,
    FakeSubscriber,
    MeshBench,
    X,
    Y,
    sent,
    told,
    told_to,
)


def activated(one: FakeSubscriber, topic: str, owner: bytes = X, epoch: int = EPOCH) -> SpotEvent:
    return SubscriptionActivated(subscription=one.text, topic=topic, owner=owner, epoch=epoch)


def suspended(one: FakeSubscriber, topic: str, owner: bytes = X) -> SpotEvent:
    return SubscriptionSuspended(subscription=one.text, topic=topic, owner=owner)


def state(bench: MeshBench, topic: str) -> WantState:
    return bench.mesh.wants.all[topic.encode()].state


# -- states


@pytest.mark.spec("SPT-04")
def test_a_subscription_without_an_owner_waits_and_says_nothing_to_anybody() -> None:
    bench = MeshBench()
    bench.join(X)
    one = bench.subscriber("t")
    assert bench.mesh.subscribe(one) == []
    assert state(bench, "t") is WantState.PENDING
    assert set(one.matched) == {b"t"}


@pytest.mark.spec("SPT-04")
def test_an_owner_that_appears_is_asked_and_its_confirmation_makes_it_active() -> None:
    bench = MeshBench()
    bench.join(X)
    one = bench.subscribe("t")
    effects = bench.announce(X, "t")
    assert sent(effects) == [(X, Subscribe(topic="t"))]
    assert told(effects) == [TopicAnnounced(topic="t", owner=X)]
    assert state(bench, "t") is WantState.ASKED
    effects = bench.confirm(X, "t", 7)
    assert told_to(effects, one) == [activated(one, "t")]
    assert sent(effects) == []
    assert state(bench, "t") is WantState.ACTIVE


@pytest.mark.spec("SPT-04")
def test_a_known_owner_is_asked_at_once() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    assert sent(bench.mesh.subscribe(bench.subscriber("t"))) == [(X, Subscribe(topic="t"))]
    assert state(bench, "t") is WantState.ASKED


def test_a_raw_owner_confirms_nothing_and_so_its_subscriptions_are_active_at_once() -> None:
    bench = MeshBench()
    bench.join_raw(X, "t")
    one = bench.subscriber("t")
    effects = bench.mesh.subscribe(one)
    assert sent(effects) == [(X, Subscribe(topic="t"))]
    assert told_to(effects, one) == [activated(one, "t", epoch=0)]
    assert state(bench, "t") is WantState.ACTIVE


def test_an_announcement_without_a_confirmation_does_not_make_it_active() -> None:
    bench = MeshBench()
    bench.subscribe("t")
    bench.join(X, "t")
    bench.announce(X, "t")
    bench.hear(X, TopicAnnounce(topic="t"))
    assert state(bench, "t") is WantState.ASKED


def test_a_confirmation_of_another_node_does_not_make_it_active() -> None:
    bench = MeshBench()
    bench.subscribe("t")
    bench.join(X, "t")
    bench.join(Y, "t")
    bench.confirm(Y, "t")
    assert state(bench, "t") is WantState.ASKED


@pytest.mark.spec("SPT-04")
@pytest.mark.parametrize("way", ["leave", "remove", "answer", "refuse"])
def test_a_subscription_whose_owner_goes_waits_again_at_once(way: str) -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X, "t")
    bench.confirm(X, "t")
    match way:
        case "leave":
            effects = bench.leave(X)
        case "remove":
            effects = bench.remove(X, "t")
        case "answer":
            effects = bench.hear(X, QueryResp(topics=("u",), is_extended=True))
        case _:
            effects = bench.hear(X, TopicRemove(topic="t", refused_count=1))
    assert told_to(effects, one) == [suspended(one, "t")]
    assert sent(effects) == []
    assert state(bench, "t") is WantState.PENDING


@pytest.mark.spec("SPT-13")
def test_an_owner_that_returns_makes_it_active_again_with_nobody_acting() -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X, "t")
    bench.confirm(X, "t")
    bench.leave(X)
    assert sent(bench.join(X, "t")) == [(X, Subscribe(topic="t"))]
    effects = bench.confirm(X, "t", epoch=EPOCH + 1)
    assert told_to(effects, one) == [activated(one, "t", epoch=EPOCH + 1)]
    bench.message(X, "t", 1)
    assert one.received == [("t", b"1", 1)]


def test_a_refused_subscription_waits_for_the_next_owner_without_having_been_active() -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X, "t")
    effects = bench.hear(X, TopicRemove(topic="t", refused_count=0))
    assert told_to(effects, one) == []
    assert state(bench, "t") is WantState.PENDING
    assert sent(bench.announce(X, "t")) == [(X, Subscribe(topic="t"))]


@pytest.mark.spec("SPT-04")
def test_a_topic_of_our_own_is_active_at_once_and_asks_nobody() -> None:
    bench = MeshBench()
    bench.join(X)
    waiting = bench.subscribe("t")
    effects = bench.create("t")
    epoch = bench.outlet("t").epoch
    assert sent(effects) == []
    assert told_to(effects, waiting) == [activated(waiting, "t", NODE, epoch)]
    late = bench.subscriber("t")
    effects = bench.mesh.subscribe(late)
    assert sent(effects) == []
    assert told_to(effects, late) == [activated(late, "t", NODE, epoch)]
    effects = bench.destroy("t")
    assert told_to(effects, waiting) == [suspended(waiting, "t", NODE)]
    assert told_to(effects, late) == [suspended(late, "t", NODE)]
    assert state(bench, "t") is WantState.PENDING


# -- refcounts


@pytest.mark.spec("SPT-08")
def test_however_many_subscribe_the_owner_is_asked_once_and_told_once() -> None:
    bench = MeshBench()
    bench.join(X, "zone:1")
    many = [bench.subscriber(text) for text in ("zone:1", "zone:1", "zone:*", "*", "zone:1")]
    assert [sent(bench.mesh.subscribe(one)) for one in many] == [
        [(X, Subscribe(topic="zone:1"))],
        *[[]] * 4,
    ]
    bench.confirm(X, "zone:1")
    assert bench.mesh.wants.interests.count(b"zone:1") == 5
    assert [sent(bench.mesh.unsubscribe(one)) for one in many] == [
        *[[]] * 4,
        [(X, Unsubscribe(topic="zone:1"))],
    ]
    assert bench.mesh.wants.all == {}
    assert bench.exchange.feeds == {}
    assert all(one.matched == {} for one in many)


@pytest.mark.spec("SPT-08")
@pytest.mark.parametrize("first", ["zone:1", "zone:*"])
def test_the_last_may_be_a_name_or_a_pattern(first: str) -> None:
    bench = MeshBench()
    bench.join(X, "zone:1")
    one = bench.subscribe(first)
    other = bench.subscribe("zone:*" if first == "zone:1" else "zone:1")
    assert sent(bench.mesh.unsubscribe(one)) == []
    assert sent(bench.mesh.unsubscribe(other)) == [(X, Unsubscribe(topic="zone:1"))]


@pytest.mark.spec("SPT-08")
def test_subscribing_again_after_the_last_has_gone_asks_again() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    for _ in range(3):
        one = bench.subscriber("t")
        assert sent(bench.mesh.subscribe(one)) == [(X, Subscribe(topic="t"))]
        assert sent(bench.mesh.unsubscribe(one)) == [(X, Unsubscribe(topic="t"))]


@pytest.mark.spec("SPT-08")
def test_a_subscribe_that_finds_the_topic_gone_and_come_again_does_not_stay_without_anybody() -> None:
    bench = MeshBench()
    one = bench.subscribe("t*")
    bench.join(X, "t")
    # X has removed it, and may create it again before it reads our SUBSCRIBE.
    assert sent(bench.remove(X, "t")) == [(X, Unsubscribe(topic="t"))]
    assert sent(bench.mesh.unsubscribe(one)) == []


@pytest.mark.spec("SPT-08")
def test_unsubscribing_without_an_owner_or_from_ourselves_tells_nobody() -> None:
    bench = MeshBench()
    bench.join(X)
    one = bench.subscribe("t")
    assert bench.mesh.unsubscribe(one) == []
    bench.create("t")
    one = bench.subscribe("t")
    assert bench.mesh.unsubscribe(one) == []
    bench.publish("t", b"x")
    assert one.received == []


@pytest.mark.spec("SPT-08")
def test_one_that_goes_leaves_the_others_receiving() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    one, other = bench.subscribe("t"), bench.subscribe("t")
    bench.confirm(X, "t")
    bench.mesh.unsubscribe(one)
    bench.message(X, "t", 1)
    assert (one.received, other.received) == ([], [("t", b"1", 1)])


# -- patterns


@pytest.mark.spec("SPT-07")
def test_a_pattern_picks_up_the_topics_that_are_known_and_those_announced_later() -> None:
    bench = MeshBench()
    bench.join(X, "zone:1", "zoo", "other")
    bench.create("zone:2")
    one = bench.subscriber("zone:*")
    effects = bench.mesh.subscribe(one)
    assert sent(effects) == [(X, Subscribe(topic="zone:1"))]
    assert told_to(effects, one) == [activated(one, "zone:2", NODE, bench.outlet("zone:2").epoch)]
    assert sent(bench.announce(X, "zone:3")) == [(X, Subscribe(topic="zone:3"))]
    assert sent(bench.announce(X, "zebra")) == []
    assert set(one.matched) == {b"zone:1", b"zone:2", b"zone:3"}


@pytest.mark.spec("SPT-06")
def test_a_pattern_matches_what_follows_its_prefix_case_and_all() -> None:
    bench = MeshBench()
    one = bench.subscribe("zone:12:*")
    bench.join(X, "zone:12", "zone:12:state", "Zone:12:state", "zone:123:state", "zone:12:")
    assert set(one.matched) == {b"zone:12:state", b"zone:12:"}


@pytest.mark.spec("SPT-07")
def test_unsubscribing_a_pattern_ends_all_that_nobody_else_wants() -> None:
    bench = MeshBench()
    bench.join(X, "zone:1", "zone:2", "zone:3")
    one = bench.subscribe("zone:*")
    bench.subscribe("zone:2")
    assert sent(bench.mesh.unsubscribe(one)) == [
        (X, Unsubscribe(topic="zone:1")),
        (X, Unsubscribe(topic="zone:3")),
    ]
    assert set(bench.mesh.wants.all) == {b"zone:2"}


@pytest.mark.spec("SPT-07")
def test_a_pattern_that_comes_while_a_topic_waits_for_its_owner_receives_it_too() -> None:
    bench = MeshBench()
    exact = bench.subscribe("zone:1")
    pattern = bench.subscribe("zone:*")
    effects = bench.join(X, "zone:1")
    assert sent(effects) == [(X, Subscribe(topic="zone:1"))]
    effects = bench.confirm(X, "zone:1")
    assert told_to(effects, pattern) == [activated(pattern, "zone:1")]
    bench.message(X, "zone:1", 1)
    assert exact.received == pattern.received == [("zone:1", b"1", 1)]
    assert set(pattern.matched) == {b"zone:1"}
    # And it counts: the name alone is not the last.
    assert sent(bench.mesh.unsubscribe(exact)) == []
    assert sent(bench.mesh.unsubscribe(pattern)) == [(X, Unsubscribe(topic="zone:1"))]


@pytest.mark.spec("SPT-07")
def test_a_pattern_that_comes_after_an_owner_was_lost_receives_when_it_returns() -> None:
    bench = MeshBench()
    before = bench.subscribe("zone:*")
    bench.join(X, "zone:1")
    bench.confirm(X, "zone:1")
    bench.leave(X)
    late = bench.subscribe("*")
    bench.join(X, "zone:1")
    bench.confirm(X, "zone:1")
    bench.message(X, "zone:1", 1)
    assert before.received == late.received == [("zone:1", b"1", 1)]


def test_a_topic_that_only_patterns_match_is_forgotten_when_its_owner_removes_it() -> None:
    bench = MeshBench()
    one = bench.subscribe("zone:*")
    bench.join(X, "zone:1")
    bench.confirm(X, "zone:1")
    bench.remove(X, "zone:1")
    assert (bench.mesh.wants.all, bench.exchange.feeds, one.matched) == ({}, {}, {})
    assert sent(bench.announce(X, "zone:1")) == [(X, Subscribe(topic="zone:1"))]


# -- one spot, several subscriptions


@pytest.mark.spec("SPT-08")
def test_a_spot_matched_several_times_receives_once_by_name_or_by_the_longest_pattern() -> None:
    bench = MeshBench()
    spot = object()
    shortest, exact, longest = (bench.subscribe(text, spot) for text in ("*", "zone:1", "zone:*"))
    other = bench.subscribe("zone:*")
    bench.join(X, "zone:1", "zone:2", "zoo")
    for topic in ("zone:1", "zone:2", "zoo"):
        bench.confirm(X, topic)
        bench.message(X, topic, 1)
    assert exact.received == [("zone:1", b"1", 1)]
    assert longest.received == [("zone:2", b"1", 1)]
    assert shortest.received == [("zoo", b"1", 1)]
    assert other.received == [("zone:1", b"1", 1), ("zone:2", b"1", 1)]


@pytest.mark.spec("SPT-08")
def test_a_spot_goes_on_receiving_once_when_its_subscriptions_come_and_go() -> None:
    bench = MeshBench()
    spot = object()
    bench.join(X, "zone:1")
    pattern = bench.subscribe("zone:*", spot)
    bench.confirm(X, "zone:1")
    bench.message(X, "zone:1", 1)
    exact = bench.subscribe("zone:1", spot)
    bench.message(X, "zone:1", 2)
    bench.mesh.unsubscribe(exact)
    bench.message(X, "zone:1", 3)
    assert pattern.received == [("zone:1", b"1", 1), ("zone:1", b"3", 3)]
    assert exact.received == [("zone:1", b"2", 2)]


# -- delivery


@pytest.mark.spec("SPT-05")
def test_what_the_owner_publishes_reaches_local_subscribers_and_subscribed_nodes() -> None:
    bench = MeshBench()
    bench.create("t")
    here = bench.subscribe("t")
    bench.join(X)
    bench.hear(X, Subscribe(topic="t"))
    bench.publish("t", b"1", b"2")
    assert here.received == [("t", b"1", 1), ("t", b"2", 2)]
    assert len(bench.posted(X)) == 2


def test_what_comes_before_the_confirmation_or_from_another_node_is_unwanted() -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X, "t")
    bench.join(Y)
    bench.message(X, "t", 1)
    bench.confirm(X, "t", 1)
    bench.message(Y, "t", 2)
    bench.message(X, "nobody wants this", 1)
    assert one.received == []
    assert bench.mesh.tally.unwanted_count == 3
    assert bench.mesh.tally.missed_count == 0


def test_what_an_owner_still_sends_after_its_topic_has_gone_to_another_is_unwanted() -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X, "t")
    bench.confirm(X, "t")
    bench.join(A, "t")
    bench.message(X, "t", 1)
    bench.confirm(A, "t")
    bench.message(X, "t", 2)
    assert one.received == []
    bench.message(A, "t", 1)
    assert one.received == [("t", b"1", 1)]
    assert bench.mesh.tally.unwanted_count == 2


def test_the_messages_of_a_lost_connection_do_not_pass_for_those_of_the_next() -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X, "t")
    bench.confirm(X, "t")
    before = bench.exchange.feeds[b"t"].source
    bench.leave(X)
    bench.join(X, "t")
    bench.confirm(X, "t")
    assert bench.exchange.feeds[b"t"].source is not before
    assert one.received == []


# -- limits


@pytest.mark.spec("SEC-05")
def test_a_node_has_so_many_subscriptions_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansa.topics.mesh.NODE_SUBSCRIPTIONS_MAX", 2)
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.subscribe("t")
    with pytest.raises(BadArgument):
        bench.subscribe("t")
    assert bench.mesh.wants.interests.count(b"t") == 2
    bench.mesh.unsubscribe(one)
    bench.subscribe("t")


def test_a_thousand_spots_are_one_subscription_to_the_owner() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    many = [bench.subscribe("t") for _ in range(1_000)]
    effects = bench.confirm(X, "t")
    assert len(told(effects)) == 1_000
    bench.message(X, "t", 1)
    assert all(one.received == [("t", b"1", 1)] for one in many)


def test_a_peer_with_an_id_without_a_number_can_own_a_topic() -> None:
    bench = MeshBench()
    bench.subscribe("t")
    assert sent(bench.join_raw(b"raw", "t")) == [(b"raw", Subscribe(topic="t"))]
    assert sent(bench.join(routing_id(7), "t"))[-1] == (routing_id(7), Subscribe(topic="t"))
