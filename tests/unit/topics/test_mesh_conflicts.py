"""Topics with two owners, and what creating and destroying them says to whom."""

import pytest

from hansa.errors import BadArgument, NotOwner, TopicExists
from hansa.topics.effects import Tell
from hansa.topics.events import (
    SpotEvent,
    SubscriptionActivated,
    SubscriptionSuspended,
    TopicAnnounced,
    TopicDemoted,
    TopicLost,
    TopicRemoved,
)
from hansa.wire.topics import (
    Mark,
    Publish,
    Query,
    QueryResp,
    Subscribe,
    TopicAnnounce,
    TopicRemove,
    Unsubscribe,
    topic_digest,
)
from tests.support.spot_mesh import (
    EPOCH,
    NODE,
    A,
    B,
    MeshBench,
    X,
    Y,
    broadcast,
    sent,
    told,
    told_to,
)

CLAIMS_T = Query(is_extended=True, known_count=1, known_digest=topic_digest(b"t"))


# -- creating and destroying


@pytest.mark.spec("SPT-02")
def test_creating_announces_to_every_peer_where_the_topic_begins() -> None:
    bench = MeshBench()
    effects = bench.create("t", retain=True)
    mark = Mark(epoch=bench.outlet("t").epoch, sequence=0, retain=True)
    assert broadcast(effects) == [TopicAnnounce(topic="t", mark=mark)]
    assert sent(effects) == []
    assert told(effects) == [TopicAnnounced(topic="t", owner=NODE)]
    assert bench.mesh.owner(b"t") == NODE


@pytest.mark.spec("SPT-02")
def test_a_topic_that_has_an_owner_anywhere_is_not_created_again() -> None:
    bench = MeshBench()
    bench.create("mine")
    bench.join(X, "theirs")
    for topic, whose in (("mine", "this node"), ("theirs", "01:00000050")):
        with pytest.raises(TopicExists, match=f"{topic}.*{whose}"):
            bench.create(topic)
    assert set(bench.exchange.outlets) == {b"mine"}
    assert bench.mesh.owner(b"theirs") == X


def test_each_ownership_of_a_topic_has_a_higher_epoch_than_the_one_before() -> None:
    bench = MeshBench()
    epochs = []
    for _ in range(3):
        bench.create("t")
        epochs.append(bench.outlet("t").epoch)
        bench.destroy("t")
    # Even when the wall clock is set back.
    bench.wall_ms -= 3_600_000
    bench.create("t")
    epochs.append(bench.outlet("t").epoch)
    assert epochs == sorted(set(epochs))
    assert epochs[0] > 0


@pytest.mark.spec("SPT-03")
def test_destroying_tells_every_peer_and_where_the_topic_ended() -> None:
    bench = MeshBench()
    bench.create("t")
    epoch = bench.outlet("t").epoch
    bench.join(X)
    bench.hear(X, Subscribe(topic="t"))
    bench.publish("t", b"1", b"2")
    effects = bench.destroy("t")
    assert broadcast(effects) == [TopicRemove(topic="t", mark=Mark(epoch=epoch, sequence=2))]
    assert sent(effects) == []
    assert told(effects) == [TopicRemoved(topic="t", owner=NODE)]
    assert bench.mesh.owner(b"t") is None
    assert (bench.exchange.outlets, bench.exchange.outlets_by_name) == ({}, {})
    # The subscribed node went with the topic: a new one of that name begins without it.
    bench.create("t")
    bench.posted(X)
    bench.publish("t", b"x")
    assert bench.posted(X) == []


@pytest.mark.spec("SPT-03")
def test_only_the_spot_that_owns_a_topic_destroys_it() -> None:
    bench = MeshBench()
    owner = object()
    bench.create("t", owner)
    bench.join(X, "theirs")
    for topic, spot in (("t", object()), ("theirs", owner), ("nobody's", owner)):
        with pytest.raises(NotOwner, match=topic):
            bench.destroy(topic, spot)
    assert bench.mesh.owner(b"t") == NODE
    bench.destroy("t", owner)


def test_a_node_owns_so_many_topics_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansa.topics.mesh.OWNED_TOPICS_MAX", 2)
    bench = MeshBench()
    bench.create("t")
    bench.create("u")
    with pytest.raises(BadArgument):
        bench.create("v")
    assert bench.mesh.owner(b"v") is None
    bench.destroy("t")
    bench.create("v")


# -- topics that are claimed in a store


@pytest.mark.spec("SPT-12")
@pytest.mark.parametrize("way", ["announce", "answer"])
def test_a_topic_that_is_claimed_in_a_store_yields_to_no_lower_id(way: str) -> None:
    bench = MeshBench()
    bench.create("t", claim=7)
    bench.join(A)
    if way == "announce":
        assert bench.announce(A, "t") == []
    else:
        assert bench.hear(A, QueryResp(topics=("t",), is_extended=True)) == []
    assert bench.mesh.owner(b"t") == NODE
    assert (bench.mesh.tally.conflicts_count, bench.mesh.tally.demotions_count) == (1, 0)
    # Given up, and created without a claim, it is like any other.
    bench.destroy("t")
    bench.hear(A, TopicRemove(topic="t"))
    bench.create("t")
    bench.announce(A, "t")
    assert bench.mesh.owner(b"t") == A


