"""The programs under examples/ do what they say."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


async def output_of(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


@pytest.mark.spec("SPT-13")
async def test_a_game_world_of_four_servers_survives_the_kill_of_one() -> None:
    out = await output_of(str(EXAMPLES / "mmorpg_zones.py"), "--seconds", "4")
    assert "zones 26 to 38 are dark" in out
    # Two servers border on the one that was killed, with two topics each.
    handed_over = re.search(r"hand-over: (\d+) border topics", out)
    assert handed_over is not None, out
    assert int(handed_over[1]) == 4
    rows = re.findall(r"^ +(\d) +(\d+) +(\d+) +(\d+) +(\d+)", out, re.MULTILINE)
    assert [number for number, *_ in rows] == ["0", "1", "2", "3"]
    assert all(int(published) and int(received) for _, published, received, *_ in rows)
    assert "came, or was reported" in out


async def test_every_job_is_done_once_although_the_leader_is_killed() -> None:
    out = await output_of(str(EXAMPLES / "job_scheduler.py"))
    killed = re.search(r"^(\w+) is killed with (\d) jobs in hand", out, re.MULTILINE)
    assert killed is not None, out
    # Another leads after it, and nobody has done all.
    assert re.search(rf"^(?!{killed[1]})\w+ leads", out[killed.end() :], re.MULTILINE)
    assert len(re.findall(r"'\w+': \d+", out)) > 1
    assert out.endswith("100 jobs, each done once\n")


@pytest.mark.spec("ASG-04", "ASG-05")
async def test_every_reading_of_a_plant_counts_once_although_workers_come_leave_and_are_killed() -> None:
    out = await output_of(str(EXAMPLES / "equipment_monitoring.py"), "--workers", "3")
    joins, leaves, killed = (
        out.index(f"-- {what}") for what in ("dora joins", "anna leaves", "dora is killed")
    )
    assert re.search(
        r"^dora has press-\d+ to press-\d+, goes on behind reading \d+$", out[joins:], re.MULTILINE
    )
    assert re.search(r"^anna hands press-\d+ to press-\d+ on after reading \d+$", out[leaves:], re.MULTILINE)
    lost = re.search(r"^dora is gone; it had saved (.+) up to reading (\d+)$", out[killed:], re.MULTILINE)
    assert lost is not None, out
    # Its successor begins where it had saved.
    assert re.search(rf"^(bert|carl) has {lost[1]}, goes on behind reading {lost[2]}$", out, re.MULTILINE)
    assert "2400 readings of 24 machines, each counted once, in order;" in out
    assert re.search(r"^[1-9]\d+ alarms, each raised once$", out, re.MULTILINE)
