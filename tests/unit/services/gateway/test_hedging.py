"""How long a try may take, and how many requests may be sent twice."""

from hypothesis import given
from hypothesis import strategies as st

from hansa.limits import HEDGES_COUNT_MAX, REQUEST_TIMEOUT_S, TRY_S_MIN
from hansa.services.gateway.tries import Hedging


def hedging(*, tries_max: int = 3, hedge_share: float = 0.1) -> Hedging:
    return Hedging(tries_max=tries_max, hedge_share=hedge_share)


def taken(one: Hedging, now: float) -> int:
    count = 0
    while one.take(now=now):
        count += 1
    return count


def test_before_anything_is_known_a_try_has_its_share_of_the_deadline() -> None:
    assert hedging().patience_s(4.0) == 1.0
    assert hedging(tries_max=1).patience_s(4.0) == 2.0
    # Without a deadline, and with a long one, as with the usual one.
    assert hedging().patience_s(float("inf")) == REQUEST_TIMEOUT_S / 4


def test_a_service_that_is_quick_has_quick_tries_and_never_hasty_ones() -> None:
    one = hedging()
    for _ in range(100):
        one.answered(0.001)
    assert one.patience_s(5.0) == TRY_S_MIN
    two = hedging()
    for _ in range(100):
        two.answered(0.15)
    assert 0.28 < two.patience_s(5.0) < 0.32


def test_a_service_that_takes_longer_than_the_share_is_given_its_time() -> None:
    one = hedging()
    for _ in range(100):
        one.answered(2.0)
    assert 1.9 < one.patience_s(5.0) < 2.1
    # But a second try is to have time for an answer, too.
    assert one.patience_s(3.0) == 1.5


def test_one_slow_answer_among_the_first_does_not_count() -> None:
    one = hedging()
    for number in range(20):
        one.answered(4.0 if number == 3 else 0.01)
    assert one.patience_s(5.0) == TRY_S_MIN


def test_a_few_slow_answers_hardly_matter_and_many_do() -> None:
    one = hedging()
    for number in range(1_000):
        one.answered(30.0 if number % 250 == 249 else 0.1)
    assert one.patience_s(60.0) < 0.3
    for _ in range(100):
        one.answered(30.0)
    assert one.patience_s(600.0) > 1.0
    for _ in range(20_000):
        one.answered(0.1)
    assert one.patience_s(60.0) < 0.3


def test_requests_that_needed_a_second_try_count_as_slow_ones() -> None:
    one = hedging()
    for _ in range(20):
        one.answered(0.2)
    before = one.patience_s(5.0)
    for _ in range(10):
        one.answered_late()
    assert before < one.patience_s(5.0) <= REQUEST_TIMEOUT_S / 4


def test_a_burst_may_be_doubled_and_then_a_share_of_what_is_answered() -> None:
    one = hedging()
    assert taken(one, 0.0) == HEDGES_COUNT_MAX
    told_count = 0
    for request_id in range(2_000):
        if not request_id & one.sampling:
            one.answered(0.01)
            told_count += 1
    assert told_count < 300
    assert HEDGES_COUNT_MAX - 1 <= taken(one, 0.0) <= HEDGES_COUNT_MAX + 1
    for request_id in range(400):
        if not request_id & one.sampling:
            one.answered(0.01)
    assert 38 <= taken(one, 0.0) <= 42  # A tenth.


def test_where_there_are_few_requests_one_a_second_may_be_doubled() -> None:
    one = hedging()
    taken(one, 0.0)
    assert not one.take(now=0.5)
    assert one.take(now=1.5)
    assert not one.take(now=1.6)


def test_a_share_of_nothing_is_nothing() -> None:
    assert taken(hedging(hedge_share=0.0), 1e9) == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("answered"), st.floats(0.0, 100.0)),
            st.tuples(st.just("take"), st.floats(0.0, 0.5)),
        ),
        max_size=400,
    )
)
def test_never_more_than_the_budget_and_never_less_than_the_floor(events: list[tuple[str, float]]) -> None:
    one, now, answered_count, taken_count = hedging(), 0.0, 0, 0
    for what, value in events:
        if what == "answered":
            answered_count += one.sampling + 1
            one.answered(value)
        else:
            now += value
            taken_count += one.take(now=now)
        assert taken_count <= HEDGES_COUNT_MAX + 1 + 0.1 * answered_count + now
        assert one.patience_s(5.0) >= TRY_S_MIN
