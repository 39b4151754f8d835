"""Open calls: each out exactly once, ids that never meet, an alarm that is neither early nor put off."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from hansa.errors import BadArgument
from hansa.limits import TRY_S_MIN
from hansa.presence.provider_info import ProviderInfo
from hansa.services.gateway.calls import ALARM_S_MIN, NEVER, Call, Calls, as_parts, blocked
from hansa.services.gateway.pool import PoolMember

UINT64_MAX = 2**64 - 1


def a_call(request_id: int, deadline: float = NEVER) -> Call:
    return Call(request_id, "echo", [b"x"], 0, deadline, None)


def a_member(endpoint: str = "tcp://127.0.0.1:1") -> PoolMember:
    return PoolMember(
        ProviderInfo(service="echo", endpoint=endpoint, routing_id=b"p", weight=1, registered_at=0.0)
    )


@pytest.mark.spec("DIS-19")
def test_ids_grow_and_go_round_at_the_end_without_zero() -> None:
    calls = Calls(UINT64_MAX - 2)
    assert [calls.next_id() for _ in range(4)] == [UINT64_MAX - 1, UINT64_MAX, 1, 2]


@pytest.mark.spec("DIS-23")
def test_an_id_that_a_caller_chose_is_passed_over() -> None:
    calls = Calls(10)
    for taken in (11, 12, 14):
        calls.open[calls.claim_id(taken)] = a_call(taken)
    assert [calls.next_id() for _ in range(2)] == [13, 15]


@pytest.mark.spec("DIS-23")
@pytest.mark.parametrize("request_id", [-1, UINT64_MAX + 1])
def test_an_id_that_is_no_u64_cannot_be_claimed(request_id: int) -> None:
    with pytest.raises(BadArgument, match="not a u64"):
        Calls(0).claim_id(request_id)


@pytest.mark.spec("DIS-23")
def test_an_id_in_use_cannot_be_claimed() -> None:
    calls = Calls(0)
    assert calls.claim_id(0) == 0
    calls.open[0] = a_call(0)
    with pytest.raises(BadArgument, match="in flight already"):
        calls.claim_id(0)


def test_calls_are_found_by_member_and_by_the_name_it_was_connected_under() -> None:
    calls, one, two = Calls(0), a_member(), a_member()
    for request_id, member, peer in ((1, one, b"a"), (2, two, b"a"), (3, one, b"b"), (4, one, b"a")):
        call = calls.open[request_id] = a_call(request_id)
        call.member, call.peer = member, peer
    assert [call.request_id for call in calls.of_member(one, b"a")] == [1, 4]


def test_an_alarm_is_never_put_off_by_a_shorter_deadline() -> None:
    calls = Calls(0)
    assert calls.alarm(5.0, now=0.0)
    first_at = calls.alarm_at
    now = first_at - ALARM_S_MIN / 2
    # Too short to be kept exactly: it is rung for when the first alarm rings.
    assert not calls.alarm(now, now=now)
    assert calls.alarm_at == first_at


def test_a_payload_is_copied_into_a_list_of_parts() -> None:
    given = [b"a", b"b"]
    parts = as_parts(given)
    given.clear()
    assert parts == [b"a", b"b"]
    assert as_parts(b"alone") == [b"alone"]
    assert as_parts((b"a", b"")) == [b"a", b""]


class CallsMachine(RuleBasedStateMachine):
    """Calls come, end in every way there is, and time passes as the driver would let it pass."""

    handed = Bundle("handed")

    def __init__(self) -> None:
        super().__init__()
        self.calls = Calls(100)
        self.now = 0.0
        self.deadlines: dict[int, float] = {}
        self.ended: list[int] = []

    @rule(target=handed, timeout=st.none() | st.floats(min_value=0.0, max_value=1.0), own=st.booleans())
    def open(self, timeout: float | None, own: bool) -> Call:
        request_id = self.calls.claim_id(len(self.deadlines)) if own else self.calls.next_id()
        assert request_id not in self.calls.open
        call = a_call(request_id, NEVER if timeout is None else self.now + timeout)
        self.calls.open[request_id] = call
        self.deadlines[request_id] = call.deadline
        self.calls.alarm(call.deadline, now=self.now)
        return call

    @rule(call=consumes(handed))
    def close(self, call: Call) -> None:
        if self.calls.open.pop(call.request_id, None) is not None:
            self.ended.append(call.request_id)

    @rule(step_s=st.floats(min_value=0.0, max_value=0.5))
    def pass_time(self, step_s: float) -> None:
        until = self.now + step_s
        while self.calls.alarm_at <= until:
            self.now = self.calls.alarm_at
            self.ring()
        self.now = until

    def ring(self) -> None:
        late = self.calls.expired(now=self.now)
        ids = [call.request_id for call in late]
        assert all(call.deadline <= self.now for call in late), "never early"
        assert ids == [one for one in self.deadlines if one in set(ids)], "in the order they were made"
        self.ended += ids
        assert self.calls.alarm_at > self.now, "an alarm that rings at once rings for ever"

    @precondition(lambda self: self.calls.open)
    @invariant()
    def nobody_is_forgotten(self) -> None:
        earliest = min(call.deadline for call in self.calls.open.values())
        if earliest < NEVER:
            # Late by no more than the alarm's own pace, counted from when it could be known.
            assert self.calls.alarm_at <= max(earliest, self.now) + ALARM_S_MIN

    @invariant()
    def each_is_open_or_ended_once(self) -> None:
        assert sorted([*self.calls.open, *self.ended]) == sorted(self.deadlines)
        assert len(self.calls) == len(self.calls.open)


TestCallsMachine = CallsMachine.TestCase
TestCallsMachine.settings = settings(max_examples=100, stateful_step_count=40)


# -- tries that take too long


def idempotent_call(request_id: int, at: float = 0.0) -> Call:
    return Call(request_id, "echo", [b"x"], 0, NEVER, None, started_at=at, idempotent=True)


def opened(calls: Calls, at: float, *, hedge_after_s: float = NEVER) -> Call:
    call = idempotent_call(calls.next_id(), at)
    if hedge_after_s < NEVER:
        calls.try_begun(call, hedge_after_s, at)
    calls.opened(call)
    return call


def test_tries_that_had_their_time_are_overdue_in_the_order_of_the_calls() -> None:
    calls = Calls(0)
    slow = opened(calls, 0.0, hedge_after_s=3.0)
    opened(calls, 0.1)
    first, second = (opened(calls, 0.2, hedge_after_s=0.5) for _ in range(2))
    assert calls.overdue(now=0.69) == []
    assert calls.look_at == 0.7
    assert calls.overdue(now=0.7) == [first, second]
    assert calls.look_at == 3.0
    for call in (first, second):
        call.look_again(NEVER)
    assert calls.overdue(now=3.0) == [slow]


def test_young_calls_are_not_looked_at_and_not_forgotten() -> None:
    calls = Calls(0)
    young = [opened(calls, 1.0 + number / 100, hedge_after_s=TRY_S_MIN) for number in range(5)]
    assert calls.overdue(now=1.05) == []
    assert calls.look_at == 1.0 + TRY_S_MIN
    assert calls.overdue(now=1.5) == young


@pytest.mark.parametrize("number", range(200))
def test_a_call_is_looked_at_when_its_time_comes_to_the_last_bit(number: int) -> None:
    """A timer may ring at the very moment that was asked for, and there is no other one for this call."""
    calls = Calls(0)
    call = opened(calls, 1000.0 + number / 7.0, hedge_after_s=TRY_S_MIN)
    assert calls.overdue(now=call.hedge_at) == [call]


def test_calls_that_must_not_be_sent_twice_ask_for_no_look() -> None:
    calls = Calls(0)
    for request_id, at in ((1, 1.0), (2, 5.0)):
        calls.opened(Call(request_id, "echo", [b"x"], 0, NEVER, None, started_at=at))
    assert calls.overdue(now=5.05) == []
    assert calls.look_at == NEVER


def posted(call: Call, member: PoolMember, peer: bytes, number: int) -> None:
    call.member, call.peer, call.post_number = member, peer, number


def test_a_try_stands_beside_the_next_and_becomes_the_present_one_when_it_is_answered() -> None:
    call, one, two = idempotent_call(1), a_member("tcp://one:1"), a_member("tcp://two:1")
    posted(call, one, b"1", 7)
    call.set_beside()
    assert (call.member, call.asked, call.tried) == (None, ["tcp://one:1"], ("tcp://one:1",))
    posted(call, two, b"2", 9)
    assert call.asked == ["tcp://one:1", "tcp://two:1"]
    assert not call.turn_to(b"3")
    assert call.turn_to(b"1")
    assert (call.member, call.peer, call.post_number) == (one, b"1", 7)
    assert list(call.beside) == [b"2"]
    assert call.tried == ("tcp://two:1",)
    call.drop_beside(b"2")
    assert call.asked == ["tcp://one:1"]


def test_the_calls_of_a_member_are_also_those_with_a_try_beside() -> None:
    calls = Calls(0)
    one, two = a_member("tcp://one:1"), a_member("tcp://two:1")
    hedged, other = opened(calls, 0.0), opened(calls, 0.0)
    posted(hedged, one, b"p", 1)
    hedged.set_beside()
    posted(hedged, two, b"q", 1)
    posted(other, two, b"q", 2)
    assert calls.of_member(one, b"p") == [hedged]
    assert calls.of_member(two, b"q") == [hedged, other]
    # The same process, as a provider of another service.
    assert calls.of_member(a_member("tcp://one:1"), b"p") == []


# -- a loop that stood still


def test_a_loop_that_stood_still_for_a_large_share_of_the_time_is_named() -> None:
    assert "for 4.000 s of these" in blocked(started_at=0.0, due_at=1.0, now=5.0)
    assert "stood still" in blocked(started_at=0.0, due_at=1.0, now=1.4)
    # Asked after the timer was due: it stood still from its very beginning.
    assert "for 2.000 s of these" in blocked(started_at=3.0, due_at=1.0, now=5.0)


def test_a_loop_that_was_a_little_late_is_not_blamed() -> None:
    assert blocked(started_at=0.0, due_at=5.0, now=5.0) == ""
    assert blocked(started_at=0.0, due_at=5.0, now=6.0) == ""
    assert blocked(started_at=0.0, due_at=0.01, now=0.1) == ""
