"""What a registry decides when providers speak, fall silent and leave."""

import pytest

from hansa.services.registry import entries
from hansa.wire.registry import AckStatus, Heartbeat, Register, RegisterAck, Unregister, UpdateWeight
from tests.support.registry_desk import ANN, BOB, FIRST_EPOCH, HERE, PAY, THERE, WALL_MS, Desk, claim

NEVER_SEEN = b"\x01\x00\x00\x00\x0f"


@pytest.mark.spec("DIS-03")
def test_a_registration_is_listed_with_its_weight_and_epoch() -> None:
    desk = Desk()
    ack = desk.register(ANN, weight=3)
    assert (ack.status, ack.endpoint, ack.error, ack.token) == (AckStatus.OK, HERE, "", 7)
    assert desk.listed() == {PAY: (claim(ANN, FIRST_EPOCH, weight=3),)}
    (info,) = desk.catalogue.services()[PAY]
    assert (info.service, info.endpoint, info.routing_id, info.weight) == (PAY, HERE, ANN, 3)
    assert info.registered_at == WALL_MS / 1000


@pytest.mark.spec("DIS-31")
def test_a_provider_is_told_the_heartbeat_timeout_and_one_without_tokens_nothing_new() -> None:
    desk = Desk()
    assert desk.register(ANN).heartbeat_timeout_ms == 15_000
    register = Register(service=PAY, endpoint=THERE)
    (answer,) = desk.catalogue.hear(BOB, register, now=desk.now, wall_ms=desk.wall_ms)
    assert answer.ack == RegisterAck(status=AckStatus.OK, endpoint=THERE)


@pytest.mark.spec("DIS-03")
def test_the_same_key_again_updates_the_entry_and_makes_no_second() -> None:
    desk = Desk()
    desk.register(ANN, weight=1)
    desk.wait(14.0)
    assert desk.register(ANN, "TCP://10.0.0.1:5000", weight=5).status is AckStatus.OK
    assert [(e.weight, e.routing_id) for e in desk.listed()[PAY]] == [(5, ANN)]
    assert desk.entry().epoch > FIRST_EPOCH
    desk.wait(14.0)
    assert desk.who() == ANN
    assert desk.catalogue.direct_count == 1


@pytest.mark.spec("DIS-03")
def test_one_endpoint_may_offer_several_services_and_one_service_have_many_endpoints() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.register(ANN, service="ledger")
    desk.register(BOB, THERE)
    assert {service: len(entries) for service, entries in desk.listed().items()} == {"ledger": 1, PAY: 2}


def test_each_registration_has_a_higher_epoch_even_within_one_millisecond() -> None:
    desk = Desk()
    epochs = []
    for _ in range(3):
        desk.register(ANN)
        epochs.append(desk.entry().epoch)
        desk.unregister(ANN)
    assert epochs == [FIRST_EPOCH, FIRST_EPOCH + 1, FIRST_EPOCH + 2]


@pytest.mark.spec("DIS-04")
@pytest.mark.parametrize(
    ("endpoint", "advice"),
    [
        ("", "the endpoint is empty"),
        ("tcp://*:5000", "advertise the host and port"),
        ("tcp://0.0.0.0:5000", "advertise the host and port"),
        ("tcp://10.0.0.1:0", "advertise the host and port"),
        ("10.0.0.1:5000", "write tcp://host:5555"),
        ("http://10.0.0.1:5000", "the scheme is not known"),
        ("tcp://10.0.0.1", "add a port"),
    ],
)
def test_an_endpoint_that_nobody_can_dial_is_refused_with_advice(endpoint: str, advice: str) -> None:
    desk = Desk()
    ack = desk.register(ANN, endpoint)
    assert ack.status is AckStatus.BAD_ENDPOINT
    assert advice in ack.error
    assert desk.listed() == {}
    assert not desk.catalogue.is_changed
    assert desk.catalogue.tally.refused_count == 1


@pytest.mark.spec("DIS-04")
def test_a_second_provider_of_a_living_ones_key_is_a_duplicate() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.wait(7.4)
    ack = desk.register(BOB)
    assert ack.status is AckStatus.DUPLICATE
    assert "01:0000000a" in ack.error
    assert "advertise another endpoint" in ack.error
    assert desk.who() == ANN
    assert desk.catalogue.tally.duplicates_count == 1


@pytest.mark.spec("DIS-03")
def test_a_provider_that_hung_up_is_replaced_at_once() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.hang_up(ANN)
    assert desk.register(BOB, weight=2).status is AckStatus.OK
    assert desk.listed() == {PAY: (claim(BOB, FIRST_EPOCH + 1, weight=2),)}
    late = desk.beat(ANN)
    assert late is not None
    assert late.status is AckStatus.OTHER


