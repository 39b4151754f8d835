"""How large a trial of "scale" is in each of its steps, for the conductor and the workers alike."""

from bench.case import Case
from hansa.limits import (
    BROADCAST_PAUSE_S_MAX,
    BROADCAST_PAUSE_S_MIN,
    BROADCAST_PAUSE_S_PER_ENTRY,
    HEARTBEAT_INTERVAL_S,
)

BURST_COUNT = 1_000
BEATS_COUNT = 20_000
STEADY_S = HEARTBEAT_INTERVAL_S
"""One whole interval: connections ping as often, and not evenly."""


def providers_per_service(case: Case) -> int:
    """Ten, or all in one."""
    return case.width if case.kind == "single" else 10


def pause_s(providers_count: int) -> float:
    """How long a registry waits between two lists, and a little more."""
    pause = BROADCAST_PAUSE_S_MIN + providers_count * BROADCAST_PAUSE_S_PER_ENTRY
    return min(BROADCAST_PAUSE_S_MAX, pause) * 1.05 + 0.01


def repeat_s(providers_count: int) -> float:
    """How often an unchanged list is told by the quiet registry: never while changes come one by one."""
    return max(0.1, 2 * pause_s(providers_count))


def repeats_watched_s(providers_count: int) -> float:
    """How long unchanged lists are watched: long enough for a few."""
    return max(1.0, 3.2 * repeat_s(providers_count))


def changes_count(providers_count: int) -> int:
    """Changes made one by one, fewer where each has to wait for a long pause."""
    return 20 if providers_count <= 1_000 else 8


def beats_per_s(providers_count: int) -> float:
    """The heartbeats of so many providers."""
    return providers_count / HEARTBEAT_INTERVAL_S
