"""What was removed is remembered for a while, and not for ever."""

import pytest

from hansa.services.registry.entries import NEVER, Tombstones
from tests.support.registry_desk import ANN, BOB, HERE, PAY, THERE, grave

KEY = (PAY, HERE)
OTHER = (PAY, THERE)


def test_the_highest_epoch_of_own_and_heard_counts() -> None:
    stones = Tombstones(keep_s=10.0)
    assert stones.epoch(KEY) == NEVER
    stones.bury(KEY, 5, 0.0, provider=ANN)
    assert stones.hear(grave(7), 0.0, connection=b"r") == [KEY]
    assert stones.epoch(KEY) == 7
    assert stones.own() == [grave(5)]
    assert stones.all() == [grave(7)]


def test_a_tombstone_heard_again_is_no_news_and_stands_no_longer() -> None:
    stones = Tombstones(keep_s=10.0)
    assert stones.hear(grave(5), 0.0, connection=b"r") == [KEY]
    assert stones.hear(grave(5), 6.0, connection=b"r") == []
    assert stones.hear(grave(4), 6.0, connection=b"r") == []
    assert stones.deadline() == 10.0
    assert stones.expire(9.9) == []
    assert stones.expire(10.0) == [KEY]
    assert stones.deadline() is None


def test_a_later_removal_stands_for_its_own_time() -> None:
    stones = Tombstones(keep_s=10.0)
    stones.bury(KEY, 5, 0.0, provider=ANN)
    stones.bury(OTHER, 5, 1.0, provider=ANN)
    stones.bury(KEY, 6, 4.0, provider=ANN)
    assert stones.expire(11.0) == [OTHER]
    assert stones.epoch(KEY) == 6
    assert stones.expire(14.0) == [KEY]


def test_own_and_heard_ones_expire_each_in_their_time() -> None:
    stones = Tombstones(keep_s=10.0)
    stones.hear(grave(5), 0.0, connection=b"r")
    stones.bury(OTHER, 5, 1.0, provider=ANN)
    assert stones.deadline() == 10.0
    assert stones.expire(11.0) == [OTHER, KEY]
    assert len(stones) == 0


def key(number: int) -> tuple[str, str]:
    return PAY, f"tcp://h:{number}"


def test_the_oldest_own_one_goes_when_there_are_too_many() -> None:
    stones = Tombstones(keep_s=10.0, count_max=3)
    stones.hear(grave(1, endpoint="tcp://h:1"), 0.0, connection=b"r")
    stones.bury(key(2), 1, 1.0, provider=ANN)
    stones.bury(key(3), 1, 2.0, provider=BOB)
    assert stones.bury(key(4), 1, 3.0, provider=BOB) == [key(2)]
    assert stones.evicted_count == 1
    assert len(stones) == 3


@pytest.mark.spec("DIS-32")
def test_a_provider_that_wears_out_names_pushes_out_its_own_alone() -> None:
    stones = Tombstones(keep_s=10.0, share_max=2)
    stones.bury(key(0), 1, 0.0, provider=BOB)
    gone = [k for n in range(1, 6) for k in stones.bury(key(n), 1, 0.0, provider=ANN)]
    assert gone == [key(1), key(2), key(3)]
    assert stones.epoch(key(0)) == stones.epoch(key(4)) == stones.epoch(key(5)) == 1
    assert stones.evicted_count == 3
    assert not stones.has_room(ANN)
    assert stones.has_room(BOB)
    stones.expire(10.0)
    assert stones.has_room(ANN)


def test_a_key_that_another_provider_buries_counts_as_its() -> None:
    stones = Tombstones(keep_s=10.0, share_max=1)
    stones.bury(KEY, 5, 0.0, provider=ANN)
    stones.bury(KEY, 3, 0.0, provider=BOB)
    assert stones.epoch(KEY) == 5
    assert stones.has_room(ANN)
    assert not stones.has_room(BOB)


@pytest.mark.spec("DIS-32")
def test_a_registry_that_tells_very_many_pushes_out_its_own_alone() -> None:
    stones = Tombstones(keep_s=10.0, count_max=10)
    for number in range(5):
        stones.bury(key(number), 1, 0.0, provider=ANN)
    stones.hear(grave(1, endpoint="tcp://h:5"), 0.0, connection=b"quiet")
    for number in range(6, 50):
        stones.hear(grave(1, endpoint=f"tcp://h:{number}"), 0.0, connection=b"loud")
    kept = [number for number in range(50) if stones.epoch(key(number)) == 1]
    assert kept == [0, 1, 2, 3, 4, 5, 46, 47, 48, 49]
    # What is removed here always has room: half of all is for that.
    stones.bury(key(50), 1, 1.0, provider=ANN)
    assert stones.epoch(key(50)) == 1
    assert len(stones) == 10
