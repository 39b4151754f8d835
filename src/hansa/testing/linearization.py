"""The search for an order of concurrent calls that explains all their answers.

Theory of operation. The calls are those of one key. The search goes from return to return, in the order of
time: when a call returns, it must have taken effect, and only then is it decided which of the others that are
under way took effect before it, and in which order (just-in-time linearization, after Wing and Gong, and
Lowe). A *position* is the set of calls under way that have taken effect, and the state they led to. Three
things keep it small:

- A position that was reached before is not searched again.
- A call that changes no state takes effect as soon as its answer fits: that can only help. (A write of what
  is there already is no such call: later, it may change something.)
- Calls with an unknown outcome are used only when something else follows them, equal ones in the order in
  which they were made, and a position that used more of them than another is dropped: it can do no more.

The work is bounded. What was not decided within the bound is `UNDECIDED`, which is not a yes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hansa.testing.calls import Call
from hansa.testing.models import UNKNOWN, Model

__all__ = ["Judgement", "Return", "Search"]


class Judgement(Enum):
    """What is known about a history."""

    LINEARIZABLE = "linearizable"
    VIOLATED = "not linearizable"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Return:
    """A call returns: its number, its bit, the others under way, and how many without outcome were made."""

    number: int
    bit: int
    others: tuple[tuple[int, int], ...]
    unknown_count: int


# The bits of the answered calls under way that took effect, those of the unknown ones, and the state.
_Position = tuple[int, int, Hashable]
# Positions without the unknown calls, and by each of them the least sets of unknown calls that led to it.
_Reached = dict[tuple[int, Hashable], list[int]]
# As many sets are looked through in the time of a step.
_SETS_PER_STEP: Final = 10


class Search:
    """One search through the calls of one key, from any of some states."""

    def __init__(
        self, calls: Sequence[Call], model: Model, starts: Sequence[Hashable], steps_max: int
    ) -> None:
        self.calls = sorted(calls, key=lambda call: call.called_s)
        self.starts = starts
        self.steps_count = 0
        self._model = model
        self._steps_max = steps_max
        self._is_look = [call.is_answered and model.is_look(call.asked, call.answer) for call in self.calls]
        self.unknown = [number for number, call in enumerate(self.calls) if not call.is_answered]
        self._twin_before = self._twins()
        self.returns = self._returns()
        # By the return that comes next.
        self.reached: list[_Reached] = [{} for _ in range(len(self.returns) + 1)]

    def run(self) -> Judgement:
        """Look for an order, depth first, beginning with orders that use few calls before they must."""
        paths = [iter([(0, 0, start) for start in self.starts])]
        while paths:
            if self._is_exhausted:
                return Judgement.UNDECIDED
            position = next(paths[-1], None)
            if position is None:
                paths.pop()
                continue
            depth = len(paths) - 1
            if not self._is_new(self.reached[depth], position):
                continue
            if depth == len(self.returns):
                return Judgement.LINEARIZABLE
            paths.append(self._past(self.returns[depth], position))
        return Judgement.VIOLATED

    @property
    def depth(self) -> int:
        """How many returns the best order got past."""
        return max((depth for depth, found in enumerate(self.reached) if found), default=0)

    def states_before(self, depth: int) -> tuple[Hashable, ...]:
        """Every state that the thing can have been in before this return. Complete after a violation."""
        return tuple(dict.fromkeys(state for _, state in self.reached[depth]))

    # -- the steps

    @property
    def _is_exhausted(self) -> bool:
        return self.steps_count >= self._steps_max

    def _past(self, returned: Return, position: _Position) -> Iterator[_Position]:
        """The positions after a return, nearest first: its call took effect, perhaps after some others."""
        if position[0] & returned.bit:
            yield (position[0] & ~returned.bit, position[1], position[2])
            return
        todo = [position]
        seen: _Reached = {}
        self._is_new(seen, position)
        for here in todo:
            if self._is_exhausted:
                return
            settled = self._settle(returned, here)
            if settled[0] & returned.bit:
                yield (settled[0] & ~returned.bit, settled[1], settled[2])
                continue
            for state in self._step(returned.number, settled[2]):
                yield (settled[0], settled[1], state)
            todo += (after for after in self._further(returned, settled) if self._is_new(seen, after))

    def _settle(self, returned: Return, position: _Position) -> _Position:
        """Let every answered call take effect that fits the state and changes none."""
        taken, used, state = position
        for number, bit in ((returned.number, returned.bit), *returned.others):
            if not taken & bit and self._is_look[number] and self._step(number, state):
                taken |= bit
        return (taken, used, state)

    def _further(self, returned: Return, position: _Position) -> Iterator[_Position]:
        """One more call takes effect, other than the one that returns."""
        taken, used, state = position
        for number, bit in returned.others:
            if not taken & bit:
                for after in self._step(number, state):
                    yield (taken | bit, used, after)
        for place in range(returned.unknown_count):
            bit = 1 << place
            twin = self._twin_before[place]
            if used & bit or (twin is not None and not used & (1 << twin)):
                continue
            for after in self._step(self.unknown[place], state):
                if after != state:
                    yield (taken, used | bit, after)

    def _step(self, number: int, state: Hashable) -> tuple[Hashable, ...]:
        self.steps_count += 1
        call = self.calls[number]
        return self._model.step(state, call.process, call.asked, call.answer if call.is_answered else UNKNOWN)

    def _is_new(self, reached: _Reached, position: _Position) -> bool:
        """Remember a position, unless one that can do as much was there before."""
        taken, used, state = position
        known = reached.setdefault((taken, state), [])
        # Work too: of dozens of calls without an outcome there are thousands of sets.
        self.steps_count += len(known) // _SETS_PER_STEP
        if any(fewer & ~used == 0 for fewer in known):
            return False
        known[:] = [more for more in known if used & ~more]
        known.append(used)
        return True

    # -- the order of things

    def _twins(self) -> list[int | None]:
        """For each unknown call, the one just before it that is its equal: they are used in this order."""
        last: dict[Hashable, int] = {}
        before: list[int | None] = []
        for place, number in enumerate(self.unknown):
            call = self.calls[number]
            kind = (call.process if self._model.minds_process else "", call.asked)
            before.append(last.get(kind))
            last[kind] = place
        return before

    def _returns(self) -> list[Return]:
        # At one time calls are made first: where the clock cannot tell, they are taken as concurrent.
        events = [(call.called_s, 0, number) for number, call in enumerate(self.calls)]
        events += [
            (call.returned_s, 1, number)
            for number, call in enumerate(self.calls)
            if call.returned_s is not None
        ]
        bits: dict[int, int] = {}
        free: list[int] = []
        width = 0
        unknown_count = 0
        returns: list[Return] = []
        for _, kind, number in sorted(events):
            if kind == 0 and self.calls[number].is_answered:
                if not free:
                    free.append(1 << width)
                    width += 1
                bits[number] = free.pop()
            elif kind == 0:
                unknown_count += 1
            else:
                bit = bits.pop(number)
                free.append(bit)
                returns.append(Return(number, bit, tuple(bits.items()), unknown_count))
        return returns
