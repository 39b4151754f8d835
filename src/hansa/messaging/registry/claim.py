"""Who is behind a key, when several registries say different things.

A claim says that a provider offers a service at an endpoint. The key (service, endpoint) may have several:
the provider has moved from one registry to another, a restarted one came under a new routing id, or two
processes took the same endpoint while their registries could not hear each other. Every registry decides by
the same rule, so that all who know the same claims show the same entry:

- a claim up to the key's tombstone is dead;
- of one provider (one routing id) the highest epoch counts: it has moved;
- of several providers a living one beats an orphaned one; of living ones the first to come stays (the lowest
  epoch), of orphaned ones the last to come is the likeliest to return (the highest epoch);
- the rest is settled by the lower registry id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from hansa.wire.listing import ProviderEntry

Key: TypeAlias = tuple[str, str]
"""Service name and advertised endpoint, in its canonical spelling."""


class Claim(NamedTuple):
    """A provider's entry and the registry that says so. Living: neither of the two is away."""

    entry: ProviderEntry
    registry_id: int
    is_alive: bool


def newest_by_id(claims: Iterable[Claim], dead_epoch: int) -> dict[bytes, Claim]:
    """Of each provider the claim that counts, by its routing id."""
    newest: dict[bytes, Claim] = {}
    for claim in claims:
        if claim.entry.epoch <= dead_epoch:
            continue
        known = newest.get(claim.entry.routing_id)
        if known is None or _novelty(claim) > _novelty(known):
            newest[claim.entry.routing_id] = claim
    return newest


def prevailing(newest: Mapping[bytes, Claim]) -> Claim | None:
    """The claim that everybody shows, of those that `newest_by_id` gave."""
    return min(newest.values(), key=_rank, default=None)


def _novelty(claim: Claim) -> tuple[int, bool, int]:
    return claim.entry.epoch, claim.is_alive, -claim.registry_id


def _rank(claim: Claim) -> tuple[bool, int, int]:
    epoch = claim.entry.epoch
    return not claim.is_alive, epoch if claim.is_alive else -epoch, claim.registry_id
