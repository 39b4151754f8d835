"""What a registry decides when other registries speak, and how a cluster agrees."""

import pytest

from hansa.presence.statements import EPOCH_MAX
from hansa.services.registry import entries
from hansa.services.registry.synced import Synced
from hansa.wire.listing import RegistrySync
from hansa.wire.registry import AckStatus
from tests.support.registry_desk import ANN, BOB, FIRST_EPOCH, HERE, PAY, THERE, Desk, claim, grave

LATER = FIRST_EPOCH + (1000 << 16)


def exchange(*desks: Desk) -> None:
    """Everybody hears everybody, until nobody has anything new to say."""
    for _ in range(3):
        for desk in desks:
            for other in desks:
                if other is not desk:
                    desk.follow(other)


@pytest.mark.spec("DIS-11")
def test_what_is_registered_with_one_is_listed_by_all() -> None:
    one, two, three = Desk(1), Desk(2), Desk(3)
    one.register(ANN)
    two.register(BOB, THERE)
    three.register(BOB, THERE, service="ledger")
    exchange(one, two, three)
    assert one.listed() == two.listed() == three.listed()
    assert {service: len(entries) for service, entries in one.listed().items()} == {"ledger": 1, PAY: 2}
    assert one.catalogue.direct_count == 1
    assert one.catalogue.synced.count == 2


@pytest.mark.spec("DIS-11")
def test_a_peer_tells_only_what_was_registered_with_it() -> None:
    one, two = Desk(1), Desk(2)
    one.register(ANN)
    two.follow(one)
    assert two.who() == ANN
    assert two.own_list().services == {}


@pytest.mark.spec("DIS-11")
def test_what_its_source_no_longer_tells_is_gone() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5), claim(BOB, 5, endpoint=THERE))
    desk.hear(2, claim(BOB, 5, endpoint=THERE))
    assert (desk.who(), desk.who(THERE)) == (None, BOB)
    desk.hear(2)
    assert desk.listed() == {}
    assert desk.catalogue.synced.count == 0


@pytest.mark.spec("DIS-10")
@pytest.mark.parametrize("seq", [6, 7])
def test_an_older_or_repeated_list_is_ignored_and_counted(seq: int) -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5), seq=7)
    desk.hear(2, seq=seq)
    assert desk.who() == ANN
    assert desk.catalogue.synced.stale_count == 1


@pytest.mark.spec("DIS-10")
def test_a_registry_restarted_under_its_id_is_believed_at_once() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5), seq=7)
    desk.hear(2, claim(BOB, 6, endpoint=THERE), seq=1 << 40)
    assert (desk.who(), desk.who(THERE)) == (None, BOB)


@pytest.mark.spec("DIS-07")
def test_what_a_restarted_registry_held_is_an_orphan_until_it_has_settled() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5), claim(BOB, 5, endpoint=THERE))
    desk.hear(2, claim(ANN, 9), settling=True)
    assert desk.entry() == claim(ANN, 9)
    assert desk.entry(THERE) == claim(BOB, 5, endpoint=THERE, orphaned=True)
    desk.hear(2, claim(ANN, 9), settling=True, tombstones=(grave(5, endpoint=THERE),))
    assert desk.who(THERE) is None
    # Not even hidden: the tombstone goes one day, and the claim would be back.
    assert desk.catalogue.synced.claims((PAY, THERE)) == []
    desk.hear(2, claim(ANN, 9), claim(BOB, 11, endpoint=THERE), settling=True)
    assert desk.entry(THERE) == claim(BOB, 11, endpoint=THERE)
    desk.hear(2, settling=True)
    assert [entry.orphaned for entry in desk.listed()[PAY]] == [True, True]
    desk.hear(2, claim(ANN, 12))
    assert desk.listed() == {PAY: (claim(ANN, 12),)}
    assert desk.catalogue.synced.count == 1


def test_a_list_under_our_own_id_is_ignored_and_counted() -> None:
    desk = Desk(1)
    desk.hear(1, claim(ANN, 5))
    assert desk.listed() == {}
    assert desk.catalogue.tally.echoed_lists_count == 1


@pytest.mark.spec("DIS-11")
def test_a_silent_peer_loses_its_claims_after_three_broadcasts() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5))
    desk.hear(3, claim(BOB, 5, endpoint=THERE))
    desk.wait(60.0)
    desk.hear(3, claim(BOB, 5, endpoint=THERE))
    desk.wait(29.9)
    assert desk.who() == ANN
    desk.wait(0.1)
    assert (desk.who(), desk.who(THERE)) == (None, BOB)
    assert desk.catalogue.synced.heard == (3,)


def test_a_repeated_list_is_a_sign_of_life() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5), seq=7)
    desk.wait(60.0)
    desk.hear(2, seq=7)
    desk.wait(60.0)
    assert desk.who() == ANN
    desk.hear(2, seq=6)  # A replay of the past is none.
    desk.wait(30.0)
    assert desk.who() is None


