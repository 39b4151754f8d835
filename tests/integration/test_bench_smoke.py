"""The benchmark runs: real processes, real sockets, only what hansa itself needs."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.case import Case
from bench.figures import (
    BEAT_FIGURES,
    FAILOVER_FIGURES,
    LEAD_FIGURES,
    MEMORY_FIGURES,
    MOVE_FIGURES,
    PLAN_FIGURES,
    SCALE_FIGURES,
    SLOW_FIGURES,
    TAKEOVER_FIGURES,
    TOPIC_MEMORY_FIGURES,
    Figure,
)
from bench.kinds import KINDS
from bench.peers import PEERS
from bench.stage import Stage, TrialFailed
from bench.window import Window
from tests.support.kafka_program import choose_kafka
from tests.support.priority import giving_way
from tests.support.raft_stage import trusted_etcd

ROOT = Path(__file__).resolve().parents[2]
# Of a partition that goes to others: often enough to see where it is.
MESSAGES_PER_S = "40"


@pytest.fixture(autouse=True)
def _gives_way() -> Iterator[None]:
    """A load runs as fast as it can, and here nothing depends on how fast that is."""
    with giving_way():
        yield


@pytest.mark.timeout(60)
def test_quick_run_of_hansa_and_the_bare_protocol_writes_results(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--peers", "hansa,bare", "--baseline", "bare"]
    command += ["--cases", "rr-64B-x100,pub-64B-x1", "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    measured = {(trial["case"], trial["peer"]): trial["measurement"] for trial in results["trials"]}
    assert set(measured) == {
        (case, peer) for case in ("rr-64B-x100", "pub-64B-x1") for peer in ("hansa", "bare")
    }
    assert all(one["rate_per_s"] > 0 and one["cpu_us"] > 0 for one in measured.values())
    assert "## Publish 1->1, 64 B" in (tmp_path / "results.md").read_text(encoding="utf-8")


@pytest.mark.timeout(90)
def test_quick_run_of_the_services_writes_their_tables(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--peers", "hansa-gateway,hansa-sync,hansa-registry"]
    command += ["--cases", "gw-64B-x100,sync-64B-x1,scale-x100", "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=80, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    measured = {(trial["case"], trial["peer"]): trial["measurement"] for trial in results["trials"]}
    assert measured["gw-64B-x100", "hansa-gateway"]["rate_per_s"] > 0
    assert measured["sync-64B-x1", "hansa-sync"]["p50_us"] > 0
    figures = measured["scale-x100", "hansa-registry"]["figures"]
    assert set(figures) == set(SCALE_FIGURES)
    # A thousand changes at once are a few lists, and a list is what a hundred providers need.
    assert 1 <= figures["burst_broadcasts"] < 100
    assert 100 * 40 < figures["broadcast_bytes"] < 100 * 100
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert all(f"## {title}\n" in page for title in ("Gateway", "Blocking", "Registry at scale"))


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        (
            "idle-x20",
            {
                "gateway_connection_bytes",
                "provider_connection_bytes",
                "gateway_bytes",
                "provider_bytes",
            },
        ),
        ("pending-64B-x200", {"pending_request_bytes", "pending_submit_bytes", "pending_provider_bytes"}),
    ],
)
@pytest.mark.timeout(60)
async def test_memory_is_weighed_in_every_form(name: str, figures: set[str]) -> None:
    case = Case.parse(name)
    async with Stage(PEERS["hansa-gateway"], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.0, measured_s=0.0))
    assert set(measurement.figures) == figures <= set(MEMORY_FIGURES)


@pytest.mark.timeout(90)
def test_quick_run_of_topics_writes_their_tables(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--peers", "hansa-topics,hansa-spots,mailbox"]
    cases = {"topic-64B-x1", "routed-64B-x1", "pong-64B-x1", "local-64B-x10"}
    command += ["--cases", ",".join(cases), "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=80, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    measured = {(trial["case"], trial["peer"]): trial["measurement"] for trial in results["trials"]}
    assert {case for case, _ in measured} == cases
    assert all(one["rate_per_s"] > 0 and one["cpu_us"] > 0 for one in measured.values())
    assert measured["pong-64B-x1", "hansa-topics"]["p50_us"] > 0
    # Every process of a routed publish takes part, and no local spot is outrun by the publisher.
    assert measured["routed-64B-x1", "hansa-topics"]["cpu_us_by_role"]["own"] > 0
    assert measured["local-64B-x10", "hansa-spots"]["lost_count"] == 0
    assert measured["local-64B-x10", "mailbox"]["lost_count"] == 0
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert all(f"## {title}\n" in page for title in ("Topics", "Topics in one process"))


@pytest.mark.parametrize(("name", "peer"), [("slow-64B-x10", "hansa-spots"), ("stop-64B-x2", "hansa-mesh")])
@pytest.mark.timeout(60)
async def test_stopped_subscriber_costs_the_others_no_message_and_learns_what_it_missed(
    name: str, peer: str
) -> None:
    case = Case.parse(name)
    async with Stage(PEERS[peer], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.0, measured_s=0.2))
    assert set(measurement.figures) <= set(SLOW_FIGURES)
    assert measurement.figures["others_share"] > 0
    assert measurement.figures["others_lost"] == 0
    assert measurement.figures["stopped_missed"] > 0
    assert measurement.figures["stopped_untold"] == 0


@pytest.mark.parametrize(
    ("name", "peer", "figures"),
    [
        ("spots-x500", "hansa-spots", {"spot_bytes", "waiting_spot_bytes"}),
        (
            "known-x500",
            "hansa-mesh",
            {"owned_topic_bytes", "known_topic_bytes", "subscribed_topic_bytes"},
        ),
    ],
)
@pytest.mark.timeout(60)
async def test_spots_and_topics_are_weighed(name: str, peer: str, figures: set[str]) -> None:
    case = Case.parse(name)
    async with Stage(PEERS[peer], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.0, measured_s=0.0))
    assert set(measurement.figures) == figures <= set(TOPIC_MEMORY_FIGURES)


@pytest.mark.timeout(90)
def test_quick_run_of_stores_writes_their_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--peers", "hansa-memory,hansa-store"]
    cases = {"put-64B-x1", "lock-x1"}
    command += ["--cases", ",".join(cases), "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=80, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    measured = {(trial["case"], trial["peer"]): trial["measurement"] for trial in results["trials"]}
    assert set(measured) == {(case, peer) for case in cases for peer in ("hansa-memory", "hansa-store")}
    assert all(one["rate_per_s"] > 0 and one["cpu_us"] > 0 for one in measured.values())
    # The process of the store is in the cost.
    assert measured["put-64B-x1", "hansa-store"]["cpu_us_by_role"]["broker"] > 0
    assert "## Store and locks\n" in (tmp_path / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("peer", ["hansa-store", "hansa-raft"])
@pytest.mark.timeout(60)
async def test_a_change_is_told_to_every_watch(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if peer == "hansa-raft":
        monkeypatch.setenv("HANSA_ETCD", trusted_etcd())
    case = Case.parse("fan-64B-x10")
    async with Stage(PEERS[peer], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.0, measured_s=1.0))
    assert measurement.rate_per_s is not None
    assert measurement.rate_per_s >= case.width
    assert measurement.p50_us is not None


@pytest.mark.parametrize(("name", "figures"), [("failover-x1", FAILOVER_FIGURES), ("beats-x4", BEAT_FIGURES)])
@pytest.mark.timeout(60)
async def test_leaders_are_killed_and_members_beat(name: str, figures: dict[str, Figure]) -> None:
    case = Case.parse(name)
    async with Stage(PEERS["hansa-store"], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.0, measured_s=0.2))
    assert set(measurement.figures) == set(figures)
    # Nobody leads before the lease of the one that was killed has ended: two seconds less what it had lost.
    assert measurement.figures.get("failover_s_min", 1.0) > 0.5
    assert measurement.figures.get("unseen_members", 0) == 0


@pytest.mark.timeout(60)
async def test_a_topic_moves_under_load_and_every_message_is_accounted_for() -> None:
    case = Case.parse("move-64B-x2")
    async with Stage(PEERS["hansa-movers"], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.1, measured_s=0.04))
    figures = measurement.figures
    assert set(figures) <= set(MOVE_FIGURES)
    assert figures["moves"] == 4
    assert figures["moves_apart"] == 4 or figures["pause_s"] > 0 < figures["sealed_s"]
    assert [figures[name] for name in ("unknown", "twice", "disordered", "refused")] == [0, 0, 0, 0]


@pytest.mark.timeout(60)
async def test_a_leadership_moves_from_candidate_to_candidate() -> None:
    case = Case.parse("lead-x4")
    async with Stage(PEERS["hansa-store"], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.0, measured_s=0.0))
    figures = measurement.figures
    assert set(figures) <= set(LEAD_FIGURES)
    assert figures["moves"] == 4
    assert figures["moves_apart"] == 4 or 0 < figures["term_gap_s"] < figures["term_whole_s"] < 2.0


@pytest.mark.timeout(90)
async def test_partitions_go_to_others_when_their_process_leaves_or_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HANSA_BENCH_MESSAGES_PER_S", MESSAGES_PER_S)
    case = Case.parse("takeover-x6")
    async with Stage(PEERS["hansa-sharers"], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.0, measured_s=0.0))
    figures = measurement.figures
    assert set(figures) <= set(TAKEOVER_FIGURES)
    # Two at the leave, two at the join.
    assert figures["handed_moves"] == 4
    assert figures["handed_apart"] == 4 or 0 < figures["handed_pause_s"] < 5.0
    # Its session ends, and not before.
    assert 4.0 < figures.get("takeover_killed_s", 6.0) < 30.0


@pytest.mark.parametrize("peer", ["hansa-kafka-consumer", "confluent-kafka-classic"])
@pytest.mark.timeout(180)
async def test_partitions_of_a_kafka_group_go_to_others(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSA_BENCH_MESSAGES_PER_S", MESSAGES_PER_S)
    choice = await choose_kafka()
    if choice.program is None:
        pytest.skip(f"there is only {choice}")
    case = Case.parse("takeover-x6")
    async with Stage(PEERS[peer], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.0, measured_s=0.0))
    figures = measurement.figures
    assert set(figures) <= set(TAKEOVER_FIGURES)
    # Two at the leave, two at the join, or more where the broker takes a way round.
    assert figures["handed_moves"] >= 4
    assert 4.0 < figures.get("takeover_killed_s", 6.0) < 60.0


@pytest.mark.timeout(60)
async def test_plans_are_timed_and_a_worker_that_leaves_moves_what_it_had() -> None:
    case = Case.parse("plan-x100")
    async with Stage(PEERS["hansa-planner"], case) as stage:
        measurement = await KINDS[case.kind].measure(stage, Window(warmup_s=0.0, measured_s=0.0))
    figures = measurement.figures
    assert set(figures) == set(PLAN_FIGURES)
    assert all(value > 0 for value in figures.values())
    assert figures["alike_leave_moves"] == figures["alike_join_moves"] == 10


async def test_frozen_worker_answers_when_it_goes_on() -> None:
    async with Stage(PEERS["mailbox"], Case.parse("local-64B-x1")) as stage:
        worker = await stage.start("publish_here")
        worker.freeze()
        asked = asyncio.ensure_future(worker.sample())
        done, _ = await asyncio.wait([asked], timeout=0.2)
        assert not done
        worker.thaw()
        assert (await asked).count == 0


async def test_worker_that_breaks_is_a_failed_trial_that_says_why() -> None:
    with pytest.raises(TrialFailed, match="has no attribute 'juggle'"):
        async with Stage(PEERS["bare"], Case.parse("rr-64B-x1")) as stage:
            await stage.start("juggle")


async def test_no_process_of_a_trial_outlives_it() -> None:
    async with Stage(PEERS["bare"], Case.parse("rr-64B-x1")) as stage:
        workers = [await stage.start("serve"), await stage.start("call")]
        assert not any(worker.has_ended for worker in workers)
    assert all(worker.has_ended for worker in workers)
