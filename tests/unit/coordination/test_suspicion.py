"""When a lease is overdue, and how a suspicion is written."""

import json
from math import floor

import pytest

from hansa.coordination.roster import Suspicion, is_overdue, overdue_in_s, silence_s
from hansa.errors import BadRecord
from hansa.store.values import LeaseInfo


def lease(left_s: float, granted_s: float = 10.0) -> LeaseInfo:
    return LeaseInfo(lease=7, ttl_s=left_s, granted_ttl_s=granted_s, keys=())


@pytest.mark.spec("CRD-06")
def test_a_lease_is_overdue_when_more_than_half_of_it_is_used_up() -> None:
    assert silence_s(lease(9.25)) == 0.75
    assert not is_overdue(lease(5.01))
    assert is_overdue(lease(4.99))
    # By the measure of the one who holds it, not of the one who looks.
    assert not is_overdue(lease(15.5, 30.0))
    assert is_overdue(lease(14.5, 30.0))


def test_a_store_of_whole_seconds_is_given_the_second_that_it_cut_off() -> None:
    assert silence_s(lease(10.0)) == 0.0
    assert silence_s(lease(9.0)) == 0.0
    assert silence_s(lease(8.0)) == 1.0
    # 5 left means 5.0 to 5.99, of which none is overdue; of 4.0 to 4.99 all are.
    assert not is_overdue(lease(5.0))
    assert is_overdue(lease(4.0))
    # Also the shortest lease of etcd has a time in which its holder is suspected.
    assert not is_overdue(lease(1.0, 2.0))
    assert is_overdue(lease(0.0, 2.0))


@pytest.mark.parametrize("granted_s", [2.0, 10.0])
@pytest.mark.parametrize("tells_whole_seconds", [False, True])
def test_nobody_is_overdue_before_it_can_be(granted_s: float, tells_whole_seconds: bool) -> None:
    def told(left_s: float) -> LeaseInfo:
        return lease(float(floor(left_s)) if tells_whole_seconds else left_s, granted_s)

    lefts_s = [granted_s * share / 100 for share in range(101)]
    for left_s in lefts_s:
        wait_s = overdue_in_s(told(left_s))
        assert wait_s == 0.0 or not is_overdue(told(left_s))
        # As long as it is not renewed.
        for later_s in (one for one in lefts_s if left_s - wait_s < one <= left_s):
            assert not is_overdue(told(later_s))
    # And who was renewed right now is left alone for the timeout, or almost.
    assert overdue_in_s(told(granted_s)) >= granted_s / 2 - 1.0


def test_a_suspicion_is_plain_json_and_says_why() -> None:
    suspicion = Suspicion(incarnation=7, is_suspect=True, by="b", silence_s=5.1234)
    assert json.loads(suspicion.encode()) == {
        "incarnation": 7,
        "isSuspect": True,
        "by": "b",
        "silenceS": 5.123,
    }
    assert Suspicion.decode(suspicion.encode()).reason == "no heartbeat for 5.1 s, seen by b"
    refuted = Suspicion(incarnation=7, is_suspect=False, by="c", silence_s=0.0)
    assert Suspicion.decode(refuted.encode()) == refuted
    assert refuted.reason == "a heartbeat 0.0 s ago, seen by c"


@pytest.mark.parametrize("left_out", ["incarnation", "isSuspect", "by", "silenceS"])
def test_a_suspicion_without_one_of_its_fields_is_refused(left_out: str) -> None:
    found = json.loads(Suspicion(incarnation=7, is_suspect=True, by="b", silence_s=5.0).encode())
    del found[left_out]
    with pytest.raises(BadRecord):
        Suspicion.decode(json.dumps(found).encode())
