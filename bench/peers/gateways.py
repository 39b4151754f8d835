"""hansa's services through their public interface: a registry process, a provider, a client with a gateway.

Settings: the defaults, heartbeats and deadlines included. The handler is an async function that returns its
payload; each request is one `await gateway.request(...)` and carries the default timeout to the provider. The
roles of "idle" and "pending" hold many connections or requests and tell what they weigh.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import hansa.wire.frames
from bench.job import Job
from bench.link import Link
from bench.load import keep_in_flight
from bench.memory import open_files_max, resident_bytes
from hansa.services.discovery import Discovery
from hansa.services.gateway import Completion, Gateway
from hansa.services.provider.server import Provider
from hansa.services.provider.work import Request
from hansa.services.registry import Registry

SERVICE = "echo"
MESSAGE_ID = 1
START_S_MAX = 30.0
HOLD_S = 600.0


def _pub(job: Job) -> str:
    return f"tcp://{job.address}"


def _router(job: Job) -> str:
    return f"tcp://{job.second_address}"


async def broker(job: Job, link: Link) -> None:
    """The registry."""
    async with Registry(_pub(job), _router(job)):
        link.ready()
        await asyncio.Event().wait()


async def serve(job: Job, link: Link) -> None:
    """One provider with an async handler."""
    async with Provider(registries=[_router(job)]) as provider:

        @provider.handler(MESSAGE_ID)
        async def echo(request: Request) -> bytes:
            return request.payload

        await provider.register(SERVICE)
        link.ready(compiled=not (hansa.wire.frames.__file__ or "").endswith(".py"))
        await asyncio.Event().wait()


@asynccontextmanager
async def _client(job: Job) -> AsyncIterator[Gateway]:
    async with Discovery([_pub(job)]) as discovery:
        discovery.subscribe(SERVICE)
        async with Gateway(discovery, in_flight_max=100_000) as gateway:
            await gateway.wait_connected(SERVICE, timeout=START_S_MAX)
            yield gateway


async def call(job: Job, link: Link) -> None:
    """Callers that await the gateway."""
    async with _client(job) as gateway:

        async def request(payload: bytes) -> bytes:
            return (await gateway.request(SERVICE, [payload], msg_id=MESSAGE_ID))[0]

        link.ready()
        await keep_in_flight(request, job, link)


# -- kind "idle": what a connection weighs


async def many_providers(job: Job, link: Link) -> None:
    """As many providers of the service as the case is wide, each with a socket and a registry line."""
    open_files_max()
    async with AsyncExitStack() as providers:
        before = resident_bytes()
        for _ in range(job.case.width):
            provider = await providers.enter_async_context(Provider(registries=[_router(job)]))
            await provider.register(SERVICE)
        link.ready()
        await link.order()
        link.done(bytes=(resident_bytes() - before) / job.case.width)
        await asyncio.Event().wait()


async def one_gateway(job: Job, link: Link) -> None:
    """A gateway that connects to all of them."""
    open_files_max()
    async with Discovery([_pub(job)]) as discovery:
        link.ready()
        await link.order()
        before = resident_bytes()
        discovery.subscribe(SERVICE)
        async with Gateway(discovery) as gateway:
            await gateway.wait_connected(SERVICE, job.case.width, timeout=START_S_MAX)
            link.done(bytes=(resident_bytes() - before) / job.case.width)
            await asyncio.Event().wait()


async def one_provider(job: Job, link: Link) -> None:
    """A provider that many gateways connect to."""
    open_files_max()
    async with Provider(registries=[_router(job)]) as provider:
        await provider.register(SERVICE)
        before = resident_bytes()
        link.ready()
        await link.order()
        link.done(bytes=(resident_bytes() - before) / len(provider.router.peers))
        await asyncio.Event().wait()


async def many_gateways(job: Job, link: Link) -> None:
    """As many gateways as the case is wide, on one discovery, each connected to that provider."""
    open_files_max()
    async with Discovery([_pub(job)]) as discovery, AsyncExitStack() as gateways:
        discovery.subscribe(SERVICE)
        await discovery.wait_available(SERVICE, timeout=START_S_MAX)
        before = resident_bytes()
        for _ in range(job.case.width):
            gateway = await gateways.enter_async_context(Gateway(discovery))
            await gateway.wait_connected(SERVICE, timeout=START_S_MAX)
        link.ready()
        await link.order()
        link.done(bytes=(resident_bytes() - before) / job.case.width)
        await asyncio.Event().wait()


# -- kind "pending": what a request without an outcome weighs


async def stall(job: Job, link: Link) -> None:
    """A provider whose handler never returns: what cannot run waits in line, as much as the case is wide."""
    async with Provider(registries=[_router(job)], waiting_max=job.case.width) as provider:

        @provider.handler(MESSAGE_ID)
        async def wait(_request: Request) -> bytes:
            await asyncio.Event().wait()
            return b""

        await provider.register(SERVICE)
        before = resident_bytes()
        link.ready()
        while True:
            await link.order()
            link.done(
                bytes=(resident_bytes() - before) / job.case.width,
                held=provider.stats.running_count + provider.stats.waiting_count,
            )


async def pile_up(job: Job, link: Link) -> None:
    """As many requests as the case is wide at once: each a task that awaits `request`, or a `submit`."""
    payload, count = job.payload, job.case.width
    async with _client(job) as gateway, asyncio.TaskGroup() as callers:

        async def wait() -> None:
            await gateway.request(SERVICE, [payload], msg_id=MESSAGE_ID, timeout=HOLD_S)

        def ended(completion: Completion) -> None:
            completion.result()

        link.ready()
        [form] = await link.order()
        before = resident_bytes()
        for _ in range(count):
            if form == "request":
                callers.create_task(wait(), name="caller")
            else:
                gateway.submit(SERVICE, [payload], ended, msg_id=MESSAGE_ID, timeout=HOLD_S)
        while gateway.stats.in_flight_count < count:  # noqa: ASYNC110 - the callers have begun then
            await asyncio.sleep(0)
        link.done(bytes=(resident_bytes() - before) / count)
        await asyncio.Event().wait()
