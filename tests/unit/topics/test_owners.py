"""Who owns a topic, from what every peer claims."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.ids import precedence, routing_id
from hansa.topics.owners import Owners
from hansa.wire.topics import topic_digest

A, B, C = routing_id(1), routing_id(2), routing_id(3)


def test_nobody_owns_what_nobody_claims() -> None:
    owners = Owners()
    assert owners.owner(b"t") is None
    assert b"t" not in owners
    assert (len(owners), owners.all, list(owners.claims(A))) == (0, {}, [])
    assert (owners.count(A), owners.digest(A), owners.is_claimed_by(b"t", A)) == (0, 0, False)


def test_the_only_one_who_claims_a_topic_owns_it() -> None:
    owners = Owners()
    owners.claim(b"t", B)
    assert owners.owner(b"t") == B
    assert b"t" in owners
    assert list(owners.claims(B)) == [b"t"]
    assert owners.is_claimed_by(b"t", B)
    assert not owners.is_claimed_by(b"t", A)


@pytest.mark.spec("SPT-12")
@pytest.mark.parametrize("order", [(A, B, C), (C, B, A), (B, A, C), (B, C, A)])
def test_of_several_the_lowest_id_owns_a_topic_in_whatever_order_they_claim_it(
    order: tuple[bytes, ...],
) -> None:
    owners = Owners()
    for peer in order:
        owners.claim(b"t", peer)
    assert owners.owner(b"t") == A
    assert len(owners) == 1


@pytest.mark.spec("SPT-12")
def test_numbers_decide_before_bytes_and_ids_without_a_number_come_last() -> None:
    as_specified, chosen, named = bytes.fromhex("00 00000009"), routing_id(8), b"\0"
    owners = Owners()
    owners.claim(b"t", named)
    owners.claim(b"t", as_specified)
    assert owners.owner(b"t") == as_specified
    owners.claim(b"t", chosen)
    assert owners.owner(b"t") == chosen


def test_a_claim_that_lost_wins_when_the_better_ones_go() -> None:
    owners = Owners()
    for peer in (C, A, B):
        owners.claim(b"t", peer)
    owners.disclaim(b"t", A)
    assert owners.owner(b"t") == B
    owners.disclaim(b"t", C)
    assert owners.owner(b"t") == B
    owners.disclaim(b"t", B)
    assert owners.owner(b"t") is None


@pytest.mark.parametrize("first", [A, C])
def test_a_claim_in_a_store_beats_one_that_is_none_and_the_higher_epoch_the_lower_id(first: bytes) -> None:
    owners = Owners()
    owners.claim(b"t", A, 0)
    owners.claim(b"t", first, 7 if first == A else 8)
    owners.claim(b"t", B, 9 if first == A else 7)
    assert owners.owner(b"t") == (B if first == A else C)
    # The same peer takes it again: its new epoch counts.
    owners.claim(b"t", A, 10)
    assert (owners.owner(b"t"), owners.epoch(b"t", A)) == (A, 10)
    owners.claim(b"t", A, 0)
    assert owners.owner(b"t") == (B if first == A else C)
    owners.disclaim(b"t", A)
    assert owners.epoch(b"t", A) == 0


def test_saying_it_twice_counts_once_and_disclaiming_what_was_never_claimed_does_nothing() -> None:
    owners = Owners()
    owners.claim(b"t", A)
    owners.claim(b"t", A)
    assert (owners.count(A), owners.digest(A)) == (1, topic_digest(b"t"))
    owners.disclaim(b"t", B)
    owners.disclaim(b"u", A)
    assert owners.owner(b"t") == A
    owners.disclaim(b"t", A)
    owners.disclaim(b"t", A)
    assert owners.owner(b"t") is None


def test_the_digest_is_that_of_the_set_whatever_was_claimed_between() -> None:
    owners = Owners()
    for topic in (b"t", b"u", b"v"):
        owners.claim(topic, A)
    owners.disclaim(b"u", A)
    assert owners.digest(A) == topic_digest(b"t") ^ topic_digest(b"v")
    assert owners.digest(B) == 0


steps = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from([b"t", b"u", b"v"]),
        st.sampled_from([A, B, C, b"raw", bytes.fromhex("0000000002")]),
        st.sampled_from([0, 0, 1, 2]),
    )
)


@pytest.mark.spec("SPT-12")
@given(steps)
def test_after_any_claims_the_owner_is_the_lowest_of_those_with_the_highest_epoch(
    steps: list[tuple[bool, bytes, bytes, int]],
) -> None:
    owners = Owners()
    claims: dict[bytes, dict[bytes, int]] = {}
    for is_claim, topic, peer, epoch in steps:
        if is_claim:
            owners.claim(topic, peer, epoch)
            claims.setdefault(topic, {})[peer] = epoch
        else:
            owners.disclaim(topic, peer)
            claims.get(topic, {}).pop(peer, None)
    expected = {}
    for topic, epochs in claims.items():
        assert {peer: owners.epoch(topic, peer) for peer in epochs} == epochs
        highest = [peer for peer, epoch in epochs.items() if epoch == max(epochs.values())]
        if highest:
            expected[topic] = min(highest, key=precedence)
    assert owners.all == expected
    assert len(owners) == len(expected)
    assert owners.claims_count == sum(map(len, claims.values()))
    for peer in {step[2] for step in steps}:
        own = {topic for topic, peers in claims.items() if peer in peers}
        assert set(owners.claims(peer)) == own
        assert owners.count(peer) == len(own)
        digest = 0
        for topic in own:
            digest ^= topic_digest(topic)
        assert owners.digest(peer) == digest


def test_a_peer_that_comes_and_goes_leaves_nothing_behind() -> None:
    owners = Owners()
    owners.claim(b"kept", C)
    before = copy.deepcopy(vars(owners))
    for number in range(100):
        peer = routing_id(100 + number)
        for topic in (b"kept", b"other", b"t%d" % number):
            owners.claim(topic, peer, number)
        for topic in list(owners.claims(peer)):
            owners.disclaim(topic, peer)
    assert vars(owners) == before
