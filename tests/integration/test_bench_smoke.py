"""The benchmark runs: real processes, real sockets, only what hansa itself needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.case import Case
from bench.peers import PEERS
from bench.stage import Stage, TrialFailed

ROOT = Path(__file__).resolve().parents[2]


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


async def test_worker_that_breaks_is_a_failed_trial_that_says_why() -> None:
    with pytest.raises(TrialFailed, match="has no attribute 'juggle'"):
        async with Stage(PEERS["bare"], Case.parse("rr-64B-x1")) as stage:
            await stage.start("juggle")


async def test_no_process_of_a_trial_outlives_it() -> None:
    async with Stage(PEERS["bare"], Case.parse("rr-64B-x1")) as stage:
        workers = [await stage.start("serve"), await stage.start("call")]
        assert not any(worker.has_ended for worker in workers)
    assert all(worker.has_ended for worker in workers)
