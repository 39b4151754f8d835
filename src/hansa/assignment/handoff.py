"""What a worker leaves behind of a partition for whoever has it next: the value, and where it stands. 

(The store's side is being written: `Handoffs`.)
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """How far a partition's work is. All of it is the user's own; hansa goes by `last_offset` alone.

    `checkpoint` names a place in what comes from upstream. `state` is that of the steps of the work.
    `last_offset` is the last one that `state` has in it, -1 for none: reading goes on behind it. `processed_at`
    is the wall time of the last message that was processed, for display. `resources` are those that the
    partition had then.
    """

    checkpoint: str = ""
    state: bytes = b""
    last_offset: int = -1
    processed_at: float = 0.0
    resources: tuple[str, ...] = ()

    @property
    def next_offset(self) -> int:
        """Where to read on."""
        return self.last_offset + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHandoff:
    """A handoff as it stands in the store: who saved it, in which epoch and generation, and when.

    `epoch` is that of the claim it was saved under, `generation` that of the Kafka group, 0 without Kafka.
    `saved_at` is a wall time, for display. `size` is how many bytes it takes in the store.
    """

    handoff: Handoff
    node: str
    epoch: int
    generation: int = 0
    saved_at: float = 0.0
    size: int = 0
    revision: int = field(default=0, compare=False)
