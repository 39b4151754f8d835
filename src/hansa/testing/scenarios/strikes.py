"""Trouble that is aimed at one step of something: at random it would hardly ever come at that moment.

A `Strike` waits until a transaction with that step is sent to the store. The request is lost on the way, or
comes late; or it is carried out, and its answer is lost, or not. At that instant the harm comes: to the old
owner, the new one, whoever asked, the leader that places things, or the store; whoever it is, and whoever has
sent the transaction. `cells` are all kinds of strikes; the seeds take them in turn.

The steps are those of hand-overs, or whatever else a scenario sees in a transaction (`Sight`).

`StruckStore` sees all transactions: those that are sent over its `link` before they are, and all steps as
soon as they are committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from enum import Enum
from itertools import product
from math import inf
from typing import Any, Final, TypeVar

from hansa.chance import Chance
from hansa.coordination.handover import Handover, HandoverStep
from hansa.errors import HansaError
from hansa.keys import Keys
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.values import Compare, EventKind, KeyValue, Operation, Outcome, Put, WatchBatch
from hansa.testing.faults import Crash, Cut, Fault, Pause, Stop
from hansa.testing.host import Host
from hansa.testing.store_host import StoreHost
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World

__all__ = [
    "HARMS",
    "STEPS",
    "Cell",
    "Harm",
    "Moment",
    "Sight",
    "Strike",
    "StruckLink",
    "StruckStore",
    "Victim",
    "Written",
    "cells",
    "draw_strike",
    "handover_in",
]

T = TypeVar("T")

HANDOVERS: Final = Keys().handovers
STEPS: Final = (
    HandoverStep.OFFERED,
    HandoverStep.PREPARED,
    HandoverStep.SEALED,
    HandoverStep.TAKEN,
    HandoverStep.DONE,
)
# A pause is over before anybody notices, or lasts longer than every lease.
PAUSES_S: Final = (1.0, 5.0)
LATE_S_MAX: Final = 4.0
BROKEN_S_MAX: Final = 1.0
COMPANION_S_MAX: Final = 0.3


class Victim(Enum):
    """Who comes to harm."""

    OLD = "the old owner"
    NEW = "the new owner"
    ASKER = "whoever asked"
    LEADER = "the leader"
    STORE = "the store"


class Harm(Enum):
    """What comes over it."""

    CRASH = "crashes"
    PAUSE = "is paused"
    CUT = "is cut off"
    STOP = "is asked to stop"
    """Nothing that hangs on it is there a moment later, and no lease has to run out. Of companions only."""


class Moment(Enum):
    """What becomes of the transaction."""

    LOST = "the request is lost"
    LATE = "the request comes late"
    UNANSWERED = "the answer is lost"
    ANSWERED = "the answer is on its way"

    @property
    def is_before(self) -> bool:
        """Whether it comes before the store has the request."""
        return self in (Moment.LOST, Moment.LATE)


HARMS: Final = (Harm.CRASH, Harm.PAUSE, Harm.CUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kind of strike."""

    step: Enum
    victim: Victim
    harm: Harm
    moment: Moment