def test_a_claim_in_a_store_counts_more_than_what_a_peer_said_before() -> None:
    bench = MeshBench()
    bench.join(A, "t")
    effects = bench.create("t", claim=7)
    assert told(effects) == [TopicAnnounced(topic="t", owner=NODE)]
    assert bench.mesh.owner(b"t") == NODE
    with pytest.raises(TopicExists, match="this node"):
        bench.create("t", claim=7)


def test_a_lost_claim_ends_the_topic_and_tells_the_spot_and_every_peer() -> None:
    bench = MeshBench()
    spot = object()
    bench.create("t", spot, claim=7)
    mark = Mark(epoch=bench.outlet("t").epoch, sequence=0)
    bench.join(X)
    effects = bench.mesh.lose(b"t", "no lease")
    assert effects[0] == Tell(event=TopicLost(topic="t", reason="no lease"), to=spot)
    assert broadcast(effects) == [TopicRemove(topic="t", mark=mark)]
    assert told(effects)[1:] == [TopicRemoved(topic="t", owner=NODE)]
    assert bench.mesh.owner(b"t") is None
    assert bench.mesh.lose(b"t", "again") == []


def test_a_lost_claim_leaves_the_topic_to_a_peer_that_claims_it_and_asks_that_one() -> None:
    bench = MeshBench()
    bench.create("t", claim=7)
    bench.join(A)
    bench.announce(A, "t")
    effects = bench.mesh.lose(b"t", "no lease")
    assert bench.mesh.owner(b"t") == A
    assert sent(effects) == [(A, CLAIMS_T)]


# -- two owners: we are one of them


@pytest.mark.spec("SPT-12")
@pytest.mark.parametrize("way", ["announce", "answer"])
def test_a_lower_id_that_claims_our_topic_demotes_us_and_we_tell_only_our_spot(way: str) -> None:
    bench = MeshBench()
    spot = object()
    bench.create("t", spot)
    bench.join(A)
    if way == "announce":
        effects = bench.announce(A, "t")
    else:
        effects = bench.hear(A, QueryResp(topics=("t",), is_extended=True))
    demoted = Tell(event=TopicDemoted(topic="t", winner=A), to=spot)
    assert effects == [demoted, Tell(event=TopicAnnounced(topic="t", owner=A))]
    assert bench.mesh.owner(b"t") == A
    assert (bench.exchange.outlets, bench.exchange.outlets_by_name) == ({}, {})
    assert (bench.mesh.tally.conflicts_count, bench.mesh.tally.demotions_count) == (1, 1)


@pytest.mark.spec("SPT-12")
@pytest.mark.parametrize("way", ["announce", "answer"])
def test_a_higher_id_that_claims_our_topic_changes_nothing_and_is_told_nothing(way: str) -> None:
    bench = MeshBench()
    bench.create("t")
    bench.join(X)
    for _ in range(2):
        if way == "announce":
            assert bench.announce(X, "t") == []
        else:
            assert bench.hear(X, QueryResp(topics=("t",), is_extended=True)) == []
    assert bench.mesh.owner(b"t") == NODE
    assert (bench.mesh.tally.conflicts_count, bench.mesh.tally.demotions_count) == (1, 0)


@pytest.mark.spec("SPT-12")
def test_the_numbers_of_ids_decide_before_their_bytes_and_ids_without_one_lose() -> None:
    bench = MeshBench()
    bench.create("t")
    bench.join_raw(b"\0", "t")
    bench.join_raw(bytes.fromhex("0000000033"), "t")  # 51, and ours is 50
    assert bench.mesh.owner(b"t") == NODE
    same_number = bytes.fromhex("0000000032")
    bench.join_raw(same_number, "t")
    assert bench.mesh.owner(b"t") == same_number


@pytest.mark.spec("SPT-12")
def test_our_subscribers_go_over_to_the_winner() -> None:
    bench = MeshBench()
    bench.create("t")
    epoch = bench.outlet("t").epoch
    one = bench.subscribe("t")
    bench.publish("t", b"ours")
    bench.join(A)
    effects = bench.announce(A, "t")
    assert sent(effects) == [(A, Subscribe(topic="t"))]
    assert told_to(effects, one) == [SubscriptionSuspended(subscription="t", topic="t", owner=NODE)]
    effects = bench.confirm(A, "t", 40)
    active = SubscriptionActivated(subscription="t", topic="t", owner=A, epoch=EPOCH)
    assert told_to(effects, one) == [active]
    bench.message(A, "t", 41)
    assert one.received == [("t", b"ours", 1), ("t", b"41", 41)]
    assert epoch != EPOCH
    assert bench.mesh.tally.missed_count == 0


