"""The roster: decides who is a member from the store's records, who is suspected, and who watches whom. Pure.

Theory: the store has a record of each node that is there, on the node's lease, and now and then a suspicion
of one. A member's status follows from these two alone: it is what the node says of itself, unless its stay is
suspected; LEFT or DOWN when the record is gone, by what the node said last. An event is the step from one
status to the next, by the table below. So a view that was cut off from the store declares nobody dead by
itself, and two views that have read the same say the same.

Heartbeats are renewals of a lease, which leave no trace but the lease's remaining time. A lease is granted
for twice the heartbeat timeout: a member that has used up more than half of it has been silent for the
timeout, by its own measure, whatever timeout the observer was given.

A suspicion is on the suspect's own lease, holds for the record on that lease, and ends with it. A refutation
overwrites it and does not delete it: keys that vanish with a lease vanish from two watches, whose order
nobody knows, and a vanished suspicion must not look like a heartbeat. Each member watches the next few in a
ring, so that the cost of watching all members stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from hansa.coordination.member import (
    Member,
    MemberDown,
    MemberEvent,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MemberStatus,
    MemberSuspected,
    MemberUpdated,
    NodeRecord,
    as_json,
    decoded_record,
    from_json,
)
from hansa.errors import BadRecord
from hansa.limits import GONE_MEMBER_S_MAX, GONE_MEMBERS_COUNT_MAX
from hansa.store.values import KeyValue, LeaseInfo

_S, _J, _U = MemberStatus, MemberJoined, MemberUpdated
_TO: Final = (_S.JOINING, _S.UP, _S.DRAINING, _S.SUSPECT, _S.DOWN, _S.LEFT)
_FROM: Final[Mapping[MemberStatus | None, tuple[type[MemberEvent] | None, ...]]] = {
    # To JOINING, UP and DRAINING; to SUSPECT; to DOWN; to LEFT.
    None: (_J, _J, _J, _J, None, MemberLeft),
    _S.JOINING: (_U, _U, _U, MemberSuspected, MemberDown, MemberLeft),
    _S.UP: (_U, _U, _U, MemberSuspected, MemberDown, MemberLeft),
    _S.DRAINING: (_U, _U, _U, MemberSuspected, MemberDown, MemberLeft),
    _S.SUSPECT: (MemberRefuted, MemberRefuted, MemberRefuted, _U, MemberDown, MemberLeft),
    _S.DOWN: (_J, _J, _J, _J, None, MemberLeft),
    _S.LEFT: (_J, _J, _J, _J, None, None),
}
# From (None: not known) to, and the event. A step that is not here is never made: RosterBook ends a stay
# (DOWN) before it begins another one.
TRANSITIONS: Final[Mapping[tuple[MemberStatus | None, MemberStatus], type[MemberEvent]]] = MappingProxyType(
    {
        (before, after): kind
        for before, kinds in _FROM.items()
        for after, kind in zip(_TO, kinds, strict=True)
        if kind is not None
    }
)


class Roster(Mapping[str, Member]):
    """All members by id, in the order of ids, at one moment; it never changes. The gone are in it, too."""

    def __init__(self, members: Mapping[str, Member] = MappingProxyType({})) -> None:
        self._members = dict(sorted(members.items()))

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"<Roster {', '.join(f'{one.id} {one.status}' for one in self._members.values())}>"

    def with_status(self, *statuses: MemberStatus) -> tuple[Member, ...]:
        return tuple(one for one in self._members.values() if one.status in statuses)

    def up(self) -> tuple[Member, ...]:
        """The members that take work."""
        return self.with_status(MemberStatus.UP)

    def here(self) -> tuple[Member, ...]:
        """All members but those that are down or left."""
        return tuple(one for one in self._members.values() if one.is_here)

    def by_role(self, role: str) -> tuple[Member, ...]:
        """The members here that have a role."""
        return tuple(one for one in self.here() if role in one.roles)

    def by_zone(self, zone: str) -> tuple[Member, ...]:
        """The members here that are in a zone."""
        return tuple(one for one in self.here() if one.zone == zone)


_DIGEST_BYTES: Final = 8


def successors(ids: Iterable[str], me: str, count: int) -> tuple[str, ...]:
    """The ids of the next `count` members after `me`, or of all others. `me` need not be among `ids`.

    The ring is in the order of digests: members of one machine often have names that follow each other, and
    fail together.
    """
    mine = _place(me)
    places = sorted(_place(one) for one in set(ids) if one != me)
    after = [place for place in places if place > mine]
    before = [place for place in places if place < mine]
    return tuple(one for _, one in [*after, *before][:count])


def _place(one: str) -> tuple[bytes, str]:
    return blake2b(one.encode("utf-8"), digest_size=_DIGEST_BYTES).digest(), one


_WHOLE_SECOND_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A report that a member's heartbeats are overdue, or come again: by whom, and how long it was silent."""

    incarnation: int
    is_suspect: bool
    by: str
    silence_s: float

    @property
    def reason(self) -> str:
        if self.is_suspect:
            return f"no heartbeat for {self.silence_s:.1f} s, seen by {self.by}"
        return f"a heartbeat {self.silence_s:.1f} s ago, seen by {self.by}"

    def encode(self) -> bytes:
        found = {
            "incarnation": self.incarnation,
            "isSuspect": self.is_suspect,
            "by": self.by,
            "silenceS": round(self.silence_s, 3),
        }
        return as_json(found, "a suspicion")

    @classmethod
    def decode(cls, value: bytes) -> Suspicion:
        """Raises `BadRecord`."""
        match found := from_json(value, "a suspicion"):
            case {
                "incarnation": int(incarnation),
                "isSuspect": bool(is_suspect),
                "by": str(by),
                "silenceS": int(silence) | float(silence),
            }:
                return cls(incarnation=incarnation, is_suspect=is_suspect, by=by, silence_s=float(silence))
        raise BadRecord(f"no suspicion: {found!r:.200}")


