"""The entries that were registered here, in the order in which they were last heard."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from hansa.messaging.registry.claim import Key
from hansa.messaging.registry.roster import Roster
from hansa.wire.listing import ProviderEntry


class Holding:
    """An entry and when its provider last stood by it."""

    __slots__ = ("entry", "heard_at")

    def __init__(self, entry: ProviderEntry, heard_at: float) -> None:
        self.entry = entry
        self.heard_at = heard_at


class Holdings:
    """By key and by provider. A heartbeat moves one entry to the end, so the first is the next to expire."""

    def __init__(self, *, timeout_s: float) -> None:
        self.roster = Roster()
        self._timeout_s = timeout_s
        self._by_key: OrderedDict[Key, Holding] = OrderedDict()
        self._keys_by_id: dict[bytes, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Key) -> Holding | None:
        return self._by_key.get(key)

    def keys_of(self, routing_id: bytes) -> list[Key]:
        return list(self._keys_by_id.get(routing_id, ()))

    def count_of(self, routing_id: bytes) -> int:
        return len(self._keys_by_id.get(routing_id, ()))

    def put(self, key: Key, entry: ProviderEntry, now: float) -> None:
        """Enter it as just heard, in place of whatever had this key."""
        if key in self._by_key:
            self.remove(key)
        self._by_key[key] = Holding(entry, now)
        self._keys_by_id.setdefault(entry.routing_id, {})[key] = None
        self.roster.put(key[0], entry)

    def heard(self, key: Key, now: float) -> None:
        self._by_key[key].heard_at = now
        self._by_key.move_to_end(key)

    def reweigh(self, key: Key, weight: int, epoch: int) -> None:
        holding = self._by_key[key]
        holding.entry = replace(holding.entry, weight=weight, epoch=epoch)
        self.roster.put(key[0], holding.entry)

    def set_orphaned(self, key: Key, *, orphaned: bool) -> None:
        holding = self._by_key[key]
        holding.entry = replace(holding.entry, orphaned=orphaned)
        self.roster.put(key[0], holding.entry)

    def remove(self, key: Key) -> ProviderEntry:
        entry = self._by_key.pop(key).entry
        keys = self._keys_by_id[entry.routing_id]
        del keys[key]
        if not keys:
            del self._keys_by_id[entry.routing_id]
        self.roster.remove(*key)
        return entry

    def overdue(self, now: float) -> Key | None:
        """The entry that has been silent for longest, if that is too long."""
        for key, holding in self._by_key.items():
            return key if holding.heard_at + self._timeout_s <= now else None
        return None

    def deadline(self) -> float | None:
        """When the next entry is overdue."""
        for holding in self._by_key.values():
            return holding.heard_at + self._timeout_s
        return None
