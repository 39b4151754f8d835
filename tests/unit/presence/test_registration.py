"""What a provider tells one registry: services, heartbeats, and entries that got lost."""

import pytest

from hansa.limits import REREGISTER_S_MAX
from hansa.presence.provider_info import ProviderState, Registration
from hansa.presence.registrations import Dial, Refused, Registered, TellRegistry, Unregistered
from hansa.wire.registry import AckStatus, Register, RegisterAck
from tests.support.registrations import HERE, OK, A, B, Played, outcome, sent

# -- one registry


@pytest.mark.spec("DIS-25")
def test_a_service_goes_through_its_states() -> None:
    played = Played(A)
    states = [played.machine.state("pay")]
    assert played.start() == [Dial(registry=A)]
    states.append(played.machine.state("pay"))
    assert played.connected() == []
    states.append(played.machine.state("pay"))
    asked = played.want(weight=3)
    assert sent(asked) == Register(service="pay", endpoint=HERE, weight=3, token=1)
    states.append(played.machine.state("pay"))
    told = outcome(played.answer(asked), Registered)
    assert told.registration == Registration(service="pay", endpoint=HERE, weight=3, registry=A, status=OK)
    states.append(played.machine.state("pay"))
    outcome(played.answer(played.unwant()), Unregistered)
    states.append(played.machine.state("pay"))
    bound, connected = ProviderState.BOUND, ProviderState.CONNECTED
    ended = [ProviderState.REGISTERED, ProviderState.UNREGISTERED]
    assert states == [bound, bound, connected, connected, *ended]


@pytest.mark.spec("DIS-25")
def test_several_services_are_registered_side_by_side() -> None:
    played = Played(A)
    played.start()
    played.connected()
    asked = {service: played.want(service) for service in ("pay", "user", "mail")}
    for service in ("mail", "pay", "user"):  # Tokens tell the answers apart, whatever their order.
        assert outcome(played.answer(asked[service]), Registered).registration.service == service
    assert played.machine.services == ("pay", "user", "mail")


@pytest.mark.spec("DIS-25")
def test_every_registered_service_sends_heartbeats() -> None:
    played = Played(A)
    played.registered("pay")
    played.now += 1.0
    played.answer(played.want("user"))
    beats = [played.pass_time() for _ in range(4)]
    assert [passed_s for passed_s, _ in beats] == pytest.approx([4.0, 1.0, 4.0, 1.0])
    assert [sent(effects).service for _, effects in beats] == ["pay", "user", "pay", "user"]
    assert played.machine.tally.heartbeats_count == 4


def test_what_is_wanted_before_a_registry_is_there_goes_out_when_one_is() -> None:
    played = Played(A)
    assert played.want() == []
    assert played.start() == [Dial(registry=A)]
    assert sent(played.connected()) == Register(service="pay", endpoint=HERE, weight=1, token=1)


def test_a_registry_may_be_added_later() -> None:
    played = Played()
    assert played.start() == []
    assert played.machine.deadline() is None
    assert played.machine.add_registry(A, now=played.now) == [Dial(registry=A)]
    assert played.machine.add_registry(B, now=played.now) == []
    assert played.machine.add_registry(B, now=played.now) == []
    assert played.machine.registries == (A, B)


@pytest.mark.spec("DIS-04")
@pytest.mark.parametrize("status", [AckStatus.DUPLICATE, AckStatus.BAD_ENDPOINT, AckStatus.OTHER])
@pytest.mark.parametrize("token", [True, False])
def test_a_first_registration_that_is_refused_is_told_and_not_tried_again(
    status: AckStatus, token: bool
) -> None:
    played = Played(A)
    played.start()
    played.connected()
    refused = outcome(played.answer(played.want(), status, "taken", token=token), Refused)
    assert (refused.registration.status, refused.registration.error) == (status, "taken")
    assert played.machine.services == ()
    assert played.machine.deadline() is None
    assert played.machine.registration("pay") == refused.registration
    assert played.machine.state("pay") is ProviderState.CONNECTED


