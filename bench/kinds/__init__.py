"""The kinds of exchange that can be measured. To add one: a module, an entry below, roles in the peers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.case import KIB, Case
from bench.kinds import publish, request_reply
from bench.measurement import Measurement
from bench.stage import Stage
from bench.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How to arrange the workers of a case and what to read from them."""

    measure: Callable[[Stage, Window], Awaitable[Measurement]]
    cases: tuple[Case, ...]


def _cases(kind: str, sizes: tuple[int, ...], widths: tuple[int, ...]) -> tuple[Case, ...]:
    return tuple(Case(kind=kind, size_bytes=size, width=width) for width in widths for size in sizes)


KINDS = {
    "rr": Kind(measure=request_reply.measure, cases=_cases("rr", (64, KIB, 64 * KIB), (1, 100))),
    "pub": Kind(measure=publish.measure, cases=_cases("pub", (64, 64 * KIB), (1, 4))),
}

CASES = tuple(case for kind in KINDS.values() for case in kind.cases)
