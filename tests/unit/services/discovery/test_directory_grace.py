"""A registry whose connection broke is believed a little longer: its providers are moving to another."""

from dataclasses import replace

import pytest

from hansa.limits import REGISTRIES_MAX, REGISTRY_GRACE_S
from hansa.services.discovery.directory import Directory
from hansa.wire.listing import ServiceList
from tests.support.service_lists import SILENCE_S, Services, all_of, end, entry, heard, names, short, told

A: Services = {"pay": [entry("a", epoch=5)]}
B: Services = {"pay": [entry("b", epoch=5)]}
LOST_AT = 1.0
GRACE_ENDS_AT = LOST_AT + REGISTRY_GRACE_S


def settling(registry: int, seq: int, services: Services) -> ServiceList:
    return replace(told(registry, seq, services), is_settling=True)


def bereft() -> Directory:
    """It hears registry 2, of "b"; registry 1, the only one that knew "a", broke off."""
    directory = all_of()
    directory.hear(told(1, 1, A), source=b"s1", now=0.0)
    directory.hear(told(2, 1, B), source=b"s2", now=0.0)
    assert directory.lost(b"s1", now=LOST_AT) == []
    return directory


@pytest.mark.spec("DIS-14")
@pytest.mark.parametrize("moved_at", [LOST_AT, LOST_AT + 0.3, GRACE_ENDS_AT - 0.01])
def test_a_provider_that_moves_to_another_registry_is_never_told_as_removed(moved_at: float) -> None:
    directory = bereft()
    assert names(directory) == ["a", "b"]
    moved: Services = {"pay": [entry("a", epoch=6), entry("b", epoch=5)]}
    assert directory.hear(told(2, 2, moved), source=b"s2", now=moved_at) == []
    assert directory.tick(now=GRACE_ENDS_AT) == []
    assert names(directory) == ["a", "b"]


@pytest.mark.spec("DIS-14")
def test_a_provider_that_died_with_its_registry_goes_after_the_grace() -> None:
    directory = bereft()
    assert directory.tick(now=GRACE_ENDS_AT - 0.001) == []
    assert short(directory.tick(now=GRACE_ENDS_AT)) == ["-a"]


def test_a_registry_in_its_grace_counts_and_is_not_heard() -> None:
    directory = bereft()
    assert heard(directory) == [2]
    assert directory.lists_heard == {2: 1}
    assert names(directory) == ["a", "b"]


def test_no_grace_begins_while_another_connection_speaks_for_the_registry() -> None:
    directory = all_of()
    for source in (b"s", b"t"):
        directory.hear(told(1, 1, A), source=source, now=0.0)
    directory.lost(b"s", now=LOST_AT)
    assert directory.deadline() == SILENCE_S
    directory.lost(b"t", now=20.0)
    assert directory.deadline() == 20.0 + REGISTRY_GRACE_S


# ---- heard again -------------------------------------------------------------------------------


@pytest.mark.parametrize("seq", [1, 2])
def test_a_registry_that_is_heard_again_within_the_grace_goes_on(seq: int) -> None:
    directory = bereft()
    assert directory.hear(told(1, seq, A), source=b"t", now=3.0) == []
    assert heard(directory) == [1, 2]
    assert directory.tick(now=GRACE_ENDS_AT) == []
    assert directory.deadline() == SILENCE_S
    # Another loss is another grace.
    directory.lost(b"t", now=20.0)
    assert directory.deadline() == 20.0 + REGISTRY_GRACE_S


def test_its_newest_list_counts_at_once() -> None:
    directory = bereft()
    events = directory.hear(told(1, 2, {"pay": [entry("c")]}), source=b"t", now=3.0)
    assert short(events) == ["-a", "+c"]


@pytest.mark.spec("DIS-10")
def test_an_older_list_is_refused_within_the_grace_and_does_not_end_it() -> None:
    directory = all_of()
    directory.hear(told(1, 5, A), source=b"s1", now=0.0)
    directory.hear(told(2, 1, B), source=b"s2", now=0.0)
    directory.lost(b"s1", now=LOST_AT)
    assert directory.hear(told(1, 4, {}), source=b"t", now=2.0) == []
    assert (directory.older_count, heard(directory)) == (1, [2])
    assert short(directory.tick(now=GRACE_ENDS_AT)) == ["-a"]


