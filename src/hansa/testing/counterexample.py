"""The shortest part of a history that cannot be explained, for a person to read."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

from hansa.testing.calls import Call
from hansa.testing.linearization import Judgement, Search
from hansa.testing.models import UNKNOWN, Model

__all__ = ["Counterexample", "shortest"]

# To make it short, the search is repeated: with a bound of its own, as the verdict stands already.
SHRINKING_STEPS_MAX: Final = 500_000
# Calls that returned just before it begins, shown so that its start can be understood.
CONTEXT_COUNT: Final = 4
# What does not fit on a screen is counted, not shown.
SHOWN_COUNT_MAX: Final = 40
STATES_COUNT_MAX: Final = 5
BAR_WIDTH: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """Calls that no order explains from any of the `states`; `impossible` is the first that finds no place.

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
        old_count = sum(call.called_s < start_s for call in self.calls)  # Without outcome, all of them.
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
    """When a call was under way, as a line; open to the right when it was not answered."""
    scale = (BAR_WIDTH - 1) / (end_s - start_s) if end_s > start_s else 0.0
    first = round((call.called_s - start_s) * scale)
    if call.returned_s is None:
        return f"{' ' * first}{'.' * (BAR_WIDTH - first)}>"
    last = round((call.returned_s - start_s) * scale)
    return f"{' ' * first}{'=' * (last - first + 1)}".ljust(BAR_WIDTH + 1)


def shortest(search: Search, model: Model) -> Counterexample:
    """The shortest part of a violated history that is violated too, whatever happened outside it.

    Only what cannot make a possible history impossible is done to it. The end is cut off after the answer
    that no order explains. The beginning is cut off and replaced by all states that it can have led to; what
    was under way at the cut, and in some of them had taken effect, may take effect or not. Calls that
    change no state are left out.
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
    """What was not over when this return was the next, up to the call that cannot be explained; and before.

    Of what was before, only the last calls that may have changed something. After a violation only: before
    that, the search has not seen every position.
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
