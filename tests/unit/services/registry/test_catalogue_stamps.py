"""The provider dates what it says: what a registry reads late changes nothing that was said later."""

import itertools
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.limits import EPOCH_AHEAD_S_MAX
from hansa.presence.statements import first_epoch
from hansa.wire.registry import AckStatus, RegisterAck
from tests.support.registry_desk import ANN, BOB, FIRST_EPOCH, PAY, THERE, WALL_MS, Desk, claim, grave

# Words of one provider, in the order in which it said them.
FIRST, SECOND, THIRD, FOURTH = (FIRST_EPOCH + (1000 * n << 16) for n in range(4))


def is_behind(ack: RegisterAck, known: int, desk: Desk) -> bool:
    """Whether the answer says so, and up to where."""
    assert desk.catalogue.tally.behind_count == 1
    assert ack.token is not None
    return (ack.status, ack.stamp) == (AckStatus.OTHER, known) and ack.error.startswith("behind: ")


@pytest.mark.spec("DIS-03")
def test_the_stamp_is_the_epoch() -> None:
    desk = Desk()
    ack = desk.register(ANN, weight=3, stamp=SECOND)
    assert (ack.status, ack.stamp) == (AckStatus.OK, None)
    assert desk.listed() == {PAY: (claim(ANN, SECOND, weight=3),)}
    assert desk.register(ANN, weight=4, stamp=THIRD).status is AckStatus.OK
    assert desk.listed() == {PAY: (claim(ANN, THIRD, weight=4),)}


@pytest.mark.spec("DIS-11")
@pytest.mark.parametrize("stamp", [FIRST, SECOND])
@pytest.mark.parametrize("where", ["here", "peer"])
def test_a_late_registration_does_not_bring_back_what_was_removed(stamp: int, where: str) -> None:
    desk = Desk()
    if where == "here":
        desk.unregister(ANN, stamp=SECOND)
    else:
        desk.hear(2, tombstones=(grave(SECOND),))
    desk.announcer.announce(now=desk.now)
    assert is_behind(desk.register(ANN, stamp=stamp), SECOND, desk)
    assert desk.listed() == {}
    assert not desk.catalogue.is_changed
    assert desk.register(ANN, stamp=THIRD).status is AckStatus.OK


@pytest.mark.spec("DIS-11")
@pytest.mark.parametrize("stamp", [FIRST, SECOND])
@pytest.mark.parametrize("where", ["here", "peer"])
def test_a_late_registration_does_not_replace_a_newer_one(stamp: int, where: str) -> None:
    desk = Desk()
    if where == "here":
        desk.register(ANN, weight=5, stamp=SECOND)
    else:
        desk.hear(2, claim(ANN, SECOND, weight=5))
    assert is_behind(desk.register(ANN, weight=1, stamp=stamp), SECOND, desk)
    assert desk.listed() == {PAY: (claim(ANN, SECOND, weight=5),)}


@pytest.mark.parametrize("stamp", [FIRST, SECOND])
def test_an_orphan_is_replaced_only_by_who_came_later(stamp: int) -> None:
    desk = Desk()
    desk.register(BOB, stamp=SECOND)
    desk.hang_up(BOB)
    assert is_behind(desk.register(ANN, stamp=stamp), SECOND, desk)
    assert desk.who() == BOB
    assert desk.register(ANN, stamp=SECOND + 1).status is AckStatus.OK
    assert desk.who() == ANN


@pytest.mark.spec("DIS-04")
def test_a_duplicate_is_a_duplicate_however_late_it_is() -> None:
    desk = Desk()
    desk.register(BOB, stamp=SECOND)
    for stamp in (0, FIRST, THIRD, 2**64 - 1):
        assert desk.register(ANN, stamp=stamp).status is AckStatus.DUPLICATE
    assert desk.catalogue.tally.behind_count == 0


