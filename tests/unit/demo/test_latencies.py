"""Latencies keep their percentiles when they are sent between processes and added up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.demo.latencies import Latencies

latencies_s = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=200)


def noted(values_s: list[float]) -> Latencies:
    latencies = Latencies()
    for value_s in values_s:
        latencies.note(value_s)
    return latencies


def test_without_latencies_there_is_no_percentile() -> None:
    assert Latencies().quantile_s(0.5) is None


@given(latencies_s, st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_right_to_within_a_bucket(values_s: list[float], share: float) -> None:
    ordered = sorted(values_s)
    exact_s = next(value for count, value in enumerate(ordered, 1) if count >= share * len(ordered))
    found_s = noted(values_s).quantile_s(share)
    assert found_s is not None
    assert exact_s / 1.1 <= found_s <= exact_s * 1.1


@given(latencies_s, latencies_s)
def test_adding_up_is_the_same_as_noting_all(left_s: list[float], right_s: list[float]) -> None:
    total = noted(left_s)
    total.add(Latencies.from_json(noted(right_s).as_json()))
    assert total.as_json() == noted(left_s + right_s).as_json()


def test_less_than_a_microsecond_counts_as_one() -> None:
    assert noted([0.0, 1e-9]).quantile_s(1.0) == pytest.approx(1e-6, rel=0.1)


def test_a_cleared_one_is_empty() -> None:
    latencies = noted([0.5])
    latencies.clear()
    assert latencies.as_json() == {}
