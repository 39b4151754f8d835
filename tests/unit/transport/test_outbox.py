"""The outgoing buffer: bounds, batches that end at message boundaries, nothing lost when carried over."""

from hypothesis import given
from hypothesis import strategies as st

from hansa.limits import WRITE_JOIN_BYTES, WRITE_TURN_BYTES
from hansa.transport.outbox import BURST, FULL, QUIET, ROUSE, Outbox
from hansa.wire.frames import FrameParser


def outbox(bytes_max: int = 1 << 30, count_max: int = 1 << 30, burst_count: int = 1 << 30) -> Outbox:
    return Outbox(bytes_max=bytes_max, count_max=count_max, burst_count=burst_count)


def drain(box: Outbox) -> tuple[bytes, int]:
    data, count = b"", 0
    while (batch := box.take()) is not None:
        data += b"".join(batch.buffers())
        count += batch.count
    return data, count


def read(data: bytes) -> list[list[bytes]]:
    parser = FrameParser(
        frame_bytes_max=1 << 30, message_bytes_max=1 << 30, parts_max=1 << 20, command_bytes_max=100
    )
    parser.commands_only = False
    return parser.feed(data)


sizes = st.sampled_from([0, 1, 255, 256, WRITE_JOIN_BYTES - 20, WRITE_JOIN_BYTES, WRITE_TURN_BYTES + 1])


@given(st.lists(st.lists(sizes, min_size=1, max_size=3), max_size=8))
def test_what_goes_in_comes_out_in_order_whatever_the_sizes(shape: list[list[int]]) -> None:
    messages = [[bytes([n % 251]) * size for n, size in enumerate(parts)] for parts in shape]
    box = outbox()
    for parts in messages:
        assert box.put(parts) != FULL
    assert box.held_count == len(messages)
    data, count = drain(box)
    assert read(data) == messages
    assert count == len(messages)
    assert (box.held_count, box.held_bytes, box.taken_count) == (0, 0, len(messages))


def test_large_parts_are_not_joined_with_the_rest() -> None:
    large = bytes(WRITE_JOIN_BYTES)
    box = outbox()
    box.put([b"a", b"b"])
    box.put([b"head", large, b"tail"])
    batch = box.take()
    assert batch is not None
    buffers = batch.buffers()
    assert any(buffer is large for buffer in buffers)
    assert len(buffers) == 3


def test_a_full_box_takes_nothing_and_says_so() -> None:
    box = outbox(count_max=2)
    assert box.put([b"1"]) != FULL
    assert box.put([b"2"]) != FULL
    assert not box.has_room()
    assert box.put([b"3"]) == FULL
    assert box.put_encoded([b"\x00\x01x"], 3) == FULL
    assert read(drain(box)[0]) == [[b"1"], [b"2"]]
    assert box.has_room()


def test_one_message_larger_than_the_bound_still_fits_an_empty_box() -> None:
    box = outbox(bytes_max=100)
    assert box.put([bytes(1000)]) != FULL
    assert box.put([b"x"]) == FULL


def test_what_an_earlier_box_held_comes_first() -> None:
    earlier, later = outbox(), outbox(count_max=2)
    for n in range(3):
        earlier.put([b"%d" % n, bytes(WRITE_TURN_BYTES)])
    later.put([b"later"])
    later.absorb(earlier)
    assert earlier.held_count == 0
    assert [parts[0] for parts in read(drain(later)[0])] == [b"0", b"1", b"2", b"later"]


def test_clear_says_how_much_it_forgot() -> None:
    box = outbox()
    for _ in range(3):
        box.put([bytes(WRITE_TURN_BYTES)])
    assert box.clear() == 3
    assert box.take() is None
    assert box.held_bytes == 0


def test_a_burst_is_a_turns_worth_of_messages_or_of_bytes() -> None:
    box = outbox(burst_count=3)
    box.stalled = False
    assert [box.put([b"x"]) for _ in range(4)] == [ROUSE, QUIET, BURST, BURST]
    drain(box)
    assert box.put([bytes(WRITE_TURN_BYTES)]) == BURST
