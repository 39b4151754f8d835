"""What a gateway has counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStats:
    """A snapshot. Every request of `requests_count` is replied, failed (by code), abandoned or in flight.

    An abandoned request is one whose caller was cancelled. A late reply belongs to no request that is open; a
    stray one came from another provider than the one that was asked. `moved_count` counts tries that were
    certainly not started and went on to another provider, `retried_count` those of idempotent requests.
    `hedged_count` counts tries of idempotent requests beside one that took too long; the answer that came
    second counts as late. `withheld_count` requests would have had one, had the budget allowed it at once.
    `suspected_count` providers took too long and have not answered since: others get their requests.
    `services_count` services have a socket: those that somebody offers, and those that somebody waits for.
    `impostors_count` connections were answered by somebody else than the provider that is listed there;
    `bad_endpoints_count` providers are listed at an endpoint that cannot be dialled from here.
    """

    requests_count: int
    replied_count: int
    abandoned_count: int
    failed: dict[str, int]
    late_replies_count: int
    stray_replies_count: int
    moved_count: int
    retried_count: int
    hedged_count: int
    withheld_count: int
    suspected_count: int
    impostors_count: int
    bad_endpoints_count: int
    in_flight_count: int
    parked_count: int
    completions_count: int
    services_count: int
    connections_count: int
    bad_frames: dict[str, int]
    expelled_count: int


@dataclass(slots=True, kw_only=True)
class GatewayTally:
    """Running counts."""

    requests_count: int = 0
    replied_count: int = 0
    abandoned_count: int = 0
    late_replies_count: int = 0
    stray_replies_count: int = 0
    moved_count: int = 0
    retried_count: int = 0
    hedged_count: int = 0
    withheld_count: int = 0
    impostors_count: int = 0
    bad_endpoints_count: int = 0
    failed: Counter[str] = field(default_factory=Counter)
