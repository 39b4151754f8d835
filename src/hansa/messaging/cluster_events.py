"""Events of members as messages of a topic, and back.

A bridge tells an event more than once: to nodes that subscribe late, and when it takes over from another
bridge. So every message carries the store's revision, and a reader drops what it has heard. Per member there
are two tracks, what it says of itself and whether it is suspected, each with revisions that grow; a stay that
has ended once does not end again, whatever revision the second end was read at.
"""

from __future__ import annotations

import json
from typing import Any, Final

from hansa.coordination.member import Member
from hansa.coordination.member_events import (
    MemberDown,
    MemberEvent,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MemberSuspected,
    MemberUpdated,
)
from hansa.coordination.node_info import MemberStatus, NodeInfo, from_json
from hansa.errors import BadArgument, BadRecord

__all__ = ["Heard", "decode_event", "encode_event"]

_KINDS: Final[dict[str, type[MemberEvent]]] = {
    "member-joined": MemberJoined,
    "member-updated": MemberUpdated,
    "member-suspected": MemberSuspected,
    "member-refuted": MemberRefuted,
    "member-down": MemberDown,
    "member-left": MemberLeft,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode_event(event: MemberEvent) -> bytes:
    """As JSON: kind, member, reason, revision."""
    found = {
        "kind": _NAMES[type(event)],
        "member": event.member.to_object() | {"said": event.member.info.status.value},
        "reason": event.reason,
        "revision": event.revision,
    }
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def decode_event(payload: bytes) -> MemberEvent:
    """Raises `BadRecord`. The member's lease is not told: who reads this has no store."""
    found = from_json(payload, "a cluster event")
    kind, member = _KINDS.get(str(found.get("kind"))), found.get("member")
    reason, revision = found.get("reason"), found.get("revision")
    if kind is None or not isinstance(member, dict):
        raise BadRecord(f"no cluster event: {found!r:.200}")
    if not isinstance(reason, str) or not isinstance(revision, int):
        raise BadRecord(f"no cluster event: {found!r:.200}")
    return kind(member=_member(member), reason=reason, revision=revision)


def _member(found: dict[str, Any]) -> Member:
    incarnation, reason, since = (found.get(name) for name in ("incarnation", "reason", "since"))
    try:
        status = MemberStatus(str(found.get("status")))
        info = NodeInfo.from_object(found | {"status": found.get("said", MemberStatus.UP)})
    except (BadArgument, ValueError) as error:
        raise BadRecord(f"no member: {error!r:.200}") from error
    if not isinstance(incarnation, int) or not isinstance(reason, str) or not isinstance(since, int | float):
        raise BadRecord(f"no member: {found!r:.200}")
    return Member(info=info, status=status, incarnation=incarnation, reason=reason, since=float(since))


class Heard:
    """What a reader has heard of each member."""

    def __init__(self, *, members_count_max: int) -> None:
        self._members_count_max = members_count_max
        # By member, the last stay and revision of either track. Who was heard of last comes last.
        self._places: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}
        # By member, the last stay that ended.
        self._ended: dict[str, int] = {}

    def is_news(self, event: MemberEvent) -> bool:
        """Whether it was not heard before; from now on it was."""
        name, incarnation = event.member.id, event.member.incarnation
        if self._ended.get(name, -1) >= incarnation:
            return False
        of_record, of_suspicion = self._places.pop(name, ((0, 0), (0, 0)))
        # A stay that ends and the next one may have the same revision: a record written over the other.
        place = (incarnation, event.revision)
        is_suspicion = isinstance(event, MemberSuspected | MemberRefuted)
        is_news = place > (of_suspicion if is_suspicion else of_record)
        if is_news and is_suspicion:
            of_suspicion = place
        elif is_news:
            of_record = place
        self._places[name] = (of_record, of_suspicion)
        if is_news and isinstance(event, MemberDown | MemberLeft):
            self._ended[name] = incarnation
        if len(self._places) > self._members_count_max:
            oldest = next(iter(self._places))
            del self._places[oldest]
            self._ended.pop(oldest, None)
        return is_news
