"""Calls, replies, headers and error replies: golden bytes, round trips, and what must be refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument, BadFrame
from hansa.limits import CALL_HEADER_BYTES_MAX, PARTS_MAX
from hansa.wire.business import (
    ERROR_MSG_ID,
    CallHeader,
    ErrorReply,
    TraceContext,
    decode_call,
    decode_error,
    decode_header,
    encode_call,
    encode_error,
    encode_header,
)
from tests.support.hostile_frames import (
    arbitrary_frames,
    assert_refused_for_nothing,
    damaged,
    value_or_bad_frame,
)

TRACE_ID = "000102030405060708090a0b0c0d0e0f"
SPAN_ID = "1011121314151617"
TRACE = TraceContext(bytes.fromhex(TRACE_ID), bytes.fromhex(SPAN_ID), 1)

GOLDEN_CALLS: list[tuple[tuple[int, int, bytes, list[bytes]], list[str]]] = [
    ((0x1234, 1, b"", [b"100"]), ["3412000000000000", "0100", "313030"]),
    ((0x0102030405060708, 0x0A0B, b"", [b"", b"x"]), ["0807060504030201", "0b0a", "", "78"]),
    ((2**64 - 1, 0xFFFE, b"", []), ["ffffffffffffffff", "feff"]),
    ((1, 2, bytes.fromhex("0188130000"), [b"x"]), ["0100000000000000", "02000188130000", "78"]),
]

GOLDEN_HEADERS: list[tuple[CallHeader, str]] = [
    (CallHeader(), ""),
    (CallHeader(remaining_ms=5000), "01" + "88130000"),
    (CallHeader(remaining_ms=0), "01" + "00000000"),
    (CallHeader(trace=TRACE), "02" + TRACE_ID + SPAN_ID + "01"),
    (CallHeader(remaining_ms=2**32 - 1, trace=TRACE), "03" + "ffffffff" + TRACE_ID + SPAN_ID + "01"),
]


def frames_of(*hexes: str) -> list[bytes]:
    return [bytes.fromhex(text) for text in hexes]


@pytest.mark.parametrize(("call", "golden"), GOLDEN_CALLS)
def test_calls_have_their_golden_bytes(call: tuple[int, int, bytes, list[bytes]], golden: list[str]) -> None:
    request_id, msg_id, header, parts = call
    assert [frame.hex() for frame in encode_call(request_id, msg_id, parts, header)] == golden
    assert decode_call(frames_of(*golden)) == call


@pytest.mark.parametrize(("header", "golden"), GOLDEN_HEADERS)
def test_headers_have_their_golden_bytes(header: CallHeader, golden: str) -> None:
    assert encode_header(header).hex() == golden
    assert decode_header(bytes.fromhex(golden)) == header


def test_an_error_reply_has_its_golden_bytes() -> None:
    golden = ["0700000000000000", "ffff", "706565722d61776179", "676f6e65"]
    assert [frame.hex() for frame in encode_error(7, ErrorReply("peer-away", "gone"))] == golden
    request_id, msg_id, header, payload = decode_call(frames_of(*golden))
    assert (request_id, msg_id, header) == (7, ERROR_MSG_ID, b"")
    assert decode_error(payload) == ErrorReply("peer-away", "gone")


def test_a_peer_that_reads_only_the_msg_id_sees_the_same_with_and_without_a_header() -> None:
    plain = encode_call(1, 0x0A0B, [b"x"])
    with_header = encode_call(1, 0x0A0B, [b"x"], encode_header(CallHeader(remaining_ms=5)))
    assert with_header[1][:2] == plain[1]
    assert (with_header[0], with_header[2:]) == (plain[0], plain[2:])


def test_unknown_header_bits_and_what_follows_them_are_ignored() -> None:
    assert decode_header(bytes.fromhex("00")) == CallHeader()
    assert decode_header(bytes.fromhex("fc" + "aabbcc")) == CallHeader()
    assert decode_header(bytes.fromhex("81" + "88130000" + "aabbcc")) == CallHeader(remaining_ms=5000)
    every_bit = "ff" + "88130000" + TRACE_ID + SPAN_ID + "01" + "aabbcc"
    assert decode_header(bytes.fromhex(every_bit)) == CallHeader(remaining_ms=5000, trace=TRACE)


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize(
    "header",
    ["01", "01881300", "02", "02" + TRACE_ID + SPAN_ID, "03" + "88130000", "03" + TRACE_ID + SPAN_ID + "01"],
)
def test_a_header_that_ends_early_is_refused(header: str) -> None:
    with pytest.raises(BadFrame):
        decode_header(bytes.fromhex(header))


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize(
    "hexes",
    [
        [],
        [""],
        ["0100000000000000"],
        ["", "0100"],
        ["01000000000000", "0100"],
        ["010000000000000000", "0100"],
        ["0100000000000000", ""],
        ["0100000000000000", "01"],
        ["0100000000000000", "0100" + "00" * (CALL_HEADER_BYTES_MAX + 1)],
    ],
)
def test_what_is_no_call_is_refused(hexes: list[str]) -> None:
    with pytest.raises(BadFrame):
        decode_call(frames_of(*hexes))


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize(
    "hexes",
    [
        [],
        ["61"],
        ["", ""],
        ["c3a9", ""],
        ["6120", ""],
        ["0a", ""],
        ["61" * 65, ""],
        ["61", "80"],
        ["61", "61" * 1025],
    ],
)
def test_what_is_no_error_reply_is_refused(hexes: list[str]) -> None:
    with pytest.raises(BadFrame):
        decode_error(frames_of(*hexes))


def test_frames_after_an_errors_text_are_ignored() -> None:
    assert decode_error([b"code", b"text", b"from", b"the future"]) == ErrorReply("code", "text")


@pytest.mark.spec("SEC-05")
def test_too_many_parts_and_too_long_headers_cost_nothing() -> None:
    assert_refused_for_nothing(decode_call, [bytes(8), bytes(2), *[b""] * (PARTS_MAX - 1)])
    assert_refused_for_nothing(decode_call, [bytes(8), bytes(10_000_000)])
    assert_refused_for_nothing(decode_call, [bytes(10_000_000), bytes(2)])
    assert_refused_for_nothing(decode_error, [bytes(10_000_000), b""])
    assert_refused_for_nothing(decode_error, [b"a", bytes(10_000_000)])


def test_the_longest_calls_come_back() -> None:
    header = bytes(CALL_HEADER_BYTES_MAX)
    parts = [b""] * (PARTS_MAX - 2)
    assert decode_call(encode_call(1, 2, parts, header)) == (1, 2, header, parts)


@pytest.mark.parametrize(("request_id", "msg_id"), [(-1, 0), (2**64, 0), (0, -1), (0, 2**16)])
def test_numbers_that_do_not_fit_are_not_sent(request_id: int, msg_id: int) -> None:
    with pytest.raises(BadArgument):
        encode_call(request_id, msg_id, [b"x"])


def test_calls_over_the_bounds_are_not_sent() -> None:
    with pytest.raises(BadArgument):
        encode_call(1, 2, [b""] * (PARTS_MAX - 1))
    with pytest.raises(BadArgument):
        encode_call(1, 2, [], bytes(CALL_HEADER_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "header",
    [
        CallHeader(remaining_ms=-1),
        CallHeader(remaining_ms=2**32),
        CallHeader(trace=TraceContext(bytes(15), bytes(8), 0)),
        CallHeader(trace=TraceContext(bytes(16), bytes(9), 0)),
        CallHeader(trace=TraceContext(bytes(16), bytes(8), 256)),
        CallHeader(trace=TraceContext(bytes(16), bytes(8), -1)),
    ],
)
def test_a_header_that_does_not_fit_is_not_sent(header: CallHeader) -> None:
    with pytest.raises(BadArgument):
        encode_header(header)


@pytest.mark.parametrize("code", ["", "two words", "é", "a" * 65, "line\n"])
def test_an_error_code_that_is_no_plain_word_is_not_sent(code: str) -> None:
    with pytest.raises(BadArgument):
        encode_error(1, ErrorReply(code, "text"))


def test_a_long_or_broken_error_text_is_sent_as_well_as_it_can_be() -> None:
    assert decode_error(encode_error(1, ErrorReply("code", "é" * 1000))[2:]) == ErrorReply("code", "é" * 512)
    assert decode_error(encode_error(1, ErrorReply("code", "a\ud800b"))[2:]) == ErrorReply("code", "a?b")


def test_the_payload_is_passed_on_and_the_callers_list_is_not_kept() -> None:
    part = bytes(100_000)
    parts = [part]
    frames = encode_call(1, 2, parts)
    assert frames[2] is part
    frames.append(b"more")
    assert parts == [part]
    _, _, _, payload = decode_call(frames)
    assert payload[0] is part


request_ids = st.integers(0, 2**64 - 1)
msg_ids = st.integers(0, 2**16 - 1)
part_lists = st.lists(st.binary(max_size=100), max_size=8)
traces = st.builds(
    TraceContext, st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.integers(0, 255)
)
headers = st.builds(CallHeader, st.none() | st.integers(0, 2**32 - 1), st.none() | traces)
calls = st.builds(
    lambda request_id, msg_id, parts, header: encode_call(request_id, msg_id, parts, encode_header(header)),
    request_ids,
    msg_ids,
    part_lists,
    headers,
)
codes = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=64)
replies = st.builds(ErrorReply, codes, st.text(max_size=256))


@given(request_ids, msg_ids, part_lists, st.binary(max_size=40))
def test_every_call_comes_back(request_id: int, msg_id: int, parts: list[bytes], header: bytes) -> None:
    assert decode_call(encode_call(request_id, msg_id, parts, header)) == (request_id, msg_id, header, parts)


@given(headers)
def test_every_header_comes_back(header: CallHeader) -> None:
    assert decode_header(encode_header(header)) == header


@given(request_ids, replies)
def test_every_error_reply_comes_back(request_id: int, reply: ErrorReply) -> None:
    decoded_id, msg_id, _, payload = decode_call(encode_error(request_id, reply))
    assert (decoded_id, msg_id, decode_error(payload)) == (request_id, ERROR_MSG_ID, reply)


def decode_everything(frames: list[bytes]) -> object:
    request_id, msg_id, header, payload = decode_call(frames)
    if msg_id == ERROR_MSG_ID:
        return request_id, decode_header(header), decode_error(payload)
    return request_id, msg_id, decode_header(header), payload


error_frames = st.builds(encode_error, request_ids, replies)


@pytest.mark.spec("SEC-05")
@given(arbitrary_frames | damaged(calls) | damaged(error_frames))
def test_any_frames_are_a_call_or_bad_frame(frames: list[bytes]) -> None:
    value_or_bad_frame(decode_everything, frames)


@given(calls | error_frames)
def test_a_call_cut_anywhere_is_a_value_or_bad_frame(frames: list[bytes]) -> None:
    for end in range(len(frames)):
        value_or_bad_frame(decode_everything, frames[:end])


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_bad_frame(header: bytes) -> None:
    value_or_bad_frame(lambda frames: decode_header(frames[0]), [header])


@given(arbitrary_frames)
def test_any_payload_is_an_error_reply_or_bad_frame(payload: list[bytes]) -> None:
    value_or_bad_frame(decode_error, payload)
