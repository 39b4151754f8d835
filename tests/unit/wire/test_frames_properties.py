"""The parser gives the same messages however the stream is cut, and one typed violation at most."""

from hypothesis import given
from hypothesis import strategies as st

from hansa.wire.frames import encode, encode_command
from tests.support import zmtp_bytes as zmtp
from tests.support.parsing import Bounds, Item, Outcome, bytewise, cut, read_all, read_slowly

BOUNDS = Bounds()
GENEROUS = Bounds(frame_bytes_max=100_000, message_bytes_max=300_000, parts_max=100, command_bytes_max=8_192)

# Sizes on both sides of every border: short and long frames, re-read and collected frames, merged pieces.
sizes = st.sampled_from([0, 1, 2, 3, 254, 255, 256, 257, 999, 1000, 4095, 4096, 8191, 8192, 8193, 20_000])
bodies = st.one_of(
    st.binary(max_size=300), st.builds(lambda size, fill: bytes((fill,)) * size, sizes, st.integers(0, 255))
)
messages = st.lists(bodies, min_size=1, max_size=8)
commands = st.one_of(st.binary(max_size=300), st.binary(min_size=300, max_size=400))
items = st.lists(st.one_of(messages, commands), max_size=8)
places = st.lists(st.integers(0, 200_000), max_size=30)
headers = st.builds(
    lambda flags, size: bytes((flags,)) + (size.to_bytes(8, "big") if flags & 2 else bytes((size % 256,))),
    st.one_of(st.integers(0, 7), st.integers(0, 255)),
    st.one_of(sizes, st.integers(0, 3_000), st.integers(0, 2**64 - 1)),
)
# Pieces that look like frames, so that random input gets past the first byte.
broken_streams = st.lists(
    st.one_of(headers, st.binary(max_size=40), st.builds(zmtp.frame, bodies)), max_size=12
).map(b"".join)


def on_the_wire(sent: list[Item]) -> bytes:
    """The stream of these items, from hansa's own encoder."""
    out: list[bytes] = []
    for item in sent:
        if isinstance(item, bytes):
            out.append(encode_command(item))
        else:
            pieces: list[bytes] = []
            size = encode(item, pieces)
            assert size == sum(map(len, pieces))
            out += pieces
    return b"".join(out)


def on_the_wire_by_the_book(sent: list[Item]) -> bytes:
    """The same from the tests' encoder."""
    return b"".join(
        zmtp.frame(item, command=True) if isinstance(item, bytes) else zmtp.message(*item) for item in sent
    )


@given(sent=items)
def test_the_encoder_writes_what_the_specification_says(sent: list[Item]) -> None:
    assert on_the_wire(sent) == on_the_wire_by_the_book(sent)


@given(sent=items, at=places)
def test_any_chunking_gives_back_what_was_sent(sent: list[Item], at: list[int]) -> None:
    stream = on_the_wire(sent)
    expected = Outcome(items=sent)
    assert read_all(GENEROUS.parser(), [stream]) == expected
    assert read_all(GENEROUS.parser(), cut(stream, (place % (len(stream) + 1) for place in at))) == expected


@given(
    sent=st.lists(st.one_of(st.lists(st.binary(max_size=300), min_size=1, max_size=3), commands), max_size=4)
)
def test_single_bytes_give_back_what_was_sent(sent: list[Item]) -> None:
    assert read_all(GENEROUS.parser(), bytewise(on_the_wire(sent))) == Outcome(items=sent)


@given(stream=st.one_of(broken_streams, st.binary(max_size=200)), at=places)
def test_any_bytes_mean_the_same_however_they_are_cut(stream: bytes, at: list[int]) -> None:
    """Messages and commands in order, then perhaps one violation: as a slow reader has it."""
    expected = read_slowly(stream, BOUNDS)
    assert read_all(BOUNDS.parser(), [stream]) == expected
    assert read_all(BOUNDS.parser(), bytewise(stream)) == expected
    assert read_all(BOUNDS.parser(), cut(stream, (place % (len(stream) + 1) for place in at))) == expected


@given(stream=broken_streams, after=st.binary(max_size=100))
def test_nothing_is_read_after_a_violation(stream: bytes, after: bytes) -> None:
    parser = BOUNDS.parser()
    if read_all(parser, [stream]).violation:
        violation = parser.violation
        assert parser.feed(after) == []
        assert parser.resume() == []
        assert parser.violation == violation


@given(sent=items, at=places)
def test_the_count_is_that_of_the_messages(sent: list[Item], at: list[int]) -> None:
    parser = GENEROUS.parser()
    read_all(parser, cut(on_the_wire(sent), at))
    assert parser.count == sum(isinstance(item, list) for item in sent)


@given(sent=items)
def test_until_the_handshake_is_over_a_message_is_a_violation(sent: list[Item]) -> None:
    parser = GENEROUS.parser()
    parser.commands_only = True
    outcome = read_all(parser, [on_the_wire(sent)])
    first = next((at for at, item in enumerate(sent) if isinstance(item, list)), None)
    assert outcome.items == sent[:first]
    assert outcome.violation == ("" if first is None else "protocol-violation")
