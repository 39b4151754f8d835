"""A registry and a provider as a user starts them, with a timeout that the provider knows nothing of."""

import asyncio
import sys

import pytest

from tests.support.discovery_processes import RegistryProcess, Told

TIMEOUT_S = 2.0


class ProvideProcess(Told):
    """`hansa provide`."""

    def __init__(self, service: str, router: str) -> None:
        super().__init__("")
        self._command = [sys.executable, "-m", "hansa.cli", "provide", service, "--exec", "cat", "--json"]
        self._command.append(f"--router={router}")


@pytest.mark.spec("DIS-31")
async def test_a_provider_outlives_the_short_timeout_of_its_registry() -> None:
    async with RegistryProcess(heartbeat_timeout=TIMEOUT_S) as registry:
        await registry.ready()
        async with ProvideProcess("shout", registry.router):
            await registry.event("provider-added", service="shout")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2 * TIMEOUT_S + 0.5):
                    await registry.event("provider-removed")
            registry.process.terminate()
            stats = (await registry.event("stopped"))["stats"]
    assert stats["expired_count"] == 0
    assert stats["registered_count"] == 1
    assert stats["heartbeats_count"] >= 4
