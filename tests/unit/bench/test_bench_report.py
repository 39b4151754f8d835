"""What the benchmark says about its numbers, on numbers made up for it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from bench import scale_plan
from bench.__main__ import choose_cases, choose_peers
from bench.case import Case
from bench.goals import outcomes
from bench.job import Job
from bench.kinds import CASES
from bench.measurement import Measurement, Trial, find, ratio, summarise
from bench.peers import PEERS
from bench.peers.registries import Crowd
from bench.report import markdown
from bench.run import Run
from bench.units import bytes_text, rate_text, time_text
from bench.window import Window

LATENCY = Case(kind="rr", size_bytes=64, width=1)
RATE = Case(kind="rr", size_bytes=64, width=100)
PUBLISH = Case(kind="pub", size_bytes=64 * 1024, width=4)
FACTS: dict[str, Any] = {
    "machine": {
        "cores": 2,
        "processor": "a processor",
        "memory_gib": 8.0,
        "system": "Linux 6",
        "python": "CPython 3.11",
        "load_1min_at_start": 0.1,
        "versions": {"pyzmq": "27"},
    },
    "settings": {"rounds": 3, "warmup_s": 0.4, "measured_s": 1.0, "baseline": "pyzmq"},
    "peers": {"hansa": {"compiled": True}},
}


def trials(case: Case, peer: str, *rates: float, p50_us: float | None = None, lost: int = 0) -> list[Trial]:
    return [
        Trial(
            case=case,
            peer=peer,
            round_number=number,
            measurement=Measurement(
                rate_per_s=rate,
                cpu_us=2e6 / rate,
                p50_us=p50_us,
                p99_us=p50_us,
                lost_count=lost,
                sent_count=1000,
            ),
        )
        for number, rate in enumerate(rates, 1)
    ]


def failed(case: Case, peer: str) -> Trial:
    return Trial(case=case, peer=peer, round_number=1, failure="call ended: no library")


def test_summary_is_the_median_with_the_lowest_and_highest_round() -> None:
    [summary] = summarise(trials(RATE, "hansa", 10.0, 1000.0, 20.0))
    assert summary.rate_per_s is not None
    assert (summary.rate_per_s.median, summary.rate_per_s.low, summary.rate_per_s.high) == (
        20.0,
        10.0,
        1000.0,
    )
    assert summary.round_count == 3


def test_failed_rounds_are_counted_and_left_out_of_the_numbers() -> None:
    [summary] = summarise([*trials(RATE, "hansa", 10.0, 30.0), failed(RATE, "hansa")])
    assert summary.failed_count == 1
    assert summary.rate_per_s is not None
    assert summary.rate_per_s.median == 20.0


def test_peer_that_always_failed_has_no_numbers_and_no_ratio() -> None:
    summaries = summarise([failed(RATE, "hansa"), *trials(RATE, "pyzmq", 10.0)])
    assert summaries[0].headline is None
    assert ratio(summaries[0], summaries[1]) is None


def test_ratio_compares_latency_with_one_in_flight_and_rates_otherwise() -> None:
    results = [
        *trials(LATENCY, "hansa", 10_000.0, p50_us=100.0),
        *trials(LATENCY, "pyzmq", 6_000.0, p50_us=160.0),
        *trials(RATE, "hansa", 150_000.0),
        *trials(RATE, "pyzmq", 50_000.0),
    ]
    fast, slow, many, few = summarise(results)
    assert ratio(fast, slow) == pytest.approx(0.625)
    assert ratio(many, few) == pytest.approx(3.0)


def test_goals_are_judged_only_where_both_sides_were_measured() -> None:
    results = [*trials(RATE, "hansa", 140.0), *trials(RATE, "pyzmq", 50.0), *trials(PUBLISH, "hansa", 1.0)]
    [outcome] = outcomes(summarise(results))
    assert outcome.goal.at_least == 3.0
    assert outcome.reached == pytest.approx(2.8)
    assert not outcome.met


def test_latency_goal_is_met_from_below() -> None:
    results = [*trials(LATENCY, "hansa", 1.0, p50_us=70.0), *trials(LATENCY, "pyzmq", 1.0, p50_us=100.0)]
    [outcome] = outcomes(summarise(results))
    assert outcome.met


def test_page_has_overview_goals_and_details_with_losses_and_failures() -> None:
    results = [
        *trials(RATE, "hansa", 2_400_000.0, 2_500_000.0, 2_600_000.0),
        *trials(RATE, "pyzmq", 50_000.0),
        failed(RATE, "grpc"),
        *trials(PUBLISH, "hansa", 43_900.0, lost=5),
    ]
    page = markdown(summarise(results), baseline="pyzmq", run=FACTS)
    assert "| hansa, uvloop | 2.50 M/s (50.0) | 43.9 k/s |" in page
    assert "| grpc.aio | failed |  |" in page
    assert "| hansa, uvloop | 2.50 M/s (2.40 M/s to 2.60 M/s) | 50.0 |" in page
    assert "grpc.aio (1 of 1 rounds failed)" in page
    assert (
        "| request/reply, 64 B, 100 in flight, against pyzmq ROUTER/ROUTER, blocking | >= 3.0 | 50.0 | yes |"
        in page
    )
    assert "| 0.5% |" in page
    assert "hot modules: compiled" in page


@pytest.mark.parametrize(
    ("rate_per_s", "text"),
    [(0.4, "0/s"), (812.0, "812/s"), (43_900.0, "43.9 k/s"), (999_900.0, "1.00 M/s"), (2.31e6, "2.31 M/s")],
)
def test_rates_have_three_digits(rate_per_s: float, text: str) -> None:
    assert rate_text(rate_per_s) == text


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(0.8, "0.80 us"), (98.7, "98.7 us"), (999.9, "1.00 ms"), (12_345_678.0, "12.3 s")],
)
def test_times_have_three_digits(time_us: float, text: str) -> None:
    assert time_text(time_us) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(64.0, "64 B"), (1023.9, "1.00 KiB"), (6600.0, "6.45 KiB"), (2.5e6, "2.38 MiB")]
)
def test_sizes_have_three_digits(size_bytes: float, text: str) -> None:
    assert bytes_text(size_bytes) == text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_is_found_again_by_its_name(case: Case) -> None:
    assert Case.parse(case.name) == case


def test_trial_survives_its_json() -> None:
    for trial in [*trials(PUBLISH, "hansa", 1.5), failed(RATE, "grpc")]:
        assert Trial.from_json(json.loads(json.dumps(trial.as_json()))) == trial


def test_every_round_visits_every_peer_of_a_case_before_the_next_case() -> None:
    run = Run(
        cases=[RATE, PUBLISH],
        peers=[PEERS["hansa"], PEERS["grpc"], PEERS["bare"]],
        round_count=2,
        window=Window(warmup_s=0.0, measured_s=0.0),
    )
    one_round = [(RATE, "hansa"), (RATE, "grpc"), (RATE, "bare"), (PUBLISH, "hansa"), (PUBLISH, "bare")]
    assert [(case, peer.name) for _, case, peer in run.plan()] == one_round * 2
    assert [number for number, _, _ in run.plan()] == [1] * 5 + [2] * 5


def test_cases_are_chosen_by_the_beginning_of_their_names() -> None:
    assert {case.kind for case in choose_cases("pub")} == {"pub"}
    assert [case.name for case in choose_cases("rr-64B-x100,pub-64B-x4")] == ["rr-64B-x100", "pub-64B-x4"]
    assert choose_cases("") == list(CASES)


def test_whole_name_means_that_case_alone() -> None:
    assert [case.name for case in choose_cases("rr-64B-x1,scale-x100")] == ["rr-64B-x1", "scale-x100"]


def test_unknown_cases_and_peers_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'carrier-pigeon'"):
        choose_cases("rr,carrier-pigeon")
    with pytest.raises(ValueError, match="pigeon"):
        choose_peers("bare,pigeon")


def test_summary_that_was_not_measured_is_not_found() -> None:
    assert find(summarise(trials(RATE, "hansa", 1.0)), PUBLISH.name, "hansa") is None


# -- what has figures by name


def figured(case: Case, *rounds: dict[str, float]) -> list[Trial]:
    return [
        Trial(case=case, peer="hansa-registry", round_number=number, measurement=Measurement(figures=figures))
        for number, figures in enumerate(rounds, 1)
    ]


def test_figures_have_a_table_of_their_own_with_a_column_a_case() -> None:
    few, many = Case(kind="scale", width=100), Case(kind="scale", width=10_000)
    results = [
        *trials(RATE, "hansa", 50.0),
        *figured(few, {"heartbeat_cpu_us": 11.0}, {"heartbeat_cpu_us": 13.0}),
        *figured(many, {"heartbeat_cpu_us": 10.0, "restart_s": 5.0}),
    ]
    page = markdown(summarise(results), baseline="pyzmq", run=FACTS)
    section = page.partition("## Registry at scale")[2].partition("\n## ")[0]
    assert "|  | 100 providers | 10,000 providers |" in section
    assert "| registry CPU, a heartbeat | 12.0 us (11.0 us to 13.0 us) | 10.0 us |" in section
    assert "| restart: until a discovery has all again |  | 5.00 s |" in section
    assert "providers" not in page.partition("## Registry at scale")[0]
    assert "\n## 100 providers" not in page


def test_plans_have_a_table_and_goals() -> None:
    few, many = Case(kind="plan", width=100), Case(kind="plan", width=10_000)
    figures = {"alike_first_s": 0.1, "ruled_first_s": 2.0, "alike_leave_moves": 10.0}
    results = [
        replace(trial, peer="hansa-planner") for case in (few, many) for trial in figured(case, figures)
    ]
    summaries = summarise(results)
    section = markdown(summaries, baseline="pyzmq", run=FACTS).partition("## Plans of who works on what")[2]
    assert "|  | 100 partitions | 10,000 partitions |" in section
    assert "| all alike: the first plan | 100 ms | 100 ms |" in section
    assert "| all alike: moves when a worker has left | 10 | 10 |" in section
    assert [outcome.met for outcome in outcomes(summaries)] == [True, False]


def test_case_with_figures_that_failed_is_named_in_its_table() -> None:
    case = Case(kind="scale", width=100)
    lost = Trial(case=case, peer="hansa-registry", round_number=2, failure="watch ended")
    results = [*figured(case, {"heartbeat_cpu_us": 11.0}), lost]
    page = markdown(summarise(results), baseline="pyzmq", run=FACTS)
    assert "100 providers (1 of 2 rounds failed)" in page


def test_trial_with_figures_survives_its_json() -> None:
    [trial] = figured(Case(kind="idle", width=1_000), {"gateway_connection_bytes": 1.5})
    assert Trial.from_json(json.loads(json.dumps(trial.as_json()))) == trial


def test_gateway_is_compared_beside_the_transport_and_not_in_its_table() -> None:
    case = Case(kind="gw", size_bytes=64, width=100)
    results = [
        *trials(RATE, "hansa", 50.0),
        *trials(case, "hansa-gateway", 80.0),
        *trials(case, "pyzmq", 20.0),
        *trials(case, "nats", 40.0),
        *trials(case, "grpc", 4.0),
    ]
    summaries = summarise(results)
    assert [outcome.met for outcome in outcomes(summaries)] == [True, False, True]
    page = markdown(summaries, baseline="pyzmq", run=FACTS)
    assert "gateway" not in page.partition("## Goals")[0]
    section = page.partition("## Gateway\n")[2].partition("\n## ")[0]
    assert "| hansa Gateway, uvloop | 80/s (4.00) |" in section


def test_long_cases_have_fewer_rounds() -> None:
    run = Run(
        cases=[RATE, Case(kind="idle", width=1_000)],
        peers=[PEERS["bare"], PEERS["hansa-gateway"]],
        round_count=5,
        window=Window(warmup_s=0.0, measured_s=0.0),
    )
    assert [case.kind for _, case, _ in run.plan()] == ["rr", "idle"] * 3 + ["rr"] * 2


# -- the sizes of a trial of scale


@pytest.mark.parametrize("count", [100, 1_000, 10_000])
def test_unchanged_lists_are_not_repeated_between_changes_that_come_one_by_one(count: int) -> None:
    assert scale_plan.repeat_s(count) > 1.5 * scale_plan.pause_s(count)
    assert scale_plan.repeats_watched_s(count) > 2 * scale_plan.repeat_s(count)


@pytest.mark.parametrize("kind", ["scale", "single"])
def test_providers_of_a_crowd_have_keys_of_their_own(kind: str) -> None:
    case = Case(kind=kind, width=1_000)
    nowhere = {"address": "", "second_address": "", "third_address": ""}
    job = Job(peer=PEERS["hansa-registry"], case=case, index=0, **nowhere)
    crowd = Crowd(job)
    keys = {(crowd.service(number), crowd.endpoint(number)) for number in range(2_000)}
    assert len(keys) == 2_000
    assert len({crowd.service(number) for number in range(2_000)}) == (100 if kind == "scale" else 1)
