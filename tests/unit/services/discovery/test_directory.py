"""The directory machine: which lists count, what is told of them, and to whom."""

import pytest

from hansa.errors import BadArgument
from hansa.limits import REGISTRIES_REMEMBERED_MAX, REGISTRY_GRACE_S, SERVICES_MAX
from hansa.presence.provider_info import ProviderInfo
from hansa.services.discovery.directory import Directory
from hansa.services.discovery.events import ProviderAdded, ProviderRemoved, ServiceState
from tests.support.service_lists import SILENCE_S, Services, all_of, end, entry, heard, names, short, told

# ---- one registry ------------------------------------------------------------------------------


@pytest.mark.spec("DIS-16")
@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ([], ["a"], ["+a", "pay available"]),
        (["a"], ["a"], []),
        (["a"], [], ["-a", "pay unavailable"]),
        (["a"], ["a", "b"], ["+b"]),
        (["b", "a"], ["a", "b"], []),
        (["a", "b"], ["b", "c"], ["-a", "+c"]),
        (["a"], ["b"], ["-a", "+b"]),
        (["c", "a", "b"], [], ["-a", "-b", "-c", "pay unavailable"]),
        (["a", "a"], ["a"], []),
    ],
)
def test_a_new_list_is_told_as_removals_then_additions_then_availability(
    before: list[str], after: list[str], events: list[str]
) -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry(e) for e in before]}), source=b"s", now=0.0)
    happened = directory.hear(told(1, 2, {"pay": [entry(e) for e in after]}), source=b"s", now=1.0)
    assert short(happened) == events
    assert names(directory) == sorted(set(after))


@pytest.mark.spec("DIS-16")
def test_a_changed_weight_is_told_with_the_one_before_and_behind_the_additions() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a", weight=2), entry("x")]}), source=b"s", now=0.0)
    events = directory.hear(told(1, 2, {"pay": [entry("a", weight=5), entry("b")]}), source=b"s", now=0.0)
    assert short(events) == ["-x", "+b", "a 2>5"]


def test_another_routing_id_at_the_same_endpoint_is_another_provider() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a", b"old", 1)]}), source=b"s", now=0.0)
    events = directory.hear(told(1, 2, {"pay": [entry("a", b"new", 7)]}), source=b"s", now=0.0)
    removed, added = events
    assert isinstance(removed, ProviderRemoved)
    assert isinstance(added, ProviderAdded)
    assert (removed.provider.routing_id, added.provider.routing_id) == (b"old", b"new")
    assert directory.state("pay") is ServiceState.AVAILABLE


def test_a_provider_that_registered_again_is_shown_with_its_new_time_and_not_told() -> None:
    directory = all_of()
    ms = 1_700_000_000_250
    directory.hear(told(1, 1, {"pay": [entry("a", epoch=ms << 16)]}), source=b"s", now=0.0)
    assert directory.providers("pay") == (
        ProviderInfo(service="pay", endpoint="a", routing_id=b"a", weight=1, registered_at=1_700_000_000.25),
    )
    later = (ms + 500 << 16) + 3
    assert directory.hear(told(1, 2, {"pay": [entry("a", epoch=later)]}), source=b"s", now=0.0) == []
    assert directory.providers("pay")[0].registered_at == 1_700_000_000.75


def test_a_registry_that_tells_no_epochs_gives_no_time() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s", now=0.0)
    assert directory.providers("pay")[0].registered_at == 0.0


def test_services_that_share_a_list_are_told_in_the_order_of_their_names() -> None:
    directory = all_of()
    services = {"user": [entry("u")], "pay": [entry("b"), entry("a")]}
    events = directory.hear(told(1, 1, services), source=b"s", now=0.0)
    assert short(events) == ["+a", "+b", "pay available", "+u", "user available"]
    assert list(directory.services) == ["pay", "user"]


def test_one_routing_id_may_serve_many_endpoints_and_services() -> None:
    directory = all_of()
    services = {"pay": [entry("a", b"same"), entry("b", b"same")], "user": [entry("a", b"same")]}
    directory.hear(told(1, 1, services), source=b"s", now=0.0)
    assert names(directory) == ["a", "b"]
    assert names(directory, "user") == ["a"]


def test_of_one_endpoint_twice_in_a_list_the_higher_epoch_counts() -> None:
    directory = all_of()
    entries = [entry("a", b"1", epoch=5), entry("a", b"2", epoch=6), entry("a", b"3", epoch=6)]
    directory.hear(told(1, 1, {"pay": entries}), source=b"s", now=0.0)
    assert [provider.routing_id for provider in directory.providers("pay")] == [b"2"]


# ---- which lists are believed ------------------------------------------------------------------


