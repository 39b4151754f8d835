"""The members of a service: who is ready is always who a look at everybody would find."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hansa.presence.provider_info import ProviderInfo
from hansa.services.gateway.pool import Pool, PoolMember

ENDPOINTS = ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "tcp://127.0.0.1:3"]
IDS = [b"ann", b"bob", b"cyd"]


def info(endpoint: str = ENDPOINTS[0], routing_id: bytes = b"ann", weight: int = 1) -> ProviderInfo:
    return ProviderInfo(
        service="echo", endpoint=endpoint, routing_id=routing_id, weight=weight, registered_at=0.0
    )


def added(pool: Pool, provider: ProviderInfo) -> PoolMember:
    member = pool.add(provider)
    assert member is not None
    return member


@pytest.mark.spec("DIS-18")
def test_a_member_is_ready_under_its_listed_id_only() -> None:
    pool = Pool("echo")
    member = added(pool, info(routing_id=b"ann"))
    assert pool.ready == []
    assert not pool.connected(member, b"somebody else")
    assert pool.ready == []
    pool.disconnected(member)
    assert pool.connected(member, b"ann")
    assert pool.ready == [member]


@pytest.mark.spec("DIS-18")
def test_a_connected_stranger_is_ready_when_the_list_changes_to_it() -> None:
    pool = Pool("echo")
    member = added(pool, info(routing_id=b"ann"))
    pool.connected(member, b"bob")
    assert pool.add(info(routing_id=b"bob")) is None
    assert pool.ready == [member]


def test_a_member_that_drains_gets_nothing_until_another_process_answers_in_its_place() -> None:
    pool = Pool("echo")
    member = added(pool, info())
    pool.connected(member, b"ann")
    pool.drains(member)
    assert pool.ready == []
    pool.reweigh(info(weight=2))
    pool.dismiss(member)
    assert pool.add(info()) is None
    assert pool.ready == []
    pool.disconnected(member)
    assert pool.is_hopeful
    assert pool.connected(member, b"ann")
    assert pool.ready == [member]


def test_hope_ends_with_the_first_attempt_and_comes_back_with_a_loss() -> None:
    pool = Pool("echo")
    assert not pool.is_hopeful
    member = added(pool, info())
    assert pool.is_hopeful
    member.tried = True
    assert not pool.is_hopeful
    pool.connected(member, b"ann")
    assert not pool.is_hopeful
    pool.disconnected(member)
    assert pool.is_hopeful
    pool.dismiss(member)
    assert not pool.is_hopeful


def test_a_member_that_is_listed_again_while_it_leaves_is_the_same_with_the_new_weight() -> None:
    pool = Pool("echo")
    member = added(pool, info(weight=1))
    pool.connected(member, b"ann")
    member.in_flight_count = 2
    pool.dismiss(member)
    assert pool.ready == []
    assert pool.add(info(weight=7)) is None
    assert pool.ready == [member]
    assert (member.weight, member.in_flight_count) == (7, 2)


@pytest.mark.spec("DIS-22")
def test_a_weight_changes_in_place_and_that_of_a_stranger_does_not_matter() -> None:
    pool = Pool("echo")
    member = added(pool, info())
    pool.reweigh(info(weight=5))
    pool.reweigh(info(endpoint=ENDPOINTS[1], weight=9))
    assert member.weight == 5


def test_the_member_that_is_listed_under_an_id_is_looked_at_first() -> None:
    pool = Pool("echo")
    first, second = added(pool, info(ENDPOINTS[0], b"ann")), added(pool, info(ENDPOINTS[1], b"bob"))
    assert next(pool.candidates(b"bob")) is second
    assert list(pool.candidates(b"nobody")) == [first, second]
    pool.forget(second)
    assert list(pool.candidates(b"bob")) == [first]


@pytest.mark.spec("DIS-24")
def test_who_was_tried_is_chosen_again_only_when_nobody_else_is_there() -> None:
    pool = Pool("echo")
    members = [
        added(pool, info(endpoint, routing_id)) for endpoint, routing_id in zip(ENDPOINTS, IDS, strict=True)
    ]
    for member in members:
        pool.connected(member, member.routing_id)
    assert pool.choices(()) is pool.ready
    assert pool.choices((ENDPOINTS[1],)) == [members[0], members[2]]
    assert pool.choices(tuple(ENDPOINTS)) == members


class PoolMachine(RuleBasedStateMachine):
    """Anything may happen to members in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool("echo")
        self.listed: dict[str, bytes] = {}

    @rule(endpoint=st.sampled_from(ENDPOINTS), routing_id=st.sampled_from(IDS))
    def add(self, endpoint: str, routing_id: bytes) -> None:
        known = endpoint in self.pool.members
        assert (self.pool.add(info(endpoint, routing_id)) is None) is known
        self.listed[endpoint] = routing_id

    @rule(endpoint=st.sampled_from(ENDPOINTS), how=st.sampled_from(["dismiss", "forget", "disconnected"]))
    def lose(self, endpoint: str, how: str) -> None:
        member = self.pool.members.get(endpoint)
        if member is None:
            return
        getattr(self.pool, how)(member)
        if how == "forget":
            assert endpoint not in self.pool.members
            self.pool.forget(member)  # Again: it does no harm.

    @rule(endpoint=st.sampled_from(ENDPOINTS), peer=st.sampled_from(IDS))
    def connect(self, endpoint: str, peer: bytes) -> None:
        member = self.pool.members.get(endpoint)
        if member is not None:
            ready = self.pool.connected(member, peer)
            assert ready == (peer == self.listed[endpoint] and not member.leaving)
            assert member.posted_count == 0

    @invariant()
    def ready_is_who_a_look_at_everybody_finds(self) -> None:
        members = self.pool.members.values()
        naive = {one.endpoint for one in members if not one.leaving and one.peer == one.routing_id}
        assert sorted(naive) == sorted(one.endpoint for one in self.pool.ready)
        assert all(one.in_ready == (one in self.pool.ready) for one in members)

    @invariant()
    def every_member_can_be_found_by_a_connection(self) -> None:
        for member in self.pool.members.values():
            assert member in list(self.pool.candidates(member.routing_id))
        for peer in IDS:
            assert set(self.pool.candidates(peer)) == set(self.pool.members.values())


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=100, stateful_step_count=40)


