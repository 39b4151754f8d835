"""A registry that has just started: what it says of itself, and what its peers make of it."""

import pytest

from hansa import limits
from hansa.services.registry.announcer import Announcer
from hansa.wire.frames import FrameParser
from hansa.wire.listing import RegistrySync, ServiceList, decode_list
from hansa.wire.registry import AckStatus
from tests.support.registry_desk import ANN, BOB, HERE, PAY, THERE, Desk, claim, grave

SETTLING_S = 15.0


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


def announcer(desk: Desk, settling_s: float = SETTLING_S) -> Announcer:
    return Announcer(desk.catalogue, interval_s=30.0, list_seq=0, now=desk.now, settling_s=settling_s)


# ---- what it says of itself ------------------------------------------------------------------------------


def test_changes_are_told_at_once_while_it_settles() -> None:
    desk = Desk()
    starting = announcer(desk)
    desk.wait(1.0)
    desk.register(ANN)
    assert starting.deadline() <= desk.now
    told = read(starting.announce(now=desk.now).service_list)
    assert told.is_settling
    assert [one.endpoint for one in told.services[PAY]] == [HERE]


def test_only_one_list_more_than_usual_is_told_for_it() -> None:
    desk = Desk()
    starting = announcer(desk)
    desk.wait(SETTLING_S - 0.001)
    assert read(starting.announce(now=desk.now).service_list).is_settling
    desk.wait(0.001)
    assert starting.deadline() <= desk.now
    assert not read(starting.announce(now=desk.now).service_list).is_settling
    desk.register(ANN)
    starting.announce(now=desk.now)
    assert starting.deadline() == desk.now + 30.0


def test_a_change_just_after_tells_the_end_as_well() -> None:
    desk = Desk()
    starting = announcer(desk)
    starting.announce(now=desk.now)
    desk.wait(SETTLING_S + 1.0)
    desk.register(ANN)
    assert not read(starting.announce(now=desk.now).registry_sync).is_settling
    assert starting.deadline() == desk.now + 30.0


def test_without_a_time_to_settle_it_never_says_so() -> None:
    desk = Desk()
    assert not read(announcer(desk, 0.0).announce(now=desk.now).service_list).is_settling


# ---- what its peers make of it ---------------------------------------------------------------------------


@pytest.fixture
def desk() -> Desk:
    """It has heard registry 2, which held two providers, was killed, and is back without them."""
    desk = Desk()
    desk.hear(2, claim(ANN, 5), claim(BOB, 6, endpoint=THERE))
    desk.lose(2)
    desk.hear(2, settling=True)
    return desk


@pytest.mark.spec("DIS-11")
def test_its_providers_stay_listed_as_orphans(desk: Desk) -> None:
    assert desk.listed() == {
        PAY: (claim(ANN, 5, orphaned=True), claim(BOB, 6, endpoint=THERE, orphaned=True))
    }
    assert desk.catalogue.synced.count == 2


def test_they_are_not_passed_on_as_our_own(desk: Desk) -> None:
    assert desk.own_list().services == {}


def test_a_provider_that_came_to_us_meanwhile_is_ours(desk: Desk) -> None:
    assert desk.register(ANN).status is AckStatus.OK
    assert desk.entry().orphaned is False
    assert desk.entry().epoch > 5
    # Its old registry goes on not having it, and settles without: nothing changes for it.
    desk.hear(2, settling=True)
    desk.hear(2)
    assert desk.who() == ANN
    assert desk.who(THERE) is None
    assert desk.catalogue.tally.conceded_count == 0


def test_an_orphan_keeps_nobody_from_its_key(desk: Desk) -> None:
    assert desk.register(BOB, HERE).status is AckStatus.OK
    assert desk.who() == BOB


def test_a_provider_that_comes_back_there_is_alive_again(desk: Desk) -> None:
    desk.hear(2, claim(ANN, 9), settling=True)
    assert desk.entry() == claim(ANN, 9)
    assert desk.register(BOB, HERE).status is AckStatus.DUPLICATE


def test_what_it_buries_while_settling_does_not_come_back_when_the_tombstone_has_gone(desk: Desk) -> None:
    desk.hear(2, tombstones=(grave(5),), settling=True)
    assert (desk.who(), desk.who(THERE)) == (None, BOB)
    # Long after: our tombstone is gone, its claim with it.
    for _ in range(10):
        desk.wait(20.0)
        desk.hear(2, settling=True)
    assert len(desk.catalogue.tombstones) == 0
    assert desk.who() is None


def test_if_it_dies_again_they_go_with_it(desk: Desk) -> None:
    desk.lose(2)
    desk.wait(89.9)
    assert desk.who() == ANN
    desk.wait(0.1)
    assert desk.listed() == {}
    assert desk.catalogue.synced.count == 0


def test_a_registry_that_was_not_heard_before_has_nothing_to_carry_over() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5), settling=True)
    assert desk.listed() == {PAY: (claim(ANN, 5),)}
    desk.hear(3, settling=True)
    assert desk.listed() == {PAY: (claim(ANN, 5),)}


def test_a_registry_back_under_another_id_leaves_what_it_held_to_the_silence() -> None:
    desk = Desk()
    desk.hear(2, claim(ANN, 5))
    desk.lose(2)
    desk.hear(7, settling=True)
    assert desk.who() == ANN
    desk.hear(7, claim(ANN, 9), settling=True)
    assert desk.entry() == claim(ANN, 9)
    desk.wait(89.0)
    desk.hear(7, claim(ANN, 9))
    desk.wait(1.0)
    assert desk.catalogue.synced.heard == (7,)
    assert desk.entry() == claim(ANN, 9)
