"""What this process has of a Kafka group, partition by partition, and what follows from what it hears. Pure.

Two say who has a partition. The broker *assigns* it to a member, *revokes* it in order, or has it *lost*. The
store's entry names its owner, in an epoch: that is what all writes are guarded by. What the broker has
assigned is a `PartitionTenure` here, from the assignment to its end:

- ASSIGNED: the broker says it is this member's. A try to take its entry is due.
- TAKING: a try is under way.
- READING: the entry names this process. Its handoff is read, and its messages are opened behind that.
- READY: a work is on it.
- ENDING: it was revoked. The work comes to its end, and its handoff is written.
- OVER: all was done that follows. The broker may have it.

| heard    | ASSIGNED | TAKING             | READING            | READY           | ENDING         |
|----------|----------|--------------------|--------------------|-----------------|----------------|
| took     |          | READING, BeginWork |                    |                 |                |
| refused  |          | ASSIGNED           |                    |                 |                |
| opened   |          |                    | READY              | READY           |                |
| fenced   |          |                    | ASSIGNED           | ASSIGNED        | OVER           |
| revoked  | OVER     | OVER, StopTaking   | OVER, ReleaseEntry | ENDING, AskWork |                |
| given_up |          |                    |                    |                 | OVER           |
| lost     | gone     | gone, StopTaking   | gone, DropWork     | gone, DropWork  | gone, DropWork |

What is not in the table changes nothing: it comes late, of a tenure that is over. Each tenure has a number,
and news of another number is such news. `fenced` is a claim that was lost though the broker's assignment
stands: the session ended, or somebody else took the entry. Then it is tried again, with growing pauses.

What the broker has assigned may never be heard: see `has_missed`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf
from typing import NamedTuple, TypeAlias

from hansa.assignment.topology import EntryNote
from hansa.limits import KAFKA_TAKE_AGAIN_S_MAX, KAFKA_TAKE_AGAIN_S_MIN


class KafkaPart(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    @property
    def name(self) -> str:
        """As it is called in the store."""
        return f"{self.topic}-{self.number}"


class Membership(NamedTuple):
    """What a member of a group is: its id, and the group's generation (KIP-848: the member's epoch)."""

    member: str
    generation: int


class TenureState(Enum):
    ASSIGNED = auto()
    TAKING = auto()
    READING = auto()
    READY = auto()
    ENDING = auto()
    OVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTenure:
    """A partition from its assignment to its end. `number` tells it from all others.

    `assigned_s` is when it was to be taken: when it was assigned, or when the claim to it was lost.
    """

    part: KafkaPart
    number: int
    membership: Membership
    assigned_s: float
    state: TenureState = TenureState.ASSIGNED
    due_s: float = 0.0
    tries_count: int = 0


@dataclass(frozen=True, slots=True)
class TakeEntry:
    """Write this process into the entry, and say `took` or `refused`."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class BeginWork:
    """Read the handoff, and open the messages: then say `opened`."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class AskWork:
    """Have the work come to its end, and its handoff written: then say `given_up`."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class ReleaseEntry:
    """Nobody works on it yet: own it no more."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class StopTaking:
    """Try no longer to take it."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class DropWork:
    """Tell the work its loss, now. Nothing may be written any more."""

    tenure: PartitionTenure


Command: TypeAlias = TakeEntry | BeginWork | AskWork | ReleaseEntry | StopTaking | DropWork

_OWNED = (TenureState.READING, TenureState.READY)


