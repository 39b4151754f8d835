"""Leases end by themselves unless they are renewed, and never a moment before."""

from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.errors import BadArgument, LeaseLost, StoreUnavailable
from hansa.limits import STORE_LEASE_TTL_S_MAX
from hansa.store.leases import Leases
from hansa.store.mvcc import Mvcc
from hansa.store.values import Delete, Operation, Put


def write(mvcc: Mvcc, leases: Leases, *operations: Operation) -> None:
    _, batch = mvcc.commit((), operations, (), leases)
    if batch is not None:
        leases.follow(batch)


def test_a_lease_ends_at_its_deadline_and_not_before() -> None:
    leases = Leases()
    assert leases.deadline() is None
    leases.grant(7, 10.0, now=100.0)
    assert (leases.deadline(), 7 in leases, len(leases)) == (110.0, True, 1)
    assert leases.tick(now=109.999) == []
    assert 7 in leases
    assert leases.tick(now=110.0) == [()]
    assert (leases.deadline(), 7 in leases, len(leases)) == (None, False, 0)


def test_renewing_begins_the_time_anew() -> None:
    leases = Leases()
    leases.grant(7, 10.0, now=100.0)
    leases.grant(8, 12.0, now=100.0)
    assert leases.renew(7, now=109.0) == 10.0
    assert leases.deadline() == 112.0
    assert leases.tick(now=112.0) == [()]
    assert (7 in leases, 8 in leases, leases.deadline()) == (True, False, 119.0)


def test_what_is_left_is_told() -> None:
    leases = Leases()
    leases.grant(7, 10.0, now=100.0)
    info = leases.info(7, now=104.0)
    assert info is not None
    assert (info.lease, info.ttl_s, info.granted_ttl_s, info.keys) == (7, 6.0, 10.0, ())
    late = leases.info(7, now=115.0)
    assert late is not None
    assert late.ttl_s == 0.0
    assert leases.info(8, now=104.0) is None


def test_a_lease_that_is_gone_cannot_be_renewed_or_revoked() -> None:
    leases = Leases()
    leases.grant(7, 10.0, now=0.0)
    assert leases.revoke(7) == ()
    for act in (lambda: leases.revoke(7), lambda: leases.renew(7, now=1.0)):
        with pytest.raises(LeaseLost, match="no lease 7"):
            act()
    assert leases.deadline() is None


def test_a_number_that_is_granted_again_has_only_its_new_deadline() -> None:
    leases = Leases()
    leases.grant(7, 10.0, now=0.0)
    leases.revoke(7)
    leases.grant(7, 20.0, now=5.0)
    assert (leases.deadline(), len(leases._line)) == (25.0, 1)
    assert leases.tick(now=24.0) == []
    assert leases.tick(now=25.0) == [()]


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, nan, inf, STORE_LEASE_TTL_S_MAX * 1.01])
def test_a_time_that_cannot_be_is_refused(ttl_s: float) -> None:
    with pytest.raises(BadArgument, match="give more than 0"):
        Leases().grant(7, ttl_s, now=0.0)


def test_leases_are_bounded() -> None:
    leases = Leases(count_max=2)
    leases.grant(1, 1.0, now=0.0)
    leases.grant(2, 1.0, now=0.0)
    with pytest.raises(StoreUnavailable, match="2 leases"):
        leases.grant(3, 1.0, now=0.0)
    leases.revoke(1)
    leases.grant(3, 1.0, now=0.0)


def test_keys_follow_the_changes_from_lease_to_lease() -> None:
    mvcc, leases = Mvcc(), Leases()
    leases.grant(7, 10.0, now=0.0)
    leases.grant(8, 10.0, now=0.0)
    write(mvcc, leases, Put("a", b"", 7), Put("b", b"", 7), Put("c", b"", 7), Put("d", b"", 7))
    write(mvcc, leases, Put("b", b"", 8), Put("c", b""), Delete("d"), Put("x", b""))
    infos = leases.info(7, now=0.0), leases.info(8, now=0.0)
    assert [info.keys if info else None for info in infos] == [(b"a",), (b"b",)]
    assert leases.tick(now=10.0) == [(b"a",), (b"b",)]


def test_places_of_revoked_leases_do_not_pile_up() -> None:
    leases = Leases()
    for number in range(1, 1_000):
        leases.grant(number, 1_000.0, now=0.0)
        leases.revoke(number)
    assert len(leases._line) < 50


names = st.integers(1, 4)
moves = st.one_of(
    st.tuples(st.just("grant"), names, st.integers(1, 9)),
    st.tuples(st.just("renew"), names, st.just(0)),
    st.tuples(st.just("revoke"), names, st.just(0)),
    st.tuples(st.just("wait"), st.just(0), st.integers(0, 5)),
)


@settings(max_examples=150)
@given(play=st.lists(moves, max_size=40))
def test_leases_live_as_a_table_of_deadlines_has_it(play: list[tuple[str, int, int]]) -> None:
    leases, now = Leases(), 0.0
    table: dict[int, tuple[int, float]] = {}
    for move, lease, number in play:
        if move == "grant" and lease not in table:
            leases.grant(lease, number, now=now)
            table[lease] = number, now + number
        elif move == "renew" and lease in table:
            leases.renew(lease, now=now)
            table[lease] = table[lease][0], now + table[lease][0]
        elif move == "revoke" and lease in table:
            leases.revoke(lease)
            del table[lease]
        elif move == "wait":
            now += number
            over = [lease for lease, (_, deadline_s) in table.items() if deadline_s <= now]
            assert len(leases.tick(now=now)) == len(over)
            for lease in over:
                del table[lease]
        assert {lease for lease in range(1, 5) if lease in leases} == set(table)
        assert leases.deadline() == min((deadline_s for _, deadline_s in table.values()), default=None)
