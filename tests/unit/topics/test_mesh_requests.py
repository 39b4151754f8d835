"""What other nodes ask of an owner: to subscribe, to publish; and what is refused."""

import pytest

from hansa.errors import BadArgument
from hansa.topics.events import PublishesInDoubt, PublishesRefused, TopicRemoved
from hansa.wire.topics import Mark, Publish, Subscribe, TopicAnnounce, TopicRemove, Unsubscribe
from tests.support.spot_mesh import A, MeshBench, X, Y, sent, told


@pytest.mark.spec("SPT-05")
def test_a_subscribed_node_is_confirmed_and_gets_what_is_published_after() -> None:
    bench = MeshBench()
    bench.create("t")
    bench.publish("t", b"before")
    bench.join(X)
    ((peer, confirmed),) = sent(bench.hear(X, Subscribe(topic="t")))
    epoch = bench.outlet("t").epoch
    assert peer == X
    assert confirmed == TopicAnnounce(topic="t", mark=Mark(epoch=epoch, sequence=1, confirm=True))
    bench.publish("t", b"after")
    (message,) = bench.posted(X)
    assert (message.topic, message.payload, message.sequence) == ("t", b"after", 2)  # type: ignore[union-attr]


def test_a_raw_node_is_not_confirmed_and_gets_messages_all_the_same() -> None:
    bench = MeshBench()
    bench.create("t")
    bench.join_raw(X)
    assert bench.hear(X, Subscribe(topic="t")) == []
    bench.publish("t", b"x")
    assert len(bench.posted(X)) == 1


def test_after_unsubscribing_a_node_gets_nothing_more_and_doing_it_twice_does_no_harm() -> None:
    bench = MeshBench()
    bench.create("t")
    bench.join(X)
    bench.hear(X, Subscribe(topic="t"))
    for _ in range(2):
        assert bench.hear(X, Unsubscribe(topic="t")) == []
    bench.publish("t", b"x")
    assert bench.posted(X) == []
    assert bench.hear(X, Unsubscribe(topic="never heard of")) == []


def test_a_node_that_subscribes_twice_gets_each_message_once() -> None:
    bench = MeshBench()
    bench.create("t")
    bench.join(X)
    for _ in range(2):
        bench.hear(X, Subscribe(topic="t"))
    bench.publish("t", b"x")
    assert len(bench.posted(X)) == 1
    bench.hear(X, Unsubscribe(topic="t"))
    bench.publish("t", b"y")
    assert bench.posted(X) == []


@pytest.mark.spec("SPT-05")
def test_a_publish_for_a_topic_of_ours_reaches_everybody_also_the_one_who_published() -> None:
    bench = MeshBench()
    bench.create("t")
    here = bench.subscribe("t")
    bench.join(X)
    bench.join(Y)
    bench.hear(X, Subscribe(topic="t"))
    bench.hear(Y, Subscribe(topic="t"))
    assert bench.hear(X, Publish(topic="t", payload=b"x")) == []
    assert here.received == [("t", b"x", 1)]
    for peer in (X, Y):
        (message,) = bench.posted(peer)
        assert (message.payload, message.sequence) == (b"x", 1)  # type: ignore[union-attr]


def test_a_publish_for_a_topic_that_is_not_ours_is_refused_and_counted() -> None:
    bench = MeshBench()
    bench.join(A, "t")
    bench.join(X)
    for topic in ("t", "nobody's"):
        refusal = TopicRemove(topic=topic, refused_count=1)
        assert sent(bench.hear(X, Publish(topic=topic, payload=b"x"))) == [(X, refusal)]
    assert bench.mesh.tally.refused_count == 2


def test_a_subscribe_for_a_topic_that_is_not_ours_is_refused() -> None:
    bench = MeshBench()
    bench.join(X)
    refusal = TopicRemove(topic="t", refused_count=0)
    assert sent(bench.hear(X, Subscribe(topic="t"))) == [(X, refusal)]
    assert bench.mesh.tally.subscribes_refused_count == 1
    assert bench.mesh.tally.refused_count == 0


def test_a_refused_publish_is_told_counted_and_ends_the_claim() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    for _ in range(3):
        bench.mesh.published(X)
    effects = bench.hear(X, TopicRemove(topic="t", refused_count=1))
    assert told(effects) == [
        PublishesRefused(topic="t", owner=X, count=1),
        TopicRemoved(topic="t", owner=X),
    ]
    assert bench.mesh.owner(b"t") is None
    # The next publish was under way already.
    effects = bench.hear(X, TopicRemove(topic="t", refused_count=1))
    assert told(effects) == [PublishesRefused(topic="t", owner=X, count=1)]
    assert bench.mesh.tally.publishes_refused_count == 2
    # Those are not in doubt, whatever becomes of the connection.
    assert PublishesInDoubt(owner=X, count=1) in told(bench.leave(X, in_doubt_count=9))


@pytest.mark.spec("SEC-05")
def test_nobody_refuses_more_than_was_published_to_it() -> None:
    bench = MeshBench()
    bench.join(X)
    assert bench.hear(X, TopicRemove(topic="t", refused_count=2**32 - 1)) == []
    for _ in range(2):
        bench.mesh.published(X)
    for _ in range(2):
        bench.hear(X, TopicRemove(topic="t", refused_count=2**32 - 1))
    assert bench.mesh.tally.publishes_refused_count == 2


def test_a_publish_goes_to_whoever_owns_the_topic_now() -> None:
    bench = MeshBench()
    assert bench.mesh.route("t") is None
    bench.join(Y, "t")
    assert bench.mesh.route("t") == (Y, b"t")
    bench.join(X, "t")
    assert bench.mesh.route("t") == (X, b"t")
    bench.remove(X, "t")
    assert bench.mesh.route("t") == (Y, b"t")
    bench.leave(Y)
    assert bench.mesh.route("t") is None
    with pytest.raises(BadArgument):
        bench.mesh.route("t*")


def test_a_refused_subscribe_is_no_refused_publish() -> None:
    bench = MeshBench()
    bench.join(X, "t")
    assert told(bench.hear(X, TopicRemove(topic="t", refused_count=0))) == [TopicRemoved(topic="t", owner=X)]
    assert bench.mesh.tally.publishes_refused_count == 0
