"""What a handler is given and what it may return."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hansa.errors import (
    HandlerFailed,
    HansaError,
    NoProvider,
    ProviderBusy,
    ProviderDraining,
    Unavailable,
)
from hansa.limits import ERROR_CODE_BYTES_MAX
from hansa.wire.business import ErrorReply, TraceContext

Reply: TypeAlias = bytes | Sequence[bytes] | None


@dataclass(slots=True, eq=False)
class Request:
    """What a caller sent. `deadline` is in the event loop's time; after it nobody waits for the reply.

    Not frozen, because one is made per request and a frozen one costs twice as much (`make bench`).
    """

    parts: list[bytes]
    msg_id: int
    request_id: int
    peer: bytes
    deadline: float | None = None
    trace: TraceContext | None = None

    @property
    def payload(self) -> bytes:
        """The first part; a request has at least one."""
        return self.parts[0]

    def remaining_s(self, now: float) -> float | None:
        """How long the caller still waits; None when it did not say. Never negative."""
        return None if self.deadline is None else max(0.0, self.deadline - now)


HandlerFunction: TypeAlias = Callable[[Request], Reply] | Callable[[Request], Awaitable[Reply]]


class Handler:
    """A function for one msgId. A plain one (`def`) runs in a thread, another (`async def`) as a task."""

    __slots__ = ("function", "is_plain", "msg_id")

    def __init__(self, msg_id: int, function: HandlerFunction) -> None:
        self.msg_id = msg_id
        self.function = function
        # An object with an async __call__ is as good as an async def.
        self.is_plain = not (
            inspect.iscoroutinefunction(function)
            or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
        )

    @property
    def name(self) -> str:
        """Which function it is, for people: where it was defined, and its msgId."""
        named = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        return f"{named.__module__}.{named.__qualname__} (msgId {self.msg_id})"


def reply_parts(reply: object, frame_bytes_max: int, message_bytes_max: int) -> list[bytes]:
    """The parts of a reply. Raises `HandlerFailed` for what a handler must not return.

    Too large a reply is one of those: the caller's side would end the connection, with all that is on it.
    """
    if type(reply) is bytes:
        parts = [reply]
    elif reply is None:
        return [b""]
    elif isinstance(reply, list | tuple):
        parts = reply if type(reply) is list else list(reply)
    else:
        raise HandlerFailed(
            f"the handler returned {type(reply).__name__}; it must return bytes, a list of bytes or None"
        )
    size_bytes = 0
    for part in parts:
        if type(part) is not bytes:
            raise HandlerFailed(f"the handler returned a part of type {type(part).__name__}, not bytes")
        size_bytes += len(part)
        if len(part) > frame_bytes_max or size_bytes > message_bytes_max:
            raise HandlerFailed(
                f"the handler's reply is too large: a part has at most {frame_bytes_max} bytes, "
                f"all together {message_bytes_max}"
            )
    return parts


def error_reply(error: BaseException) -> ErrorReply:
    """What the caller is told about a handler's exception: hansa's errors keep their word."""
    try:
        text = str(error)
    except Exception as broken:  # The exception's own __str__: still the caller gets its answer.
        text = f"(its text failed: {type(broken).__name__})"
    if isinstance(error, NoProvider | ProviderBusy | ProviderDraining):
        # These promise "not started", and a caller may send such a request again without asking. A handler
        # that lets them through (it called somebody else, say) has started.
        return ErrorReply(Unavailable.code, f"{type(error).__name__}: {text}")
    if isinstance(error, HansaError):
        code = error.reason if isinstance(error, HandlerFailed) else error.code
        if 1 <= len(code) <= ERROR_CODE_BYTES_MAX and all("!" <= letter <= "~" for letter in code):
            return ErrorReply(code, text)
        return ErrorReply(HandlerFailed.code, f"{code}: {text}")
    return ErrorReply(HandlerFailed.code, f"{type(error).__name__}: {text}" if text else type(error).__name__)
