"""The state that goes from a topic's old owner to the new one, sealed in their hand-over's record. Pure."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from hansa.errors import BadRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """What the new owner needs to go on. `source` is the old owner."""

    source: bytes
    founder: bytes
    epoch: int
    sequence: int
    retain: bool
    latest: bytes | None
    subscribers: tuple[bytes, ...]

    def encode(self) -> bytes:
        """A line of JSON, then the latest retained message, if there is one."""
        head = {
            "source": self.source.hex(),
            "founder": self.founder.hex(),
            "epoch": self.epoch,
            "sequence": self.sequence,
            "retain": self.retain,
            "has_latest": self.latest is not None,
            "subscribers": [peer.hex() for peer in self.subscribers],
        }
        return json.dumps(head).encode() + b"\n" + (self.latest or b"")

    @classmethod
    def decode(cls, value: bytes) -> TopicState:
        """Raises `BadRecord`."""
        head, _, latest = value.partition(b"\n")
        with suppress(ValueError, TypeError, RecursionError):
            match json.loads(head):
                case {
                    "source": str(source),
                    "founder": str(founder),
                    "epoch": int(epoch),
                    "sequence": int(sequence),
                    "retain": bool(retain),
                    "has_latest": bool(has_latest),
                    "subscribers": list(subscribers),
                }:
                    return cls(
                        source=bytes.fromhex(source),
                        founder=bytes.fromhex(founder),
                        epoch=epoch,
                        sequence=sequence,
                        retain=retain,
                        latest=latest if has_latest else None,
                        subscribers=tuple(bytes.fromhex(peer) for peer in subscribers),
                    )
        raise BadRecord(f"the state of a topic that is handed over cannot be {value[:40]!r}")
