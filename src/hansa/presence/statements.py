"""Statements about an entry: which of several count. Pure.

An epoch says which of them was made last: it is the wall clock in milliseconds, shifted left. So epochs grow
with time, even from one process to the next, and each one tells when it was made. A provider stamps its
messages to a registry, and registries use that stamp as the epoch of the entry. The provider's last statement
therefore wins, whichever registry received it and however late it was read.

A registry that has just started is *settling*: its providers are still on their way back, so it means nothing
that it does not list an entry. An entry that it listed before and does not list yet is kept, marked as
orphaned, until the registry says that it has settled (`carried`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hansa.limits import EPOCH_AHEAD_S_MAX
from hansa.wire.listing import ProviderEntry, RegistrySync, ServiceList

# An epoch travels as a u64.
EPOCH_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF
# Room for 65,536 changes of one key within a millisecond.
_SHIFT: Final = 16

# Beyond this there is no room for the stamps that follow.
_STEPPED_OVER_MAX: Final = EPOCH_MAX - 0xFFFF


def first_epoch(wall_ms: int) -> int:
    """The lowest epoch of a claim or a list made at this time."""
    return wall_ms << _SHIFT


def epoch_wall_s(epoch: int) -> float:
    """When a claim of this epoch was made, in wall seconds; 0.0 for none."""
    return (epoch >> _SHIFT) / 1000


class Stamps:
    """Makes stamps: each is higher than the one before, and no lower than the clock."""

    def __init__(self) -> None:
        self._last = 0
        self._known = 0

    def next(self, wall_ms: int) -> int:
        """The stamp of a statement that is made now."""
        # A provider that followed a registry into a far future would be refused by all others.
        is_sane = self._known <= min(first_epoch(wall_ms + EPOCH_AHEAD_S_MAX * 1000), _STEPPED_OVER_MAX)
        self._last = max(self._last + 1, self._known + 1 if is_sane else 0, first_epoch(wall_ms))
        return self._last

    def step_over(self, epoch: int) -> None:
        """Another provider, whose clock is ahead, has used this stamp: the next one is higher."""
        self._known = epoch


Services = Mapping[str, tuple[ProviderEntry, ...]]


def carried(former: Services, message: ServiceList | RegistrySync) -> Services:
    """The list of a settling registry, with the entries that it held before and has not again: orphaned.

    Except entries that it says were removed: without the tombstone such a claim would come back to life.
    """
    services = message.services
    buried = {(stone.service, stone.endpoint): stone.epoch for stone in message.tombstones}
    merged = dict(services)
    for service, entries in former.items():
        told = {entry.endpoint for entry in services.get(service, ())}
        missing = tuple(
            replace(entry, orphaned=True)
            for entry in entries
            if entry.endpoint not in told and entry.epoch > buried.get((service, entry.endpoint), -1)
        )
        if missing:
            merged[service] = (*services.get(service, ()), *missing)
    return merged
