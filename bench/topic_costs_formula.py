"""What the ROUTER mesh costs a node, from the protocol alone: nothing here runs it.

N nodes own T topics of L bytes, spread evenly. A node has N - 1 connections, each of which carries, in either
direction:

    always       PING and PONG every heartbeat interval, QUERY and its short answer every query interval
    at its start greeting, READY, QUERY, and an answer that names all topics of the side that is asked
    on a change  TOPIC_ANNOUNCE or TOPIC_REMOVE to each connected node
    on demand    SUBSCRIBE to a matching topic's owner, and the owner's confirmation

Nothing that repeats names a topic: in the steady state T does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.topic_costs_flow import (
    ANNOUNCE,
    ANSWER,
    CONFIRM,
    GREETING,
    PING,
    PONG,
    QUERY,
    READY,
    REMOVE,
    SUBSCRIBE,
    UNCHANGED,
    UNSUBSCRIBE,
    Flow,
    Traffic,
)
from hansa.limits import HEARTBEAT_INTERVAL_S, QUERY_INTERVAL_S

TOPIC_BYTES: Final = len("topic:000000")
ID_BYTES: Final = 5
_NOTHING: Final = Flow({})


def frames_bytes(*bodies: int) -> int:
    """Short frames of these sizes with their headers."""
    return sum(2 + body for body in bodies)


# A tag, then flags, a count and a digest; flags; flags, an epoch and a sequence.
_ASKED_BYTES: Final = 4 + 1 + 4 + 8
_ANSWERED_BYTES: Final = 4 + 1
_MARK_BYTES: Final = 4 + 1 + 8 + 8

GREETING_BYTES: Final = 64
# A command's name; of each property its name and value, with one and four bytes for their lengths.
READY_BYTES: Final = frames_bytes(6 + (1 + 11 + 4 + 6) + (1 + 8 + 4 + ID_BYTES))
# The name, a time to live, and the number of messages sent before.
PING_BYTES: Final = frames_bytes(5 + 2 + 8)
PONG_BYTES: Final = frames_bytes(5 + 8)
QUERY_BYTES: Final = frames_bytes(1, _ASKED_BYTES)
UNCHANGED_BYTES: Final = frames_bytes(1, 4, _ANSWERED_BYTES)


def answer_bytes(topics_count: int, topic_bytes: int) -> int:
    """An answer that names so many topics; without any it is the short one."""
    return UNCHANGED_BYTES + topics_count * frames_bytes(topic_bytes)


def marked_bytes(topic_bytes: int) -> int:
    """TOPIC_ANNOUNCE and TOPIC_REMOVE, which say how far the owner has come."""
    return frames_bytes(1, topic_bytes, _MARK_BYTES)


def asking_bytes(topic_bytes: int) -> int:
    """SUBSCRIBE and UNSUBSCRIBE."""
    return frames_bytes(1, topic_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Topic i belongs to node i modulo N; what is said of a node is said of the one in the middle."""

    nodes_count: int
    topics_count: int
    topic_bytes: int = TOPIC_BYTES
    heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S
    query_interval_s: float = QUERY_INTERVAL_S

    @property
    def number(self) -> int:
        """The node's."""
        return self.nodes_count // 2

    @property
    def peers_count(self) -> int:
        return self.nodes_count - 1

    def owned_count(self, node: int, below: int | None = None) -> int:
        """How many topics a node owns, of all or of those with a number below this one."""
        topics_count = self.topics_count if below is None else min(below, self.topics_count)
        return len(range(node, topics_count, self.nodes_count))

    # -- what each thing costs the node

    def steady(self) -> Traffic:
        """In a second."""
        beats, queries = (
            self.peers_count / self.heartbeat_interval_s,
            self.peers_count / self.query_interval_s,
        )
        return _both_ways(
            (PING, beats, PING_BYTES),
            (PONG, beats, PONG_BYTES),
            (QUERY, queries, QUERY_BYTES),
            (UNCHANGED, queries, UNCHANGED_BYTES),
        )

    def join(self) -> Traffic:
        """It connects to all, with the topics that it owns, and hears theirs."""
        own_count = self.owned_count(self.number)
        owners_count = min(self.topics_count, self.nodes_count) - (1 if own_count else 0)
        told_count = self.topics_count - own_count
        topic_bytes = frames_bytes(self.topic_bytes)
        shaking = _shaking(self.peers_count)
        answers = self._answers(own_count, self.peers_count)
        heard = (
            (UNCHANGED, self.peers_count - owners_count, UNCHANGED_BYTES),
            (ANSWER, owners_count, UNCHANGED_BYTES + topic_bytes * told_count / max(owners_count, 1)),
        )
        return Traffic(Flow.of((*shaking, *answers)), Flow.of((*shaking, *heard)))

    def newcomer(self) -> Traffic:
        """Another node joins, which owns nothing yet."""
        answers = self._answers(self.owned_count(self.number), 1)
        return Traffic(
            Flow.of((*_shaking(1), *answers)), Flow.of((*_shaking(1), (UNCHANGED, 1, UNCHANGED_BYTES)))
        )

    def create(self) -> Traffic:
        """It creates a topic."""
        return Traffic(Flow.of([(ANNOUNCE, self.peers_count, marked_bytes(self.topic_bytes))]), _NOTHING)

    def destroy(self) -> Traffic:
        """It destroys one."""
        return Traffic(Flow.of([(REMOVE, self.peers_count, marked_bytes(self.topic_bytes))]), _NOTHING)

    def create_elsewhere(self) -> Traffic:
        """Another node creates a topic."""
        return Traffic(_NOTHING, Flow.of([(ANNOUNCE, 1, marked_bytes(self.topic_bytes))]))

    def destroy_elsewhere(self) -> Traffic:
        return Traffic(_NOTHING, Flow.of([(REMOVE, 1, marked_bytes(self.topic_bytes))]))

    def subscribe(self, matching_count: int) -> Traffic:
        """It subscribes the topics with a number below this one; only other nodes' cost anything."""
        theirs_count = self._theirs_count(matching_count)
        return Traffic(
            Flow.of([(SUBSCRIBE, theirs_count, asking_bytes(self.topic_bytes))]),
            Flow.of([(CONFIRM, theirs_count, marked_bytes(self.topic_bytes))]),
        )

    def unsubscribe(self, matching_count: int) -> Traffic:
        theirs_count = self._theirs_count(matching_count)
        return Traffic(Flow.of([(UNSUBSCRIBE, theirs_count, asking_bytes(self.topic_bytes))]), _NOTHING)

    def lost(self) -> Traffic:
        """Another node dies. Its connection says so, and nobody need be told."""
        return Traffic(_NOTHING, _NOTHING)

    def left(self) -> Traffic:
        """Node 0 leaves in good order: it takes its topics back, and asks whether that was read."""
        removed = (REMOVE, self.owned_count(0), marked_bytes(self.topic_bytes))
        return Traffic(Flow.of([(PONG, 1, PONG_BYTES)]), Flow.of([removed, (PING, 1, PING_BYTES)]))

    def leave(self, peers_count: int) -> Traffic:
        """It leaves so itself, with so many connections."""
        own_count = self.owned_count(self.number)
        removed = (REMOVE, own_count * peers_count, marked_bytes(self.topic_bytes))
        return Traffic(
            Flow.of([removed, (PING, peers_count, PING_BYTES)]), Flow.of([(PONG, peers_count, PONG_BYTES)])
        )

    # -- small things

    def _answers(self, own_count: int, peers_count: int) -> tuple[tuple[str, float, float]]:
        kind = ANSWER if own_count else UNCHANGED
        return ((kind, peers_count, answer_bytes(own_count, self.topic_bytes)),)

    def _theirs_count(self, matching_count: int) -> int:
        return min(matching_count, self.topics_count) - self.owned_count(self.number, matching_count)


def _shaking(peers_count: int) -> tuple[tuple[str, float, float], ...]:
    """What both sides of a new connection say first."""
    return (
        (GREETING, peers_count, GREETING_BYTES),
        (READY, peers_count, READY_BYTES),
        (QUERY, peers_count, QUERY_BYTES),
    )


def _both_ways(*shares: tuple[str, float, float]) -> Traffic:
    flow = Flow.of(shares)
    return Traffic(flow, flow)