def test_after_a_stop_of_the_process_silent_peers_are_gone_before_anything_is_told() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5))
    desk.now += 1000.0
    desk.hear(3, claim(BOB, 5, endpoint=THERE))
    assert (desk.who(), desk.who(THERE)) == (None, BOB)


@pytest.mark.spec("DIS-13")
def test_a_provider_that_moved_has_one_entry_and_its_old_registry_lets_go() -> None:
    one, two = Desk(1), Desk(2)
    one.register(ANN)
    exchange(one, two)
    one.hang_up(ANN)
    assert two.register(ANN, weight=4).status is AckStatus.OK
    exchange(one, two)
    assert one.listed() == two.listed()
    assert [entry.weight for entry in one.listed()[PAY]] == [4]
    assert (one.catalogue.direct_count, two.catalogue.direct_count) == (0, 1)
    assert one.catalogue.tally.conceded_count == 1
    assert all(answer.ack.status is AckStatus.OK for answer in one.told)


@pytest.mark.spec("DIS-13")
def test_a_provider_may_unregister_at_another_registry_than_it_registered_with() -> None:
    one, two = Desk(1), Desk(2)
    one.register(ANN)
    exchange(one, two)
    assert two.unregister(BOB) is AckStatus.OTHER
    assert two.unregister(ANN) is AckStatus.OK
    exchange(one, two)
    assert one.listed() == two.listed() == {}
    assert one.catalogue.direct_count == 0


@pytest.mark.spec("DIS-11")
def test_what_was_removed_during_a_cut_does_not_come_back() -> None:
    one, two = Desk(1), Desk(2)
    one.register(ANN)
    exchange(one, two)
    one.hang_up(ANN)  # Cut off: the provider moves to two and leaves from there, which one does not hear.
    two.register(ANN)
    two.unregister(ANN)
    assert one.who() == ANN
    two.follow(one)
    assert two.listed() == {}
    exchange(one, two)
    assert one.listed() == two.listed() == {}


@pytest.mark.spec("DIS-11")
def test_what_expired_at_one_is_gone_at_all_even_if_another_still_holds_an_older_claim() -> None:
    one, two = Desk(1), Desk(2)
    one.register(ANN)
    exchange(one, two)
    two.register(ANN)
    two.wait(15.0)
    one.beat(ANN)
    one.wait(14.0)
    exchange(one, two)
    assert one.listed() == two.listed() == {}
    (answer,) = [answer for answer in one.told if answer.ack.status is AckStatus.OTHER]
    assert answer.peer == ANN
    assert answer.ack.error.startswith("not registered")


@pytest.mark.spec("DIS-04")
def test_a_living_providers_key_is_taken_at_every_registry() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5))
    assert desk.register(BOB).status is AckStatus.DUPLICATE
    desk.hear(2, claim(ANN, 5, orphaned=True))
    assert desk.register(BOB).status is AckStatus.OK
    assert desk.who() == BOB


def test_a_claim_whose_registry_cannot_be_asked_does_not_stand_against_a_provider_that_is_here() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5), seq=7)
    desk.lose(2)
    assert desk.who() == ANN
    assert desk.register(BOB).status is AckStatus.OK
    assert desk.who() == BOB
    desk.hear(2, claim(ANN, 5), seq=7)  # It is back, and says the same again: the first to come stays.
    assert desk.who() == ANN
    assert desk.told[-1].peer == BOB
    assert desk.told[-1].ack.status is AckStatus.DUPLICATE


@pytest.mark.spec("DIS-13")
def test_two_providers_of_one_key_on_both_sides_of_a_cut_become_one() -> None:
    one, two = Desk(1), Desk(2)
    two.register(BOB)
    one.now = two.now = 101.0
    one.register(ANN)
    exchange(one, two)
    assert one.listed() == two.listed()
    assert one.who() == BOB
    loser = one.told[-1]
    assert (loser.peer, loser.ack.status, loser.ack.token) == (ANN, AckStatus.DUPLICATE, None)
    assert "came first" in loser.ack.error


def test_two_orphans_of_one_key_are_kept_until_one_returns() -> None:
    one, two = Desk(1), Desk(2)
    one.register(ANN)
    one.hang_up(ANN)
    two.now = 101.0
    two.register(BOB)
    two.hang_up(BOB)
    exchange(one, two)
    assert one.who() == two.who() == BOB
    assert one.beat(ANN) is None
    exchange(one, two)
    assert one.who() == two.who() == ANN
    assert two.catalogue.direct_count == 0


def test_a_provider_here_that_an_older_claim_from_a_fast_clock_beats_is_told_and_comes_back() -> None:
    desk = Desk()
    desk.register(ANN)
    desk.hear(2, claim(ANN, LATER, orphaned=True))
    (answer,) = desk.told[1:]
    assert (answer.peer, answer.ack.status, answer.ack.token) == (ANN, AckStatus.OTHER, None)
    assert answer.ack.error.startswith("not registered")
    assert desk.register(ANN).status is AckStatus.OK
    assert desk.entry().epoch == LATER + 1
    assert not desk.entry().orphaned


