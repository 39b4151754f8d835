"""What hansa has promised itself: ratios within one run, and figures that no other peer has."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.measurement import Summary, find, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The peer's headline on that case as a multiple of another's, or one figure of it, within bounds."""

    case: str
    against: str = ""
    figure: str = ""
    """One of `bench.figures`, instead of a multiple of another peer."""
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
    Goal(peer="hansa-gateway", case="gw-64B-x100", against="bare", at_least=0.65),
    Goal(peer="hansa-topics", case="topic-64B-x1", against="zenoh", at_least=1.2),
    Goal(peer="hansa-topics", case="topic-64B-x4", against="zenoh", at_least=1.2),
    Goal(peer="hansa-topics", case="topic-64B-x1", against="nats", at_least=4.0),
    Goal(peer="hansa-topics", case="topic-64B-x4", against="nats", at_least=4.0),
    Goal(peer="hansa-topics", case="pong-64B-x1", against="nats", at_most=0.6),
    Goal(peer="hansa-spots", case="local-64B-x10", against="mailbox", at_least=0.5),
    Goal(peer="hansa-spots", case="local-64B-x100", against="mailbox", at_least=0.5),
    Goal(peer="hansa-spots", case="local-64B-x1000", against="mailbox", at_least=0.5),
    Goal(peer="hansa-spots", case="spots-x10000", figure="spot_bytes", at_most=4096),
    Goal(peer="hansa-spots", case="slow-64B-x100", figure="others_share", at_least=0.9),
    Goal(peer="hansa-spots", case="slow-64B-x100", figure="others_lost", at_most=0),
    Goal(peer="hansa-spots", case="slow-64B-x100", figure="stopped_untold", at_most=0),
    Goal(peer="hansa-mesh", case="stop-64B-x4", figure="others_share", at_least=0.9),
    Goal(peer="hansa-mesh", case="stop-64B-x4", figure="others_lost", at_most=0),
    Goal(peer="hansa-mesh", case="stop-64B-x4", figure="stopped_untold", at_most=0),
    Goal(peer="hansa-movers", case="move-64B-x4", figure="missed", at_most=0),
    Goal(peer="hansa-movers", case="move-64B-x4", figure="unknown", at_most=0),
    Goal(peer="hansa-movers", case="move-64B-x4", figure="twice", at_most=0),
    Goal(peer="hansa-movers", case="move-64B-x4", figure="disordered", at_most=0),
    Goal(peer="hansa-movers", case="move-64B-x4", figure="refused", at_most=0),
    Goal(peer="hansa-etcd", case="lock-x1", against="bare-etcd", at_most=1.2),
    *(
        Goal(peer="hansa-planner", case="plan-x10000", figure=f"{label}_{plan}_s", at_most=1.0)
        for label in ("alike", "ruled")
        for plan in ("first", "leave", "join")
    ),
    Goal(peer="hansa-sharers", case="takeover-x12", figure="handed_pause_p99_s", at_most=0.2),
    Goal(peer="start-hansa", case="start-x20", figure="start_above_s", at_most=0.05),
    Goal(peer="start-call", case="start-x20", figure="start_cpu_s", at_most=0.25),
    Goal(peer="start-lock", case="start-x20", figure="start_cpu_s", at_most=0.40),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A goal and what the run says of it."""

    goal: Goal
    reached: float
    met: bool


def outcomes(summaries: Sequence[Summary]) -> list[Outcome]:
    """Every goal that the run has measured, on both sides if it has two."""
    results = []
    for goal in GOALS:
        mine = find(summaries, goal.case, goal.peer)
        reached = _reached(goal, mine, summaries) if mine else None
        if reached is not None:
            low = goal.at_least if goal.at_least is not None else float("-inf")
            high = goal.at_most if goal.at_most is not None else float("inf")
            results.append(Outcome(goal=goal, reached=reached, met=low <= reached <= high))
    return results


def _reached(goal: Goal, mine: Summary, summaries: Sequence[Summary]) -> float | None:
    if goal.figure:
        spread = mine.figures.get(goal.figure)
        if spread is None:
            return None
        # Of what must not happen at all, no round may have any.
        return spread.high if goal.at_most == 0 else spread.median
    return ratio(mine, find(summaries, goal.case, goal.against))
