"""When the lists are told, and how little of them is made anew."""

import pytest

from hansa import limits
from hansa.services.registry.announcer import Announcement, Announcer
from hansa.wire.frames import FrameParser
from hansa.wire.listing import (
    ProviderBlock,
    ProviderEntry,
    RegistrySync,
    ServiceBlock,
    ServiceList,
    decode_list,
    encode_block,
)
from tests.support.registry_desk import ANN, BOB, HERE, PAY, THERE, Desk, claim


def announce(desk: Desk) -> Announcement:
    return desk.announcer.announce(now=desk.now)


def read(pieces: list[bytes]) -> ServiceList | RegistrySync:
    parser = FrameParser(
        frame_bytes_max=limits.FRAME_BYTES_MAX,
        message_bytes_max=limits.MESSAGE_BYTES_MAX,
        parts_max=limits.PARTS_MAX,
        command_bytes_max=limits.COMMAND_BYTES_MAX,
    )
    parser.commands_only = False
    (frames,) = parser.feed(b"".join(pieces))
    return decode_list(frames)


@pytest.mark.spec("DIS-09")
def test_the_list_is_repeated_every_interval() -> None:
    desk = Desk()
    assert desk.announcer.deadline() == 130.0
    desk.wait(30.0)
    announce(desk)
    assert desk.announcer.deadline() == 160.0


@pytest.mark.spec("DIS-09")
def test_a_change_is_told_at_once() -> None:
    desk = Desk()
    desk.register(ANN)
    assert desk.announcer.deadline() <= desk.now
    announce(desk)
    desk.wait(10.0)
    desk.unregister(ANN)
    assert desk.announcer.deadline() <= desk.now


@pytest.mark.spec("DIS-09")
def test_changes_soon_after_a_list_wait_for_each_other() -> None:
    desk = Desk()
    desk.register(ANN)
    announce(desk)
    desk.wait(0.001)
    desk.register(BOB, THERE)
    due = desk.announcer.deadline()
    assert due == pytest.approx(100.0 + 0.02 + 2 * 50e-6)
    desk.register(BOB, "tcp://h:1")
    assert desk.announcer.deadline() >= due
    announce(desk)
    assert desk.announcer.deadline() == desk.now + 30.0


def test_the_pause_grows_with_the_list_up_to_a_second() -> None:
    desk = Desk()
    desk.hear(2, *(claim(ANN, 5, endpoint=f"tcp://h:{port}") for port in range(1, 20_001)))
    announce(desk)
    desk.hear(2)
    assert desk.announcer.deadline() == pytest.approx(100.02)
    announce(desk)
    desk.hear(2, *(claim(ANN, 6, endpoint=f"tcp://h:{port}") for port in range(1, 20_001)))
    assert desk.announcer.deadline() == pytest.approx(101.0)


@pytest.mark.spec("DIS-10")
def test_both_lists_of_a_broadcast_have_its_number_and_each_says_its_own() -> None:
    desk = Desk(3)
    desk.register(ANN)
    desk.hear(2, claim(BOB, 5, endpoint=THERE))
    desk.register(BOB, "tcp://h:1")
    desk.unregister(BOB, "tcp://h:1")
    announcement = announce(desk)
    shown, own = read(announcement.service_list), read(announcement.registry_sync)
    assert isinstance(shown, ServiceList)
    assert isinstance(own, RegistrySync)
    assert shown.registry_id == own.registry_id == 3
    assert shown.list_seq == own.list_seq == announcement.list_seq == 3001
    assert shown.services == desk.listed()
    assert [entry.endpoint for entry in shown.services[PAY]] == [HERE, THERE]
    assert own.services == desk.own_list().services
    assert shown.tombstones == own.tombstones == desk.own_list().tombstones
    assert announce(desk).list_seq == 3002


def test_an_empty_registry_has_an_empty_list_to_tell() -> None:
    desk = Desk()
    desk.register(ANN)
    announce(desk)
    desk.unregister(ANN)
    assert read(announce(desk).service_list).services == {}


def test_services_are_told_in_the_order_of_their_names() -> None:
    desk = Desk()
    for service in ("b", "d", "a", "c"):
        desk.register(ANN, service=service)
        announce(desk)
    desk.unregister(ANN, service="b")
    assert list(read(announce(desk).service_list).services) == ["a", "c", "d"]


def test_a_change_encodes_its_own_service_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []

    def counted(
        service: str, providers: tuple[ProviderEntry, ...], known: dict[str, ProviderBlock]
    ) -> ServiceBlock:
        encoded.append(service)
        return encode_block(service, providers, known)

    monkeypatch.setattr("hansa.services.registry.announcer.encode_block", counted)
    desk = Desk()
    for number in range(100):
        desk.register(ANN, service=f"s{number}")
    announce(desk)
    assert len(encoded) == 200  # Once for each of the two lists.
    encoded.clear()
    desk.reweigh(ANN, 2, service="s7")
    desk.hear(2, claim(BOB, 5, endpoint=THERE), service="s8")
    announce(desk)
    assert sorted(encoded) == ["s7", "s7", "s8"]
    encoded.clear()
    desk.wait(5.0)
    desk.beat(ANN, service="s1")
    announce(desk)
    assert encoded == []


@pytest.mark.spec("DIS-07")
def test_a_registry_says_that_it_is_settling_until_its_providers_have_had_their_time() -> None:
    desk = Desk()
    announcer = Announcer(desk.catalogue, interval_s=30.0, list_seq=0, now=100.0, settling_s=15.0)
    assert announcer.deadline() == 115.0
    early = announcer.announce(now=101.0)
    assert read(early.service_list).is_settling
    assert read(early.registry_sync).is_settling
    # The end of settling is told even if nothing else is.
    assert announcer.deadline() == 115.0
    settled = announcer.announce(now=115.0)
    assert not read(settled.service_list).is_settling
    assert not read(settled.registry_sync).is_settling
    assert announcer.deadline() == 145.0


def test_a_registry_that_was_stopped_tells_nothing_until_those_who_live_are_back() -> None:
    desk = Desk()
    desk.register(ANN)
    announce(desk)
    desk.wait(20.0)
    desk.announcer.wake(now=desk.now)
    assert desk.announcer.is_held
    desk.register(BOB, THERE)
    told_at = desk.now + limits.WAKING_S
    desk.wait(1.0)
    # Held twice is not held longer: a machine that stops again and again still tells its lists.
    desk.announcer.wake(now=desk.now)
    assert desk.announcer.deadline() == told_at
    desk.wait(told_at - desk.now)
    announce(desk)
    assert not desk.announcer.is_held
    # Nothing changed since: the next list is the one of the interval.
    assert desk.announcer.deadline() == desk.now + 30.0


def test_a_registry_that_was_stopped_settles_again() -> None:
    desk = Desk()
    announcer = Announcer(desk.catalogue, interval_s=30.0, list_seq=0, now=100.0, settling_s=15.0)
    assert not read(announcer.announce(now=120.0).service_list).is_settling
    announcer.wake(now=200.0)
    assert read(announcer.announce(now=202.0).service_list).is_settling
    assert announcer.deadline() == 215.0
    assert not read(announcer.announce(now=215.0).service_list).is_settling
