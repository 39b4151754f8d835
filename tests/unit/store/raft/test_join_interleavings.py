"""A join under every order of what leaders, the joining peer, a person and time can do to it.

The model has the store's record, the list of members, and what a leader that was deposed still carries in its
hands: a step that it decided on long ago and does now. Every state that can be reached is visited, and from
each the join must still come to an end.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from hansa.store.raft.group_record import Approval, JoinRecord, JoinState, PeerInfo
from hansa.store.raft.join_steps import (
    UNDECIDED,
    AddLearner,
    Finish,
    MemberView,
    Promote,
    Refuse,
    Remember,
    RemoveLearner,
    Step,
    Wait,
    moved,
    next_step,
    orphans,
)

S = JoinState
FOUNDERS = tuple(MemberView(peer_id=n, name=f"n{n}", peer_address=f"h:{n}") for n in (1, 2, 3))
PEER = PeerInfo(name="n4", peer_address="h:4", client_address="h:40", join_address="h:41")
FIRST = JoinRecord(app="orders", peer=PEER, ticket="t1", lease=1)
STALE_STEPS_MAX = 2
STEPS_MAX = 30


@dataclass(frozen=True)
class Held:
    """A step that somebody decided on, and the revision of the request then."""

    step: Step
    revision: int


@dataclass(frozen=True)
class World:
    """All that outlives a leader, and the steps in the hands of those who lead no more."""

    approval: Approval = Approval.AUTOMATIC
    record: tuple[JoinState, int, str] | None = (S.REQUESTED, 0, "t1")
    # The tickets that a person said yes to.
    approved: frozenset[str] = frozenset()
    revision: int = 1
    members: tuple[tuple[int, bool], ...] = ()
    next_id: int = 4
    done: tuple[int, ...] = ()
    orphans: frozenset[int] = frozenset()
    # A look for orphans that has read the members and not yet the requests.
    members_read: tuple[tuple[int, bool], ...] | None = None
    held: tuple[Held, ...] = ()
    stale_left: int = STALE_STEPS_MAX
    asks_left: int = 1

    def views(self, members: tuple[tuple[int, bool], ...] | None = None) -> list[MemberView]:
        mine = self.members if members is None else members
        return [
            *FOUNDERS,
            *(
                MemberView(peer_id=i, name="n4", peer_address="h:4", is_learner=learner)
                for i, learner in mine
            ),
        ]

    def join_record(self) -> JoinRecord | None:
        if self.record is None:
            return None
        state, peer_id, ticket = self.record
        return replace(FIRST, state=state, ticket=ticket, peer=replace(PEER, peer_id=peer_id))

    def written(self, record: JoinRecord) -> "World":
        kept = (record.state, record.peer.peer_id, record.ticket)
        return replace(self, record=kept, revision=self.revision + 1)

    def decided(self) -> Step:
        record = self.join_record()
        if record is None:
            return Wait(why="")
        return next_step(record, self.views(), is_patience_over=False, approval=self.approval)


def acted(world: World, held: Held) -> World:
    """The world after a step, decided at whatever time: writes compare revisions, etcd compares the rest."""
    step, record = held.step, world.join_record()
    is_current = record is not None and world.revision == held.revision
    if isinstance(step, Remember):
        if not is_current:
            return world
        is_allowed = world.approval is Approval.AUTOMATIC or step.record.ticket in world.approved
        assert step.record.state is not S.ADDING or is_allowed, "a peer joins that nobody approved"
        return world.written(step.record)
    if isinstance(step, Refuse):
        return world.written(moved(record, S.REFUSED)) if is_current and record else world
    if isinstance(step, Finish):
        if not is_current:
            return world
        return replace(world, record=None, revision=world.revision + 1, done=(*world.done, step.peer.peer_id))
    if isinstance(step, AddLearner):
        # etcd knows the address already.
        if world.members:
            return world
        return replace(world, members=((world.next_id, True),), next_id=world.next_id + 1)
    if isinstance(step, RemoveLearner):
        return without(world, step.peer_id)
    if isinstance(step, Promote):
        members = tuple((i, learner and i != step.peer_id) for i, learner in world.members)
        return replace(world, members=members)
    return world


def without(world: World, peer_id: int) -> World:
    assert peer_id not in {one.peer_id for one in FOUNDERS}, "a founder was removed"
    assert peer_id not in world.done, "a peer that has its place in the group was removed"
    return replace(world, members=tuple(one for one in world.members if one[0] != peer_id))


def looked(world: World, read: tuple[tuple[int, bool], ...]) -> World:
    """A look for orphans: what was one at the last look too is removed."""
    record = world.join_record()
    found = frozenset(one.peer_id for one in orphans(world.views(read), [record] if record else []))
    for peer_id in found & world.orphans:
        world = without(world, peer_id)
    return replace(world, orphans=found, members_read=None)


def reported(world: World) -> World:
    """The joining peer says that it has caught up."""
    record = world.join_record()
    if record is None or record.state is not S.ACCEPTED:
        return world
    return world.written(moved(record, S.SYNCING))


def approved(world: World) -> World:
    """A person says yes to the request that is there."""
    record = world.join_record()
    if record is None or record.state not in UNDECIDED or world.approval is Approval.AUTOMATIC:
        return world
    said = replace(world, approved=world.approved | {record.ticket})
    return said.written(moved(record, S.APPROVED))


def refused(world: World) -> World:
    """A person says no, before anything was changed for the peer."""
    record = world.join_record()
    if record is None or record.state not in UNDECIDED | {S.APPROVED}:
        return world
    return world.written(moved(record, S.REFUSED))


def successors(world: World) -> Iterator[World]:
    step = world.decided()
    # The leader acts. A crash before or after is no other world: nothing else is remembered.
    yield acted(world, Held(step, world.revision))
    if world.stale_left and not isinstance(step, Wait):
        yield replace(world, held=(*world.held, Held(step, world.revision)), stale_left=world.stale_left - 1)
    for held in world.held:
        rest = list(world.held)
        rest.remove(held)
        yield replace(acted(world, held), held=tuple(rest))
    yield reported(world)
    yield approved(world)
    yield refused(world)
    if world.record is not None:
        yield replace(world, record=None, revision=world.revision + 1)
    has_vote = any(not learner for _, learner in world.members)
    if world.asks_left and not has_vote:
        again = replace(FIRST, ticket="t2")
        yield replace(world.written(again), asks_left=world.asks_left - 1)
    yield replace(world, members_read=world.members)
    if world.members_read is not None:
        yield looked(world, world.members_read)
    # Another leader has not looked before.
    yield replace(world, orphans=frozenset())


def reachable(approval: Approval) -> set[World]:
    # A person makes many more orders: one deed of a former leader is enough there, two were tried once.
    stale_count = STALE_STEPS_MAX if approval is Approval.AUTOMATIC else 1
    start = World(approval=approval, stale_left=stale_count)
    seen, todo = {start}, deque([start])
    while todo:
        for world in successors(todo.popleft()):
            # Revisions only matter to what is held: renumbered, so that equal worlds are equal.
            small = renumbered(world)
            if small not in seen:
                seen.add(small)
                todo.append(small)
    return seen


def renumbered(world: World) -> World:
    held = tuple(
        sorted(
            (Held(one.step, 1 if one.revision == world.revision else 0) for one in world.held),
            key=repr,
        )
    )
    return replace(world, revision=1, held=held)


@pytest.fixture(scope="module", params=list(Approval))
def worlds(request: pytest.FixtureRequest) -> set[World]:
    return reachable(request.param)


@pytest.mark.spec("CRD-13")
def test_no_order_of_events_breaks_a_group(worlds: set[World]) -> None:
    # `without` has looked at every removal on the way.
    assert len(worlds) > 1000
    for world in worlds:
        assert len(world.members) <= 1, world
        assert all(any(i == peer_id for i, _ in world.members) for peer_id in world.done), world


@pytest.mark.spec("CRD-13")
@pytest.mark.parametrize("then", list(Approval))
def test_from_every_state_a_peer_that_goes_on_is_taken_in_or_told_why_not(
    worlds: set[World], then: Approval
) -> None:
    # Whichever way the group is set meanwhile. What only matters to what might still go wrong is left out.
    starts = {
        World(approval=then, record=one.record, members=one.members, next_id=one.next_id, done=one.done)
        for one in worlds
        if one.record is not None
    }
    for start in starts:
        # A person who is asked says yes; what was approved before the change of the setting counts.
        world = replace(start, approved=frozenset({"t1", "t2"}))
        for _ in range(STEPS_MAX):
            world = approved(reported(acted(world, Held(world.decided(), world.revision))))
            if world.record is None or world.record[0] is S.REFUSED:
                break
        else:
            pytest.fail(f"it never ends: {start}")
        if world.record is None:
            assert [learner for _, learner in world.members] == [False], start


@pytest.mark.spec("CRD-13")
def test_from_every_state_nothing_is_left_of_a_request_that_expired(worlds: set[World]) -> None:
    starts = {replace(one, record=None, held=(), members_read=None, approved=frozenset()) for one in worlds}
    for start in starts:
        world = start
        for _ in range(3):
            world = looked(world, world.members)
        assert not any(learner for _, learner in world.members), start


def test_the_model_sees_a_removal_that_must_not_be() -> None:
    with pytest.raises(AssertionError, match="has its place"):
        acted(World(members=((4, False),), done=(4,)), Held(RemoveLearner(peer_id=4, name="n4"), 0))


def test_the_model_sees_a_peer_that_nobody_approved() -> None:
    world = World(approval=Approval.MANUAL)
    record = world.join_record()
    assert record is not None
    with pytest.raises(AssertionError, match="nobody approved"):
        acted(world, Held(Remember(record=moved(record, S.ADDING)), world.revision))
