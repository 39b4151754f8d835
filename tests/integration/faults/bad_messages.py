"""What hostile peers send to a registry, a provider and a node, and under what each of it must be counted.

The expectation comes from the pure decoders, one message at a time: what the processes count after a million
of them, over real sockets, has to be the same.
"""

import random
import struct
from collections.abc import Iterator
from itertools import islice

from hansa.errors import BadFrame
from hansa.limits import FRAME_BYTES_MAX, PARTS_MAX
from hansa.wire import listing, topics
from hansa.wire.business import ERROR_MSG_ID, decode_call, decode_header, encode_call
from hansa.wire.registry import Heartbeat, Register, RegisterAck, Unregister, UpdateWeight, decode, encode
from tests.fuzz.mutation import mutations
from tests.fuzz.seeds import business_seeds, registry_seeds, spot_seeds, unpack
from tests.support import zmtp_bytes as zmtp

MESSAGE_BYTES_MAX = 2_000
# One in so many is one of those that mutation does not find.
SPECIAL_EVERY = 10

Frames = list[bytes]


def _u16(number: int) -> bytes:
    return struct.pack("<H", number)


def _register(service: bytes, endpoint: bytes, weight: bytes = b"\x01\x00\x00\x00") -> Frames:
    return [_u16(1), service, endpoint, weight]


REGISTRY_SPECIALS: dict[str, Frames] = {
    "nothing at all": [b""],
    "half a number": [b"\x01"],
    "an unknown number": [_u16(0x0099), b"pay", b"tcp://h:1"],
    "a truncated REGISTER": [_u16(1), b"pay"],
    "a truncated UPDATE_WEIGHT": [_u16(7), b"pay", b"tcp://h:1"],
    "a name that is not UTF-8": _register(b"\xff\xfe\xfd", b"tcp://h:1"),
    "an endpoint that is not UTF-8": _register(b"pay", b"tcp://\xc3\x28:1"),
    "no name": _register(b"", b"tcp://h:1"),
    "a name of 256 bytes": _register(b"n" * 256, b"tcp://h:1"),
    "a name of 100 kB": _register(b"n" * 100_000, b"tcp://h:1"),
    "an endpoint of 300 bytes": _register(b"pay", b"tcp://" + b"h" * 290 + b":1"),
    "a weight of 3 bytes": _register(b"pay", b"tcp://h:1", b"\x01\x00\x00"),
    "an answer": encode(RegisterAck(status=0)),  # type: ignore[arg-type]
    "an answer of no known status": [_u16(2), b"\x77", b"", b""],
    "a list": encode(listing.ServiceList(registry_id=1, list_seq=2, services={})),
    "a list of four thousand million services": [_u16(6), bytes(4), bytes(8), b"\xff" * 4],
}

PROVIDER_SPECIALS: dict[str, Frames] = {
    "nothing at all": [b""],
    "a request id alone": [bytes(8)],
    "half a request id": [bytes(4), _u16(0), b"x"],
    "half a msgId": [bytes(8), b"\x00", b"x"],
    "an unknown msgId": encode_call(1, 0x0BAD, [b"x"]),
    "a failed reply": encode_call(1, ERROR_MSG_ID, [b"busy", b""]),
    "a header that ends in its time": [bytes(8), _u16(0) + b"\x01\x00", b"x"],
    "a header that ends in its trace": [bytes(8), _u16(0) + b"\x02" + bytes(20), b"x"],
    "a header of 2 kB": [bytes(8), _u16(0) + bytes(2_000), b"x"],
    "a thousand parts and an unknown msgId": encode_call(1, 0x0BAD, [b""] * 1_000),
}

_MARK = b"HSM1" + bytes(17)

NODE_SPECIALS: dict[str, Frames] = {
    "nothing at all": [b""],
    "command zero": [b"\x00", b"zone"],
    "an unknown command": [b"\x09", b"zone"],
    "a command of two bytes": [b"\x01\x00", b"zone", b"x"],
    "a PUBLISH without a payload": [b"\x01", b"zone"],
    "a SUBSCRIBE without a topic": [b"\x02"],
    "an UNSUBSCRIBE without a topic": [b"\x03"],
    "a QUERY_RESP without a count": [b"\x05"],
    "a TOPIC_ANNOUNCE without a topic": [b"\x06"],
    "a TOPIC_REMOVE without a topic": [b"\x07"],
    "a MESSAGE without a payload": [b"\x08", b"zone"],
    "an empty topic": [b"\x02", b""],
    "a topic that is not UTF-8": [b"\x02", b"\xff\xfe\xfd"],
    "a topic of half a character": [b"\x06", b"zone \xc3"],
    "a topic with control characters": [b"\x06", b"\x1b[31mred"],
    "a topic of 256 bytes": [b"\x06", b"t" * 256],
    "a topic of 100 kB": [b"\x01", b"t" * 100_000, b"x"],
    "a count of three bytes": [b"\x05", b"\x01\x00\x00", b"zone"],
    "a count of more topics than there are": [b"\x05", struct.pack("<I", 2), b"zone"],
    "a count of four thousand million": [b"\x05", b"\xff" * 4, b"zone"],
    "an answer with a topic that is none": [b"\x05", struct.pack("<I", 2), b"zone", b"\xff"],
    "a sequence of seven bytes": [b"\x08", b"zone", b"x", bytes(7)],
    "half an extension of QUERY": [b"\x04", b"HSQ1" + bytes(5)],
    "an extension of QUERY and more": [b"\x04", b"HSQ1" + bytes(14)],
    "half an extension of QUERY_RESP": [b"\x05", bytes(4), b"HSR1"],
    "an answer that is unchanged and has topics": [b"\x05", struct.pack("<I", 1), b"zone", b"HSR1\x01"],
    "a report of other topics": [b"\x05", struct.pack("<I", 1), b"zone", b"HSR1\x00", b"HSP1" + bytes(40)],
    "half a mark": [b"\x06", b"zone", _MARK[:-1]],
    "a mark and more": [b"\x07", b"zone", _MARK + b"\x00"],
    "half a refusal": [b"\x07", b"zone", b"HSX1\x00"],
}

