"""A mesh of nodes and their topics under every fault.

One or two registries, and three to seven nodes of one to four spots each. The spots create and destroy
topics, retained and not, in some runs the same one at two nodes; they subscribe topics and patterns, with
little room and with much, and unsubscribe, in half of the runs most of all while owners are away; they
publish to their own topics, to others' and to unowned ones; they read fast or slowly; they close and others
open. Nodes crash, lose power, stop and come back, under a new id or the old one, or unregister for a while.

Always: nothing is delivered twice, nothing that was not published or not subscribed, nothing out of its
publisher's order; one owner numbers a message once; of older messages, only the latest of a retained topic is
delivered; losses are counted, by the subscription exactly, by the spot through all its subscriptions, and by
the publisher at least; a closed spot says so.

When the faults are over (`disagreement`): all nodes know the same owner of each topic, which agrees; each
pair shares one connection; owners give to exactly the nodes that want; subscriptions are active where there
is an owner and receive the final round, each message once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import ClassVar

from hansa.ids import format_id
from hansa.services.registry import Registry
from hansa.testing.host import Host
from hansa.testing.scenarios.cluster import (
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_TIMEOUT_S,
    PUB_PORT,
    ROUTER_PORT,
    socket_options,
)
from hansa.testing.scenarios.spot_accounts import matches
from hansa.testing.scenarios.spot_cast import Cast, MeshPhase, NodeRun
from hansa.testing.scenarios.spot_living import Living
from hansa.testing.simulation import Scenario
from hansa.testing.world import World
from hansa.topics.events import SubscriptionState
from hansa.topics.names import SERVICE

# How long all must agree before it counts: a connection that is being closed lingers for a second.
AGREED_S = 2.0
# By this long after the last publish everything has arrived.
LANDING_S = 1.0


class SpotMesh(Scenario):
    """Topics over a mesh of nodes: one owner each, what is lost is counted, all agree in the end."""

    name: ClassVar[str] = "spot_mesh"
    chaos_s: ClassVar[float] = 12.0
    quiet_s: ClassVar[float] = 60.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.cast = Cast(world, world.chance.fork("spot_mesh"))
        self._agreed_s: float | None = None
        self._finished_s: float | None = None

    def begin(self) -> None:
        for name in self.cast.registries:
            self.world.host(name, self._keep_registry).start()
        for name in self.cast.nodes:
            self.world.host(name, lambda host: Living(host, self.cast).run()).start()

    def pairs(self) -> Sequence[tuple[str, str]]:
        cast = self.cast
        return list(combinations(cast.nodes, 2)) * 3 + list(product(cast.registries, cast.nodes))

    def calm(self) -> None:
        self.cast.phase = MeshPhase.CALM

    def check(self) -> None:
        """A crashed node's books are closed where they are: its objects stay as they were when it died."""
        for session in self.cast.sessions.values():
            if session.label.rpartition(".")[0] in self.world.crashed_lives:
                self.cast.close_session(session, crashed=True)

    def unsettled(self) -> str:
        cast = self.cast
        if cast.phase is MeshPhase.CLOSING:
            return ""
        if cast.phase is MeshPhase.CALM:
            return self._unagreed()
        busy = [session.label for session in cast.sessions.values() if not session.has_finished]
        if busy:
            return f"{', '.join(busy)} has not published the final round"
        if missing := disagreement(cast):
            return f"after the final round: {missing}"
        if unmet := cast.accounts.unmet():
            return "\n".join(unmet[:20])
        now = self.world.elapsed_s()
        self._finished_s = self._finished_s or now
        if now < self._finished_s + LANDING_S:
            return "the last messages may be under way"
        self._judge()
        return ""

    def _unagreed(self) -> str:
        """The disagreement of the nodes; the final round begins when there was none for a while."""
        now = self.world.elapsed_s()
        if missing := disagreement(self.cast):
            self._agreed_s = None
            return missing
        self._agreed_s = self._agreed_s or now
        if now >= self._agreed_s + AGREED_S:
            self.cast.phase = MeshPhase.ROUNDS
            self.cast.round_called.set()
        return "the final round has not been published"

    def _judge(self) -> None:
        """Close the books and check them."""
        cast = self.cast
        cast.phase = MeshPhase.CLOSING
        for session in cast.sessions.values():
            if session.witness is not None:
                session.witness.drain()
        for player in cast.players():
            for text in list(player.accounts):
                cast.close_account(player, text, settled=True)
            player.is_over = True
        cast.tenures.resolve()
        cast.accounts.judge()
        cast.posts.judge(cast.watched, crashed=cast.crashed)

    async def _keep_registry(self, host: Host) -> None:
        cast, chance = self.cast, host.chance
        registry = cast.keepers[host.name] = Registry(
            f"tcp://*:{PUB_PORT}",
            f"tcp://*:{ROUTER_PORT}",
            peers=[f"tcp://{name}:{PUB_PORT}" for name in cast.registries if name != host.name],
            heartbeat_interval=HEARTBEAT_INTERVAL_S,
            heartbeat_timeout=HEARTBEAT_TIMEOUT_S,
            broadcast_interval=cast.broadcast_interval_s,
            environment=host.environment.fork("registry").but(options=socket_options(chance.fork("options"))),
            name=str(host.life),
        )
        async with registry:
            await asyncio.Event().wait()