def cells(*victims: Victim) -> tuple[Cell, ...]:
    """One strike of each kind, for these. The step changes fastest: few seeds have something of all steps."""
    return tuple(
        Cell(step=step, victim=victim, harm=harm, moment=moment)
        for moment, harm, victim, step in product(Moment, HARMS, victims, STEPS)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A key that a transaction puts. The revision is 0 while it is on its way."""

    key: bytes
    value: bytes
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a transaction does: which step, in words, and of what: from that the victims are known."""

    step: Enum
    words: str
    subject: Any


def handover_in(written: Sequence[Written]) -> Sight | None:
    """The step of a hand-over that a transaction makes."""
    for each in written:
        if each.key.startswith(HANDOVERS):
            record = Handover.decode(each.value, revision=each.revision)
            words = f"{record.what} {record.number}, {record.step.value}"
            return Sight(step=record.step, words=words, subject=record)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that waits for its moment. `skip_count` of them pass first, if they come in `skips_s`.

    Somebody else may come to harm soon afterwards (`companion`): the other one of those who hand it over.
    """

    at_s: float
    lasting_s: float
    cell: Cell
    skip_count: int
    is_silent: bool
    store: str
    skips_s: float = inf
    """Later than this, in the run's time, none passes any more."""
    companion: Harm | None = None
    is_wide: bool = False
    """Who is cut off is cut off from all, not only from the store."""

    def begin(self, world: World) -> bool:
        store = world.hosts[self.store].disk
        assert isinstance(store, StruckStore)
        store.await_moment(self)
        return False

    def end(self, world: World) -> None:
        """What it does ends by itself."""

    @property
    def others(self) -> tuple[Victim, ...]:
        """Who may be a companion."""
        return tuple(other for other in (Victim.OLD, Victim.NEW) if other is not self.cell.victim)

    def faults(self, harm: Harm, hosts: Sequence[str], world: World) -> list[Fault]:
        """What it does to these."""
        when: dict[str, float] = {"at_s": 0.0, "lasting_s": self.lasting_s}
        match harm:
            case Harm.CRASH:
                return [Crash(**when, host=host, silent=self.is_silent) for host in hosts]
            case Harm.PAUSE:
                return [Pause(**when, host=host) for host in hosts]
            case Harm.STOP:
                return [Stop(**when, host=host) for host in hosts]
        pairs = [(host, self.store) for host in hosts if host != self.store]
        if self.store in hosts:
            pairs = [(host, self.store) for host in world.hosts if host != self.store]
        elif self.is_wide:
            pairs = [(host, other) for host in hosts for other in world.hosts if other != host]
        return [Cut(**when, source=source, target=target, both_ways=True) for source, target in pairs]


def draw_strike(
    chance: Chance,
    cell: Cell,
    store: str,
    *,
    skipped_max: int = 0,
    skips_s: float = inf,
    may_be_wide: bool = False,
) -> Strike:
    """A strike of this kind, at the first such step, or up to so many later while it is not too late."""
    return Strike(
        at_s=0.0,
        lasting_s=chance.uniform(0.1, 3.0) if cell.harm is Harm.CRASH else chance.choose(PAUSES_S),
        cell=cell,
        skip_count=chance.below(skipped_max + 1),
        is_silent=chance.flip(0.5),
        store=store,
        skips_s=skips_s,
        companion=chance.choose((Harm.CRASH, Harm.PAUSE, Harm.STOP, Harm.STOP)) if chance.flip(0.5) else None,
        is_wide=may_be_wide and chance.flip(0.5),
    )


class StruckStore(StoreHost):
    """A store whose transactions are looked at. `sight_of` says what one does.

    `hosts_of` names the victims, given the subject of that: a `Handover` unless told otherwise. Programs use
    it over links that `link` gives.
    """

    def __init__(
        self,
        world: World,
        *,
        witness: Callable[[WatchBatch, str], None],
        hosts_of: Callable[[Victim, Any], Sequence[str]],
        sight_of: Callable[[Sequence[Written]], Sight | None] = handover_in,
        rewound: Callable[[Sequence[KeyValue], int], None] | None = None,
    ) -> None:
        super().__init__(world, witness=self._see, rewound=rewound)
        self.struck_count = 0
        self._judge = witness
        self._hosts_of = hosts_of
        self._sight_of = sight_of
        self._strike: Strike | None = None
        self._skipped_count = 0
        self._is_calm = False
        self._moments = world.chance.fork("moments")
        self._silenced = ""

    def link(self, host: Host) -> StruckLink:
        """For a program on this host."""
        return StruckLink(host, self)

    @property
    def is_awaited(self) -> bool:
        """Whether a strike still waits for its moment."""
        return self._strike is not None

    def await_moment(self, strike: Strike) -> None:
        """Strike as soon as it has come."""
        self._strike = strike

    def calm(self) -> None:
        """Do no more harm. What was done is undone by the world."""
        self._is_calm, self._strike = True, None

    def fate(self, operations: Sequence[Operation]) -> Moment | None:
        """Somebody sends this: what becomes of the request. None: what always does."""
        puts = [operation for operation in operations if isinstance(operation, Put)]
        return self._struck([Written(key=put.key, value=put.value) for put in puts], is_before=True)

    def silences(self, host: str) -> bool:
        """Whether the answer to this host is lost. It is asked once."""
        is_silenced, self._silenced = self._silenced == host, ""
        return is_silenced

    def draw_s(self, longest_s: float) -> float:
        """How long something takes."""
        return self._moments.uniform(0.0, longest_s)

    def _see(self, batch: WatchBatch, origin: str) -> None:
        self._judge(batch, origin)
        written = [
            Written(key=event.item.key, value=event.item.value, revision=event.item.mod_revision)
            for event in batch.events
            if event.kind is EventKind.PUT
        ]
        if self._struck(written, is_before=False) is Moment.UNANSWERED:
            self._silenced = origin

    def _struck(self, written: Sequence[Written], *, is_before: bool) -> Moment | None:
        """Do the harm, if this is the moment: at this instant, when whoever is at it has had its turn."""
        strike = self._strike
        if strike is None or strike.cell.moment.is_before != is_before:
            return None
        sight = self._sight_of(written)
        if sight is None or sight.step is not strike.cell.step:
            return None
        hosts = self._hosts_of(strike.cell.victim, sight.subject)
        if hosts:
            self._skipped_count += 1
        if not hosts:
            return None
        if self._skipped_count <= strike.skip_count and self.world.elapsed_s() < strike.skips_s:
            return None
        self._strike = None
        self.struck_count += 1
        self.world.history.record("", f"strikes {', '.join(hosts)} at {sight.words}")
        for fault in strike.faults(strike.cell.harm, hosts, self.world):
            self.world.loop.call_soon(self._begin, fault, context=Context())
        if strike.companion is not None:
            others = self._hosts_of(self._moments.choose(strike.others), sight.subject)
            for fault in strike.faults(strike.companion, others, self.world):
                soon_s = self.draw_s(COMPANION_S_MAX)
                self.world.loop.call_later(soon_s, self._begin, fault, context=Context())
        return strike.cell.moment

    def _begin(self, fault: Fault) -> None:
        if not self._is_calm and fault.begin(self.world):
            self.world.loop.call_later(fault.lasting_s, self._end, fault, context=Context())

    def _end(self, fault: Fault) -> None:
        if not self._is_calm:
            fault.end(self.world)


class StruckLink(StoreLink):
    """A link to a `StruckStore`: what is sent over it may be lost at the worst moment."""

    def __init__(self, host: Host, store: StruckStore) -> None:
        super().__init__(host, store)
        self._struck = store
        self._fate: Moment | None = None

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        # It is sent before anything else can run.
        self._fate = self._struck.fate(then)
        return await super().commit(compares, then, otherwise, timeout=timeout)

    def carry_there(self, deliver: Callable[[], None], broken: Callable[[], None]) -> None:
        fate, self._fate = self._fate, None
        if fate is None or not fate.is_before:
            super().carry_there(deliver, broken)
            return
        if fate is Moment.LATE:
            self._call_later(LATE_S_MAX, deliver)
        self._call_later(BROKEN_S_MAX, broken)

    def carry_back(
        self, answer: asyncio.Future[T | HansaError], found: T | HansaError, *, weight: int = 1
    ) -> None:
        if self._struck.silences(self._host_name):
            self._call_later(BROKEN_S_MAX, lambda: self.breaks(answer))
        else:
            super().carry_back(answer, found, weight=weight)

    def _call_later(self, longest_s: float, callback: Callable[[], None]) -> None:
        world = self._struck.world
        world.loop.call_later(self._struck.draw_s(longest_s), callback, context=world.network.context)