@pytest.mark.spec("DIS-10")
def test_service_list_seq() -> None:
    directory = all_of()
    directory.hear(told(1, 10, {"pay": [entry("a")]}), source=b"s", now=0.0)
    for seq in (9, 0, 10):
        assert directory.hear(told(1, seq, {"pay": [entry("evil")]}), source=b"s", now=1.0) == []
    assert names(directory) == ["a"]
    assert (directory.lists_count, directory.older_count, directory.repeated_count) == (1, 2, 1)
    directory.hear(told(1, 11, {"pay": [entry("b")]}), source=b"s", now=2.0)
    assert names(directory) == ["b"]


@pytest.mark.spec("DIS-10")
def test_numbers_of_different_registries_have_nothing_to_do_with_each_other() -> None:
    directory = all_of()
    directory.hear(told(1, 1_000, {"pay": [entry("a")]}), source=b"s1", now=0.0)
    directory.hear(told(2, 1, {"pay": [entry("b")]}), source=b"s2", now=0.0)
    assert names(directory) == ["a", "b"]


@pytest.mark.spec("DIS-10")
@pytest.mark.parametrize("seq", [10, 11, 1 << 63])
def test_a_registry_that_comes_back_under_its_id_is_believed_at_once(seq: int) -> None:
    """With the same number too: a newcomer is given the list that was last given to all."""
    directory = all_of()
    directory.hear(told(1, 10, {"pay": [entry("a")]}), source=b"s", now=0.0)
    end(directory, b"s", now=1.0)
    assert heard(directory) == []
    directory.hear(told(1, seq, {"pay": [entry("a")]}), source=b"t", now=7.0)
    assert heard(directory) == [1]
    assert directory.lists_count == 2


@pytest.mark.spec("DIS-10")
def test_a_registry_that_comes_back_with_an_older_list_is_not_believed_until_it_is_forgotten() -> None:
    directory = all_of()
    directory.hear(told(1, 10, {"pay": [entry("a")]}), source=b"s", now=0.0)
    directory.lost(b"s", now=1.0)
    old = told(1, 9, {"pay": [entry("removed-long-ago")]})
    directory.hear(old, source=b"t", now=2.0)
    ended_at = 1.0 + REGISTRY_GRACE_S
    directory.tick(now=ended_at)
    directory.hear(old, source=b"t", now=ended_at + SILENCE_S - 0.1)
    assert (heard(directory), directory.older_count) == ([], 2)
    # Its clock was set back: better heard late than never.
    directory.hear(old, source=b"t", now=ended_at + SILENCE_S)
    assert (heard(directory), names(directory)) == ([1], ["removed-long-ago"])


def test_a_repeated_list_shows_that_its_registry_lives() -> None:
    directory = all_of()
    directory.hear(told(1, 10, {"pay": [entry("a")]}), source=b"s", now=0.0)
    directory.hear(told(1, 10, {}), source=b"s", now=80.0)
    assert directory.deadline() == 80.0 + SILENCE_S
    directory.hear(told(1, 9, {}), source=b"s", now=81.0)
    assert directory.deadline() == 80.0 + SILENCE_S


def test_a_registry_heard_on_two_connections_is_heard_until_both_are_lost() -> None:
    directory = all_of()
    same = told(1, 10, {"pay": [entry("a")]})
    directory.hear(same, source=b"s", now=0.0)
    assert directory.hear(same, source=b"t", now=0.0) == []
    directory.lost(b"s", now=1.0)
    assert heard(directory) == [1]
    directory.lost(b"t", now=1.0)
    assert heard(directory) == []


def test_a_connection_speaks_for_one_registry_at_a_time() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s", now=0.0)
    events = directory.hear(told(2, 1, {"pay": [entry("b")]}), source=b"s", now=0.0)
    assert short(events) == ["+b"]
    assert heard(directory) == [2]
    assert short(directory.tick(now=REGISTRY_GRACE_S)) == ["-a"]
    directory.hear(told(1, 2, {"pay": [entry("a")]}), source=b"t", now=6.0)
    # An older list is passed over whole, and does not change for whom the connection speaks.
    directory.hear(told(1, 1, {}), source=b"s", now=6.0)
    assert heard(directory) == [1, 2]


def test_the_loss_of_a_stranger_is_nobodys_loss() -> None:
    directory = all_of()
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s", now=0.0)
    assert directory.lost(b"other", now=0.0) == []
    assert heard(directory) == [1]


def test_registries_under_ever_new_ids_are_not_remembered_for_ever() -> None:
    directory = all_of()
    for registry in range(REGISTRIES_REMEMBERED_MAX + 10):
        source = b"%d" % registry
        directory.hear(told(registry, 10, {}), source=source, now=0.0)
        directory.lost(source, now=0.0)
    directory.tick(now=REGISTRY_GRACE_S)
    assert len(directory._ended) == REGISTRIES_REMEMBERED_MAX
    assert directory._speaks_for == {}
    directory.hear(told(REGISTRIES_REMEMBERED_MAX, 9, {}), source=b"s", now=REGISTRY_GRACE_S)
    assert directory.older_count == 1


