"""Who gets the next request: exact distributions, fairness when members change, stable keys."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.chance import Chance
from hansa.services.gateway.balancers import (
    Balancer,
    Rendezvous,
    RoundRobin,
    TwoChoices,
    Weighted,
)

KINDS = [RoundRobin, Weighted, TwoChoices, Rendezvous]


@dataclass
class Fake:
    """A member as balancers see it."""

    endpoint: str
    weight: int = 1
    in_flight_count: int = 0


def fakes(names: str, *weights: int) -> list[Fake]:
    return [Fake(name, weight) for name, weight in zip(names, weights or (1,) * len(names), strict=True)]


def chosen(balancer: Balancer, members: Sequence[Fake], count: int, *, key: bytes | None = None) -> str:
    """The endpoints of so many choices, one after another."""
    chance = Chance.seeded(1)
    return "".join(balancer.choose(members, key, chance).endpoint for _ in range(count))


@pytest.mark.spec("DIS-22")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", [None, b"", b"user:42"])
def test_a_single_member_is_always_chosen(kind: type[Balancer], key: bytes | None) -> None:
    assert chosen(kind(), fakes("a"), 5, key=key) == "aaaaa"


@pytest.mark.parametrize("kind", KINDS)
@given(
    sizes=st.lists(st.integers(min_value=1, max_value=6), min_size=1, max_size=30),
    key=st.none() | st.binary(max_size=8),
)
def test_what_is_chosen_is_always_a_present_member(
    kind: type[Balancer], sizes: list[int], key: bytes | None
) -> None:
    balancer, chance, shared = kind(), Chance.seeded(2), fakes("abcdef")
    in_place: list[Fake] = []
    for size in sizes:
        in_place[:] = shared[6 - size :]
        assert balancer.choose(in_place, key, chance) in in_place


# ---- round robin -------------------------------------------------------------------------------


@pytest.mark.spec("DIS-22")
def test_round_robin_serves_each_in_its_turn() -> None:
    members = fakes("abc")
    order = chosen(RoundRobin(), members, 300)
    assert sorted(order[:3]) == ["a", "b", "c"]
    assert order == order[:3] * 100


def test_round_robin_begins_anywhere_so_that_short_lived_callers_spread() -> None:
    chance, members = Chance.seeded(3), fakes("abcd")
    first = Counter(RoundRobin().choose(members, None, chance).endpoint for _ in range(4_000))
    assert all(900 < count < 1_100 for count in first.values())


def test_weights_and_keys_mean_nothing_to_round_robin() -> None:
    order = chosen(RoundRobin(), fakes("ab", 100, 1), 10, key=b"always the same")
    assert Counter(order) == {"a": 5, "b": 5}


@pytest.mark.parametrize(
    ("before", "last", "after", "following"),
    [
        ("abcd", "b", "abcde", "cdea"),  # One joins at the end.
        ("abcd", "b", "xabcd", "cdxa"),  # One joins before.
        ("abcd", "b", "abxcd", "xcda"),  # One joins right behind.
        ("abcd", "b", "acd", "cdac"),  # The last one served leaves.
        ("abcd", "b", "bcd", "cdbc"),  # One before it leaves.
        ("abcd", "b", "abd", "dabd"),  # The next one leaves.
        ("abcd", "b", "cd", "cdcd"),  # It and all before it leave.
        ("abcd", "d", "abc", "abca"),  # The end of the round leaves.
        ("abcd", "c", "wxyz", "wxyz"),  # Everyone is new.
        ("abcd", "a", "dcba", "dcba"),  # The order is another.
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_round_robin_goes_on_behind_the_last_one_served(
    before: str, last: str, after: str, following: str, in_place: bool
) -> None:
    everyone = {name: Fake(name) for name in "abcdewxyz"}
    balancer, chance = RoundRobin(), Chance.seeded(4)
    members = [everyone[name] for name in before]
    for _ in range(4):
        balancer.choose(members, None, chance)
    while balancer.choose(members, None, chance).endpoint != last:
        pass
    now = [everyone[name] for name in after]
    if in_place:
        members[:] = now
        now = members
    assert chosen(balancer, now, 4) == following


def test_a_member_that_comes_back_as_another_object_keeps_its_place() -> None:
    balancer, chance, members = RoundRobin(), Chance.seeded(5), fakes("abc")
    while balancer.choose(members, None, chance).endpoint != "b":
        pass
    assert chosen(balancer, fakes("abc"), 3) == "cab"


@given(
    start=st.integers(0, 99),
    history=st.lists(st.sets(st.sampled_from("abcefh")), min_size=10, max_size=40),
)
def test_round_robin_starves_nobody_who_stays_while_others_come_and_go(
    start: int, history: list[set[str]]
) -> None:
    """Members flap in any pattern; who was there all the time waits two rounds of all at the very most.

    One is served twice in a round only after somebody who is new in this round, so this is the bound.
    """
    everyone, stays = fakes("abcdefgh"), "dg"
    balancer, chance = RoundRobin(), Chance.seeded(start)
    waited = dict.fromkeys(stays, 0)
    for present in history:
        members = [member for member in everyone if member.endpoint in present or member.endpoint in stays]
        name = balancer.choose(members, None, chance).endpoint
        for other in waited:
            waited[other] = 0 if other == name else waited[other] + 1
        assert max(waited.values()) < 2 * len(everyone)


def test_round_robin_remembers_little_while_members_are_always_new() -> None:
    balancer, chance = RoundRobin(), Chance.seeded(11)
    for number in range(1_000):
        balancer.choose([Fake(f"{i:04}") for i in range(number, number + 3)], None, chance)
    assert len(balancer._served) <= 13


# ---- weighted ----------------------------------------------------------------------------------


@pytest.mark.spec("DIS-22")
@pytest.mark.parametrize(
    ("weights", "order"),
    [
        ((5, 1, 1), "aabacaa"),
        ((1, 1, 1), "abc"),
        ((4, 2, 1), "abacaba"),
        ((3, 0, 1), "abaca"),  # Weight 0 counts as 1.
        ((1, 0, 0), "abc"),
    ],
)
def test_weighted_spreads_each_share_evenly(weights: tuple[int, ...], order: str) -> None:
    assert chosen(Weighted(), fakes("abc", *weights), 3 * len(order)) == 3 * order


@given(st.lists(st.integers(min_value=0, max_value=50), min_size=2, max_size=6))
def test_weighted_gives_exactly_the_shares_in_every_round(weights: list[int]) -> None:
    balancer, members = Weighted(), [Fake(str(i), weight) for i, weight in enumerate(weights)]
    chance = Chance.seeded(6)
    real = {str(i): weight or 1 for i, weight in enumerate(weights)}
    for _ in range(3):
        count = Counter(balancer.choose(members, None, chance).endpoint for _ in range(sum(real.values())))
        assert count == real


@pytest.mark.spec("DIS-22")
@pytest.mark.parametrize(
    ("before", "after"), [((1, 1), (5, 1)), ((1_000_000, 1), (1, 1)), ((1, 1_000_000), (1, 2))]
)
@pytest.mark.parametrize("served", range(4))
def test_a_changed_weight_counts_at_once(
    before: tuple[int, int], after: tuple[int, int], served: int
) -> None:
    balancer, members = Weighted(), fakes("ab", *before)
    chosen(balancer, members, served)
    for member, weight in zip(members, after, strict=True):
        member.weight = weight
    rounds = 10
    count = Counter(chosen(balancer, members, rounds * sum(after)))
    for member in members:
        assert abs(count[member.endpoint] - rounds * member.weight) <= 2


def test_weighted_shares_stay_right_when_members_come_and_go() -> None:
    balancer, members = Weighted(), fakes("abc", 3, 2, 1)
    chosen(balancer, members, 4)
    without = [members[0], members[2]]
    assert abs(Counter(chosen(balancer, without, 40))["a"] - 30) <= 2
    joined = [*without, Fake("d", 4)]
    count = Counter(chosen(balancer, joined, 80))
    assert all(abs(count[member.endpoint] - 10 * member.weight) <= 2 for member in joined)


def test_weighted_remembers_only_members_that_are_there() -> None:
    balancer, chance = Weighted(), Chance.seeded(7)
    for number in range(100):
        balancer.choose([Fake(f"{number}-{i}") for i in range(3)], None, chance)
    assert len(balancer._credits) <= 6


# ---- two choices -------------------------------------------------------------------------------


@pytest.mark.spec("DIS-22")
def test_two_choices_takes_the_one_with_less_to_do() -> None:
    members = fakes("ab")
    members[0].in_flight_count = 1
    assert chosen(TwoChoices(), members, 50) == "b" * 50


def test_two_choices_never_takes_the_busiest_of_all() -> None:
    members = fakes("abcde")
    members[3].in_flight_count = 9
    count = Counter(chosen(TwoChoices(), members, 4_000))
    assert "d" not in count
    assert all(900 < number < 1_100 for number in count.values())


def test_two_choices_draws_everyone_alike_when_all_are_idle() -> None:
    count = Counter(chosen(TwoChoices(), fakes("ab"), 4_000))
    assert all(1_900 < number < 2_100 for number in count.values())


def test_two_choices_keeps_the_load_almost_level() -> None:
    members, chance, balancer = [Fake(str(i)) for i in range(100)], Chance.seeded(8), TwoChoices()
    for _ in range(10_000):
        balancer.choose(members, None, chance).in_flight_count += 1
    loads = [member.in_flight_count for member in members]
    assert max(loads) - min(loads) <= 10


# ---- rendezvous --------------------------------------------------------------------------------

KEYS = [b"key:%d" % number for number in range(4_000)]


def owners(members: Sequence[Fake]) -> dict[bytes, str]:
    balancer, chance = Rendezvous(), Chance.seeded(9)
    return {key: balancer.choose(members, key, chance).endpoint for key in KEYS}


@pytest.mark.spec("DIS-22")
def test_a_key_goes_to_the_same_member_in_every_gateway_whatever_their_order() -> None:
    assert owners(fakes("abcde")) == owners(fakes("edcba"))


def test_where_a_key_goes_never_changes_between_versions() -> None:
    members = [Fake(f"tcp://10.0.0.{n}:5555") for n in range(1, 6)]
    balancer, chance = Rendezvous(), Chance.seeded(10)
    places = [
        balancer.choose(members, key, chance).endpoint[13:-5] for key in (b"", b"a", b"user:42", b"\xff" * 99)
    ]
    assert places == ["2", "3", "4", "1"]


def test_keys_are_spread_evenly() -> None:
    count = Counter(owners(fakes("abcde")).values())
    assert all(700 < number < 900 for number in count.values())


def test_keys_are_spread_by_weight() -> None:
    count = Counter(owners(fakes("abc", 5, 2, 1)).values())
    assert abs(count["a"] - 2_500) < 120
    assert abs(count["b"] - 1_000) < 120
    assert abs(count["c"] - 500) < 120


def test_only_the_keys_of_a_member_that_leaves_move() -> None:
    before, after = owners(fakes("abcde")), owners(fakes("abde"))
    assert {key for key in KEYS if before[key] != after[key]} == {key for key in KEYS if before[key] == "c"}


def test_a_member_that_joins_or_gains_weight_takes_keys_and_the_others_exchange_none() -> None:
    before = owners(fakes("abcd"))
    for after in (owners(fakes("abcde")), owners(fakes("abcd", 1, 1, 1, 3))):
        moved = {after[key] for key in KEYS if before[key] != after[key]}
        assert len(moved) == 1


def test_without_a_key_rendezvous_goes_round_robin() -> None:
    balancer, members = Rendezvous(), fakes("abc")
    order = chosen(balancer, members, 6)
    assert sorted(order[:3]) == ["a", "b", "c"]
    assert order[3:] == order[:3]
    assert chosen(balancer, members, 3, key=b"k")[0] * 3 == chosen(balancer, members, 3, key=b"k")
