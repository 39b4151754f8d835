"""Subscriptions that change while the owner is away: a spot that stays is told once what it missed."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hansa.topics.events import MessagesMissed
from hansa.topics.wants import Want
from tests.support.spot_cluster import SPOTS_COUNT, Cluster
from tests.support.spot_gaps import active, missed, missed_by, numbers, returned
from tests.support.spot_mesh import EPOCH, FakeSubscriber, MeshBench, X, Y, told

TEXTS = ("t", "t*", "*")
# The spot ends what it has subscribed, and subscribes what it has not.
Change = tuple[int, str]
changes = st.lists(st.tuples(st.integers(0, SPOTS_COUNT - 1), st.sampled_from(TEXTS)), max_size=8)


def change(cluster: Cluster, which: int, text: str) -> None:
    is_subscribed = text in cluster.nodes[1].spots[which].subscriptions
    (cluster.unsubscribe if is_subscribed else cluster.subscribe)(1, which, text)


@pytest.mark.spec("SPT-08")
@pytest.mark.spec("SPT-22")
@given(st.booleans(), st.integers(0, 2), changes, st.lists(st.tuples(st.integers(0, 3), changes), max_size=3))
@example(False, 1, [(0, "*")], [(5, [(0, "t")])])
@example(False, 1, [(0, "*")], [(5, [(0, "t*")])])
@example(False, 1, [(0, "*")], [(5, [(0, "t"), (0, "*")])])
@example(False, 1, [(0, "*")], [(5, [(0, "t*"), (0, "*")])])
@example(False, 1, [(0, "*"), (0, "t")], [(5, [(0, "t")])])
@example(False, 1, [(0, "t")], [(5, [(0, "t"), (0, "t")])])
@example(True, 1, [(0, "*")], [(0, [(0, "t")])])
@example(True, 1, [(0, "*")], [(0, [(0, "t*"), (0, "*"), (1, "*")])])
def test_a_spot_that_stays_is_told_exactly_what_it_missed_whatever_it_subscribes_meanwhile(
    retain: bool, heard_count: int, before: list[Change], absences: list[tuple[int, list[Change]]]
) -> None:
    cluster = Cluster(2, outbox_count_max=1_000)
    cluster.create(0, "t", retain)
    cluster.come_to_rest()
    spots = cluster.nodes[1].spots
    for which, text in before:
        change(cluster, which, text)
    cluster.come_to_rest()
    for published_count, meanwhile in absences:
        for _ in range(heard_count):
            cluster.publish(0, "t")
        cluster.come_to_rest()
        stayed = {which for which, spot in enumerate(spots) if spot.subscriptions}
        told_before = [spot.spans["t"].missed_count if spot.subscriptions else 0 for spot in spots]
        cluster.disconnect(0, 1)
        for _ in range(published_count):
            cluster.publish(0, "t")
        for which, text in meanwhile:
            change(cluster, which, text)
            if not spots[which].subscriptions:
                stayed.discard(which)
        # The latest of a retained topic comes when the owner does.
        missed_count = max(0, published_count - retain)
        # Also checks that each message came once, and the latest of a retained topic to everybody.
        cluster.come_to_rest()
        cluster.check()
        for which, spot in enumerate(spots):
            if which in stayed:
                assert spot.spans["t"].missed_count == told_before[which] + missed_count
            elif spot.subscriptions:
                assert spot.spans["t"].missed_count == 0


# -- the same by hand: who is told


def while_away(before: list[str], added: list[str], ended: list[str]) -> tuple[dict[str, int], list[int]]:
    """What each subscription of one spot is told, and what the spot receives, when X was away for five."""
    bench, spot = MeshBench(), object()
    subscriptions = {text: bench.subscribe(text, spot) for text in before}
    bench.join(X, "t")
    bench.confirm(X, "t", 7)
    bench.message(X, "t", 8)
    bench.leave(X)
    for text in added:
        subscriptions[text] = bench.subscribe(text, spot)
    for text in ended:
        bench.mesh.unsubscribe(subscriptions[text])
    events = [event for event in returned(bench, 13) if isinstance(event, MessagesMissed)]
    bench.message(X, "t", 14)
    told_counts = {event.subscription: event.count for event in events}
    assert len(told_counts) == len(events)
    assert told_counts == {
        text: one.inbox.missed_count for text, one in subscriptions.items() if one.inbox.missed_count
    }
    assert bench.mesh.tally.missed_count == sum(told_counts.values())
    return told_counts, sorted(number for one in subscriptions.values() for number in numbers(one))


@pytest.mark.spec("SPT-22")
@pytest.mark.parametrize(
    ("before", "added", "ended", "told_to"),
    [
        (["*"], [], [], "*"),
        (["*"], ["t"], [], "t"),
        (["*"], ["t*"], [], "t*"),
        (["t"], ["*"], [], "t"),
        (["*", "t"], [], ["t"], "*"),
        (["*", "t"], [], ["*"], "t"),
        (["*", "t*"], [], ["t*"], "*"),
        (["*"], ["t"], ["*"], "t"),
        (["*"], ["t*"], ["*"], "t*"),
        (["t"], ["*"], ["t"], "*"),
        (["t"], ["t*", "*"], ["t", "t*"], "*"),
    ],
)
def test_the_subscription_that_receives_from_now_on_is_told_what_the_spot_missed(
    before: list[str], added: list[str], ended: list[str], told_to: str
) -> None:
    assert while_away(before, added, ended) == ({told_to: 5}, [8, 14])


def test_a_spot_that_ended_all_and_subscribes_again_begins_anew() -> None:
    bench, one = active(8, text="*")
    bench.leave(X)
    bench.mesh.unsubscribe(one)
    again = bench.subscribe("t", one.spot)
    assert missed_by(returned(bench, 13)) == 0
    bench.message(X, "t", 14)
    assert (numbers(again), bench.mesh.tally.missed_count) == ([14], 0)


def test_it_begins_anew_also_when_another_spot_has_stayed() -> None:
    bench, one = active(8, text="*")
    stayed = bench.subscribe("*")
    bench.leave(X)
    bench.mesh.unsubscribe(one)
    again = bench.subscribe("*", one.spot)
    assert [event for event in returned(bench, 13) if isinstance(event, MessagesMissed)] == [
        missed(stayed, 5)
    ]
    assert again.inbox.missed_count == 0


def test_what_nobody_missed_is_not_counted() -> None:
    bench, one = active(8)
    bench.leave(X)
    bench.subscribe("t")
    bench.mesh.unsubscribe(one)
    assert missed_by(returned(bench, 13)) == 0
    assert bench.mesh.tally.missed_count == 0


@pytest.mark.parametrize("text", ["t", "t*"])
def test_a_retained_message_does_not_come_to_a_spot_again_that_subscribed_more_meanwhile(text: str) -> None:
    bench, one = active(5, retain=True, text="*")
    bench.message(X, "t", 5)
    bench.leave(X)
    more = bench.subscribe(text, one.spot)
    assert missed_by(returned(bench, 5, retain=True)) == 0
    bench.message(X, "t", 5, 6)
    assert (numbers(one), numbers(more)) == ([5], [6])


# -- owners that return after another one


def owned_meanwhile(bench: MeshBench, *, is_lost: bool) -> None:
    bench.join(Y, "t")
    bench.confirm(Y, "t", 1, epoch=EPOCH + 1)
    bench.leave(Y) if is_lost else bench.remove(Y, "t")


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "removed"])
def test_a_pattern_knows_the_owner_before_the_last_one_however_that_went(is_lost: bool) -> None:
    bench, one = active(8, text="*")
    bench.leave(X)
    owned_meanwhile(bench, is_lost=is_lost)
    assert missed(one, 5) in returned(bench, 13)


def test_a_spot_that_left_has_missed_nothing_of_the_owner_before_the_last_one_either() -> None:
    bench, one = active(8, text="*")
    stayed = bench.subscribe("*")
    bench.leave(X)
    owned_meanwhile(bench, is_lost=True)
    bench.mesh.unsubscribe(one)
    again = bench.subscribe("*", one.spot)
    assert [event for event in returned(bench, 13) if isinstance(event, MessagesMissed)] == [
        missed(stayed, 5)
    ]
    assert again.inbox.missed_count == 0


def test_who_remembers_nothing_does_not_keep_a_topic() -> None:
    bench, one = active(8, text="*")
    bench.leave(X)
    owned_meanwhile(bench, is_lost=True)
    late = bench.subscribe("*")
    wants: dict[bytes, Want] = bench.mesh.wants.all
    assert set(wants) == set(late.matched) == {b"t"}
    bench.mesh.unsubscribe(one)
    assert (wants, bench.exchange.feeds, late.matched) == ({}, {}, {})


def test_a_pattern_lists_the_topics_that_wait_for_an_owner_whichever_was_subscribed_first() -> None:
    def matched(*texts: str) -> list[set[bytes]]:
        bench = MeshBench()
        subscriptions: list[FakeSubscriber] = [bench.subscribe(text) for text in texts]
        return [set(one.matched) for one in subscriptions]

    assert matched("t", "*") == matched("*", "t") == [{b"t"}, {b"t"}]


def test_what_a_returning_owner_says_is_told_in_one_go() -> None:
    bench, one = active(8, text="*")
    bench.leave(X)
    exact = bench.subscribe("t", one.spot)
    bench.join(X, "t")
    events = told(bench.confirm(X, "t", 13))
    assert missed(exact, 5) in events
    assert told(bench.confirm(X, "t", 13)) == []
