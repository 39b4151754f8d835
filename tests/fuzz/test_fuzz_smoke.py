"""A few thousand fuzzed inputs in every test run; `make fuzz` runs a million, guided by coverage."""

import itertools

import pytest

from tests.fuzz.mutation import mutations
from tests.fuzz.targets import INPUT_BYTES_MAX, TARGETS, Target

RUNS = 2_000


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_no_input_breaks_a_target(target: Target) -> None:
    for data in itertools.islice(mutations(target.seeds(), seed=1, bytes_max=INPUT_BYTES_MAX), RUNS):
        try:
            target.check(data)
        except Exception as error:
            error.add_note(f"the input was {data!r}")
            raise


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_seeds_are_within_the_bound_and_right(target: Target) -> None:
    for data in target.seeds():
        assert len(data) <= INPUT_BYTES_MAX
        target.check(data)


def test_equal_seeds_give_equal_inputs() -> None:
    seeds = TARGETS["parser"].seeds()
    one, two = (mutations(seeds, seed=5, bytes_max=64) for _ in range(2))
    assert list(itertools.islice(one, 500)) == list(itertools.islice(two, 500))
