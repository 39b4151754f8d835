"""Drives a node of the PUB/SUB mesh: one PUB to publish, and one SUB at the PUB of every listed node.

There are no owners, so there is nothing to ask and nothing to confirm. A subscription is active at once,
which promises less than in a ROUTER mesh: it does not hear a publisher that has not been dialled yet, or that
has not read the subscription yet.

What the driver owes the machine. A prefix is subscribed on the SUB for exactly as long as the machine has the
subscription. Every change of the linked nodes (joined, unlisted, closed) wakes the callers of `in_step`.
Every delivery is flushed before the loop goes on, because nothing else wakes a reader. There is no timer:
nothing is told later, and a SUB dials again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hansa.endpoint import Endpoint
from hansa.errors import BadArgument, BadEndpoint, BadFrame, HansaError, UsageError
from hansa.limits import JOIN_S_MAX, READ_BYTES, WRITE_TURN_BYTES
from hansa.presence.provider_info import ProviderInfo
from hansa.presence.statements import first_epoch
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import TaskScope
from hansa.topics.effects import MeshTally, Tell
from hansa.topics.events import PeerJoined, PeerLeft, TopicReport
from hansa.topics.fanout import Exchange
from hansa.topics.open_mesh import Arrivals, Departures, OpenMesh
from hansa.topics.wants import Subscriber
from hansa.transport import (
    Connected,
    Disconnected,
    Environment,
    Outbound,
    Pub,
    SocketEvent,
    Sub,
)
from hansa.transport.admission import Strikes


class PubSubMesh:
    """The PUB/SUB mesh of one node."""

    def __init__(
        self,
        bind: Endpoint | None,
        *,
        routing_id: bytes,
        environment: Environment,
        on_tell: Callable[[Tell], None],
        name: str,
    ) -> None:
        self.exchange = Exchange(environment.options.frame_bytes_max)
        self.strikes = Strikes()
        self.has_owners = False
        self._name = name
        self._bind = bind
        self._routing_id = routing_id
        self._on_tell = on_tell
        epoch = first_epoch(int(environment.clock.wall() * 1000))
        self._machine = OpenMesh(self.exchange, Arrivals(), Departures(routing_id, epoch))
        self._pub = Pub(environment=environment, name=f"{name}'s PUB")
        self._sub = Sub(
            environment=environment,
            on_messages=self._received,
            on_event=self._happened,
            name=f"{name}'s SUB",
        )
        # By endpoint: a node that moves is listed at two endpoints for a while.
        self._links: dict[str, _Link] = {}
        self._listed: dict[str, ProviderInfo] = {}
        self._is_apart = False
        self._steppers = Waiters()
        self._tasks = TaskScope(name, self._task_failed)
        self._unyielded_bytes = 0
        self._is_closed = False

    @property
    def tally(self) -> MeshTally:
        return self._machine.tally

    @property
    def dropped_count(self) -> int:
        return self._pub.stats.dropped_count

    # -- life

    async def start(self) -> Endpoint | None:
        if self._bind is None:
            return None
        return await self._pub.bind(self._bind)

    async def close(self) -> None:
        self._is_closed = True
        self._links.clear()
        self._steppers.wake_all()
        try:
            # Both at the same time, since each may linger.
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sub.close(), name=f"{self._name}: closing the SUB")
                group.create_task(self._pub.close(), name=f"{self._name}: closing the PUB")
        finally:
            await self._tasks.close()

    # -- nodes that the discovery lists

    def list_node(self, node: ProviderInfo) -> None:
        if self._is_closed or node.endpoint in self._listed:
            return
        self._listed[node.endpoint] = node
        self._link(node)

    def _link(self, node: ProviderInfo) -> None:
        if self._is_apart:
            return
        try:
            outbound = self._sub.connect(node.endpoint)
        except (BadEndpoint, BadArgument) as error:
            # Another program registered this endpoint: report it, and go on.
            self._report(error, f"{self._name} cannot dial {node.endpoint}")
            return
        self._links[node.endpoint] = _Link(node.routing_id, outbound, self._now() + JOIN_S_MAX)

    def unlist_node(self, node: ProviderInfo) -> None:
        listed = self._listed.get(node.endpoint)
        if listed is None or listed.routing_id != node.routing_id:
            return  # Another node is listed there meanwhile.
        del self._listed[node.endpoint]
        self._unlink(node.endpoint, "no longer listed")

    def _unlink(self, endpoint: str, reason: str) -> None:
        link = self._links.pop(endpoint, None)
        if link is None:
            return
        if link.is_joined:
            self._on_tell(Tell(event=PeerLeft(peer=link.node, reason=reason)))
        self._tasks.spawn(link.outbound.close(), f"hangs up on {endpoint}")
        self._steppers.wake_all()

    def part(self) -> None:
        """Stop hearing others. They must stop hearing this one themselves: a SUB does not say whose it is."""
        self._is_apart = True
        for endpoint in list(self._links):
            self._unlink(endpoint, "this node has unregistered")

    def rejoin(self) -> None:
        if self._is_apart:
            self._is_apart = False
            for node in self._listed.values():
                self._link(node)

    async def in_step(self) -> None:
        """Wait until every listed node is connected, or was given up."""
        while awaited := [link.until for link in self._links.values() if not link.is_joined]:
            until = max(awaited)
            if until <= self._now():
                return
            try:
                async with asyncio.timeout_at(until):
                    await self._steppers.wait()
            except TimeoutError:
                pass  # Given up: nodes that come later join later.

    # -- what spots ask for

    def create(self, topic: bytes, spot: object, *, retain: bool, claim: int) -> None:
        raise self._ownerless(topic, "create")

    def lose(self, topic: bytes, reason: str) -> None:
        raise self._ownerless(topic, "lose")

    def destroy(self, topic: bytes, spot: object) -> None:
        raise self._ownerless(topic, "destroy")

    def subscribe(self, subscriber: Subscriber) -> None:
        self._sub.subscribe(subscriber.prefix)
        try:
            self._machine.subscribe(subscriber)
        except HansaError:
            self._sub.unsubscribe(subscriber.prefix)
            raise

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._machine.unsubscribe(subscriber)
        self._sub.unsubscribe(subscriber.prefix)

    def post(self, topic: str, payload: bytes) -> None:
        """Raises BadArgument. There is always room: a subscriber that does not keep up loses it, counted."""
        frames = self._machine.publish(topic, payload)
        if self._bind is not None:
            self._pub.post(frames)
            self._unyielded_bytes += len(payload)
        if self.exchange.is_due:
            self.flush()

    async def send(self, topic: str, payload: bytes) -> None:
        """As `post`, but lets the loop write now and then: a busy publisher alone causes no drops."""
        # Before the message is numbered: if this is cancelled here, nothing was published.
        if self._unyielded_bytes >= WRITE_TURN_BYTES:
            # As many turns as a reader needs for that much: in one process both share the turns.
            turns_count = self._unyielded_bytes // READ_BYTES
            self._unyielded_bytes = 0
            for _ in range(turns_count):
                await asyncio.sleep(0)
        self.post(topic, payload)

    def flush(self) -> None:
        for reader in self.exchange.take_due()[1]:
            reader.sleeper.wake()

    # -- looking

    @property
    def peers(self) -> tuple[bytes, ...]:
        """Listed nodes whose PUB is connected; the nodes that subscribe at this node's PUB have no names."""
        return tuple(dict.fromkeys(link.node for link in self._links.values() if link.is_joined))

    @property
    def topics(self) -> dict[str, bytes]:
        """What this node itself publishes: without owners no node tells of others."""
        return dict.fromkeys(self._machine.departures.counts, self._routing_id)

    @property
    def topics_count(self) -> int:
        return len(self._machine.departures.counts)

    def owner(self, topic: bytes) -> bytes | None:
        return None

    @property
    def taken_over_count(self) -> int:
        return 0  # Publishers have no ids to share.

    @property
    def wanted(self) -> dict[str, int]:
        return self._machine.wanted

    def subscribers(self, topic: bytes) -> tuple[bytes, ...]:
        """Always empty: a SUB does not tell its id."""
        return ()

    def subscribers_count(self, topic: bytes) -> int:
        return self._pub.subscribers_count(topic)

    async def survey(self, timeout: float) -> tuple[TopicReport, ...]:
        """The topics that this node publishes. Subscribers and drops are not known by topic."""
        return tuple(
            TopicReport(
                topic=topic,
                owner=self._routing_id,
                subscribers_count=None,
                published_count=count,
                dropped_count=None,
            )
            for topic, count in self._machine.departures.counts.items()
        )

    # -- from the sockets

    def _received(self, peer: bytes, messages: list[list[bytes]]) -> None:
        hear = self._machine.hear
        for frames in messages:
            try:
                tells = hear(frames)
            except BadFrame as error:
                # The connection is kept: a listed node would be dialled again at once.
                self.strikes.by_reason[error.reason] += 1
                continue
            for tell in tells:
                self._on_tell(tell)
        if self.exchange.is_due:
            self.flush()

    def _happened(self, event: SocketEvent) -> None:
        if self._is_closed or not isinstance(event, Connected | Disconnected):
            return
        link = next((link for link in self._links.values() if link.outbound.peer == event.peer), None)
        if link is None:
            return  # The node was unlisted, and that was told.
        link.is_joined = isinstance(event, Connected)
        if isinstance(event, Connected):
            self._on_tell(Tell(event=PeerJoined(peer=link.node)))
            self._steppers.wake_all()
        else:
            reason = f"{event.reason}: {event.detail}" if event.detail else str(event.reason)
            self._on_tell(Tell(event=PeerLeft(peer=link.node, reason=reason)))

    # -- small things

    def _ownerless(self, topic: bytes, what: str) -> UsageError:
        return UsageError(
            f"there is nothing to {what} for topic {topic.decode()!r}: topics of a PUB/SUB mesh have no "
            f"owners. Publish it, or make {self._name} with mesh='router'"
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    @staticmethod
    def _report(error: BaseException, message: str) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    def _task_failed(self, error: BaseException) -> None:
        self._report(error, f"a task of {self._name} failed; please report this")


class _Link:
    """The connection to one listed node. A node that is not connected by `until` is not waited for."""

    def __init__(self, node: bytes, outbound: Outbound, until: float) -> None:
        self.node = node
        self.outbound = outbound
        self.until = until
        self.is_joined = False
