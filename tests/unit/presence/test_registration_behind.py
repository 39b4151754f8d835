"""What a provider does when a registry knows a later word about its entry than the one it has just said."""

import pytest

from hansa.limits import BEHIND_MAX, FAILOVER_S_MIN
from hansa.presence.provider_info import ProviderState
from hansa.presence.registrations import Effect, Refused, Registered, Unregistered
from hansa.wire.registry import AckStatus, Register, RegisterAck, Unregister
from tests.support.registrations import HERE, A, Played, outcome, sent

WALL_MS = 1_700_000_000_000
KNOWN = WALL_MS + 3_000 << 16


def behind(played: Played, effects: list[Effect], known: int = KNOWN) -> list[Effect]:
    """The registry answers the one message in these effects."""
    ack = RegisterAck(
        status=AckStatus.OTHER,
        endpoint=HERE,
        error="behind: a later word is known",
        token=sent(effects).token,
        stamp=known,
    )
    return played.machine.ack(ack, now=played.now)


def connected() -> Played:
    played = Played(A)
    played.start()
    played.connected()
    return played


@pytest.mark.spec("DIS-03")
def test_what_is_behind_is_said_again_at_once_with_a_later_stamp() -> None:
    played = connected()
    asked = played.want(weight=3)
    again = behind(played, asked)
    assert sent(again) == Register(service="pay", endpoint=HERE, weight=3, token=sent(again).token)
    assert sent(again).token != sent(asked).token
    assert played.machine.stamps.next(WALL_MS) == KNOWN + 1
    assert played.machine.registration("pay") is None
    outcome(played.answer(again), Registered)
    assert played.machine.tally.behind_count == 1
    assert played.machine.tally.refusals_count == 0


def test_a_registry_that_always_knows_better_refuses_in_the_end() -> None:
    played = connected()
    effects = played.want()
    for _ in range(BEHIND_MAX):
        effects = behind(played, effects)
    refused = outcome(behind(played, effects), Refused)
    assert refused.registration.error.startswith("behind")
    assert played.machine.tally.behind_count == BEHIND_MAX + 1
    assert played.machine.services == ()


def test_an_entry_that_was_accepted_once_is_tried_again_after_a_pause() -> None:
    played = Played(A)
    played.registered()
    effects = played.want(weight=2)
    for _ in range(2):
        for _ in range(BEHIND_MAX):
            effects = behind(played, effects)
        behind(played, effects)
        assert played.machine.state("pay") is ProviderState.CONNECTED
        passed_s, effects = played.pass_time()
        assert passed_s >= 0.8 * FAILOVER_S_MIN
    outcome(played.answer(effects), Registered)
    effects = played.want(weight=3)
    for _ in range(BEHIND_MAX):
        effects = behind(played, effects)
    outcome(played.answer(effects), Registered)


def test_a_weight_that_is_behind_registers_the_entry_with_the_weight_of_now() -> None:
    played = Played(A)
    played.registered()
    first = played.machine.reweight("pay", 5, now=played.now)
    played.machine.reweight("pay", 7, now=played.now)
    again = behind(played, first)
    assert sent(again) == Register(service="pay", endpoint=HERE, weight=7, token=sent(again).token)
    assert played.machine.stamps.next(WALL_MS) == KNOWN + 1
    assert outcome(played.answer(again), Registered).registration.weight == 7
    assert played.machine.tally.missing_count == 0


@pytest.mark.spec("DIS-05")
def test_taking_back_that_is_behind_is_said_again_a_few_times() -> None:
    played = Played(A)
    played.registered()
    effects = played.unwant()
    for _ in range(BEHIND_MAX):
        token = sent(effects).token
        effects = behind(played, effects)
        assert isinstance(sent(effects), Unregister)
        assert sent(effects).token != token
    outcome(behind(played, effects), Unregistered)


def test_taking_back_that_is_behind_and_no_longer_meant_is_not_said_again() -> None:
    played = Played(A)
    played.registered()
    leaving = played.unwant()
    again = played.want()
    assert behind(played, leaving) == []
    outcome(played.answer(again), Registered)


@pytest.mark.parametrize(
    ("status", "error", "stamp"),
    [
        (AckStatus.OTHER, "behind: but up to where?", None),
        (AckStatus.OTHER, "the registry is full", KNOWN),
        (AckStatus.DUPLICATE, "behind a wall", KNOWN),
    ],
)
def test_any_other_refusal_is_a_refusal(status: AckStatus, error: str, stamp: int | None) -> None:
    played = connected()
    token = sent(played.want()).token
    ack = RegisterAck(status=status, endpoint=HERE, error=error, token=token, stamp=stamp)
    outcome(played.machine.ack(ack, now=played.now), Refused)
    assert played.machine.stamps.next(WALL_MS) == WALL_MS << 16
    assert played.machine.tally.behind_count == 0


def test_an_answer_that_comes_too_late_is_not_followed() -> None:
    played = connected()
    first = played.want(weight=1)
    second = played.want(weight=2)
    assert behind(played, first) == []
    outcome(played.answer(second), Registered)
