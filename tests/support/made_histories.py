"""Histories that are known to be linearizable, because one process after the other made them.

Each call takes effect at a moment of its own, in order; around it lies the time during which it was under
way, so that the calls overlap as those of concurrent clients do. Nothing here uses the models of hansa.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hansa.chance import Chance
from hansa.testing import Acquire, Add, Call, CompareAndSet, Model, Read, Release, Write
from hansa.testing.models import UNKNOWN

Act = Callable[[str, Any], Any]


class Register:
    """Serves one call at a time."""

    def __init__(self) -> None:
        self.value: Any = None

    def __call__(self, process: str, asked: Any) -> Any:
        if isinstance(asked, Write):
            self.value = asked.value
        elif isinstance(asked, CompareAndSet):
            if self.value != asked.expected:
                return False
            self.value = asked.value
            return True
        return self.value if isinstance(asked, Read) else None


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def __call__(self, process: str, asked: Any) -> Any:
        self.value += asked.amount if isinstance(asked, Add) else 0
        return self.value


class Latch:
    """A lock, served one call at a time."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.fence = 0

    def __call__(self, process: str, asked: Any) -> Any:
        if isinstance(asked, Acquire):
            if self.holder is not None:
                return None
            self.holder, self.fence = process, self.fence + 3
            return self.fence
        if self.holder != process or asked.fence not in (None, self.fence):
            return False
        self.holder = None
        return True


@dataclass
class MadeHistory:
    """Calls are added in the order in which they take effect, a millisecond or so apart."""

    chance: Chance
    make: Callable[[], Act]
    clients_count: int = 10
    keys_count: int = 5
    unknown_share: float = 0.0
    width_s: float = 0.01
    now_s: float = 0.0
    calls: list[Call] = field(default_factory=list)
    things: dict[int, Act] = field(default_factory=dict)

    def add(self, key: int, process: str, asked: Any) -> None:
        """The next call; some of them never get an answer, and of those some never take effect."""
        point_s = self.now_s = self.now_s + 0.001
        is_unknown = self.chance.flip(self.unknown_share)
        thing = self.things.setdefault(key, self.make())
        answer = None if is_unknown and self.chance.flip(0.5) else thing(process, asked)
        self.calls.append(
            Call(
                process=process,
                key=key,
                asked=asked,
                answer=None if is_unknown else answer,
                called_s=point_s - self.chance.uniform(0.0, self.width_s),
                returned_s=None if is_unknown else point_s + self.chance.uniform(0.0, self.width_s),
            )
        )

    def add_many(self, count: int, ask: Callable[[Chance, int], Any]) -> None:
        for number in range(count):
            process = f"client {self.chance.below(self.clients_count)}"
            self.add(self.chance.below(self.keys_count), process, ask(self.chance, number))

    def pause(self) -> None:
        """Let every call that gets an answer end."""
        self.now_s += 10 * self.width_s

    def claim(self, *said: tuple[str, Any, Any], key: int = 0) -> None:
        """Calls one after the other with answers that nobody gave: the place for what cannot be."""
        for process, asked, answer in said:
            self.now_s += 0.001
            called_s = self.now_s
            self.now_s += 0.001
            self.calls.append(
                Call(
                    process=process,
                    key=key,
                    asked=asked,
                    answer=answer,
                    called_s=called_s,
                    returned_s=self.now_s,
                )
            )


def ask_register(chance: Chance, number: int) -> Any:
    """Few values, so that compare-and-set often succeeds, and a value is often written again."""
    drawn = chance.below(4)
    if drawn == 0:
        return Write(chance.below(3))
    return CompareAndSet(chance.below(3), chance.below(3)) if drawn == 1 else Read()


def ask_counter(chance: Chance, number: int) -> Any:
    return Add(1 + chance.below(2)) if chance.flip(0.6) else Read()


def ask_lock(chance: Chance, number: int) -> Any:
    return Acquire() if chance.flip(0.5) else Release()


class PlainLock:
    """A lock as a `Model` that knows each fence: where one was not told, it is tried with every one."""

    minds_process = True

    def __init__(self, fence_max: int) -> None:
        self._fence_max = fence_max

    def begin(self) -> tuple[str | None, int]:
        return (None, 0)

    def step(
        self, state: tuple[str | None, int], process: str, asked: Any, answer: Any
    ) -> tuple[tuple[str | None, int], ...]:
        holder, fence = state
        if isinstance(asked, Acquire):
            if holder is not None:
                return (state,) if answer in (UNKNOWN, None) else ()
            fences = range(fence + 1, self._fence_max + 1) if answer is UNKNOWN else [answer]
            return tuple((process, one) for one in fences if one is not None and one > fence)
        is_held = holder == process and asked.fence in (None, fence)
        if answer is not UNKNOWN and answer is not None and answer is not is_held:
            return ()
        return ((None, fence),) if is_held else (state,)

    def is_look(self, asked: Any, answer: Any) -> bool:
        return False


def is_linearizable_by_trial(calls: Sequence[Call], model: Model, starts: Sequence[Any] = ()) -> bool:
    """Try every order, with and without each call that has no outcome. For a handful of calls."""
    return any(_has_order(list(calls), model, state) for state in starts or [model.begin()])


def _has_order(calls: list[Call], model: Model, state: Any) -> bool:
    if not any(call.is_answered for call in calls):
        return True
    # The next one is any that was made before all that are left have returned.
    first_return_s = min(call.returned_s for call in calls if call.returned_s is not None)
    for number, call in enumerate(calls):
        if call.called_s > first_return_s:
            continue
        answer = call.answer if call.is_answered else UNKNOWN
        others = calls[:number] + calls[number + 1 :]
        if any(
            _has_order(others, model, after) for after in model.step(state, call.process, call.asked, answer)
        ):
            return True
    return False
