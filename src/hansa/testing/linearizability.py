"""Linearizability: whether concurrent calls can have happened one by one, each at one moment of its time.

The calls of each key are judged separately: a history is linearizable if and only if those of every key are.
`Search` looks for an order that explains all answers; `shortest` makes a history that has none short enough
for a person to read.

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

The work is bounded. A history that was not decided within the bound is `UNDECIDED`, which is not a yes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from hansa.errors import BadArgument
from hansa.testing.calls import Call
from hansa.testing.models import UNKNOWN, Model

# Some ten seconds of Python, and less than a gigabyte for visited positions. Real histories need a few steps
# a call; one that needs more has dozens of calls under way at once on one key, or as many without an outcome.
STEPS_MAX: Final = 10_000_000
# For a shorter history the search is repeated: with a bound of its own, as the verdict stands already.
SHRINKING_STEPS_MAX: Final = 500_000
# Calls that returned just before it begins, shown so that its start can be understood.
CONTEXT_COUNT: Final = 4
# Calls that do not fit on a screen are counted, not shown.
SHOWN_COUNT_MAX: Final = 40
STATES_COUNT_MAX: Final = 5
BAR_WIDTH: Final = 32


# ---- the search ----------------------------------------------------------------------------------


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
# This many sets are compared in the time of a step.
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
        """How many returns the best order explained."""
        return max((depth for depth, found in enumerate(self.reached) if found), default=0)

    def states_before(self, depth: int) -> tuple[Hashable, ...]:
        """Every state that the object can have had before this return. Complete after a violation."""
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
        """Let every answered call take effect that fits the state and does not change it."""
        taken, used, state = position
        for number, bit in ((returned.number, returned.bit), *returned.others):
            if not taken & bit and self._is_look[number] and self._step(number, state):
                taken |= bit
        return (taken, used, state)

    def _further(self, returned: Return, position: _Position) -> Iterator[_Position]:
        """The positions after one more call took effect, other than the one that returns."""
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
        """Remember a position, unless an equal or better one was known."""
        taken, used, state = position
        known = reached.setdefault((taken, state), [])
        # This is work too: dozens of calls without an outcome make thousands of sets.
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
        # At equal times calls come first: where the clock cannot tell, they count as concurrent.
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


# ---- the shortest part of a history that cannot be explained ---------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """Calls that no order explains from any of the `states`; `impossible` is the first that has no place.

    `context` are calls that ended before; they led to the states. As text it is a timeline.
    """

    calls: tuple[Call, ...]
    impossible: Call
    states: tuple[Hashable, ...]
    context: tuple[Call, ...] = ()

    def __str__(self) -> str:
        window = [*self.context, *(call for call in self.calls if call.is_answered)]
        start_s = min(call.called_s for call in window)
        end_s = max(call.returned_s or call.called_s for call in window)
        # Calls without an outcome, all of them.
        old_count = sum(call.called_s < start_s for call in self.calls)
        shown = sorted((call for call in self.calls if call.called_s >= start_s), key=_called)
        # The newest matter most: the impossible one is among them.
        left_out, shown = shown[:-SHOWN_COUNT_MAX], shown[-SHOWN_COUNT_MAX:]
        process_width = max(len(call.process) for call in (*self.context, *shown))

        def line(call: Call) -> str:
            mark = "   <-- cannot be" if call is self.impossible else ""
            what = str(call).removeprefix(f"{call.process}: ")
            at_ms = 1000.0 * (call.called_s - start_s)
            bar = _bar(call, start_s, end_s)
            return f"  {at_ms:9.2f} ms  {call.process:<{process_width}}  {bar}  {what}{mark}"

        lines = [line(call) for call in self.context]
        lines.append(f"  {'so it was' if lines else 'it begins with'}: {self._states_text()}")
        if left_out:
            lines.append(f"  ({len(left_out)} calls before these)")
        lines += [line(call) for call in shown]
        if old_count:
            lines.append(f"  ({old_count} older calls without an outcome: with or without them it cannot be)")
        return "\n".join(lines)

    def _states_text(self) -> str:
        states = [str(state) for state in self.states[:STATES_COUNT_MAX]]
        if len(self.states) > STATES_COUNT_MAX:
            states.append(f"{len(self.states) - STATES_COUNT_MAX} others")
        return " or ".join(states)


def _called(call: Call) -> float:
    return call.called_s


def _bar(call: Call, start_s: float, end_s: float) -> str:
    """A line that shows when a call was under way; open to the right when it was not answered."""
    scale = (BAR_WIDTH - 1) / (end_s - start_s) if end_s > start_s else 0.0
    first = round((call.called_s - start_s) * scale)
    if call.returned_s is None:
        return f"{' ' * first}{'.' * (BAR_WIDTH - first)}>"
    last = round((call.returned_s - start_s) * scale)
    return f"{' ' * first}{'=' * (last - first + 1)}".ljust(BAR_WIDTH + 1)


def shortest(search: Search, model: Model) -> Counterexample:
    """The shortest part of a violated history that is violated too, whatever happened outside it.

    It only makes changes that cannot make a possible history impossible. The end is cut off after the answer
    that no order explains. The beginning is cut off and replaced by all states that it can have led to; calls
    that were under way at the cut, and in some of the states had taken effect, may take effect or not. Calls
    that change no state are left out.
    """
    steps_left = SHRINKING_STEPS_MAX
    for depth in range(search.depth, -1, -1):
        calls, context = cut(search, model, depth)
        found = Search(calls, model, search.states_before(depth), steps_left)
        is_violated = found.run() is Judgement.VIOLATED
        steps_left -= found.steps_count
        if is_violated:
            return _shown(_without_looks(found, model, steps_left), context)
        if steps_left <= 0:
            break
    return _shown(search, ())


def _shown(search: Search, context: tuple[Call, ...]) -> Counterexample:
    impossible = search.calls[search.returns[search.depth].number]
    return Counterexample(
        calls=tuple(search.calls), impossible=impossible, states=tuple(search.starts), context=context
    )


def cut(search: Search, model: Model, depth: int) -> tuple[list[Call], tuple[Call, ...]]:
    """The calls not over when this return was the next, up to the unexplained one; and calls before.

    Of those before, only the last calls that may have changed something. After a violation only: before that,
    the search has not seen every position.
    """
    end = search.returns[search.depth]
    numbers = {returned.number for returned in search.returns[depth : search.depth + 1]}
    numbers |= {number for number, _ in end.others} | set(search.unknown[: end.unknown_count])
    calls = {number: search.calls[number] for number in sorted(numbers)}
    before = [search.calls[returned.number] for returned in search.returns[:depth]]
    for place in range(end.unknown_count):
        if all(used & (1 << place) for least in search.reached[depth].values() for used in least):
            before.append(calls.pop(search.unknown[place]))
    for number, bit in search.returns[depth - 1].others if depth else ():
        took_effect = {bool(taken & bit) for taken, _ in search.reached[depth]}
        if took_effect == {True}:
            before.append(calls.pop(number))
        elif True in took_effect:
            calls[number] = replace(calls[number], answer=None, returned_s=None)
    changing = [call for call in before if not call.is_answered or not model.is_look(call.asked, call.answer)]
    return list(calls.values()), tuple(sorted(changing, key=_called)[-CONTEXT_COUNT:])


def _without_looks(search: Search, model: Model, steps_max: int) -> Search:
    steps_left = steps_max
    for call in search.calls:
        if not model.is_look(call.asked, call.answer if call.is_answered else UNKNOWN):
            continue
        fewer = Search(
            [other for other in search.calls if other is not call], model, search.starts, steps_left
        )
        is_violated = fewer.run() is Judgement.VIOLATED
        steps_left -= fewer.steps_count
        if steps_left <= 0:
            break
        if is_violated:
            search = fewer
    return search


# ---- the verdict ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement on a history and, where it is violated, the shortest part of it that shows why."""

    judgement: Judgement
    calls_count: int
    steps_count: int
    key: Hashable = None
    counterexample: Counterexample | None = None

    @property
    def is_linearizable(self) -> bool:
        """True only if it was found to be: neither for a violation nor for an undecided history."""
        return self.judgement is Judgement.LINEARIZABLE

    def __str__(self) -> str:
        if self.judgement is Judgement.LINEARIZABLE:
            return f"linearizable: {self.calls_count} calls, {self.steps_count} steps"
        if self.judgement is Judgement.UNDECIDED:
            return f"undecided: key {self.key!r} needs more steps ({self.steps_count} were made in all)"
        return f"not linearizable: key {self.key!r}\n{self.counterexample}"


