"""What a mesh costs a node: the formula against the encoder and against real nodes in the simulator."""

import json
from dataclasses import replace

import pytest

from bench import topic_costs, topic_costs_formula
from bench.topic_costs_flow import PING, QUERY, UNCHANGED, Flow, Share, Traffic
from bench.topic_costs_formula import Shape, answer_bytes, asking_bytes, marked_bytes
from bench.topic_costs_mesh import Costs, measure
from bench.topic_costs_meter import StreamMeter, Tally
from bench.topic_costs_report import deviation, deviations, fill, sections
from hansa.wire import commands
from hansa.wire.frames import encode as encode_frames
from hansa.wire.topics import (
    Mark,
    Query,
    QueryResp,
    SpotCommand,
    Subscribe,
    TopicAnnounce,
    TopicRemove,
    Unsubscribe,
    encode,
)

NAME = "topic:000000"
MARK = Mark(epoch=1, sequence=1)


def wire(command: SpotCommand) -> bytes:
    pieces: list[bytes] = []
    encode_frames(encode(command), pieces)
    return b"".join(pieces)


@pytest.mark.parametrize(
    ("command", "size_bytes"),
    [
        (Query(is_extended=True, known_count=9, known_digest=2**63), topic_costs_formula.QUERY_BYTES),
        (
            QueryResp(topics=(), is_extended=True, is_unchanged=True),
            topic_costs_formula.UNCHANGED_BYTES,
        ),
        (QueryResp(topics=(NAME,) * 7, is_extended=True), answer_bytes(7, len(NAME))),
        (TopicAnnounce(topic=NAME, mark=MARK), marked_bytes(len(NAME))),
        (TopicRemove(topic=NAME, mark=MARK), marked_bytes(len(NAME))),
        (Subscribe(topic=NAME), asking_bytes(len(NAME))),
        (Unsubscribe(topic=NAME), asking_bytes(len(NAME))),
    ],
)
def test_formula_knows_the_size_of_every_message(command: SpotCommand, size_bytes: int) -> None:
    assert len(wire(command)) == size_bytes


def test_formula_knows_the_size_of_every_command() -> None:
    ready = commands.encode_ready({"Socket-Type": b"ROUTER", "Identity": bytes(5)})
    assert len(commands.encode_greeting()) == topic_costs_formula.GREETING_BYTES
    assert len(ready) == topic_costs_formula.READY_BYTES
    assert len(commands.encode_ping(context=bytes(8))) == topic_costs_formula.PING_BYTES
    assert len(commands.encode_pong(bytes(8))) == topic_costs_formula.PONG_BYTES


@pytest.mark.parametrize(
    ("nodes_count", "topics_count"), [(10, 10), (10, 1_000), (30, 10), (30, 1_000), (100, 10), (100, 1_000)]
)
def test_real_nodes_cost_what_the_formula_says(nodes_count: int, topics_count: int) -> None:
    costs = measure(Shape(nodes_count=nodes_count, topics_count=topics_count), is_full=False)
    assert costs.steady.sent.messages_count == pytest.approx((nodes_count - 1) * 2 / 30)
    assert_predicted(costs)


def test_formula_holds_for_other_intervals_and_longer_names() -> None:
    shape = Shape(
        nodes_count=12, topics_count=40, topic_bytes=20, heartbeat_interval_s=10.0, query_interval_s=20.0
    )
    assert_predicted(measure(shape, is_full=False))


@pytest.mark.parametrize(("nodes_count", "topics_count"), [(10, 100), (20, 100)])
def test_full_mesh_costs_a_node_no_more_than_its_own_connections(nodes_count: int, topics_count: int) -> None:
    shape = Shape(nodes_count=nodes_count, topics_count=topics_count)
    full, own = measure(shape, is_full=True), measure(shape, is_full=False)
    assert full == replace(own, is_full=True)


def assert_predicted(costs: Costs) -> None:
    """Kind by kind. Counts are whole numbers; only what was divided by seconds is rounded."""
    found = deviations(costs)
    assert found.keys() == {"steady", *costs.shape.changes()}
    assert found.pop("steady") < 1e-9
    assert set(found.values()) == {0.0}


def test_deviation_sees_a_count_too_many_a_byte_too_many_and_a_kind_that_is_not_predicted() -> None:
    right = flow(QUERY, 10, 220)
    assert deviation(right, right) == 0.0
    assert deviation(flow(QUERY, 11, 220), right) == pytest.approx(0.1)
    assert deviation(flow(QUERY, 10, 231), right) == pytest.approx(0.05)
    assert deviation(flow(UNCHANGED, 10, 220), right) > 1.0


def flow(kind: str, count: int, size_bytes: int) -> Traffic:
    return Traffic(Flow({kind: Share(count, size_bytes)}), Flow({}))


@pytest.mark.parametrize("piece_bytes", [1, 7, 10_000])
def test_meter_counts_a_stream_however_it_is_cut(piece_bytes: int) -> None:
    large = QueryResp(topics=(NAME, "x" * 255), is_extended=True)
    stream = commands.encode_greeting() + wire(Query(is_extended=True)) + commands.encode_ping() + wire(large)
    stream += wire(TopicAnnounce(topic=NAME, mark=replace(MARK, confirm=True)))
    tally = Tally()
    meter = StreamMeter([tally])
    for at in range(0, len(stream), piece_bytes):
        meter.feed(stream[at : at + piece_bytes])
    counted = tally.flow
    assert {kind: share.count for kind, share in counted.by_kind.items()} == {
        "greeting": 1,
        QUERY: 1,
        PING: 1,
        "QUERY_RESP": 1,
        "TOPIC_ANNOUNCE, confirming": 1,
    }
    assert counted.size_bytes == len(stream)
    assert (counted.messages_count, counted.commands_count) == (3, 2)


def stored() -> list[Costs]:
    return [Costs.from_json(one) for one in json.loads(topic_costs.NUMBERS.read_text(encoding="utf-8"))]


def test_stored_numbers_are_of_all_sizes_and_as_the_formula_says() -> None:
    costs = stored()
    shapes = [(one.shape.nodes_count, one.shape.topics_count) for one in costs if not one.is_full]
    wanted = [
        (nodes, topics) for nodes in (10, 100, 1_000, 3_000) for topics in (10, 100, 1_000, 10_000, 100_000)
    ]
    assert shapes == wanted
    assert [one.shape.nodes_count for one in costs if one.is_full] == [10, 100]
    for one in costs:
        assert_predicted(one)


def test_page_shows_the_stored_numbers() -> None:
    page = topic_costs.PAGE.read_text(encoding="utf-8")
    assert fill(page, sections(stored())) == page
    with pytest.raises(ValueError, match="no place for 'more'"):
        fill(page, {"more": []})
