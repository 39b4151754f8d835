"""A gateway and a discovery belong to the event loop that they were entered in."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hansa.errors import UsageError
from hansa.services.discovery import Discovery
from hansa.services.gateway import Gateway
from tests.support.gateway_stage import Stage
from tests.support.lanes import Lane

pytestmark = pytest.mark.parametrize("lane", ["tcp"], indirect=True)


async def refused(use: Callable[[], Any]) -> None:
    """It says so in a thread without a loop, if it does not wait, and in one with a loop of its own."""

    async def inside() -> None:
        outcome = use()
        if isinstance(outcome, Awaitable):
            await outcome

    with pytest.raises(UsageError, match=r"belongs to the event loop of another thread: .* hansa\.sync"):
        await asyncio.to_thread(asyncio.run, inside())
    if not asyncio.iscoroutinefunction(use):
        with pytest.raises(UsageError, match=r"belongs to the event loop of another thread: .* hansa\.sync"):
            await asyncio.to_thread(use)


async def test_every_use_of_a_gateway_elsewhere_is_told_so(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await stage.echo_service("ann")
        router = gateway.router("echo")
        waiting: list[Callable[[], Any]] = [
            lambda: gateway.request("echo", b"?"),
            lambda: gateway.send("echo", b"?"),
            lambda: gateway.request_send("echo", b"?"),
            lambda: gateway.recv(),
            lambda: gateway.request_recv(),
            lambda: gateway.wait_connected("echo"),
            lambda: router.send(b"ann", 1, b"?"),
            lambda: gateway.close(),
        ]
        for make in waiting:

            async def use(make: Callable[[], Any] = make) -> None:
                await make()

            await refused(use)
        at_once: list[Callable[[], Any]] = [
            lambda: gateway.submit("echo", b"?", print),
            lambda: gateway.abandon(1),
            lambda: gateway.router("echo"),
            lambda: router.peers,
            lambda: gateway.set_balancer("echo", None),
            lambda: gateway.connection_count("echo"),
            lambda: gateway.stats,
        ]
        for plain in at_once:
            await refused(plain)
        assert await gateway.request("echo", b"here") == [b"here"]
        assert gateway.stats.requests_count == 1


async def test_every_use_of_a_discovery_elsewhere_is_told_so(lane: Lane) -> None:
    async with Stage(lane) as stage:
        discovery = stage.discovery
        for make in (
            lambda: discovery.wait_available("echo"),
            lambda: discovery.wait_heard(),
            lambda: discovery.close(),
        ):

            async def use(make: Callable[[], Any] = make) -> None:
                await make()

            await refused(use)
        at_once: list[Callable[[], Any]] = [
            lambda: discovery.subscribe("echo"),
            lambda: discovery.unsubscribe("echo"),
            lambda: discovery.subscribe_all(),
            lambda: discovery.connect_registry("tcp://127.0.0.1:1"),
            lambda: discovery.follows("echo"),
            lambda: discovery.providers("echo"),
            lambda: discovery.is_available("echo"),
            lambda: discovery.services,
            lambda: discovery.registries_heard,
            lambda: discovery.has_heard,
            lambda: discovery.listen(print),
            lambda: discovery.events(),
        ]
        for plain in at_once:
            await refused(plain)


async def test_a_gateway_cannot_use_the_discovery_of_another_loop(lane: Lane) -> None:
    async with Stage(lane) as stage:

        async def enter() -> None:
            async with Gateway(stage.discovery):
                pass

        await refused(enter)


async def test_before_and_after_its_life_a_discovery_answers_everywhere(lane: Lane) -> None:
    discovery = Discovery(["tcp://127.0.0.1:1"])
    await asyncio.to_thread(discovery.subscribe, "echo")
    async with discovery:
        pass
    assert await asyncio.to_thread(discovery.providers, "echo") == ()
