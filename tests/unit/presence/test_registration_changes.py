"""What a provider changes about its services, takes back, and does with a registry without tokens."""

import pytest

from hansa.limits import GONE_SERVICES_MAX, REGISTRY_ANSWER_S_MAX
from hansa.presence.provider_info import ProviderState
from hansa.presence.registrations import Refused, Registered, TellRegistry, Unregistered
from hansa.wire.registry import AckStatus, Register, RegisterAck, Unregister, UpdateWeight
from tests.support.registrations import HERE, OK, A, B, Played, dialled, outcome, sent

# -- changes


@pytest.mark.spec("DIS-25")
def test_a_new_weight_is_told_and_confirmed() -> None:
    played = Played(A)
    played.registered()
    effects = played.machine.reweight("pay", 5, now=played.now)
    assert sent(effects) == UpdateWeight(service="pay", endpoint=HERE, weight=5, token=sent(effects).token)
    assert outcome(played.answer(effects), Registered).registration.weight == 5
    assert played.machine.registration("pay").weight == 5  # type: ignore[union-attr]


def test_a_new_weight_for_an_entry_that_is_not_there_registers_it() -> None:
    played = Played(A)
    played.registered()
    effects = played.machine.reweight("pay", 5, now=played.now)
    assert played.answer(effects, AckStatus.OTHER, "not registered") == []
    message = sent(played.pass_time()[1])
    assert message == Register(service="pay", endpoint=HERE, weight=5, token=message.token)


def test_of_two_new_weights_the_last_is_confirmed() -> None:
    played = Played(A)
    played.registered()
    first = played.machine.reweight("pay", 5, now=played.now)
    second = played.machine.reweight("pay", 7, now=played.now)
    assert played.answer(first) == []
    assert outcome(played.answer(second), Registered).registration.weight == 7


def test_a_weight_given_while_registering_is_registered() -> None:
    played = Played(A)
    played.start()
    played.connected()
    first = played.want(weight=1)
    second = played.machine.reweight("pay", 4, now=played.now)
    assert played.answer(first) == []
    assert outcome(played.answer(second), Registered).registration.weight == 4


def test_wanting_twice_updates() -> None:
    played = Played(A)
    played.registered()
    again = played.want(weight=8)
    assert sent(again) == Register(service="pay", endpoint=HERE, weight=8, token=sent(again).token)
    assert outcome(played.answer(again), Registered).registration.weight == 8
    assert played.machine.services == ("pay",)


def test_a_new_endpoint_takes_the_old_entry_back() -> None:
    played = Played(A)
    played.registered()
    effects = played.want(endpoint="tcp://new:1")
    messages = [effect.message for effect in effects if isinstance(effect, TellRegistry)]
    assert [(type(m), m.endpoint) for m in messages] == [(Unregister, HERE), (Register, "tcp://new:1")]


def test_an_update_that_is_refused_is_told_and_tried_again() -> None:
    played = Played(A)
    played.registered()
    outcome(played.answer(played.want(weight=8), AckStatus.OTHER, "full"), Refused)
    assert played.machine.services == ("pay",)
    outcome(played.answer(played.pass_time()[1]), Registered)


# -- leaving


def test_what_is_known_of_services_that_were_taken_back_is_bounded() -> None:
    played = Played(A)
    played.registered("first")
    for number in range(GONE_SERVICES_MAX + 10):
        played.answer(played.want(f"job-{number}"))
        played.answer(played.unwant(f"job-{number}"))
    machine = played.machine
    assert machine.registration("job-0") is None
    assert machine.state("job-0") is ProviderState.CONNECTED
    assert machine.registration("job-10") is not None
    assert machine.state("job-10") is ProviderState.UNREGISTERED
    # However many came and went: what is offered is known, and can be changed.
    assert machine.registration("first") is not None
    effects = machine.reweight("first", 3, now=played.now)
    assert outcome(played.answer(effects), Registered).registration.weight == 3


@pytest.mark.spec("DIS-05")
def test_what_is_no_longer_wanted_is_taken_back_and_not_registered_again() -> None:
    played = Played(A, B)
    played.registered()
    effects = played.unwant()
    assert sent(effects) == Unregister(service="pay", endpoint=HERE, token=sent(effects).token)
    outcome(played.answer(effects), Unregistered)
    played.now += 10.0
    played.lost()
    assert played.connected() == []


