"""What was removed is remembered for a while, and not for ever."""

from hansa.messaging.registry.tombstones import NEVER, Tombstones
from tests.support.registry_desk import HERE, PAY, THERE, grave

KEY = (PAY, HERE)
OTHER = (PAY, THERE)


def test_the_highest_epoch_of_own_and_heard_counts() -> None:
    stones = Tombstones(keep_s=10.0)
    assert stones.epoch(KEY) == NEVER
    stones.bury(KEY, 5, 0.0)
    assert stones.hear(grave(7), 0.0) == [KEY]
    assert stones.epoch(KEY) == 7
    assert stones.own() == [grave(5)]
    assert stones.all() == [grave(7)]


def test_a_tombstone_heard_again_is_no_news_and_stands_no_longer() -> None:
    stones = Tombstones(keep_s=10.0)
    assert stones.hear(grave(5), 0.0) == [KEY]
    assert stones.hear(grave(5), 6.0) == []
    assert stones.hear(grave(4), 6.0) == []
    assert stones.deadline() == 10.0
    assert stones.expire(9.9) == []
    assert stones.expire(10.0) == [KEY]
    assert stones.deadline() is None


def test_a_later_removal_stands_for_its_own_time() -> None:
    stones = Tombstones(keep_s=10.0)
    stones.bury(KEY, 5, 0.0)
    stones.bury(OTHER, 5, 1.0)
    stones.bury(KEY, 6, 4.0)
    assert stones.expire(11.0) == [OTHER]
    assert stones.epoch(KEY) == 6
    assert stones.expire(14.0) == [KEY]


def test_own_and_heard_ones_expire_each_in_their_time() -> None:
    stones = Tombstones(keep_s=10.0)
    stones.hear(grave(5), 0.0)
    stones.bury(OTHER, 5, 1.0)
    assert stones.deadline() == 10.0
    assert stones.expire(11.0) == [OTHER, KEY]
    assert len(stones) == 0


def test_the_oldest_goes_when_there_are_too_many() -> None:
    stones = Tombstones(keep_s=10.0, count_max=3)
    stones.hear(grave(1, endpoint="tcp://h:1"), 0.0)
    stones.bury((PAY, "tcp://h:2"), 1, 1.0)
    stones.bury((PAY, "tcp://h:3"), 1, 2.0)
    assert stones.bury((PAY, "tcp://h:4"), 1, 3.0) == [(PAY, "tcp://h:1")]
    news = stones.hear(grave(1, endpoint="tcp://h:5"), 4.0)
    assert news == [(PAY, "tcp://h:5"), (PAY, "tcp://h:2")]
    assert stones.evicted_count == 2
    assert len(stones) == 3
