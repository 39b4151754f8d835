"""One message to many outboxes."""

import pytest

from hansa.errors import BadArgument
from hansa.limits import WRITE_JOIN_BYTES, WRITE_TURN_BYTES
from hansa.transport.outbox import Outbox
from hansa.transport.subscriptions import TURN_COUNT_MAX, Fan
from hansa.wire.frames import encode


def outbox(*, count_max: int = 1_000, stalled: bool = False) -> Outbox:
    box = Outbox(bytes_max=1 << 30, count_max=count_max, burst_count=1 << 30)
    box.stalled = stalled
    return box


def written(box: Outbox) -> list[bytes]:
    batch = box.take()
    return [] if batch is None else batch.pieces


def test_every_subscriber_gets_the_same_bytes_and_is_roused_once_a_turn() -> None:
    fan, boxes = Fan(), [outbox(), outbox()]
    for box in boxes:
        fan.subscriptions.add(box, b"a")
    assert fan.publish([b"ab", b"1"]) == 2
    assert fan.publish([b"ac", b"2"]) == 2
    assert fan.publish([b"b"]) == 0
    assert fan.roused == boxes
    first, second = (written(box) for box in boxes)
    assert first == second
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_large_parts_are_shared_and_not_joined() -> None:
    fan, box = Fan(), outbox()
    fan.subscriptions.add(box, b"")
    large = bytes(WRITE_JOIN_BYTES)
    fan.publish([b"topic", large])
    assert any(piece is large for piece in written(box))


def test_a_full_outbox_is_roused_at_once() -> None:
    fan, box = Fan(), outbox()
    fan.subscriptions.add(box, b"")
    fan.publish([b"small"])
    fan.roused.clear()
    fan.publish([bytes(WRITE_TURN_BYTES)])
    assert fan.roused == [box]


def test_who_is_full_misses_the_message_and_the_others_do_not_notice() -> None:
    fan, slow, quick = Fan(), outbox(count_max=1, stalled=True), outbox()
    for box in (slow, quick):
        fan.subscriptions.add(box, b"")
    assert [fan.publish([b"%d" % n]) for n in range(4)] == [2, 1, 1, 1]
    assert (slow.dropped_count, quick.dropped_count) == (3, 0)
    assert fan.turn_count == 4


def test_when_nobody_keeps_up_the_publisher_lets_the_loop_run_first() -> None:
    fan, slow = Fan(), outbox(count_max=1, stalled=True)
    fan.subscriptions.add(slow, b"")
    assert fan.publish([b"1"]) == 1
    assert fan.turn_count == 1
    assert fan.publish([b"2"]) == 0
    assert fan.turn_count == TURN_COUNT_MAX


def test_a_message_in_wire_form_goes_to_those_whose_prefix_its_topic_has() -> None:
    fan, near, far = Fan(), outbox(), outbox()
    fan.subscriptions.add(near, b"ab")
    fan.subscriptions.add(far, b"b")
    pieces: list[bytes] = []
    size_bytes = encode([b"abc", b"payload"], pieces)
    whole = b"".join(pieces)
    assert fan.publish_encoded(b"abc", [whole], size_bytes) == 1
    assert fan.roused == [near]
    assert near.held_bytes == size_bytes == len(whole)
    # Not a copy: a list for a thousand subscribers is there once.
    assert any(piece is whole for piece in written(near))
    assert written(far) == []
    assert fan.publish_encoded(b"c", [whole], size_bytes) == 0


def test_a_message_in_wire_form_is_missed_and_counted_like_any_other() -> None:
    fan, slow = Fan(), outbox(count_max=1, stalled=True)
    fan.subscriptions.add(slow, b"")
    assert [fan.publish_encoded(b"a", [b"\x00\x01a"], 3) for _ in range(3)] == [1, 0, 0]
    assert slow.dropped_count == 2


def test_what_is_no_message_reaches_nobody() -> None:
    fan, box = Fan(), outbox()
    fan.subscriptions.add(box, b"")
    with pytest.raises(BadArgument):
        fan.publish([])
    assert box.held_count == 0
