"""What the benchmark says about topics, on numbers made up for it, and the parts of its load that decide."""

import asyncio
from typing import Any

import pytest

from bench.case import Case
from bench.figures import FIGURES
from bench.goals import GOALS, outcomes
from bench.kinds import CASES
from bench.measurement import Measurement, Trial, baseline_of, is_latency, is_rated, summarise
from bench.peers import PEERS
from bench.peers.mailbox import Mailbox, post
from bench.report import case_title, markdown

ONE_TO_ONE = Case(kind="topic", size_bytes=64, width=1)
THERE_AND_BACK = Case(kind="pong", size_bytes=64, width=1)
HUNDRED = Case(kind="local", size_bytes=64, width=100)
SPOTS = Case(kind="spots", width=10_000)
STOPPED = Case(kind="stop", size_bytes=64, width=4)
FACTS: dict[str, Any] = {
    "machine": {
        "cores": 2,
        "processor": "a processor",
        "memory_gib": 8.0,
        "system": "Linux 6",
        "python": "CPython 3.11",
        "load_1min_at_start": 0.1,
        "versions": {},
    },
    "settings": {"rounds": 1, "warmup_s": 0.4, "measured_s": 1.0, "baseline": "pyzmq"},
    "peers": {},
}


def measured(case: Case, peer: str, measurement: Measurement, round_number: int = 1) -> Trial:
    return Trial(case=case, peer=peer, round_number=round_number, measurement=measurement)


def rate(case: Case, peer: str, rate_per_s: float, lost: int = 0) -> Trial:
    return measured(
        case, peer, Measurement(rate_per_s=rate_per_s, cpu_us=1.0, lost_count=lost, sent_count=1000)
    )


def latency(peer: str, p50_us: float) -> Trial:
    return measured(
        THERE_AND_BACK, peer, Measurement(rate_per_s=1.0, cpu_us=1.0, p50_us=p50_us, p99_us=p50_us)
    )


def figures(case: Case, peer: str, *rounds: dict[str, float]) -> list[Trial]:
    return [
        measured(case, peer, Measurement(figures=one), number) for number, one in enumerate(rounds, start=1)
    ]


def page_of(*trials: Trial) -> str:
    return markdown(summarise(trials), baseline="pyzmq", run=FACTS)


def section(page: str, title: str) -> str:
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


# -- goals


def test_topics_are_judged_against_zenoh_and_nats_in_the_same_run() -> None:
    results = [
        rate(ONE_TO_ONE, "hansa-topics", 1_100.0),
        rate(ONE_TO_ONE, "zenoh", 1_000.0),
        rate(ONE_TO_ONE, "nats", 250.0),
    ]
    judged = {outcome.goal.against: outcome for outcome in outcomes(summarise(results))}
    assert set(judged) == {"zenoh", "nats"}
    assert judged["zenoh"].reached == pytest.approx(1.1)
    assert not judged["zenoh"].met
    assert judged["nats"].met


def test_latency_over_two_topics_is_met_from_below() -> None:
    [outcome] = outcomes(summarise([latency("hansa-topics", 59.0), latency("nats", 100.0)]))
    assert outcome.reached == pytest.approx(0.59)
    assert outcome.met


@pytest.mark.parametrize(("spot_bytes", "met"), [(4096.0, True), (4097.0, False)])
def test_figure_is_judged_by_itself(spot_bytes: float, met: bool) -> None:
    [outcome] = outcomes(summarise(figures(SPOTS, "hansa-spots", {"spot_bytes": spot_bytes})))
    assert outcome.reached == spot_bytes
    assert outcome.met is met


def test_what_must_not_happen_may_not_happen_in_any_round() -> None:
    clean = {"others_share": 1.0, "others_lost": 0.0, "stopped_untold": 0.0}
    trials = figures(STOPPED, "hansa-mesh", clean, clean, clean | {"others_lost": 1.0})
    judged = {outcome.goal.figure: outcome for outcome in outcomes(summarise(trials))}
    assert judged["others_share"].met
    assert judged["stopped_untold"].met
    assert judged["others_lost"].reached == 1.0
    assert not judged["others_lost"].met


def test_figure_that_was_not_measured_is_not_judged() -> None:
    assert outcomes(summarise(figures(SPOTS, "hansa-spots", {"waiting_spot_bytes": 1.0}))) == []


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.case}-{goal.against or goal.figure}")
def test_every_goal_can_be_judged_in_a_whole_run(goal: Any) -> None:
    case = Case.parse(goal.case)
    assert case in CASES
    assert case.kind in PEERS[goal.peer].kinds
    if goal.figure:
        assert goal.figure in FIGURES
        assert not goal.against
    else:
        assert case.kind in PEERS[goal.against].kinds
    assert goal.at_least is not None or goal.at_most is not None


