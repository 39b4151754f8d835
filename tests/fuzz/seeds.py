"""Valid input to start from, made here rather than stored: a changed format leaves no stale seeds behind."""

from dataclasses import replace

from hansa.wire import business, listing, publication, registry, topics
from tests.support import zmtp_bytes as zmtp

# Words that are hard to guess byte by byte.
WORDS = [
    *(b"READY", b"ERROR", b"SUBSCRIBE", b"CANCEL", b"PING", b"PONG", b"NULL", b"Socket-Type", b"Identity"),
    *(b"ROUTER", b"DEALER", b"PUB", b"SUB", b"REQ", b"REP", b"XPUB", b"XSUB"),
    *(b"HTK1", b"HCL1", b"HTS1", b"HST1", b"HSQ1", b"HSR1", b"HSP1", b"HSM1", b"HSX1"),
    *(b"HSC1", b"HSF1", b"HSV1", b"HSW1"),
    *(zmtp.greeting(), zmtp.SIGNATURE, b"\x02" + bytes(7) + b"\xff", b"\x03" + b"\xff" * 8),
]


def pack(frames: list[bytes]) -> bytes:
    """Frames as an input of the codecs: a length and its bytes, by turns. Any bytes unpack to some frames."""
    return b"".join(bytes((len(frame),)) + frame for frame in frames)


def unpack(data: bytes) -> list[bytes]:
    """The frames of an input; the last may be shorter than it says."""
    frames: list[bytes] = []
    at = 0
    while at < len(data):
        frames.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return frames


def frame_seeds() -> list[bytes]:
    """Streams of messages and commands, each behind the byte that chooses the bounds."""
    streams = [
        zmtp.message(b"one"),
        zmtp.message(b"", b"two", b"x" * 200),
        zmtp.message(b"y" * 300) + zmtp.command(b"PING", b"\0\0ctx") + zmtp.message(b"after"),
        zmtp.frame(b"a", more=True) + zmtp.command(b"PONG") + zmtp.frame(b"b", long=True),
        zmtp.message(*[b""] * 10),
        zmtp.frame_header(9_000) + b"z" * 100,
        zmtp.frame_header(2**64 - 1),
        zmtp.frame_header(50, more=True) + b"short",
    ]
    return [bytes((choice,)) + stream for choice in (0, 65, 130) for stream in streams]


def connection_seeds() -> list[bytes]:
    """Whole conversations with each type of socket."""
    hello = zmtp.greeting()
    conversations = {
        0: [b"DEALER", b"ROUTER", b"REQ", b"PUB"],
        1: [b"ROUTER", b"DEALER", b"REP", b"SUB"],
        2: [b"SUB", b"XSUB"],
        3: [b"PUB", b"XPUB"],
    }
    traffic = (
        zmtp.message(b"a", b"b") + zmtp.ping(ttl_ds=3, context=b"c") + zmtp.pong(bytes(8)) + zmtp.message(b"")
    )
    subscribing = (
        zmtp.command(b"SUBSCRIBE", b"topic") + zmtp.command(b"CANCEL", b"topic") + zmtp.message(b"\x01t")
    )
    found = []
    for choice, peers in conversations.items():
        for peer in peers:
            start = bytes((choice,)) + hello + zmtp.ready(peer, b"id", X_More=b"1")
            found += [start + traffic, start + subscribing]
    found += [bytes((0,)) + zmtp.greeting(minor=0) + zmtp.ready(b"DEALER") + zmtp.message(b"old")]
    found += [bytes((0,)) + hello + zmtp.error(b"no"), bytes((0,)) + hello + zmtp.command(b"READY")]
    found += [bytes((0,)) + zmtp.GREETING_2_0, bytes((0,)) + zmtp.GREETING_1_0]
    return found