@pytest.mark.spec("DIS-05")
def test_taking_back_without_a_registry_is_made_up_for_at_the_next() -> None:
    played = Played(A, B)
    played.registered()
    played.now += 10.0
    assert dialled(played.lost()) == [B]
    assert played.unwant() == []
    effects = played.connected()
    assert sent(effects) == Unregister(service="pay", endpoint=HERE, token=sent(effects).token)
    outcome(played.answer(effects), Unregistered)


def test_what_nobody_was_told_of_needs_no_taking_back() -> None:
    played = Played(A)
    played.start()
    played.want()
    assert played.unwant() == [Unregistered(service="pay")]
    assert played.connected() == []


def test_a_registration_under_way_that_is_no_longer_wanted_is_taken_back() -> None:
    played = Played(A)
    played.start()
    played.connected()
    asked = played.want()
    effects = played.unwant()
    assert isinstance(sent(effects), Unregister)
    assert played.answer(asked) == []
    outcome(played.answer(effects), Unregistered)
    assert played.machine.services == ()


def test_registering_again_overtakes_taking_back() -> None:
    played = Played(A)
    played.registered()
    leaving = played.unwant()
    again = played.want()
    outcome(again, Unregistered)
    assert played.answer(leaving) == []
    outcome(played.answer(again), Registered)


# -- a registry that knows no tokens


def test_a_registry_without_tokens_answers_registers_in_order() -> None:
    played = Played(A)
    played.start()
    played.connected()
    played.want("pay")
    played.want("user", endpoint="tcp://user:1")
    told = []
    for endpoint in (HERE, "tcp://user:1"):
        told += played.machine.ack(RegisterAck(status=OK, endpoint=endpoint), now=played.now)
    assert [effect.registration.service for effect in told if isinstance(effect, Registered)] == [
        "pay",
        "user",
    ]


def test_the_silence_of_a_registry_without_tokens_means_yes() -> None:
    played = Played(A, B)
    played.start()
    played.connected()
    played.answer(played.want(), token=False)
    played.machine.reweight("pay", 5, now=played.now)
    passed_s, effects = played.pass_time()
    assert outcome(effects, Registered).registration.weight == 5
    assert passed_s == REGISTRY_ANSWER_S_MAX
    assert played.machine.registry == A


def test_a_registry_without_tokens_is_not_waited_for_when_leaving() -> None:
    played = Played(A)
    played.start()
    played.connected()
    played.answer(played.want(), token=False)
    effects = played.unwant()
    assert isinstance(sent(effects), Unregister)
    outcome(effects, Unregistered)


def test_a_registry_that_has_said_nothing_yet_may_be_one_without_tokens() -> None:
    played = Played(A, B)
    played.registered()
    played.now += 10.0
    played.lost()
    played.unwant()
    assert isinstance(sent(played.connected()), Unregister)
    passed_s, effects = played.pass_time()
    assert passed_s == REGISTRY_ANSWER_S_MAX
    outcome(effects, Unregistered)
    assert played.machine.registry == B


@pytest.mark.parametrize("what", ["weight", "unregister"])
def test_the_silence_of_a_registry_with_tokens_is_a_loss(what: str) -> None:
    played = Played(A, B)
    played.registered()
    if what == "weight":
        played.machine.reweight("pay", 5, now=played.now)
    else:
        played.unwant()
    assert dialled(played.pass_time()[1]) == [B]
    effects = played.connected() or played.pass_time()[1]
    if what == "weight":
        assert sent(effects) == Register(service="pay", endpoint=HERE, weight=5, token=sent(effects).token)
    else:
        assert sent(effects) == Unregister(service="pay", endpoint=HERE, token=sent(effects).token)


def test_an_unasked_duplicate_does_not_answer_a_register_of_a_registry_with_tokens() -> None:
    played = Played(A)
    played.registered("pay")
    asked = played.want("user", endpoint="tcp://user:1")
    unasked = RegisterAck(status=AckStatus.DUPLICATE, endpoint=HERE, error="another holds it")
    assert played.machine.ack(unasked, now=played.now) == []
    assert outcome(played.answer(asked), Registered).registration.service == "user"
    assert played.machine.state("pay") is ProviderState.CONNECTED
