"""The faults of a run, as values: drawn from the seed, played at their time, left out one by one.

A plan is drawn before the run and from its own stream of chance, so that leaving a fault out does not change
the others. That is what makes a failing plan shrinkable. `draw_plan` draws faults between any hosts,
`draw_store_plan` and `draw_rewinds` those between a store and its clients: leases are lost, and almost lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from hansa.chance import Chance
from hansa.testing.world import World

FAULTS_MAX = 12
LASTING_S_MAX = 12.0
STORE_FAULTS_MAX = 20
REWINDS_MAX = 2
# The share of all seeds in which the store goes back: in these less can be said of what is true.
REWIND_PROBABILITY = 0.25
# Most faults between a store and its clients hit one client: all suffer alike when the store does.
STORE_PROBABILITY = 0.2


class Fault(Protocol):
    """Begins at `at_s` of the chaotic phase and ends `lasting_s` later, or with the phase."""

    @property
    def at_s(self) -> float: ...

    @property
    def lasting_s(self) -> float: ...

    def begin(self, world: World) -> bool:
        """Do harm; returns False when there was nothing to harm, and so nothing to end."""

    def end(self, world: World) -> None:
        """Stop doing harm."""


FaultPlan = tuple[Fault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    at_s: float
    lasting_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(_Timed):
    """No bytes get from source to target, nor back unless it is one-way."""

    source: str
    target: str
    both_ways: bool

    def begin(self, world: World) -> bool:
        world.network.cut(self.source, self.target, both_ways=self.both_ways)
        return True

    def end(self, world: World) -> None:
        world.network.heal(self.source, self.target, both_ways=self.both_ways)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(_Timed):
    """The program stops for a while and does not notice."""

    host: str

    def begin(self, world: World) -> bool:
        return world.pause(self.host)

    def end(self, world: World) -> None:
        world.resume(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash(_Timed):
    """The program dies, with its machine if it is silent, and is started again later."""

    host: str
    silent: bool

    def begin(self, world: World) -> bool:
        return world.crash(self.host, silent=self.silent)

    def end(self, world: World) -> None:
        world.restart(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(_Timed):
    """The program is asked to end, does so in good order, and is started again later."""

    host: str

    def begin(self, world: World) -> bool:
        return world.stop(self.host)

    def end(self, world: World) -> None:
        world.restart(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind(_Timed):
    """The host's disk is copied, and later the copy is put back over it: writes in between are lost."""

    host: str

    def begin(self, world: World) -> bool:
        world.hosts[self.host].save()
        return True

    def end(self, world: World) -> None:
        world.resume(self.host)
        world.crash(self.host)
        world.hosts[self.host].go_back()
        world.restart(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(_Timed):
    """All connections of two hosts break at once."""

    a: str
    b: str

    def begin(self, world: World) -> bool:
        world.network.reset(self.a, self.b)
        return False

    def end(self, world: World) -> None:
        """A reset ends at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink(_Timed):
    """The rate from source to target is low."""

    source: str
    target: str
    bytes_per_s: float

    def begin(self, world: World) -> bool:
        world.network.slow(self.source, self.target, bytes_per_s=self.bytes_per_s)
        return True

    def end(self, world: World) -> None:
        world.network.slow(self.source, self.target, bytes_per_s=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(_Timed):
    """The host accepts no new connection. A fault, unlike the refusals of the wire and of a store."""

    host: str

    def begin(self, world: World) -> bool:
        world.network.refuse(self.host, refusing=True)
        return True

    def end(self, world: World) -> None:
        world.network.refuse(self.host, refusing=False)


# The kinds of faults that a plan may use, and the rates of slow links: between any hosts, and around a store.
KINDS: tuple[Callable[..., Fault], ...] = (Cut, Pause, Crash, Stop, Reset, SlowLink, Refusal)
RATES = (100.0, 2_000.0, 50_000.0)
STORE_KINDS: tuple[Callable[..., Fault], ...] = (Cut, Cut, Pause, Crash, Stop, SlowLink, Refusal)
STORE_RATES = (100.0, 400.0, 2_000.0)


def draw_plan(
    chance: Chance,
    hosts: Sequence[str],
    *,
    chaos_s: float,
    begins_s: float = 0.0,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> FaultPlan:
    """A plan for these hosts. Each seed uses some kinds only: some failures need the absence of other faults.

    Faults begin from `begins_s` to `chaos_s`. `pairs` are those whose connections may suffer; by default any
    two.
    """
    kinds = [kind for kind in KINDS if chance.flip(0.6)]
    pairs = list(combinations(hosts, 2)) if pairs is None else pairs
    if not kinds or not pairs:
        return ()
    faults: list[Fault] = []
    for _ in range(chance.below(FAULTS_MAX + 1)):
        at_s = chance.uniform(begins_s, chaos_s)
        # Short faults heal before anything notices, long ones outlast every timeout.
        lasting_s = chance.uniform(0.0, chance.choose((0.2, 2.0, LASTING_S_MAX)))
        kind, pair = chance.choose(kinds), chance.choose(pairs)
        if kind is Reset:
            faults.append(Reset(at_s=at_s, lasting_s=0.0, a=pair[0], b=pair[1]))
        elif kind is Cut or kind is SlowLink:
            faults.append(_between(kind, chance, at_s, lasting_s, pair, RATES))
        else:
            faults.append(_of_host(kind, chance, at_s, lasting_s, chance.choose(hosts)))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def draw_store_plan(
    chance: Chance,
    clients: Sequence[str],
    store: str,
    *,
    chaos_s: float,
    ttl_s: float,
    begins_s: float = 0.0,
) -> FaultPlan:
    """A plan for a store whose clients have leases of `ttl_s`. Each seed uses some kinds of faults only.

    Faults begin from `begins_s` to `chaos_s`.
    """
    kinds = [kind for kind in STORE_KINDS if chance.flip(0.6)]
    if not kinds:
        return ()
    faults: list[Fault] = []
    for _ in range(chance.below(STORE_FAULTS_MAX + 1)):
        at_s = chance.uniform(begins_s, chaos_s)
        # Short enough for a lease to survive, about as long as a lease, or longer than everything.
        lasting_s = chance.uniform(0.0, chance.choose((0.6, 1.5, 4.0)) * ttl_s)
        is_of_store = chance.flip(STORE_PROBABILITY)
        kind, client = chance.choose(kinds), chance.choose(clients)
        if kind is Cut or kind is SlowLink:
            faults.append(_between(kind, chance, at_s, lasting_s, (client, store), STORE_RATES))
        else:
            host = store if is_of_store or kind is Refusal else client
            faults.append(_of_host(kind, chance, at_s, lasting_s, host))
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


def _between(
    kind: Callable[..., Fault],
    chance: Chance,
    at_s: float,
    lasting_s: float,
    pair: tuple[str, str],
    rates: Sequence[float],
) -> Fault:
    """A cut or a slow link between two hosts, in one direction or, for some cuts, in both."""
    source, target = pair if chance.flip(0.5) else pair[::-1]
    if kind is Cut:
        both_ways = chance.flip(0.5)
        return Cut(at_s=at_s, lasting_s=lasting_s, source=source, target=target, both_ways=both_ways)
    rate = chance.choose(rates)
    return SlowLink(at_s=at_s, lasting_s=lasting_s, source=source, target=target, bytes_per_s=rate)


def _of_host(kind: Callable[..., Fault], chance: Chance, at_s: float, lasting_s: float, host: str) -> Fault:
    """A fault of one host."""
    if kind is Crash:
        return Crash(at_s=at_s, lasting_s=lasting_s, host=host, silent=chance.flip(0.4))
    return kind(at_s=at_s, lasting_s=lasting_s, host=host)