def registry_seeds() -> list[bytes]:
    """Every message of the registry, once small and once full."""
    entry = listing.ProviderEntry(endpoint="tcp://h:1", routing_id=b"\x01abcd", weight=3)
    services = {"pay": (entry, entry), "ship": (), "käse": (entry,)}
    messages: list[registry.RegistryMessage] = [
        registry.Register(service="pay", endpoint="tcp://h:1", weight=2),
        registry.Register(service="pay", endpoint="tcp://h:1", token=3, stamp=4),
        registry.RegisterAck(status=registry.AckStatus.OK, endpoint="tcp://h:1"),
        registry.RegisterAck(status=registry.AckStatus.OTHER, error="not registered"),
        registry.RegisterAck(status=registry.AckStatus.OK, heartbeat_timeout_ms=2_000, token=3),
        registry.Unregister(service="pay", endpoint="tcp://h:1"),
        registry.Heartbeat(service="pay", endpoint="tcp://h:1"),
        registry.UpdateWeight(service="pay", endpoint="tcp://h:1", weight=7),
        listing.ServiceList(registry_id=1, list_seq=2, services=services),
        listing.RegistrySync(registry_id=1, list_seq=2, services={}),
        listing.RegistrySync(
            registry_id=1,
            list_seq=2,
            services={"pay": (listing.ProviderEntry(endpoint="tcp://h:1", routing_id=b"r", epoch=9),)},
            tombstones=(listing.Tombstone(service="pay", endpoint="tcp://h:2", epoch=8),),
        ),
        registry.Heartbeat(service="pay", endpoint="tcp://h:1", token=3),
    ]
    return [pack(registry.encode(message)) for message in messages]


def business_seeds() -> list[bytes]:
    """Calls with and without headers, and errors."""
    trace = business.TraceContext(bytes(range(16)), bytes(range(8)), 1)
    headers = [
        business.CallHeader(),
        business.CallHeader(remaining_ms=5_000),
        business.CallHeader(trace=trace),
        business.CallHeader(remaining_ms=0, trace=trace),
    ]
    calls = [
        business.encode_call(7, 1, [b"payload", b""], business.encode_header(header)) for header in headers
    ]
    calls.append(business.encode_call(2**64 - 1, 0, []))
    calls.append(business.encode_error(7, business.ErrorReply("peer-away", "gone")))
    return [pack(frames) for frames in calls]


def spot_seeds() -> list[bytes]:
    """Every command of the topic mesh, bare and with each of its extension frames."""
    counts = topics.TopicCounts(subscribers_count=3, published_count=2**40, dropped_count=1)
    mark = topics.Mark(epoch=2**50, sequence=7, retain=True, confirm=True)
    move = topics.Move(step=topics.MoveStep.MOVED, number=3, node=b"\x01\x00\x00\x00\x09")
    commands: list[topics.SpotCommand] = [
        topics.Publish(topic="zone:12", payload=b"x"),
        topics.Subscribe(topic="zone:12"),
        topics.Unsubscribe(topic="zone:12"),
        topics.Query(),
        topics.QueryResp(topics=("zone:12", "zone:13")),
        topics.TopicAnnounce(topic="zone:12"),
        topics.TopicRemove(topic="zone:12"),
        topics.Message(topic="zone:12", payload=b"x"),
        topics.Message(topic="zone:12", payload=b"", sequence=2**63),
        topics.Query(report_wanted=True, known_count=2, known_digest=2**60, is_extended=True),
        topics.QueryResp(topics=(), is_extended=True, is_unchanged=True),
        topics.QueryResp(topics=("zone:12", "zone:13"), is_extended=True, report=(counts, counts)),
        topics.TopicAnnounce(topic="zone:12", mark=mark),
        topics.TopicRemove(topic="zone:12", mark=mark),
        topics.TopicRemove(topic="zone:12", refused_count=1),
        topics.Query(is_extended=True, taker="01:0000000a"),
        topics.QueryResp(topics=("zone:12",), is_extended=True, claims=(2**40,)),
        topics.TopicAnnounce(topic="zone:12", mark=replace(mark, founder=b"\x01a"), claim=2**40, move=move),
        topics.TopicRemove(topic="zone:12", move=move),
    ]
    return [pack(topics.encode(command)) for command in commands]


def publication_seeds() -> list[bytes]:
    """What a PUB/SUB mesh publishes: plain, counted, and with a frame of somebody else's."""
    origin = publication.encode_origin(b"\x01\x00\x00\x00\x09", 7)
    counted = publication.encode_publication(b"zone:12", b"x", origin, 3)
    return [
        pack(frames) for frames in ([b"zone:12", b"x"], counted, [b"zone:12", b"", b"other"], [*counted, b""])
    ]