def test_a_registry_that_comes_back_under_a_new_id_does_not_end_the_grace_of_the_old_one() -> None:
    directory = bereft()
    assert directory.hear(settling(3, 1, {}), source=b"t", now=2.0) == []
    assert directory.hear(told(3, 2, {}), source=b"t", now=3.0) == []
    assert names(directory) == ["a", "b"]
    assert short(directory.tick(now=GRACE_ENDS_AT)) == ["-a"]


# ---- beside the other voices -------------------------------------------------------------------


@pytest.mark.parametrize(("buried", "events"), [(4, []), (5, ["-a"]), (6, ["-a"])])
def test_what_a_registry_in_its_grace_lists_is_hidden_by_the_tombstones_of_others(
    buried: int, events: list[str]
) -> None:
    directory = bereft()
    stone = ("pay", "a", buried)
    assert short(directory.hear(told(2, 2, B, stone), source=b"s2", now=2.0)) == events


@pytest.mark.parametrize(("epoch", "events"), [(5, []), (6, ["+a"])])
def test_the_tombstones_of_a_registry_in_its_grace_hide_what_is_not_newer(
    epoch: int, events: list[str]
) -> None:
    directory = all_of()
    directory.hear(told(1, 1, {}, ("pay", "a", 5)), source=b"s1", now=0.0)
    directory.hear(told(2, 1, B), source=b"s2", now=0.0)
    directory.lost(b"s1", now=LOST_AT)
    late: Services = {"pay": [entry("a", epoch=epoch), entry("b", epoch=5)]}
    assert short(directory.hear(told(2, 2, late), source=b"s2", now=2.0)) == events
    # When the grace ends they are remembered, as those of any voice.
    assert directory.tick(now=GRACE_ENDS_AT) == []


def test_a_claim_of_a_registry_in_its_grace_loses_to_a_higher_epoch_and_beats_a_lower_one() -> None:
    directory = bereft()
    lower: Services = {"pay": [entry("a", b"other", epoch=4), entry("b", epoch=5)]}
    assert directory.hear(told(2, 2, lower), source=b"s2", now=2.0) == []
    higher: Services = {"pay": [entry("a", b"other", epoch=6), entry("b", epoch=5)]}
    assert short(directory.hear(told(2, 3, higher), source=b"s2", now=3.0)) == ["-a", "+a"]


# ---- nobody is heard ---------------------------------------------------------------------------


@pytest.mark.spec("DIS-14")
def test_when_only_graces_are_left_and_end_what_is_known_stays() -> None:
    directory = bereft()
    assert directory.lost(b"s2", now=3.0) == []
    assert directory.tick(now=GRACE_ENDS_AT) == []
    assert directory.deadline() == 3.0 + REGISTRY_GRACE_S
    assert directory.tick(now=3.0 + REGISTRY_GRACE_S) == []
    assert directory.deadline() is None
    assert names(directory) == ["a", "b"]
    events = directory.hear(told(3, 1, {}), source=b"s3", now=10.0)
    assert short(events) == ["-a", "-b", "pay unavailable"]


@pytest.mark.parametrize("seq", [1, 2], ids=["the same list", "a newer list"])
def test_the_first_that_is_heard_again_leaves_the_others_their_grace(seq: int) -> None:
    directory = bereft()
    directory.lost(b"s2", now=2.0)
    assert directory.hear(told(2, seq, B), source=b"t", now=3.0) == []
    assert names(directory) == ["a", "b"]
    # It has spoken as settled, so nothing is remembered beyond the grace.
    assert short(directory.tick(now=GRACE_ENDS_AT)) == ["-a"]


def test_a_grace_that_ended_while_nobody_was_heard_is_over_for_the_next_who_speaks() -> None:
    directory = bereft()
    directory.lost(b"s2", now=3.0)
    directory.tick(now=GRACE_ENDS_AT)
    assert short(directory.hear(told(2, 2, B), source=b"t", now=7.0)) == ["-a"]


