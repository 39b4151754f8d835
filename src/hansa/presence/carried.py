"""The list of a registry that has just started, completed with the entries that it had before. Pure.

Such a registry is *settling*: its providers are still on their way back. An entry that it listed before and
does not list yet is therefore kept, marked as orphaned, until the registry says that it has settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hansa.wire.listing import ProviderEntry, RegistrySync, ServiceList

Services = Mapping[str, tuple[ProviderEntry, ...]]


def carried(former: Services, message: ServiceList | RegistrySync) -> Services:
    """The list of a registry that is settling, with what it held before and has not again: orphaned.

    Except for what it says was removed: when its tombstone has gone, such a claim would come back to life.
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
