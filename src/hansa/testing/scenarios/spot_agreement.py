"""What all nodes of a mesh must agree on when nothing happens any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

from hansa.ids import format_id
from hansa.messaging.spot.events import SubscriptionState
from hansa.messaging.spot.names import SERVICE
from hansa.testing.scenarios.spot_cast import Cast, Session

__all__ = ["disagreement"]


def disagreement(cast: Cast) -> str:
    """The first thing that is not yet as it must be in the end, or nothing."""
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


def _unlisted(cast: Cast, sessions: list[Session]) -> str:
    """Registries and discoveries show exactly the nodes there are; before, the mesh cannot rest."""
    nodes = {session.node.routing_id for session in sessions}
    shown = {name: registry.services for name, registry in cast.keepers.items()}
    shown |= {session.discovery.name: session.discovery.services for session in sessions}
    for name, services in shown.items():
        listed = {one.routing_id for one in services.get(SERVICE, ())}
        if listed != nodes:
            return f"{name} lists {_ids(listed)}, not {_ids(nodes)}"
    return ""


def _known(session: Session, owners: dict[str, bytes], nodes: Iterable[bytes]) -> str:
    """Whom and what a node knows."""
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


def _wanted(session: Session, owners: Iterable[str]) -> dict[str, int]:
    """How many subscriptions of the node match each topic: those that are owned, and those named exactly.

    Patterns may remember others that had an owner once.
    """
    texts = Counter(one.text for spot in session.spots for one in spot.subscriptions)
    topics = {*owners, *session.node.wanted, *(text for text in texts if not text.endswith("*"))}
    wanted = {topic: sum(count for text, count in texts.items() if _matches(text, topic)) for topic in topics}
    return {topic: count for topic, count in wanted.items() if count}


def _subscribed(session: Session, owners: dict[str, bytes], wanted: dict[bytes, dict[str, int]]) -> str:
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
            active = {topic for topic in owners if _matches(one.text, topic)}
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
        # The accepting end is named by who dialled it.
        count = sum(f" to {other}#" in end for end in ends[one])
        count += sum(f" to {one}#" in end for end in ends[other])
        if count != 1:
            return f"{one} and {other} share {count} connections"
    return ""


def _matches(text: str, topic: str) -> bool:
    return topic.startswith(text[:-1]) if text.endswith("*") else topic == text


def _ids(peers: Iterable[bytes]) -> str:
    return ", ".join(format_id(peer) for peer in sorted(peers)) or "nobody"