def test_the_resolved_endpoint_is_what_heartbeats_name() -> None:
    played = Played(A)
    played.start()
    played.connected()
    message = sent(played.want(endpoint="tcp://here:1"))
    played.machine.ack(RegisterAck(status=OK, endpoint="tcp://there:1", token=message.token), now=played.now)
    assert sent(played.pass_time()[1]).endpoint == "tcp://there:1"
    assert sent(played.unwant()).endpoint == "tcp://there:1"


# -- a registry that lost the entry


@pytest.mark.spec("DIS-07")
@pytest.mark.parametrize("has_token", [True, False])
def test_a_heartbeat_for_an_entry_that_is_not_there_registers_again_after_a_jittered_delay(
    has_token: bool,
) -> None:
    delays = set()
    for seed in range(20):
        played = Played(A, seed=seed)
        played.registered()
        beat = sent(played.pass_time()[1])
        ack = RegisterAck(
            status=AckStatus.OTHER,
            endpoint=HERE,
            error="not registered: pay",
            token=beat.token if has_token else None,
        )
        assert played.machine.ack(ack, now=played.now) == []
        assert played.machine.state("pay") is ProviderState.CONNECTED
        passed_s, effects = played.pass_time()
        assert 0.0 <= passed_s <= REREGISTER_S_MAX
        delays.add(passed_s)
        outcome(played.answer(effects), Registered)
        assert played.machine.state("pay") is ProviderState.REGISTERED
        assert played.machine.tally.reregistrations_count == 1
    assert len(delays) == 20


@pytest.mark.spec("DIS-07")
def test_with_a_token_only_the_service_that_is_missing_registers_again() -> None:
    played = Played(A)
    played.registered("pay")
    played.answer(played.want("user"))
    _, effects = played.pass_time()
    beats = {e.message.service: e.message for e in effects if isinstance(e, TellRegistry)}
    missing = RegisterAck(status=AckStatus.OTHER, error="not registered", token=beats["user"].token)
    played.machine.ack(missing, now=played.now)
    assert played.machine.state("pay") is ProviderState.REGISTERED
    assert sent(played.pass_time()[1]).service == "user"


def test_a_not_registered_answer_is_never_taken_for_the_answer_to_a_register() -> None:
    played = Played(A)
    played.start()
    played.connected()
    played.answer(played.want("pay"), token=False)
    asked = played.want("user")
    missing = RegisterAck(status=AckStatus.OTHER, endpoint=HERE, error="not registered")
    assert played.machine.ack(missing, now=played.now) == []
    assert outcome(played.answer(asked, token=False), Registered).registration.service == "user"


def test_a_claim_that_lost_is_made_again_and_then_ever_more_slowly() -> None:
    played = Played(A)
    played.registered()
    unasked = RegisterAck(status=AckStatus.DUPLICATE, endpoint=HERE, error="another holds it")
    assert played.machine.ack(unasked, now=played.now) == []
    _, effects = played.pass_time()
    delays = []
    for _ in range(7):
        assert played.answer(effects, AckStatus.DUPLICATE, "taken") == []  # Nobody waits for it.
        assert played.machine.state("pay") is ProviderState.CONNECTED
        passed_s, effects = played.pass_time()
        delays.append(passed_s)
    for delay_s, middle_s in zip(delays, [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0], strict=True):
        assert 0.8 * middle_s <= delay_s <= 1.2 * middle_s
    assert played.machine.tally.refusals_count == 7
    outcome(played.answer(effects), Registered)


def test_answers_to_nothing_are_counted() -> None:
    played = Played(A)
    played.registered()
    for ack in (
        RegisterAck(status=OK, endpoint=HERE),
        RegisterAck(status=OK, token=77),
        RegisterAck(status=AckStatus.OTHER, token=77, error="not registered"),
        RegisterAck(status=AckStatus.DUPLICATE, endpoint="tcp://elsewhere:1"),
    ):
        assert played.machine.ack(ack, now=played.now) == []
    played.lost()
    assert played.machine.ack(RegisterAck(status=OK, endpoint=HERE), now=played.now) == []
    assert played.machine.tally.stray_answers_count == 5
