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
SUBSCRIBED_COUNTS: Final = (1, 10, 100, 1_000)

Shares = tuple[tuple[str, float, float], ...]


def frames_bytes(*bodies: int) -> int:
    """Short frames of these sizes, with their headers."""
    return sum(2 + body for body in bodies)


# A tag, then flags, a count and a digest; flags; flags, an epoch and a sequence.
_ASKED_BYTES: Final = 4 + 1 + 4 + 8
_ANSWERED_BYTES: Final = 4 + 1
_MARK_BYTES: Final = 4 + 1 + 8 + 8

GREETING_BYTES: Final = 64
# A command's name, then each property's name and value behind one and four bytes for their lengths.
READY_BYTES: Final = frames_bytes(6 + (1 + 11 + 4 + 6) + (1 + 8 + 4 + ID_BYTES))
# The name, a time to live, and the number of messages sent before; the answer gives that number back.
PING_BYTES: Final = frames_bytes(5 + 2 + 8)
PONG_BYTES: Final = frames_bytes(5 + 8)
QUERY_BYTES: Final = frames_bytes(1, _ASKED_BYTES)
UNCHANGED_BYTES: Final = frames_bytes(1, 4, _ANSWERED_BYTES)


def answer_bytes(topics_count: float, topic_bytes: int) -> float:
    """An answer that names so many topics; without any it is as long as the one that says unchanged."""
    return UNCHANGED_BYTES + topics_count * frames_bytes(topic_bytes)


def marked_bytes(topic_bytes: int) -> int:
    """TOPIC_ANNOUNCE and TOPIC_REMOVE, which say how far the owner has come."""
    return frames_bytes(1, topic_bytes, _MARK_BYTES)


def asking_bytes(topic_bytes: int) -> int:
    """SUBSCRIBE and UNSUBSCRIBE."""
    return frames_bytes(1, topic_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A mesh in which topic i belongs to node i modulo N. "The node" is the one in the middle."""

    nodes_count: int
    topics_count: int
    topic_bytes: int = TOPIC_BYTES
    heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S
    query_interval_s: float = QUERY_INTERVAL_S

    @property
    def number(self) -> int:
        """The node's."""
        return self.nodes_count // 2

    def owned_count(self, node: int, below: int | None = None) -> int:
        """How many topics a node owns, of all or of those with a number below this one."""
        topics_count = self.topics_count if below is None else min(below, self.topics_count)
        return len(range(node, topics_count, self.nodes_count))

    def steady(self) -> Traffic:
        """In a second."""
        peers_count = self.nodes_count - 1
        beats, queries = peers_count / self.heartbeat_interval_s, peers_count / self.query_interval_s
        flow = Flow.of(
            (
                (PING, beats, PING_BYTES),
                (PONG, beats, PONG_BYTES),
                (QUERY, queries, QUERY_BYTES),
                (UNCHANGED, queries, UNCHANGED_BYTES),
            )
        )
        return Traffic(flow, flow)

    def changes(self) -> dict[str, Traffic]:
        """Of each change what it costs the node. `elsewhere` and `other` are what another node does."""
        others_count, own_count = self.nodes_count - 1, self.owned_count(self.number)
        marked = marked_bytes(self.topic_bytes)
        confirming = ((PONG, 1, PONG_BYTES),)
        costs = {
            "join": self._join(),
            "create": _traffic(sent=((ANNOUNCE, others_count, marked),)),
            "destroy": _traffic(sent=((REMOVE, others_count, marked),)),
            "create elsewhere": _traffic(received=((ANNOUNCE, 1, marked),)),
            "destroy elsewhere": _traffic(received=((REMOVE, 1, marked),)),
            # It owns nothing yet.
            "other joins": _traffic(
                sent=(*_opening(1), *self._answers(own_count, 1)),
                received=(*_opening(1), (UNCHANGED, 1, UNCHANGED_BYTES)),
            ),
            # Its connection says so, and nobody need be told.
            "other is lost": _traffic(),
            # Node 0 takes its topics back, and asks whether that was read.
            "other leaves": _traffic(
                sent=confirming, received=((REMOVE, self.owned_count(0), marked), (PING, 1, PING_BYTES))
            ),
            "leave": _traffic(
                sent=((REMOVE, own_count * others_count, marked), (PING, others_count, PING_BYTES)),
                received=((PONG, others_count, PONG_BYTES),),
            ),
        }
        for count in SUBSCRIBED_COUNTS:
            if count <= self.topics_count:
                costs |= self._subscribing(count)
        return costs

    def _join(self) -> Traffic:
        """It connects to all, tells what it owns, and hears what they own."""
        others_count, own_count = self.nodes_count - 1, self.owned_count(self.number)
        owners_count = min(self.topics_count, self.nodes_count) - (1 if own_count else 0)
        told_count = (self.topics_count - own_count) / max(owners_count, 1)
        return _traffic(
            sent=(*_opening(others_count), *self._answers(own_count, others_count)),
            received=(
                *_opening(others_count),
                *self._answers(told_count, owners_count),
                *self._answers(0, others_count - owners_count),
            ),
        )

    def _subscribing(self, count: int) -> dict[str, Traffic]:
        """The first so many topics; only those of other nodes cost anything."""
        theirs_count = count - self.owned_count(self.number, count)
        asking, marked = asking_bytes(self.topic_bytes), marked_bytes(self.topic_bytes)
        return {
            f"subscribe {count}": _traffic(
                sent=((SUBSCRIBE, theirs_count, asking),), received=((CONFIRM, theirs_count, marked),)
            ),
            f"unsubscribe {count}": _traffic(sent=((UNSUBSCRIBE, theirs_count, asking),)),
        }

    def _answers(self, topics_count: float, count: float) -> Shares:
        """To a first QUERY, which knows of no topic: who has none says that this is right."""
        kind = ANSWER if topics_count else UNCHANGED
        return ((kind, count, answer_bytes(topics_count, self.topic_bytes)),)


def _opening(connections_count: int) -> Shares:
    """What both sides of new connections say first."""
    return (
        (GREETING, connections_count, GREETING_BYTES),
        (READY, connections_count, READY_BYTES),
        (QUERY, connections_count, QUERY_BYTES),
    )


def _traffic(*, sent: Shares = (), received: Shares = ()) -> Traffic:
    return Traffic(Flow.of(sent), Flow.of(received))
