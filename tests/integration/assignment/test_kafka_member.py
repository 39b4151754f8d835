"""A member of a Kafka group on a real broker, without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hansa.assignment.kafka_group import ConfluentMember, KafkaSettings, Protocols
from hansa.assignment.kafka_share import KafkaPart, Membership
from hansa.errors import HansaError
from tests.support.kafka_servers import Kafka, unused

pytestmark = pytest.mark.timeout(120)

WAIT_S_MAX = 30.0


class Heard:
    """What a member was told. A revoke returns when it `may_return`."""

    def __init__(self) -> None:
        self.parts: set[KafkaPart] = set()
        self.is_revoked = asyncio.Event()
        self.may_return = asyncio.Event()

    async def assigned(self, parts: Sequence[KafkaPart], membership: Membership) -> None:
        self.parts |= set(parts)

    async def revoked(self, parts: Sequence[KafkaPart]) -> None:
        self.is_revoked.set()
        await self.may_return.wait()
        self.parts -= set(parts)

    async def lost(self, parts: Sequence[KafkaPart]) -> None:
        self.parts -= set(parts)

    def failed(self, error: HansaError, part: KafkaPart | None = None) -> None:
        pass


async def receive(member: ConfluentMember) -> None:
    while True:
        await member.receive(0.05)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_that_is_closed_in_the_middle_of_a_rebalance_leaves_when_that_is_over(
    kafka: Kafka, protocol: Protocols
) -> None:
    topic, group = await kafka.create_topic(unused("orders"), 2), unused("group")
    own = {"heartbeat.interval.ms": 300} if protocol == "classic" else {}
    settings = KafkaSettings(servers=kafka.address, group=group, protocol=protocol, settings=own)
    first, second = Heard(), Heard()
    second.may_return.set()
    members = [ConfluentMember(settings), ConfluentMember(settings)]
    async with asyncio.timeout(WAIT_S_MAX):
        await members[0].join([topic], first)
        receiving = [asyncio.create_task(receive(members[0]))]
        while len(first.parts) < 2:
            await asyncio.sleep(0.01)
        await members[1].join([topic], second)
        receiving.append(asyncio.create_task(receive(members[1])))
        await first.is_revoked.wait()
        receiving[0].cancel()
        await asyncio.wait(receiving[:1])
        closing = asyncio.create_task(members[0].close())
        await asyncio.sleep(0.1)
        assert not closing.done()
        first.may_return.set()
        await closing
        while len(second.parts) < 2:
            await asyncio.sleep(0.01)
        receiving[1].cancel()
        await asyncio.wait(receiving)
        await members[1].close()
