"""Who looks after whom."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.coordination.roster import successors

IDS = st.sets(st.text(max_size=5), min_size=1, max_size=30)


@given(IDS, st.integers(1, 5))
def test_everybody_is_looked_after_by_as_many(ids: set[str], count: int) -> None:
    watchers: Counter[str] = Counter()
    for me in ids:
        watched = successors(ids, me, count)
        assert me not in watched
        assert len(set(watched)) == len(watched) == min(count, len(ids) - 1)
        watchers.update(watched)
    assert all(watchers[one] == min(count, len(ids) - 1) for one in ids)


@given(IDS, st.text(max_size=5))
def test_who_is_not_in_the_ring_has_a_place_all_the_same(ids: set[str], me: str) -> None:
    assert successors(ids, me, 3) == successors(ids | {me}, me, 3)


def test_the_ring_does_not_follow_the_names() -> None:
    # Ten machines with ten members each: few look only after neighbours that would fall with them.
    ids = [f"machine{machine}-{member}" for machine in range(10) for member in range(10)]
    alone = [me for me in ids if all(one.split("-")[0] == me.split("-")[0] for one in successors(ids, me, 3))]
    assert len(alone) <= 2


@pytest.mark.parametrize("ids", [[], ["a"]])
def test_who_is_alone_looks_after_nobody(ids: list[str]) -> None:
    assert successors(ids, "a", 3) == ()
