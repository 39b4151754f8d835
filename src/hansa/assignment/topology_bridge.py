"""A bridge that publishes the events of a group on a topic, for nodes that have no store.

`TopologyBridge` publishes the events of an `AssignmentView`, and `bridged_topology` reads them. A bridge may
publish an event more than once (see `EventBridge`). So each event carries the store's revision of its change,
and a reader drops what it has already heard of a partition.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Self

from hansa.assignment.assignments import AssignmentView
from hansa.assignment.handoff import Handoff
from hansa.assignment.topology import KINDS, TopologyEvent
from hansa.coordination.member import from_json
from hansa.errors import BadRecord
from hansa.limits import ARRIVALS_MAX, HANDOFF_INLINE_BYTES_MAX
from hansa.topics.cluster_events import EventBridge
from hansa.topics.node import SpotNode
from hansa.topics.spot import Spot, Subscription
from hansa.transport.environment import Environment

_NAMES: Final = {kind: name for name, kind in KINDS.items()}
# One change is reported first as revoked, or lost, and then as assigned.
_ORDER: Final = {"revoked": 0, "lost": 0, "assigned": 1, "updated": 2, "handoff-failed": 2}


def topology_topic(group: str) -> str:
    """The topic that a group's events are published on, unless another one is named."""
    return f"assignment:{group}:events"


class TopologyBridge(EventBridge[TopologyEvent]):
    """Publishes the events of a group on a topic, for as long as the block: see `EventBridge`.

    An event carries the handoff's state up to 8 KiB; of a larger one it only says how far the work is.
    """

    def __init__(
        self, view: AssignmentView, node: SpotNode, topic: str = "", *, environment: Environment | None = None
    ) -> None:
        super().__init__(
            node,
            topic or topology_topic(view.group),
            open_events=view.events,
            encode=encode_event,
            environment=environment,
        )


async def bridged_topology(spot: Spot, group: str, *, topic: str = "") -> BridgedTopology:
    """The events of a group, read from a topic, on a node that needs no store."""
    return BridgedTopology(await spot.subscribe(topic or topology_topic(group)), group)


class BridgedTopology:
    """An async iterator of the events that a bridge publishes, each once. Made by `bridged_topology`.

    It ends when its spot or subscription is closed. Cancelling a step loses nothing.
    """

    def __init__(self, subscription: Subscription, group: str) -> None:
        self.subscription = subscription
        self._group = group
        # Of each partition, the place of the last event in the order of its events.
        self._places: dict[str, tuple[int, int]] = {}
        self.repeated_count = 0
        """Messages that repeat an earlier one."""
        self.bad_count = 0
        """Messages that are no event of this group."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TopologyEvent:
        async for message in self.subscription:
            try:
                event = decode_event(message.payload)
            except BadRecord:
                self.bad_count += 1
                continue
            if event.group != self._group:
                self.bad_count += 1
                continue
            place = (event.version, _ORDER[_NAMES[type(event)]])
            if place > self._places.get(event.partition, (0, 0)):
                self._places.pop(event.partition, None)
                self._places[event.partition] = place
                if len(self._places) > ARRIVALS_MAX:
                    # An event of the partition that was silent for longest may be told twice.
                    del self._places[next(iter(self._places))]
                return event
            self.repeated_count += 1
        raise StopAsyncIteration

    async def close(self) -> None:
        """Stop listening."""
        await self.subscription.close()


def encode_event(event: TopologyEvent) -> bytes:
    """As JSON, with the handoff's state in base64."""
    handoff = event.handoff
    found: dict[str, Any] = {
        "kind": _NAMES[type(event)],
        "group": event.group,
        "partition": event.partition,
        "node": event.node,
        "epoch": event.epoch,
        "resources": list(event.resources),
        "reason": event.reason,
        "version": event.version,
    }
    if handoff is not None:
        is_small = len(handoff.state) <= HANDOFF_INLINE_BYTES_MAX
        found["handoff"] = {
            "checkpoint": handoff.checkpoint,
            "lastOffset": handoff.last_offset,
            "lastProcessedAt": handoff.processed_at,
            "resources": list(handoff.resources),
            "state": base64.b64encode(handoff.state if is_small else b"").decode(),
        }
    return json.dumps(found, separators=(",", ":")).encode()


def decode_event(payload: bytes) -> TopologyEvent:
    """Raises `BadRecord`."""
    found = from_json(payload, "an event of a group")
    try:
        given = found.get("handoff")
        handoff = None
        if given is not None:
            handoff = Handoff(
                checkpoint=str(given["checkpoint"]),
                state=base64.b64decode(given["state"], validate=True),
                last_offset=int(given["lastOffset"]),
                processed_at=float(given["lastProcessedAt"]),
                resources=tuple(str(each) for each in given["resources"]),
            )
        return KINDS[found["kind"]](
            group=str(found["group"]),
            partition=str(found["partition"]),
            node=str(found["node"]),
            epoch=int(found["epoch"]),
            resources=tuple(str(each) for each in found["resources"]),
            handoff=handoff,
            reason=str(found["reason"]),
            version=int(found["version"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"no event of a group: {error!r:.200}") from error
