"""No decision about a small group takes it its quorum: every group, every decision, and every two at once."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import pytest

from hansa.store.raft.group_record import JoinRecord, JoinState, PeerInfo
from hansa.store.raft.join_steps import (
    AddLearner,
    MemberView,
    Promote,
    RemoveLearner,
    leave_problem,
    next_step,
    orphans,
)

VOTERS_MAX = 6
PEER = PeerInfo(name="n9", peer_address="h:9", client_address="h:90", join_address="h:91", peer_id=9)
Members = tuple[MemberView, ...]
Change = Callable[[Members], Members]


def member(number: int, *, answers: bool, is_learner: bool = False) -> MemberView:
    return MemberView(
        peer_id=number,
        name=f"n{number}",
        peer_address=f"h:{number}",
        is_learner=is_learner,
        is_reachable=answers,
    )


def has_quorum(members: Members) -> bool:
    voters = [one for one in members if not one.is_learner]
    return sum(one.is_reachable for one in voters) >= len(voters) // 2 + 1


def groups(*, are_sound: bool = True) -> Iterator[Members]:
    """Every group that has a quorum (or that has none), with a learner and without."""
    for count in range(1, VOTERS_MAX + 1):
        for answers in product((True, False), repeat=count):
            voters = tuple(member(number, answers=one) for number, one in enumerate(answers, 1))
            if has_quorum(voters) == are_sound:
                yield voters
                yield from ((*voters, member(9, answers=one, is_learner=True)) for one in (True, False))


def without(peer_id: int) -> Change:
    return lambda members: tuple(one for one in members if one.peer_id != peer_id)


def promoted(peer_id: int) -> Change:
    return lambda members: tuple(
        replace(one, is_learner=one.is_learner and one.peer_id != peer_id) for one in members
    )


def added(members: Members) -> Members:
    return (*members, member(9, answers=False, is_learner=True))


def decisions(members: Members) -> Iterator[tuple[str, Change]]:
    """All that a leader's peer may do to the list of members of such a group."""
    for one in members:
        if one.is_learner or not leave_problem(members, one.peer_id):
            yield f"{one.name} leaves", without(one.peer_id)
    for step in orphans(members, []):
        yield f"orphan {step.name} is removed", without(step.peer_id)
    for state, is_patience_over in product(JoinState, (False, True)):
        record = JoinRecord(app="orders", peer=PEER, ticket="t", state=state)
        done = next_step(record, members, is_patience_over=is_patience_over)
        if isinstance(done, AddLearner):
            yield f"{state}: added", added
        elif isinstance(done, RemoveLearner):
            yield f"{state}: learner removed", without(done.peer_id)
        elif isinstance(done, Promote):
            yield f"{state}: promoted", promoted(done.peer_id)


@pytest.mark.spec("CRD-12")
def test_no_decision_takes_a_group_its_quorum() -> None:
    seen_count = 0
    for group in groups():
        for what, change in decisions(group):
            seen_count += 1
            assert has_quorum(change(group)), (what, group)
    assert seen_count > 300


@pytest.mark.spec("CRD-12")
def test_two_decisions_on_the_same_list_do_not_either() -> None:
    """By a leader's peer and by that of the leader before, which does not know yet; in either order."""
    seen_count = 0
    for group in groups():
        decided = list(decisions(group))
        for (what, first), (also, second) in product(decided, decided):
            left = second(first(group))
            # Of a group of two each may go, and etcd does not take a removal from one that is gone itself.
            if not left:
                continue
            seen_count += 1
            assert has_quorum(left), (what, also, group)
    assert seen_count > 1000


@pytest.mark.spec("CRD-12")
def test_one_that_is_away_may_always_be_removed_where_the_others_can_do_without() -> None:
    for group in groups():
        for one in group:
            if not one.is_reachable and has_quorum(without(one.peer_id)(group)) and len(group) > 1:
                is_joining = any(other.is_learner for other in group)
                assert bool(leave_problem(group, one.peer_id)) == (is_joining and not one.is_learner)


@pytest.mark.spec("CRD-12")
def test_nobody_leaves_a_group_whose_others_would_not_be_a_quorum() -> None:
    """Also where the list is wrong: so few seem to answer that the group could not decide at all."""
    for group in groups(are_sound=False):
        for one in group:
            if not one.is_learner and not leave_problem(group, one.peer_id):
                assert has_quorum(without(one.peer_id)(group)), (one.name, group)


def test_a_vote_is_given_only_to_one_that_answers() -> None:
    for group in groups():
        for state in JoinState:
            record = JoinRecord(app="orders", peer=PEER, ticket="t", state=state)
            step = next_step(record, group, is_patience_over=False)
            if isinstance(step, Promote):
                assert next(one for one in group if one.peer_id == step.peer_id).is_reachable
