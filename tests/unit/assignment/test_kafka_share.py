"""What a member of a Kafka group does about each partition, as a function of what it hears."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.assignment.kafka_group import read_membership
from hansa.assignment.kafka_share import (
    AskWork,
    BeginWork,
    Command,
    DropWork,
    KafkaPart,
    KafkaShare,
    Membership,
    PartitionTenure,
    ReleaseEntry,
    StopTaking,
    TakeEntry,
    TenureState,
    is_believed,
)
from hansa.assignment.topology import EntryNote
from hansa.errors import UsageError

A, B = KafkaPart("orders", 0), KafkaPart("orders", 1)
ME = Membership("me", 3)


def assigned(share: KafkaShare, *parts: KafkaPart, now: float = 0.0) -> dict[KafkaPart, PartitionTenure]:
    commands = share.assigned(parts, ME, now=now)
    assert all(isinstance(command, TakeEntry) for command in commands)
    return {command.tenure.part: command.tenure for command in commands}


def owned(share: KafkaShare, part: KafkaPart, *, is_ready: bool = True) -> PartitionTenure:
    tenure = assigned(share, part)[part]
    assert share.took(tenure) == [BeginWork(share.get(part) or tenure)]
    if is_ready:
        assert share.opened(tenure)
    return tenure


def test_what_is_assigned_is_taken_at_once_then_begun_then_asked_for() -> None:
    share = KafkaShare()
    tenure = owned(share, A)
    assert share.state_of(tenure) is TenureState.READY
    (asked,) = share.revoked([A])
    assert isinstance(asked, AskWork)
    assert not share.is_over([A])
    share.given_up(tenure)
    assert share.is_over([A])
    assert share.given_back([A]) == []
    assert share.tenures == []


def test_what_is_lost_is_dropped_and_nobody_is_asked() -> None:
    share = KafkaShare()
    owned(share, A)
    (dropped,) = share.lost([A])
    assert isinstance(dropped, DropWork)
    assert share.revoked([A]) == []
    assert share.is_over([A])


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (TenureState.ASSIGNED, None),
        (TenureState.TAKING, StopTaking),
        (TenureState.READING, ReleaseEntry),
        (TenureState.READY, AskWork),
    ],
)
def test_what_is_revoked_early_keeps_no_rebalance_waiting(
    state: TenureState, command: type[Command] | None
) -> None:
    share = KafkaShare()
    if state in (TenureState.ASSIGNED, TenureState.TAKING):
        tenure = assigned(share, A)[A]
        if state is TenureState.ASSIGNED:
            share.refused(tenure, now=0.0)
    else:
        tenure = owned(share, A, is_ready=state is TenureState.READY)
    assert share.state_of(tenure) is state
    commands = share.revoked([A])
    assert [type(each) for each in commands] == ([] if command is None else [command])
    assert share.is_over([A]) is (state is not TenureState.READY)
    assert share.took(tenure) == []
    assert share.tick(now=1e9) == []


def test_a_try_that_was_refused_is_made_again_with_growing_pauses_and_others_go_on() -> None:
    share = KafkaShare()
    tenures = assigned(share, A, B)
    share.took(tenures[B])
    now, pauses = 0.0, []
    for _ in range(9):
        share.refused(tenures[A], now=now)
        assert share.tick(now=now) == []
        pauses.append(share.deadline() - now)
        now = share.deadline()
        (again,) = share.tick(now=now)
        assert isinstance(again, TakeEntry)
        assert again.tenure.number == tenures[A].number
    assert pauses == sorted(pauses, key=lambda pause: round(pause, 6))
    assert pauses[0] < 0.1
    assert 1.0 < pauses[-1] <= 5.0
    assert share.state_of(tenures[B]) is TenureState.READING
    assert share.deadline() == inf


def test_a_claim_that_is_lost_while_the_broker_stands_by_it_is_taken_again() -> None:
    share = KafkaShare()
    tenure = owned(share, A)
    share.fenced(tenure, now=5.0)
    assert share.state_of(tenure) is TenureState.ASSIGNED
    (again,) = share.tick(now=share.deadline())
    assert isinstance(again, TakeEntry)


def test_a_claim_that_is_lost_while_it_ends_keeps_nobody_waiting() -> None:
    share = KafkaShare()
    tenure = owned(share, A)
    share.revoked([A])
    share.fenced(tenure, now=0.0)
    assert share.is_over([A])


def test_news_of_an_earlier_tenure_changes_nothing() -> None:
    share = KafkaShare()
    old = assigned(share, A)[A]
    share.revoked([A])
    share.given_back([A])
    new = assigned(share, A)[A]
    assert new.number > old.number
    assert share.took(old) == []
    assert not share.opened(old)
    share.refused(old, now=0.0)
    share.fenced(old, now=0.0)
    share.given_up(old)
    assert share.state_of(new) is TenureState.TAKING
    assert share.state_of(old) is TenureState.OVER


def test_what_is_assigned_twice_is_a_new_tenure_and_the_old_one_is_dropped() -> None:
    share = KafkaShare()
    old = owned(share, A)
    commands = share.assigned([A], ME, now=1.0)
    assert [type(each) for each in commands] == [DropWork, TakeEntry]
    assert share.state_of(old) is TenureState.OVER


def test_what_the_broker_names_twice_and_nothing_was_heard_of_is_missed() -> None:
    share = KafkaShare()
    assigned(share, A)
    assert not share.has_missed([A])
    assert not share.has_missed([A, B])
    assert share.has_missed([A, B])
    # A revocation that was not heard, too.
    assert not share.has_missed([])
    assert share.has_missed([])


@pytest.mark.parametrize("step", ["assigned", "revoked", "lost", "agreed", "another"])
def test_what_the_broker_has_just_decided_is_on_its_way(step: str) -> None:
    share = KafkaShare()
    assigned(share, A)
    assert not share.has_missed([A, B])
    match step:
        case "assigned":
            share.assigned([], ME, now=0.0)
        case "revoked":
            share.revoked([])
        case "lost":
            share.lost([])
        case "agreed":
            assert not share.has_missed([A])
        case _:
            assert not share.has_missed([B])
    assert not share.has_missed([A, B])
    assert share.has_missed([A, B])


NEWS = ("took", "refused", "opened", "fenced", "given_up")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["assigned", "revoked", "lost", "given_back", "tick", *NEWS]),
        st.sampled_from([A, B]),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_tenure_is_begun_once_at_a_time_and_told_its_end_once(
    steps: list[tuple[str, KafkaPart, int]],
) -> None:
    """Whatever comes in whatever order: who owns is told to end, and nobody else is."""
    share, now = KafkaShare(), 0.0
    tenures: list[PartitionTenure] = []
    owners: set[int] = set()
    for step, part, back in steps:
        now += 1.0
        old = tenures[-1 - back] if len(tenures) > back else None
        commands: list[Command] = []
        if step == "assigned":
            commands = share.assigned([part], ME, now=now)
        elif step in ("revoked", "lost", "given_back"):
            commands = getattr(share, step)([part])
        elif step == "tick":
            commands = share.tick(now=now)
        elif old is None:
            continue
        elif step == "took":
            commands = share.took(old)
        elif step == "opened":
            share.opened(old)
        elif step == "given_up":
            if share.state_of(old) is TenureState.ENDING:
                owners.discard(old.number)
            share.given_up(old)
        else:
            if step == "fenced" and share.state_of(old) in (
                TenureState.READING,
                TenureState.READY,
                TenureState.ENDING,
            ):
                owners.discard(old.number)
            getattr(share, step)(old, now=now)
        for command in commands:
            number = command.tenure.number
            match command:
                case TakeEntry():
                    tenures.append(command.tenure)
                    assert number not in owners
                case BeginWork():
                    assert number not in owners
                    owners.add(number)
                case AskWork():
                    assert number in owners
                case ReleaseEntry() | DropWork():
                    owners.remove(number)
                case StopTaking():
                    assert number not in owners
    assert len({tenure.part for tenure in share.tenures}) == len(share.tenures)
    assert owners <= {tenure.number for tenure in share.tenures}


@pytest.mark.spec("ASG-05")
@pytest.mark.parametrize(
    ("mine", "note", "is_so"),
    [
        (Membership("new", 4), EntryNote(generation=3, member="old"), True),
        (Membership("old", 3), EntryNote(generation=4, member="new"), False),
        (Membership("me", 3), EntryNote(generation=3, member="me"), True),
        # A static member that was started again has another id in the same generation.
        (Membership("second", 3), EntryNote(generation=3, member="first"), False),
        (Membership("me", 1), EntryNote(), True),
        (Membership("me", -1), EntryNote(), False),
        (Membership("me", 9), None, False),
    ],
)
def test_only_a_later_generation_is_believed_without_the_broker(
    mine: Membership, note: EntryNote | None, is_so: bool
) -> None:
    assert is_believed(mine, note) is is_so


def test_a_members_generation_is_read_from_the_clients_bytes() -> None:
    written = b"CGMDv2:\x07\x01\x00\x00orders\x00member-1\x00\x01"
    assert read_membership(written) == Membership("member-1", 263)
    assert read_membership(b"CGMDv2:\xff\xff\xff\xffg\x00\x00\x01") == Membership("", -1)


@pytest.mark.parametrize("written", [b"", b"CGMDv3:\x00\x00\x00\x00g\x00m\x00", b"CGMDv2:\x00\x00"])
def test_another_version_of_the_clients_bytes_is_refused(written: bytes) -> None:
    with pytest.raises(UsageError, match="hansa\\[kafka\\]"):
        read_membership(written)
