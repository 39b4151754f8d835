"""Nodes join and leave a real etcd group while who watches them is cut off, and its leader is killed."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import pytest

from hansa.coordination.member import MemberJoined, NodeInfo
from hansa.coordination.nodes import MembershipWatcher, NodeRegistry
from hansa.store.opening import open_store
from hansa.store.store import Store
from tests.support.etcd_proxies import proxied_store
from tests.support.etcd_servers import EtcdGroup

pytestmark = [pytest.mark.spec("CRD-03"), pytest.mark.spec("CRD-11"), pytest.mark.timeout(100)]

WITHIN_S = 40.0


class Crowd:
    """Nodes that are registered, each by a task of its own, until the block ends."""

    def __init__(self, store: Store) -> None:
        self._registry = NodeRegistry(store, ttl=10.0)
        self._tasks = asyncio.TaskGroup()
        self._staying: dict[str, asyncio.Task[str]] = {}

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._staying.values():
            task.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    async def join(self, *names: str) -> None:
        for name in names:
            self._staying[name] = self._tasks.create_task(self._registry.register(NodeInfo(id=name)))
        await until(self._are_listed, set(self._staying))

    async def leave(self, *names: str) -> None:
        for name in names:
            assert await self._registry.deregister(name)
            await self._staying.pop(name)

    async def listed(self) -> set[str]:
        return {node.id for node in await self._registry.list_nodes()}

    async def _are_listed(self) -> set[str]:
        return await self.listed()


async def until(look: Callable[[], Awaitable[set[str]]], wanted: set[str]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (found := await look()) != wanted:
            await asyncio.sleep(0.02)
    assert found == wanted


class Told:
    """What a watcher was told: of each node, whether it came or went, one after the other."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self._news = asyncio.Event()

    async def listen(self, store: Store) -> None:
        async for event in MembershipWatcher(store).watch():
            word = "+" if isinstance(event, MemberJoined) else "-"
            name = event.member.id
            self.words[name] = self.words.get(name, "") + word
            self._news.set()

    async def until(self, words: dict[str, str]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while self.words != words:
                self._news.clear()
                await self._news.wait()


async def test_who_watches_members_is_told_once_what_happened_while_it_was_cut_off(
    etcd_group: EtcdGroup,
) -> None:
    async with (
        open_store(etcd_group.address) as direct,
        proxied_store(etcd_group) as proxied,
        asyncio.TaskGroup() as tasks,
    ):
        told = Told()
        listening = tasks.create_task(told.listen(proxied.store))
        async with Crowd(direct) as crowd:
            await crowd.join("a", "b", "c", "d")
            await told.until({"a": "+", "b": "+", "c": "+", "d": "+"})
            for round_number in range(1, 4):
                proxied.cut()
                await crowd.leave("a", "b")
                # One comes again, and one that comes and goes is nobody's business.
                await crowd.join("b", f"new {round_number}", "brief")
                await crowd.leave("brief")
                if round_number > 1:
                    await direct.compact((await direct.status()).revision)
                proxied.mend()
                await crowd.join("a")
                await told.until(EXPECTED[round_number])
            assert await crowd.listed() == {name for name, word in told.words.items() if word[-1] == "+"}
            listening.cancel()


# The first time the watch tells what it missed from the history, and the history is not compacted.
EXPECTED = {
    1: {"a": "+-+", "b": "+-+", "c": "+", "d": "+", "new 1": "+", "brief": "+-"},
    2: {"a": "+-+-+", "b": "+-+-+", "c": "+", "d": "+", "new 1": "+", "new 2": "+", "brief": "+-"},
    3: {
        **{"a": "+-+-+-+", "b": "+-+-+-+", "c": "+", "d": "+", "new 1": "+", "new 2": "+", "new 3": "+"},
        "brief": "+-",
    },
}


async def test_no_node_is_taken_for_dead_when_the_leader_of_the_store_is_killed(
    etcd_group: EtcdGroup,
) -> None:
    async with open_store(etcd_group.address) as store, asyncio.TaskGroup() as tasks:
        told = Told()
        listening = tasks.create_task(told.listen(store))
        async with Crowd(store) as crowd:
            await crowd.join("a", "b", "c")
            leader = await etcd_group.led_by()
            etcd_group.kill(leader)
            await crowd.join("d")
            await crowd.leave("a")
            etcd_group.restart(leader)
            await etcd_group.serving()
            await crowd.join("a")
            await told.until({"a": "+-+", "b": "+", "c": "+", "d": "+"})
            listening.cancel()
