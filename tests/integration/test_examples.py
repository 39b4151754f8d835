"""The programs under examples/ do what they say."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.support.kafka_servers import Kafka, needs_real

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLANT = str(EXAMPLES / "equipment_monitoring.py")


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


@pytest.mark.spec("ASG-04")
async def test_every_reading_of_a_plant_counts_once_although_workers_come_leave_and_are_killed() -> None:
    counted_once(await output_of(PLANT, "--workers", "3"))


@pytest.mark.spec("ASG-04")
async def test_the_same_plant_is_watched_in_a_kafka_group(kafka: Kafka) -> None:
    needs_real(kafka, "makes no topics for programs")
    counted_once(await output_of(PLANT, "--workers", "3", "--kafka", kafka.address))


def counted_once(out: str) -> None:
    """The play of the plant was played, and its sums are right."""
    joins, leaves, killed = (
        out.index(f"-- {what}") for what in ("dora joins", "anna leaves", "dora is killed")
    )
    has, numbers = r"has press-\d+ to press-\d+, from reading", r"[1-9]\d*"
    assert re.search(rf"^dora {has} {numbers} on$", out[joins:], re.MULTILINE)
    handed = re.search(rf"^anna hands (.+) on after reading ({numbers})$", out[leaves:], re.MULTILINE)
    assert handed is not None, out
    assert re.search(rf"^\w+ has {handed[1]}, from reading {int(handed[2]) + 1} on$", out, re.MULTILINE)
    lost = re.search(rf"^dora is gone; it saved (.+) after reading {numbers}$", out[killed:], re.MULTILINE)
    assert lost is not None, out
    # Its successor begins where it had saved.
    assert re.search(rf"^(bert|carl) has {lost[1]}, from reading {numbers} on$", out[killed:], re.MULTILINE)
    assert "2400 readings of 24 machines, each counted once, in order;" in out
    assert re.search(r"^[1-9]\d+ alarms, each raised once$", out, re.MULTILINE)
