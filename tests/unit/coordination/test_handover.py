"""The machine of a hand-over: who may write which step, and what the record says."""

import json
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.coordination.handover import (
    NEXT_STEPS,
    Actor,
    Facts,
    Handover,
    HandoverStep,
    advanced,
    decide,
    offered,
)
from hansa.errors import BadRecord, InvariantBroken
from hansa.limits import HANDOVER_PAST_COUNT

OFFERED, PREPARED, SEALED, TAKEN, DONE, WITHDRAWN = HandoverStep

WELL = Facts()
LATE = Facts(is_over_time=True)
REFUSED = Facts(refusal="no")
OWNER_GONE = Facts(is_owner_here=False)
TARGET_GONE = Facts(is_target_here=False)
BOTH_GONE = Facts(is_owner_here=False, is_target_here=False)
ALL_FACTS = (WELL, LATE, REFUSED, OWNER_GONE, TARGET_GONE, BOTH_GONE)


def offer(**changes: object) -> Handover:
    record = offered(
        None,
        kind="lock",
        name="dock",
        source="cog",
        target="hulk",
        epoch=7,
        owner_key="k/1",
        timeout=30.0,
        at=100.0,
        asked_by="me",
        reason="why",
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def at(step: HandoverStep) -> Handover:
    return offer(step=step)


# For each step and each who looks at it, what it writes when all is well; when it is late; when who looks
# will not go on; when the old owner, the new one, or both are gone. A dot is nothing.
TABLE = """
OFFERED   OWNER     .         WITHDRAWN WITHDRAWN .         .         .
OFFERED   TARGET    PREPARED  WITHDRAWN WITHDRAWN PREPARED  PREPARED  PREPARED
OFFERED   PLACED    PREPARED  WITHDRAWN WITHDRAWN PREPARED  PREPARED  PREPARED
OFFERED   HEIR      WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN
OFFERED   LEADER    .         WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN
OFFERED   OUTSIDER  .         WITHDRAWN WITHDRAWN WITHDRAWN .         WITHDRAWN
PREPARED  OWNER     SEALED    WITHDRAWN WITHDRAWN SEALED    WITHDRAWN WITHDRAWN
PREPARED  TARGET    .         WITHDRAWN WITHDRAWN .         .         .
PREPARED  PLACED    .         WITHDRAWN WITHDRAWN .         .         .
PREPARED  HEIR      WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN
PREPARED  LEADER    .         WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN WITHDRAWN
PREPARED  OUTSIDER  .         WITHDRAWN WITHDRAWN WITHDRAWN .         WITHDRAWN
SEALED    OWNER     .         WITHDRAWN .         .         WITHDRAWN WITHDRAWN
SEALED    TARGET    TAKEN     TAKEN     TAKEN     TAKEN     TAKEN     TAKEN
SEALED    PLACED    .         .         .         .         .         .
SEALED    HEIR      TAKEN     TAKEN     TAKEN     TAKEN     TAKEN     TAKEN
SEALED    LEADER    TAKEN     TAKEN     TAKEN     TAKEN     WITHDRAWN TAKEN
SEALED    OUTSIDER  .         .         .         .         .         .
TAKEN     OWNER     .         .         .         .         .         .
TAKEN     TARGET    DONE      DONE      DONE      DONE      DONE      DONE
TAKEN     PLACED    DONE      DONE      DONE      DONE      DONE      DONE
TAKEN     HEIR      TAKEN     TAKEN     TAKEN     TAKEN     TAKEN     TAKEN
TAKEN     LEADER    .         .         .         .         TAKEN     TAKEN
TAKEN     OUTSIDER  .         .         .         .         .         .
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[" ".join(row[:2]) for row in ROWS])
def test_each_who_looks_at_a_step_writes_what_it_must_and_nothing_else(row: list[str]) -> None:
    record, actor = at(HandoverStep[row[0]]), Actor[row[1]]
    found = [decide(record, actor, facts) for facts in ALL_FACTS]
    assert ["." if each is None else each.step.name for each in found] == row[2:]


def test_the_table_has_every_step_and_everybody() -> None:
    open_steps = [step.name for step in HandoverStep if step.is_open]
    assert [tuple(row[:2]) for row in ROWS] == list(product(open_steps, Actor.__members__))


@pytest.mark.parametrize("actor", Actor)
@pytest.mark.parametrize("step", [DONE, WITHDRAWN])
def test_nobody_adds_anything_to_one_that_has_ended(step: HandoverStep, actor: Actor) -> None:
    assert all(decide(at(step), actor, facts) is None for facts in ALL_FACTS)


def test_what_is_decided_is_a_step_that_may_follow_and_says_why() -> None:
    for step, actor, facts in product(HandoverStep, Actor, ALL_FACTS):
        decision = decide(at(step), actor, facts)
        if decision is not None:
            assert decision.step in NEXT_STEPS[step]
            assert bool(decision.trouble) is (decision.step is WITHDRAWN)


def test_only_who_gave_or_the_leader_takes_back_what_was_sealed() -> None:
    for actor, facts in product(Actor, ALL_FACTS):
        decision = decide(at(SEALED), actor, facts)
        if decision is not None and decision.step is WITHDRAWN:
            assert actor in (Actor.OWNER, Actor.LEADER)
            assert facts.is_over_time or not facts.is_target_here


def test_a_withdrawal_says_what_did_not_come_in_time() -> None:
    late = [decide(at(step), Actor.OWNER, LATE) for step in (OFFERED, PREPARED, SEALED)]
    assert [each.trouble for each in late if each is not None] == [
        "the new owner was not there within 30 s",
        "the old owner did not give it within 30 s",
        "the new owner did not take it within 30 s",
    ]
    refused = decide(at(OFFERED), Actor.TARGET, REFUSED)
    assert refused is not None
    assert refused.trouble == "no"


# ---- the record


def test_the_state_stays_until_it_was_read_or_is_of_no_use() -> None:
    record = advanced(offer(), PREPARED, at=101.0, target_key="k/2")
    record = advanced(record, SEALED, at=102.0, state=b"x", size=1)
    assert advanced(record, WITHDRAWN, at=103.0).state == b""
    record = advanced(record, TAKEN, at=103.0)
    again = advanced(record, TAKEN, at=104.0, target_key="k/3")
    assert (record.state, again.state, again.target_key) == (b"x", b"x", "k/3")
    done = advanced(again, DONE, at=105.0)
    assert (done.state, done.size, list(done.times.values())) == (b"", 1, [100.0, 101.0, 102.0, 104.0, 105.0])


@pytest.mark.parametrize(("step", "following"), list(product(HandoverStep, HandoverStep)))
def test_a_step_that_may_not_follow_is_a_bug(step: HandoverStep, following: HandoverStep) -> None:
    if following in NEXT_STEPS[step]:
        assert advanced(at(step), following, at=1.0).step is following
    else:
        with pytest.raises(InvariantBroken):
            advanced(at(step), following, at=1.0)


def test_one_that_was_withdrawn_says_how_far_it_was() -> None:
    record = advanced(offer(), WITHDRAWN, at=101.0, trouble="no")
    assert (record.reached, record.is_open) == (OFFERED, False)
    record = advanced(advanced(offer(), PREPARED, at=101.0), WITHDRAWN, at=102.0)
    assert record.reached is PREPARED


def test_the_next_one_remembers_those_before_but_not_for_ever() -> None:
    record = offer()
    for number in range(2, HANDOVER_PAST_COUNT + 5):
        ended = advanced(record, WITHDRAWN, at=float(number), trouble=f"no {number}")
        record = replace(
            offered(
                ended,
                kind="lock",
                name="dock",
                source="a",
                target="b",
                epoch=number,
                owner_key="k",
                timeout=1.0,
                at=1.0,
            )
        )
        assert record.number == number
    assert [past.number for past in record.past] == list(
        range(number - 1, number - 1 - HANDOVER_PAST_COUNT, -1)
    )
    assert record.past[0].trouble == f"no {number}"


def test_one_that_is_open_is_given_up_for_the_next() -> None:
    record = offered(
        at(PREPARED),
        kind="lock",
        name="dock",
        source="a",
        target="b",
        epoch=9,
        owner_key="k",
        timeout=1.0,
        at=1.0,
    )
    assert [(past.step, past.trouble) for past in record.past] == [(WITHDRAWN, "another one was begun")]


def test_whose_it_is_changes_when_it_is_taken() -> None:
    for step in HandoverStep:
        record = offer(step=step, target_key="k/2", next_epoch=20)
        assert record.is_of(b"k/2", 20) is (step in (TAKEN, DONE))
        assert record.is_of(b"k/1", record.epoch) is (step not in (TAKEN, DONE))


def test_a_later_claim_under_a_key_of_the_same_name_is_not_the_owner() -> None:
    assert not offer().is_of(b"k/1", offer().epoch + 1)
    assert not offer(step=TAKEN, target_key="k/2", next_epoch=20).is_of(b"k/2", 21)


@given(state=st.binary(max_size=50), reason=st.text(max_size=20), step=st.sampled_from(HandoverStep))
def test_a_record_comes_back_as_it_was(state: bytes, reason: str, step: HandoverStep) -> None:
    first = advanced(offer(reason=reason), WITHDRAWN, at=101.0, trouble="x")
    record = replace(
        offered(
            first,
            kind="lock",
            name="dock",
            source="a",
            target="b",
            epoch=9,
            owner_key="k",
            timeout=1.5,
            at=1.0,
        ),
        step=step,
        state=state,
        next_epoch=12 if step is TAKEN else 0,
    )
    found = Handover.decode(record.encode(), revision=12)
    assert found == record
    assert found.revision == 12


def test_a_record_with_more_fields_is_read() -> None:
    found = json.loads(offer().encode()) | {"later": 1}
    assert Handover.decode(json.dumps(found).encode()) == offer()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        b"{",
        *[
            json.dumps(json.loads(offer().encode()) | {name: bad}).encode()
            for name, bad in [
                ("step", "gone"),
                ("step", 1),
                ("times", []),
                ("times", {"offered": "x"}),
                ("times", {"x": 1}),
                ("state", "%%"),
                ("state", 1),
                ("number", "1"),
                ("kind", None),
                ("timeout", "1"),
                ("past", 1),
                ("past", [{}]),
                ("past", [1]),
            ]
        ],
    ],
)
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(BadRecord):
        Handover.decode(value)