# -- suspicion


def connected_pool(*names: str) -> tuple[Pool, list[PoolMember]]:
    pool = Pool("echo")
    members = []
    for name in names:
        member = added(pool, info(f"tcp://{name}:1", name.encode()))
        pool.connected(member, member.routing_id)
        members.append(member)
    return pool, members


def test_a_suspected_member_gets_no_request_while_there_are_others() -> None:
    pool, (ann, bob) = connected_pool("ann", "bob")
    assert pool.choices(()) is pool.ready
    pool.suspect(ann, now=0.0)
    assert pool.choices(()) == [bob]
    assert pool.ready == [ann, bob]
    pool.suspect(bob, now=0.0)
    assert pool.choices(()) == [ann, bob]
    assert pool.choices((ann.endpoint,)) == [bob]


def test_beside_a_try_nobody_is_asked_who_is_asked_already() -> None:
    pool, (ann, bob, cyd) = connected_pool("ann", "bob", "cyd")
    asked = [ann.endpoint]
    assert pool.choices_beside(asked, (ann.endpoint,)) == [bob, cyd]
    pool.suspect(bob, now=0.0)
    assert pool.choices_beside(asked, (ann.endpoint,)) == [cyd]
    # Who was tried and lost is asked again when nobody else is left.
    assert pool.choices_beside(asked, (ann.endpoint, cyd.endpoint)) == [bob]
    assert pool.choices_beside(asked, (ann.endpoint, bob.endpoint, cyd.endpoint)) == [cyd]
    pool.disconnected(cyd)
    assert pool.choices_beside([ann.endpoint, bob.endpoint], (ann.endpoint, bob.endpoint)) == []


def test_a_message_clears_a_member_and_nobody_else() -> None:
    pool, (ann, bob, cyd) = connected_pool("ann", "bob", "cyd")
    pool.suspect(ann, now=0.0)
    pool.suspect(bob, now=0.0)
    pool.heard(ann.peer)
    assert pool.well == [ann, cyd]
    pool.heard(cyd.peer)
    assert list(pool.suspects) == [bob]


def test_suspicion_ends_after_a_while_that_is_twice_as_long_each_time() -> None:
    pool, (ann, _) = connected_pool("ann", "bob")
    now, lasted = 0.0, []
    for _ in range(6):
        pool.suspect(ann, now=now)
        pool.suspect(ann, now=now + 0.5)  # Another try of the same time: nothing new.
        lasted.append(ann.suspected_until - now)
        pool.relieve(now=ann.suspected_until - 0.001)
        assert ann in pool.suspects
        now = ann.suspected_until
        pool.relieve(now=now)
        assert pool.well == pool.ready
    assert lasted == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    pool.suspect(ann, now=now)
    pool.heard(ann.peer)
    pool.suspect(ann, now=now)
    assert ann.suspected_until == now + 1.0


def test_a_member_that_is_lost_or_leaves_is_no_suspect() -> None:
    pool, (ann, bob) = connected_pool("ann", "bob")
    pool.suspect(ann, now=0.0)
    pool.disconnected(ann)
    assert not pool.suspects
    pool.connected(ann, ann.routing_id)
    assert set(pool.choices(())) == {ann, bob}
    pool.suspect(bob, now=0.0)
    pool.forget(bob)
    assert not pool.suspects
    assert pool.choices(()) == [ann]


def test_a_member_that_is_listed_without_an_id_is_ready_under_any() -> None:
    pool = Pool("echo")
    first, second = (added(pool, info(endpoint, b"")) for endpoint in ENDPOINTS[:2])
    assert not first.is_ready
    assert pool.connected(first, b"ann")
    assert pool.connected(second, b"bob")
    assert pool.ready == [first, second]
    pool.disconnected(first)
    assert pool.ready == [second]
    assert pool.connected(first, b"eve")
    pool.forget(second)
    assert pool.ready == [first]
