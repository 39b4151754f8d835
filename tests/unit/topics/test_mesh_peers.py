"""The mesh machine and its peers: coming, telling topics, asking again, leaving."""

import pytest

from hansa.errors import LimitExceeded
from hansa.ids import routing_id
from hansa.limits import JOIN_S_MAX, SILENT_PEER_S, TOPICS_MAX
from hansa.topics.events import (
    PeerJoined,
    PeerLeft,
    PublishesInDoubt,
    TopicAnnounced,
    TopicRemoved,
)
from hansa.wire.topics import (
    Query,
    QueryResp,
    Subscribe,
    TopicAnnounce,
    TopicCounts,
    topic_digest,
)
from tests.support.spot_mesh import (
    NODE,
    QUERY_INTERVAL_S,
    A,
    B,
    MeshBench,
    X,
    Y,
    broadcast,
    sent,
    told,
)


def asked(known: list[str] | None = None, *, report_wanted: bool = False) -> Query:
    digest = 0
    for topic in known or ():
        digest ^= topic_digest(topic.encode())
    return Query(
        is_extended=True,
        report_wanted=report_wanted,
        known_count=len(known or ()),
        known_digest=digest,
    )


# -- coming


@pytest.mark.spec("SPT-11")
def test_a_peer_that_connects_is_asked_first_of_all() -> None:
    bench = MeshBench()
    effects = bench.connect(X)
    assert sent(effects) == [(X, asked())]
    assert told(effects) == [PeerJoined(peer=X)]
    assert broadcast(effects) == []


@pytest.mark.spec("SPT-11")
def test_the_answer_tells_every_topic_and_their_owner() -> None:
    bench = MeshBench()
    effects = bench.join(X, "t", "u")
    assert told(effects) == [TopicAnnounced(topic="t", owner=X), TopicAnnounced(topic="u", owner=X)]
    assert sent(effects) == []
    assert bench.mesh.owners.all == {b"t": X, b"u": X}
    assert bench.mesh.owner(b"t") == X
    assert bench.mesh.owner(b"v") is None


@pytest.mark.spec("SPT-11")
def test_a_query_is_answered_with_all_topics_that_we_own() -> None:
    bench = MeshBench()
    bench.create("t")
    bench.create("u")
    bench.connect(X)
    answer = QueryResp(topics=("t", "u"), is_extended=True)
    assert sent(bench.hear(X, Query(is_extended=True))) == [(X, answer)]


def test_a_raw_query_is_answered_with_all_topics_and_no_extension_every_time() -> None:
    bench = MeshBench()
    bench.connect(X)
    # A raw node knows nothing and says nothing: its bare query must not pass for "I know of none".
    assert sent(bench.hear(X, Query())) == [(X, QueryResp(topics=()))]
    bench.create("t")
    for _ in range(2):
        assert sent(bench.hear(X, Query())) == [(X, QueryResp(topics=("t",)))]


def test_what_a_stranger_says_has_no_effect() -> None:
    bench = MeshBench()
    assert bench.mesh.hear(X, QueryResp(topics=("t",)), now=bench.now) == []
    assert bench.mesh.owner(b"t") is None


def test_an_announced_topic_has_an_owner_and_saying_it_again_changes_nothing() -> None:
    bench = MeshBench()
    bench.join(X)
    assert told(bench.announce(X, "t")) == [TopicAnnounced(topic="t", owner=X)]
    assert bench.announce(X, "t") == []
    assert bench.hear(X, TopicAnnounce(topic="t")) == []


def test_a_removed_topic_has_none_and_saying_it_again_changes_nothing() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    assert told(bench.remove(X, "t")) == [TopicRemoved(topic="t", owner=X)]
    assert bench.mesh.owner(b"t") is None
    assert bench.remove(X, "t") == []


def test_nobody_can_remove_the_topic_of_another() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    bench.join(A)
    bench.create("u")
    assert bench.remove(A, "t") == []
    assert bench.remove(A, "u") == []
    assert bench.mesh.owner(b"t") == X
    assert bench.mesh.owner(b"u") == NODE


@pytest.mark.spec("SEC-05")
def test_one_claim_too_many_is_refused() -> None:
    bench = MeshBench()
    bench.join_raw(X, *map(str, range(TOPICS_MAX)))
    with pytest.raises(LimitExceeded):
        bench.hear(X, TopicAnnounce(topic="one more"))
    assert bench.mesh.owner(b"one more") is None
    # Another list of the same size, all different: those of before made room.
    bench.hear(X, QueryResp(topics=tuple(f"new-{n}" for n in range(TOPICS_MAX))))
    assert bench.mesh.owners.count(X) == TOPICS_MAX


