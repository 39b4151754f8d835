"""The witness: sees everything that one node's own topics give out.

The witness is a spot like others, with an exact subscription to every watched topic that its node owns, from
the moment of creation, and with an inbox that never overflows. It also reads from the machine what programs
are not told: under which epoch a topic was created, and a topic's position at this node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansa.errors import AlreadyClosed, InvariantBroken, WouldBlock
from hansa.testing.host import Host
from hansa.testing.scenarios.spot_accounts import Floor
from hansa.testing.scenarios.spot_posts import Tenure
from hansa.topics.inbox import TopicMessage
from hansa.topics.mesh import Mesh
from hansa.topics.node import SpotNode
from hansa.topics.router_mesh import RouterMesh
from hansa.topics.spot import Spot
from hansa.topics.wants import WantState

if TYPE_CHECKING:
    from hansa.testing.scenarios.spot_cast import Cast


class Witness:
    """The witness of one node, as long as it lives."""

    def __init__(self, host: Host, cast: Cast, label: str, node: SpotNode) -> None:
        self._host = host
        self._cast = cast
        self._label = label
        self._node = node
        self.spot: Spot = node.spot("witness")
        self._tenures: dict[str, Tenure] = {}
        """The open tenures, by topic."""

    async def run(self) -> None:
        """Watch until the node closes."""
        try:
            while True:
                self._saw(await self.spot.recv_all())
        except AlreadyClosed:
            return

    async def create(self, spot: Spot, topic: str, *, retain: bool) -> None:
        """Let the spot create the topic, and watch it from the first message on. Raises as `create_topic`."""
        await spot.create_topic(topic, retain=retain)
        if topic not in self._cast.watched:
            return
        self.drain()
        if topic in self._tenures:
            # It gave way to another that is gone again, before its listener heard of either.
            self._tenures[topic].is_demoted = True
        epoch = _machine(self._node).exchange.outlets[topic.encode()].epoch
        self._tenures[topic] = self._cast.tenures.begin(
            topic, self._node.routing_id, epoch, retain=retain, node=self._label
        )
        await self.spot.subscribe(topic)

    async def end(self, topic: str) -> None:
        """The topic was destroyed, just now."""
        self.drain()
        if self._tenures.pop(topic, None) is not None:
            await self.spot.unsubscribe(topic)

    async def demoted(self, topic: str) -> None:
        """The node said that it gave way to a lower id, some time ago: it may own the topic again."""
        if topic in self._tenures and topic not in self._node.owned:
            self._tenures[topic].is_demoted = True
            await self.end(topic)

    def drain(self) -> None:
        """Take in all waiting messages now."""
        try:
            while True:
                self._saw([self.spot.recv_nowait()])
        except (WouldBlock, AlreadyClosed):
            return

    def close(self) -> None:
        """The node ends now, or has crashed."""
        self.drain()
        for topic, tenure in self._tenures.items():
            tenure.is_demoted = topic not in self._node.owned
        self._tenures.clear()

    def _saw(self, messages: list[TopicMessage]) -> None:
        for message in messages:
            post = self._cast.posts.receive(
                f"{self._label} witness", message.topic, message.payload, message.sequence
            )
            tenure = self._tenures.get(message.topic)
            if tenure is not None:
                self._cast.tenures.saw(tenure, message.sequence, post)


def floor_of(node: SpotNode, topic: str) -> Floor | None:
    """The position of an active topic at this node."""
    machine, frame = _machine(node), topic.encode()
    outlet = machine.exchange.outlets.get(frame)
    if outlet is not None:
        return Floor(owner=node.routing_id, epoch=outlet.epoch, last=outlet.sequence)
    want = machine.wants.all.get(frame)
    if want is None or want.state is not WantState.ACTIVE:
        return None
    return Floor(owner=want.feed.owner, epoch=want.feed.epoch, last=want.feed.last)


def is_asked(node: SpotNode, topic: str) -> bool:
    """Whether the node has asked for a topic and the owner has not confirmed it yet."""
    want = _machine(node).wants.all.get(topic.encode())
    return want is not None and want.state is WantState.ASKED


def _machine(node: SpotNode) -> Mesh:
    """The machine behind the node."""
    driver = node.mesh
    if not isinstance(driver, RouterMesh):
        raise InvariantBroken("the scenario plays on the ROUTER mesh")
    return driver._mesh
