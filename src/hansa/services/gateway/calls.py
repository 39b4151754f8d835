"""Requests that have no outcome yet, their tries and their deadlines. Pure.

Each request is opened once and closed once: by its reply, by an error, by its deadline, or by its caller,
which gave up. Anything that comes for it later finds nothing here, and is counted. A deadline costs one
comparison per request: the alarm is set for the earliest one, and when it rings all open calls are checked,
at most once every `ALARM_S_MIN`.

A call has one try at a time, with `member`. An idempotent call may have more: when a try takes too long it
stands *beside* the next. The first answer ends the call, and the other tries are forgotten.

Compiled by mypyc with the pool: every request and every reply passes here (`make bench`, case gateway).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

from hansa.errors import BadArgument, BadFrame, HansaError, TimedOut
from hansa.limits import TRY_S_MIN
from hansa.services.gateway.pool import PoolMember
from hansa.wire.business import (
    ERROR_MSG_ID,
    CallHeader,
    TraceContext,
    decode_call,
    encode_call,
    encode_header,
)

_REMAINING_MS_MAX: Final = 0xFFFF_FFFF
# Timeouts whose headers are kept; a program has a few.
_KEPT_MAX: Final = 64


def header_of(left_s: float | None, trace: TraceContext | None) -> bytes:
    """The header of a request with this much time left; None (or -1) for no deadline."""
    if left_s is None or left_s < 0:
        remaining_ms = None
    else:
        remaining_ms = int(min(_REMAINING_MS_MAX, max(1, left_s * 1000)))
    return encode_header(CallHeader(remaining_ms, trace))


# A deadline is never reported early, and late by at most this much beyond the loop's own lag.
ALARM_S_MIN: Final = 0.01
NEVER: Final = float("inf")
# If the loop is late by this much, and by this share of the wait, it is named as the reason of a timeout.
BLOCKED_S_MIN: Final = 0.1
BLOCKED_SHARE: Final = 0.25
_UINT64_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF


class Try(NamedTuple):
    """A try that stands beside the current one."""

    member: PoolMember
    post_number: int


_NO_TRIES: Final[dict[bytes, Try]] = {}
"""The shared value of calls without such tries; it is replaced and never changed."""


class Call:
    """One request on its way: what is needed to send it, and who is told its outcome.

    `sink` is the future of a caller that waits (`is_awaited`), or is called with the call, the reply's parts
    and the error. (`hansa.testing.Call` is another thing: a line of a recorded history.)
    """

    __slots__ = (
        "beside",
        "deadline",
        "hedge_at",
        "idempotent",
        "is_awaited",
        "is_direct",
        "key",
        "member",
        "msg_id",
        "parts",
        "peer",
        "post_number",
        "request_id",
        "service",
        "sink",
        "started_at",
        "trace",
        "tried",
        "tried_at",
        "was_withheld",
    )

    def __init__(
        self,
        request_id: int,
        service: str,
        parts: list[bytes],
        msg_id: int,
        deadline: float,
        sink: Any,
        *,
        started_at: float = 0.0,
        key: bytes | None = None,
        trace: TraceContext | None = None,
        idempotent: bool = False,
        is_awaited: bool = False,
        is_direct: bool = False,
    ) -> None:
        self.request_id = request_id
        self.service = service
        self.parts = parts
        self.msg_id = msg_id
        self.deadline = deadline
        self.sink = sink
        self.started_at = started_at
        self.key = key
        self.trace = trace
        self.idempotent = idempotent
        """Whether it may be carried out twice, and so may have several tries at a time."""
        self.is_awaited = is_awaited
        self.is_direct = is_direct
        """Whether its caller chose the provider; no other provider may get it."""
        self.member: PoolMember | None = None
        self.peer = b""
        self.post_number = 0
        self.tried: tuple[str, ...] = ()
        """Endpoints of all tries but the current one."""
        self.beside: dict[bytes, Try] = _NO_TRIES
        """Earlier tries that may still be answered, by peer."""
        self.tried_at = NEVER
        """When the current try of an idempotent call began."""
        self.hedge_at = NEVER
        """When to check whether the current try takes too long."""
        self.was_withheld = False

    def __str__(self) -> str:
        return f"request {self.request_id} to {self.service}"

    @property
    def asked(self) -> list[str]:
        """Endpoints of the providers that may still answer."""
        tries = [one.member.endpoint for one in self.beside.values()]
        return tries if self.member is None else [*tries, self.member.endpoint]

    def frames(self, header: bytes) -> list[bytes]:
        """The frames to send. Raises BadArgument for parts that do not fit into a message."""
        return encode_call(self.request_id, self.msg_id, self.parts, header)

    def frames_again(self, now: float) -> list[bytes]:
        """The same for a try that is not the first, with the time that is left."""
        left_s = None if self.deadline == NEVER else max(0.0, self.deadline - now)
        return self.frames(header_of(left_s, self.trace))

    def timed_out(self, situation: str, *, now: float, due_at: float) -> TimedOut:
        """The error when its time is over; `situation` is that of the discovery."""
        if asked := self.asked:
            where = f"reply from {', '.join(asked)}"
        else:
            where = f"provider was ready ({situation})"
        why = blocked(started_at=self.started_at, due_at=due_at, now=now)
        return TimedOut(f"{self}: no {where} within {now - self.started_at:.3f} s{why}")

    # -- its tries

    def posted(self, member: PoolMember) -> None:
        """The call was handed to this member."""
        self.member = member
        self.peer = member.peer
        self.post_number = member.took()

    def leave(self) -> PoolMember | None:
        """Take the call from its member; returns the member if it waits to leave."""
        member = self.member
        if member is None or member.peer != self.peer:
            return None
        member.in_flight_count -= 1
        return member if member.leaving else None

    def leave_beside(self) -> list[PoolMember]:
        """Take the call from earlier members too, whose answers are late then; returns these members."""
        if not self.beside:
            return []
        beside, self.beside = self.beside, _NO_TRIES
        members = [one.member for peer, one in beside.items() if one.member.peer == peer]
        for member in members:
            member.in_flight_count -= 1
        return members

    def end_try(self) -> None:
        """End the current try."""
        if self.member is not None:
            self.tried = (*self.tried, self.member.endpoint)
        self.member, self.peer = None, b""
        self.hedge_at = NEVER

    def set_beside(self) -> None:
        """Let the current try stand beside the next one."""
        if self.member is not None:
            self.beside = {**self.beside, self.peer: Try(self.member, self.post_number)}
        self.end_try()

    def turn_to(self, peer: bytes) -> bool:
        """This peer answered: make its try the current one, if it stands beside. Returns whether it did."""
        if peer not in self.beside:
            return False
        chosen = self.beside[peer]
        self.set_beside()
        self.drop_beside(peer)
        self.member, self.peer, self.post_number = chosen.member, peer, chosen.post_number
        # It is the current try again, and so not among those before.
        at = self.tried.index(chosen.member.endpoint)
        self.tried = self.tried[:at] + self.tried[at + 1 :]
        return True

    def drop_beside(self, peer: bytes) -> None:
        """This try will have no answer."""
        self.beside = {other: one for other, one in self.beside.items() if other != peer}

    def withhold(self) -> bool:
        """The call gets no second try now; returns whether that is the first time."""
        is_first = not self.was_withheld
        self.was_withheld = True
        return is_first

    def look_again(self, at: float) -> None:
        """Check the current try at this time, and not before."""
        self.hedge_at = at


class Calls:
    """The open calls of one gateway, by request id, and counts of the outcomes of all calls."""

    def __init__(self, first_id: int) -> None:
        self.open: dict[int, Call] = {}
        self.alarm_at = NEVER
        """When to call `expired` next."""
        self.look_at = NEVER
        """When to call `overdue` next."""
        self.requests_count = 0
        self.replied_count = 0
        self.abandoned_count = 0
        self.failed: Counter[str] = Counter()
        self.late_replies_count = 0
        self.stray_replies_count = 0
        self._hedge_last_at = 0.0
        """The `hedge_at` of the last call that was given one."""
        self._last_id = first_id
        self._headers: dict[float | None, bytes] = {}
        """Headers of first tries without a trace, by timeout: most calls use one of a few."""

    def __len__(self) -> int:
        return len(self.open)

    # -- a call begins

    def make(
        self,
        service: str,
        timeout: float | None,
        parts: Any,
        msg_id: int,
        key: bytes | str | None,
        idempotent: bool,
        trace: TraceContext | None,
        sink: Any,
        is_awaited: bool,
        now: float,
        own_id: int | None = None,
    ) -> Call:
        """Make a call that is not open yet, under its caller's own id or the next one. Raises BadArgument."""
        if msg_id == ERROR_MSG_ID:
            raise BadArgument(f"msgId 0x{msg_id:04x} says that a reply is an error; choose another")
        return Call(
            self.next_id() if own_id is None else self.claim_id(own_id),
            service,
            as_parts(parts),
            msg_id,
            NEVER if timeout is None or timeout < 0 else now + timeout,
            sink,
            started_at=now,
            key=key.encode() if isinstance(key, str) else key,
            trace=trace,
            idempotent=idempotent,
            is_awaited=is_awaited,
            is_direct=own_id is not None,
        )

    def first_frames(self, call: Call, timeout: float | None) -> list[bytes]:
        """The frames for its first try, with all of its time left. Raises BadArgument."""
        if call.trace is not None:
            return call.frames(header_of(timeout, call.trace))
        header = self._headers.get(timeout)
        if header is None:
            header = header_of(timeout, None)
            if len(self._headers) >= _KEPT_MAX:
                self._headers.clear()  # The usual timeouts are soon back.
            self._headers[timeout] = header
        return call.frames(header)

    def opened(self, call: Call) -> bool:
        """It was sent or waits for a provider; returns whether it is due before the alarm."""
        self.open[call.request_id] = call
        self.requests_count += 1
        return call.deadline < self.alarm_at

    def refused(self, error: HansaError) -> None:
        """Count a request that ended before it was a call."""
        self.requests_count += 1
        self.failed[error.code] += 1

    def next_id(self) -> int:
        """A request id that is not in use; ids grow."""
        self._last_id = request_id = self._last_id % _UINT64_MAX + 1
        # A user of the direct router may have chosen this number for itself.
        return request_id if request_id not in self.open else self.next_id()

    def claim_id(self, request_id: int) -> int:
        """A request id that the caller chose. Raises BadArgument when it is in use or no u64."""
        if not 0 <= request_id <= _UINT64_MAX:
            raise BadArgument(f"request id {request_id} is not a u64")
        if request_id in self.open:
            raise BadArgument(f"request id {request_id} is in flight already: choose another")
        return request_id

    # -- a call ends

    def answer(self, peer: bytes, messages: list[list[bytes]], at: int, sampling: int) -> int:
        """Settle the plain replies from `at` on; returns the place of the first other message, or the end.

        Not plain are messages that are no reply or report a failure, and replies that end a call with several
        tries or count for the pace of its service: to an idempotent call whose id has none of the bits of
        `sampling`.
        """
        calls = self.open
        for place in range(at, len(messages)):
            try:
                request_id, msg_id, _, parts = decode_call(messages[place])
            except BadFrame:
                return place
            call = calls.get(request_id)
            if call is None:
                self.late_replies_count += 1
                continue
            if (
                call.peer != peer
                or msg_id == ERROR_MSG_ID
                or (call.idempotent and (call.beside or not request_id & sampling))
            ):
                return place
            del calls[request_id]
            self.replied_count += 1
            call.leave()
            sink = call.sink
            if not call.is_awaited:
                sink(call, parts, None)
            elif not sink.done():
                sink.set_result(parts)
        return len(messages)

    def asked_of(self, peer: bytes, request_id: int) -> Call | None:
        """The open call that this peer answers; None for an answer that is late or a stray, counted."""
        call = self.open.get(request_id)
        if call is None:
            self.late_replies_count += 1
        elif call.peer != peer and not call.turn_to(peer):
            self.stray_replies_count += 1
        else:
            return call
        return None

    def replied(self, call: Call, parts: list[bytes]) -> None:
        """End the call with a reply."""
        del self.open[call.request_id]
        self.replied_count += 1
        if not call.is_awaited:
            call.sink(call, parts, None)
        elif not call.sink.done():
            call.sink.set_result(parts)

    def fail(self, call: Call, error: HansaError) -> None:
        """End the call with an error, unless it has its outcome already."""
        if self.open.pop(call.request_id, None) is not None:
            self.settle(call, error)

    def settle(self, call: Call, error: HansaError) -> None:
        """Give a call that is no longer open its outcome."""
        self.failed[error.code] += 1
        if not call.is_awaited:
            call.sink(call, [], error)
        elif not call.sink.done():
            call.sink.set_exception(error)

    def abandon(self, call: Call) -> bool:
        """The caller gave up; returns False when the call had its outcome already."""
        if self.open.pop(call.request_id, None) is None:
            return False
        self.abandoned_count += 1
        return True

    def take_all(self) -> list[Call]:
        """Take out all open calls."""
        calls = list(self.open.values())
        self.open.clear()
        return calls

    # -- its time

    def try_begun(self, call: Call, after_s: float, now: float) -> bool:
        """A try of an idempotent call began, to be checked after `after_s`; returns whether that is first."""
        call.tried_at = now
        call.hedge_at = self._hedge_last_at = now + after_s
        return call.hedge_at < self.look_at

    def alarm(self, deadline: float, *, now: float) -> bool:
        """There is a call with this deadline; returns whether the alarm must be set again, to `alarm_at`."""
        at = max(deadline, now + ALARM_S_MIN)
        # Never later than it was: many short deadlines, one after another, would put it off for ever.
        if at >= self.alarm_at:
            return False
        self.alarm_at = at
        return True

    def plan_look(self, at: float) -> None:
        """`overdue` must be called at this time."""
        self.look_at = at

    def expired(self, *, now: float) -> list[Call]:
        """Take out the calls whose deadline has passed, in the order in which they were made."""
        late = [call for call in self.open.values() if call.deadline <= now]
        for call in late:
            del self.open[call.request_id]
        earliest = min((call.deadline for call in self.open.values()), default=NEVER)
        self.alarm_at = max(earliest, now + ALARM_S_MIN) if earliest < NEVER else NEVER
        return late

    def overdue(self, *, now: float) -> list[Call]:
        """The calls whose current try must be checked, in the order in which they were made."""
        due: list[Call] = []
        self.look_at = NEVER
        for call in self.open.values():
            # A sum, as for `hedge_at`: a difference may be rounded otherwise, and the try be forgotten.
            if call.started_at + TRY_S_MIN > now:
                # No try has less time than that, and all later calls are younger still.
                if self._hedge_last_at > now:
                    self.look_at = min(self.look_at, call.started_at + TRY_S_MIN)
                break
            if not call.idempotent:
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
    """The end of a TimedOut's text when a timer for `due_at` fires late; the wait began at `started_at`.

    Nothing of this loop ran in between: the reply may have been there.
    """
    waited_s, blocked_s = now - started_at, now - max(started_at, due_at)
    if blocked_s < BLOCKED_S_MIN or blocked_s < BLOCKED_SHARE * waited_s:
        return ""
    return (
        f"; for {blocked_s:.3f} s of these this program's own event loop stood still: something in it ran "
        "without awaiting, or the process was stopped"
    )


def as_parts(parts: Any) -> list[bytes]:
    """A payload as its parts; one part may be given alone. Raises BadArgument if a part is not bytes.

    It takes anything: compiled code would raise an error of its own for a value of another type.
    """
    if isinstance(parts, bytes):
        return [parts]
    if isinstance(parts, str | bytearray | memoryview):
        raise _not_bytes("the payload", parts)
    try:
        given: list[Any] = list(parts)
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
