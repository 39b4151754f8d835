"""The kinds of exchange that can be measured. To add one: a module, an entry below, roles in the peers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.case import KIB, Case
from bench.kinds import local, memory, move, plan, publish, request_reply, scale, slow, start, store, takeover
from bench.measurement import Measurement
from bench.stage import Stage
from bench.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How to arrange the workers of a case and what to read from them."""

    measure: Callable[[Stage, Window], Awaitable[Measurement]]
    cases: tuple[Case, ...]
    rounds_max: int | None = None
    """For what takes long, or hardly varies: more rounds than this are not run."""


def _cases(kind: str, sizes: tuple[int, ...], widths: tuple[int, ...]) -> tuple[Case, ...]:
    return tuple(Case(kind=kind, size_bytes=size, width=width) for width in widths for size in sizes)


KINDS = {
    "rr": Kind(measure=request_reply.measure, cases=_cases("rr", (64, KIB, 64 * KIB), (1, 100))),
    "pub": Kind(measure=publish.measure, cases=_cases("pub", (64, 64 * KIB), (1, 4))),
    "gw": Kind(measure=request_reply.measure, cases=_cases("gw", (64,), (1, 100))),
    "sync": Kind(measure=request_reply.measure, cases=_cases("sync", (64,), (1, 16))),
    "topic": Kind(measure=publish.measure, cases=_cases("topic", (64,), (1, 4))),
    "routed": Kind(measure=publish.measure_routed, cases=_cases("routed", (64,), (1,))),
    "pong": Kind(measure=request_reply.measure_topics, cases=_cases("pong", (64,), (1,))),
    "local": Kind(measure=local.measure, cases=_cases("local", (64,), (10, 100, 1_000))),
    "slow": Kind(measure=slow.measure_spot, cases=_cases("slow", (64,), (100,)), rounds_max=3),
    "stop": Kind(measure=slow.measure_node, cases=_cases("stop", (64,), (4,)), rounds_max=3),
    "move": Kind(measure=move.measure_topic, cases=_cases("move", (64,), (4,)), rounds_max=1),
    "scale": Kind(measure=scale.measure, cases=_cases("scale", (0,), (100, 1_000, 10_000)), rounds_max=3),
    "single": Kind(measure=scale.measure_changes, cases=_cases("single", (0,), (10_000,)), rounds_max=3),
    "put": Kind(measure=store.measure, cases=_cases("put", (64,), (1, 100))),
    "get": Kind(measure=store.measure, cases=_cases("get", (64,), (1, 100))),
    "lock": Kind(measure=store.measure, cases=_cases("lock", (0,), (1,))),
    "fan": Kind(measure=store.measure_fan, cases=_cases("fan", (64,), (1_000,))),
    "failover": Kind(measure=store.measure_failover, cases=_cases("failover", (0,), (50,)), rounds_max=1),
    "lead": Kind(measure=move.measure_leader, cases=_cases("lead", (0,), (300,)), rounds_max=1),
    "takeover": Kind(measure=takeover.measure, cases=_cases("takeover", (0,), (12,)), rounds_max=1),
    "beats": Kind(measure=store.measure_beats, cases=_cases("beats", (0,), (10, 100, 1_000)), rounds_max=1),
    "start": Kind(measure=start.measure, cases=_cases("start", (0,), (20,)), rounds_max=1),
    "plan": Kind(
        measure=plan.measure, cases=_cases("plan", (0,), (100, 300, 1_000, 3_000, 10_000)), rounds_max=3
    ),
    "idle": Kind(measure=memory.measure_idle, cases=_cases("idle", (0,), (1_000,)), rounds_max=3),
    "pending": Kind(measure=memory.measure_pending, cases=_cases("pending", (64,), (10_000,)), rounds_max=3),
    "spots": Kind(measure=memory.measure_spots, cases=_cases("spots", (0,), (10_000,)), rounds_max=3),
    "known": Kind(measure=memory.measure_topics, cases=_cases("known", (0,), (10_000,)), rounds_max=3),
}

CASES = tuple(case for kind in KINDS.values() for case in kind.cases)
