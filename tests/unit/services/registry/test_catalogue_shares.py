"""One peer cannot fill a registry: each has its share, and beyond it nobody else notices."""

import pytest

from hansa.presence.statements import first_epoch
from hansa.services.registry.synced import Synced
from hansa.wire.listing import RegistrySync
from hansa.wire.registry import AckStatus
from tests.support.registry_desk import ANN, BOB, HERE, PAY, THERE, Desk, claim

pytestmark = pytest.mark.spec("DIS-32")


def test_a_provider_beyond_its_share_is_refused_and_the_others_are_not() -> None:
    desk = Desk(provider_entries_max=3)
    for number in range(3):
        assert desk.register(ANN, service=f"job-{number}").status is AckStatus.OK
    refused = desk.register(ANN, service="job-3")
    assert refused.status is AckStatus.OTHER
    assert "has 3 entries" in refused.error
    assert "job-3" in refused.error
    assert "provider_entries_max" in refused.error
    assert desk.catalogue.tally.beyond_share_count == desk.catalogue.tally.refused_count == 1
    assert desk.register(BOB, THERE).status is AckStatus.OK
    # What it has can still be changed, and what it gives back makes room.
    assert desk.register(ANN, service="job-0", weight=9).status is AckStatus.OK
    assert desk.unregister(ANN, service="job-1") is AckStatus.OK
    assert desk.register(ANN, service="job-3").status is AckStatus.OK
    assert len(desk.listed()) == 4


def test_several_endpoints_of_one_service_are_several_entries() -> None:
    desk = Desk(provider_entries_max=2)
    assert desk.register(ANN, HERE).status is AckStatus.OK
    assert desk.register(ANN, THERE).status is AckStatus.OK
    assert desk.register(ANN, "tcp://10.0.0.3:5000").status is AckStatus.OTHER


def test_a_share_lasts_as_long_as_the_entries_not_as_the_connection() -> None:
    desk = Desk(provider_entries_max=1)
    desk.register(ANN, service="one")
    desk.hang_up(ANN)
    assert desk.register(ANN, service="two").status is AckStatus.OTHER
    desk.wait(15.0)
    assert desk.register(ANN, service="two").status is AckStatus.OK


def test_a_provider_that_wears_out_names_removes_every_one_of_them() -> None:
    desk = Desk(provider_entries_max=5)
    desk.register(BOB, THERE)
    desk.unregister(BOB, THERE)
    for number in range(200):
        assert desk.register(ANN, service=f"job-{number}").status is AckStatus.OK
        assert desk.unregister(ANN, service=f"job-{number}") is AckStatus.OK
        assert desk.listed() == {}
    tombstones = desk.catalogue.tombstones
    assert len(tombstones) == 6
    assert tombstones.epoch((PAY, THERE)) > 0  # Of another provider, and older than all the others.
    assert tombstones.epoch(("job-199", HERE)) > 0


def test_entries_that_expire_wear_out_their_own_providers_share_too() -> None:
    desk = Desk(provider_entries_max=2)
    desk.register(BOB, THERE)
    desk.unregister(BOB, THERE)
    for number in range(6):
        desk.register(ANN, service=f"job-{number}")
        desk.wait(15.0)
    assert desk.listed() == {}
    assert len(desk.catalogue.tombstones) == 3


def test_taking_back_names_that_nobody_knows_does_not_fill_the_tombstones() -> None:
    desk = Desk(provider_entries_max=3)
    desk.register(ANN)
    stamp = first_epoch(desk.wall_ms) + 5
    answers = [desk.leave(ANN, service=f"none-{number}", stamp=stamp) for number in range(50)]
    assert [answer.status for answer in answers] == [AckStatus.OK] * 3 + [AckStatus.OTHER] * 47
    assert "3 removed entries" in answers[-1].error
    assert len(desk.catalogue.tombstones) == 3
    # What it does have goes all the same, and so does what another one has not told of yet.
    assert desk.unregister(ANN, stamp=stamp) is AckStatus.OK
    assert desk.listed() == {}
    assert desk.unregister(BOB, THERE, stamp=stamp) is AckStatus.OK


def test_a_connection_that_speaks_for_many_registries_pushes_out_its_own_alone() -> None:
    synced = Synced(silence_s=90.0, peers_max=4)
    for registry_id in (1, 2):
        said(synced, registry_id, b"honest %d" % registry_id, now=0.0)
    for registry_id in range(10, 30):
        said(synced, registry_id, b"hostile", now=float(registry_id))
    assert synced.heard == (1, 2, 28, 29)
    assert synced.evicted_count == 18


def test_a_registry_that_comes_back_under_ever_new_ids_pushes_out_its_former_selves() -> None:
    synced = Synced(silence_s=90.0, peers_max=4)
    for registry_id in (1, 2):
        said(synced, registry_id, b"honest %d" % registry_id, now=0.0)
    for registry_id in range(10, 30):
        connection = b"hostile %d" % registry_id
        said(synced, registry_id, connection, now=float(registry_id))
        synced.disconnected(connection)
    assert synced.heard == (1, 2, 28, 29)


def said(synced: Synced, registry_id: int, connection: bytes, *, now: float) -> None:
    services = {PAY: (claim(ANN, 1, endpoint=f"tcp://h:{registry_id}"),)}
    synced.apply(
        RegistrySync(registry_id=registry_id, list_seq=1, services=services, tombstones=()), connection, now
    )
