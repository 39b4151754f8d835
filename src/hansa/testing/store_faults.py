"""What goes wrong between a store and its users: drawn so that leases are lost, and almost lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hansa.chance import Chance
from hansa.testing.faults import Crash, Cut, Fault, FaultPlan, Pause, Refusal, Rewind, SlowLink, Stop

FAULTS_MAX = 20
REWINDS_MAX = 2
# The store goes back in so many of all seeds: there less can be said of what is true.
REWIND_PROBABILITY = 0.25
# Most of the trouble is that of one client: all suffer alike when the store does.
STORE_PROBABILITY = 0.2


def draw_store_plan(
    chance: Chance,
    clients: Sequence[str],
    store: str,
    *,
    chaos_s: float,
    ttl_s: float,
    begins_s: float = 0.0,
) -> FaultPlan:
    """A plan for a store whose clients have leases of so long. Each seed uses some kinds of faults only."""
    kinds = [kind for kind in _KINDS if chance.flip(0.6)]
    if not kinds:
        return ()
    faults = []
    for _ in range(chance.below(FAULTS_MAX + 1)):
        at_s = chance.uniform(begins_s, chaos_s)
        # Within what a lease forgives, about as long as it lasts, and longer than everything.
        lasting_s = chance.uniform(0.0, chance.choose((0.6, 1.5, 4.0)) * ttl_s)
        is_of_store = chance.flip(STORE_PROBABILITY)
        kind, client = chance.choose(kinds), chance.choose(clients)
        faults.append(_drawn(kind, chance, at_s, lasting_s, client, store, is_of_store=is_of_store))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def draw_rewinds(chance: Chance, store: str, *, chaos_s: float, ttl_s: float) -> FaultPlan:
    """In some seeds the store goes back, once or twice: by a moment, or by more than a lease lasts."""
    if not chance.flip(REWIND_PROBABILITY):
        return ()
    rewinds = []
    for _ in range(1 + chance.below(REWINDS_MAX)):
        lasting_s = chance.uniform(0.0, chance.choose((0.3, 1.5, 4.0)) * ttl_s)
        rewinds.append(
            Rewind(at_s=chance.uniform(0.0, max(chaos_s - lasting_s, 0.0)), lasting_s=lasting_s, host=store)
        )
    return tuple(sorted(rewinds, key=lambda rewind: rewind.at_s))


def _drawn(
    kind: Callable[..., Fault],
    chance: Chance,
    at_s: float,
    lasting_s: float,
    client: str,
    store: str,
    *,
    is_of_store: bool,
) -> Fault:
    if kind is Cut or kind is SlowLink:
        source, target = (client, store) if chance.flip(0.5) else (store, client)
        if kind is Cut:
            both_ways = chance.flip(0.5)
            return Cut(at_s=at_s, lasting_s=lasting_s, source=source, target=target, both_ways=both_ways)
        rate = chance.choose((100.0, 400.0, 2_000.0))
        return SlowLink(at_s=at_s, lasting_s=lasting_s, source=source, target=target, bytes_per_s=rate)
    host = store if is_of_store or kind is Refusal else client
    if kind is Crash:
        return Crash(at_s=at_s, lasting_s=lasting_s, host=host, silent=chance.flip(0.4))
    return kind(at_s=at_s, lasting_s=lasting_s, host=host)


_KINDS: tuple[Callable[..., Fault], ...] = (Cut, Cut, Pause, Crash, Stop, SlowLink, Refusal)
