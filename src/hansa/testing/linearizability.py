"""Whether concurrent calls can have happened one after the other, each at one moment while it was under way.

The calls of each key are judged by themselves: a history is linearizable if and only if those of every key
are. `linearization.py` searches, `counterexample.py` shows what was found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from hansa.errors import BadArgument
from hansa.testing.calls import Call
from hansa.testing.counterexample import Counterexample, shortest
from hansa.testing.linearization import Judgement, Search
from hansa.testing.models import Model

__all__ = ["Judgement", "Verdict", "check_linearizability"]

# Some ten seconds of Python, and less than a gigabyte for what was seen. Real histories need a few steps a
# call; one that needs more has dozens of calls under way at once on one key, or as many without an outcome.
STEPS_MAX: Final = 10_000_000


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
        """Only if it was found to be: neither for a violation nor for an undecided history."""
        return self.judgement is Judgement.LINEARIZABLE

    def __str__(self) -> str:
        if self.judgement is Judgement.LINEARIZABLE:
            return f"linearizable: {self.calls_count} calls, {self.steps_count} steps"
        if self.judgement is Judgement.UNDECIDED:
            return f"undecided: key {self.key!r} needs more steps ({self.steps_count} were made in all)"
        return f"not linearizable: key {self.key!r}\n{self.counterexample}"


def check_linearizability(calls: Iterable[Call], model: Model, *, steps_max: int = STEPS_MAX) -> Verdict:
    """Judge a history, key by key. A key that is violated decides; else one that could not be decided.

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
