"""The frame parser and encoder: layouts, bounds, and what a violation leaves intact."""

import tracemalloc

import pytest

from hansa.errors import BadArgument
from hansa.wire.frames import FrameParser, encode, encode_command


def parser(
    *,
    frame_bytes_max: int = 1 << 20,
    message_bytes_max: int = 1 << 21,
    parts_max: int = 100,
    ready: bool = True,
) -> FrameParser:
    made = FrameParser(
        frame_bytes_max=frame_bytes_max,
        message_bytes_max=message_bytes_max,
        parts_max=parts_max,
        command_bytes_max=1024,
    )
    made.commands_only = not ready
    return made


def wire(*messages: list[bytes]) -> bytes:
    out: list[bytes] = []
    for parts in messages:
        encode(parts, out)
    return b"".join(out)


def test_short_and_long_frames_have_the_layout_of_zmtp() -> None:
    assert wire([b"a", b""]) == bytes.fromhex("01 01 61 00 00")
    assert wire([bytes(255)]) == b"\x00\xff" + bytes(255)
    assert wire([bytes(256)]) == b"\x02" + (256).to_bytes(8, "big") + bytes(256)
    assert wire([bytes(256), b"z"]) == b"\x03" + (256).to_bytes(8, "big") + bytes(256) + b"\x00\x01z"
    assert encode_command(b"\x04PING") == b"\x04\x05\x04PING"
    assert encode_command(bytes(300)) == b"\x06" + (300).to_bytes(8, "big") + bytes(300)


def test_encode_returns_the_number_of_bytes() -> None:
    for parts in ([b""], [b"a", bytes(255), bytes(256), bytes(100_000)]):
        out: list[bytes] = []
        assert encode(parts, out) == len(b"".join(out))


@pytest.mark.parametrize("parts", [[], [b"a", "text"], [b"a", None], [b"a", bytearray(b"b")]])
def test_what_is_no_message_is_refused_and_leaves_nothing_behind(parts: list[bytes]) -> None:
    out = [b"before"]
    with pytest.raises(BadArgument):
        encode(parts, out)
    assert out == [b"before"]


def test_messages_come_out_of_any_chunking() -> None:
    messages = [[b""], [b"one", b"", b"three"], [bytes(300)], [b"x" * 20_000, b"y"], [b"end"]]
    stream = wire(*messages)
    for step in (1, 2, 3, 7, 64, 8191, 8192, 8193, len(stream)):
        reader, got = parser(), []
        for at in range(0, len(stream), step):
            got += reader.feed(stream[at : at + step])
        assert got == messages
        assert reader.count == len(messages)


def test_parsing_stops_at_a_command_and_goes_on_after_it() -> None:
    reader = parser()
    stream = wire([b"1"]) + encode_command(b"\x01A") + encode_command(b"\x01B") + wire([b"2"], [b"3"])
    assert reader.feed(stream) == [[b"1"]]
    assert reader.stopped
    assert reader.command == b"\x01A"
    assert reader.resume() == []
    assert reader.command == b"\x01B"
    assert reader.resume() == [[b"2"], [b"3"]]
    assert not reader.stopped
    assert reader.command is None
    assert reader.count == 3


def test_bytes_that_come_while_a_command_waits_are_kept() -> None:
    reader = parser()
    reader.feed(encode_command(b"\x01A") + wire([b"1"])[:2])
    assert reader.feed(wire([b"1"])[2:]) == []
    assert reader.resume() == [[b"1"]]


def test_a_command_may_stand_between_the_frames_of_a_message() -> None:
    reader = parser()
    assert reader.feed(b"\x01\x01a" + encode_command(b"\x01A") + b"\x00\x01b") == []
    assert reader.resume() == [[b"a", b"b"]]


@pytest.mark.parametrize(
    ("stream", "violation"),
    [
        (b"\x02" + (1 << 62).to_bytes(8, "big"), "frame-too-large"),
        (b"\x02" + ((1 << 20) + 1).to_bytes(8, "big"), "frame-too-large"),
        (b"\x06" + (1025).to_bytes(8, "big"), "frame-too-large"),
        ((b"\x03" + (1 << 20).to_bytes(8, "big") + bytes(1 << 20)) * 2 + b"\x00\x01", "message-too-large"),
        (b"\x01\x00" * 101, "too-many-parts"),
        (b"\x08\x00", "protocol-violation"),
        (b"\x05\x00", "protocol-violation"),
        (b"\x80\x00", "protocol-violation"),
    ],
)
@pytest.mark.spec("SEC-05")
def test_a_violation_is_named_and_what_came_before_it_is_delivered(stream: bytes, violation: str) -> None:
    reader = parser()
    assert reader.feed(wire([b"good"]) + stream) == [[b"good"]]
    assert reader.violation == violation
    assert reader.detail
    assert reader.stopped
    assert reader.feed(wire([b"more"])) == []
    assert reader.resume() == []


def test_messages_before_the_end_of_the_handshake_are_a_violation() -> None:
    reader = parser(ready=False)
    assert reader.feed(b"\x02" + (1 << 19).to_bytes(8, "big")) == []
    assert reader.violation == "protocol-violation"


def test_a_length_alone_costs_no_memory() -> None:
    reader = parser(frame_bytes_max=1 << 40, message_bytes_max=1 << 41)
    tracemalloc.start()
    reader.feed(b"\x02" + (1 << 40).to_bytes(8, "big") + b"x")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not reader.violation
    assert peak_bytes < 10_000


def test_a_bytewise_sender_of_a_large_frame_costs_little_more_than_its_bytes() -> None:
    size_bytes = 200_000
    stream = b"\x02" + size_bytes.to_bytes(8, "big") + bytes(size_bytes)
    reader = parser()
    tracemalloc.start()
    got = []
    for at in range(len(stream)):
        got += reader.feed(stream[at : at + 1])
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert got == [[bytes(size_bytes)]]
    assert peak_bytes < 4 * size_bytes


def test_a_frame_bound_below_a_short_frame_is_a_mistake() -> None:
    with pytest.raises(BadArgument):
        parser(frame_bytes_max=254)
