"""What is done next about a request to join, from each state it may be found in."""

from dataclasses import replace

import pytest

from hansa.errors import InvariantBroken
from hansa.store.raft.group_record import Approval, JoinRecord, JoinState, PeerInfo
from hansa.store.raft.join_steps import (
    TRANSITIONS,
    AddLearner,
    Finish,
    MemberView,
    Promote,
    Refuse,
    Remember,
    RemoveLearner,
    Step,
    Wait,
    leave_problem,
    moved,
    next_request,
    next_step,
    orphans,
)

S = JoinState
N1, N2, N3 = (
    MemberView(peer_id=number, name=f"n{number}", peer_address=f"h:{number}") for number in (1, 2, 3)
)
VOTERS = (N1, N2, N3)
PEER = PeerInfo(name="n4", peer_address="h:4", client_address="h:40", join_address="h:41")
RECORD = JoinRecord(app="orders", peer=PEER, ticket="t1", lease=7)
LEARNER = MemberView(peer_id=4, name="n4", peer_address="h:4", is_learner=True)


def in_state(state: JoinState, peer_id: int = 4) -> JoinRecord:
    return replace(RECORD, state=state, peer=replace(PEER, peer_id=peer_id))


def step_of(record: JoinRecord, *members: MemberView, is_patience_over: bool = False) -> Step:
    return next_step(record, members, is_patience_over=is_patience_over)


def manual_step(record: JoinRecord, *members: MemberView) -> Step:
    return next_step(record, members, is_patience_over=False, approval=Approval.MANUAL)


def away(member: MemberView) -> MemberView:
    return replace(member, is_reachable=False)


def refused(step: Step) -> str:
    assert isinstance(step, Refuse)
    return step.code


def test_a_good_request_is_written_down_before_anything_is_done() -> None:
    assert step_of(RECORD, *VOTERS) == Remember(record=replace(RECORD, state=S.ADDING))


def test_a_name_or_an_address_that_is_taken_is_refused() -> None:
    other_address = replace(RECORD, peer=replace(PEER, name="n1"))
    assert refused(step_of(other_address, *VOTERS)) == "name-taken"
    other_name = replace(RECORD, peer=replace(PEER, peer_address="h:1"))
    assert refused(step_of(other_name, *VOTERS)) == "name-taken"


def test_who_has_its_vote_already_is_told_so() -> None:
    assert refused(step_of(RECORD, *VOTERS, replace(LEARNER, is_learner=False))) == "already-member"


def test_a_full_group_takes_nobody() -> None:
    members = [MemberView(peer_id=n, name=f"m{n}", peer_address=f"m:{n}") for n in range(7)]
    assert refused(step_of(RECORD, *members)) == "full"
    assert isinstance(step_of(RECORD, *members[1:]), Remember)


def test_a_group_that_is_not_healthy_is_waited_for_and_then_refuses() -> None:
    members = (N1, away(N2), N3)
    assert isinstance(step_of(RECORD, *members), Wait)
    step = step_of(RECORD, *members, is_patience_over=True)
    assert refused(step) == "unhealthy"
    assert isinstance(step, Refuse)
    assert "n2" in step.reason


@pytest.mark.spec("CRD-16")
def test_a_person_is_asked_after_the_checks_and_before_anything_is_changed() -> None:
    assert manual_step(RECORD, *VOTERS) == Remember(record=replace(RECORD, state=S.PENDING))
    assert refused(manual_step(replace(RECORD, peer=replace(PEER, name="n1")), *VOTERS)) == "name-taken"
    assert isinstance(manual_step(RECORD, N1, away(N2), N3), Wait)
    assert isinstance(manual_step(in_state(S.PENDING, 0), *VOTERS), Wait)


@pytest.mark.spec("CRD-16")
def test_what_was_approved_is_checked_again() -> None:
    approved = in_state(S.APPROVED, 0)
    assert manual_step(approved, *VOTERS) == Remember(record=replace(approved, state=S.ADDING))
    taken = replace(approved, peer=replace(PEER, name="n1"))
    assert refused(manual_step(taken, *VOTERS)) == "name-taken"
    assert isinstance(manual_step(approved, N1, away(N2), N3), Wait)


def test_a_group_that_needs_no_approval_any_more_goes_on_with_those_that_waited_for_it() -> None:
    pending = in_state(S.PENDING, 0)
    assert step_of(pending, *VOTERS) == Remember(record=replace(pending, state=S.ADDING))
    assert next_request([pending], Approval.AUTOMATIC) is pending


@pytest.mark.spec("CRD-16")
def test_a_request_that_waits_for_a_person_is_in_nobodys_way() -> None:
    pending, later = in_state(S.PENDING, 0), replace(RECORD, ticket="t2")
    assert next_request([pending, later], Approval.MANUAL) is later
    assert next_request([pending], Approval.MANUAL) is None
    approved = in_state(S.APPROVED, 0)
    assert next_request([pending, approved, later], Approval.MANUAL) is approved


