"""Somebody repeats, under the name of a registry, what that registry said before."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from hansa import Discovery
from hansa.services.discovery import ProviderAdded
from hansa.transport import Environment, Pub, SocketOptions, Sub
from hansa.wire.listing import REGISTRY_SYNC, SERVICE_LIST, RegistrySync, ServiceList, decode_list
from tests.support.discovery_cast import Heard, until
from tests.support.fault_stage import SERVICE, Program

WITHIN_S = 60.0
OPTIONS = SocketOptions(reconnect_s_min=0.02, reconnect_s_max=0.1, linger=0.5)


@pytest.mark.spec("DIS-10")
@pytest.mark.spec("DIS-11")
async def test_old_lists_that_somebody_replays_change_nothing_and_are_counted() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(WITHIN_S):
        enter = stack.enter_async_context
        wanted: set[bytes] = set()
        forger = await enter(
            Pub(
                environment=Environment(options=OPTIONS),
                on_subscription=lambda peer, prefix, _: wanted.add(prefix),
            )
        )
        forged = str(await forger.bind("tcp://127.0.0.1:0"))
        # A registry; another one and a discovery that follow it, and the forger as well.
        registry = await enter(Program([], "registry_program"))
        ready = await registry.event("ready")
        follower = await enter(Program([], "registry_program", f"--peer={ready['pub']}", f"--peer={forged}"))
        await follower.event("ready")
        discovery = Discovery([ready["pub"], forged], environment=Environment(options=OPTIONS))
        discovery.subscribe(SERVICE)
        heard = Heard(await enter(discovery))
        tap = await enter(Sub(environment=Environment(options=OPTIONS)))
        tap.subscribe(b"")
        await tap.connect(ready["pub"]).up()
        await until(lambda: len(wanted) == 2, "both listen to the forger")

        # A provider comes and goes; the lists with it are kept.
        provider = await enter(
            Program([], "provider_program", "--name=p", f"--service={SERVICE}", f"--router={ready['router']}")
        )
        endpoint = (await provider.event("registered"))["endpoint"]
        old = await tapped(tap, endpoint)
        await until(lambda: discovery.is_available(SERVICE), "the discovery knows the provider")
        while endpoint not in await entries(follower):
            await asyncio.sleep(0.01)
        provider.process.terminate()
        await provider.event("drained")
        await until(lambda: not discovery.is_available(SERVICE), "the discovery knows that it left")
        while endpoint in await entries(follower):
            await asyncio.sleep(0.01)

        # Both lists once more, from the forger: older than what the registry has said since.
        before = (await follower.ask("stats", "stats"))["stats"]["stale_lists_count"]
        older = discovery.stats.lists_older_count
        for frames in old:
            await forger.send(frames)
        await until(lambda: discovery.stats.lists_older_count == older + 1, "the discovery has counted it")
        while (await follower.ask("stats", "stats"))["stats"]["stale_lists_count"] != before + 1:
            await asyncio.sleep(0.01)
        assert not discovery.is_available(SERVICE)
        assert endpoint not in await entries(follower)
        assert len(heard.of(ProviderAdded)) == 1

        # Nobody else is affected: the next provider is known to all.
        await enter(
            Program([], "provider_program", "--name=q", f"--service={SERVICE}", f"--router={ready['router']}")
        )
        await until(lambda: discovery.is_available(SERVICE), "the discovery knows the next provider")
        assert [one.routing_id for one in discovery.providers(SERVICE)] == [b"q"]
        while not await entries(follower):
            await asyncio.sleep(0.01)


async def tapped(tap: Sub, endpoint: str) -> list[list[bytes]]:
    """A list of each kind that names this provider, as it was on the wire."""
    found: dict[int, list[bytes]] = {}
    while found.keys() != {SERVICE_LIST, REGISTRY_SYNC}:
        frames = (await tap.recv()).parts
        told: ServiceList | RegistrySync = decode_list(frames)
        if endpoint in (entry.endpoint for entry in told.services.get(SERVICE, ())):
            found[int.from_bytes(frames[0], "little")] = list(frames)
    return list(found.values())


async def entries(registry: Program) -> dict[str, str]:
    told: dict[str, str] = (await registry.ask("stats", "stats"))["entries"].get(SERVICE, {})
    return told