def test_a_provider_that_missed_its_heartbeat_by_half_an_interval_is_replaced() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.wait(7.5)
    assert desk.register(BOB).status is AckStatus.OK
    assert desk.who() == BOB


@pytest.mark.spec("DIS-08")
def test_weight_zero_means_one() -> None:
    desk = Desk()
    desk.register(ANN, weight=0)
    assert desk.entry().weight == 1
    desk.reweigh(ANN, 4)
    desk.reweigh(ANN, 0)
    assert desk.entry().weight == 1


@pytest.mark.spec("DIS-08")
def test_a_new_weight_is_listed_under_a_new_epoch() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.announcer.announce(now=desk.now)
    assert desk.reweigh(ANN, 9).status is AckStatus.OK
    assert desk.listed() == {PAY: (claim(ANN, FIRST_EPOCH + 1, weight=9),)}
    assert desk.catalogue.is_changed


@pytest.mark.spec("DIS-08")
@pytest.mark.parametrize(("peer", "endpoint"), [(BOB, HERE), (ANN, THERE)])
def test_the_weight_of_an_unknown_target_changes_nothing(peer: bytes, endpoint: str) -> None:
    desk = Desk()
    desk.register(ANN)
    desk.announcer.announce(now=desk.now)
    ack = desk.reweigh(peer, 9, endpoint)
    assert ack.status is AckStatus.OTHER
    assert ack.error.startswith("not registered")
    assert ack.token == 9
    assert desk.listed() == {PAY: (claim(ANN, FIRST_EPOCH),)}
    assert not desk.catalogue.is_changed


def test_the_same_weight_again_is_nothing_to_tell() -> None:
    desk = Desk()
    desk.register(ANN, weight=4)
    desk.announcer.announce(now=desk.now)
    assert desk.reweigh(ANN, 4).status is AckStatus.OK
    assert not desk.catalogue.is_changed


@pytest.mark.spec("DIS-05")
def test_unregistering_removes_the_entry_and_leaves_a_tombstone() -> None:
    desk = Desk()
    desk.register(ANN)
    assert desk.unregister(ANN) is AckStatus.OK
    assert desk.listed() == {}
    (stone,) = desk.catalogue.tombstones.own()
    assert (stone.service, stone.endpoint, stone.epoch) == (PAY, HERE, FIRST_EPOCH)
    assert desk.catalogue.deadline() == desk.now + 15.0  # Early, and harmless: the entry's own.
    desk.wait(104.9)
    assert len(desk.catalogue.tombstones) == 1
    desk.wait(0.1)
    assert len(desk.catalogue.tombstones) == 0


@pytest.mark.spec("DIS-05")
def test_only_the_holder_may_unregister() -> None:
    desk = Desk()
    desk.register(ANN)
    assert desk.unregister(BOB) is AckStatus.OTHER
    assert desk.who() == ANN
    assert desk.catalogue.tally.unregistered_count == 0


@pytest.mark.spec("DIS-06")
def test_silence_removes_the_entry_at_the_timeout_and_not_before() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.register(BOB, THERE)
    desk.wait(5.0)
    desk.beat(BOB, THERE)
    desk.wait(9.9)
    assert desk.who() == ANN
    assert desk.catalogue.deadline() == 115.0
    desk.wait(0.1)
    assert desk.who() is None
    assert desk.who(THERE) == BOB
    assert desk.catalogue.deadline() == 120.0
    assert desk.catalogue.tally.expired_count == 1
    assert [stone.endpoint for stone in desk.catalogue.tombstones.own()] == [HERE]


@pytest.mark.spec("DIS-06")
def test_heartbeats_keep_an_entry_for_ever_and_are_not_answered() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.announcer.announce(now=desk.now)
    for _ in range(20):
        desk.wait(14.0)
        assert desk.beat(ANN) is None
    assert desk.who() == ANN
    assert desk.catalogue.tally.heartbeats_count == 20
    assert not desk.catalogue.is_changed


@pytest.mark.spec("DIS-07")
@pytest.mark.parametrize(("peer", "endpoint"), [(BOB, HERE), (ANN, THERE), (NEVER_SEEN, THERE)])
def test_a_heartbeat_for_an_entry_that_is_not_there_is_answered(peer: bytes, endpoint: str) -> None:
    desk = Desk()
    desk.register(ANN)
    ack = desk.beat(peer, endpoint)
    assert ack is not None
    assert (ack.status, ack.endpoint) == (AckStatus.OTHER, endpoint)
    assert ack.error.startswith("not registered")
    assert desk.catalogue.tally.unknown_heartbeats_count == 1


@pytest.mark.spec("DIS-06")
def test_a_heartbeat_that_waited_while_the_registry_was_stopped_revives_nothing() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.now += 60.0  # The process was stopped: nobody called `expire` meanwhile.
    ack = desk.beat(ANN)
    assert ack is not None
    assert ack.error.startswith("not registered")
    assert desk.who() is None
    assert desk.register(ANN).status is AckStatus.OK


