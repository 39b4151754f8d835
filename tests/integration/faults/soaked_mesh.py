"""Two nodes, each a process, of which one is attacked while they publish to each other without a pause."""

from contextlib import AsyncExitStack
from typing import Any, Self

from tests.support.discovery_processes import RegistryProcess
from tests.support.topics_processes import NodeProcess

MINE, THEIRS = "good:victim", "good:friend"
RATE = 200


class SoakedMesh:
    """Use `start`, attack `endpoint`, then `close`. Nobody attacks the registry that the two have."""

    def __init__(self) -> None:
        self._victim: NodeProcess
        self._friend: NodeProcess
        self.published_count = 0

    async def start(self, stack: AsyncExitStack) -> Self:
        registry = await stack.enter_async_context(RegistryProcess(heartbeat_timeout=60.0))
        await registry.ready()
        self._victim, self._friend = [
            await stack.enter_async_context(NodeProcess(number, registry.pub, registry.router, create=topic))
            for number, topic in ((5, MINE), (9, THEIRS))
        ]
        both = ((self._victim, THEIRS), (self._friend, MINE))
        for node, wanted in both:
            await node.ready()
            await node.do("subscribe", text=wanted, count_max=1_000_000)
        for node, wanted in both:
            assert "code" not in await node.do("active", text=wanted)
        for node, topic in ((self._victim, MINE), (self._friend, THEIRS)):
            await node.do("stream", topic=topic, rate=RATE)
        return self

    @property
    def endpoint(self) -> str:
        return self._victim.endpoint

    async def stats(self) -> dict[str, Any]:
        return await self._victim.do("stats")

    async def close(self, sent: dict[str, Any]) -> None:
        """Nothing between the two was lost, and every message of the attackers is in one of the counts."""
        for publisher, reader, topic in (
            (self._victim, self._friend, MINE),
            (self._friend, self._victim, THEIRS),
        ):
            count = (await publisher.do("halt"))["count"]
            while (books := await reader.books(topic))["last"] != count - 1:
                pass
            assert (books["received"], books["missed"], books["dropped"]) == (count, 0, 0), books
            assert books["is_in_order"]
            self.published_count += count
        counts, told = sent["counts"], await self.stats()
        counted = told["stats"]
        bad = {verdict[4:]: count for verdict, count in counts.items() if verdict.startswith("bad ")}
        assert counted["bad_frames"] == bad, (counted, sent)
        assert counted["unwanted_count"] == counts["message"], (counted, sent)
        assert counted["refused_count"] == counts["publish"], (counted, sent)
        assert counted["subscribes_refused_count"] == counts["subscribe"], (counted, sent)
        assert counted["expelled_count"] == sent["expelled"], (counted, sent)
        assert (counted["publishes_refused_count"], counted["demotions_count"]) == (0, 0), counted
        # The claims went with those who made them.
        assert (counted["topics_count"], counted["peers_count"]) == (2, 1), counted
        assert told["happened"].get("SubscriptionSuspended", 0) == 0