# What can be read and concerns nobody here: topics that nobody owns or has asked for, and wrong claims.
NODE_NUISANCES: list[Frames] = [
    [b"\x01", b"nobody:owns:this", b"x"],
    [b"\x02", b"nobody:owns:this"],
    [b"\x03", b"nobody:owns:this"],
    [b"\x07", b"nobody:owns:this", _MARK],
    [b"\x07", b"nobody:owns:this", b"HSX1" + b"\xff" * 4],
    [b"\x08", b"nobody:asked:for:this", b"x", b"\xff" * 8],
    [b"\x06", b"nobody:owns:*", b"XXXX" + bytes(300)],
    [b"\x05", struct.pack("<I", 1_000), *(b"claimed:%d" % number for number in range(1_000))],
]


# What can be read and is wrong all the same: nobody's entries, and endpoints that nobody could dial.
REGISTRY_NUISANCES: list[Frames] = [
    *(encode(Register(service="pay", endpoint=wrong)) for wrong in ("", "here", "tcp://*:1", "tcp://h:0")),
    encode(Heartbeat(service="pay", endpoint="tcp://nobody:1")),
    encode(Unregister(service="pay", endpoint="tcp://nobody:1")),
    encode(UpdateWeight(service="pay", endpoint="tcp://nobody:1", weight=2**32 - 1, token=1)),
]


def registry_messages(seed: int, claimed: tuple[str, str]) -> Iterator[Frames]:
    """`claimed` is a service and an endpoint that belong to another."""
    claim = encode(Register(service=claimed[0], endpoint=claimed[1], weight=1_000))
    return _messages(registry_seeds(), [*REGISTRY_SPECIALS.values(), *REGISTRY_NUISANCES, claim], seed)


def provider_messages(seed: int) -> Iterator[Frames]:
    return _messages(business_seeds(), list(PROVIDER_SPECIALS.values()), seed)


def node_messages(seed: int) -> Iterator[Frames]:
    return _messages(spot_seeds(), [*NODE_SPECIALS.values(), *NODE_NUISANCES], seed)


def _messages(seeds: list[bytes], specials: list[Frames], seed: int) -> Iterator[Frames]:
    """Without end, equal for equal seeds."""
    inputs = mutations(seeds, seed=seed, bytes_max=MESSAGE_BYTES_MAX)
    mutated = (frames for data in inputs if (frames := unpack(data)))
    chance = random.Random(seed)
    while True:
        yield chance.choice(specials)
        yield from islice(mutated, SPECIAL_EVERY - 1)


def registry_verdict(frames: Frames) -> tuple[str, bool]:
    """What a registry counts this as, and whether it is a strike."""
    if frames[0] in (_u16(listing.SERVICE_LIST), _u16(listing.REGISTRY_SYNC)):
        return "bad misplaced", True
    try:
        message = decode(frames)
    except BadFrame as error:
        return f"bad {error.reason}", True
    match message:
        case Heartbeat():
            return "heartbeat", False
        case Register():
            return "register", False
        case Unregister() | UpdateWeight():
            return "change", False
    return "bad misplaced", True


def provider_verdict(frames: Frames) -> tuple[str, bool]:
    """What a provider with a handler for msgId 0 counts this as, and whether it is a strike."""
    try:
        _, msg_id, header, parts = decode_call(frames)
        if header:
            decode_header(header)
    except BadFrame as error:
        return f"bad {error.reason}", True
    if not parts:
        return "bad no-parts", True
    if msg_id == ERROR_MSG_ID:
        return "bad not-a-request", True
    return ("unknown" if msg_id else "call"), False


def node_verdict(frames: Frames) -> tuple[str, bool]:
    """What a node counts this as, if nobody there owns or wants what is named, and whether it is a strike."""
    try:
        command = topics.decode(frames)
    except BadFrame as error:
        return f"bad {error.reason}", True
    match command:
        case topics.Publish():
            return "publish", False
        case topics.Subscribe():
            return "subscribe", False
        case topics.Message():
            return "message", False
    return "other", False


_HELLO = zmtp.greeting() + zmtp.ready(b"DEALER")

# Whole conversations that are no ZMTP, and the reason for which each must end.
GARBAGE: list[tuple[str, bytes]] = [
    ("bad-version", b"GET / HTTP/1.1\r\nHost: registry\r\n\r\n".ljust(64, b"x")),
    ("bad-version", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".ljust(64, b"\x07")),
    ("bad-version", zmtp.greeting(major=2, minor=0)),
    ("bad-version", zmtp.GREETING_1_0.ljust(64, b"\0")),
    ("bad-mechanism", zmtp.greeting(mechanism=b"CURVE")),
    ("bad-socket-type", zmtp.greeting() + zmtp.ready(b"NOTHING")),
    ("protocol-violation", zmtp.greeting() + zmtp.command(b"READY", b"\x0bSocket-Type\xff\xff\xff\xff")),
    ("protocol-violation", zmtp.greeting() + zmtp.message(b"before READY")),
    ("frame-too-large", _HELLO + zmtp.frame_header(FRAME_BYTES_MAX + 1)),
    ("frame-too-large", _HELLO + zmtp.frame_header(2**63 - 1, more=True)),
    ("too-many-parts", _HELLO + zmtp.frame(b"", more=True) * (PARTS_MAX + 1)),
]
