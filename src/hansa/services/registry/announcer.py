"""When a registry publishes its lists, and their bytes. Pure.

A change is published at once, unless a list was published just before. Then it waits until a pause is over,
and everything that changed meanwhile goes into one list. The pause grows with the list, so that publishing
takes a small share of the time however much changes. Without changes the list is repeated now and then.

For a while after the start, the lists say that the registry is settling: its providers are still coming back,
and no reader may conclude that a provider which is missing was removed.

When a registry wakes whose process was stopped, all its entries expire, although every provider may be alive.
It delays its next list until living providers had the time to report.

The wire form of each service is kept, and within it that of each provider. A change encodes only its own
entry; the rest of the list is joined from the kept parts.
"""

from __future__ import annotations

from typing import NamedTuple

from hansa.limits import BROADCAST_PAUSE_S_MAX, BROADCAST_PAUSE_S_MIN, BROADCAST_PAUSE_S_PER_ENTRY, WAKING_S
from hansa.services.registry.catalogue import Catalogue
from hansa.services.registry.entries import Entries
from hansa.wire.listing import (
    REGISTRY_SYNC,
    SERVICE_LIST,
    ProviderBlock,
    ServiceBlock,
    encode_block,
    encode_wire,
)


class Announcement(NamedTuple):
    """Both lists of one broadcast in wire form: for discoveries, and for other registries."""

    list_seq: int
    service_list: list[bytes]
    registry_sync: list[bytes]


class Announcer:
    """Decides when the catalogue's lists are published, numbers them and keeps their bytes.

    `list_seq` is the number before the first list's. Nothing is published before there is a reason.
    """

    def __init__(
        self, catalogue: Catalogue, *, interval_s: float, list_seq: int, now: float, settling_s: float = 0.0
    ) -> None:
        self.list_seq = list_seq
        self.latest: Announcement | None = None
        self.announced_count = 0
        self._catalogue = catalogue
        self._interval_s = interval_s
        self._rested_since = now
        self._settling_s = settling_s
        self._settled_at = now + settling_s
        self._is_settling = settling_s > 0.0
        self._held_until: float | None = None
        self._merged = _Blocks(catalogue.merged)
        self._own = _Blocks(catalogue.own)

    @property
    def is_held(self) -> bool:
        return self._held_until is not None

    def deadline(self) -> float:
        """When the next broadcast is due, as things stand; a time in the past means now."""
        if self._held_until is not None:
            return self._held_until
        if not self._catalogue.is_changed:
            repeated_at = self._rested_since + self._interval_s
            return min(repeated_at, self._settled_at) if self._is_settling else repeated_at
        if self.latest is None:
            return self._rested_since
        return self._rested_since + self._pause_s()

    def wake(self, *, now: float) -> None:
        """The process was stopped: publish nothing for a moment, then the lists, and settle as after a start.

        An announcer that already delays its lists does not delay them longer.
        """
        if self._held_until is None:
            self._held_until = now + WAKING_S
        self._settled_at = now + self._settling_s
        self._is_settling = self._settling_s > 0.0

    def announce(self, *, now: float) -> Announcement:
        """The lists as they are now, under the next number."""
        catalogue, tombstones = self._catalogue, self._catalogue.tombstones
        self._held_until = None
        tombstones.told()
        self._rested_since = now
        self._is_settling = now < self._settled_at
        self.list_seq += 1
        self.announced_count += 1
        registry_id, list_seq, settling = catalogue.registry_id, self.list_seq, self._is_settling
        self.latest = Announcement(
            list_seq,
            encode_wire(
                SERVICE_LIST,
                registry_id,
                list_seq,
                self._merged.refreshed(),
                tombstones.all(),
                is_settling=settling,
            ),
            encode_wire(
                REGISTRY_SYNC,
                registry_id,
                list_seq,
                self._own.refreshed(),
                tombstones.own(),
                is_settling=settling,
            ),
        )
        return self.latest

    def _pause_s(self) -> float:
        entries_count = self._catalogue.merged.providers_count + len(self._catalogue.tombstones)
        return min(BROADCAST_PAUSE_S_MAX, BROADCAST_PAUSE_S_MIN + entries_count * BROADCAST_PAUSE_S_PER_ENTRY)


class _Blocks:
    """The services of one list in wire form, in the order of their names."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._blocks: dict[str, ServiceBlock] = {}
        self._providers: dict[str, dict[str, ProviderBlock]] = {}

    def refreshed(self) -> list[ServiceBlock]:
        blocks, has_new = self._blocks, False
        for service in self._entries.take_changed():
            providers = self._entries.providers(service)
            if not providers:
                blocks.pop(service, None)
                self._providers.pop(service, None)
                continue
            has_new = has_new or service not in blocks
            blocks[service] = encode_block(service, providers, self._providers.setdefault(service, {}))
        if has_new:
            blocks = self._blocks = dict(sorted(blocks.items()))
        return list(blocks.values())
