"""Drives a node of the ROUTER mesh over one ROUTER: connections, timers, writing and waking.

Of two nodes the one with the lower id dials, so that a pair shares one connection. A node that dials this one
is let in for a while: the discovery says which nodes are listed, and its news may be older than the peer
(`doorkeeper`).

What the driver owes the machines:

- every effect is performed in order, and afterwards what the exchange says is due is flushed;
- `_set_timer` is called after everything that may change a deadline: every input of the mesh and of the
  doorkeeper, and a flush that found a lagging subscriber, because its publisher calls nothing else;
- the mesh, the doorkeeper and the surveys are told of a connection that ended; then it is dialled again if
  this node is the one that dials; a peer that refused it is dialled ever more slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hansa.endpoint import Endpoint
from hansa.errors import AlreadyClosed, Backlogged, BadArgument, BadEndpoint, NoOwner, PeerError, Unavailable
from hansa.ids import precedence
from hansa.limits import (
    RECEIVE_TURN_COUNT,
    RECONNECT_JITTER,
    RECONNECT_S_MAX,
    RECONNECT_S_MIN,
    TOPIC_CLOSING_S_MAX,
    WRITE_TURN_BYTES,
)
from hansa.presence.provider_info import ProviderInfo
from hansa.runtime.backoff import Backoff
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import TaskScope
from hansa.topics.doorkeeper import Doorkeeper
from hansa.topics.effects import Broadcast, Effect, MeshTally, Peer, Resume, Send, Tell
from hansa.topics.events import TopicReport
from hansa.topics.fanout import Exchange
from hansa.topics.mesh import Mesh
from hansa.topics.moving import Adoption, HeldMessages
from hansa.topics.topic_state import TopicState
from hansa.topics.wants import Subscriber
from hansa.transport import (
    Away,
    Connected,
    Disconnected,
    Environment,
    Outbound,
    Overflow,
    Router,
    SocketEvent,
)
from hansa.transport.admission import Strikes
from hansa.transport.connection import Lane
from hansa.transport.events import CloseReason
from hansa.transport.outbox import BURST, ROUSE, Outbox
from hansa.wire.topics import PUBLISH, QueryResp, TopicCounts, decode, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """A connected node that takes topics: its id, its name in the store, and how many it owns."""

    node: bytes
    name: str
    owned_count: int


class RouterMesh:
    """The ROUTER mesh of one node."""

    def __init__(
        self,
        bind: Endpoint | None,
        *,
        routing_id: bytes,
        environment: Environment,
        query_interval_s: float,
        on_tell: Callable[[Tell], None],
        hears_registry: Callable[[], bool],
        name: str,
    ) -> None:
        options = environment.options
        self.exchange = Exchange(options.frame_bytes_max)
        self.strikes = Strikes()
        self.has_owners = True
        """Whether topics have owners; otherwise subscriptions are active at once, and nothing is created."""
        self._name = name
        self._bind = bind
        self._routing_id = routing_id
        self._clock = environment.clock
        self._on_tell = on_tell
        self._hears_registry = hears_registry
        self._chance = environment.chance
        self._mesh = Mesh(routing_id, self.exchange, query_interval_s=query_interval_s)
        self._doorkeeper = Doorkeeper(self._mesh.tally, self._mesh.heard_count)
        self._router = Router(
            routing_id,
            # A node that comes back replaces the connection that it left behind.
            environment=environment.but(
                options=replace(options, away=Away.FAIL, overflow=Overflow.BLOCK, takeover=True)
            ),
            on_messages=self._received,
            on_event=self._happened,
            name=name,
        )
        self._lanes: dict[Outbox, Lane] = {}
        # By id and endpoint: a node that came back elsewhere is listed twice until its old entry expires.
        self._listed: dict[bytes, dict[str, ProviderInfo]] = {}
        self._outbounds: dict[bytes, Outbound] = {}
        # For listed nodes that refuse this one: how long to wait before they are dialled again.
        self._refusals: dict[bytes, Backoff] = {}
        self._dialled_later: set[bytes] = set()
        self._surveys: dict[TopicSurvey, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Kept here, because uvloop's handle for a time in the past has none.
        self._timer_at = 0.0
        self._steppers = Waiters()
        # Publishers and hand-overs that wait for a topic on its way.
        self._moved = Waiters()
        self._tasks = TaskScope(name, self._task_failed)
        self._is_closed = False

    @property
    def tally(self) -> MeshTally:
        return self._mesh.tally

    @property
    def dropped_count(self) -> int:
        """Messages that other nodes missed because they did not keep up."""
        return self.exchange.dropped_count

    # -- life

    async def start(self) -> Endpoint | None:
        """Bind; returns the endpoint, if there is one to bind."""
        if self._bind is None:
            return None
        return await self._router.bind(self._bind)

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._listed.clear()
        self._steppers.wake_all()
        self._moved.wake_all()
        for survey in list(self._surveys):
            survey.end()
        try:
            await self._router.close()
        finally:
            await self._tasks.close()

    # -- nodes that the discovery lists

    def list_node(self, node: ProviderInfo) -> None:
        if self._is_closed:
            return
        entries = self._listed.setdefault(node.routing_id, {})
        if not entries:
            self._doorkeeper.list_peer(node.routing_id)
            if self._doorkeeper.welcomes(node.routing_id):
                self._mesh.expect(node.routing_id, now=self._now())
        if node.endpoint not in entries:
            # At its new endpoint no node has refused this one yet, or answered in place of the listed one.
            self._dialled_later.discard(node.routing_id)
        entries[node.endpoint] = node
        self._dial(node.routing_id)
        self._after()

    def unlist_node(self, node: ProviderInfo) -> None:
        entries = self._listed.get(node.routing_id, {})
        if entries.pop(node.endpoint, None) is None:
            return
        if not entries:
            del self._listed[node.routing_id]
            self._refusals.pop(node.routing_id, None)
            self._mesh.unexpect(node.routing_id)
            self._doorkeeper.unlist_peer(node.routing_id, now=self._now())
        self._dial(node.routing_id)
        self._after()

    def part(self) -> None:
        """This node has unregistered: let all peers go soon, and have none until `rejoin`."""
        self._doorkeeper.part(now=self._now())
        for peer in list(self._listed):
            self._mesh.unexpect(peer)
            self._dial(peer)
        self._after()

    def rejoin(self) -> None:
        """This node is registered: dial the listed nodes. Changes nothing unless it was apart."""
        if not self._doorkeeper.is_apart:
            return
        self._doorkeeper.rejoin()
        for peer in list(self._listed):
            self._mesh.expect(peer, now=self._now())
            self._dial(peer)
        self._after()

    async def in_step(self) -> None:
        """Wait until every listed node has told its topics, or was given up."""
        while not self._mesh.is_in_step and not self._is_closed:
            await self._steppers.wait()

    def _dial(self, peer: bytes) -> None:
        """Keep up the connection to a listed node, where it was listed last, if this node is to dial."""
        entries = self._listed.get(peer, {}).values()
        newest = max(entries, key=lambda node: (node.registered_at, node.endpoint), default=None)
        if not self._doorkeeper.welcomes(peer):
            newest = None
        outbound, is_connected = self._outbounds.get(peer), peer in self._mesh.peers
        # A connected peer that is no longer wanted is let go in its time.
        if outbound is not None and (
            not is_connected if newest is None else str(outbound.endpoint) != newest.endpoint
        ):
            self._hang_up(peer)
            outbound = None
        is_ours = precedence(self._routing_id) < precedence(peer) and peer not in self._dialled_later
        if newest is None or not is_ours or outbound is not None or is_connected:
            return
        try:
            self._outbounds[peer] = self._router.connect(newest.endpoint)
        except (BadEndpoint, BadArgument) as error:
            # Another program registered this endpoint: report it, and go on.
            self._report(error, f"{self._name} cannot dial {newest.endpoint}")

    def _let_go(self, peer: bytes, reason: str) -> None:
        self._hang_up(peer)
        self._router.expel(peer, reason, reason=CloseReason.CLOSED_BY_US)

    def _hang_up(self, peer: bytes) -> None:
        outbound = self._outbounds.pop(peer, None)
        if outbound is not None:
            self._tasks.spawn(outbound.close(), f"hangs up on {outbound.endpoint}")

    # -- what spots ask for; topics are frames

    def create(self, topic: bytes, spot: object, *, retain: bool, claim: int) -> None:
        """Raises TopicExists, BadArgument; UsageError where there are no owners."""
        wall_ms = int(self._clock.wall() * 1000)
        self._perform(self._mesh.create(topic, spot, retain=retain, wall_ms=wall_ms, claim=claim))

    # -- topics that are handed over

    def take_topics(self, name: str) -> None:
        """Let others hand topics over to this node, by its name in the store; with an empty name stop it."""
        self._perform(self._mesh.take_topics(name))

    def takers(self) -> list[Taker]:
        """Connected nodes that take topics, the least loaded first."""
        count = self._mesh.owners.count
        takers = [member for member in self._mesh.peers.values() if member.taker]
        takers.sort(key=lambda member: (count(member.id), precedence(member.id)))
        return [Taker(node=member.id, name=member.taker, owned_count=count(member.id)) for member in takers]

    def check_room(self) -> None:
        """Raises BadArgument when this node owns as many topics as it may."""
        self._mesh.check_room()

    def retains(self, topic: bytes) -> bool:
        """Whether another node's topic retains its latest message, as far as this node has heard."""
        return self._mesh.wants.retains(topic)

    def close_topic(self, topic: bytes, target: bytes, *, number: int) -> TopicState:
        """Stop publishing a topic; `stay` or `taken` must follow. Raises NotOwner, PeerAway, Conflict."""
        state, effects = self._mesh.close(topic, target, number=number)
        self._perform(effects)
        return state

    def is_open(self, topic: bytes) -> bool:
        """Whether this node owns the topic, and does not hand it over now."""
        return topic in self.exchange.open_outlets

    @property
    def leaving(self) -> tuple[bytes, ...]:
        """Topics that this node hands over, until all nodes have switched to the new owners."""
        return tuple(self._mesh.moves.leaving)

    def stay(self, topic: bytes) -> None:
        """The hand-over was withdrawn. Changes nothing unless the topic was closed."""
        self._perform(self._mesh.stay(topic))

    def taken(self, topic: bytes) -> None:
        """The record says that the new owner has the topic."""
        self._perform(self._mesh.taken(topic))

    def adopt(self, topic: bytes, spot: object, state: TopicState, *, claim: int, number: int) -> None:
        """Own a topic that another node has handed over."""
        adoption = Adoption(
            topic=topic,
            spot=spot,
            state=state,
            claim=claim,
            number=number,
            until=self._now() + TOPIC_CLOSING_S_MAX,
        )
        self._perform(self._mesh.adopt(adoption))

    async def until_owned_elsewhere(self, topic: bytes) -> None:
        """Wait until this node no longer owns a topic, not even one that is on its way."""
        while topic in self.exchange.outlets and not self._is_closed:
            await self._moved.wait()

    async def until_settled(self, topics: Iterable[bytes]) -> None:
        """Wait until all nodes have switched to the owners of these topics, handed over from or to here."""
        while any(map(self._mesh.moves.is_moving, topics)) and not self._is_closed:
            await self._moved.wait()

    def lose(self, topic: bytes, reason: str) -> None:
        """The topic's claim is lost; does nothing if this node does not own the topic."""
        self._perform(self._mesh.lose(topic, reason))

    def destroy(self, topic: bytes, spot: object) -> None:
        """Raises NotOwner; UsageError where there are no owners."""
        self._perform(self._mesh.destroy(topic, spot))

    def subscribe(self, subscriber: Subscriber) -> None:
        """Raises BadArgument."""
        self._perform(self._mesh.subscribe(subscriber))

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._perform(self._mesh.unsubscribe(subscriber))

    def post(self, topic: str, payload: bytes) -> None:
        """Publish to a topic without an outlet here. Raises NoOwner, Backlogged, BadArgument."""
        route = self._route(topic, payload)
        if isinstance(route, HeldMessages):
            if not route.put(payload):
                raise Backlogged(
                    f"topic {topic!r} is being handed over, and as many messages wait for it as may: use "
                    "publish() to wait"
                )
            return
        owner, frame = route
        try:
            self._router.post(owner, [PUBLISH, frame, payload])
        except Backlogged:
            raise
        except Unavailable as error:
            raise self._no_owner(topic) from error
        self._mesh.published(owner)

    async def send(self, topic: str, payload: bytes) -> None:
        """As `post`, but waits for room. Cancelling it publishes nothing."""
        route = self._route(topic, payload)
        while True:
            if isinstance(route, HeldMessages):
                if route.put(payload):
                    return
                await self._moved.wait()
            else:
                owner, frame = route
                lane = self._router.lanes.get(owner)
                if lane is None:
                    raise self._no_owner(topic)
                if lane.is_pressed:
                    try:
                        await lane.ready()
                    except AlreadyClosed as error:
                        raise self._no_owner(topic) from error
                # After waiting, look again: no message may follow an END.
                if self._mesh.route(topic) is route:
                    lane.post([PUBLISH, frame, payload])
                    # Counted for the current connection, which may have been taken over meanwhile.
                    self._mesh.published(owner)
                    return
            outlet = self.exchange.outlets_by_name.get(topic)
            if outlet is not None:
                outlet.publish(payload, self.exchange)
                if self.exchange.is_due:
                    self.flush()
                return
            route = self._route(topic, payload)

    def _route(self, topic: str, payload: bytes) -> tuple[bytes, bytes] | HeldMessages:
        """The owner and the topic's frame; or the held messages of a topic on its way to another owner."""
        if not isinstance(payload, bytes) or len(payload) > self.exchange.payload_bytes_max:
            raise self.exchange.refusal(payload)
        route = self._mesh.route(topic) or self._mesh.moves.holds.get(topic)
        if route is None:
            raise self._no_owner(topic)
        return route

    def _no_owner(self, topic: str) -> NoOwner:
        return NoOwner(
            f"nobody owns topic {topic!r} as far as {self._name} knows: create_topic() makes an owner"
        )

    def flush(self) -> None:
        """Write and wake what the exchange says is due."""
        boxes, readers = self.exchange.take_due()
        for box in boxes:
            lane = self._lanes.get(box)
            if lane is not None:
                is_burst = box.held_bytes >= WRITE_TURN_BYTES or box.held_count >= box.burst_count
                lane.act(BURST if is_burst else ROUSE)
        for reader in readers:
            reader.sleeper.wake()
        if self.exchange.lagging:
            self._mesh.note_lagging(now=self._now())
            self._set_timer()

    # -- looking

    @property
    def peers(self) -> tuple[bytes, ...]:
        return tuple(self._mesh.peers)

    @property
    def topics(self) -> dict[str, bytes]:
        """Every known topic and its owner."""
        known = {topic.decode(): owner for topic, owner in self._mesh.owners.all.items()}
        return known | dict.fromkeys(
            (outlet.feed.topic for outlet in self.exchange.outlets.values()), self._routing_id
        )

    @property
    def topics_count(self) -> int:
        return self._mesh.topics_count

    def owner(self, topic: bytes) -> bytes | None:
        """The owner of a topic, as far as this node knows."""
        return self._mesh.owner(topic)

    @property
    def taken_over_count(self) -> int:
        """Connections that were replaced by another one of the same id."""
        return self._router.ended.get(CloseReason.TAKEN_OVER, 0)

    @property
    def wanted(self) -> dict[str, int]:
        """Wanted topics, and how many local subscriptions match each."""
        count = self._mesh.wants.interests.count
        return {want.feed.topic: count(topic) for topic, want in self._mesh.wants.all.items()}

    def subscribers(self, topic: bytes) -> tuple[bytes, ...]:
        outlet = self.exchange.outlets.get(topic)
        return () if outlet is None else tuple(outlet.subscribers)

    def subscribers_count(self, topic: bytes) -> int:
        return len(self.subscribers(topic))

    async def survey(self, timeout: float) -> tuple[TopicReport, ...]:
        # A peer that has said nothing may be no node, and would be waited for in vain.
        nodes = [peer for peer, member in self._mesh.peers.items() if member.heard_count]
        survey = TopicSurvey(self._routing_id, self._mesh.report(), nodes)
        self._surveys[survey] = None
        try:
            self._perform(self._mesh.survey())
            return await survey.result(timeout)
        finally:
            del self._surveys[survey]

    # -- from the socket and the timer

    def _received(self, peer: bytes, messages: list[list[bytes]]) -> None:
        mesh = self._mesh
        member = mesh.peers.get(peer)
        if member is None:
            return
        at = mesh.receive(member, messages, 0)
        while at < len(messages):
            try:
                command = decode(messages[at])
                effects = mesh.hear(peer, command, now=self._now())
            except PeerError as error:
                if self.strikes.strike(peer, error):
                    self._router.expel(peer, f"too many bad messages, the last: {error}")
                    break
            else:
                if isinstance(command, QueryResp):
                    for survey in list(self._surveys):
                        survey.hear(peer, command, is_hansa=member.is_hansa)
                self._perform(effects)
                if mesh.peers.get(peer) is not member:
                    break  # The command has ended its connection.
            at = mesh.receive(member, messages, at + 1)
        if self.exchange.is_due:
            self.flush()
        if len(messages) > RECEIVE_TURN_COUNT:
            # Not before the readers were woken: they must run first.
            self._router.rest(peer)

    def _happened(self, event: SocketEvent) -> None:
        match event:
            case Connected(peer=peer, outbound=is_ours):
                if peer == self._routing_id:
                    self._router.expel(peer, "this is the id of the node that you talk to")
                    return
                if is_ours and self._is_impostor(peer):
                    return
                if not self._doorkeeper.welcomes(peer):
                    self._let_go(peer, self._doorkeeper.turn_away(peer))
                    return
                if not is_ours:
                    # The peer dialled by itself: one connection is enough.
                    self._hang_up(peer)
                self._doorkeeper.connected(peer, now=self._now())
                lane = self._router.lane(peer)
                self._lanes[lane.outbox] = lane
                self._perform(self._mesh.peer_connected(peer, lane.outbox, now=self._now()))
            case Disconnected(peer=peer):
                lost_count = event.in_doubt_count + event.unsent_count
                member = self._mesh.peers.get(peer)
                if member is not None:
                    self._lanes.pop(member.box, None)
                    # Messages that wait for a connection that was taken over are not for its successor.
                    lost_count += member.box.clear()
                    self._count_refusal(member, event)
                self._doorkeeper.disconnected(peer)
                self.strikes.forget(peer)
                reason = f"{event.reason}: {event.detail}" if event.detail else str(event.reason)
                self._perform(self._mesh.peer_disconnected(peer, reason, in_doubt_count=lost_count))
                for survey in list(self._surveys):
                    survey.left(peer)
                if not self._is_closed:
                    self._dial(peer)

    def _count_refusal(self, member: Peer, event: Disconnected) -> None:
        """A node that hangs up before it has said a word does not list this one, not yet or no longer."""
        peer = member.id
        if member.heard_count or event.reason is not CloseReason.REFUSED_BY_PEER:
            self._refusals.pop(peer, None)
        elif peer in self._outbounds:
            backoff = self._refusals.get(peer)
            if backoff is None:
                backoff = self._refusals[peer] = Backoff(
                    s_min=RECONNECT_S_MIN, s_max=RECONNECT_S_MAX, jitter=RECONNECT_JITTER, chance=self._chance
                )
            self._dial_again(peer, backoff.next_s())

    def _dial_again(self, peer: bytes, after_s: float) -> None:
        outbound = self._outbounds[peer]
        self._hang_up(peer)
        self._dialled_later.add(peer)
        self._tasks.spawn(self._dial_later(peer, after_s), f"dials {outbound.endpoint} again")

    def _is_impostor(self, peer: bytes) -> bool:
        """Whether another node answered than the listed one, which is then dialled again a little later."""
        known = self._outbounds.get(peer)
        if known is not None and known.peer == peer:
            return False
        for listed, outbound in self._outbounds.items():
            if outbound.peer == peer:
                self._dial_again(listed, RECONNECT_S_MAX)
                return True
        return False

    async def _dial_later(self, peer: bytes, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._dialled_later.discard(peer)
        self._dial(peer)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer=peer, command=command):
                    self._send(peer, encode(command))
                case Broadcast(command=command):
                    frames = encode(command)
                    for peer in list(self._mesh.peers):
                        self._send(peer, frames)
                case Tell():
                    self._on_tell(effect)
                case Resume():
                    self._moved.wake_all()
        if self.exchange.is_due:
            self.flush()
        self._after()

    def _send(self, peer: bytes, frames: list[bytes]) -> None:
        try:
            self._router.post_control(peer, frames)
        except Backlogged as error:
            self._router.expel(peer, str(error))
        except (Unavailable, AlreadyClosed):
            pass  # Its connection has just ended; an event will say so.

    def _after(self) -> None:
        if self._mesh.is_in_step:
            self._steppers.wake_all()
        self._set_timer()

    def _tick(self) -> None:
        self._timer = None
        now = self._now()
        for gone in self._doorkeeper.tick(now=now, hears_registry=self._hears_registry()):
            self._let_go(gone.peer, gone.reason)
        for peer in self._doorkeeper.rested(now=now):
            self._dial(peer)
        self._perform(self._mesh.tick(now=now))

    def _set_timer(self) -> None:
        """Wake up when a machine wants to. A timer that is too early is left: it looks again in `_tick`."""
        deadlines = [at for at in (self._mesh.deadline(), self._doorkeeper.deadline()) if at is not None]
        if not deadlines or self._is_closed:
            return
        deadline = min(deadlines)
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._tick)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _report(self, error: Exception, message: str) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    def _task_failed(self, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"a task of {self._name} failed; please report this", "exception": error}
        )


