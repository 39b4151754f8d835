"""The search says the same as trying every order; and what it shows of a violation is one by itself."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hansa.testing import (
    Acquire,
    Add,
    Call,
    CompareAndSet,
    CounterModel,
    Judgement,
    LockModel,
    Model,
    Read,
    RegisterModel,
    Release,
    Write,
    check_linearizability,
)
from hansa.testing.linearizability import Search, cut
from tests.support.made_histories import PlainLock, is_linearizable_by_trial

values = st.sampled_from([None, 1, 2])
said_of_register = st.one_of(
    st.tuples(st.just(Read()), values),
    st.tuples(st.builds(Write, values), st.none()),
    st.tuples(st.builds(CompareAndSet, values, values), st.booleans()),
)
said_of_counter = st.one_of(
    st.tuples(st.just(Read()), st.integers(0, 3)),
    st.tuples(st.builds(Add, st.integers(1, 2)), st.one_of(st.none(), st.integers(1, 4))),
)
fences = st.one_of(st.none(), st.integers(1, 3))
said_of_lock = st.one_of(
    st.tuples(st.just(Acquire()), fences),
    st.tuples(st.builds(Release, fences), st.sampled_from([True, True, False, None])),
)


def histories(
    said: st.SearchStrategy[tuple[Any, Any]], *, unknown: tuple[bool, ...] = (False, False, False, True)
) -> st.SearchStrategy[list[Call]]:
    """Up to seven calls at times that often meet and overlap; some without an outcome."""

    def as_call(what: tuple[Any, Any], process: str, called: int, took: int, is_unknown: bool) -> Call:
        return Call(
            process=process,
            asked=what[0],
            answer=None if is_unknown else what[1],
            called_s=float(called),
            returned_s=None if is_unknown else float(called + took),
        )

    calls = st.builds(
        as_call,
        said,
        st.sampled_from("abc"),
        st.integers(0, 12),
        st.integers(0, 5),
        st.sampled_from(unknown),
    )
    return st.lists(calls, max_size=7)


def agree(calls: list[Call], model: Model, plain: Model | None = None) -> None:
    """`plain` is another model of the same thing, to which the first one is put to the test as well."""
    verdict = check_linearizability(calls, model)
    assert verdict.judgement is not Judgement.UNDECIDED
    assert verdict.is_linearizable is is_linearizable_by_trial(calls, plain or model), str(verdict)
    if verdict.counterexample is not None:
        shown = verdict.counterexample
        assert len(shown.calls) <= len(calls)
        assert any(one is shown.impossible for one in shown.calls)
        assert not is_linearizable_by_trial(shown.calls, model, shown.states), str(verdict)
        assert "cannot be" in str(verdict)


@settings(max_examples=200)
@given(histories(said_of_register))
def test_a_register_is_judged_as_by_trying_every_order(calls: list[Call]) -> None:
    agree(calls, RegisterModel())


@settings(max_examples=200)
@given(histories(said_of_counter))
def test_a_counter_is_judged_as_by_trying_every_order(calls: list[Call]) -> None:
    agree(calls, CounterModel())


@settings(max_examples=200)
@given(histories(said_of_lock))
def test_a_lock_is_judged_as_by_trying_every_order(calls: list[Call]) -> None:
    agree(calls, LockModel())


# A fence that nobody was told is not 3, says the one answer, and it is, says the other.
REFUSED = [
    Call(process="a", asked=Acquire(), called_s=0.0, returned_s=None),
    Call(process="b", asked=Acquire(), answer=None, called_s=1.0, returned_s=2.0),
    Call(process="a", asked=Release(3), answer=False, called_s=3.0, returned_s=4.0),
    Call(process="a", asked=Release(3), answer=True, called_s=5.0, returned_s=6.0),
]


@settings(max_examples=300)
@given(histories(said_of_lock, unknown=(False, False, True)))
@example(calls=REFUSED)
def test_a_lock_with_unknown_fences_is_judged_as_by_trying_each(calls: list[Call]) -> None:
    # Above those of the histories there is room for each call that got one and did not hear it.
    agree(calls, LockModel(), PlainLock(fence_max=10))


@settings(max_examples=300)
@given(histories(said_of_register, unknown=(False, True)))
def test_many_calls_without_outcome_are_judged_as_by_trying_every_choice(calls: list[Call]) -> None:
    agree(calls, RegisterModel())


# Before the cut one of two calls without outcome was used, nobody knows which.
SPARED = [
    Call(process="a", asked=Write(1), called_s=0.0, returned_s=None),
    Call(process="b", asked=CompareAndSet(None, 1), called_s=0.0, returned_s=None),
    Call(process="c", asked=Read(), answer=1, called_s=1.0, returned_s=2.0),
    Call(process="c", asked=Write(2), called_s=3.0, returned_s=4.0),
    Call(process="c", asked=Read(), answer=1, called_s=5.0, returned_s=6.0),
]


@settings(max_examples=200)
@given(histories(said_of_register, unknown=(False, False, True)), st.integers(0, 7))
@example(calls=SPARED, cut_at=1)
def test_what_is_cut_off_a_possible_history_leaves_a_possible_one(calls: list[Call], cut_at: int) -> None:
    model = RegisterModel()
    if not is_linearizable_by_trial(calls, model):
        return
    # Long after them something that cannot be: so all positions before it are searched.
    never = Call(process="z", asked=Read(), answer="never", called_s=100.0, returned_s=101.0)
    search = Search([*calls, never], model, (model.begin(),), 1_000_000)
    assert search.run() is Judgement.VIOLATED
    depth = min(cut_at, search.depth)
    rest, _ = cut(search, model, depth)
    states = search.states_before(depth)
    assert is_linearizable_by_trial([call for call in rest if call is not never], model, states)