# -- the page


def test_topics_are_compared_with_nats_in_a_table_of_their_own() -> None:
    page = page_of(
        rate(ONE_TO_ONE, "hansa-topics", 900_000.0, lost=20),
        rate(ONE_TO_ONE, "nats", 200_000.0),
        latency("hansa-topics", 120.0),
        latency("nats", 300.0),
    )
    overview = section(page, "Topics")
    assert "|  | topic 1->1, 64 B | two topics, there and back, 64 B |" in overview
    assert "| hansa topics, uvloop | 900 k/s (4.50) | 120 us (0.40) |" in overview
    assert "publish" not in page.partition("## Goals")[0]
    details = section(page, "Topic 1->1, 64 B")
    assert "| hansa topics, uvloop | 900 k/s | 4.50 | 1.00 us | 2.0% |" in details
    assert "lost" not in section(page, "Two topics, there and back, 64 B")


def test_fan_out_in_one_process_is_compared_with_the_bare_mailboxes() -> None:
    page = page_of(rate(HUNDRED, "hansa-spots", 12e6), rate(HUNDRED, "mailbox", 20e6))
    assert "| hansa spots, uvloop | 12.0 M/s (0.60) |" in section(page, "Topics in one process")


def test_goals_of_figures_are_shown_in_the_units_of_the_figure() -> None:
    page = page_of(
        *figures(SPOTS, "hansa-spots", {"spot_bytes": 1536.0}),
        *figures(STOPPED, "hansa-mesh", {"others_share": 0.85, "others_lost": 0.0, "stopped_untold": 3.0}),
    )
    goals = section(page, "Goals")
    assert "| 10,000 spots: an idle spot with one subscription | <= 4.00 KiB | 1.50 KiB | yes |" in goals
    nodes = "| one of 4 nodes stopped, 64 B: "
    assert nodes + "with one stopped, as a multiple | >= 0.90 | 0.85 | no |" in goals
    assert nodes + "lost by the others | <= 0 | 0 | yes |" in goals
    assert nodes + "of these not known to it | <= 0 | 3 | no |" in goals


def test_slow_subscribers_and_memory_of_topics_have_tables_of_their_own() -> None:
    page = page_of(
        *figures(STOPPED, "hansa-mesh", {"others_share": 1.02, "stopped_missed": 120_000.0}),
        *figures(Case(kind="known", width=10_000), "hansa-mesh", {"owned_topic_bytes": 700.0}),
    )
    assert "| missed by the stopped one | 120,000 |" in section(page, "Slow subscribers")
    assert "| a topic at its owner | 700 B |" in section(page, "Memory of topics")
    assert section(page, "Memory") == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_has_a_title_of_its_own(case: Case) -> None:
    assert [other for other in CASES if case_title(other) == case_title(case)] == [case]


def test_each_kind_of_topics_has_a_rival_that_counts_as_one() -> None:
    for case in CASES:
        against = baseline_of(case, "pyzmq")
        if case.kind in ("topic", "pong", "local", "put", "get", "lock", "fan"):
            assert case.kind in PEERS[against].kinds
        elif case.kind != "routed":
            assert against == "pyzmq"
    assert is_latency(THERE_AND_BACK)
    assert all(is_rated(case) for case in (ONE_TO_ONE, THERE_AND_BACK, HUNDRED))
    assert not is_rated(STOPPED)


# -- the bare mailboxes


async def test_mailboxes_get_every_message_and_wake_once_a_burst() -> None:
    mailboxes = [Mailbox(), Mailbox()]
    takes: list[list[bytes]] = []

    async def read(mailbox: Mailbox) -> None:
        for _ in range(2):
            takes.append(await mailbox.take_all())

    async with asyncio.TaskGroup() as readers:
        for mailbox in mailboxes:
            readers.create_task(read(mailbox))
        await asyncio.sleep(0)
        post(mailboxes, b"one", 3)
        await asyncio.sleep(0)
        assert takes == [[b"one"] * 3] * 2
        post(mailboxes, b"two", 2)
    assert takes[2:] == [[b"two"] * 2] * 2


async def test_mailbox_with_messages_does_not_wait() -> None:
    mailbox = Mailbox()
    post([mailbox], b"early", 2)
    async with asyncio.timeout(5.0):
        assert await mailbox.take_all() == [b"early", b"early"]