class TopicSurvey:
    """Collects the answers until all have come, or the time is up. Missing answers are left out."""

    def __init__(self, node: bytes, own: Iterable[tuple[str, TopicCounts]], peers: Iterable[bytes]) -> None:
        self._missing = dict.fromkeys(peers)
        self._reports = [_report(topic, node, counts) for topic, counts in own]
        self._all_there = asyncio.Event()
        self._look()

    def hear(self, peer: bytes, answer: QueryResp, *, is_hansa: bool) -> None:
        # A hansa node's answer without a report is one to an earlier question.
        if peer not in self._missing or (is_hansa and answer.report is None):
            return
        counts = answer.report or (None,) * len(answer.topics)
        self._reports += [_report(topic, peer, one) for topic, one in zip(answer.topics, counts, strict=True)]
        self.left(peer)

    def left(self, peer: bytes) -> None:
        self._missing.pop(peer, None)
        self._look()

    def end(self) -> None:
        self._all_there.set()

    async def result(self, timeout: float) -> tuple[TopicReport, ...]:
        try:
            async with asyncio.timeout(timeout):
                await self._all_there.wait()
        except TimeoutError:
            pass  # Nodes that have not answered by now are left out.
        return tuple(sorted(self._reports, key=lambda report: (report.topic, report.owner)))

    def _look(self) -> None:
        if not self._missing:
            self._all_there.set()


def _report(topic: str, owner: bytes, counts: TopicCounts | None) -> TopicReport:
    return TopicReport(
        topic=topic,
        owner=owner,
        subscribers_count=None if counts is None else counts.subscribers_count,
        published_count=None if counts is None else counts.published_count,
        dropped_count=None if counts is None else counts.dropped_count,
    )
