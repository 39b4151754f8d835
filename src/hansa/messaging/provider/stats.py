"""What a provider has counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStats:
    """Counts since the provider began; `running`, `waiting` and `peers` are those of now.

    Every request that came is one of: replied, failed, busy, draining, expired, abandoned, unknown msgId, a
    bad frame, running or waiting.
    """

    requests_count: int
    replied_count: int
    """Handlers that returned a reply."""
    failed_count: int
    """Handlers that failed or were cancelled; the caller was told."""
    busy_count: int
    draining_count: int
    expired_count: int
    """Never started: the caller's deadline had passed."""
    abandoned_count: int
    """Never started: the caller had left."""
    unknown_msg_id_count: int
    bad_frames: Mapping[str, int]
    """Messages that are no requests, by reason."""
    expelled_count: int
    """Connections ended because of them."""
    replies_dropped_count: int
    """Answers of any kind that nobody took: the caller had left or given up, or does not read."""
    not_reading_count: int
    """Connections ended because the caller did not read: it is told ProviderLost instead of nothing."""
    running_count: int
    waiting_count: int
    peers_count: int
    registrations_count: int
    """Services that a registry accepted for the first time."""
    reregistrations_count: int
    """Services accepted again: after a failover, a registry's restart, or a change."""
    refusals_count: int
    missing_count: int
    """Times a registry did not have an entry that it should have."""
    behind_count: int
    """Times a registry knew a later word about an entry: this machine's clock is behind another's."""
    heartbeats_count: int
    failovers_count: int
    """Times a connected registry was lost."""
    dials_failed_count: int
    unanswered_count: int
    """Times a registry was left because it did not answer."""
    stray_answers_count: int
    """Answers of registries to nothing that was asked."""
    registry_bad_frames_count: int
    """Messages of registries that are none."""
