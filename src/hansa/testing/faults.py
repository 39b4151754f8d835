"""What goes wrong in a run, as values: drawn from the seed, played at their time, left out one by one.

A plan is drawn before the run and from its own stream of chance, so that leaving a fault out does not change
the others. That is what makes a failing plan shrinkable.
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


class Fault(Protocol):
    """Begins at `at_s` of the chaotic phase and ends `lasting_s` later, or with the phase."""

    @property
    def at_s(self) -> float: ...

    @property
    def lasting_s(self) -> float: ...

    def begin(self, world: World) -> bool:
        """Do harm; False when there was nothing to harm, and so nothing to end."""

    def end(self, world: World) -> None:
        """Stop doing harm."""


FaultPlan = tuple[Fault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    at_s: float
    lasting_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(_Timed):
    """Nothing gets from source to target, nor back unless it is one-way."""

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
    """The host's disk is copied, and later the copy is put back over it: what was written between is lost."""

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
        """A reset is over when it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink(_Timed):
    """The way from source to target carries little."""

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
    """Nobody gets a new connection to the host. A fault, unlike the refusals of the wire and of a store."""

    host: str

    def begin(self, world: World) -> bool:
        world.network.refuse(self.host, refusing=True)
        return True

    def end(self, world: World) -> None:
        world.network.refuse(self.host, refusing=False)


def draw_plan(
    chance: Chance,
    hosts: Sequence[str],
    *,
    chaos_s: float,
    begins_s: float = 0.0,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> FaultPlan:
    """A plan for these hosts. Each seed uses some kinds only: some trouble needs the absence of other.

    `pairs` are those whose connections may suffer; by default any two.
    """
    kinds = [kind for kind in _KINDS if chance.flip(0.6)]
    pairs = list(combinations(hosts, 2)) if pairs is None else pairs
    if not kinds or not pairs:
        return ()
    faults = []
    for _ in range(chance.below(FAULTS_MAX + 1)):
        at_s = chance.uniform(begins_s, chaos_s)
        # Short faults heal before anybody notices, long ones outlast every timeout.
        lasting_s = chance.uniform(0.0, chance.choose((0.2, 2.0, LASTING_S_MAX)))
        kind, pair = chance.choose(kinds), chance.choose(pairs)
        faults.append(_drawn(kind, chance, at_s, lasting_s, hosts, pair))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _drawn(
    kind: Callable[..., Fault],
    chance: Chance,
    at_s: float,
    lasting_s: float,
    hosts: Sequence[str],
    pair: tuple[str, str],
) -> Fault:
    if kind is Reset:
        return Reset(at_s=at_s, lasting_s=0.0, a=pair[0], b=pair[1])
    if kind is Cut or kind is SlowLink:
        source, target = pair if chance.flip(0.5) else pair[::-1]
        if kind is Cut:
            both_ways = chance.flip(0.5)
            return Cut(at_s=at_s, lasting_s=lasting_s, source=source, target=target, both_ways=both_ways)
        rate = chance.choose((100.0, 2_000.0, 50_000.0))
        return SlowLink(at_s=at_s, lasting_s=lasting_s, source=source, target=target, bytes_per_s=rate)
    host = chance.choose(hosts)
    if kind is Crash:
        return Crash(at_s=at_s, lasting_s=lasting_s, host=host, silent=chance.flip(0.4))
    return kind(at_s=at_s, lasting_s=lasting_s, host=host)


_KINDS: tuple[Callable[..., Fault], ...] = (Cut, Pause, Crash, Stop, Reset, SlowLink, Refusal)