@pytest.mark.spec("SEC-05")
def test_all_peers_together_claim_so_many_topics_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansa.topics.owners.CLAIMS_MAX", 4)
    bench = MeshBench()
    bench.subscribe("*")
    bench.join(X, "t", "u")
    bench.join(Y, "v", "w")
    for too_many in (
        TopicAnnounce(topic="x"),
        QueryResp(topics=("x", "y", "z"), is_extended=True),
    ):
        with pytest.raises(LimitExceeded):
            bench.hear(X, too_many)
        # A refused answer leaves everything as it was, and nothing to be done.
        assert bench.mesh.owners.all == {b"t": X, b"u": X, b"v": Y, b"w": Y}
        assert bench.tick(0.0) == []
    bench.hear(X, QueryResp(topics=("x", "y"), is_extended=True))
    bench.leave(Y)
    bench.hear(X, QueryResp(topics=("x", "y", "z", "t"), is_extended=True))
    assert bench.mesh.owners.claims_count == 4


# -- asking again


def test_every_peer_is_asked_again_after_the_interval_with_what_is_known_of_it() -> None:
    bench = MeshBench()
    bench.join(X, "t", "u")
    bench.now += 1.0
    bench.join(Y)
    assert bench.mesh.deadline() == 100.0 + QUERY_INTERVAL_S
    assert bench.tick(QUERY_INTERVAL_S - 1.5) == []
    assert sent(bench.tick(0.5)) == [(X, asked(["t", "u"]))]
    assert sent(bench.tick(1.0)) == [(Y, asked())]
    assert sent(bench.tick(QUERY_INTERVAL_S)) == [(X, asked(["t", "u"])), (Y, asked())]


def test_a_peer_that_left_is_asked_no_more_and_one_that_returned_only_once() -> None:
    bench = MeshBench()
    bench.join(X)
    bench.leave(X)
    bench.now += 10.0
    bench.join(X)
    assert sent(bench.tick(QUERY_INTERVAL_S - 10.0)) == []
    assert sent(bench.tick(10.0)) == [(X, asked())]
    bench.leave(X)
    assert sent(bench.tick(QUERY_INTERVAL_S)) == []
    assert bench.mesh.deadline() is None


def test_an_asker_that_knows_our_topics_is_told_that_nothing_changed() -> None:
    bench = MeshBench()
    bench.create("t")
    bench.create("u")
    bench.connect(X)
    unchanged = QueryResp(topics=(), is_extended=True, is_unchanged=True)
    assert sent(bench.hear(X, asked(["u", "t"]))) == [(X, unchanged)]


@pytest.mark.parametrize("known", [[], ["t"], ["t", "v"], ["t", "u", "v"]])
def test_an_asker_that_knows_something_else_is_told_all(known: list[str]) -> None:
    bench = MeshBench()
    bench.create("t")
    bench.create("u")
    bench.connect(X)
    answer = QueryResp(topics=("t", "u"), is_extended=True)
    assert sent(bench.hear(X, asked(known))) == [(X, answer)]


def test_the_digest_follows_what_is_created_destroyed_and_lost() -> None:
    bench = MeshBench()
    for topic in ("t", "u", "v", "w"):
        bench.create(topic)
    bench.destroy("u")
    bench.join(A, "v")
    answer = sent(bench.hear(A, asked(["t", "w"])))
    assert answer == [(A, QueryResp(topics=(), is_extended=True, is_unchanged=True))]


def test_an_answer_that_says_unchanged_changes_nothing() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    assert bench.hear(X, QueryResp(topics=(), is_extended=True, is_unchanged=True)) == []
    assert bench.mesh.owner(b"t") == X


def test_an_answer_that_differs_sets_everything_right() -> None:
    bench = MeshBench()
    bench.join(X, "t", "u")
    effects = bench.hear(X, QueryResp(topics=("u", "v", "v"), is_extended=True))
    assert told(effects) == [TopicRemoved(topic="t", owner=X), TopicAnnounced(topic="v", owner=X)]
    assert bench.mesh.owners.all == {b"u": X, b"v": X}


# -- counts


def test_a_query_that_wants_a_report_gets_the_counts_of_each_topic() -> None:
    bench = MeshBench(outbox_count_max=2)
    bench.create("t")
    bench.create("u")
    bench.subscribe("u")
    bench.join(X)
    bench.hear(X, Subscribe(topic="t"))
    bench.publish("t", b"1", b"2", b"3")
    bench.publish("u", b"1")
    counts = (
        TopicCounts(subscribers_count=1, published_count=3, dropped_count=1),
        TopicCounts(subscribers_count=1, published_count=1, dropped_count=0),
    )
    answer = QueryResp(topics=("t", "u"), is_extended=True, report=counts)
    # Also to one who knows the topics: unchanged would say nothing of the counts.
    assert sent(bench.hear(X, asked(["t", "u"], report_wanted=True))) == [(X, answer)]
    assert bench.mesh.report() == [("t", counts[0]), ("u", counts[1])]


def test_a_survey_asks_everybody_for_a_report() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    bench.join(Y)
    assert sent(bench.mesh.survey()) == [
        (X, asked(["t"], report_wanted=True)),
        (Y, asked(report_wanted=True)),
    ]


