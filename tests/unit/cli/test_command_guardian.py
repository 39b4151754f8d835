"""When a guardian signals a command, and how it and the owner understand each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from hansa.cli import command_guardian
from hansa.cli.command_guardian import ORPHAN_S_MAX, Frames, Vigil, frame
from hansa.cli.guarded_command import StopTimes

TERM, KILL = signal.SIGTERM, signal.SIGKILL


@pytest.fixture
def vigil() -> Vigil:
    """Of a command that was started at 0, and may run until 10."""
    vigil = Vigil()
    assert vigil.begin(term_s=10.0, kill_s=12.0, now=0.0)
    return vigil


@pytest.mark.spec("CRD-09")
def test_an_owner_that_is_silent_until_the_deadline_has_its_command_stopped_then_killed(vigil: Vigil) -> None:
    assert vigil.deadline() == 10.0
    assert vigil.tick(now=9.9) is None
    assert not vigil.was_stopped
    assert vigil.tick(now=10.0) == TERM
    assert vigil.was_stopped
    assert vigil.deadline() == 12.0
    assert vigil.tick(now=11.9) is None
    assert vigil.tick(now=12.0) == KILL
    assert vigil.deadline() is None
    assert vigil.tick(now=13.0) is None
    assert vigil.is_watching


def test_a_guardian_that_wakes_too_late_kills_at_once(vigil: Vigil) -> None:
    assert vigil.tick(now=12.5) == KILL
    assert vigil.was_stopped


def test_each_renewal_moves_the_deadline_on(vigil: Vigil) -> None:
    vigil.keep(term_s=20.0, kill_s=22.0)
    assert vigil.deadline() == 20.0
    assert vigil.tick(now=12.0) is None
    assert vigil.tick(now=20.0) == TERM


def test_a_renewal_saves_no_command_that_is_being_stopped(vigil: Vigil) -> None:
    vigil.tick(now=10.0)
    vigil.keep(term_s=20.0, kill_s=22.0)
    assert vigil.deadline() == 12.0
    assert vigil.tick(now=12.0) == KILL


def test_an_owner_that_lost_it_has_the_command_stopped_in_its_own_time(vigil: Vigil) -> None:
    assert vigil.stop(kill_s=7.0, now=5.0) == TERM
    assert vigil.deadline() == 7.0
    assert vigil.tick(now=7.0) == KILL


def test_without_time_left_it_is_killed_at_once(vigil: Vigil) -> None:
    assert vigil.stop(kill_s=5.0, now=5.0) == KILL


def test_a_command_gets_one_sigterm_however_often_it_is_to_be_stopped(vigil: Vigil) -> None:
    assert vigil.tick(now=10.0) == TERM
    assert vigil.stop(kill_s=30.0, now=10.1) is None
    assert vigil.deadline() == 12.0  # The earlier one counts.
    assert vigil.stop(kill_s=11.0, now=10.2) is None
    assert vigil.deadline() == 11.0
    assert vigil.orphan(now=11.0) == KILL
    assert vigil.stop(kill_s=0.0, now=11.1) is None


@pytest.mark.spec("CRD-09")
def test_a_command_whose_owner_is_gone_is_stopped_at_once_and_killed_before_the_lease_can_end(
    vigil: Vigil,
) -> None:
    assert vigil.orphan(now=5.0) == TERM
    assert vigil.deadline() == 12.0


def test_a_long_lease_is_no_reason_to_let_an_orphan_live() -> None:
    vigil = Vigil()
    vigil.begin(term_s=1000.0, kill_s=1100.0, now=0.0)
    assert vigil.orphan(now=5.0) == TERM
    assert vigil.deadline() == 5.0 + ORPHAN_S_MAX


def test_what_is_lost_already_is_not_started() -> None:
    vigil = Vigil()
    assert not vigil.begin(term_s=10.0, kill_s=12.0, now=10.0)
    assert not vigil.is_watching
    assert vigil.deadline() is None


def test_what_a_command_leaves_behind_is_killed_only_if_the_command_was_stopped(vigil: Vigil) -> None:
    assert vigil.end() is None
    assert not vigil.is_watching
    vigil.begin(term_s=10.0, kill_s=12.0, now=0.0)
    vigil.stop(kill_s=7.0, now=5.0)
    assert vigil.end() == KILL


def test_after_the_end_nobody_is_signalled(vigil: Vigil) -> None:
    vigil.end()
    assert vigil.deadline() is None
    assert vigil.orphan(now=1.0) is None
    assert vigil.stop(kill_s=0.0, now=1.0) is None


def test_the_next_command_begins_anew(vigil: Vigil) -> None:
    vigil.stop(kill_s=0.0, now=5.0)
    vigil.end()
    assert vigil.begin(term_s=20.0, kill_s=22.0, now=6.0)
    assert not vigil.was_stopped
    assert vigil.tick(now=12.0) is None
    assert vigil.tick(now=20.0) == TERM
    assert vigil.tick(now=22.0) == KILL


def test_frames_arrive_whole_however_they_are_cut() -> None:
    told = [[b"start", b"1.5", b"", b"a\nb"], [b"signal", b"15"], [b"x" * 300]]
    stream = b"".join(frame(*fields) for fields in told)
    for step in (1, 3, len(stream)):
        frames = Frames()
        heard = [
            fields for at in range(0, len(stream), step) for fields in frames.feed(stream[at : at + step])
        ]
        assert heard == told


def test_times_are_told_exactly() -> None:
    (fields,) = Frames().feed(frame(b"keep", 0.1 + 0.2, 1e9 + 1e-6))
    assert [float(field) for field in fields[1:]] == [0.1 + 0.2, 1e9 + 1e-6]


def test_the_guardian_leaves_the_owner_time_to_be_first_and_both_end_before_another_begins() -> None:
    times = StopTimes.between(100.0, 101.0)
    assert 100.0 < times.term_s < times.kill_s < times.force_s < 101.0
    over = StopTimes.between(100.0, 0.0)
    assert over.term_s == over.kill_s == over.force_s == 0.0
    at_once = StopTimes.at_once(100.0)
    assert at_once.kill_s == 100.0 < at_once.force_s


def test_the_guardian_loads_next_to_nothing() -> None:
    source = f"open({command_guardian.__file__!r}).read()"
    script = f"import sys; __name__ = 'loaded'; exec({source}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, check=True)
    loaded = set(done.stdout.decode().split())
    assert not {name for name in loaded if name.split(".")[0] in {"hansa", "asyncio", "typing", "subprocess"}}


def test_a_guardian_without_anything_to_guard_ends_with_its_connection() -> None:
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", command_guardian.__file__, str(reading)], pass_fds=(reading,)
    ) as process:
        os.close(reading)
        os.close(writing)
        assert process.wait(30) == 0
