"""Who is waited for before the first message, and how long a topic is held after the last."""

import asyncio
from typing import cast

import pytest

from hansa.cli.publish_command import Publishing, await_subscribers, until_lost
from hansa.errors import Fenced, TimedOut
from hansa.topics import SpotNode
from tests.support.discovery_cast import WITHIN_S
from tests.support.topics_cast import TopicCast


class Owner:
    """A node that finds one more subscriber at every third look, up to so many."""

    def __init__(self, most_count: int) -> None:
        self.looks_count = 0
        self.found_count = 0
        self._most_count = most_count

    def subscribers_count(self, topic: str) -> int:
        self.looks_count += 1
        self.found_count = min(self.looks_count // 3, self._most_count)
        return self.found_count


async def waited(owner: Owner, wait: int | None, timeout_s: float = 20.0) -> None:
    order = Publishing(topic="a", create=True, wait=wait)
    await await_subscribers(cast(SpotNode, owner), order, timeout_s=timeout_s)


async def test_all_who_subscribe_along_with_the_first_are_waited_for() -> None:
    owner = Owner(4)
    await waited(owner, None)
    assert owner.found_count == 4


async def test_a_number_is_taken_at_its_word() -> None:
    owner = Owner(4)
    await waited(owner, 2)
    assert owner.found_count == 2
    owner = Owner(4)
    await waited(owner, 0)
    assert owner.looks_count == 1


@pytest.mark.parametrize(("most_count", "wait", "said"), [(0, None, "0 of 1 nodes"), (1, 3, "1 of 3 nodes")])
async def test_those_who_do_not_come_are_not_waited_for_for_ever(
    most_count: int, wait: int | None, said: str
) -> None:
    with pytest.raises(TimedOut, match=said):
        await waited(Owner(most_count), wait, timeout_s=0.2)


@pytest.mark.spec("SPT-12")
async def test_a_topic_that_another_node_keeps_is_held_no_more() -> None:
    async with TopicCast() as stage, asyncio.timeout(WITHIN_S):
        low, high = await stage.mesh(await stage.registry(), 1, 2)
        # Both create it in the same moment, and the lower id wins.
        await asyncio.gather(low.spot().create_topic("a"), high.spot().create_topic("a"))
        with pytest.raises(Fenced, match=r"has created it as well, and keeps it"):
            await until_lost(high, "a")
        with pytest.raises(Fenced, match="before the last message"):
            await until_lost(high, "a")
        assert low.owned == ("a",)
