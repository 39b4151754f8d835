"""What a registry has counted."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryStats:
    """A snapshot. All counts are since the start, except those of what is there now.

    There now: `direct_count` entries registered here, `synced_count` claims told by peers, `providers_count`
    entries of `services_count` services in the merged list, `tombstones_count`, `broadcast_bytes_count` of
    the last SERVICE_LIST. `left_out_count` entries did not fit into the list when they were told.
    `conceded_count` entries were given up for what a peer said. `stale_lists_count` lists of peers were old
    or repeated, `echoed_lists_count` carried our own id. `answers_dropped_count` answers found no room or
    nobody. `unknown_entries_count` requests to remove or reweigh named no entry of their sender.
    `beyond_share_count` of the `refused_count` were refused because their provider has all that one may have.
    `behind_count` requests came late, or from a clock that is behind, and changed nothing. `bad_frames`
    counts by reason, and a peer that sends too many is expelled. `ended` counts the connections of both
    sockets by the reason of their end, refused ones included.
    """

    registered_count: int = 0
    unregistered_count: int = 0
    expired_count: int = 0
    duplicates_count: int = 0
    refused_count: int = 0
    beyond_share_count: int = 0
    behind_count: int = 0
    heartbeats_count: int = 0
    unknown_heartbeats_count: int = 0
    unknown_entries_count: int = 0
    weight_updates_count: int = 0
    conceded_count: int = 0
    left_out_count: int = 0
    broadcasts_count: int = 0
    broadcast_bytes_count: int = 0
    lists_count: int = 0
    stale_lists_count: int = 0
    echoed_lists_count: int = 0
    registries_evicted_count: int = 0
    tombstones_evicted_count: int = 0
    answers_dropped_count: int = 0
    expelled_count: int = 0
    bad_frames: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    direct_count: int = 0
    synced_count: int = 0
    services_count: int = 0
    providers_count: int = 0
    tombstones_count: int = 0


@dataclass(slots=True, kw_only=True)
class CatalogueTally:
    """The running counts of the catalogue."""

    registered_count: int = 0
    unregistered_count: int = 0
    expired_count: int = 0
    duplicates_count: int = 0
    refused_count: int = 0
    beyond_share_count: int = 0
    behind_count: int = 0
    heartbeats_count: int = 0
    unknown_heartbeats_count: int = 0
    unknown_entries_count: int = 0
    weight_updates_count: int = 0
    conceded_count: int = 0
    left_out_count: int = 0
    echoed_lists_count: int = 0
