"""What came out of a trial, and of all the trials of one peer on one case."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from bench.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one trial gave. A number that its kind does not take is None."""

    rate_per_s: float | None = None
    """Replies at the client, or deliveries summed over the receivers."""
    cpu_us: float | None = None
    """CPU time of all processes of the trial (server, client, broker), per reply or delivery."""
    cpu_us_by_role: dict[str, float] = field(default_factory=dict)
    """The same, apart: which side is the limit."""
    p50_us: float | None = None
    p99_us: float | None = None
    lost_count: int = 0
    sent_count: int = 0
    """With `lost_count`: what the publisher sent times the receivers, over the whole trial."""
    figures: dict[str, float] = field(default_factory=dict)
    """By name what a kind measures that is none of the above; `bench.figures` has their titles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One peer on one case in one round: a measurement, or the reason why there is none."""

    case: Case
    peer: str
    round_number: int
    measurement: Measurement | None = None
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values; `from_json` gives the same trial back."""
        return {
            "case": self.case.name,
            "peer": self.peer,
            "round": self.round_number,
            "measurement": asdict(self.measurement) if self.measurement else None,
            "failure": self.failure,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The trial that `as_json` wrote."""
        measured = value["measurement"]
        return cls(
            case=Case.parse(value["case"]),
            peer=value["peer"],
            round_number=value["round"],
            measurement=Measurement(**measured) if measured else None,
            failure=value["failure"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, minimum and maximum of one number over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The spread of at least one value."""
        return cls(median=statistics.median(values), low=min(values), high=max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All rounds of one peer on one case. A number that no round gave is None."""

    case: Case
    peer: str
    round_count: int
    failed_count: int
    rate_per_s: Spread | None = None
    cpu_us: Spread | None = None
    p50_us: Spread | None = None
    p99_us: Spread | None = None
    lost_share: float = 0.0
    """Lost over sent, all rounds together."""
    figures: dict[str, Spread] = field(default_factory=dict)

    @property
    def headline(self) -> Spread | None:
        """The number that the case is about: the median latency with one request in flight, else the rate."""
        return self.p50_us if is_latency(self.case) else self.rate_per_s


RATED = frozenset(
    ("rr", "pub", "gw", "sync", "topic", "routed", "pong", "local", "put", "get", "lock", "fan")
)
BASELINES = {
    "topic": "nats",
    "routed": "nats",
    "pong": "nats",
    "local": "mailbox",
    "put": "bare-etcd",
    "get": "bare-etcd",
    "lock": "bare-etcd",
    "fan": "bare-etcd",
}


def is_latency(case: Case) -> bool:
    """Whether the case asks how long, so that less is better, rather than how many."""
    return case.kind in ("rr", "gw", "sync", "pong", "put", "get", "lock") and case.width == 1


def is_rated(case: Case) -> bool:
    """Whether the case asks for a rate or a latency; the others have figures by name."""
    return case.kind in RATED


def may_lose(case: Case) -> bool:
    """Whether something is published, so that it may be lost."""
    return case.kind in ("pub", "topic", "routed", "local")


def baseline_of(case: Case, baseline: str) -> str:
    """The peer that counts as 1.0 on that case: topics have rivals of their own, others the run's."""
    return BASELINES.get(case.kind, baseline)


def summarise(trials: Iterable[Trial]) -> list[Summary]:
    """One summary for each case and peer, in the order in which they first appear."""
    groups: dict[tuple[Case, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.case, trial.peer), []).append(trial)
    return [_summary(case, peer, group) for (case, peer), group in groups.items()]


def _summary(case: Case, peer: str, trials: list[Trial]) -> Summary:
    measured = [trial.measurement for trial in trials if trial.measurement]
    spreads: dict[str, Spread | None] = {}
    for name in ("rate_per_s", "cpu_us", "p50_us", "p99_us"):
        values = [value for value in (getattr(one, name) for one in measured) if value is not None]
        spreads[name] = Spread.of(values) if values else None
    sent = sum(one.sent_count for one in measured)
    names = dict.fromkeys(name for one in measured for name in one.figures)
    return Summary(
        case=case,
        peer=peer,
        round_count=len(trials),
        failed_count=len(trials) - len(measured),
        lost_share=sum(one.lost_count for one in measured) / sent if sent else 0.0,
        figures={
            name: Spread.of([one.figures[name] for one in measured if name in one.figures]) for name in names
        },
        **spreads,
    )


def ratio(summary: Summary, baseline: Summary | None) -> float | None:
    """The headline as a multiple of the baseline's in the same run; None if either is missing."""
    mine, theirs = summary.headline, baseline.headline if baseline else None
    return mine.median / theirs.median if mine and theirs and theirs.median else None


def find(summaries: Iterable[Summary], case_name: str, peer: str) -> Summary | None:
    """The summary of that peer on that case, if the run had it."""
    return next((one for one in summaries if one.case.name == case_name and one.peer == peer), None)
