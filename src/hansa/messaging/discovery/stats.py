"""What a discovery has counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryStats:
    """A snapshot. Of the lists that arrived, `lists_count` were applied.

    `lists_older_count` were older than what the same registry had said before and `lists_repeated_count` the
    same once more: both change nothing. `refused` counts messages that were no list, by reason.
    `events_dropped_count` events found an iterator full, and its oldest event went. `services_count` and
    `providers_count` are what is known now, subscribed or not.
    """

    lists_count: int
    lists_older_count: int
    lists_repeated_count: int
    refused: dict[str, int]
    events_count: int
    events_dropped_count: int
    listener_failures_count: int
    listeners_count: int
    registries_count: int
    services_count: int
    providers_count: int
