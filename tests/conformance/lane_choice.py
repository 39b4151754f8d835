"""In which lanes a test of the conformance suite runs: on tcp and asyncio, and in one lane more.

What differs between lanes is below most tests, which would say the same thing eight times. The other lane is
counted on from case to case, so that every module meets every transport and both loops. Tests of what a lane
does itself, moving bytes, holding them back and ending, run in all.
"""

from collections.abc import Iterable
from typing import TypeVar

Test = TypeVar("Test")

ALWAYS = ("asyncio", "tcp")
# Any three in a row, with the one above, have both loops; the first three have every transport.
OTHERS = [
    *(("uvloop", "tls"), ("asyncio", "ipc"), ("uvloop", "inproc"), ("uvloop", "tcp")),
    *(("asyncio", "tls"), ("uvloop", "ipc"), ("asyncio", "inproc")),
]
EVERYWHERE = {"test_messages", "test_overflow", "test_closing"}


def left_out_of(tests: Iterable[tuple[Test, str, str, str, str]]) -> set[Test]:
    """Which do not run. A test comes with its module, its function, its parameters' id, and its transport."""
    modules: dict[str, dict[tuple[str, ...], dict[tuple[str, str], list[Test]]]] = {}
    for test, module, function, params, transport in tests:
        words = params.split("-")
        loop = "uvloop" if "uvloop" in words else "asyncio"
        case = (function, *(word for word in words if word not in (loop, transport)))
        if module not in EVERYWHERE:
            modules.setdefault(module, {}).setdefault(case, {}).setdefault((loop, transport), []).append(test)
    left_out: set[Test] = set()
    for cases in modules.values():
        for number, lanes in enumerate(cases.values()):
            # Some modules have fewer transports.
            others = [lane for lane in OTHERS if lane in lanes]
            kept = {ALWAYS} | ({others[number % len(others)]} if others else set())
            left_out.update(*(found for lane, found in lanes.items() if lane not in kept))
    return left_out