def test_a_registration_is_later_than_everything_known_of_its_key() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, LATER), tombstones=(grave(LATER + 7, endpoint=THERE),))
    desk.register(ANN)
    desk.register(ANN, THERE)
    assert desk.entry().epoch == LATER + 1
    assert desk.entry(THERE).epoch == LATER + 8


def test_a_registration_is_later_than_a_tombstone_that_is_later_than_all_claims() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, LATER))
    desk.hear(3, tombstones=(grave(LATER + 7),))
    desk.register(ANN)
    assert desk.entry().epoch == LATER + 8


def test_a_claim_that_outlives_its_tombstone_is_shown_again() -> None:
    """Its registry was told of the removal and stands by the claim: it knows better."""
    desk = Desk()
    desk.hear(2, claim(ANN, 5))
    desk.hear(3, tombstones=(grave(5),))
    for _ in range(3):
        desk.wait(34.9)
        desk.hear(2, claim(ANN, 5))
        assert desk.who() is None
    desk.wait(0.3)
    assert desk.who() == ANN


@pytest.mark.parametrize("stamp", [None, FIRST_EPOCH])
def test_a_key_that_is_claimed_for_all_time_is_refused(stamp: int | None) -> None:
    desk = Desk()
    desk.hear(2, tombstones=(grave(EPOCH_MAX),))
    ack = desk.register(ANN, stamp=stamp)
    assert ack.status is AckStatus.OTHER
    assert "clock" in ack.error
    assert desk.register(ANN, THERE).status is AckStatus.OK


def test_tombstones_of_peers_are_told_to_discoveries_and_not_to_other_peers() -> None:
    desk = Desk()
    desk.hear(2, tombstones=(grave(5),))
    assert desk.catalogue.tombstones.all() == [grave(5)]
    assert desk.own_list().tombstones == ()


def test_a_list_without_epochs_is_believed() -> None:
    """Another implementation's REGISTRY_SYNC has the specified frames only."""
    desk = Desk()
    desk.hear(2, claim(ANN, 0))
    assert desk.who() == ANN
    (info,) = desk.catalogue.services()[PAY]
    assert info.registered_at == 0.0


def test_an_endpoint_twice_in_one_list_is_one_claim() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5), claim(BOB, 6))
    assert desk.who() == BOB
    assert desk.catalogue.synced.count == 1
    desk.hear(2, claim(ANN, 5))
    assert desk.who() == ANN
    desk.hear(2, claim(ANN, 5), claim(ANN, 5))
    desk.hear(2)
    assert desk.listed() == {}


def test_what_does_not_fit_into_one_list_waits_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "PROVIDERS_MAX", 2)
    desk = Desk()
    ends = [f"tcp://h:{number}" for number in range(1, 5)]
    desk.hear(2, *(claim(ANN, 5, endpoint=end) for end in ends[:2]))
    desk.hear(3, *(claim(BOB, 5, endpoint=end) for end in ends[2:]))
    assert [desk.who(end) for end in ends] == [ANN, ANN, None, None]
    assert desk.catalogue.tally.left_out_count == 2
    desk.hear(2, claim(ANN, 5, endpoint=ends[0]))
    assert [desk.who(end) for end in ends] == [ANN, None, BOB, None]
    desk.hear(3, claim(BOB, 5, endpoint=ends[2]))
    desk.hear(2)
    assert [desk.who(end) for end in ends] == [None, None, BOB, None]


def test_more_registries_than_a_cluster_has_push_out_the_one_not_heard_for_longest() -> None:
    synced = Synced(silence_s=90.0, peers_max=2)
    for registry_id in (5, 6, 5, 7):
        message = RegistrySync(
            registry_id=registry_id,
            list_seq=synced.lists_count,
            services={PAY: (claim(ANN, registry_id, endpoint=HERE),)},
        )
        synced.apply(message, b"c", float(synced.lists_count))
    assert synced.heard == (5, 7)
    assert synced.evicted_count == 1
    assert sorted(said.registry_id for said in synced.claims((PAY, HERE))) == [5, 7]


def test_a_service_that_is_the_same_tuple_is_not_looked_into() -> None:
    desk = Desk()

    class Untouchable(tuple[object, ...]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            raise AssertionError("looked into")

    entries = (claim(ANN, 5),)
    services: dict[str, object] = {PAY: entries}
    desk.catalogue.sync(_list(1, services), b"c", now=desk.now)
    same = Untouchable()
    desk.catalogue.synced._peers[2].services = {PAY: same}  # type: ignore[dict-item]
    desk.catalogue.sync(_list(2, {PAY: same}), b"c", now=desk.now)
    assert desk.who() == ANN


def _list(seq: int, services: dict[str, object]) -> RegistrySync:
    return RegistrySync(registry_id=2, list_seq=seq, services=services)  # type: ignore[arg-type]
