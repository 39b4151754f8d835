"""Who should have what, by examples: what moves, what does not, and what a person is told of it."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from hansa.assignment.partition import Partition
from hansa.assignment.planner import Candidate, Move, Sharing, share_out


def workers(names: str) -> list[Candidate]:
    return [Candidate(node=name) for name in names]


def parts(count: int, **fields: Any) -> list[Partition]:
    return [Partition(name=f"p{number:02}", **fields) for number in range(count)]


def counts(sharing: Sharing) -> dict[str, int]:
    return dict(sorted(Counter(sharing.owners.values()).items()))


def reasons(sharing: Sharing) -> list[str]:
    return [move.reason for move in sharing.moves]


def owned(**names: str) -> dict[str, str]:
    """By partition: `owned(a="p q", b="r")`."""
    return {name: node for node, own in names.items() for name in own.split()}


def named(names: str, **fields: Any) -> list[Partition]:
    return [Partition(name=name, **fields) for name in names.split()]


# -- level, and as it was


@pytest.mark.spec("ASG-02")
def test_first_plan_gives_everybody_as_many() -> None:
    sharing = share_out(workers("abc"), parts(12), {})
    assert counts(sharing) == {"a": 4, "b": 4, "c": 4}
    assert set(reasons(sharing)) == {"nobody has it"}
    assert {move.source for move in sharing.moves} == {""}


@pytest.mark.spec("ASG-02")
def test_worker_that_leaves_gives_up_its_partitions_and_no_others_move() -> None:
    before = share_out(workers("abc"), parts(12), {}).owners
    after = share_out(workers("ac"), parts(12), before)
    assert {move.partition for move in after.moves} == {name for name, node in before.items() if node == "b"}
    assert set(reasons(after)) == {"b is gone"}
    assert {move.source for move in after.moves} == {"b"}


@pytest.mark.spec("ASG-02")
def test_worker_that_joins_is_given_its_share_and_the_others_swap_nothing() -> None:
    before = share_out(workers("abc"), parts(12), {}).owners
    after = share_out(workers("abcd"), parts(12), before)
    assert counts(after) == {"a": 3, "b": 3, "c": 3, "d": 3}
    assert sorted((move.source, move.target) for move in after.moves) == [("a", "d"), ("b", "d"), ("c", "d")]


@pytest.mark.spec("ASG-09")
def test_move_for_balance_says_how_much_its_owner_has_and_should_have() -> None:
    sharing = share_out(workers("ab"), named("p q r s"), owned(a="p q r s"))
    assert reasons(sharing) == ["a has 4 of 4 and its share is 2"] * 2


def test_share_is_told_in_partitions_also_where_all_weigh_five() -> None:
    heavy = [Partition(name=name, weight=5) for name in "pqrs"]
    sharing = share_out(workers("ab"), heavy, owned(a="p q r s"))
    assert reasons(sharing) == ["a has 4 of 4 and its share is 2"] * 2


@pytest.mark.spec("ASG-02")
def test_nothing_moves_when_nothing_changed() -> None:
    before = share_out(workers("abc"), parts(10), {})
    assert share_out(workers("abc"), parts(10), before.owners) == Sharing(owners=before.owners)


def test_one_more_than_another_is_level() -> None:
    assert not share_out(workers("ab"), named("p q r"), owned(a="p q", b="r")).moves


def test_nothing_to_share_out_and_nobody_to_share_with_are_answered() -> None:
    assert share_out([], [], {}) == Sharing()
    assert share_out(workers("a"), [], {"gone": "a"}) == Sharing()
    assert share_out([], named("p"), owned(a="p")).unplaced == {"p": "there is no worker"}


# -- weights


@pytest.mark.spec("ASG-02")
def test_heavy_partitions_are_spread_first() -> None:
    weighed = [Partition(name=f"p{number}", weight=weight) for number, weight in enumerate((9, 5, 4, 3, 3))]
    sharing = share_out(workers("ab"), weighed, {})
    loads: Counter[str] = Counter()
    for each in weighed:
        loads[sharing.owners[each.name]] += each.weight
    assert sorted(loads.values()) == [12, 12]


def test_worker_of_three_times_the_weight_has_three_times_the_partitions() -> None:
    sharing = share_out([Candidate(node="a", weight=3), Candidate(node="b")], parts(12), {})
    assert counts(sharing) == {"a": 9, "b": 3}


def test_move_of_weighted_partitions_tells_what_their_owner_carries() -> None:
    weighed = [Partition(name="p", weight=8), Partition(name="q", weight=7), Partition(name="r", weight=1)]
    sharing = share_out(workers("ab"), weighed, owned(a="p q r"))
    assert reasons(sharing) == ["a carries 16 of 16 and its share is 8"] * len(sharing.moves)


def test_light_partition_stays_where_it_is_for_a_difference_that_a_heavy_one_makes_anyway() -> None:
    weighed = [Partition(name=name, weight=weight) for name, weight in (("p", 10), ("q", 8), ("r", 1))]
    assert not share_out(workers("ab"), weighed, owned(a="p r", b="q")).moves
    assert share_out(workers("ab"), weighed, {}).owners == owned(a="p", b="q r")


# -- roles, groups, pins: hard rules


@pytest.mark.spec("ASG-12")
def test_partition_goes_only_to_workers_with_its_role() -> None:
    some = [Candidate(node="a", roles=frozenset({"pump"})), Candidate(node="b")]
    sharing = share_out(some, named("p q r s", role="pump"), {})
    assert counts(sharing) == {"a": 4}


@pytest.mark.spec("ASG-12")
def test_resources_of_a_group_stay_with_the_workers_of_that_group() -> None:
    some = [
        Candidate(node="a", resource_groups=frozenset({"raft-1"})),
        Candidate(node="b", resource_groups=frozenset({"raft-1", "raft-2"})),
    ]
    sharing = share_out(
        some, [*named("p q", resource_group="raft-1"), *named("r s", resource_group="raft-2")], {}
    )
    assert sharing.owners == owned(a="p q", b="r s")


@pytest.mark.spec("ASG-09", "ASG-12")
def test_owner_without_the_role_or_the_group_loses_the_partition_and_is_told_why() -> None:
    some = [
        Candidate(node="a"),
        Candidate(node="b", roles=frozenset({"pump"}), resource_groups=frozenset({"raft-1"})),
    ]
    wanted = [
        Partition(name="p", role="pump"),
        Partition(name="q", resource_group="raft-1"),
        Partition(name="r", role="pump", resource_group="raft-1"),
    ]
    sharing = share_out(some, wanted, owned(a="p q r"))
    assert sharing.owners == owned(b="p q r")
    assert reasons(sharing) == [
        "a has not the role 'pump'",
        "a has not the resource group 'raft-1'",
        "a has not the role 'pump' and the resource group 'raft-1'",
    ]


@pytest.mark.spec("ASG-12")
def test_partition_whose_role_nobody_has_is_taken_from_its_owner_and_unplaced() -> None:
    sharing = share_out(workers("ab"), named("p", role="pump"), owned(a="p"))
    assert (sharing.moves, sharing.owners) == ((), {})
    assert sharing.unplaced == {"p": "no worker has the role 'pump'"}


def test_pinned_partition_goes_to_its_node_however_much_that_has() -> None:
    sharing = share_out(workers("ab"), [*named("p", pinned="a"), *named("q r")], owned(a="q r", b="p"))
    assert Move(partition="p", source="b", target="a", reason="it is pinned to a") in sharing.moves
    assert counts(sharing) == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (None, "pinned to a, which is away"),
        (Candidate(node="a", is_draining=True), "pinned to a, which is draining"),
        (Candidate(node="a", takes_more=False), "pinned to a, which is not ready"),
        (Candidate(node="a", zone="north"), "pinned to a, which may not have it"),
    ],
)
def test_pinned_partition_that_its_node_may_not_take_is_nobodys(node: Candidate | None, reason: str) -> None:
    role = "pump" if node is not None and node.zone else ""
    pinned = Partition(name="p", pinned="a", role=role)
    sharing = share_out([*workers("b"), *([node] if node else [])], [pinned], owned(b="p"))
    assert (sharing.owners, sharing.moves) == ({}, ())
    assert sharing.unplaced == {"p": reason}


def test_pinned_partition_stays_on_its_node_while_that_drains() -> None:
    sharing = share_out(
        [Candidate(node="a", is_draining=True), *workers("b")],
        [*named("p", pinned="a"), *named("q")],
        owned(a="p q"),
    )
    assert sharing.owners == owned(a="p", b="q")


# -- at most so many


@pytest.mark.spec("ASG-12")
def test_nobody_has_more_than_the_most_and_the_rest_is_unplaced() -> None:
    sharing = share_out(workers("ab"), parts(8), {}, per_node_max=3)
    assert counts(sharing) == {"a": 3, "b": 3}
    assert list(sharing.unplaced.values()) == ["every worker has its 3 already"] * 2


def test_partitions_that_have_an_owner_keep_one_before_those_that_have_none() -> None:
    before = owned(a="x y")
    sharing = share_out(workers("a"), named("p q x y"), before, per_node_max=2)
    assert sharing.owners == before
    assert sorted(sharing.unplaced) == ["p", "q"]


def test_lower_limit_takes_away_what_is_too_much() -> None:
    sharing = share_out(workers("ab"), named("p q r"), owned(a="p q r"), per_node_max=2)
    assert reasons(sharing) == ["a has 3, and 2 is the most"]
    assert share_out(workers("a"), named("p q r"), owned(a="p q r"), per_node_max=2).unplaced == {
        "r": "every worker has its 2 already"
    }


def test_pinned_partition_comes_before_others_where_room_is_short() -> None:
    wanted = [*named("p", pinned="a"), *named("q r")]
    sharing = share_out(workers("ab"), wanted, owned(a="q r"), per_node_max=2)
    assert sharing.owners["p"] == "a"
    assert not sharing.unplaced
    full = share_out(workers("a"), named("p q", pinned="a"), owned(a="q"), per_node_max=1)
    assert full.owners == owned(a="q")
    assert full.unplaced == {"p": "pinned to a, which has its 1 already"}


@pytest.mark.spec("ASG-12")
def test_room_is_made_for_what_only_a_full_worker_may_have() -> None:
    """A chain: p needs a, which is full of what b may have, which is full of what c may have."""
    some = [
        Candidate(node="a", roles=frozenset({"pump", "valve"})),
        Candidate(node="b", roles=frozenset({"valve"}), resource_groups=frozenset({"g"})),
        Candidate(node="c", resource_groups=frozenset({"g"})),
    ]
    wanted = [
        Partition(name="p", role="pump"),
        Partition(name="q", role="valve"),
        Partition(name="r", resource_group="g"),
    ]
    sharing = share_out(some, wanted, owned(a="q", b="r"), per_node_max=1)
    assert sharing.owners == owned(a="p", b="q", c="r")
    assert {move.partition: move.reason for move in sharing.moves} == {
        "p": "nobody has it",
        "q": "it makes room on a for others",
        "r": "it makes room on b for others",
    }


# -- draining, and those that take no more


@pytest.mark.spec("ASG-02")
def test_draining_worker_gives_everything_up() -> None:
    some = [Candidate(node="a", is_draining=True), *workers("bc")]
    sharing = share_out(some, named("p q r s"), owned(a="p q r s"))
    assert counts(sharing) == {"b": 2, "c": 2}
    assert set(reasons(sharing)) == {"a is draining"}


@pytest.mark.spec("ASG-02")
def test_draining_worker_keeps_what_nobody_else_may_have() -> None:
    some = [Candidate(node="a", is_draining=True, roles=frozenset({"pump"})), *workers("b")]
    wanted = [*named("p", role="pump"), *named("q")]
    sharing = share_out(some, wanted, owned(a="p q"))
    assert sharing.owners == owned(a="p", b="q")
    assert not sharing.unplaced
    assert share_out(some, wanted, {}).unplaced == {
        "p": "every worker with the role 'pump' is draining or not ready"
    }


@pytest.mark.spec("ASG-02")
def test_worker_that_takes_no_more_keeps_what_it_has() -> None:
    some = [Candidate(node="a", takes_more=False), Candidate(node="b", takes_more=False), *workers("c")]
    sharing = share_out(some, named("p q r s t u"), owned(a="p q r s"))
    assert sharing.owners == owned(a="p q r s", c="t u")


# -- zones


@pytest.mark.spec("ASG-02")
def test_partitions_are_given_to_workers_in_their_zone() -> None:
    some = [Candidate(node=node, zone=zone) for node, zone in zip("abcd", ["n", "n", "s", "s"], strict=True)]
    wanted = [Partition(name=f"{zone}{number}", zone=zone) for zone in "ns" for number in range(6)]
    sharing = share_out(some, wanted, {})
    assert counts(sharing) == {"a": 3, "b": 3, "c": 3, "d": 3}
    assert {(name[0], node) for name, node in sharing.owners.items()} == {
        ("n", "a"),
        ("n", "b"),
        ("s", "c"),
        ("s", "d"),
    }


@pytest.mark.spec("ASG-02")
def test_zone_does_not_make_a_worker_carry_more_than_the_others() -> None:
    some = [Candidate(node="a", zone="north"), *workers("b")]
    assert counts(share_out(some, parts(8, zone="north"), {})) == {"a": 4, "b": 4}


@pytest.mark.spec("ASG-09")
def test_partition_comes_into_its_zone_when_a_worker_there_has_room() -> None:
    some = [Candidate(node="a", zone="north"), *workers("b")]
    sharing = share_out(some, [*named("p", zone="north"), *named("q r")], owned(a="q", b="p r"))
    assert sharing.moves == (Move(partition="p", source="b", target="a", reason="zone north is preferred"),)


@pytest.mark.spec("ASG-09")
def test_partitions_change_places_for_the_sake_of_a_zone() -> None:
    some = [Candidate(node="a", zone="north"), *workers("b")]
    sharing = share_out(some, [*named("p", zone="north"), *named("q")], owned(a="q", b="p"))
    assert sharing.owners == owned(a="p", b="q")
    assert reasons(sharing) == ["zone north is preferred", "it makes room on a for others"]


def test_worker_that_joins_takes_first_what_wants_to_be_in_its_zone() -> None:
    before = owned(a="p1 p2 p3", b="q1 q2 q3")
    wanted = [*named("p1 p2 q1 q2"), *named("p3 q3", zone="north")]
    sharing = share_out([*workers("ab"), Candidate(node="c", zone="north")], wanted, before)
    assert sorted(move.partition for move in sharing.moves) == ["p3", "q3"]


# -- order


@pytest.mark.spec("ASG-09")
def test_moves_begin_with_what_nobody_has_and_end_with_balance() -> None:
    some = [*workers("abc"), Candidate(node="d", is_draining=True)]
    before = owned(a="a1 a2 a3 a4 a5 a6", d="d1", gone="g1")
    sharing = share_out(some, named("a1 a2 a3 a4 a5 a6 d1 g1 n1"), before)
    told = [(move.partition[0], move.reason) for move in sharing.moves]
    assert told[:3] == [("g", "gone is gone"), ("n", "nobody has it"), ("d", "d is draining")]
    assert {which for which, _ in told[3:]} == {"a"}


def test_order_of_the_input_changes_nothing() -> None:
    some, wanted = workers("abcde"), parts(17)
    before = {each.name: "a" for each in wanted[:9]}
    backwards = dict(reversed(before.items()))
    assert share_out(some, wanted, before) == share_out(some[::-1], wanted[::-1], backwards)


# -- size


def spent_s(some: Iterable[Candidate], wanted: Iterable[Partition]) -> float:
    began_s = time.process_time()
    share_out(some, wanted, {})
    return time.process_time() - began_s


def test_ten_thousand_partitions_with_roles_zones_and_weights_are_planned_within_a_second() -> None:
    roles = [f"role{number}" for number in range(8)]
    some = [
        Candidate(
            node=f"n{number}",
            zone="abc"[number % 3],
            weight=1 + number % 3,
            roles=frozenset((roles[number % 8], roles[number * 5 % 7])),
        )
        for number in range(1_000)
    ]
    wanted = [
        Partition(
            name=f"p{number}",
            weight=1 + number * 7 % 50,
            role=(*roles, "", "")[number % 10],
            zone="abc"[number * 3 // 7 % 3],
        )
        for number in range(10_000)
    ]
    assert spent_s(some, wanted) < 1.0