# -- being in step


def test_a_node_is_in_step_when_every_listed_node_has_answered() -> None:
    bench = MeshBench()
    assert bench.mesh.is_in_step
    for peer in (X, Y):
        bench.mesh.expect(peer, now=bench.now)
    bench.connect(X)
    assert not bench.mesh.is_in_step
    bench.hear(X, QueryResp(topics=()))
    assert not bench.mesh.is_in_step
    bench.join(Y)
    assert bench.mesh.is_in_step


def test_a_listed_node_that_says_nothing_is_given_up_after_a_while() -> None:
    bench = MeshBench()
    bench.mesh.expect(X, now=bench.now)
    assert bench.mesh.deadline() == bench.now + JOIN_S_MAX
    bench.tick(JOIN_S_MAX - 0.1)
    assert not bench.mesh.is_in_step
    bench.tick(0.2)
    assert bench.mesh.is_in_step


@pytest.mark.spec("SPT-23")
def test_a_peer_that_connects_and_says_nothing_is_not_waited_for_like_a_node() -> None:
    bench = MeshBench()
    bench.mesh.expect(X, now=bench.now)
    bench.connect(X)
    assert bench.mesh.deadline() == bench.now + SILENT_PEER_S
    assert not bench.mesh.is_in_step
    bench.tick(SILENT_PEER_S)
    assert bench.mesh.is_in_step


def test_a_node_that_asks_and_has_not_answered_yet_is_waited_for() -> None:
    bench = MeshBench()
    bench.connect(X)
    bench.hear(X, Query())
    bench.tick(SILENT_PEER_S)
    assert not bench.mesh.is_in_step
    bench.tick(JOIN_S_MAX - SILENT_PEER_S)
    assert bench.mesh.is_in_step


def test_a_node_does_not_wait_for_itself_nor_for_one_no_longer_listed_nor_for_one_that_left() -> None:
    bench = MeshBench()
    bench.mesh.expect(NODE, now=bench.now)
    assert bench.mesh.is_in_step
    bench.mesh.expect(X, now=bench.now)
    bench.mesh.unexpect(X)
    assert bench.mesh.is_in_step
    bench.connect(Y)
    bench.leave(Y)
    assert bench.mesh.is_in_step


def test_a_node_that_has_answered_is_not_waited_for_when_it_is_listed() -> None:
    bench = MeshBench()
    bench.join(X)
    bench.mesh.expect(X, now=bench.now)
    assert bench.mesh.is_in_step


# -- leaving


def test_a_peer_that_leaves_takes_its_topics_and_its_subscriptions_with_it() -> None:
    bench = MeshBench()
    bench.create("mine")
    bench.join(X, "t", "u")
    bench.hear(X, Subscribe(topic="mine"))
    effects = bench.leave(X)
    assert told(effects) == [
        TopicRemoved(topic="t", owner=X),
        TopicRemoved(topic="u", owner=X),
        PeerLeft(peer=X, reason="reset"),
    ]
    assert sent(effects) == []
    assert bench.mesh.owners.all == {}
    assert bench.outlet("mine").subscribers == {}
    assert bench.leave(X) == []


def test_publishes_to_a_peer_that_leaves_are_in_doubt_but_no_more_than_were_sent() -> None:
    bench = MeshBench()
    for in_doubt_count, published_count, told_count in ((5, 3, 3), (2, 3, 2), (5, 0, 0)):
        bench.join(X)
        for _ in range(published_count):
            bench.mesh.published(X)
        events = told(bench.leave(X, in_doubt_count=in_doubt_count))
        doubts = [PublishesInDoubt(owner=X, count=told_count)] if told_count else []
        assert events == [*doubts, PeerLeft(peer=X, reason="reset")]
    assert bench.mesh.tally.publishes_in_doubt_count == 5


# -- many


def test_a_thousand_peers_that_come_and_go_leave_nothing_behind() -> None:
    bench = MeshBench()
    bench.create("mine")
    bench.subscribe("*")
    for number in range(1_000):
        peer = routing_id(1_000 + number)
        bench.join(peer, f"of-{number}")
        bench.hear(peer, Subscribe(topic="mine"))
        bench.remove(peer, f"of-{number}")
        bench.leave(peer)
    assert bench.mesh.peers == {}
    assert len(bench.mesh.owners) == 0
    assert set(bench.mesh.wants.all) == {b"mine"}
    assert set(bench.exchange.feeds) == {b"mine"}
    assert bench.outlet("mine").subscribers == {}
    bench.tick(QUERY_INTERVAL_S)
    assert bench.mesh.deadline() is None


def test_ids_of_any_kind_can_be_peers() -> None:
    bench = MeshBench()
    for peer in (b"\x00\x00\x00\x00\x07", b"raw", b"\xff" * 255, A, B):
        bench.join_raw(peer, peer.hex()[:20])
    assert len(bench.mesh.peers) == 5
