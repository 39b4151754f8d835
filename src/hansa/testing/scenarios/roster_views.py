"""What one view of the members tells: each event must follow from the one before, and have a cause."""

from __future__ import annotations

from dataclasses import replace

from hansa.coordination.member import Member
from hansa.coordination.member_events import (
    Expelled,
    MemberDown,
    MemberEvent,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MembersEvent,
    MemberSuspected,
    MemberUpdated,
    Rejoined,
)
from hansa.coordination.node_info import MemberStatus
from hansa.coordination.over_members import Members
from hansa.testing.host import Host
from hansa.testing.scenarios.roster_truth import RosterTruth

__all__ = ["RosterView"]

_ABSENT = frozenset({None, MemberStatus.DOWN, MemberStatus.LEFT})
_SAID = frozenset({MemberStatus.JOINING, MemberStatus.UP, MemberStatus.DRAINING})
_SUSPECT = frozenset({MemberStatus.SUSPECT})
_HERE = _SAID | _SUSPECT
# From which status to which each event leads.
STEPS: dict[type[MemberEvent], tuple[frozenset[MemberStatus | None], frozenset[MemberStatus]]] = {
    MemberJoined: (_ABSENT, _HERE),
    MemberUpdated: (frozenset(_HERE), _HERE),
    MemberSuspected: (frozenset(_SAID), _SUSPECT),
    MemberRefuted: (frozenset(_SUSPECT), _SAID),
    MemberDown: (frozenset(_HERE), frozenset({MemberStatus.DOWN})),
    MemberLeft: (
        frozenset(_HERE | {None, MemberStatus.DOWN}),
        frozenset({MemberStatus.LEFT}),
    ),
}


class RosterView:
    """Stands beside one `Members` from its opening on."""

    def __init__(self, host: Host, members: Members, truth: RosterTruth) -> None:
        self.members = members
        self.label = str(host.life)
        self._host = host
        self._truth = truth
        # In one go: what the view has is not told, and what it has not is.
        self.events = members.events()
        self._known: dict[str, Member] = dict(members.view)

    def hear(self, event: MembersEvent) -> None:
        """Check an event, and remember what it says."""
        if isinstance(event, Expelled):
            self._fail("nobody is expelled who has no rival", event)
        if isinstance(event, Rejoined):
            self._host.record(f"joined again: {event.reason}")
        if not isinstance(event, MemberEvent):
            return
        member, before = event.member, self._known.get(event.member.id)
        self._host.record(
            f"{type(event).__name__} {member.id} {member.status} {member.incarnation}: {event.reason}"
        )
        self._check_step(event, before, member)
        self._check_cause(event, member)
        self._known[member.id] = member

    def _check_step(self, event: MemberEvent, before: Member | None, member: Member) -> None:
        sources, targets = STEPS[type(event)]
        if (None if before is None else before.status) not in sources or member.status not in targets:
            self._fail("statuses follow the table", event, before)
        if before is None:
            return
        if self._truth.was_restored(member.id, member.incarnation):
            pass
        elif isinstance(event, MemberJoined):
            if member.incarnation <= before.incarnation:
                self._fail("incarnations grow", event, before)
        elif member.incarnation < before.incarnation:
            self._fail("incarnations do not go back", event, before)
        if replace(member, lease=before.lease) == before:
            self._fail("no event comes twice", event, before)

    def _check_cause(self, event: MemberEvent, member: Member) -> None:
        truth, stay = self._truth, (member.id, member.incarnation)
        if isinstance(event, MemberDown) and not truth.is_gone(*stay):
            self._fail("who is down has lost its record", event)
        if isinstance(event, MemberLeft) and not truth.has_left(*stay):
            self._fail("who has left said so", event)
        if isinstance(event, MemberSuspected) and not truth.was_suspected(*stay):
            self._fail("who is suspected is so in the store", event)

    def _fail(self, invariant: str, event: MembersEvent, before: Member | None = None) -> None:
        known = "" if before is None else f", where {before.status} {before.incarnation} was known"
        self._host.world.fail(invariant, f"{self.label} tells {event}{known}")

    def difference(self, names: list[str]) -> str:
        """What is not yet as it is in the store, or nothing."""
        view, records = self.members.view, self._truth.records
        here = [member.id for member in view.here()]
        if here != names:
            return f"{self.label} sees {here}"
        for name in names:
            member, record = view[name], records.get(name)
            if record is None or member.info != record.info or member.incarnation != record.incarnation:
                return f"{self.label} sees {member}, the store has {record}"
            if member.status is not record.info.status:
                return f"{self.label} sees {name} as {member.status}"
            # Another lease alone is not told.
            if replace(self._known[name], lease=member.lease) != member:
                return f"{self.label} was told of {self._known[name]}, and not of {member}"
        return ""
