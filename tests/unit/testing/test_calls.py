"""A log of calls knows when each began and ended, and what of it is not known."""

import pytest

from hansa.clock import ManualClock
from hansa.errors import UsageError
from hansa.testing import CallLog, Read, Write


def test_an_answered_call_has_both_times() -> None:
    clock = ManualClock(monotonic_s=5.0)
    log = CallLog(clock)
    with log.call("a", "x", Read()) as call:
        clock.advance(2.0)
        call.answered(3)
        clock.advance(1.0)
    (found,) = log.calls
    assert (found.process, found.key, found.asked, found.answer) == ("a", "x", Read(), 3)
    assert (found.called_s, found.returned_s) == (5.0, 7.0)
    assert log.unknown_count == 0


def test_a_call_that_was_left_without_a_word_has_an_unknown_outcome() -> None:
    log = CallLog(ManualClock())
    with pytest.raises(OSError, match="gone"), log.call("a", "x", Write(1)):
        raise OSError("gone")
    (found,) = log.calls
    assert found.returned_s is None
    assert log.unknown_count == 1


def test_a_refused_call_is_left_out() -> None:
    log = CallLog(ManualClock())
    with log.call("a", "x", Write(1)) as call:
        call.refused()
    assert log.calls == []


def test_a_call_that_is_still_open_may_have_any_outcome() -> None:
    log = CallLog(ManualClock())
    call = log.call("a", "x", Write(1))
    assert [one.returned_s for one in log.calls] == [None]
    call.answered()
    assert [one.returned_s for one in log.calls] == [0.0]


def test_a_call_ends_once() -> None:
    log = CallLog(ManualClock())
    call = log.call("a", "x", Write(1))
    call.answered()
    with pytest.raises(UsageError, match="ended already"):
        call.refused()
