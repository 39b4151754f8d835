"""What a node has counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class MeshTally:
    """Running counts of the machine."""

    queries_count: int = 0
    conflicts_count: int = 0
    demotions_count: int = 0
    missed_count: int = 0
    duplicates_count: int = 0
    unwanted_count: int = 0
    refused_count: int = 0
    subscribes_refused_count: int = 0
    publishes_refused_count: int = 0
    publishes_in_doubt_count: int = 0
    unlisted_count: int = 0
    strangers_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotStats:
    """A snapshot of a node.

    Of its own topics: `published_count` messages, of which subscribed nodes missed `dropped_count` because
    their outboxes were full. Here `delivered_count` messages were given to subscriptions, whose inboxes
    dropped `inbox_dropped_count`; `missed_count` were lost on their way here. `refused_count` publishes of
    others were for topics that are not ours, `publishes_refused_count` and `publishes_in_doubt_count` are
    our own that an owner refused or may not have got. `taken_over_count` connections were replaced by
    another one of the same id; if it keeps growing, two nodes have one id. `unwanted_count` messages came
    for nobody, as after an unsubscribe; `duplicates_count` came twice. `bad_frames` counts by reason what
    made no sense. `unlisted_count` peers were let go, or not let in, because they are not listed (any more)
    or this node has unregistered; `strangers_count` because they do not speak as nodes do.
    """

    spots_count: int
    subscriptions_count: int
    peers_count: int
    topics_count: int
    owned_count: int
    published_count: int
    dropped_count: int
    delivered_count: int
    inbox_dropped_count: int
    missed_count: int
    duplicates_count: int
    unwanted_count: int
    conflicts_count: int
    demotions_count: int
    refused_count: int
    subscribes_refused_count: int
    publishes_refused_count: int
    publishes_in_doubt_count: int
    queries_count: int
    unlisted_count: int
    strangers_count: int
    bad_frames: dict[str, int]
    expelled_count: int
    taken_over_count: int
    events_dropped_count: int
    failovers_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """One topic, as its owner tells it; None where the owner is not a node of hansa's.

    `subscribers_count` counts nodes, and at the owner's node each spot.
    """

    topic: str
    owner: bytes
    subscribers_count: int | None
    published_count: int | None
    dropped_count: int | None