@pytest.mark.spec("DIS-11")
def test_a_registration_said_longer_ago_than_a_heartbeat_timeout_is_behind() -> None:
    """Perhaps nobody knows any more that it was taken back; who lives says it again with a later stamp."""
    desk = Desk()
    heartbeat_timeout_ms = 15_000
    too_old = first_epoch(WALL_MS - heartbeat_timeout_ms) - 1
    assert is_behind(desk.register(ANN, stamp=too_old), FIRST_EPOCH, desk)
    assert desk.listed() == {}
    assert desk.register(ANN, stamp=FIRST_EPOCH + 1).status is AckStatus.OK
    assert desk.register(BOB, THERE, stamp=too_old + 1).status is AckStatus.OK


@pytest.mark.parametrize("what", ["register", "unregister", "reweigh"])
def test_a_stamp_from_a_far_future_is_refused_with_a_word_about_clocks(what: str) -> None:
    desk = Desk()
    desk.register(ANN, stamp=FIRST)
    limit = first_epoch(WALL_MS + EPOCH_AHEAD_S_MAX * 1000 + 1)
    ways: dict[str, Callable[[int], RegisterAck]] = {
        "register": lambda stamp: desk.register(ANN, weight=2, stamp=stamp),
        "unregister": lambda stamp: desk.leave(ANN, stamp=stamp),
        "reweigh": lambda stamp: desk.reweigh(ANN, 2, stamp=stamp),
    }
    said = ways[what]
    for stamp in (limit, 2**64 - 1):
        ack = said(stamp)
        assert (ack.status, ack.stamp) == (AckStatus.OTHER, None)
        assert ack.error.startswith("the clock of this provider is ")
    assert desk.listed() == {PAY: (claim(ANN, FIRST),)}
    assert desk.catalogue.tally.refused_count == 2
    assert said(limit - 1).status is AckStatus.OK


@pytest.mark.spec("DIS-05")
@pytest.mark.parametrize("where", ["here", "peer"])
def test_unregistering_buries_up_to_its_stamp(where: str) -> None:
    desk = Desk()
    if where == "here":
        desk.register(ANN, stamp=FIRST)
    else:
        desk.hear(2, claim(ANN, FIRST))
    assert desk.unregister(ANN, stamp=THIRD) is AckStatus.OK
    assert desk.listed() == {}
    assert desk.catalogue.tombstones.own() == [grave(THIRD)]
    assert desk.catalogue.tally.unregistered_count == 1
    desk.hear(3, claim(ANN, SECOND))  # Registered there between the two, and not heard of before.
    assert desk.listed() == {}


@pytest.mark.spec("DIS-05")
def test_unregistering_what_is_not_known_yet_is_remembered_and_told() -> None:
    desk = Desk()
    desk.announcer.announce(now=desk.now)
    assert desk.unregister(ANN, stamp=SECOND) is AckStatus.OK
    assert desk.catalogue.is_changed
    desk.announcer.announce(now=desk.now)
    assert not desk.catalogue.is_changed
    assert desk.own_list().tombstones == (grave(SECOND),)
    desk.hear(2, claim(ANN, FIRST))
    assert desk.listed() == {}
    desk.hear(2, claim(ANN, THIRD))
    assert desk.who() == ANN


@pytest.mark.spec("DIS-05")
@pytest.mark.parametrize("where", ["here", "peer"])
def test_unregistering_what_another_holds_buries_nothing(where: str) -> None:
    desk = Desk()
    if where == "here":
        desk.register(BOB, stamp=FIRST)
    else:
        desk.hear(2, claim(BOB, FIRST))
    ack = desk.leave(ANN, stamp=SECOND)
    assert ack.status is AckStatus.OTHER
    assert ack.error.startswith("not registered")
    assert desk.who() == BOB
    assert desk.catalogue.tombstones.own() == []


@pytest.mark.spec("DIS-05")
@pytest.mark.parametrize("where", ["here", "peer"])
def test_a_late_unregistering_does_not_remove_what_was_registered_since(where: str) -> None:
    desk = Desk()
    if where == "here":
        desk.register(ANN, stamp=SECOND)
    else:
        desk.hear(2, claim(ANN, SECOND))
    assert is_behind(desk.leave(ANN, stamp=FIRST), SECOND, desk)
    assert desk.who() == ANN
    assert desk.catalogue.tombstones.own() == []
    assert desk.unregister(ANN, stamp=SECOND + 1) is AckStatus.OK