class KafkaShare:
    """Decides what is done about each partition. The caller supplies the time, and carries out commands."""

    def __init__(self) -> None:
        self._tenures: dict[KafkaPart, PartitionTenure] = {}
        self._last_number = 0
        # How often the broker was heard; and, with that number, what it names as this one's, if it differs.
        self._heard_count = 0
        self._differing: tuple[int, frozenset[KafkaPart]] | None = None

    @property
    def tenures(self) -> list[PartitionTenure]:
        """All that the broker has assigned and not taken back."""
        return list(self._tenures.values())

    def get(self, part: KafkaPart) -> PartitionTenure | None:
        return self._tenures.get(part)

    def is_current(self, tenure: PartitionTenure) -> bool:
        """Whether this is the tenure of its partition that counts, in whatever state."""
        found = self._tenures.get(tenure.part)
        return found is not None and found.number == tenure.number

    def state_of(self, tenure: PartitionTenure) -> TenureState:
        """OVER also for one that is gone."""
        found = self._tenures.get(tenure.part)
        return found.state if found is not None and found.number == tenure.number else TenureState.OVER

    def is_over(self, parts: Iterable[KafkaPart]) -> bool:
        """Whether nothing is left to be done for partitions that were revoked."""
        found = (self._tenures.get(part) for part in parts)
        return all(tenure is None or tenure.state is TenureState.OVER for tenure in found)

    # -- from the broker

    def assigned(self, parts: Iterable[KafkaPart], membership: Membership, *, now: float) -> list[Command]:
        """These are this member's from now on."""
        self._heard_count += 1
        commands = self.lost(parts)
        for part in sorted(set(parts)):
            self._last_number += 1
            self._tenures[part] = PartitionTenure(
                part=part, number=self._last_number, membership=membership, assigned_s=now, due_s=now
            )
        return commands + self.tick(now=now)

    def revoked(self, parts: Iterable[KafkaPart]) -> list[Command]:
        """These are to be given back: when `is_over` says so."""
        self._heard_count += 1
        commands: list[Command] = []
        for tenure in self._found(parts):
            match tenure.state:
                case TenureState.ASSIGNED:
                    self._set(tenure, TenureState.OVER)
                case TenureState.TAKING:
                    commands.append(StopTaking(self._set(tenure, TenureState.OVER)))
                case TenureState.READING:
                    commands.append(ReleaseEntry(self._set(tenure, TenureState.OVER)))
                case TenureState.READY:
                    commands.append(AskWork(self._set(tenure, TenureState.ENDING)))
        return commands

    def lost(self, parts: Iterable[KafkaPart]) -> list[Command]:
        """These are somebody else's by now, or will be, and nobody waits for what is left of them here."""
        self._heard_count += 1
        commands: list[Command] = []
        for tenure in self._found(parts):
            del self._tenures[tenure.part]
            if tenure.state is TenureState.TAKING:
                commands.append(StopTaking(tenure))
            elif tenure.state in (*_OWNED, TenureState.ENDING):
                commands.append(DropWork(tenure))
        return commands

    def given_back(self, parts: Iterable[KafkaPart]) -> list[Command]:
        """The broker has them. What is not over by then is dropped."""
        return self.lost(parts)

    def has_missed(self, named: Iterable[KafkaPart]) -> bool:
        """The broker, asked, names these as what it has assigned: whether news of that will never come.

        What the broker has just decided is on its way. So it is missed when the broker names the same twice,
        that is not what is here, and nothing was heard in between.
        """
        now = (self._heard_count, frozenset(named))
        before, self._differing = self._differing, None if self._tenures.keys() == now[1] else now
        return now == before

    # -- from the store and the works

    def took(self, tenure: PartitionTenure) -> list[Command]:
        """The entry names this process."""
        if self.state_of(tenure) is not TenureState.TAKING:
            return []
        return [BeginWork(self._set(tenure, TenureState.READING))]

    def refused(self, tenure: PartitionTenure, *, now: float) -> None:
        """The entry could not be taken now."""
        if self.state_of(tenure) is TenureState.TAKING:
            self._again(tenure, now)

    def opened(self, tenure: PartitionTenure) -> bool:
        """Its messages flow, to a work; says whether they are to."""
        if self.state_of(tenure) not in _OWNED:
            return False
        self._set(tenure, TenureState.READY)
        return True

    def fenced(self, tenure: PartitionTenure, *, now: float) -> None:
        """The claim to it was lost, and the broker has not said so."""
        state = self.state_of(tenure)
        if state in _OWNED:
            self._tenures[tenure.part] = replace(self._tenures[tenure.part], assigned_s=now)
            self._again(tenure, now)
        elif state is TenureState.ENDING:
            self._set(tenure, TenureState.OVER)

    def given_up(self, tenure: PartitionTenure) -> None:
        """Its work has ended, and all was written that could be."""
        if self.state_of(tenure) is TenureState.ENDING:
            self._set(tenure, TenureState.OVER)

    # -- time

    def tick(self, *, now: float) -> list[Command]:
        """What is due by now."""
        due = [
            tenure
            for tenure in self._tenures.values()
            if tenure.state is TenureState.ASSIGNED and tenure.due_s <= now
        ]
        return [TakeEntry(self._set(tenure, TenureState.TAKING)) for tenure in due]

    def deadline(self) -> float:
        """When `tick` is to be called next."""
        waiting = (each.due_s for each in self._tenures.values() if each.state is TenureState.ASSIGNED)
        return min(waiting, default=inf)

    def _again(self, tenure: PartitionTenure, now: float) -> None:
        found = self._tenures[tenure.part]
        # Doubling: the first pauses are over before a rebalance is, the last ones harm nobody.
        pause_s = min(KAFKA_TAKE_AGAIN_S_MIN * 2.0**found.tries_count, KAFKA_TAKE_AGAIN_S_MAX)
        self._tenures[tenure.part] = replace(
            found, state=TenureState.ASSIGNED, due_s=now + pause_s, tries_count=min(found.tries_count + 1, 30)
        )

    def _found(self, parts: Iterable[KafkaPart]) -> list[PartitionTenure]:
        return [found for part in sorted(set(parts)) if (found := self._tenures.get(part)) is not None]

    def _set(self, tenure: PartitionTenure, state: TenureState) -> PartitionTenure:
        found = self._tenures[tenure.part]
        tries_count = 0 if state is TenureState.READY else found.tries_count
        changed = self._tenures[tenure.part] = replace(found, state=state, tries_count=tries_count)
        return changed


def is_believed(mine: Membership, note: EntryNote | None) -> bool:
    """Whether a member may take an entry with this note on its own word.

    Else the broker must name it first: it may be an old member that has not heard of its end. None stands for
    an entry that nobody can read. A generation grows with each rebalance, and a member that was given its
    place (a static one that was restarted) has another id in the same generation. Groups that are deleted,
    and brokers that are rebuilt, begin at 1 again.
    """
    if note is None or mine.generation <= 0:
        return False
    if mine.generation == note.generation:
        return mine.member == note.member
    return mine.generation > note.generation


def names_of(parts: Collection[KafkaPart]) -> str:
    """For people."""
    return ", ".join(part.name for part in sorted(parts)) or "nothing"
