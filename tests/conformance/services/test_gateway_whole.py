"""A gateway among the real ones: registry, provider and discovery as users run them."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, Self

import pytest

from hansa.errors import HandlerFailed, NoProvider, ProviderBusy, ProviderLost, TimedOut, UnknownMsgId
from hansa.services.discovery import Discovery
from hansa.services.gateway import Gateway, RetryPolicy, Weighted
from hansa.services.provider.server import Provider
from hansa.services.provider.work import Request
from hansa.services.registry import Registry
from hansa.transport import Environment
from tests.support.gateway_stage import until
from tests.support.lanes import Lane, quick

pytestmark = pytest.mark.parametrize("lane", ["tcp", "inproc"], indirect=True)


class Town:
    """One registry, one discovery, one gateway, and providers that answer with their names."""

    def __init__(self, lane: Lane) -> None:
        self._stack = AsyncExitStack()
        self._environment = Environment(network=lane.memory, options=quick())
        self._lane = lane
        self.registry: Registry
        self.gateway: Gateway

    async def __aenter__(self) -> Self:
        lane = self._lane
        enter = self._stack.enter_async_context
        await self._stack.__aenter__()
        self.registry = await enter(Registry(lane.endpoint(), lane.endpoint(), environment=self._environment))
        self.discovery = Discovery([str(self.registry.pub)], environment=self._environment)
        self.discovery.subscribe("who")
        await enter(self.discovery)
        retry = RetryPolicy(tries_max=5, pause_s_min=0.01)
        self.gateway = await enter(Gateway(self.discovery, retry=retry, environment=self._environment))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def provider(self, name: str, *, weight: int = 1, **settings: Any) -> Provider:
        provider = Provider(
            self._lane.endpoint(),
            [str(self.registry.router)],
            name=name,
            environment=self._environment,
            **settings,
        )

        @provider.handler(0)
        async def who(request: Request) -> bytes:
            return name.encode()

        @provider.handler(1)
        async def sleep(request: Request) -> bytes:
            await asyncio.Event().wait()
            return b""

        @provider.handler(2)
        async def refuse(request: Request) -> bytes:
            raise HandlerFailed("not today", "closed-on-mondays")

        await self._stack.enter_async_context(provider)
        await provider.register("who", weight=weight)
        return provider


@pytest.mark.spec("DIS-18")
async def test_requests_flow_as_soon_as_a_provider_has_registered(lane: Lane) -> None:
    async with Town(lane) as town:
        with pytest.raises(NoProvider):
            await town.gateway.request("who", b"?")
        await town.provider("ann")
        await town.gateway.wait_connected("who")
        assert await town.gateway.request("who", b"?") == [b"ann"]
        with pytest.raises(HandlerFailed, match="not today") as caught:
            await town.gateway.request("who", b"?", msg_id=2)
        assert caught.value.reason == "closed-on-mondays"
        with pytest.raises(UnknownMsgId):
            await town.gateway.request("who", b"?", msg_id=99)
        with pytest.raises(TimedOut):
            await town.gateway.request("who", b"?", msg_id=1, timeout=0.02)


@pytest.mark.spec("DIS-22")
async def test_an_updated_weight_reaches_the_balancer(lane: Lane) -> None:
    async with Town(lane) as town:
        ann, _ = await town.provider("ann"), await town.provider("bob")
        town.gateway.set_balancer("who", Weighted())
        await town.gateway.wait_connected("who", 2)
        await ann.update_weight("who", 3)
        await until(lambda: sum(one.weight for one in town.discovery.providers("who")) == 4)
        shares = Counter([(await town.gateway.request("who", b"?"))[0] for _ in range(40)])
        assert shares == {b"ann": 30, b"bob": 10}


@pytest.mark.spec("DIS-29")
async def test_a_provider_that_leaves_under_load_fails_no_request(lane: Lane) -> None:
    async with Town(lane) as town:
        providers = [await town.provider(name) for name in ("ann", "bob", "cyd")]
        await town.gateway.wait_connected("who", 3)
        stop = asyncio.Event()
        answers: Counter[bytes] = Counter()

        async def caller() -> None:
            while not stop.is_set():
                answers[(await town.gateway.request("who", b"?"))[0]] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(caller())
            for provider in providers[:2]:
                before = answers.total()
                await until(lambda before=before: answers.total() > before + 100)  # type: ignore[misc]
                assert await provider.drain(timeout=10)
                await provider.__aexit__(None, None, None)
            before = answers[b"cyd"]
            await until(lambda: answers[b"cyd"] > before + 100)
            stop.set()
        assert town.gateway.stats.failed == {}
        assert set(answers) == {b"ann", b"bob", b"cyd"}


@pytest.mark.spec("DIS-24")
async def test_a_provider_that_dies_with_requests_in_flight_fails_them_at_once(lane: Lane) -> None:
    async with Town(lane) as town:
        ann = await town.provider("ann")
        await town.gateway.wait_connected("who")
        request = asyncio.ensure_future(town.gateway.request("who", b"?", msg_id=1, timeout=None))
        await until(lambda: ann.stats.requests_count == 1)
        for connection in list(ann.router._connections):
            connection.abort()
        with pytest.raises(ProviderLost):
            await request
        assert await town.gateway.request("who", b"?") == [b"ann"]


@pytest.mark.spec("DIS-24")
async def test_a_provider_with_too_much_work_passes_requests_on(lane: Lane) -> None:
    async with Town(lane) as town:
        await town.provider("ann", concurrency_max=1, waiting_max=1)
        await town.gateway.wait_connected("who")
        stuck = [asyncio.ensure_future(town.gateway.request("who", b"?", msg_id=1)) for _ in range(2)]
        await until(lambda: town.gateway.stats.in_flight_count == 2)
        with pytest.raises(ProviderBusy):
            await town.gateway.request("who", b"?")
        await town.provider("bob")
        await town.gateway.wait_connected("who", 2)
        assert [await town.gateway.request("who", b"?") for _ in range(4)] == [[b"bob"]] * 4
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
