"""What goes over a node's connections in one direction, by kind: as it was counted, or as it is predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

GREETING: Final = "greeting"
READY: Final = "READY"
PING: Final = "PING"
PONG: Final = "PONG"
QUERY: Final = "QUERY"
ANSWER: Final = "QUERY_RESP"
UNCHANGED: Final = "QUERY_RESP, unchanged"
ANNOUNCE: Final = "TOPIC_ANNOUNCE"
CONFIRM: Final = "TOPIC_ANNOUNCE, confirming"
REMOVE: Final = "TOPIC_REMOVE"
SUBSCRIBE: Final = "SUBSCRIBE"
UNSUBSCRIBE: Final = "UNSUBSCRIBE"

# What ZMTP says by itself; all else is messages.
COMMANDS: Final = frozenset((GREETING, READY, PING, PONG))


@dataclass(frozen=True, slots=True)
class Share:
    """So many of one kind, and their bytes on the wire: headers of frames included, those of TCP not."""

    count: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Flow:
    """Kinds that do not occur are not in it, so that equal flows are equal."""

    by_kind: Mapping[str, Share]

    @classmethod
    def of(cls, shares: Iterable[tuple[str, float, float]]) -> Flow:
        """From kinds, counts, and the bytes of one; the same kind may come several times."""
        by_kind: dict[str, Share] = {}
        for kind, count, one_bytes in shares:
            before = by_kind.get(kind, Share(0, 0))
            by_kind[kind] = Share(before.count + count, before.size_bytes + count * one_bytes)
        return cls({kind: share for kind, share in by_kind.items() if share.count})

    @property
    def messages_count(self) -> float:
        return sum(share.count for kind, share in self.by_kind.items() if kind not in COMMANDS)

    @property
    def commands_count(self) -> float:
        return sum(share.count for kind, share in self.by_kind.items() if kind in COMMANDS)

    @property
    def size_bytes(self) -> float:
        return sum(share.size_bytes for share in self.by_kind.values())

    def since(self, before: Flow) -> Flow:
        """What came on top of an earlier count."""
        nothing = Share(0, 0)
        grown = {
            kind: Share(
                share.count - before.by_kind.get(kind, nothing).count,
                share.size_bytes - before.by_kind.get(kind, nothing).size_bytes,
            )
            for kind, share in self.by_kind.items()
        }
        return Flow({kind: share for kind, share in grown.items() if share.count})

    def times(self, factor: float) -> Flow:
        return Flow(
            {
                kind: Share(share.count * factor, share.size_bytes * factor)
                for kind, share in self.by_kind.items()
            }
        )

    def as_json(self) -> dict[str, list[float]]:
        return {kind: [share.count, share.size_bytes] for kind, share in sorted(self.by_kind.items())}

    @classmethod
    def from_json(cls, written: Mapping[str, tuple[float, float]]) -> Flow:
        return cls({kind: Share(count, size_bytes) for kind, (count, size_bytes) in written.items()})


@dataclass(frozen=True, slots=True)
class Traffic:
    """Both directions of one node."""

    sent: Flow
    received: Flow

    def since(self, before: Traffic) -> Traffic:
        return Traffic(self.sent.since(before.sent), self.received.since(before.received))

    def times(self, factor: float) -> Traffic:
        return Traffic(self.sent.times(factor), self.received.times(factor))

    def as_json(self) -> dict[str, Any]:
        return {"sent": self.sent.as_json(), "received": self.received.as_json()}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Traffic:
        return cls(Flow.from_json(written["sent"]), Flow.from_json(written["received"]))
