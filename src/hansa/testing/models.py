"""Models: how a system would answer if it served one call after the other, to judge one that serves many.

A model is a value with three pure methods; write your own beside these. States and requests must be hashable.
A call whose outcome is unknown is given the answer `UNKNOWN`, which fits every answer that it may have had.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol


class _Unknown:
    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()


class Model(Protocol):
    """One object under one key, as if it were used by one process at a time."""

    @property
    def minds_process(self) -> bool:
        """Whether it matters which process asks: it does for a lock, it does not for a register."""

    def begin(self) -> Hashable:
        """The state before the first call."""

    def step(self, state: Any, process: str, asked: Any, answer: Any) -> tuple[Hashable, ...]:
        """The possible states after this call with this answer; none if the answer is impossible."""

    def is_look(self, asked: Any, answer: Any) -> bool:
        """Whether a call with this answer changes no state at all."""


# ---- a register ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """Ask for the value of a register or a counter. The answer is the value."""

    def __str__(self) -> str:
        return "read"


@dataclass(frozen=True, slots=True)
class Write:
    """Set the value. The answer does not matter. An operation of a model, not a step of the transport."""

    value: Hashable

    def __str__(self) -> str:
        return f"write {self.value!r}"


@dataclass(frozen=True, slots=True)
class CompareAndSet:
    """Set the value if it is the expected one. The answer says whether it was."""

    expected: Hashable
    value: Hashable

    def __str__(self) -> str:
        return f"set {self.value!r} if {self.expected!r}"


@dataclass(frozen=True, slots=True)
class RegisterModel:
    """One value, for `Read`, `Write` and `CompareAndSet`."""

    initial: Hashable = None
    minds_process: bool = False

    def begin(self) -> Hashable:
        return self.initial

    def step(self, state: Hashable, process: str, asked: Any, answer: Any) -> tuple[Hashable, ...]:
        if isinstance(asked, Write):
            return (asked.value,)
        if isinstance(asked, CompareAndSet):
            is_equal = state == asked.expected
            if answer is not UNKNOWN and bool(answer) is not is_equal:
                return ()
            return (asked.value,) if is_equal else (state,)
        if isinstance(asked, Read):
            return (state,) if answer is UNKNOWN or answer == state else ()
        raise TypeError(f"a register knows Read, Write and CompareAndSet, not {asked!r}")

    def is_look(self, asked: Any, answer: Any) -> bool:
        return isinstance(asked, Read) or (isinstance(asked, CompareAndSet) and answer is False)


# ---- a counter -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Add:
    """Add to the value. The answer is the value after it, or None if the answer did not say."""

    amount: int = 1

    def __str__(self) -> str:
        return f"add {self.amount}"


@dataclass(frozen=True, slots=True)
class CounterModel:
    """A number, for `Add` and `Read`."""

    initial: int = 0
    minds_process: bool = False

    def begin(self) -> int:
        return self.initial

    def step(self, state: int, process: str, asked: Any, answer: Any) -> tuple[int, ...]:
        if isinstance(asked, Add):
            after = state + asked.amount
            return (after,) if answer is UNKNOWN or answer is None or answer == after else ()
        if isinstance(asked, Read):
            return (state,) if answer is UNKNOWN or answer == state else ()
        raise TypeError(f"a counter knows Add and Read, not {asked!r}")

    def is_look(self, asked: Any, answer: Any) -> bool:
        return isinstance(asked, Read)


# ---- a lock with fences --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acquire:
    """Take the lock. The answer is its fence; or None, because another process held it."""

    def __str__(self) -> str:
        return "acquire"


@dataclass(frozen=True, slots=True)
class Release:
    """Give the lock back, if it is held with this fence (None: with any).

    The answer says whether it was, or None if it did not say. A lock that ends by itself, with a lease, is a
    release without an outcome, made when the holder's time was over by its own clock.
    """

    fence: int | None = None

    def __str__(self) -> str:
        return "release" if self.fence is None else f"release {self.fence}"


@dataclass(frozen=True, slots=True)
class LockState:
    """The holder of the lock (None: nobody), and its last fence; if an answer was lost, at least that.

    Then `not_fences` are fences above it that later answers excluded.
    """

    holder: str | None = None
    fence: int = 0
    is_exact: bool = True
    not_fences: frozenset[int] = frozenset()

    def __str__(self) -> str:
        fence = f"{self.fence}" if self.is_exact else f"at least {self.fence}"
        return f"free, last fence {fence}" if self.holder is None else f"{self.holder} with fence {fence}"


@dataclass(frozen=True, slots=True)
class LockModel:
    """One holder at a time, each with a higher fence than all before; for `Acquire` and `Release`."""

    fence: int = 0
    minds_process: bool = True

    def begin(self) -> LockState:
        return LockState(fence=self.fence)

    def step(self, state: LockState, process: str, asked: Any, answer: Any) -> tuple[LockState, ...]:
        if isinstance(asked, Acquire):
            return self._acquire(state, process, answer)
        if isinstance(asked, Release):
            return self._release(state, process, asked, answer)
        raise TypeError(f"a lock knows Acquire and Release, not {asked!r}")

    def is_look(self, asked: Any, answer: Any) -> bool:
        if isinstance(asked, Acquire):
            return answer is None
        # A refused fence is one less that the holder may have.
        return answer is False and asked.fence is None

    def _acquire(self, state: LockState, process: str, answer: Any) -> tuple[LockState, ...]:
        if answer is None:
            return (state,) if state.holder is not None else ()
        if answer is UNKNOWN:
            # The lowest possible fence stands for all: whatever follows a higher one follows this one, too.
            lowest = LockState(holder=process, fence=state.fence + 1, is_exact=False)
            return (lowest,) if state.holder is None else (state,)
        if state.holder is not None or not answer > state.fence:
            return ()
        return (LockState(holder=process, fence=answer),)

    def _release(self, state: LockState, process: str, asked: Release, answer: Any) -> tuple[LockState, ...]:
        is_mine = state.holder == process
        may_fit = is_mine and (asked.fence is None or _may_be(state, asked.fence))
        must_fit = is_mine and (asked.fence is None or (state.is_exact and state.fence == asked.fence))
        after: tuple[LockState, ...] = ()
        if may_fit and answer is not False:
            is_exact = state.is_exact or asked.fence is not None
            after += (LockState(fence=asked.fence or state.fence, is_exact=is_exact),)
        if not must_fit and answer is not True:
            after += (_without(state, asked.fence) if may_fit and asked.fence is not None else state,)
        return after


def _may_be(state: LockState, fence: int) -> bool:
    if state.is_exact:
        return fence == state.fence
    return fence >= state.fence and fence not in state.not_fences


def _without(state: LockState, fence: int) -> LockState:
    """The same state, knowing that this is not its fence."""
    not_fences = state.not_fences | {fence}
    lowest = state.fence
    while lowest in not_fences:
        lowest += 1
    return replace(state, fence=lowest, not_fences=frozenset(each for each in not_fences if each > lowest))
