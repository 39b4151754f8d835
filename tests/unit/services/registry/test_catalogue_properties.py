"""Whatever happens in whatever order, merging bit by bit gives what merging everything would."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.services.registry.entries import EntryClaim, newest_by_id, prevailing
from hansa.wire.listing import ProviderEntry
from tests.support.registry_desk import Desk

IDS = [bytes((1, 0, 0, 0, number)) for number in range(3)]
ENDPOINTS = [f"tcp://h:{port}" for port in (1, 2)]
SERVICES = ["a", "b"]

ids = st.sampled_from(IDS)
ends = st.sampled_from(ENDPOINTS)
services = st.sampled_from(SERVICES)
steps = st.one_of(
    st.tuples(st.just("register"), ids, ends, services, st.integers(1, 3)),
    st.tuples(st.just("unregister"), ids, ends, services),
    st.tuples(st.just("beat"), ids, ends, services),
    st.tuples(st.just("reweigh"), ids, ends, services, st.integers(1, 3)),
    st.tuples(st.just("hang up"), ids),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 1.0, 7.5, 15.0, 40.0, 95.0])),
    st.tuples(st.just("follow"), st.integers(0, 1)),
    st.tuples(st.just("lose"), st.integers(0, 1)),
)
plays = st.lists(st.tuples(st.integers(0, 2), steps), max_size=40)


def perform(desks: list[Desk], at: int, step: tuple[Any, ...]) -> None:
    desk = desks[at]
    others = [other for other in desks if other is not desk]
    does: dict[str, Callable[..., object]] = {
        "register": lambda peer, end, service, weight: desk.register(
            peer, end, service=service, weight=weight
        ),
        "unregister": lambda peer, end, service: desk.unregister(peer, end, service=service),
        "beat": lambda peer, end, service: desk.beat(peer, end, service=service),
        "reweigh": lambda peer, end, service, weight: desk.reweigh(peer, weight, end, service=service),
        "hang up": desk.hang_up,
        "wait": desk.wait,
        "follow": lambda which: desk.follow(others[which]),
        "lose": lambda which: desk.lose(others[which].catalogue.registry_id),
    }
    does[step[0]](*step[1:])


def naive(desk: Desk) -> dict[str, tuple[ProviderEntry, ...]]:
    """The whole merged list from the sources alone."""
    catalogue = desk.catalogue
    listed: dict[str, tuple[ProviderEntry, ...]] = {}
    for service in SERVICES:
        entries = []
        for endpoint in ENDPOINTS:
            key = (service, endpoint)
            claims = list(catalogue.synced.claims(key))
            own = catalogue.own.get(service, endpoint)
            if own is not None:
                claims.append(EntryClaim(own, catalogue.registry_id, not own.orphaned))
            winner = prevailing(newest_by_id(claims, catalogue.tombstones.epoch(key)))
            if winner is not None:
                entries.append(winner.entry)
        if entries:
            listed[service] = tuple(entries)
    return listed


def some_desks() -> list[Desk]:
    # Their wall clocks disagree by more than anything here takes.
    return [Desk(1), Desk(2, wall_skew_ms=-3_600_000), Desk(3, wall_skew_ms=2_000)]


@given(plays)
@settings(max_examples=300)
def test_the_merged_list_is_that_of_a_full_merge(play: list[tuple[int, tuple[Any, ...]]]) -> None:
    desks = some_desks()
    for at, step in play:
        perform(desks, at, step)
        desk = desks[at]
        assert desk.listed() == naive(desk)
        merged = desk.catalogue.merged
        assert merged.providers_count == sum(map(len, desk.listed().values()))
        due = desk.catalogue.deadline()
        assert due is None or due > desk.now
        # Every own entry prevails, or its rival is an orphan as it is itself.
        for service in desk.catalogue.own.services:
            for own in desk.catalogue.own.providers(service):
                shown = merged.get(service, own.endpoint)
                assert shown is not None
                assert shown == own or (own.orphaned and shown.routing_id != own.routing_id)


@given(plays)
@settings(max_examples=300)
def test_registries_that_have_heard_each_other_agree(play: list[tuple[int, tuple[Any, ...]]]) -> None:
    desks = some_desks()
    for at, step in play:
        perform(desks, at, step)
    now = max(desk.now for desk in desks)
    for desk in desks:
        desk.wait(now - desk.now)
    # Two rounds: in the first some give up entries, which the second tells.
    for _ in range(2):
        for desk in desks:
            for other in desks:
                if other is not desk:
                    desk.follow(other)
    first, second, third = (desk.listed() for desk in desks)
    assert first == second == third
    keys = [(service, e.endpoint) for service, entries in first.items() for e in entries]
    assert len(keys) == len(set(keys))


@given(plays)
@settings(max_examples=150)
def test_what_nobody_stands_by_is_gone_in_the_end(play: list[tuple[int, tuple[Any, ...]]]) -> None:
    desks = some_desks()
    for at, step in play:
        perform(desks, at, step)
    for desk in desks:
        desk.wait(15.0)
    for _ in range(2):
        for desk in desks:
            for other in desks:
                if other is not desk:
                    desk.follow(other)
    assert [desk.listed() for desk in desks] == [{}, {}, {}]
    for desk in desks:
        desk.wait(200.0)
        assert len(desk.catalogue.tombstones) == desk.catalogue.direct_count == 0
        assert desk.catalogue.synced.count == 0
        assert desk.catalogue.deadline() is None
