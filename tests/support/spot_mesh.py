"""One node's mesh machine under test: its peers are played by the test, and every effect is looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hansa.ids import routing_id
from hansa.topics.effects import Broadcast, Effect, Send, Tell
from hansa.topics.events import SpotEvent
from hansa.topics.fanout import Exchange, Outlet
from hansa.topics.inbox import Inbox, Reader, WhenSlow
from hansa.topics.mesh import Mesh
from hansa.topics.wants import Want
from hansa.transport.outbox import Outbox
from hansa.wire.frames import FrameParser
from hansa.wire.topics import (
    Mark,
    Message,
    Query,
    QueryResp,
    SpotCommand,
    TopicAnnounce,
    TopicRemove,
    decode,
    encode,
)

# Ours is in the middle: A and B are lower, X and Y higher.
NODE = routing_id(50)
A, B = routing_id(10), routing_id(20)
X, Y = routing_id(80), routing_id(90)

QUERY_INTERVAL_S = 30.0
EPOCH = 1_000
BIG = 1 << 30


class Nobody:
    """Whoever reads where no test waits."""

    def wake(self) -> None: ...


NOBODY: Final = Nobody()


@dataclass(eq=False)
class FakeSubscriber:
    """A subscription of a spot, as the machine sees it."""

    text: str
    spot: object
    inbox: Inbox
    prefix: bytes
    is_pattern: bool
    matched: dict[bytes, Want] = field(default_factory=dict)

    @property
    def received(self) -> list[tuple[str, bytes, int]]:
        """Everything since this was asked last."""
        return [(one.topic, one.payload, one.sequence) for one in self.inbox.take_all()]


class MeshBench:
    """A mesh machine, and words for what happens to it. What it has sent goes through the codec."""

    def __init__(self, *, outbox_count_max: int = BIG) -> None:
        self.exchange = Exchange(BIG)
        self.mesh = Mesh(NODE, self.exchange, query_interval_s=QUERY_INTERVAL_S)
        self.now = 100.0
        self.wall_ms = 1_700_000_000_000
        self.boxes: dict[bytes, Outbox] = {}
        self._outbox_count_max = outbox_count_max

    # -- peers

    def connect(self, peer: bytes) -> list[Effect]:
        """A connection, and nothing said yet."""
        box = Outbox(bytes_max=BIG, count_max=self._outbox_count_max, burst_count=BIG)
        box.stalled = False
        self.boxes[peer] = box
        return self.mesh.peer_connected(peer, box, now=self.now)

    def join(self, peer: bytes, *topics: str) -> list[Effect]:
        """A hansa node connects, asks and answers; the effects of its answer."""
        self.connect(peer)
        self.hear(peer, Query(is_extended=True))
        return self.hear(peer, QueryResp(topics=topics, is_extended=True))

    def join_raw(self, peer: bytes, *topics: str) -> list[Effect]:
        """The same for a node that knows no extension."""
        self.connect(peer)
        self.hear(peer, Query())
        return self.hear(peer, QueryResp(topics=topics))

    def leave(self, peer: bytes, *, in_doubt_count: int = 0) -> list[Effect]:
        return self.mesh.peer_disconnected(peer, "reset", in_doubt_count=in_doubt_count)

    def hear(self, peer: bytes, command: SpotCommand) -> list[Effect]:
        """As the driver does it: the hot path first, the machine for what it leaves."""
        frames = encode(command)
        member = self.mesh.peers.get(peer)
        if member is not None and self.mesh.receive(member, [frames], 0):
            return []
        return self.mesh.hear(peer, decode(frames), now=self.now)

    def confirm(
        self, peer: bytes, topic: str, sequence: int = 0, *, epoch: int = EPOCH, retain: bool = False
    ) -> list[Effect]:
        mark = Mark(epoch=epoch, sequence=sequence, retain=retain, confirm=True)
        return self.hear(peer, TopicAnnounce(topic=topic, mark=mark))

    def announce(self, peer: bytes, topic: str, *, epoch: int = EPOCH) -> list[Effect]:
        return self.hear(peer, TopicAnnounce(topic=topic, mark=Mark(epoch=epoch, sequence=0)))

    def remove(self, peer: bytes, topic: str) -> list[Effect]:
        return self.hear(peer, TopicRemove(topic=topic))

    def message(self, peer: bytes, topic: str, *sequences: int) -> list[Effect]:
        """Messages whose payload is their number."""
        effects: list[Effect] = []
        for sequence in sequences:
            payload = b"%d" % sequence
            effects += self.hear(peer, Message(topic=topic, payload=payload, sequence=sequence))
        return effects

    # -- the program

    def subscriber(self, text: str, spot: object = None, *, count_max: int = 1_000) -> FakeSubscriber:
        """A subscription that the machine does not know yet; without a spot it has its own."""
        is_pattern = text.endswith("*")
        inbox = Inbox(Reader(NOBODY), count_max, BIG, WhenSlow.DROP_OLDEST)
        prefix = text.removesuffix("*").encode()
        return FakeSubscriber(text, object() if spot is None else spot, inbox, prefix, is_pattern)

    def subscribe(self, text: str, spot: object = None) -> FakeSubscriber:
        one = self.subscriber(text, spot)
        self.mesh.subscribe(one)
        return one

    def create(
        self, topic: str, spot: object = None, *, retain: bool = False, claim: int = 0
    ) -> list[Effect]:
        return self.mesh.create(topic.encode(), spot, retain=retain, wall_ms=self.wall_ms, claim=claim)

    def destroy(self, topic: str, spot: object = None) -> list[Effect]:
        return self.mesh.destroy(topic.encode(), spot)

    def publish(self, topic: str, *payloads: bytes) -> None:
        for payload in payloads:
            self.outlet(topic).publish(payload, self.exchange)

    def outlet(self, topic: str) -> Outlet:
        return self.exchange.outlets[topic.encode()]

    def tick(self, after_s: float) -> list[Effect]:
        self.now += after_s
        return self.mesh.tick(now=self.now)

    def posted(self, peer: bytes) -> list[SpotCommand]:
        """What the fan-out put into a peer's outbox since this was asked last."""
        parser = FrameParser(
            frame_bytes_max=BIG, message_bytes_max=BIG, parts_max=1_000, command_bytes_max=1_000
        )
        parser.commands_only = False
        found: list[SpotCommand] = []
        while (batch := self.boxes[peer].take()) is not None:
            found += [decode(frames) for frames in parser.feed(b"".join(batch.buffers()))]
        return found


def sent(effects: list[Effect]) -> list[tuple[bytes, SpotCommand]]:
    """What goes to single peers."""
    return [(effect.peer, effect.command) for effect in effects if isinstance(effect, Send)]


def broadcast(effects: list[Effect]) -> list[SpotCommand]:
    """What goes to all."""
    return [effect.command for effect in effects if isinstance(effect, Broadcast)]


def told(effects: list[Effect]) -> list[SpotEvent]:
    """What is told on this node."""
    return [effect.event for effect in effects if isinstance(effect, Tell)]


def told_to(effects: list[Effect], subscriber: FakeSubscriber) -> list[SpotEvent]:
    """What is told to one subscription."""
    return [effect.event for effect in effects if isinstance(effect, Tell) and effect.to is subscriber]