def test_a_learner_at_the_address_of_one_that_waits_for_a_person_is_left_of_an_earlier_request() -> None:
    assert orphans([*VOTERS, LEARNER], [in_state(S.PENDING, 0)]) == [RemoveLearner(peer_id=4, name="n4")]
    assert orphans([*VOTERS, LEARNER], [in_state(S.APPROVED, 0)]) == []


def test_one_joins_at_a_time() -> None:
    other = replace(LEARNER, peer_id=9, name="n9", peer_address="h:9")
    assert isinstance(step_of(RECORD, *VOTERS, other), Wait)


def test_a_learner_of_an_earlier_request_of_the_same_peer_is_removed_first() -> None:
    assert step_of(RECORD, *VOTERS, LEARNER) == RemoveLearner(peer_id=4, name="n4")


def test_adding_adds_and_then_accepts_what_the_list_shows() -> None:
    adding = in_state(S.ADDING, peer_id=0)
    assert step_of(adding, *VOTERS) == AddLearner(peer_address="h:4")
    step = step_of(adding, *VOTERS, replace(LEARNER, name=""))
    assert isinstance(step, Remember)
    assert step.record.state is S.ACCEPTED
    assert step.record.peer.peer_id == 4
    assert step.record.initial_cluster == {"n1": "h:1", "n2": "h:2", "n3": "h:3", "n4": "h:4"}


def test_adding_to_a_group_that_became_unhealthy_waits_and_is_then_refused() -> None:
    adding = in_state(S.ADDING, peer_id=0)
    assert isinstance(step_of(adding, N1, N2, away(N3)), Wait)
    assert refused(step_of(adding, N1, N2, away(N3), is_patience_over=True)) == "unhealthy"
    # Too late to refuse: it is there.
    assert isinstance(step_of(adding, N1, N2, away(N3), LEARNER, is_patience_over=True), Remember)


def test_a_learner_is_promoted_only_after_it_has_said_so_and_answers() -> None:
    assert isinstance(step_of(in_state(S.ACCEPTED), *VOTERS, LEARNER), Wait)
    assert isinstance(step_of(in_state(S.SYNCING), *VOTERS, away(LEARNER)), Wait)
    assert step_of(in_state(S.SYNCING), *VOTERS, LEARNER) == Remember(record=in_state(S.PROMOTING))
    assert step_of(in_state(S.PROMOTING), *VOTERS, LEARNER) == Promote(peer_id=4)
    # It fell silent after it had caught up: its vote would take the others their quorum.
    assert isinstance(step_of(in_state(S.PROMOTING), N1, N2, away(N3), away(LEARNER)), Wait)


@pytest.mark.parametrize("state", [S.ACCEPTED, S.SYNCING, S.PROMOTING])
def test_who_has_its_vote_is_finished_and_who_is_gone_is_refused(state: JoinState) -> None:
    voter = replace(LEARNER, is_learner=False)
    assert step_of(in_state(state), *VOTERS, voter) == Finish(peer=replace(PEER, peer_id=4))
    assert refused(step_of(in_state(state), *VOTERS)) == "removed"


@pytest.mark.parametrize("state", [S.DONE, S.REFUSED, S.EXPIRED])
def test_what_has_ended_is_left_alone(state: JoinState) -> None:
    assert isinstance(step_of(in_state(state), *VOTERS, LEARNER), Wait)


def test_every_state_is_in_the_table_and_what_is_not_cannot_happen() -> None:
    assert set(TRANSITIONS) == set(JoinState)
    for before in JoinState:
        for after in JoinState:
            if after in TRANSITIONS[before]:
                assert moved(in_state(before), after).state is after
            else:
                with pytest.raises(InvariantBroken):
                    moved(in_state(before), after)


def test_one_that_has_begun_comes_before_those_that_wait() -> None:
    waiting = [replace(RECORD, ticket="a"), replace(RECORD, ticket="b")]
    begun = replace(in_state(S.SYNCING), ticket="c")
    assert next_request([*waiting, begun]) is begun
    assert next_request(waiting) is waiting[0]
    assert next_request([in_state(S.REFUSED)]) is None


def test_a_learner_without_an_open_request_is_an_orphan_and_a_voter_never_is() -> None:
    assert orphans([*VOTERS, LEARNER], []) == [RemoveLearner(peer_id=4, name="n4")]
    assert orphans([*VOTERS, LEARNER], [in_state(S.REFUSED)]) == [RemoveLearner(peer_id=4, name="n4")]
    assert orphans([*VOTERS, LEARNER], [in_state(S.ADDING)]) == []
    assert orphans(VOTERS, []) == []


def test_leaving_keeps_a_quorum_that_answers() -> None:
    assert leave_problem(VOTERS, 1) == ""
    assert "quorum of them is 2" in leave_problem([N1, away(N2), N3], 1)
    # The one that does not answer may go: the two that remain answer.
    assert leave_problem([N1, away(N2), N3], 2) == ""
    assert leave_problem([N1, N2], 1) == ""
    assert "last peer" in leave_problem([N1], 1)
    assert "one change at a time" in leave_problem([*VOTERS, LEARNER], 1)
    assert leave_problem(VOTERS, 99) == ""