@pytest.mark.spec("DIS-08")
def test_a_weight_is_listed_under_its_stamp() -> None:
    desk = Desk()
    desk.register(ANN, stamp=FIRST)
    assert desk.reweigh(ANN, 9, stamp=THIRD).status is AckStatus.OK
    assert desk.listed() == {PAY: (claim(ANN, THIRD, weight=9),)}
    desk.announcer.announce(now=desk.now)
    assert desk.reweigh(ANN, 9, stamp=FOURTH).status is AckStatus.OK
    assert not desk.catalogue.is_changed


@pytest.mark.spec("DIS-08")
@pytest.mark.parametrize("stamp", [FIRST, SECOND])
def test_a_late_weight_changes_nothing_and_is_no_sign_of_life(stamp: int) -> None:
    desk = Desk()
    desk.register(ANN, stamp=SECOND)
    desk.hang_up(ANN)
    assert is_behind(desk.reweigh(ANN, 9, stamp=stamp), SECOND, desk)
    assert desk.listed() == {PAY: (claim(ANN, SECOND, orphaned=True),)}


def test_a_peer_without_stamps_gets_epochs_above_all_that_is_known() -> None:
    desk = Desk()
    desk.unregister(ANN, stamp=FOURTH)
    assert desk.register(ANN).status is AckStatus.OK
    assert desk.entry().epoch == FOURTH + 1
    assert desk.unregister(ANN) is AckStatus.OK
    assert desk.catalogue.tombstones.own() == [grave(FOURTH + 1)]


def test_the_expiry_of_a_late_registration_does_not_hide_the_living_claim() -> None:
    """The story from the simulation: registry 1 was stopped, and reads what was said to it long ago."""
    stopped, other = Desk(1), Desk(2)
    assert other.register(ANN, weight=7, stamp=SECOND).status is AckStatus.OK
    assert (
        stopped.register(ANN, weight=1, stamp=FIRST).status is AckStatus.OK
    )  # It has heard nothing else yet.
    stopped.hang_up(ANN)
    other.follow(stopped)
    assert other.listed() == {PAY: (claim(ANN, SECOND, weight=7),)}
    stopped.wait(15.0)
    other.follow(stopped)
    assert other.listed() == {PAY: (claim(ANN, SECOND, weight=7),)}
    stopped.follow(other)
    assert stopped.listed() == other.listed()


class Word(NamedTuple):
    """Something that the provider said: a registration with this weight, or, without one, its end."""

    weight: int | None
    at: int
    """Which registry reads it."""


words = st.lists(st.builds(Word, st.none() | st.integers(1, 9), st.integers(0, 2)), min_size=1, max_size=8)


@pytest.mark.spec("DIS-11")
@given(words, st.randoms(use_true_random=False), st.lists(st.permutations(range(3)), max_size=8))
@settings(max_examples=300)
def test_the_last_word_counts_in_whatever_order_the_registries_read(
    said: list[Word], chance: Random, meetings: list[list[int]]
) -> None:
    desks = [Desk(1), Desk(2, wall_skew_ms=-60_000), Desk(3, wall_skew_ms=2_000)]
    read = list(zip(said, itertools.count(FIRST_EPOCH)))
    chance.shuffle(read)
    for (word, stamp), meeting in itertools.zip_longest(read, meetings[: len(read)]):
        desk = desks[word.at]
        if word.weight is None:
            desk.unregister(ANN, stamp=stamp)
        else:
            desk.register(ANN, weight=word.weight, stamp=stamp)
        if meeting is not None:
            desks[meeting[0]].follow(desks[meeting[1]])
    for _ in range(2):
        for desk, other in itertools.permutations(desks, 2):
            desk.follow(other)
    last = said[-1]
    stamp = FIRST_EPOCH + len(said) - 1
    expected = {} if last.weight is None else {PAY: (claim(ANN, stamp, weight=last.weight),)}
    assert [desk.listed() for desk in desks] == [expected] * 3
