"""A node of the mesh played by hand: a ROUTER that is listed like a node and keeps every message it gets.

The frames are written down here once more, from the specification and from hansa's extension frames, so that
a mistake of the encoder would be seen.
"""

import struct
from typing import Self

from hansa import Registry, SpotNode
from hansa.endpoint import Endpoint
from hansa.ids import routing_id
from hansa.transport import Dealer, Environment, Router, SocketOptions
from tests.support.discovery_cast import ANY, OPTIONS, until
from tests.support.registry_callers import Caller
from tests.support.topics_cast import NODES

PUBLISH, SUBSCRIBE, UNSUBSCRIBE, QUERY = b"\x01", b"\x02", b"\x03", b"\x04"
QUERY_RESP, ANNOUNCE, REMOVE, MESSAGE = b"\x05", b"\x06", b"\x07", b"\x08"

Frames = list[bytes]


def query(*, is_hansa: bool = False) -> Frames:
    return [QUERY, b"HSQ1" + struct.pack("<BIQ", 0, 0, 0)] if is_hansa else [QUERY]


def query_resp(topics: list[str], *, is_hansa: bool = False) -> Frames:
    frames = [QUERY_RESP, struct.pack("<I", len(topics)), *(topic.encode() for topic in topics)]
    return [*frames, b"HSR1\x00"] if is_hansa else frames


def mark(epoch: int, sequence: int, *, retain: bool = False, confirm: bool = False) -> bytes:
    return b"HSM1" + struct.pack("<BQQ", retain | confirm << 1, epoch, sequence)


def message(topic: str, payload: bytes, sequence: int | None = None) -> Frames:
    frames = [MESSAGE, topic.encode(), payload]
    return frames if sequence is None else [*frames, struct.pack("<Q", sequence)]


class WirePeer:
    """Answers QUERY with its `topics` and nothing else. With `is_hansa` its frames carry hansa's extensions.

    Who has the lower id dials, a played node as well: `meet` does that, or waits to be dialled.
    """

    def __init__(
        self,
        number: int,
        *topics: str,
        is_hansa: bool = False,
        answers: bool = True,
        options: SocketOptions = OPTIONS,
    ) -> None:
        self.routing_id = routing_id(number)
        self.topics = list(topics)
        self.is_hansa = is_hansa
        self.answers = answers
        self.heard: list[tuple[bytes, Frames]] = []
        self._asked: set[bytes] = set()
        self.router = Router(
            self.routing_id,
            environment=Environment(options=options),
            on_messages=self._take,
            name=f"wire {number}",
        )
        self.endpoint = Endpoint.parse(ANY)
        self._caller = Caller(Dealer(self.routing_id, environment=Environment(options=OPTIONS)))

    async def __aenter__(self) -> Self:
        await self.router.__aenter__()
        await self._caller.__aenter__()
        self.endpoint = await self.router.bind(ANY)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._caller.__aexit__()
        await self.router.close()

    # -- coming and going

    async def register(self, registry: Registry, *, service: str = NODES) -> None:
        await self._caller.dial(registry.router)
        await self._caller.register(str(self.endpoint), service=service)

    async def unregister(self, *, service: str = NODES) -> None:
        await self._caller.unregister(str(self.endpoint), service=service)

    async def meet(self, node: SpotNode, *, ask: bool = True) -> None:
        """Be connected with a node that knows us, and have exchanged QUERY and QUERY_RESP."""
        if self.routing_id < node.routing_id:
            assert node.endpoint is not None
            await self.router.connect(node.endpoint).up()
        await until(lambda: node.routing_id in self.router.peers, "the two are connected")
        await until(lambda: self.of(QUERY) != [], "the node has asked")
        if ask:
            if not self.is_hansa:
                self.say(node, QUERY)
            await until(lambda: self.of(QUERY_RESP) != [], "the node has answered")
            await node.in_step()

    # -- speaking and hearing

    def say(self, node: SpotNode, *frames: bytes) -> None:
        self.router.post(node.routing_id, list(frames))

    async def heard_all(self, node: SpotNode) -> None:
        """Wait for the answer to one more QUERY: what the node sent before it has come as well."""
        count = len(self.of(QUERY_RESP))
        self.say(node, QUERY)
        await until(lambda: len(self.of(QUERY_RESP)) > count, "the node has answered once more")

    def of(self, command: bytes, topic: str | None = None) -> list[Frames]:
        """What came with this command, about this topic."""
        return [
            frames
            for _, frames in self.heard
            if frames[0] == command and (topic is None or frames[1] == topic.encode())
        ]

    @property
    def asked(self) -> list[tuple[bytes, str]]:
        """The SUBSCRIBEs and UNSUBSCRIBEs in order, with their topics."""
        return [
            (frames[0], frames[1].decode())
            for _, frames in self.heard
            if frames[0] in (SUBSCRIBE, UNSUBSCRIBE)
        ]

    def _take(self, peer: bytes, came: list[Frames]) -> None:
        for frames in came:
            self.heard.append((peer, frames))
            if frames[0] != QUERY:
                continue
            if self.is_hansa and peer not in self._asked:
                # A node of hansa's asks before it answers, and so shows what it is.
                self._asked.add(peer)
                self.router.post(peer, query(is_hansa=True))
            if self.answers:
                self.router.post(peer, query_resp(self.topics, is_hansa=self.is_hansa))