def test_a_tombstone_that_runs_out_while_nobody_is_heard_hides_nothing_any_more() -> None:
    directory = all_of()
    directory.hear(told(2, 1, {}, ("pay", "a", 5)), source=b"s2", now=0.0)
    end(directory, b"s2", now=0.0)
    runs_out_at = REGISTRY_GRACE_S + SILENCE_S
    directory.hear(told(1, 1, A), source=b"s1", now=runs_out_at - 2.0)
    directory.lost(b"s1", now=runs_out_at - 1.0)
    assert directory.tick(now=runs_out_at) == []
    # Somebody else speaks, of something else; registry 1 is still in its grace.
    events = directory.hear(told(3, 1, {"user": [entry("u")]}), source=b"s3", now=runs_out_at + 1.0)
    assert short(events) == ["+a", "pay available", "+u", "user available"]


# ---- and a registry that is settling -----------------------------------------------------------


@pytest.mark.parametrize("registry", [1, 2], ids=["the same id", "a new id"])
def test_the_end_of_a_grace_takes_nothing_from_one_who_has_only_settling_registries(registry: int) -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a", epoch=5), entry("b", epoch=5)]}), source=b"s1", now=0.0)
    directory.lost(b"s1", now=LOST_AT)
    assert directory.hear(settling(registry, 2, {}), source=b"s2", now=2.0) == []
    assert directory.tick(now=GRACE_ENDS_AT) == []
    assert directory.hear(settling(registry, 3, {"pay": [entry("b", epoch=9)]}), source=b"s2", now=8.0) == []
    assert names(directory) == ["a", "b"]
    events = directory.hear(told(registry, 4, {"pay": [entry("b", epoch=9)]}), source=b"s2", now=16.0)
    assert short(events) == ["-a"]


def test_a_settling_registry_that_breaks_off_too_leaves_everything_as_it_is() -> None:
    directory = bereft()
    directory.lost(b"s2", now=2.0)
    directory.hear(settling(3, 1, {"pay": [entry("c")]}), source=b"s3", now=3.0)
    assert end(directory, b"s3", now=4.0) == []
    assert directory.hear(settling(4, 1, {}), source=b"s4", now=10.0) == []
    assert names(directory) == ["a", "b", "c"]


def test_one_that_settles_within_the_grace_of_the_only_one_before_it_takes_nothing_away_before_its_end() -> (
    None
):
    directory = all_of()
    directory.hear(told(1, 1, A), source=b"s1", now=0.0)
    directory.lost(b"s1", now=LOST_AT)
    directory.hear(settling(2, 1, {}), source=b"s2", now=2.0)
    assert directory.hear(told(2, 2, {}), source=b"s2", now=3.0) == []
    assert short(directory.tick(now=GRACE_ENDS_AT)) == ["-a", "pay unavailable"]


# ---- deadlines and bounds ----------------------------------------------------------------------


def test_the_deadline_is_the_end_of_a_grace_or_of_a_silence_whichever_is_sooner() -> None:
    directory = bereft()
    assert directory.deadline() == GRACE_ENDS_AT
    directory.tick(now=GRACE_ENDS_AT)
    assert directory.deadline() == SILENCE_S
    # Registry 2 breaks off shortly before it would have been silent for too long.
    directory.hear(told(3, 1, {}), source=b"s3", now=80.0)
    directory.lost(b"s2", now=SILENCE_S - 1.0)
    assert directory.deadline() == SILENCE_S
    assert short(directory.tick(now=SILENCE_S)) == ["-b", "pay unavailable"]


def test_a_grace_is_not_longer_than_the_silence_that_is_allowed() -> None:
    directory = Directory(silence_s=REGISTRY_GRACE_S / 2)
    directory.subscribe("pay")
    directory.hear(told(1, 1, A), source=b"s1", now=0.0)
    directory.hear(told(2, 1, B), source=b"s2", now=1.0)
    directory.lost(b"s1", now=1.0)
    assert directory.deadline() == REGISTRY_GRACE_S / 2
    assert short(directory.tick(now=REGISTRY_GRACE_S / 2)) == ["-a"]


def test_of_too_many_registries_in_their_grace_those_lost_first_end_at_once() -> None:
    directory = all_of()
    for registry in range(REGISTRIES_MAX + 2):
        listed: Services = {"pay": [entry(f"{registry:03}")]}
        directory.hear(told(registry, 1, listed), source=b"same", now=registry / 100)
    assert heard(directory) == [REGISTRIES_MAX + 1]
    assert names(directory) == [f"{registry:03}" for registry in range(1, REGISTRIES_MAX + 2)]
    assert len(directory._voices) == REGISTRIES_MAX + 1
