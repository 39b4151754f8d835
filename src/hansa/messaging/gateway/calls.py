"""Requests without an outcome yet, and when they run out of time.

Each request is opened once and closed once: by its reply, by an error, by its deadline, or by its caller, who
gave up. Whatever comes for it later finds nothing here. Deadlines cost a comparison a request: the alarm is
set for the earliest one, and when it rings all open calls are looked at, at most once every `ALARM_S_MIN`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hansa.errors import BadArgument
from hansa.messaging.gateway.pool import Member

# A deadline is never kept early, and late by at most this much beyond the loop's own lag.
ALARM_S_MIN = 0.01
NEVER = float("inf")
_UINT64_MAX = 0xFFFF_FFFF_FFFF_FFFF


class Call:
    """One request on its way: what is needed to send it, and whom to tell how it ended."""

    __slots__ = (
        "deadline",
        "idempotent",
        "is_direct",
        "key",
        "member",
        "msg_id",
        "parts",
        "pause",
        "peer",
        "post_number",
        "request_id",
        "service",
        "sink",
        "started_at",
        "trace",
        "tried",
    )

    def __init__(
        self, request_id: int, service: str, parts: list[bytes], msg_id: int, deadline: float, sink: Any
    ) -> None:
        self.request_id = request_id
        self.service = service
        self.parts = parts
        self.msg_id = msg_id
        self.deadline = deadline
        self.sink = sink
        self.started_at = 0.0
        self.key: bytes | None = None
        self.idempotent = False
        self.is_direct = False
        """Its caller chose the provider; no other may get it."""
        self.trace: Any = None
        self.member: Member | None = None
        self.peer = b""
        self.post_number = 0
        self.pause: Any = None
        """The driver's timer, while the call waits for its next try."""
        self.tried: tuple[str, ...] = ()


class Calls:
    """The open calls of one gateway, by request id."""

    def __init__(self, first_id: int) -> None:
        self.open: dict[int, Call] = {}
        self.alarm_at = NEVER
        """When `expired` is to be asked next."""
        self._last_id = first_id

    def __len__(self) -> int:
        return len(self.open)

    def next_id(self) -> int:
        """A request id that is not in use; ids grow."""
        self._last_id = request_id = self._last_id % _UINT64_MAX + 1
        # A caller of the direct router may have chosen this number for itself.
        return request_id if request_id not in self.open else self.next_id()

    def claim_id(self, request_id: int) -> int:
        """A request id of the caller's own choice. Raises BadArgument when it is in use or no u64."""
        if not 0 <= request_id <= _UINT64_MAX:
            raise BadArgument(f"request id {request_id} is not a u64")
        if request_id in self.open:
            raise BadArgument(f"request id {request_id} is in flight already: choose another")
        return request_id

    def alarm(self, deadline: float, *, now: float) -> bool:
        """There is a call with this deadline; whether the alarm must be set anew, to `alarm_at`."""
        at = max(deadline, now + ALARM_S_MIN)
        # Never later than it was: many short deadlines, one after another, would put it off for ever.
        if at >= self.alarm_at:
            return False
        self.alarm_at = at
        return True

    def expired(self, *, now: float) -> list[Call]:
        """Take out the calls whose deadline has passed, in the order in which they were made."""
        late = [call for call in self.open.values() if call.deadline <= now]
        for call in late:
            del self.open[call.request_id]
        earliest = min((call.deadline for call in self.open.values()), default=NEVER)
        self.alarm_at = max(earliest, now + ALARM_S_MIN) if earliest < NEVER else NEVER
        return late

    def of_member(self, member: Member, peer: bytes) -> list[Call]:
        """The open calls that were posted to this member while it was connected as `peer`."""
        return [call for call in self.open.values() if call.member is member and call.peer == peer]


def as_parts(parts: Sequence[bytes] | bytes) -> list[bytes]:
    """A payload as its parts; one part may be given alone."""
    return [parts] if isinstance(parts, bytes) else list(parts)
