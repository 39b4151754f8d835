"""When a provider leaves a registry for the next, and how fast."""

import pytest

from hansa.chance import Chance
from hansa.limits import REGISTRY_ANSWER_S_MAX, RETURN_S_MAX
from hansa.presence.provider_info import ProviderState
from hansa.presence.registrations import Dial, HangUp, Registered
from hansa.wire.registry import Register
from tests.support.registrations import HERE, A, B, C, Played, dialled, outcome, sent


@pytest.mark.spec("DIS-12")
def test_a_lost_registry_is_left_at_once_for_the_next_in_turn() -> None:
    played = Played(A, B, C)
    played.registered()
    for registry in (B, C, A, B):
        played.now += 10.0
        assert dialled(played.lost()) == [registry]
        played.connected()
        assert played.machine.registry == registry
        passed_s, effects = played.pass_time()
        assert passed_s <= RETURN_S_MAX
        assert outcome(played.answer(effects), Registered).registration.registry == registry
    assert played.machine.tally.failovers_count == 4
    assert played.machine.tally.reregistrations_count == 4


@pytest.mark.spec("DIS-12")
def test_failed_dials_back_off_with_jitter_round_robin() -> None:
    played = Played(A, B, C, seed=42)
    played.registered()
    played.now += 10.0
    assert dialled(played.lost()) == [B]
    tried, delays = [], []
    for _ in range(8):
        assert played.lost("connection refused") == []
        passed_s, effects = played.pass_time()
        delays.append(passed_s)
        tried += dialled(effects)
    assert tried == [C, A, B, C, A, B, C, A]
    for delay_s, middle_s in zip(delays, [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0], strict=True):
        assert 0.8 * middle_s <= delay_s <= 1.2 * middle_s
        assert delay_s != middle_s
    # Exactly what the seed says: the same history every time.
    chance = Chance.seeded(42)
    jitters = [1 + chance.uniform(-0.2, 0.2) for _ in range(8)]
    middles = [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert delays == pytest.approx([m * j for m, j in zip(middles, jitters, strict=True)])
    assert played.machine.tally.dials_failed_count == 8


@pytest.mark.spec("DIS-12")
def test_success_resets_the_backoff() -> None:
    played = Played(A, B)
    played.start()
    for _ in range(5):
        played.lost()
        played.pass_time()
    played.connected()
    outcome(played.answer(played.want()), Registered)
    played.now += 10.0
    assert dialled(played.lost()) != []  # At once.
    played.lost()
    assert 0.16 <= played.pass_time()[0] <= 0.24


@pytest.mark.spec("DIS-12")
def test_a_handshake_is_no_success_while_something_is_to_be_registered() -> None:
    played = Played(A, B)
    played.want()
    played.start()
    delays = []
    for _ in range(3):
        played.connected()
        assert played.lost() == []
        delays.append(played.pass_time()[0])
    for delay_s, middle_s in zip(delays, [0.2, 0.4, 0.8], strict=True):
        assert 0.8 * middle_s <= delay_s <= 1.2 * middle_s


@pytest.mark.spec("DIS-12")
def test_a_registry_that_throws_everyone_out_is_not_dialled_without_a_pause() -> None:
    played = Played(A)
    played.start()
    for _ in range(10):
        assert played.connected() == []
        assert played.lost() == []
        assert played.pass_time()[0] == pytest.approx(0.2)


@pytest.mark.spec("DIS-12")
def test_a_registry_that_does_not_answer_is_left() -> None:
    played = Played(A, B)
    played.start()
    played.connected()
    played.want()
    passed_s, effects = played.pass_time()
    assert passed_s == REGISTRY_ANSWER_S_MAX
    assert effects == [HangUp(registry=A), Dial(registry=B)]
    assert played.machine.tally.unanswered_count == 1
    assert "did not answer" in played.machine.problems[A]
    assert sent(played.connected()) == Register(service="pay", endpoint=HERE, weight=1, token=2)


@pytest.mark.spec("DIS-12")
def test_a_registry_that_does_not_shake_hands_is_left() -> None:
    played = Played(A, B)
    played.start()
    passed_s, effects = played.pass_time()
    assert (passed_s, effects) == (REGISTRY_ANSWER_S_MAX, [HangUp(registry=A)])
    assert dialled(played.pass_time()[1]) == [B]


def test_after_a_failover_a_crowd_does_not_come_in_step() -> None:
    delays = []
    for seed in range(50):
        played = Played(A, seed=seed)
        played.registered()
        played.now += 1.0
        played.lost()
        assert played.connected() == []
        delays.append(played.pass_time()[0])
    assert len(set(delays)) == 50
    assert max(delays) <= RETURN_S_MAX
    assert min(delays) < RETURN_S_MAX / 4 < 3 * RETURN_S_MAX / 4 < max(delays)


def test_while_no_registry_is_there_nothing_is_sent() -> None:
    played = Played(A)
    played.registered()
    played.now += 10.0
    assert dialled(played.lost()) == [A]
    assert played.want("user") == []
    assert played.machine.reweight("pay", 9, now=played.now) == []
    assert played.machine.state("pay") is ProviderState.BOUND
    assert sent(played.connected()).service == "user"  # Its first time: at once.
    again = sent(played.pass_time()[1])
    assert again == Register(service="pay", endpoint=HERE, weight=9, token=again.token)