def test_other_spellings_of_an_endpoint_find_the_entry() -> None:
    desk = Desk()
    assert desk.register(ANN, "tcp://Example.COM:5000").endpoint == "tcp://example.com:5000"
    assert desk.beat(ANN, "tcp://Example.COM:5000") is None
    assert desk.reweigh(ANN, 2, "tcp://Example.COM:5000").status is AckStatus.OK
    assert desk.unregister(ANN, "tcp://EXAMPLE.com:5000") is AckStatus.OK
    assert desk.unregister(ANN, "not an endpoint") is AckStatus.OTHER


def test_a_provider_that_hung_up_is_listed_as_orphaned_until_it_speaks_again() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.announcer.announce(now=desk.now)
    desk.hang_up(ANN)
    assert desk.entry().orphaned
    assert desk.catalogue.is_changed
    desk.wait(10.0)
    assert desk.beat(ANN) is None
    assert not desk.entry().orphaned
    desk.hang_up(ANN)
    desk.reweigh(ANN, 2)
    assert not desk.entry().orphaned


def test_an_orphan_expires_as_any_other() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.hang_up(ANN)
    desk.hang_up(ANN)
    desk.hang_up(BOB)
    desk.wait(15.0)
    assert desk.listed() == {}


def test_a_peer_that_gives_no_token_is_answered_as_the_specification_says() -> None:
    desk = Desk()
    say = desk.catalogue.hear
    register = Register(service=PAY, endpoint=HERE)
    (answer,) = say(ANN, register, now=100.0, wall_ms=WALL_MS)
    assert (answer.peer, answer.ack.status, answer.ack.token) == (ANN, AckStatus.OK, None)
    weight = UpdateWeight(service=PAY, endpoint=HERE, weight=2)
    assert say(ANN, weight, now=100.0, wall_ms=WALL_MS) == []
    assert len(say(BOB, weight, now=100.0, wall_ms=WALL_MS)) == 1
    assert say(ANN, Heartbeat(service=PAY, endpoint=HERE), now=100.0, wall_ms=WALL_MS) == []
    unregister = Unregister(service=PAY, endpoint=HERE)
    assert say(ANN, unregister, now=100.0, wall_ms=WALL_MS) == []
    assert say(ANN, unregister, now=100.0, wall_ms=WALL_MS) == []


@pytest.mark.spec("DIS-04")
@pytest.mark.parametrize("bound", ["PROVIDERS_MAX", "SERVICES_MAX", "LIST_FRAMES_MAX"])
def test_a_full_registry_says_so(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(entries, bound, {"LIST_FRAMES_MAX": 4 + 2 * 5}.get(bound, 2))
    desk = Desk()
    assert desk.register(ANN, service="a").status is AckStatus.OK
    assert desk.register(ANN, service="b").status is AckStatus.OK
    ack = desk.register(BOB, THERE, service="c")
    assert ack.status is AckStatus.OTHER
    assert "full" in ack.error
    assert desk.register(ANN, service="a", weight=2).status is AckStatus.OK
    desk.unregister(ANN, service="b")
    assert desk.register(BOB, THERE, service="c").status is AckStatus.OK


def test_a_heartbeat_costs_the_same_among_ten_thousand() -> None:
    """Counted, not timed: nothing but the one entry is looked at."""
    desk = Desk()
    for number in range(10_000):
        desk.register(b"provider %d" % number, f"tcp://h:{number + 1}")
    assert desk.catalogue.direct_count == 10_000
    desk.announcer.announce(now=desk.now)
    looked_at: list[object] = []
    desk.catalogue._merge = lambda keys: looked_at.extend(keys)  # type: ignore[method-assign]
    desk.now += 14.0
    for number in range(10_000):
        desk.beat(b"provider %d" % number, f"tcp://h:{number + 1}")
    assert looked_at == []
    assert desk.catalogue.deadline() == 115.0
    desk.now = 115.0
    desk.catalogue.expire(now=desk.now)
    assert desk.catalogue.deadline() == 129.0
    assert looked_at == []


def test_what_a_stopped_registry_has_not_heard_goes_without_a_tombstone() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.wait(5.0)
    desk.register(BOB, THERE)
    desk.now += 12.0
    desk.told += desk.catalogue.overslept(now=desk.now)
    assert (desk.who(), desk.who(THERE)) == (None, BOB)
    assert len(desk.catalogue.tombstones) == 0
    answer = desk.beat(ANN)
    assert answer is not None
    assert answer.error.startswith("not registered")
    assert desk.register(ANN).status is AckStatus.OK
    assert desk.who() == ANN