def silence_s(lease: LeaseInfo) -> float:
    """How long ago the lease was renewed, at least.

    A store that only knows whole seconds cuts the rest off: what it tells may be almost one second too
    little.
    """
    left_s = lease.ttl_s
    if left_s.is_integer() and lease.granted_ttl_s.is_integer():
        left_s += _WHOLE_SECOND_S
    return max(lease.granted_ttl_s - left_s, 0.0)


def is_overdue(lease: LeaseInfo) -> bool:
    """Whether its holder was silent for the heartbeat timeout."""
    return silence_s(lease) >= lease.granted_ttl_s / 2


def overdue_in_s(lease: LeaseInfo) -> float:
    """For how long its holder cannot be overdue, at least; nobody needs to ask for the lease before."""
    return max(lease.ttl_s - lease.granted_ttl_s / 2, 0.0)


@dataclass(slots=True)
class _Entry:
    """One member, and the record that it follows from; None when the record is gone."""

    member: Member
    record: NodeRecord | None
    # When the member went, on the monotonic clock.
    gone_s: float = 0.0


class RosterBook:
    """Keeps the roster. Input: puts and deletes below two prefixes, and the time. Output: events.

    `now` is monotonic, `wall` is for display. A record that cannot be read changes nothing, and is counted.
    """

    def __init__(
        self, *, gone_s_max: float = GONE_MEMBER_S_MAX, gone_count_max: int = GONE_MEMBERS_COUNT_MAX
    ) -> None:
        self._gone_s_max = gone_s_max
        self._gone_count_max = gone_count_max
        self._entries: dict[str, _Entry] = {}
        # With the items that hold them: a suspicion is valid for the lease that it is on, and no other.
        self._suspicions: dict[str, tuple[Suspicion, KeyValue]] = {}
        # In the order in which they went.
        self._gone: dict[str, None] = {}
        self._roster: Roster | None = None
        self.bad_records_count = 0
        self.forgotten_count = 0

    @property
    def roster(self) -> Roster:
        if self._roster is None:
            self._roster = Roster({name: entry.member for name, entry in self._entries.items()})
        return self._roster

    def suspicion_revision(self, member_id: str) -> int:
        """The revision of the last suspicion or refutation of a member; 0 without one."""
        return self._suspicions[member_id][1].mod_revision if member_id in self._suspicions else 0

    def change_records(
        self,
        puts: Iterable[tuple[str, KeyValue]],
        deletes: Iterable[str],
        *,
        revision: int,
        is_after_gap: bool,
        now: float,
        wall: float,
    ) -> list[MemberEvent]:
        """Take in changed records, with the ids of their nodes: first the deletes, then the puts."""
        events: list[MemberEvent] = []
        for member_id in deletes:
            events += self._delete(member_id, revision, is_after_gap, now, wall)
        for member_id, item in puts:
            record = decoded_record(item)
            if record is None or record.info.id != member_id:
                self.bad_records_count += 1
            else:
                events += self._put(record, item, now, wall)
        return events

    def change_suspicions(
        self, puts: Iterable[tuple[str, KeyValue]], deletes: Iterable[str], *, now: float, wall: float
    ) -> list[MemberEvent]:
        """Take in suspicions and refutations. A deleted one says nothing: see the opening of this module."""
        for member_id in deletes:
            self._suspicions.pop(member_id, None)
        events: list[MemberEvent] = []
        for member_id, item in puts:
            try:
                suspicion = Suspicion.decode(item.value)
            except BadRecord:
                self.bad_records_count += 1
                continue
            self._suspicions[member_id] = (suspicion, item)
            entry = self._entries.get(member_id)
            if entry is None or entry.record is None:
                continue
            if suspicion.incarnation != entry.member.incarnation or item.lease != entry.member.lease:
                continue
            status = MemberStatus.SUSPECT if suspicion.is_suspect else entry.record.info.status
            if status is not entry.member.status and entry.member.is_here:
                member = replace(entry.member, status=status, reason=suspicion.reason, since=wall)
                events.append(self._step(entry, member, entry.record, item.mod_revision, now))
        return events

    def tick(self, *, now: float) -> None:
        """Forget members that have been gone for long."""
        for member_id in list(self._gone):
            if now - self._entries[member_id].gone_s < self._gone_s_max:
                return
            self._forget(member_id)

    def _put(self, record: NodeRecord, item: KeyValue, now: float, wall: float) -> list[MemberEvent]:
        member_id, events = record.info.id, []
        entry = self._entries.get(member_id)
        before = None if entry is None else entry.member
        if entry is not None and entry.record is not None and record.incarnation != entry.member.incarnation:
            if entry.member.is_here:
                # A stay of another process, or of the same process on another session.
                reason = f"followed by a newer stay (incarnation {record.incarnation}): {record.reason}"
                gone = replace(entry.member, status=MemberStatus.DOWN, reason=reason, since=wall)
                events.append(self._step(entry, gone, None, item.mod_revision, now))
            before = entry.member
        status, reason, since = self._status_of(record, item.lease, before, wall)
        member = Member(
            info=record.info,
            status=status,
            incarnation=record.incarnation,
            reason=reason,
            since=since,
            lease=item.lease,
        )
        if entry is None:
            entry = self._entries[member_id] = _Entry(member, None)
            self._settle(entry, member, record, now)
            events.append(_event(None, member, item.mod_revision))
        elif before is not None and (
            # Only the lease differs: older processes kept their incarnation.
            replace(before, lease=item.lease) == member
            # It left, came and left again while this view could not see it.
            or before.status is member.status is MemberStatus.LEFT
        ):
            self._settle(entry, member, record, now)
        else:
            events.append(self._step(entry, member, record, item.mod_revision, now))
        return events

    def _status_of(
        self, record: NodeRecord, lease: int, before: Member | None, wall: float
    ) -> tuple[MemberStatus, str, float]:
        """The status that a record stands for, the reason, and since when."""
        said = record.info.status
        reason = record.reason
        if said.is_here and record.info.id in self._suspicions:
            suspicion, item = self._suspicions[record.info.id]
            if suspicion.is_suspect and (suspicion.incarnation, item.lease) == (record.incarnation, lease):
                said, reason = MemberStatus.SUSPECT, suspicion.reason
        if before is None:
            return said, reason or said.value.lower(), record.joined_at
        is_same_stay = before.incarnation == record.incarnation
        if is_same_stay and before.status is said:
            # A record that says nothing new is on another lease; the reason stays.
            reason = before.reason if record.info == before.info else reason or before.reason
            return said, reason, before.since
        if is_same_stay and before.status is MemberStatus.SUSPECT and said.is_here:
            reason = "it has a new lease"
        return said, reason or said.value.lower(), wall

    def _delete(
        self, member_id: str, revision: int, is_after_gap: bool, now: float, wall: float
    ) -> list[MemberEvent]:
        entry = self._entries.get(member_id)
        if entry is None or entry.record is None:
            return []
        if not entry.member.is_here:
            # It said before that it leaves.
            entry.record = None
            return []
        reason = "its lease ended"
        if is_after_gap:
            reason = "it left, or its lease ended, where this view could not see it"
        member = replace(entry.member, status=MemberStatus.DOWN, reason=reason, since=wall)
        return [self._step(entry, member, None, revision, now)]

    def _step(
        self, entry: _Entry, member: Member, record: NodeRecord | None, revision: int, now: float
    ) -> MemberEvent:
        before = entry.member.status
        self._settle(entry, member, record, now)
        return _event(before, member, revision)

    def _settle(self, entry: _Entry, member: Member, record: NodeRecord | None, now: float) -> None:
        entry.member, entry.record = member, record
        self._roster = None
        self._gone.pop(member.id, None)
        if member.is_here:
            return
        entry.gone_s = now
        self._gone[member.id] = None
        while len(self._gone) > self._gone_count_max:
            self._forget(next(iter(self._gone)))

    def _forget(self, member_id: str) -> None:
        self._gone.pop(member_id)
        del self._entries[member_id]
        self._suspicions.pop(member_id, None)
        self.forgotten_count += 1
        self._roster = None


def _event(before: MemberStatus | None, member: Member, revision: int) -> MemberEvent:
    return TRANSITIONS[before, member.status](member=member, reason=member.reason, revision=revision)
