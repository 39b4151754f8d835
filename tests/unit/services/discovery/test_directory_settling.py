"""A registry that has just started, and a directory that has nobody else to ask: it only adds."""

from dataclasses import replace

import pytest

from hansa.services.discovery.directory import Directory
from hansa.wire.listing import ServiceList
from tests.support.service_lists import SILENCE_S, Services, all_of, end, entry, heard, names, short, told

BEFORE: Services = {"pay": [entry("a", epoch=5), entry("b", epoch=5)]}


def settling(registry: int, seq: int, services: Services, *tombstones: tuple[str, str, int]) -> ServiceList:
    return replace(told(registry, seq, services, *tombstones), is_settling=True)


def alone() -> Directory:
    """It has heard one registry, which broke off and is in its grace."""
    directory = all_of()
    directory.hear(told(1, 1, BEFORE), source=b"s1", now=0.0)
    assert directory.lost(b"s1", now=1.0) == []
    return directory


@pytest.mark.spec("DIS-07")
@pytest.mark.spec("DIS-14")
@pytest.mark.parametrize("registry", [1, 2], ids=["the same id", "a new id"])
def test_providers_that_come_back_one_by_one_are_never_told_as_removed(registry: int) -> None:
    directory = alone()
    lists: list[Services] = [
        {},
        {"pay": [entry("b", epoch=9)]},
        {"pay": [entry("b", epoch=9), entry("a", epoch=8)]},
    ]
    for seq, services in enumerate(lists, 2):
        assert directory.hear(settling(registry, seq, services), source=b"s2", now=2.0) == []
        assert names(directory) == ["a", "b"]
    assert directory.hear(told(registry, 5, lists[-1]), source=b"s2", now=3.0) == []
    assert names(directory) == ["a", "b"]


def test_who_has_not_come_back_by_the_end_is_gone() -> None:
    directory = alone()
    directory.hear(settling(1, 2, {"pay": [entry("b", epoch=9)]}), source=b"s2", now=2.0)
    events = directory.hear(told(1, 3, {"pay": [entry("b", epoch=9)]}), source=b"s2", now=9.0)
    assert short(events) == ["-a"]


def test_a_registry_that_fell_silent_is_remembered_like_one_that_broke_off() -> None:
    directory = all_of()
    directory.hear(told(1, 1, BEFORE), source=b"s1", now=0.0)
    assert directory.tick(now=SILENCE_S) == []
    assert heard(directory) == []
    assert directory.hear(settling(2, 1, {}), source=b"s2", now=SILENCE_S + 1.0) == []
    assert names(directory) == ["a", "b"]


def test_a_new_weight_is_told_as_such() -> None:
    directory = alone()
    back = settling(1, 2, {"pay": [entry("a", weight=7, epoch=9)]})
    assert short(directory.hear(back, source=b"s2", now=2.0)) == ["a 1>7"]
    assert names(directory) == ["a", "b"]


def test_what_is_told_as_removed_does_not_come_back_from_memory() -> None:
    directory = alone()
    directory.hear(settling(1, 2, {"pay": [entry("a", epoch=9)]}), source=b"s2", now=2.0)
    # The one that came back leaves in order, while its registry is still settling.
    events = directory.hear(settling(1, 3, {}, ("pay", "a", 9)), source=b"s2", now=3.0)
    assert short(events) == ["-a"]
    # When the tombstone is told no more it is remembered for a while.
    assert directory.hear(settling(1, 4, {}), source=b"s2", now=4.0) == []
    assert names(directory) == ["b"]


def test_several_that_are_settling_only_add() -> None:
    directory = alone()
    assert directory.hear(settling(2, 1, {}), source=b"s2", now=2.0) == []
    events = directory.hear(settling(3, 1, {"pay": [entry("c")]}), source=b"s3", now=2.0)
    assert short(events) == ["+c"]
    assert names(directory) == ["a", "b", "c"]
    # One of them breaks off: what it had said goes after its grace, what is remembered stays.
    assert short(end(directory, b"s3", now=3.0)) == ["-c"]
    assert names(directory) == ["a", "b"]


def test_the_same_list_once_more_changes_nothing() -> None:
    directory = alone()
    directory.hear(settling(1, 2, {}), source=b"s2", now=2.0)
    assert directory.hear(settling(1, 2, {}), source=b"s2", now=3.0) == []
    assert directory.repeated_count == 1
    assert names(directory) == ["a", "b"]


def test_after_a_settled_list_nothing_is_remembered() -> None:
    directory = alone()
    directory.hear(told(2, 1, {}), source=b"s2", now=2.0)
    directory.tick(now=6.0)
    assert names(directory) == []
    directory.lost(b"s2", now=7.0)
    assert directory.hear(settling(1, 2, {}), source=b"s1", now=8.0) == []
    assert names(directory) == []


def test_an_old_list_of_one_that_says_it_has_settled_is_not_believed() -> None:
    directory = all_of()
    directory.hear(told(1, 5, BEFORE), source=b"s1", now=0.0)
    directory.lost(b"s1", now=1.0)
    directory.hear(settling(2, 1, {}), source=b"s2", now=2.0)
    assert directory.hear(told(1, 4, {}), source=b"s3", now=3.0) == []
    assert names(directory) == ["a", "b"]


def test_who_subscribes_meanwhile_sees_what_is_remembered() -> None:
    directory = Directory(silence_s=SILENCE_S)
    directory.hear(told(1, 1, BEFORE), source=b"s1", now=0.0)
    directory.lost(b"s1", now=1.0)
    directory.hear(settling(1, 2, {}), source=b"s2", now=2.0)
    assert short(directory.subscribe("pay")) == ["+a", "+b", "pay available"]


def test_a_directory_that_knew_nothing_takes_a_settling_list_as_it_is() -> None:
    directory = all_of()
    assert short(directory.hear(settling(1, 1, BEFORE), source=b"s", now=0.0)) == [
        "+a",
        "+b",
        "pay available",
    ]
    # What a settling registry removes has a tombstone; without one it may have stopped and started again.
    fewer: Services = {"pay": [entry("a", epoch=5)]}
    assert directory.hear(settling(1, 2, fewer), source=b"s", now=1.0) == []
    assert short(directory.hear(settling(1, 3, fewer, ("pay", "b", 5)), source=b"s", now=2.0)) == ["-b"]


def test_a_settling_list_only_adds_to_what_its_registry_said_before() -> None:
    directory = all_of()
    directory.hear(told(2, 1, {"user": [entry("u")]}), source=b"two", now=0.0)
    directory.hear(told(1, 1, {"pay": [entry("a", epoch=5), entry("b", epoch=5)]}), source=b"one", now=0.0)
    # Registry 1 restarts under its id, beside another that is heard all the while.
    assert directory.hear(settling(1, 2, {"pay": [entry("b", epoch=6)]}), source=b"new", now=1.0) == []
    assert names(directory) == ["a", "b"]
    # What it removes while it settles has a tombstone; what never came back goes when it has settled.
    removed = directory.hear(settling(1, 3, {}, ("pay", "b", 6)), source=b"new", now=2.0)
    assert short(removed) == ["-b"]
    assert short(directory.hear(told(1, 4, {}), source=b"new", now=3.0)) == ["-a", "pay unavailable"]