# ---- the filter --------------------------------------------------------------------------------


@pytest.mark.spec("DIS-15")
def test_only_what_is_subscribed_is_shown_and_told() -> None:
    directory = Directory(silence_s=SILENCE_S)
    directory.subscribe("pay")
    events = directory.hear(told(1, 1, {"pay": [entry("a")], "user": [entry("u")]}), source=b"s", now=0.0)
    assert short(events) == ["+a", "pay available"]
    assert list(directory.services) == ["pay"]
    assert directory.providers("user") == ()
    assert directory.state("user") is ServiceState.EMPTY
    assert (directory.services_count, directory.providers_count) == (2, 2)


@pytest.mark.spec("DIS-15")
def test_what_is_known_already_is_told_when_it_is_subscribed() -> None:
    directory = Directory(silence_s=SILENCE_S)
    directory.hear(told(1, 1, {"pay": [entry("b"), entry("a")]}), source=b"s", now=0.0)
    assert short(directory.subscribe("pay")) == ["+a", "+b", "pay available"]
    assert directory.subscribe("pay") == []
    assert directory.subscribe("nobody") == []


@pytest.mark.spec("DIS-15")
def test_what_is_unsubscribed_is_told_as_removed_and_not_followed() -> None:
    directory = Directory(silence_s=SILENCE_S)
    directory.subscribe("pay")
    directory.subscribe("pay")
    directory.hear(told(1, 1, {"pay": [entry("a")]}), source=b"s", now=0.0)
    assert short(directory.unsubscribe("pay")) == ["-a", "pay unavailable"]
    assert directory.unsubscribe("pay") == []
    assert directory.state("pay") is ServiceState.EMPTY
    assert directory.hear(told(1, 2, {"pay": [entry("b")]}), source=b"s", now=0.0) == []
    assert short(directory.subscribe("pay")) == ["+b", "pay available"]


@pytest.mark.spec("DIS-15")
def test_all_services_can_be_subscribed_and_single_ones_left_out() -> None:
    directory = Directory(silence_s=SILENCE_S)
    directory.subscribe("pay")
    services = {"pay": [entry("a")], "user": [entry("u")], "mail": [entry("m")]}
    directory.hear(told(1, 1, services), source=b"s", now=0.0)
    assert short(directory.subscribe_all()) == ["+m", "mail available", "+u", "user available"]
    assert directory.subscribe_all() == []
    assert directory.follows("anything")
    assert short(directory.unsubscribe("pay")) == ["-a", "pay unavailable"]
    assert list(directory.services) == ["mail", "user"]
    assert not directory.follows("pay")
    assert short(directory.subscribe("pay")) == ["+a", "pay available"]
    directory.unsubscribe("user")
    assert short(directory.subscribe_all()) == ["+u", "user available"]


@pytest.mark.spec("DIS-15")
def test_a_service_is_empty_then_available_then_unavailable() -> None:
    directory = Directory(silence_s=SILENCE_S)
    directory.subscribe("pay")
    assert directory.state("pay") is ServiceState.EMPTY
    steps: list[tuple[Services, ServiceState]] = [
        ({"pay": []}, ServiceState.EMPTY),
        ({"pay": [entry("a")]}, ServiceState.AVAILABLE),
        ({"pay": []}, ServiceState.UNAVAILABLE),
        ({"pay": [entry("a")]}, ServiceState.AVAILABLE),
        ({}, ServiceState.UNAVAILABLE),
    ]
    for seq, (services, state) in enumerate(steps, 1):
        directory.hear(told(1, seq, services), source=b"s", now=0.0)
        assert directory.state("pay") is state
        assert list(directory.services) == (["pay"] if state is ServiceState.AVAILABLE else [])


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800"])
def test_what_cannot_be_a_service_cannot_be_subscribed(name: str) -> None:
    with pytest.raises(BadArgument):
        Directory(silence_s=SILENCE_S).subscribe(name)


@pytest.mark.parametrize("silence_s", [0.0, -1.0, float("nan")])
def test_patience_must_be_positive(silence_s: float) -> None:
    with pytest.raises(BadArgument):
        Directory(silence_s=silence_s)


def test_services_under_ever_new_names_are_not_remembered_for_ever() -> None:
    directory = all_of()
    names_each = SERVICES_MAX // 2
    for seq in range(1, 5):
        services = {f"{seq}-{number}": [entry("a")] for number in range(names_each)}
        directory.hear(told(1, seq, services), source=b"s", now=0.0)
    assert len(directory._unavailable) == SERVICES_MAX
    assert directory.services_count == names_each
    assert directory.state("1-0") is ServiceState.EMPTY
    assert directory.state("3-0") is ServiceState.UNAVAILABLE
