"""Requests that have no outcome yet, their tries and their deadlines. Pure.

Each request is opened once and closed once: by its reply, by an error, by its deadline, or by its caller, who
gave up. Anything that comes for it later finds nothing here. A deadline costs one comparison per request: the
alarm is set for the earliest one, and when it rings all open calls are looked at, at most once every
`ALARM_S_MIN`.

A call has one try at a time, with `member`. An idempotent one may have more: when a try takes too long it
stands *beside* the next. The first answer ends the call, and the other tries are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from hansa.errors import BadArgument, HansaError, TimedOut
from hansa.limits import TRY_S_MIN
from hansa.services.gateway.pool import PoolMember
from hansa.wire.business import CallHeader, TraceContext, encode_header


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The one outcome of one request: the reply's parts, or the error that it ended with."""

    service: str
    request_id: int
    parts: list[bytes]
    error: HansaError | None = None

    def result(self) -> list[bytes]:
        """The reply's parts. Raises the error if the request failed."""
        if self.error is not None:
            raise self.error
        return self.parts


_REMAINING_MS_MAX = 0xFFFF_FFFF
# Timeouts whose headers are kept; a program has a few.
_KEPT_MAX = 64


class Headers:
    """Makes headers, and keeps those of first tries: most have one of a few timeouts."""

    def __init__(self) -> None:
        self.kept: dict[float | None, bytes] = {}
        """Without a trace, by timeout; looked into by who opens requests (`make bench`, case gateway)."""

    def first(self, timeout: float | None, trace: TraceContext | None) -> bytes:
        """For a first try, with all of its time left."""
        header = header_of(timeout, trace)
        if trace is None:
            if len(self.kept) >= _KEPT_MAX:
                self.kept.clear()  # Those of the usual timeouts are soon back.
            self.kept[timeout] = header
        return header


def header_of(left_s: float | None, trace: TraceContext | None) -> bytes:
    """The header of a request that has so much time left; None (or -1) has no deadline."""
    if left_s is None or left_s < 0:
        remaining_ms = None
    else:
        remaining_ms = int(min(_REMAINING_MS_MAX, max(1, left_s * 1000)))
    return encode_header(CallHeader(remaining_ms, trace))


# A deadline is never kept early, and late by at most this much beyond the loop's own lag.
ALARM_S_MIN = 0.01
NEVER = float("inf")
# A loop that is late by so much, and by such a share of what was waited, is the reason of a timeout.
BLOCKED_S_MIN = 0.1
BLOCKED_SHARE = 0.25
_UINT64_MAX = 0xFFFF_FFFF_FFFF_FFFF


class Try(NamedTuple):
    """A try that stands beside the present one."""

    member: PoolMember
    post_number: int


