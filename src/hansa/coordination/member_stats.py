"""The numbers of one process's view of a cluster."""

from dataclasses import dataclass

__all__ = ["MembersStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersStats:
    """Counts since the view was opened, and what is so now."""

    here_count: int
    """Members that are neither down nor left."""
    up_count: int
    suspect_count: int
    heartbeat_age_s: float
    """How long ago this process's own lease was renewed, and the longest that this ever was."""
    heartbeat_age_s_max: float
    store_latency_s: float
    """How long the store took to answer the last look, and the longest so far."""
    store_latency_s_max: float
    suspicions_count: int
    """Members that this process was the first to suspect."""
    false_suspicions_count: int
    """Suspicions, by anybody, that a heartbeat refuted."""
    downs_count: int
    rejoins_count: int
    """How often this process had to join again."""
    store_errors_count: int
    loop_lag_s: float
    loop_lag_s_max: float
    bad_records_count: int
    forgotten_count: int
    """Members that were gone for long, or too many, and are in the roster no more."""
    events_dropped_count: int
    """Events that readers of `events` were too slow for."""