def disagreement(cast: Cast) -> str:
    """The first thing that is not yet as it must be in the end, or the empty string."""
    sessions = list(cast.sessions.values())
    for name in cast.nodes:
        session = cast.sessions.get(name)
        if session is None or session.is_over or not session.is_steady:
            return f"{name} has not come to rest"
    if problem := _unlisted(cast, sessions):
        return problem
    owners: dict[str, bytes] = {}
    for session in sessions:
        for spot in session.spots:
            for topic in spot.owned:
                if topic in owners:
                    return f"{topic} has two owners, {_ids([owners[topic], session.node.routing_id])}"
                owners[topic] = session.node.routing_id
    wanted = {session.node.routing_id: _wanted(session, owners) for session in sessions}
    for session in sessions:
        problem = _known(session, owners, wanted.keys()) or _subscribed(session, owners, wanted)
        if problem:
            return f"{session.label} {problem}"
    return _surplus_connections(cast)


def _unlisted(cast: Cast, sessions: list[NodeRun]) -> str:
    """Registries and discoveries show exactly the running nodes; before that, the mesh cannot rest."""
    nodes = {session.node.routing_id for session in sessions}
    shown = {name: registry.services for name, registry in cast.keepers.items()}
    shown |= {session.discovery.name: session.discovery.services for session in sessions}
    for name, services in shown.items():
        listed = {one.routing_id for one in services.get(SERVICE, ())}
        if listed != nodes:
            return f"{name} lists {_ids(listed)}, not {_ids(nodes)}"
    return ""


def _known(session: NodeRun, owners: dict[str, bytes], nodes: Iterable[bytes]) -> str:
    """Which nodes and owners a node knows."""
    node = session.node
    others = set(nodes) - {node.routing_id}
    if set(node.peers) != others or len(node.peers) != len(others):
        return f"is connected to {_ids(node.peers)}, not to {_ids(others)}"
    if node.topics != owners:
        missing = sorted(owners.items() - node.topics.items())
        surplus = sorted(node.topics.items() - owners.items())
        return f"knows {surplus}, which is wrong, and not {missing}"
    owned = sorted(topic for topic, owner in owners.items() if owner == node.routing_id)
    if sorted(node.owned) != owned:
        return f"owns {sorted(node.owned)}, and its spots {owned}"
    return ""


def _wanted(session: NodeRun, owners: Iterable[str]) -> dict[str, int]:
    """How many subscriptions of the node match each topic: owned topics, and those named exactly.

    Patterns may remember others that had an owner once.
    """
    texts = Counter(one.text for spot in session.spots for one in spot.subscriptions)
    topics = {*owners, *session.node.wanted, *(text for text in texts if not text.endswith("*"))}
    wanted = {topic: sum(count for text, count in texts.items() if matches(text, topic)) for topic in topics}
    return {topic: count for topic, count in wanted.items() if count}


def _subscribed(session: NodeRun, owners: dict[str, bytes], wanted: dict[bytes, dict[str, int]]) -> str:
    """Who receives what: reference counts, the owner's subscribers, the states of subscriptions."""
    node = session.node
    if node.wanted != wanted[node.routing_id]:
        return f"wants {node.wanted}, and its spots {wanted[node.routing_id]}"
    for topic in node.owned:
        expected = {peer for peer, topics in wanted.items() if topic in topics} - {node.routing_id}
        if set(node.subscribers(topic)) != expected:
            return f"gives {topic} to {_ids(node.subscribers(topic))}, not to {_ids(expected)}"
    for spot in session.spots:
        for one in spot.subscriptions:
            active = {topic for topic in owners if matches(one.text, topic)}
            state = SubscriptionState.ACTIVE if active else SubscriptionState.PENDING
            states = dict.fromkeys(active, SubscriptionState.ACTIVE)
            unowned = [topic for topic in one.topics if topic not in owners] if one.is_pattern else [one.text]
            if not active or one.is_pattern:
                states |= dict.fromkeys(unowned, SubscriptionState.PENDING)
            if one.state is not state or one.topics != states:
                return f"has {one.text} in {spot.name} {one.state}: {one.topics}, not {state}: {states}"
    return ""


def _surplus_connections(cast: Cast) -> str:
    """A pair of nodes shares one connection."""
    network, hosts = cast.world.network, cast.world.hosts
    ends = {name: network.open_ends(hosts[name].life) for name in cast.nodes}
    for one, other in combinations(cast.nodes, 2):
        # The accepting end is named after the dialler.
        count = sum(f" to {other}#" in end for end in ends[one])
        count += sum(f" to {one}#" in end for end in ends[other])
        if count != 1:
            return f"{one} and {other} share {count} connections"
    return ""


def _ids(peers: Iterable[bytes]) -> str:
    return ", ".join(format_id(peer) for peer in sorted(peers)) or "nobody"
