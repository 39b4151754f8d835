"""The calls of clients to a system and its answers, with the times of both: a history to be judged.

    log = CallLog()
    with log.call("client 1", "x", Write(3)) as call:
        await store.put("x", b"3")
        call.answered(None)

The times are of one monotonic clock. On Linux and macOS that clock is the same for all processes of a
machine, so that their logs can be joined.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Self

from hansa.clock import Clock, SystemClock
from hansa.errors import BadArgument, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of one process. `returned_s` None: its outcome is unknown, and `answer` means nothing.

    A call with an unknown outcome may take effect at any time after it was made, or never. Raises
    `BadArgument` for one that returned before it was made. A gateway's `Call` is a request under way; this
    class is a line of a history.
    """

    process: str
    key: Hashable = ""
    asked: Any
    answer: Any = None
    called_s: float
    returned_s: float | None

    def __post_init__(self) -> None:
        if self.returned_s is not None and not self.returned_s >= self.called_s:
            raise BadArgument(f"{self}: returned at {self.returned_s}, before it was made at {self.called_s}")

    @property
    def is_answered(self) -> bool:
        return self.returned_s is not None

    def __str__(self) -> str:
        answer = f"-> {self.answer!r}" if self.is_answered else "(no answer)"
        return f"{self.process}: {self.asked} {answer}"


class CallLog:
    """The calls that were made, in the order in which they ended. For any number of tasks of one thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Final = clock if clock is not None else SystemClock()
        self._ended: list[Call] = []
        self._open: dict[OpenCall, None] = {}

    def call(self, process: str, key: Hashable, asked: Any) -> OpenCall:
        """A call that begins now. Use it with `with`, and report its outcome inside."""
        opened = OpenCall(self, process, key, asked, self._clock.monotonic())
        self._open[opened] = None
        return opened

    @property
    def calls(self) -> list[Call]:
        """All calls; those that have not ended have no outcome, since they may still have any."""
        return [*self._ended, *(opened.ended(None, None) for opened in self._open)]

    @property
    def unknown_count(self) -> int:
        """How many calls have no known outcome."""
        return sum(not call.is_answered for call in self.calls)

    def close(self, opened: OpenCall, *, answer: Any = None, is_answered: bool, is_kept: bool = True) -> None:
        """Called by `OpenCall`. Raises `UsageError` for one that has ended already."""
        if opened not in self._open:
            raise UsageError(f"{opened.process}: {opened.asked} has ended already")
        del self._open[opened]
        if is_kept:
            self._ended.append(opened.ended(answer, self._clock.monotonic() if is_answered else None))


class OpenCall:
    """A call that was made and has not ended. If the block is left without a word, its outcome is unknown."""

    __slots__ = ("_called_s", "_is_ended", "_key", "_log", "asked", "process")

    def __init__(self, log: CallLog, process: str, key: Hashable, asked: Any, called_s: float) -> None:
        self._log = log
        self._key = key
        self._called_s = called_s
        self._is_ended = False
        self.process = process
        self.asked = asked

    def answered(self, answer: Any = None) -> None:
        """It ended now, with this answer."""
        self._log.close(self, answer=answer, is_answered=True)
        self._is_ended = True

    def refused(self) -> None:
        """It is certain that nothing was done, nor will be: the call is left out."""
        self._log.close(self, is_answered=False, is_kept=False)
        self._is_ended = True

    def ended(self, answer: Any, returned_s: float | None) -> Call:
        """The call as a value."""
        return Call(
            process=self.process,
            key=self._key,
            asked=self.asked,
            answer=answer,
            called_s=self._called_s,
            returned_s=returned_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._is_ended:
            self._log.close(self, is_answered=False)
