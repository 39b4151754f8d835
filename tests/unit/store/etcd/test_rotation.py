"""Which member is asked next, for how long, and after which pause."""

from hansa.chance import Chance
from hansa.limits import STORE_RETRY_JITTER, STORE_RETRY_S_MAX, STORE_RETRY_S_MIN
from hansa.store.etcd.failures import Doubt, Failure
from hansa.store.etcd.rotation import Rotation, Trail

UNDONE = Failure(doubt=Doubt.UNDONE, text="away")
DOUBTFUL = Failure(doubt=Doubt.DOUBTFUL, text="silent")


def test_clients_begin_at_different_members() -> None:
    assert {Rotation(3, Chance.seeded(seed)).current for seed in range(30)} == {0, 1, 2}


def test_a_client_with_a_member_of_its_own_begins_there() -> None:
    assert {Rotation(3, Chance.seeded(seed), begins_first=True).current for seed in range(30)} == {0}


def test_a_member_that_failed_is_left_once_by_all_who_share_it() -> None:
    rotation = Rotation(3, Chance.seeded(1))
    first = rotation.current
    rotation.failed(first)
    rotation.failed(first)
    assert rotation.current == (first + 1) % 3
    rotation.failed(rotation.current)
    # Somebody who waited long for the first learns of it now.
    rotation.failed(first)
    assert rotation.current == (first + 2) % 3
    rotation.failed(rotation.current)
    assert rotation.current == first


def test_each_member_is_tried_once_before_there_is_a_pause() -> None:
    trail = Trail(3, Chance.seeded(1))
    delays = [trail.note(UNDONE) for _ in range(30)]
    assert [delay > 0 for delay in delays] == [False, False, True] * 10
    pauses = delays[2::3]
    assert pauses[0] >= STORE_RETRY_S_MIN * (1 - STORE_RETRY_JITTER)
    assert max(pauses) <= STORE_RETRY_S_MAX * (1 + STORE_RETRY_JITTER)
    assert min(pauses[-3:]) > max(pauses[:2])


def test_tries_grow_longer_after_each_round_and_not_for_ever() -> None:
    trail = Trail(2, Chance.seeded(1))
    tries = []
    for _ in range(12):
        tries.append(trail.try_s(1.0))
        trail.note(UNDONE)
    assert tries == [1, 1, 2, 2, 4, 4, 8, 8, 8, 8, 8, 8]


def test_one_doubtful_try_makes_the_whole_call_doubtful() -> None:
    trail = Trail(1, Chance.seeded(1))
    trail.note(UNDONE)
    assert not trail.may_be_done
    trail.is_under_way = True
    assert trail.may_be_done
    trail.is_under_way = False
    trail.note(DOUBTFUL)
    trail.note(UNDONE)
    assert trail.may_be_done
    assert trail.last_text == "away"