@pytest.mark.spec("SPT-12")
def test_the_nodes_that_were_subscribed_with_us_get_nothing_more_and_no_word_of_it() -> None:
    bench = MeshBench()
    bench.create("t")
    bench.join(X)
    bench.hear(X, Subscribe(topic="t"))
    bench.join(A)
    effects = bench.announce(A, "t")
    assert (sent(effects), broadcast(effects)) == ([], [])
    # What it still says to us comes too late to matter, or is refused.
    assert bench.hear(X, Unsubscribe(topic="t")) == []
    refusal = TopicRemove(topic="t", refused_count=1)
    assert sent(bench.hear(X, Publish(topic="t", payload=b"x"))) == [(X, refusal)]


@pytest.mark.spec("SPT-12")
def test_who_was_demoted_owns_nothing_to_destroy_or_to_create_again() -> None:
    bench = MeshBench()
    spot = object()
    bench.create("t", spot)
    bench.join(A, "t")
    with pytest.raises(NotOwner):
        bench.destroy("t", spot)
    with pytest.raises(TopicExists):
        bench.create("t", spot)
    bench.remove(A, "t")
    bench.create("t", spot)
    assert bench.mesh.owner(b"t") == NODE


def test_a_rival_whose_claim_is_left_when_we_destroy_the_topic_is_asked_whether_it_stands() -> None:
    bench = MeshBench()
    bench.create("t")
    bench.join(X, "t")
    effects = bench.destroy("t")
    assert sent(effects) == [(X, CLAIMS_T)]
    assert told(effects) == [TopicAnnounced(topic="t", owner=X)]
    # It was demoted long ago.
    bench.hear(X, QueryResp(topics=(), is_extended=True))
    bench.create("t")


# -- two owners: others


@pytest.mark.spec("SPT-12")
def test_of_two_others_the_lower_id_is_the_owner_and_subscriptions_follow_it() -> None:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(Y, "t")
    bench.confirm(Y, "t")
    effects = bench.join(A, "t")
    assert sent(effects) == [(Y, Unsubscribe(topic="t")), (A, Subscribe(topic="t"))]
    assert told(effects) == [
        TopicAnnounced(topic="t", owner=A),
        SubscriptionSuspended(subscription="t", topic="t", owner=Y),
    ]
    # One between them changes nothing.
    assert bench.join(X, "t") == []
    bench.confirm(A, "t")
    bench.message(A, "t", 1)
    assert one.received == [("t", b"1", 1)]
    assert bench.mesh.tally.conflicts_count == 0


@pytest.mark.spec("SPT-12")
def test_an_owner_that_was_demoted_and_owns_the_topic_again_is_asked_again() -> None:
    # X was demoted by a node that we do not hear: it forgot its subscribers and said nothing.
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X, "t")
    bench.confirm(X, "t", 7)
    effects = bench.announce(X, "t", epoch=EPOCH + 1)
    assert sent(effects) == [(X, Unsubscribe(topic="t")), (X, Subscribe(topic="t"))]
    assert told_to(effects, one) == [SubscriptionSuspended(subscription="t", topic="t", owner=X)]
    bench.confirm(X, "t", 0, epoch=EPOCH + 1)
    bench.message(X, "t", 1)
    assert one.received == [("t", b"1", 1)]


@pytest.mark.parametrize("way", ["leave", "remove", "answer"])
def test_a_claim_that_wins_because_a_better_one_went_is_believed_and_verified(way: str) -> None:
    bench = MeshBench()
    bench.subscribe("t")
    bench.join(A, "t")
    bench.join(X, "t")
    bench.confirm(A, "t")
    match way:
        case "leave":
            effects = bench.leave(A)
        case "remove":
            effects = bench.remove(A, "t")
        case _:
            effects = bench.hear(A, QueryResp(topics=(), is_extended=True))
    assert sent(effects) == [(X, Subscribe(topic="t")), (X, CLAIMS_T)]
    assert bench.mesh.owner(b"t") == X
    # The claim was an old one: nobody owns the topic.
    events: list[SpotEvent] = told(bench.hear(X, QueryResp(topics=(), is_extended=True)))
    assert events == [TopicRemoved(topic="t", owner=X)]
    assert bench.mesh.owner(b"t") is None


def test_however_many_claims_win_at_once_their_node_is_asked_once() -> None:
    bench = MeshBench()
    topics = [f"topic-{number}" for number in range(50)]
    bench.join(A, *topics)
    bench.join(X, *topics)
    bench.join(B, *topics[:10])
    asked = [(peer, command) for peer, command in sent(bench.leave(A)) if isinstance(command, Query)]
    assert [peer for peer, _ in asked] == [B, X]
    assert [command.known_count for _, command in asked] == [10, 50]
    assert bench.tick(0.0) == []


def test_a_loser_that_goes_changes_nothing() -> None:
    bench = MeshBench()
    bench.subscribe("t")
    bench.join(A, "t")
    bench.join(X, "t")
    assert bench.remove(X, "t") == []
    assert bench.mesh.owner(b"t") == A
