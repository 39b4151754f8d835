"""How often a provider beats: as its registry needs it, and at least as often as it was told to."""

import pytest

from hansa.presence.provider_info import ProviderState
from hansa.presence.registrations import Effect, Refused, Registered, TellRegistry
from hansa.wire.registry import AckStatus, Heartbeat, Unregister
from tests.support.registrations import HERE, A, B, Played, outcome, sent


def beats_s(played: Played) -> float:
    """How long it takes to the next heartbeat."""
    passed_s, effects = played.pass_time()
    assert isinstance(sent(effects), Heartbeat)
    return passed_s


def register(played: Played, timeout_ms: int | None) -> list[Effect]:
    played.start()
    played.connected()
    return played.answer(played.want(), timeout_ms=timeout_ms)


@pytest.mark.spec("DIS-06")
def test_without_any_setting_heartbeats_go_out_every_5_s() -> None:
    played = Played(A, interval_s=None)
    outcome(register(played, None), Registered)
    assert [beats_s(played) for _ in range(3)] == pytest.approx([5.0] * 3)


@pytest.mark.spec("DIS-31")
@pytest.mark.parametrize(
    ("interval_s", "timeout_ms", "expected_s"),
    [
        (None, 15_000, 5.0),
        (None, 2_000, 2 / 3),
        (None, 600_000, 5.0),  # Its own 5 s are the most.
        (1.0, 15_000, 1.0),
        (1.0, 1_500, 0.5),
        (1.0, None, 1.0),  # A registry that says nothing.
        (None, 1, 0.02),  # Not as fast as anybody may ask for.
        (None, 0, 0.02),
    ],
)
def test_heartbeats_go_out_at_a_third_of_the_registrys_timeout_or_faster(
    interval_s: float | None, timeout_ms: int | None, expected_s: float
) -> None:
    played = Played(A, interval_s=interval_s)
    outcome(register(played, timeout_ms), Registered)
    assert [beats_s(played) for _ in range(3)] == pytest.approx([expected_s] * 3)


@pytest.mark.spec("DIS-31")
def test_another_registry_with_another_timeout_is_beaten_for_at_another_pace() -> None:
    played = Played(A, B, interval_s=None)
    register(played, 3_000)
    assert beats_s(played) == pytest.approx(1.0)
    played.lost()
    played.pass_time()
    played.connected()
    outcome(played.answer(played.pass_time()[1], timeout_ms=30_000), Registered)
    assert beats_s(played) == pytest.approx(5.0)
    played.lost()
    played.pass_time()
    played.connected()
    outcome(played.answer(played.pass_time()[1], timeout_ms=None), Registered)  # It forgets what A said.
    assert beats_s(played) == pytest.approx(5.0)


@pytest.mark.spec("DIS-31")
def test_a_given_interval_that_the_registrys_timeout_does_not_bear_is_refused_with_both_numbers() -> None:
    played = Played(A, interval_s=2.5)
    effects = register(played, 2_500)
    refusal = outcome(effects, Refused).registration
    assert refusal.status is AckStatus.OTHER
    assert "interval of 2.5 s" in refusal.error
    assert "silent for 2.5 s" in refusal.error
    # The registry has entered it: it is taken back.
    taken_back = [effect.message for effect in effects if isinstance(effect, TellRegistry)]
    assert [(type(message), message.endpoint) for message in taken_back] == [(Unregister, HERE)]
    assert played.machine.services == ()
    assert played.machine.state("pay") is ProviderState.CONNECTED
    assert played.machine.registration("pay") == refusal


@pytest.mark.spec("DIS-31")
def test_after_a_failover_an_entry_is_kept_up_even_if_the_given_interval_does_not_fit() -> None:
    played = Played(A, B, interval_s=5.0)
    register(played, 15_000)
    played.lost()
    played.pass_time()
    played.connected()
    outcome(played.answer(played.pass_time()[1], timeout_ms=1_500), Registered)
    assert beats_s(played) == pytest.approx(0.5)
