"""Histories that cannot be are found, explained shortly, and never passed over in silence."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.errors import BadArgument
from hansa.testing import (
    Acquire,
    Add,
    Call,
    CompareAndSet,
    CounterModel,
    Judgement,
    LockModel,
    LockState,
    Model,
    Read,
    RegisterModel,
    Release,
    Write,
    check_linearizability,
)
from tests.support.made_histories import (
    Act,
    Counter,
    Latch,
    MadeHistory,
    Register,
    ask_counter,
    ask_lock,
    ask_register,
)

KINDS: dict[str, tuple[Callable[[], Act], Callable[[Chance, int], Any], Model]] = {
    "register": (Register, ask_register, RegisterModel()),
    "counter": (Counter, ask_counter, CounterModel()),
    "lock": (Latch, ask_lock, LockModel()),
}


def call(process: str, asked: Any, answer: Any, called_s: float, returned_s: float | None) -> Call:
    return Call(process=process, asked=asked, answer=answer, called_s=called_s, returned_s=returned_s)


def made(kind: str, seed: int, *, unknown_share: float = 0.02, **options: Any) -> MadeHistory:
    make = KINDS[kind][0]
    return MadeHistory(Chance.seeded(seed), make, unknown_share=unknown_share, **options)


# ---- what can be ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", KINDS)
def test_what_one_after_the_other_made_is_accepted(kind: str, seed: int) -> None:
    _, ask, model = KINDS[kind]
    history = made(kind, seed, keys_count=3)
    history.add_many(300, ask)
    verdict = check_linearizability(history.calls, model)
    assert verdict.judgement is Judgement.LINEARIZABLE, str(verdict)
    assert verdict.calls_count == 300


def test_a_history_of_two_thousand_calls_takes_little_work() -> None:
    history = made("register", 1, clients_count=10, keys_count=5)
    history.add_many(2000, ask_register)
    began_s = time.process_time()
    verdict = check_linearizability(history.calls, RegisterModel())
    assert verdict.is_linearizable, str(verdict)
    assert verdict.steps_count < 200_000
    assert time.process_time() - began_s < 2.0


def test_no_calls_are_linearizable() -> None:
    assert check_linearizability([], RegisterModel()).is_linearizable


def test_a_read_may_see_a_write_that_is_under_way_or_not() -> None:
    for seen in (None, 1):
        calls = [call("a", Write(1), None, 0.0, 3.0), call("b", Read(), seen, 1.0, 2.0)]
        assert check_linearizability(calls, RegisterModel()).is_linearizable


def test_calls_at_one_and_the_same_time_are_concurrent() -> None:
    calls = [call("a", Write(1), None, 0.0, 1.0), call("b", Read(), None, 1.0, 2.0)]
    assert check_linearizability(calls, RegisterModel()).is_linearizable


def test_a_call_without_an_outcome_may_take_effect_long_after_it_was_made() -> None:
    calls = [
        call("a", Write(1), None, 0.0, None),
        call("b", Write(2), None, 1.0, 2.0),
        call("b", Read(), 2, 3.0, 4.0),
        call("b", Read(), 1, 5.0, 6.0),
    ]
    assert check_linearizability(calls, RegisterModel()).is_linearizable


def test_a_call_without_an_outcome_may_never_take_effect() -> None:
    calls = [call("a", Write(1), None, 0.0, None), call("b", Read(), None, 1.0, 2.0)]
    assert check_linearizability(calls, RegisterModel()).is_linearizable


def test_a_write_of_what_is_there_may_still_be_needed_later() -> None:
    # The first write of 1 must not be spent while the register has this value anyway.
    calls = [
        call("a", Write(1), None, 0.0, 1.0),
        call("b", Write(1), None, 2.0, 9.0),
        call("a", Read(), 1, 3.0, 4.0),
        call("a", Write(2), None, 5.0, 6.0),
        call("a", Read(), 1, 7.0, 8.0),
    ]
    assert check_linearizability(calls, RegisterModel()).is_linearizable


def test_a_lock_whose_release_is_unknown_may_be_taken_by_another_but_not_before() -> None:
    held = call("a", Acquire(), 5, 0.0, 1.0)
    given = call("a", Release(5), None, 4.0, None)
    after = [held, given, call("b", Acquire(), 6, 3.0, 5.0)]
    assert check_linearizability(after, LockModel()).is_linearizable
    before = [held, given, call("b", Acquire(), 6, 2.0, 3.0)]
    assert check_linearizability(before, LockModel()).judgement is Judgement.VIOLATED


def test_a_lock_taken_without_an_answer_has_a_fence_too() -> None:
    calls = [
        call("a", Acquire(), None, 0.0, None),
        call("b", Acquire(), None, 1.0, 2.0),  # Refused: so the first one has it.
        call("a", Release(7), True, 3.0, 4.0),
        call("b", Acquire(), 8, 5.0, 6.0),
    ]
    assert check_linearizability(calls, LockModel()).is_linearizable
    calls[-1] = call("b", Acquire(), 7, 5.0, 6.0)
    assert check_linearizability(calls, LockModel()).judgement is Judgement.VIOLATED


@pytest.mark.parametrize(("fence", "is_possible"), [(1, False), (2, True)])
def test_whoever_follows_a_holder_whose_fence_is_not_known_has_a_higher_one(
    fence: int, is_possible: bool
) -> None:
    calls = [
        call("a", Acquire(), None, 0.0, None),
        call("b", Acquire(), None, 1.0, 2.0),
        call("a", Release(), True, 3.0, 4.0),
        call("b", Acquire(), fence, 5.0, 6.0),
    ]
    assert check_linearizability(calls, LockModel()).is_linearizable is is_possible


@pytest.mark.parametrize(("fence", "is_possible"), [(3, False), (4, True)])
def test_a_fence_that_was_not_the_holders_is_not_so_later_either(fence: int, is_possible: bool) -> None:
    calls = [
        call("a", Acquire(), None, 0.0, None),
        call("b", Acquire(), None, 1.0, 2.0),  # Refused: so the first one has it, with a fence unknown.
        call("a", Release(3), False, 3.0, 4.0),
        call("a", Release(fence), True, 5.0, 6.0),
    ]
    assert check_linearizability(calls, LockModel()).is_linearizable is is_possible


def test_of_two_calls_without_outcome_the_one_that_is_needed_later_is_spared() -> None:
    calls = [
        call("a", Write(1), None, 0.0, None),
        call("b", CompareAndSet(0, 1), None, 0.1, None),
        call("c", Read(), 1, 1.0, 2.0),  # By either of them.
        call("c", Write(5), None, 3.0, 4.0),
        call("c", Read(), 1, 5.0, 6.0),  # By the write alone.
    ]
    assert check_linearizability(calls, RegisterModel(initial=0)).is_linearizable


def test_a_later_way_to_a_position_that_spares_a_call_without_outcome_is_tried_too() -> None:
    calls = [
        call("a", Write(2), None, 0.0, None),
        call("b", Write(1), None, 0.0, 5.0),
        call("c", CompareAndSet(1, 2), True, 0.0, 6.0),
        call("d", Read(), 2, 1.0, 2.0),  # By the first, which is the shorter way; or by the two others.
        call("d", Write(5), None, 7.0, 8.0),
        call("d", Read(), 2, 9.0, 10.0),  # By the first alone.
    ]
    assert check_linearizability(calls, RegisterModel()).is_linearizable


# ---- what cannot be ------------------------------------------------------------------------------

PLANTED: dict[str, tuple[str, list[tuple[str, Any, Any]]]] = {
    "stale read": (
        "register",
        [("a", Write("old"), None), ("b", Write("new"), None), ("c", Read(), "old")],
    ),
    "lost update": (
        "register",
        [
            ("a", Write("base"), None),
            ("b", CompareAndSet("base", "mine"), True),
            ("c", CompareAndSet("base", "yours"), True),
        ],
    ),
    "value that nobody wrote": ("register", [("a", Read(), "never")]),
    "refused without a reason": (
        "register",
        [("a", Write("base"), None), ("b", CompareAndSet("base", "mine"), False)],
    ),
    "double lock": (
        "lock",
        [("a", Release(), False), ("b", Acquire(), 5000), ("c", Acquire(), 5001)],
    ),
    "fence going back": (
        "lock",
        [("a", Acquire(), 5000), ("a", Release(5000), True), ("b", Acquire(), 4999)],
    ),
    "same fence twice": (
        "lock",
        [("a", Acquire(), 5000), ("a", Release(5000), True), ("b", Acquire(), 5000)],
    ),
    "release by another": ("lock", [("a", Acquire(), 5000), ("b", Release(5000), True)]),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_violation_is_found_in_the_middle_of_a_history(planted: str, seed: int) -> None:
    kind, said = PLANTED[planted]
    _, ask, model = KINDS[kind]
    # A write without outcome would be a reason.
    history = made(kind, seed, keys_count=2, unknown_share=0.0 if planted.startswith("refused") else 0.02)
    history.add_many(200, ask)
    history.pause()
    if kind == "lock":
        holder = history.things[0].holder  # type: ignore[attr-defined]
        history.claim((holder or "nobody", Release(), None))
    history.claim(*said)
    history.pause()
    history.add_many(200, ask)
    verdict = check_linearizability(history.calls, model)
    assert verdict.judgement is Judgement.VIOLATED
    assert not verdict.is_linearizable
    assert verdict.key == 0
    assert verdict.counterexample is not None
    assert verdict.counterexample.impossible.answer == said[-1][-1]
    # Short: what was planted, and the calls without outcome, none of which helps.
    answered = [one for one in verdict.counterexample.calls if one.is_answered]
    assert len(answered) <= len(said), str(verdict)


@pytest.mark.parametrize("seed", range(5))
def test_an_addition_that_was_lost_is_found(seed: int) -> None:
    history = made("counter", seed, keys_count=1, unknown_share=0.0)
    history.add_many(200, ask_counter)
    history.pause()
    value: int = history.things[0]("reader", Read())
    history.claim(("a", Add(1), value + 1), ("b", Add(1), value + 1))
    verdict = check_linearizability(history.calls, CounterModel())
    assert verdict.counterexample is not None
    assert verdict.counterexample.impossible is history.calls[-1]
    assert verdict.counterexample.states == (value + 1,)


def test_two_clients_that_both_update_from_one_reading_lose_one_update() -> None:
    calls = [
        call("a", Read(), None, 0.0, 1.0),
        call("b", Read(), None, 0.5, 1.5),
        call("a", CompareAndSet(None, 1), True, 2.0, 4.0),
        call("b", CompareAndSet(None, 2), True, 3.0, 5.0),
    ]
    verdict = check_linearizability(calls, RegisterModel())
    assert verdict.judgement is Judgement.VIOLATED
    shown = verdict.counterexample
    assert shown is not None
    assert (shown.context, shown.states, shown.calls) == ((calls[2],), (1,), (calls[3],))


def test_two_reads_cannot_see_two_writes_in_different_orders() -> None:
    calls = [
        call("a", Write(1), None, 0.0, 9.0),
        call("b", Write(2), None, 0.0, 9.0),
        call("c", Read(), 1, 1.0, 2.0),
        call("c", Read(), 2, 3.0, 4.0),
        call("d", Read(), 2, 1.0, 2.0),
        call("d", Read(), 1, 3.0, 4.0),
    ]
    assert check_linearizability(calls, RegisterModel()).judgement is Judgement.VIOLATED
    assert check_linearizability(calls[:4], RegisterModel()).is_linearizable


def test_keys_are_judged_by_themselves() -> None:
    good = Call(process="a", key="x", asked=Write(1), called_s=0.0, returned_s=1.0)
    bad = Call(process="a", key="y", asked=Read(), answer=1, called_s=2.0, returned_s=3.0)
    verdict = check_linearizability([good, bad], RegisterModel())
    assert (verdict.judgement, verdict.key) == (Judgement.VIOLATED, "y")


def test_a_counterexample_reads_as_a_timeline() -> None:
    calls = [
        call("client 1", Write(1), None, 0.0, 0.010),
        call("client 2", Write(2), None, 0.012, 0.020),
        call("client 3", Read(), 2, 0.021, 0.022),
        call("client 1", Read(), 1, 0.024, 0.031),
        call("client 2", Read(), 2, 0.050, 0.060),
    ]
    assert str(check_linearizability(calls, RegisterModel())) == (
        "not linearizable: key ''\n"
        "       0.00 ms  client 1  ===========                        write 1 -> None\n"
        "      12.00 ms  client 2              =========              write 2 -> None\n"
        "  so it was: 2\n"
        "      24.00 ms  client 1                          ========   read -> 1   <-- cannot be"
    )


def test_reads_that_explain_nothing_are_not_part_of_a_counterexample() -> None:
    calls = [
        call("a", Write(1), None, 0.0, 1.0),
        call("b", Read(), 1, 2.0, 9.0),
        call("c", Read(), "never", 3.0, 4.0),
        call("d", Read(), 1, 3.5, 9.0),
    ]
    shown = check_linearizability(calls, RegisterModel()).counterexample
    assert shown is not None
    assert (shown.context, shown.calls) == ((calls[0],), (calls[2],))


def test_a_counterexample_says_what_was_there_before_any_call() -> None:
    text = str(check_linearizability([call("a", Read(), 1, 0.0, 1.0)], RegisterModel(initial=0)))
    assert "it begins with: 0" in text


def test_a_counterexample_shows_the_last_changes_also_those_without_an_outcome() -> None:
    calls = []
    for turn in range(10):
        calls.append(call(f"p{turn}", Acquire(), turn + 1, 2.0 * turn, 2.0 * turn + 1.0))
        calls.append(call(f"p{turn}", Release(turn + 1), None, 2.0 * turn + 1.5, None))
    calls[-1] = call("q", Acquire(), 11, 20.0, 21.0)
    assert str(check_linearizability(calls, LockModel())) == (
        "not linearizable: key ''\n"
        "       0.00 ms  p7  ................................>  release 8 (no answer)\n"
        "     500.00 ms  p8     ======                          acquire -> 9\n"
        "    2000.00 ms  p8             .....................>  release 9 (no answer)\n"
        "    2500.00 ms  p9                =======              acquire -> 10\n"
        "  so it was: p9 with fence 10\n"
        "    4500.00 ms  q                            =======   acquire -> 11   <-- cannot be"
    )


def test_old_calls_without_outcome_are_counted_and_not_shown() -> None:
    calls = [call("a", Write(number), None, 0.001 * number, None) for number in range(7)]
    calls.append(call("b", Read(), "never", 1.0, 1.1))
    text = str(check_linearizability(calls, RegisterModel()))
    assert "(7 older calls without an outcome" in text
    assert text.count("write") == 0


# ---- what is not decided -------------------------------------------------------------------------


def crowd(count: int) -> list[Call]:
    """All write at the same time, and then there is a value that nobody wrote."""
    calls = [call(f"w{number}", Write(number), None, 0.0, 1.0 + number) for number in range(count)]
    return [*calls, call("r", Read(), "never", 0.5, 0.9)]


def test_too_much_work_is_said_and_is_not_a_yes() -> None:
    verdict = check_linearizability(crowd(30), RegisterModel(), steps_max=10_000)
    assert verdict.judgement is Judgement.UNDECIDED
    assert not verdict.is_linearizable
    assert "undecided" in str(verdict)
    assert verdict.steps_count < 11_000


class CountedLock(LockModel):
    """Counts how often it is asked."""

    asked_count = 0

    def step(self, state: LockState, process: str, asked: Any, answer: Any) -> tuple[LockState, ...]:
        CountedLock.asked_count += 1
        return super().step(state, process, asked, answer)


def test_work_on_many_calls_without_an_outcome_is_bounded_too() -> None:
    """Which of them were used is compared again and again, and that soon costs more than the model does."""
    calls = [call(f"p{number}", Acquire(), None, 0.0, None) for number in range(30)]
    calls += [call(f"p{number}", Release(), None, 0.0, None) for number in range(30)]
    calls += [call("a", Acquire(), 100, 1.0, 2.0), call("b", Acquire(), 101, 3.0, 4.0)]
    CountedLock.asked_count = 0
    verdict = check_linearizability(calls, CountedLock(), steps_max=100_000)
    assert verdict.judgement is Judgement.UNDECIDED
    assert 1_000 < CountedLock.asked_count < 80_000


@pytest.mark.parametrize("steps_max", range(1, 60))
def test_a_bound_that_is_reached_at_the_last_step_does_not_pass_for_a_violation(steps_max: int) -> None:
    calls = [
        call("a", Write(1), None, 0.0, 3.0),
        call("b", Write(2), None, 0.0, 3.0),
        call("c", CompareAndSet(1, 3), True, 0.0, 3.0),
        call("d", Read(), 3, 4.0, 5.0),
    ]
    verdict = check_linearizability(calls, RegisterModel(), steps_max=steps_max)
    assert verdict.judgement is not Judgement.VIOLATED
    assert steps_max < 59 or verdict.is_linearizable


def test_a_violated_key_decides_even_after_an_undecided_one() -> None:
    bad = Call(process="a", key="y", asked=Read(), answer=1, called_s=2.0, returned_s=3.0)
    verdict = check_linearizability([*crowd(30), bad], RegisterModel(), steps_max=10_000)
    assert (verdict.judgement, verdict.key) == (Judgement.VIOLATED, "y")


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(BadArgument, match="steps_max"):
        check_linearizability([], RegisterModel(), steps_max=0)
    with pytest.raises(BadArgument, match="before it was made"):
        call("a", Read(), None, 1.0, 0.5)
    for model, asked in ((RegisterModel(), Acquire()), (CounterModel(), Write(1)), (LockModel(), Read())):
        with pytest.raises(TypeError, match="knows"):
            check_linearizability([call("a", asked, None, 0.0, 1.0)], model)
