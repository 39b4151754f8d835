"""The hot path of topics: wire form, numbers, who gets what, and where it hands over to the machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument
from hansa.limits import CROWDED_TURN_COUNT, WRITE_JOIN_BYTES
from hansa.topics.fanout import DUE, REST, Exchange, Feed, Outlet, publish, receive
from hansa.topics.inbox import Inbox, Reader, TopicMessage, WhenSlow
from hansa.transport.outbox import Outbox
from hansa.wire import frames as zmtp
from hansa.wire.topics import Message, Publish, Subscribe, encode
from tests.support.spot_mesh import NOBODY

BIG = 1 << 30
OWNER = object()


def exchange_of(payload_bytes_max: int = BIG) -> Exchange:
    return Exchange(payload_bytes_max)


def box_of(count_max: int = BIG, bytes_max: int = BIG) -> Outbox:
    box = Outbox(bytes_max=bytes_max, count_max=count_max, burst_count=BIG)
    box.stalled = False
    return box


def outlet_of(exchange: Exchange, topic: str = "t", *, retain: bool = False) -> Outlet:
    outlet = Outlet(topic.encode(), Feed(topic), object(), b"n", 1, retain)
    exchange.open(outlet)
    return outlet


def feed_of(exchange: Exchange, topic: str = "t", *, last: int = 0, source: object = OWNER) -> Feed:
    feed = Feed(topic)
    feed.source = source
    feed.last = last
    feed.inboxes = [inbox_of()]
    exchange.feeds[topic.encode()] = feed
    return feed


def inbox_of(count_max: int = BIG) -> Inbox:
    return Inbox(Reader(NOBODY), count_max, BIG, WhenSlow.DROP_OLDEST)


def message(sequence: int, topic: str = "t", payload: bytes = b"x") -> list[bytes]:
    return encode(Message(topic=topic, payload=payload, sequence=sequence))


def numbers(inbox: Inbox) -> list[int]:
    return [one.sequence for one in inbox.take_all()]


def written(box: Outbox) -> bytes:
    data = b""
    while (batch := box.take()) is not None:
        data += b"".join(batch.buffers())
    return data


def in_wire_form(*messages: list[bytes]) -> bytes:
    pieces: list[bytes] = []
    for parts in messages:
        zmtp.encode(parts, pieces)
    return b"".join(pieces)


SIZES = [0, 1, 255, 256, WRITE_JOIN_BYTES - 1, WRITE_JOIN_BYTES, WRITE_JOIN_BYTES + 1, 300_000]


# -- publishing


@pytest.mark.spec("SPT-19")
@pytest.mark.parametrize("topic", ["t", "é" * 127, "x" * 255])
@pytest.mark.parametrize("size_bytes", SIZES)
def test_a_message_has_the_bytes_that_the_codec_gives_it(size_bytes: int, topic: str) -> None:
    exchange, box = exchange_of(), box_of()
    outlet = outlet_of(exchange, topic)
    outlet.add(b"peer", box)
    outlet.sequence = 0x0102030405060706
    payload = bytes(size_bytes)
    outlet.publish(payload, exchange)
    outlet.publish(b"next", exchange)
    first = encode(Message(topic=topic, payload=payload, sequence=0x0102030405060707))
    second = encode(Message(topic=topic, payload=b"next", sequence=0x0102030405060708))
    assert box.held_bytes == len(in_wire_form(first, second))
    assert written(box) == in_wire_form(first, second)


def test_a_large_payload_is_not_copied() -> None:
    payload = bytes(WRITE_JOIN_BYTES)
    outlet = outlet_of(exchange_of())
    assert any(piece is payload for piece in outlet.wire(payload, 1))


@pytest.mark.spec("SPT-05")
def test_a_message_goes_to_every_subscribed_node_and_every_local_inbox_under_one_number() -> None:
    exchange = exchange_of()
    outlet = outlet_of(exchange)
    boxes = [box_of() for _ in range(3)]
    for number, box in enumerate(boxes):
        outlet.add(b"%d" % number, box)
    outlet.feed.inboxes = [inbox_of(), inbox_of()]
    outlet.publish(b"x", exchange)
    outlet.publish(b"y", exchange)
    expected = in_wire_form(message(1), message(2, payload=b"y"))
    assert [written(box) for box in boxes] == [expected] * 3
    assert [numbers(inbox) for inbox in outlet.feed.inboxes] == [[1, 2]] * 2
    assert (outlet.sequence, exchange.delivered_count, exchange.turn_count) == (2, 4, 2)


def test_local_inboxes_share_one_message() -> None:
    exchange = exchange_of()
    outlet = outlet_of(exchange)
    outlet.feed.inboxes = [inbox_of(), inbox_of()]
    outlet.publish(b"x", exchange)
    first, second = (inbox.next() for inbox in outlet.feed.inboxes)
    assert first is not None
    assert first is second


def test_a_node_that_was_removed_gets_nothing_and_one_that_came_twice_gets_it_once() -> None:
    exchange, first, second = exchange_of(), box_of(), box_of()
    outlet = outlet_of(exchange)
    outlet.add(b"peer", first)
    outlet.add(b"peer", second)
    outlet.publish(b"x", exchange)
    assert (first.taken_count, second.taken_count) == (0, 1)
    outlet.remove(b"peer")
    outlet.remove(b"peer")
    outlet.publish(b"x", exchange)
    assert second.taken_count == 1


def test_the_driver_learns_once_which_boxes_to_flush_and_whom_to_wake() -> None:
    exchange, box = exchange_of(), box_of()
    outlet = outlet_of(exchange)
    outlet.add(b"peer", box)
    inbox = inbox_of()
    inbox.reader.expect()
    outlet.feed.inboxes = [inbox]
    outlet.publish(b"x", exchange)
    outlet.publish(b"x", exchange)
    assert exchange.boxes == [box]
    assert exchange.readers == [inbox.reader]
    assert exchange.is_due


def test_what_is_due_is_taken_once_and_names_each_box_once() -> None:
    exchange, box = exchange_of(), box_of()
    outlet = outlet_of(exchange)
    outlet.add(b"peer", box)
    inbox = inbox_of()
    inbox.reader.expect()
    outlet.feed.inboxes = [inbox]
    outlet.publish(b"x", exchange)
    box.due = False  # Full enough to be flushed with every message.
    outlet.publish(b"x", exchange)
    assert exchange.boxes == [box, box]
    assert exchange.take_due() == ([box], [inbox.reader])
    assert not exchange.is_due
    assert exchange.take_due() == ([], [])


def test_a_rest_begins_counting_anew_and_is_longer_once_when_nobody_keeps_up() -> None:
    exchange, box = exchange_of(), box_of(count_max=4)
    outlet = Outlet(b"t", Feed("t"), object(), b"n", 1, False)
    exchange.open(outlet)
    outlet.add(b"peer", box)
    results = [publish(exchange, "t", b"x") for _ in range(5)]
    assert (results[:4], results[4]) == ([DUE] * 4, REST)
    assert (exchange.take_rest(), exchange.take_rest()) == (CROWDED_TURN_COUNT, 1)
    assert publish(exchange, "t", b"x") == DUE


def test_a_topic_that_is_given_up_stays_in_the_counts() -> None:
    exchange, box = exchange_of(), box_of(count_max=1)
    outlet = Outlet(b"t", Feed("t"), object(), b"n", 1, False)
    exchange.open(outlet)
    outlet.add(b"peer", box)
    for _ in range(3):
        outlet.publish(b"x", exchange)
    assert (exchange.published_count, exchange.dropped_count) == (3, 2)
    exchange.close(outlet)
    exchange.count_published()
    assert (exchange.published_count, exchange.dropped_count) == (4, 2)
    assert (exchange.outlets, exchange.outlets_by_name) == ({}, {})


def test_nothing_is_due_when_nobody_waits_and_the_box_will_be_flushed_anyway() -> None:
    exchange, box = exchange_of(), box_of()
    box.stalled = True
    outlet = outlet_of(exchange)
    outlet.add(b"peer", box)
    outlet.feed.inboxes = [inbox_of()]
    outlet.publish(b"x", exchange)
    assert (exchange.boxes, exchange.readers, exchange.is_due) == ([], [], False)


@pytest.mark.parametrize("payload", ["text", bytearray(b"x"), memoryview(b"x"), None, 7])
def test_what_is_no_bytes_is_not_published(payload: object) -> None:
    exchange = exchange_of()
    outlet = outlet_of(exchange)
    with pytest.raises(BadArgument, match="not bytes"):
        outlet.publish(payload, exchange)
    assert outlet.sequence == 0


def test_what_is_too_large_for_peers_is_not_published_and_takes_no_number() -> None:
    exchange, box = exchange_of(payload_bytes_max=10), box_of()
    outlet = outlet_of(exchange)
    outlet.add(b"peer", box)
    outlet.publish(bytes(10), exchange)
    with pytest.raises(BadArgument, match="11 bytes; 10 are the most"):
        outlet.publish(bytes(11), exchange)
    assert (outlet.sequence, box.taken_count) == (1, 1)


def test_an_owner_that_retains_keeps_the_last_message_also_if_nobody_is_there() -> None:
    exchange = exchange_of()
    retaining, plain = outlet_of(exchange, retain=True), outlet_of(exchange, "u")
    for outlet in (retaining, plain):
        outlet.publish(b"x", exchange)
        outlet.publish(b"y", exchange)
    assert retaining.latest == TopicMessage("t", b"y", 2)
    assert plain.latest is None


# -- full outboxes


@pytest.mark.spec("SPT-21")
@pytest.mark.parametrize("box", [box_of(count_max=2), box_of(bytes_max=1)], ids=["count", "bytes"])
def test_what_a_full_outbox_does_not_take_is_counted_and_its_peer_lags(box: Outbox) -> None:
    exchange, other = exchange_of(), box_of()
    outlet, quiet = outlet_of(exchange), outlet_of(exchange, "u")
    outlet.add(b"slow", box)
    outlet.add(b"fast", other)
    quiet.add(b"slow", box)
    while not exchange.lagging:
        outlet.publish(b"x", exchange)
    outlet.publish(b"x", exchange)
    taken_count = box.taken_count
    assert outlet.dropped_count == box.dropped_count == 2
    assert outlet.sequence == other.taken_count == taken_count + 2
    assert exchange.lagging == {box: {outlet: None}}
    assert exchange.is_due
    written(box)
    outlet.publish(b"x", exchange)
    assert box.taken_count == taken_count + 1


# -- receiving


def test_the_messages_of_a_feed_in_order_are_delivered() -> None:
    exchange = exchange_of()
    feed = feed_of(exchange, last=7)
    chunk = [message(8), message(9, payload=b""), message(10)]
    assert receive(exchange, OWNER, chunk, 0) == 3
    assert numbers(feed.inboxes[0]) == [8, 9, 10]
    assert (feed.last, exchange.delivered_count) == (10, 3)


@pytest.mark.parametrize(
    "stopper",
    [
        message(10),  # a gap
        message(8),  # again
        message(0),
        message(9, "unknown"),
        message(9, "not active"),
        message(9, "of another"),
        encode(Message(topic="t", payload=b"x")),
        [*message(9), b"more"],
        [*message(9)[:3], b"\x09"],
        [*message(9)[:3], bytes(9)],
        encode(Publish(topic="t", payload=b"x")),
        encode(Subscribe(topic="t")),
        [b"\x04"],
        [b""],
        [b"\x08", b"t"],
        [b"\x07", *message(9)[1:]],
        [b"\x08\x08", *message(9)[1:]],
    ],
    ids=lambda parts: b" ".join(parts)[:20].hex(),
)
def test_everything_else_is_left_to_the_machine_and_what_follows_waits(stopper: list[bytes]) -> None:
    exchange = exchange_of()
    feed = feed_of(exchange, last=7)
    feed_of(exchange, "not active", last=8, source=None)
    feed_of(exchange, "of another", last=8, source=object())
    chunk = [message(8), stopper, message(9)]
    assert receive(exchange, OWNER, chunk, 0) == 1
    assert numbers(feed.inboxes[0]) == [8]
    assert receive(exchange, OWNER, chunk, 2) == 3
    assert numbers(feed.inboxes[0]) == [9]
    assert receive(exchange, OWNER, chunk, 3) == 3


def test_a_source_is_one_connection_and_not_whatever_equals_it() -> None:
    exchange = exchange_of()
    feed_of(exchange, source=(1, 2))
    assert receive(exchange, (1, int("2")), [message(1)], 0) == 0


@pytest.mark.spec("SPT-05")
def test_a_publish_for_a_topic_of_ours_is_published() -> None:
    exchange, box = exchange_of(), box_of()
    outlet = outlet_of(exchange)
    outlet.add(b"peer", box)
    chunk = [encode(Publish(topic="t", payload=b"x")), encode(Publish(topic="t", payload=b"y"))]
    assert receive(exchange, OWNER, chunk, 0) == 2
    assert written(box) == in_wire_form(message(1), message(2, payload=b"y"))


@given(st.integers(0, 2**64 - 2))
def test_numbers_are_read_as_the_codec_writes_them(last: int) -> None:
    exchange = exchange_of()
    feed = feed_of(exchange, last=last)
    assert receive(exchange, OWNER, [message(last + 1)], 0) == 1
    assert feed.last == last + 1
    feed.last = last
    assert receive(exchange, OWNER, [message(last)], 0) == 0


def test_a_feed_keeps_the_last_message_of_a_topic_that_retains() -> None:
    exchange = exchange_of()
    feed = feed_of(exchange)
    receive(exchange, OWNER, [message(1)], 0)
    assert feed.kept is None
    feed.retain = True
    receive(exchange, OWNER, [message(2), message(3)], 0)
    assert feed.kept == TopicMessage("t", b"x", 3)


def test_what_a_slow_inbox_drops_reaches_the_others() -> None:
    exchange = exchange_of()
    feed = feed_of(exchange)
    slow = inbox_of(count_max=1)
    feed.inboxes.append(slow)
    receive(exchange, OWNER, [message(n) for n in range(1, 6)], 0)
    assert numbers(feed.inboxes[0]) == [1, 2, 3, 4, 5]
    assert (numbers(slow), slow.dropped_count) == ([5], 4)
