"""A component belongs to the event loop that it was entered in, and says so everywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hansa import (
    Election,
    Lock,
    Members,
    NodeInfo,
    Provider,
    Registry,
    Session,
    SpotNode,
    UsageError,
    open_store,
)
from hansa.store.served.server import StoreServer
from hansa.transport import Router
from tests.support.discovery_cast import WITHIN_S

ANY = "tcp://127.0.0.1:0"
Use = Callable[[], Awaitable[Any] | Any]


async def refused(use: Use) -> None:
    """In another thread, within an event loop of its own and without one."""

    async def settled(found: Awaitable[Any] | Any) -> None:
        if isinstance(found, Awaitable):
            await found

    async def within() -> None:
        await settled(use())

    def without() -> None:
        asyncio.run(settled(use()))

    for elsewhere in (without, lambda: asyncio.run(within())):
        with pytest.raises(UsageError, match="belongs to"):
            await asyncio.to_thread(elsewhere)


@pytest.mark.parametrize("is_served", [False, True])
async def test_what_hangs_on_a_store_is_used_in_one_loop(is_served: bool) -> None:
    async with asyncio.timeout(WITHIN_S), StoreServer("127.0.0.1:0") as server:
        address = f"etcd://{server.address}" if is_served else "memory://one-loop"
        async with (
            open_store(address) as store,
            Session(store) as session,
            Members(store, NodeInfo(id="anna")) as members,
        ):
            uses: list[Use] = [
                lambda: store.get("a"),
                lambda: store.put("a", b""),
                session.lost,
                session.renew,
                session.close,
                lambda: Lock(session, "till").acquire(),
                lambda: Election(session, "harbour").win(),
                lambda: members.until(lambda view: not view),
                lambda: members.update(zone="b"),
                members.events,
                members.close,
            ]
            for use in uses:
                await refused(use)
            assert session.is_live
            assert members.is_member


async def test_providers_registries_nodes_and_sockets_are_used_in_one_loop() -> None:
    async with (
        asyncio.timeout(WITHIN_S),
        Registry(ANY, ANY) as registry,
        Provider(ANY, [str(registry.router)]) as provider,
        SpotNode(ANY, [str(registry.router)]) as node,
        Router() as router,
    ):
        await router.bind(ANY)
        uses: list[Use] = [
            lambda: provider.register("echo"),
            lambda: provider.update_weight("echo", 2),
            lambda: provider.connect_registry("tcp://127.0.0.1:1"),
            lambda: provider.drain(timeout=1.0),
            provider.close,
            lambda: registry.services,
            lambda: registry.add_peer("tcp://127.0.0.1:1"),
            registry.stop,
            registry.close,
            node.spot,
            lambda: node.survey(timeout=1.0),
            node.registered,
            node.close,
            lambda: router.bind(ANY),
            lambda: router.connect("tcp://127.0.0.1:1"),
            router.close,
        ]
        for use in uses:
            await refused(use)
        await provider.register("echo")
        assert list(registry.services) == ["echo", "spot-node"]
