"""Epochs: which of several words about one entry was said last.

The wall clock in milliseconds, shifted left. So an epoch grows with time, even from one process to the next,
and says when its claim was made.
"""

from __future__ import annotations

from typing import Final

# An epoch travels as a u64.
EPOCH_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF
# Room for 65,536 changes of one key within a millisecond.
_SHIFT: Final = 16


def first_epoch(wall_ms: int) -> int:
    """The lowest epoch of a claim or a list made at this time."""
    return wall_ms << _SHIFT


def epoch_wall_s(epoch: int) -> float:
    """When a claim of this epoch was made, in wall seconds; 0.0 for none."""
    return (epoch >> _SHIFT) / 1000