def check_linearizability(calls: Iterable[Call], model: Model, *, steps_max: int = STEPS_MAX) -> Verdict:
    """Judge a history, key by key. A violated key decides; else one that could not be decided.

    `steps_max` bounds the work on each key. Raises `BadArgument` for a bound below 1, and whatever the model
    raises for a call that it does not know.
    """
    if steps_max < 1:
        raise BadArgument(f"steps_max {steps_max}: without a step nothing can be decided")
    by_key: dict[Hashable, list[Call]] = defaultdict(list)
    for call in calls:
        by_key[call.key].append(call)
    calls_count = sum(map(len, by_key.values()))
    steps_count = 0
    undecided: list[Hashable] = []
    for key, some in by_key.items():
        search = Search(some, model, (model.begin(),), steps_max)
        judgement = search.run()
        steps_count += search.steps_count
        if judgement is Judgement.VIOLATED:
            return Verdict(
                judgement=judgement,
                calls_count=calls_count,
                steps_count=steps_count,
                key=key,
                counterexample=shortest(search, model),
            )
        if judgement is Judgement.UNDECIDED:
            undecided.append(key)
    return Verdict(
        judgement=Judgement.UNDECIDED if undecided else Judgement.LINEARIZABLE,
        calls_count=calls_count,
        steps_count=steps_count,
        key=undecided[0] if undecided else None,
    )
