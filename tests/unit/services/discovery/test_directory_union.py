"""The directory machine: what several registries add up to, and what one change costs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hansa.limits import REGISTRY_GRACE_S
from hansa.services.discovery import directory as module
from hansa.services.discovery.events import DiscoveryEvent
from hansa.wire.listing import ListReader, ProviderEntry, ServiceList, encode_list
from tests.support.service_lists import SILENCE_S, all_of, end, entry, heard, names, short, told

# ---- several registries ------------------------------------------------------------------------


@pytest.mark.spec("DIS-14")
def test_the_union_of_those_heard_is_shown_and_goes_with_them() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a"), entry("b")]}), source=b"s1", now=0.0)
    events = directory.hear(told(2, 1, {"pay": [entry("b"), entry("c")]}), source=b"s2", now=0.0)
    assert short(events) == ["+c"]
    assert names(directory) == ["a", "b", "c"]
    assert short(end(directory, b"s1", now=1.0)) == ["-a"]


@pytest.mark.spec("DIS-14")
def test_when_none_is_heard_any_more_what_was_known_stays() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s1", now=0.0)
    directory.hear(told(2, 1, {"pay": [entry("b")]}), source=b"s2", now=0.0)
    assert short(end(directory, b"s1", now=1.0)) == ["-a"]
    assert end(directory, b"s2", now=7.0) == []
    assert heard(directory) == []
    assert directory.deadline() is None
    assert directory.tick(now=1e6) == []
    assert names(directory) == ["b"]
    # The first to be heard again says how it is.
    events = directory.hear(told(1, 2, {"user": [entry("u")]}), source=b"s3", now=1e6)
    assert short(events) == ["-b", "pay unavailable", "+u", "user available"]


@pytest.mark.spec("DIS-14")
def test_a_silent_registry_stops_counting_at_its_deadline() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s1", now=0.0)
    directory.hear(told(2, 1, {"pay": [entry("b")]}), source=b"s2", now=10.0)
    assert directory.deadline() == SILENCE_S
    assert directory.tick(now=SILENCE_S - 0.001) == []
    assert short(directory.tick(now=SILENCE_S)) == ["-a"]
    assert heard(directory) == [2]
    assert directory.deadline() == 10.0 + SILENCE_S
    assert directory.tick(now=10.0 + SILENCE_S) == []
    assert (heard(directory), names(directory)) == ([], ["b"])


@pytest.mark.spec("DIS-14")
def test_registries_that_all_fall_silent_at_once_leave_everything_as_it_is() -> None:
    """As after this process itself was stopped for a while."""
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s1", now=0.0)
    directory.hear(told(2, 1, {"pay": [entry("b")]}), source=b"s2", now=10.0)
    assert directory.tick(now=1_000.0) == []
    assert names(directory) == ["a", "b"]
    assert directory._speaks_for == {}


@pytest.mark.spec("DIS-14")
def test_whoever_speaks_first_after_a_silence_of_all_replaces_all_of_it() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s1", now=0.0)
    directory.hear(told(2, 1, {"user": [entry("u")]}), source=b"s2", now=0.0)
    directory.tick(now=1_000.0)
    events = directory.hear(told(3, 1, {"mail": [entry("m")]}), source=b"s3", now=1_000.0)
    assert list(directory.services) == ["mail"]
    assert len(events) == 6


def settling(heard: ServiceList) -> ServiceList:
    return replace(heard, is_settling=True)


@pytest.mark.spec("DIS-14")
def test_a_registry_that_has_just_started_takes_nothing_away_until_it_has_settled() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a", epoch=5), entry("b", epoch=5)]}), source=b"s1", now=0.0)
    end(directory, b"s1", now=1.0)
    assert directory.hear(settling(told(2, 1, {})), source=b"s2", now=7.0) == []
    assert heard(directory) == [2]
    assert names(directory) == ["a", "b"]
    # What it says counts, also where it is otherwise; what it buries is gone.
    back = settling(told(2, 2, {"pay": [entry("b", b"new"), entry("c")]}, ("pay", "a", 5)))
    assert short(directory.hear(back, source=b"s2", now=8.0)) == ["-a", "-b", "+b", "+c"]
    assert short(directory.hear(told(2, 3, {"pay": [entry("c")]}), source=b"s2", now=9.0)) == ["-b"]


def test_one_that_speaks_as_settled_ends_the_wait_for_the_others() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s1", now=0.0)
    end(directory, b"s1", now=1.0)
    directory.hear(settling(told(2, 1, {"user": [entry("u")]})), source=b"s2", now=7.0)
    events = directory.hear(told(3, 1, {"user": [entry("u")]}), source=b"s3", now=7.0)
    assert short(events) == ["-a", "pay unavailable"]


def test_beside_registries_that_are_heard_one_that_is_settling_only_adds_to_its_own_list() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s1", now=0.0)
    directory.hear(told(2, 1, {"pay": [entry("b")]}), source=b"s2", now=0.0)
    directory.lost(b"s1", now=1.0)
    directory.hear(settling(told(1, 2, {})), source=b"s1", now=2.0)
    assert names(directory) == ["a", "b"]
    # To that of another it is nothing: that one is heard, and answers for itself.
    directory.hear(told(2, 2, {}), source=b"s2", now=3.0)
    assert names(directory) == ["a"]
    directory.hear(told(1, 3, {}), source=b"s1", now=4.0)
    assert names(directory) == []


def test_one_that_ends_while_it_is_settling_leaves_everything_as_it_is() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s1", now=0.0)
    end(directory, b"s1", now=1.0)
    directory.hear(settling(told(2, 1, {"pay": [entry("b")]})), source=b"s2", now=7.0)
    assert end(directory, b"s2", now=8.0) == []
    directory.hear(settling(told(3, 1, {})), source=b"s3", now=14.0)
    assert names(directory) == ["a", "b"]
    directory.hear(told(3, 2, {}), source=b"s3", now=15.0)
    assert names(directory) == []


def test_a_silent_registry_is_heard_again_with_its_next_list() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s1", now=0.0)
    directory.hear(told(2, 1, {"pay": [entry("b")]}), source=b"s2", now=50.0)
    directory.tick(now=SILENCE_S)
    assert short(directory.hear(told(1, 2, {"pay": [entry("a")]}), source=b"s1", now=95.0)) == ["+a"]
    assert short(end(directory, b"s1", now=96.0)) == ["-a"]


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        (entry("a", b"1", epoch=5), entry("a", b"2", epoch=6), b"2"),
        (entry("a", b"1", epoch=6), entry("a", b"2", epoch=5), b"1"),
        (entry("a", b"1", epoch=5), entry("a", b"2", epoch=5), b"1"),
        (entry("a", b"1"), entry("a", b"2", epoch=1), b"2"),
        (entry("a", b"1"), entry("a", b"2"), b"1"),
    ],
)
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
@pytest.mark.spec("DIS-13")
def test_of_one_key_in_two_lists_the_higher_epoch_counts_then_the_lower_registry(
    first: ProviderEntry, second: ProviderEntry, winner: bytes, order: tuple[int, int]
) -> None:
    directory = all_of()
    lists = {1: told(1, 1, {"pay": [first]}), 2: told(2, 1, {"pay": [second]})}
    for registry in order:
        directory.hear(lists[registry], source=b"%d" % registry, now=0.0)
    assert [provider.routing_id for provider in directory.providers("pay")] == [winner]


@pytest.mark.parametrize(
    ("epoch", "buried", "is_shown"), [(5, 4, True), (5, 5, False), (5, 6, False), (0, 0, False)]
)
def test_a_tombstone_in_any_list_hides_claims_up_to_its_epoch(
    epoch: int, buried: int, is_shown: bool
) -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a", epoch=epoch), entry("b")]}), source=b"s1", now=0.0)
    directory.hear(told(2, 1, {}, ("pay", "a", buried), ("pay", "x", 99)), source=b"s2", now=0.0)
    assert ("a" in names(directory)) is is_shown
    assert "b" in names(directory)
    # It outlives its registry for a while: who is left may not have heard of it.
    end(directory, b"s2", now=1.0)
    directory.hear(told(1, 2, {"pay": [entry("a", epoch=epoch)]}), source=b"s1", now=50.0)
    assert ("a" in names(directory)) is is_shown
    directory.hear(told(1, 3, {"pay": [entry("a", epoch=epoch)]}), source=b"s1", now=6.0 + SILENCE_S)
    assert "a" in names(directory)


def test_a_tombstone_that_is_told_no_more_hides_a_while_longer() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a", epoch=5)]}), source=b"s1", now=0.0)
    hidden = directory.hear(told(2, 1, {}, ("pay", "a", 7), ("pay", "a", 3)), source=b"s2", now=0.0)
    assert short(hidden) == ["-a", "pay unavailable"]
    assert directory.hear(told(2, 2, {}, ("pay", "a", 7)), source=b"s2", now=1.0) == []
    assert directory.hear(told(2, 3, {}), source=b"s2", now=20.0) == []
    directory.hear(told(1, 2, {"pay": [entry("a", epoch=5)]}), source=b"s1", now=30.0)
    assert directory.tick(now=20.0 + SILENCE_S - 0.1) == []
    assert short(directory.tick(now=20.0 + SILENCE_S)) == ["+a", "pay available"]


def test_a_claim_newer_than_the_tombstone_is_shown_at_once() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {}, ("pay", "a", 5)), source=b"s1", now=0.0)
    end(directory, b"s1", now=1.0)
    directory.hear(told(2, 1, {"pay": [entry("a", epoch=5)]}), source=b"s2", now=7.0)
    assert names(directory) == []
    directory.hear(told(2, 2, {"pay": [entry("a", epoch=6)]}), source=b"s2", now=8.0)
    assert names(directory) == ["a"]


# ---- cost --------------------------------------------------------------------------------------


@pytest.fixture
def merged_services(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The services that are merged, one after another."""
    merged: list[str] = []
    merge: Callable[..., tuple[ProviderEntry, ...]] = module._merged

    def counted(service: str, *rest: object) -> tuple[ProviderEntry, ...]:
        merged.append(service)
        return merge(service, *rest)

    monkeypatch.setattr(module, "_merged", counted)
    return merged


