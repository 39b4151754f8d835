"""Nodes whose outboxes are full: what they miss is counted, and they are told where the topic stands."""

import pytest

from hansa.limits import LAGGING_S
from hansa.wire.topics import Mark, Subscribe, TopicAnnounce, TopicRemove, Unsubscribe
from tests.support.spot_mesh import A, MeshBench, X, Y, sent


def lagging() -> MeshBench:
    """X is subscribed to t, has room for four messages, and six were published."""
    bench = MeshBench(outbox_count_max=4)
    bench.create("t")
    bench.join(X)
    bench.hear(X, Subscribe(topic="t"))
    bench.publish("t", *[b"x"] * 6)
    bench.mesh.note_lagging(now=bench.now)
    return bench


@pytest.mark.spec("SPT-21")
def test_a_node_whose_outbox_is_full_misses_messages_counted_by_topic() -> None:
    bench = lagging()
    assert bench.outlet("t").dropped_count == 2
    assert len(bench.posted(X)) == 4


@pytest.mark.spec("SPT-21")
def test_one_full_outbox_costs_the_others_nothing() -> None:
    bench = MeshBench(outbox_count_max=4)
    bench.create("t")
    for peer in (X, Y):
        bench.join(peer)
        bench.hear(peer, Subscribe(topic="t"))
    got = 0
    for _ in range(6):
        bench.publish("t", b"x")
        got += len(bench.posted(Y))
    assert got == 6
    assert set(bench.exchange.lagging) == {bench.boxes[X]}


@pytest.mark.spec("SPT-22")
def test_a_node_that_missed_messages_is_told_where_the_topic_stands_when_there_is_room() -> None:
    bench = lagging()
    assert bench.mesh.deadline() == bench.now + LAGGING_S
    assert bench.tick(LAGGING_S) == []
    assert bench.mesh.deadline() == bench.now + LAGGING_S
    bench.posted(X)
    mark = Mark(epoch=bench.outlet("t").epoch, sequence=6)
    assert sent(bench.tick(LAGGING_S)) == [(X, TopicAnnounce(topic="t", mark=mark))]
    assert bench.tick(LAGGING_S) == []
    assert bench.exchange.lagging == {}


@pytest.mark.spec("SPT-22")
def test_of_several_topics_each_is_told() -> None:
    bench = MeshBench(outbox_count_max=1)
    bench.join(X)
    for topic in ("t", "u", "v"):
        bench.create(topic)
        bench.hear(X, Subscribe(topic=topic))
    bench.publish("t", b"1")
    bench.publish("u", b"1")
    bench.publish("v", b"1", b"2")
    bench.mesh.note_lagging(now=bench.now)
    bench.posted(X)
    marks = [
        (command.topic, command.mark.sequence)
        for _, command in sent(bench.tick(LAGGING_S))
        if isinstance(command, TopicAnnounce) and command.mark is not None
    ]
    assert marks == [("u", 1), ("v", 2)]


def test_a_raw_node_is_not_told_what_it_would_not_understand() -> None:
    bench = MeshBench(outbox_count_max=1)
    bench.create("t")
    bench.join_raw(X)
    bench.hear(X, Subscribe(topic="t"))
    bench.publish("t", b"1", b"2")
    bench.mesh.note_lagging(now=bench.now)
    bench.posted(X)
    assert sent(bench.tick(LAGGING_S)) == []
    assert bench.exchange.lagging == {}


@pytest.mark.parametrize("way", ["unsubscribe", "leave", "destroy"])
def test_a_node_that_is_no_longer_subscribed_is_not_told(way: str) -> None:
    bench = lagging()
    bench.posted(X)
    match way:
        case "unsubscribe":
            bench.hear(X, Unsubscribe(topic="t"))
        case "leave":
            bench.leave(X)
        case _:
            bench.destroy("t")
    assert sent(bench.tick(LAGGING_S)) == []
    assert bench.exchange.lagging == {}
    assert bench.mesh.deadline() is None or bench.mesh.deadline() != bench.now + LAGGING_S


@pytest.mark.spec("SPT-22")
def test_a_demoted_owner_leaves_nobody_in_the_dark_about_what_it_dropped() -> None:
    bench = lagging()
    mark = Mark(epoch=bench.outlet("t").epoch, sequence=6)
    bench.join(A)
    effects = bench.hear(A, TopicAnnounce(topic="t"))
    assert (X, TopicAnnounce(topic="t", mark=mark)) in sent(effects)
    assert not any(isinstance(command, TopicRemove) for _, command in sent(effects))
