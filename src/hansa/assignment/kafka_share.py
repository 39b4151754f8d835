"""What a Kafka member does about each partition, by what the broker, the store and the works report. Pure.

Two sources say who has a partition. The broker *assigns* it to a member, *revokes* it in good order, or
reports it *lost*. The store's entry names its owner, in an epoch, which guards all writes. What the broker
has assigned is a `PartitionTenure` here, from the assignment to its end:

- ASSIGNED: the broker says that this member has it. A try to take its entry is due.
- TAKING: a try is under way.
- READING: the entry names this process. The handoff is read, and the messages after it are opened.
- READY: its messages flow to a work.
- ENDING: it was revoked. The work comes to its end, and its handoff is written.
- OVER: all that follows is done. The broker may have the partition back.

| heard    | ASSIGNED | TAKING             | READING            | READY           | ENDING         |
|----------|----------|--------------------|--------------------|-----------------|----------------|
| took     |          | READING, BeginWork |                    |                 |                |
| refused  |          | ASSIGNED           |                    |                 |                |
| opened   |          |                    | READY              | READY           |                |
| fenced   |          |                    | ASSIGNED           | ASSIGNED        | OVER           |
| revoked  | OVER     | OVER, StopTaking   | OVER, ReleaseEntry | ENDING, AskWork |                |
| given_up |          |                    |                    |                 | OVER           |
| lost     | gone     | gone, StopTaking   | gone, DropWork     | gone, DropWork  | gone, DropWork |

News that is not in the table changes nothing: it comes late, about a tenure that is over. Each tenure has a
number, and news of another number is late as well. `fenced` says that the claim was lost although the
broker's assignment stands: the session ended, or another process took the entry. Then the entry is tried
again, with growing pauses.

A member may never hear what the broker has assigned to it: see `has_missed`.
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
    """A partition of a Kafka topic."""

    topic: str
    number: int

    @property
    def name(self) -> str:
        """The partition's name in the store."""
        return f"{self.topic}-{self.number}"


class Membership(NamedTuple):
    """A member of a group, by its id, and the group's generation (KIP-848: the member's epoch)."""

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
    """A partition from its assignment to its end. `number` tells this tenure from all others.

    `assigned_s` is when taking it became due: when it was assigned, or when the claim to it was lost.
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
    """Write this process into the entry; then call `took` or `refused`."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class BeginWork:
    """Read the handoff, and open the messages; then call `opened`."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class AskWork:
    """Have the work come to its end, and its handoff written; then call `given_up`."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class ReleaseEntry:
    """Stop owning the entry: no work has begun yet."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class StopTaking:
    """Stop trying to take the entry."""

    tenure: PartitionTenure


@dataclass(frozen=True, slots=True)
class DropWork:
    """Tell the work at once that the partition is lost. Nothing may be written any more."""

    tenure: PartitionTenure


Command: TypeAlias = TakeEntry | BeginWork | AskWork | ReleaseEntry | StopTaking | DropWork

_OWNED = (TenureState.READING, TenureState.READY)


class KafkaShare:
    """Decides what is done about each partition. The caller supplies the time, and carries out commands."""

    def __init__(self) -> None:
        self._tenures: dict[KafkaPart, PartitionTenure] = {}
        self._last_number = 0
        # How often the broker was heard. If it names other parts than those here: that number, and its parts.
        self._heard_count = 0
        self._differing: tuple[int, frozenset[KafkaPart]] | None = None

    @property
    def tenures(self) -> list[PartitionTenure]:
        """The tenures of all that the broker has assigned and not taken back."""
        return list(self._tenures.values())

    def get(self, part: KafkaPart) -> PartitionTenure | None:
        return self._tenures.get(part)

    def is_current(self, tenure: PartitionTenure) -> bool:
        """Whether this is the present tenure of its partition, in whatever state."""
        found = self._tenures.get(tenure.part)
        return found is not None and found.number == tenure.number

    def state_of(self, tenure: PartitionTenure) -> TenureState:
        """The state of a tenure; OVER also for one that is gone."""
        found = self._tenures.get(tenure.part)
        return found.state if found is not None and found.number == tenure.number else TenureState.OVER

    def is_over(self, parts: Iterable[KafkaPart]) -> bool:
        """Whether nothing is left to do for partitions that were revoked."""
        found = (self._tenures.get(part) for part in parts)
        return all(tenure is None or tenure.state is TenureState.OVER for tenure in found)

    # -- from the broker

    def assigned(self, parts: Iterable[KafkaPart], membership: Membership, *, now: float) -> list[Command]:
        """The broker assigns these to this member."""
        self._heard_count += 1
        commands = self.lost(parts)
        for part in sorted(set(parts)):
            self._last_number += 1
            self._tenures[part] = PartitionTenure(
                part=part, number=self._last_number, membership=membership, assigned_s=now, due_s=now
            )
        return commands + self.tick(now=now)

    def revoked(self, parts: Iterable[KafkaPart]) -> list[Command]:
        """The broker wants these back: it gets them when `is_over` says so."""
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
        """Another member has these by now, or will: nobody waits for what is left of them here."""
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
        """The broker has these back. Tenures that are not over are dropped."""
        return self.lost(parts)

    def has_missed(self, named: Iterable[KafkaPart]) -> bool:
        """The broker, when asked, says that it has assigned these: whether the news of that will never come.

        News of what the broker has just decided is on its way. So an assignment counts as missed when the
        broker names the same partitions twice, other ones are here, and nothing was heard in between.
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
        """The messages flow to a work; returns whether they may."""
        if self.state_of(tenure) not in _OWNED:
            return False
        self._set(tenure, TenureState.READY)
        return True

    def fenced(self, tenure: PartitionTenure, *, now: float) -> None:
        """The claim was lost, and the broker has not said so."""
        state = self.state_of(tenure)
        if state in _OWNED:
            self._tenures[tenure.part] = replace(self._tenures[tenure.part], assigned_s=now)
            self._again(tenure, now)
        elif state is TenureState.ENDING:
            self._set(tenure, TenureState.OVER)

    def given_up(self, tenure: PartitionTenure) -> None:
        """The work has ended, and all that could be written was written."""
        if self.state_of(tenure) is TenureState.ENDING:
            self._set(tenure, TenureState.OVER)

    # -- time

    def tick(self, *, now: float) -> list[Command]:
        """The commands that are due now."""
        due = [
            tenure
            for tenure in self._tenures.values()
            if tenure.state is TenureState.ASSIGNED and tenure.due_s <= now
        ]
        return [TakeEntry(self._set(tenure, TenureState.TAKING)) for tenure in due]

    def deadline(self) -> float:
        """When to call `tick` next."""
        waiting = (each.due_s for each in self._tenures.values() if each.state is TenureState.ASSIGNED)
        return min(waiting, default=inf)

    def _again(self, tenure: PartitionTenure, now: float) -> None:
        found = self._tenures[tenure.part]
        # Doubling: the first pauses end before a rebalance does, the last ones harm nobody.
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

    Otherwise the broker must name the member first: it may be an old member that has not heard of its end.
    None stands for an entry that cannot be read. A generation grows with each rebalance. A member that was
    given its place (a static one that was restarted) has another id in the same generation. Groups that are
    deleted, and brokers that are rebuilt, begin at 1 again.
    """
    if note is None or mine.generation <= 0:
        return False
    if mine.generation == note.generation:
        return mine.member == note.member
    return mine.generation > note.generation


def names_of(parts: Collection[KafkaPart]) -> str:
    """The names of partitions, for people."""
    return ", ".join(part.name for part in sorted(parts)) or "nothing"
