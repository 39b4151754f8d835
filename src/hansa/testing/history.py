"""The history of a run, in order: its digest proves a replay, and its tail explains failures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

FACTS_KEPT_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that happened. `at_s` counts from the start of the run; the world itself is node ""."""

    at_s: float
    node: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:12.6f}  {self.node or '-':<12}  {self.what}"


class History:
    """Keeps the newest facts and the digest of all. The oldest are forgotten beyond a bound, and counted."""

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        self._elapsed_s = elapsed_s
        self._facts: deque[Fact] = deque(maxlen=FACTS_KEPT_MAX)
        self._count = 0
        self._hash = sha256()

    def __len__(self) -> int:
        return self._count

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts that are kept, oldest first."""
        return tuple(self._facts)

    def record(self, node: str, what: str) -> None:
        """Append a fact that happened now."""
        fact = Fact(at_s=self._elapsed_s(), node=node, what=what)
        self._facts.append(fact)
        self._count += 1
        # repr gives every bit of the time, the printed form does not.
        self._hash.update(f"{fact.at_s!r}\t{fact.node}\t{fact.what}\n".encode())

    def digest(self) -> str:
        """Equal for equal histories, including what was forgotten."""
        return self._hash.hexdigest()

    def tail(self, count: int) -> str:
        """The newest facts as text, one on a line, with a note about those before them."""
        shown = list(self._facts)[-count:] if count > 0 else []
        before = self._count - len(shown)
        lines = [f"  ({before} facts before)"] if before else []
        return "\n".join(lines + [f"  {fact}" for fact in shown])
