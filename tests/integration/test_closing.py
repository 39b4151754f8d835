"""`close` means the same on every component: all that it had has ended, whoever asks, and however often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import pytest

from hansa import Discovery, Gateway, Members, NodeInfo, Provider, Registry, Session, SpotNode, open_store
from hansa.store.served.server import StoreServer
from hansa.store.store import Store
from hansa.topics import TopicBridge
from hansa.transport import Router
from tests.support.discovery_cast import WITHIN_S

ANY = "tcp://127.0.0.1:0"


class Component(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What components need to do their work."""

    registry: Registry
    discovery: Discovery
    server: StoreServer
    store: Store

    def node(self) -> SpotNode:
        return SpotNode(ANY, [str(self.registry.router)], discovery=self.discovery, store=self.store)


@asynccontextmanager
async def surroundings() -> AsyncIterator[Surroundings]:
    async with AsyncExitStack() as stack, asyncio.timeout(WITHIN_S):
        registry = await stack.enter_async_context(Registry(ANY, ANY))
        discovery = await stack.enter_async_context(Discovery([str(registry.pub)]))
        server = await stack.enter_async_context(StoreServer("127.0.0.1:0"))
        store = await stack.enter_async_context(open_store(f"etcd://{server.address}"))
        yield Surroundings(registry=registry, discovery=discovery, server=server, store=store)


MAKERS: dict[str, Callable[[Surroundings], Component]] = {
    "registry": lambda _: Registry(ANY, ANY),
    "provider": lambda around: Provider(ANY, [str(around.registry.router)]),
    "discovery": lambda around: Discovery([str(around.registry.pub)]),
    "gateway": lambda around: Gateway(around.discovery),
    "node": lambda around: around.node(),
    "router": lambda _: Router(),
    "store server": lambda _: StoreServer("127.0.0.1:0"),
    "memory store": lambda _: open_store("memory://closing"),
    "etcd store": lambda around: open_store(f"etcd://{around.server.address}"),
    "session": lambda around: Session(around.store),
    "members": lambda around: Members(around.store, NodeInfo(id="anna")),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[[Surroundings], Component]:
    return MAKERS[request.param]


async def test_who_closes_second_returns_when_the_first_has_finished(
    make: Callable[[Surroundings], Component],
) -> None:
    async with surroundings() as around, make(around) as component:
        first, second = (asyncio.create_task(component.close()) for _ in range(2))
        await second
        assert first.done()
        await first
        await component.close()


async def test_what_was_never_entered_is_closed_without_harm(
    make: Callable[[Surroundings], Component],
) -> None:
    async with surroundings() as around:
        component = make(around)
        await component.close()
        await component.close()


async def test_a_close_that_is_cancelled_is_finished_by_the_next(
    make: Callable[[Surroundings], Component],
) -> None:
    async with surroundings() as around:
        before = asyncio.all_tasks()
        component = make(around)
        async with component:
            closing = asyncio.create_task(component.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            await component.close()
        assert [task for task in asyncio.all_tasks() - before if "hansa" in repr(task.get_coro())] == []


async def test_a_bridge_is_closed_once_by_all_who_ask() -> None:
    async with (
        surroundings() as around,
        Members(around.store, NodeInfo(id="anna")) as members,
        around.node() as node,
        TopicBridge(members, node) as bridge,
    ):
        await bridge.owning(timeout=WITHIN_S)
        first, second = (asyncio.create_task(bridge.close()) for _ in range(2))
        await second
        assert first.done()
        assert node.owned == ()
