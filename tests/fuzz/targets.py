"""What is fuzzed, from which seeds, and what must hold for every input.

A target takes any bytes and raises when something is wrong: an unforeseen exception, or a different meaning
of the same bytes when they come whole and when they come one by one. The first byte of an input chooses
among the variants of a target, so that one corpus serves them all.
"""

from collections.abc import Callable
from dataclasses import dataclass

from hansa.errors import BadFrame
from hansa.transport.environment import SocketOptions
from hansa.transport.link import Effect, Established, Link, LinkEnded, LinkState, WriteBytes
from hansa.wire import business, publication, registry, topics
from tests.fuzz.seeds import (
    business_seeds,
    connection_seeds,
    frame_seeds,
    publication_seeds,
    registry_seeds,
    spot_seeds,
    unpack,
)
from tests.fuzz.socket_target import check_socket
from tests.support import zmtp_bytes as zmtp
from tests.support.parsing import Bounds, bytewise, cut, read_all, read_slowly

INPUT_BYTES_MAX = 512

BOUNDS = (
    Bounds(),
    Bounds(frame_bytes_max=255, message_bytes_max=300, parts_max=3, command_bytes_max=20),
    # Frames above 8 KiB are collected in pieces; inputs are shorter, so these are always cut.
    Bounds(frame_bytes_max=1 << 30, message_bytes_max=1 << 31, parts_max=1000, command_bytes_max=8192),
)
ROOMY = Bounds(frame_bytes_max=1_000, message_bytes_max=100_000, parts_max=1_000)
SOCKET_TYPES = ("ROUTER", "DEALER", "PUB", "SUB")
OPTIONS = SocketOptions(frame_bytes_max=1_000, message_bytes_max=2_000, parts_max=8, heartbeat_interval=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something to fuzz. `share` is its part of all runs."""

    name: str
    share: float
    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def check_parser(data: bytes) -> None:
    """The parser means what the specification means, however the stream is cut."""
    if not data:
        return
    bounds, stream = BOUNDS[data[0] % len(BOUNDS)], data[1:]
    expected = read_slowly(stream, bounds)
    assert read_all(bounds.parser(), [stream]) == expected, "whole"
    assert read_all(bounds.parser(), bytewise(stream)) == expected, "bytewise"
    places = range(data[0] // 16, len(stream), 1 + data[0] // 4)
    assert read_all(bounds.parser(), cut(stream, places)) == expected, "in pieces"


def check_link(data: bytes) -> None:
    """A connection goes through the same states whole and bytewise, ends once, and then is silent."""
    if not data:
        return
    stream = data[1:]
    whole = trace(data[0], [stream])
    assert whole == trace(data[0], list(bytewise(stream))), "whole and bytewise differ"
    ends = [at for at, step in enumerate(whole) if isinstance(step, LinkEnded)]
    assert len(ends) <= 1, "ended twice"
    assert not ends or ends[0] == len(whole) - 1, "something happened after the end"


def trace(choice: int, chunks: list[bytes]) -> list[list[bytes] | Effect]:
    """Messages and effects in order, as a driver sees them; at the end time passes until it gives up."""
    socket_type, accepting = SOCKET_TYPES[choice % 4], bool(choice & 4)
    link = Link(socket_type=socket_type, identity=b"fuzz", accepting=accepting, options=OPTIONS, now=0.0)
    steps: list[list[bytes] | Effect] = []

    def perform() -> None:
        while link.effects:
            step = link.effects.pop(0)
            steps.append(step)
            if isinstance(step, Established):
                link.welcome()

    for chunk in chunks:
        if link.is_closed:
            break
        steps.extend(link.receive(chunk))
        perform()
        while link.parser.stopped and not link.is_closed:
            later = link.proceed(0.0)
            perform()  # what a command means comes before the messages behind it
            steps.extend(later)
    for now in (0.5, 1.5, 10_000.0):
        assert (link.deadline() is None) == (link.state is LinkState.CLOSED) or link.state is LinkState.READY
        link.tick(now)
    perform()
    assert all(len(step.data) < 10_000 for step in steps if isinstance(step, WriteBytes)), (
        "an answer without bound"
    )
    return steps


def frames_in(data: bytes) -> list[bytes]:
    """The frames that an input packs, after a way through the parser: the same whole and bytewise."""
    frames = unpack(data)
    if frames:
        stream = zmtp.message(*frames)
        assert read_all(ROOMY.parser(), [stream]).items == [frames], "whole"
        assert read_all(ROOMY.parser(), bytewise(stream)).items == [frames], "bytewise"
    return frames


def check_registry(data: bytes) -> None:
    """Frames are a message or a BadFrame; a message survives being written again."""
    try:
        message = registry.decode(frames_in(data))
    except BadFrame:
        return
    assert registry.decode(registry.encode(message)) == message


def check_spot(data: bytes) -> None:
    """The same for the topic mesh."""
    try:
        command = topics.decode(frames_in(data))
    except BadFrame:
        return
    assert topics.decode(topics.encode(command)) == command


def check_publication(data: bytes) -> None:
    """The same for what a PUB/SUB mesh publishes; frames behind the known ones are not kept."""
    frames = frames_in(data)
    try:
        topic, payload, origin, sequence = publication.decode_publication(frames)
    except BadFrame:
        return
    again = publication.encode_publication(topic, payload, origin, sequence)
    assert again == frames[: len(again)]


def check_business(data: bytes) -> None:
    """The same for calls, their headers and their errors."""
    frames = frames_in(data)
    try:
        request_id, msg_id, header, payload = business.decode_call(frames)
    except BadFrame:
        return
    assert business.encode_call(request_id, msg_id, payload, header) == frames
    try:
        told = business.decode_header(header)
    except BadFrame:
        pass
    else:
        assert business.decode_header(business.encode_header(told)) == told
    try:
        failure = business.decode_error(payload)
    except BadFrame:
        return
    again = business.decode_call(business.encode_error(request_id, failure))
    assert business.decode_error(again[3]) == failure


TARGETS = {
    target.name: target
    for target in (
        Target(name="parser", share=0.3, check=check_parser, seeds=frame_seeds),
        Target(name="connection", share=0.3, check=check_link, seeds=connection_seeds),
        Target(name="socket", share=0.05, check=check_socket, seeds=connection_seeds),
        Target(name="registry", share=0.1, check=check_registry, seeds=registry_seeds),
        Target(name="business", share=0.1, check=check_business, seeds=business_seeds),
        Target(name="topics", share=0.1, check=check_spot, seeds=spot_seeds),
        Target(name="publication", share=0.05, check=check_publication, seeds=publication_seeds),
    )
}
