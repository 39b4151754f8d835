"""How often a provider says that it is alive: a registry and its providers go by the same rule. Pure."""

from __future__ import annotations

from hansa.limits import BEAT_S_MIN, BEATS_PER_TIMEOUT, HEARTBEAT_INTERVAL_S


def beat_s(timeout_s: float, interval_s: float = HEARTBEAT_INTERVAL_S) -> float:
    """The time between two heartbeats for a registry with this timeout: no longer than the interval."""
    return min(interval_s, max(timeout_s / BEATS_PER_TIMEOUT, BEAT_S_MIN))
