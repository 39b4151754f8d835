"""The seeds at the gate: the same first ones for all, and others for every commit."""

import pytest

from tests.support.gate_seeds import (
    FIRST_COUNT,
    WINDOW_COUNT,
    WINDOW_FROM,
    commit_here,
    gate_seeds,
    seeds_for,
)


def test_the_first_seeds_are_always_there_and_the_window_moves() -> None:
    one, two = seeds_for("a" * 40), seeds_for("b" * 40)
    assert one[:FIRST_COUNT] == two[:FIRST_COUNT] == list(range(FIRST_COUNT))
    assert len(one) == len(set(one)) == FIRST_COUNT + WINDOW_COUNT
    assert set(one[FIRST_COUNT:]).isdisjoint(two[FIRST_COUNT:])
    assert min(one[FIRST_COUNT:]) >= WINDOW_FROM


def test_one_commit_has_one_window_and_a_tree_without_git_has_one_too() -> None:
    assert seeds_for(commit_here()) == seeds_for(commit_here())
    assert seeds_for("")[FIRST_COUNT] == WINDOW_FROM


def test_a_scenario_that_asks_for_more_gets_more_of_both() -> None:
    more = seeds_for("a" * 40, 240)
    assert more[:240] == list(range(240))
    assert len(more) == len(set(more)) == 300
    assert set(more[240:]).isdisjoint(seeds_for("b" * 40, 240))


def test_what_another_test_plays_and_the_parts_are_all_seeds_each_once() -> None:
    _, parts = gate_seeds(80, but=range(0, 80, 7)).args
    played = [seed for part in parts for seed in part]
    assert sorted([*played, *range(0, 80, 7)]) == seeds_for(commit_here(), 80)


def test_what_another_test_plays_is_of_the_gate() -> None:
    with pytest.raises(AssertionError, match="none of the gate"):
        gate_seeds(80, but=range(90))
