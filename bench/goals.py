"""What hansa has promised itself, as ratios within one run."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.measurement import Summary, find, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The peer's headline on that case, as a multiple of another's: at least or at most a factor."""

    case: str
    against: str
    at_least: float | None = None
    at_most: float | None = None
    peer: str = "hansa"


GOALS = (
    Goal(case="rr-64B-x100", against="pyzmq", at_least=3.0),
    Goal(case="rr-64B-x1", against="pyzmq", at_most=0.75),
    Goal(case="pub-64B-x1", against="pyzmq", at_least=6.0),
    Goal(case="pub-64B-x1", against="zenoh", at_least=1.5),
    Goal(case="rr-64KiB-x100", against="pyzmq", at_least=1.0),
    Goal(case="pub-64KiB-x1", against="pyzmq", at_least=1.0),
    Goal(peer="hansa-gateway", case="gw-64B-x100", against="pyzmq", at_least=2.0),
    Goal(peer="hansa-gateway", case="gw-64B-x100", against="nats", at_least=2.5),
    Goal(peer="hansa-gateway", case="gw-64B-x100", against="grpc", at_least=20.0),
    Goal(peer="hansa-gateway", case="gw-64B-x1", against="nats", at_most=0.6),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A goal and what the run says of it."""

    goal: Goal
    reached: float
    met: bool


def outcomes(summaries: Sequence[Summary]) -> list[Outcome]:
    """Every goal whose two sides the run has measured."""
    results = []
    for goal in GOALS:
        mine = find(summaries, goal.case, goal.peer)
        reached = ratio(mine, find(summaries, goal.case, goal.against)) if mine else None
        if reached is not None:
            low, high = goal.at_least or 0.0, goal.at_most or float("inf")
            results.append(Outcome(goal=goal, reached=reached, met=low <= reached <= high))
    return results