class Call:
    """One request on its way: what is needed to send it, and whom to tell how it ended.

    (`hansa.testing.Call` is another thing: a line of a recorded history.)
    """

    # What only an idempotent one has; no other pays for it (`make bench`, case gateway).
    idempotent: ClassVar[bool] = False
    tried_at: float = NEVER
    """When the present try began."""
    hedge_at: float = NEVER
    """When to look whether the present try takes too long."""
    beside: Mapping[bytes, Try] = MappingProxyType({})
    """Earlier tries that may still be answered, by peer."""

    __slots__ = (
        "deadline",
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
        self.is_direct = False
        """Its caller chose the provider; no other may get it."""
        self.trace: Any = None
        self.member: PoolMember | None = None
        self.peer = b""
        self.post_number = 0
        self.pause: Any = None
        """The driver's timer, while the call waits for its next try."""
        self.tried: tuple[str, ...] = ()
        """Endpoints of all tries but the present one."""

    def __str__(self) -> str:
        return f"request {self.request_id} to {self.service}"

    @property
    def asked(self) -> list[str]:
        """Endpoints of the providers that may still answer."""
        tries = [one.member.endpoint for one in self.beside.values()]
        return tries if self.member is None else [*tries, self.member.endpoint]

    def timed_out(self, situation: str, *, now: float, due_at: float) -> TimedOut:
        """How it ends when its time is over; `situation` is that of the discovery."""
        if asked := self.asked:
            where = f"reply from {', '.join(asked)}"
        else:
            where = f"provider was ready ({situation})"
        why = blocked(started_at=self.started_at, due_at=due_at, now=now)
        return TimedOut(f"{self}: no {where} within {now - self.started_at:.3f} s{why}")

    def end_try(self) -> None:
        """The present try is over."""
        if self.member is not None:
            self.tried = (*self.tried, self.member.endpoint)
        self.member, self.peer = None, b""

    def turn_to(self, peer: bytes) -> bool:
        """This peer said something: if a try beside is with it, make that the present one. Whether it was."""
        return False


class IdempotentCall(Call):
    """One that may be carried out twice, and so may have several tries at a time."""

    idempotent = True

    __slots__ = ("beside", "hedge_at", "tried_at", "was_withheld")

    def __init__(
        self, request_id: int, service: str, parts: list[bytes], msg_id: int, deadline: float, sink: Any
    ) -> None:
        super().__init__(request_id, service, parts, msg_id, deadline, sink)
        self.tried_at = NEVER
        self.hedge_at = NEVER
        self.beside: Mapping[bytes, Try] = Call.beside
        self.was_withheld = False

    def end_try(self) -> None:
        super().end_try()
        self.hedge_at = NEVER

    def set_beside(self) -> None:
        """The present try goes on beside the next one."""
        if self.member is not None:
            self.beside = {**self.beside, self.peer: Try(self.member, self.post_number)}
        self.end_try()

    def turn_to(self, peer: bytes) -> bool:
        if peer not in self.beside:
            return False
        chosen = self.beside[peer]
        self.set_beside()
        self.drop_beside(peer)
        self.member, self.peer, self.post_number = chosen.member, peer, chosen.post_number
        # It is the present one again, and so not among those before.
        at = self.tried.index(chosen.member.endpoint)
        self.tried = self.tried[:at] + self.tried[at + 1 :]
        return True

    def drop_beside(self, peer: bytes) -> None:
        """This try will have no answer."""
        self.beside = {other: one for other, one in self.beside.items() if other != peer}


class Calls:
    """The open calls of one gateway, by request id."""

    def __init__(self, first_id: int) -> None:
        self.open: dict[int, Call] = {}
        self.alarm_at = NEVER
        """When `expired` is to be asked next."""
        self.look_at = NEVER
        """When `overdue` is to be asked next."""
        self.hedge_last_at = 0.0
        """The `hedge_at` of the last call that was opened with one."""
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

    def overdue(self, *, now: float) -> list[IdempotentCall]:
        """The calls whose present try is to be looked at, in the order in which they were made."""
        due: list[IdempotentCall] = []
        self.look_at = NEVER
        for call in self.open.values():
            # Added, as for `hedge_at`: subtracted, it may differ by a rounding, and the try be forgotten.
            if call.started_at + TRY_S_MIN > now:
                # No try has less time than that, and whoever follows is younger still.
                if self.hedge_last_at > now:
                    self.look_at = min(self.look_at, call.started_at + TRY_S_MIN)
                break
            if not isinstance(call, IdempotentCall):
                continue
            if call.hedge_at <= now:
                due.append(call)
            elif call.hedge_at < self.look_at:
                self.look_at = call.hedge_at
        return due

    def of_member(self, member: PoolMember, peer: bytes) -> list[Call]:
        """The open calls with a try that was posted to this member while it was connected as `peer`."""
        return [
            call
            for call in self.open.values()
            if (call.member is member and call.peer == peer)
            or (peer in call.beside and call.beside[peer].member is member)
        ]


def blocked(*, started_at: float, due_at: float, now: float) -> str:
    """What to add to a TimedOut of who waited since `started_at`, if a timer set for `due_at` fires only now.

    Nothing of this loop ran in between: the reply may have been there.
    """
    waited_s, blocked_s = now - started_at, now - max(started_at, due_at)
    if blocked_s < BLOCKED_S_MIN or blocked_s < BLOCKED_SHARE * waited_s:
        return ""
    return (
        f"; for {blocked_s:.3f} s of these this program's own event loop stood still: something in it ran "
        "without awaiting, or the process was stopped"
    )


def reserved(msg_id: int) -> BadArgument:
    """For who wants to send a request with the msgId of errors."""
    return BadArgument(f"msgId 0x{msg_id:04x} says that a reply is an error; choose another")


def as_parts(parts: Sequence[bytes] | bytes) -> list[bytes]:
    """A payload as its parts; one part may be given alone. Raises BadArgument for what is not bytes."""
    if isinstance(parts, bytes):
        return [parts]
    if isinstance(parts, str | bytearray | memoryview):
        raise _not_bytes("the payload", parts)
    try:
        given = list(parts)
    except TypeError:
        raise BadArgument(
            f"the payload is {type(parts).__name__}, neither bytes nor a list of bytes"
        ) from None
    if not given:
        raise BadArgument("a request has at least one part; send b'' for an empty one")
    for number, part in enumerate(given):
        if not isinstance(part, bytes):
            raise _not_bytes(f"parts[{number}]", part)
    return given


def _not_bytes(what: str, given: object) -> BadArgument:
    if isinstance(given, str):
        advice = ": encode it, as in text.encode()"
    elif isinstance(given, bytearray | memoryview):
        advice = ": make it bytes, as in bytes(payload)"
    else:
        advice = ""
    return BadArgument(f"{what} is {type(given).__name__}, not bytes{advice}")