def test_one_change_among_ten_thousand_providers_merges_one_service(merged_services: list[str]) -> None:
    services = {f"service-{n}": [entry(f"tcp://10.0.{n}.{m}:1") for m in range(100)] for n in range(100)}
    directory, reader = all_of(), ListReader()

    def broadcast(seq: int, *tombstones: tuple[str, str, int]) -> list[DiscoveryEvent]:
        merged_services.clear()
        read = reader.read(encode_list(told(1, seq, services, *tombstones)))
        assert isinstance(read, ServiceList)
        return directory.hear(read, source=b"s", now=float(seq))

    assert len(broadcast(1)) == 10_100
    assert broadcast(2) == []
    assert merged_services == []
    kept = directory.providers("service-7")
    services["service-7"] = [*services["service-7"][:-1], entry("tcp://10.9.9.9:1")]
    assert short(broadcast(3)) == ["-tcp://10.0.7.99:1", "+tcp://10.9.9.9:1"]
    assert merged_services == ["service-7"]
    # Who did not change is the same object as before.
    assert len({id(provider) for provider in (*kept, *directory.providers("service-7"))}) == 101
    assert broadcast(4, ("service-3", "gone", 1)) == []
    assert merged_services == ["service-3"]
    assert broadcast(5, ("service-3", "gone", 1)) == []
    assert merged_services == []
    del services["service-9"]
    assert len(broadcast(6)) == 101
    assert merged_services == ["service-3", "service-9"]


def test_a_loss_merges_nothing_and_the_end_of_its_grace_what_its_registry_listed(
    merged_services: list[str],
) -> None:
    directory = all_of()
    shared = told(1, 1, {"pay": [entry("a")]})
    directory.hear(shared, source=b"s1", now=0.0)
    others = {f"service-{n}": [entry("b")] for n in range(100)}
    directory.hear(told(2, 1, others), source=b"s2", now=0.0)
    merged_services.clear()
    directory.lost(b"s1", now=1.0)
    directory.hear(shared, source=b"s1", now=2.0)
    directory.lost(b"s1", now=3.0)
    assert merged_services == []
    directory.tick(now=3.0 + REGISTRY_GRACE_S)
    assert merged_services == ["pay"]
