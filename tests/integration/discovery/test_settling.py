"""The only registry is killed and started again: callers notice nothing."""

import asyncio

import pytest

from hansa import Gateway, HansaError
from hansa.services.discovery import ProviderAdded, ProviderRemoved, ServiceUnavailable
from hansa.transport import Environment, Sub
from tests.support.discovery_cast import OPTIONS, PAY, WITHIN_S, Cast, Heard, endpoints, until
from tests.support.discovery_processes import RegistryProcess
from tests.support.registry_callers import Listener
from tests.support.reserved_ports import reserved_endpoints

# How long the registry settles. It takes up to as long as the registry was away, and some more, until its
# providers dial it again.
TIMEOUT_S = 6.0

pytestmark = pytest.mark.timeout(100)


class Caller:
    """Calls without a pause for as long as the block lasts, and keeps every outcome."""

    def __init__(self, gateway: Gateway) -> None:
        self.answered: set[bytes] = set()
        self.answered_count = 0
        self.failed: list[HansaError] = []
        self._gateway = gateway

    async def call_on(self) -> None:
        while True:
            try:
                who, _ = await self._gateway.request(PAY, b"hello", timeout=WITHIN_S)
            except HansaError as error:
                self.failed.append(error)
            else:
                self.answered.add(who)
                self.answered_count += 1
            await asyncio.sleep(0.005)


@pytest.mark.spec("DIS-01")
@pytest.mark.spec("DIS-07")
@pytest.mark.spec("DIS-14")
@pytest.mark.parametrize("registry_id", [7, None], ids=["the same id", "a new id"])
async def test_a_registry_that_is_killed_and_restarted_costs_no_request(registry_id: int | None) -> None:
    with reserved_endpoints(2) as (pub, router):
        first = RegistryProcess(
            pub, router, registry_id=registry_id, heartbeat_interval=0.1, heartbeat_timeout=TIMEOUT_S
        )
        async with first, Cast() as cast, asyncio.TaskGroup() as group:
            await first.ready()
            if registry_id is None:
                first.registry_id = None  # So that the next run draws its own.
            providers = [await cast.provider(routing_id=name) for name in (b"ann", b"bob")]
            for provider in providers:
                provider.connect_registry(router)
                await provider.register(PAY, timeout=WITHIN_S)
            both = sorted(str(provider.endpoint) for provider in providers)
            discovery = await cast.discovery(pub)
            heard = Heard(discovery)
            gateway = await cast.gateway(discovery)
            await gateway.wait_connected(PAY, 2, timeout=WITHIN_S)
            caller = Caller(gateway)
            calling = group.create_task(caller.call_on(), name="caller")

            await first.kill()
            await until(lambda: discovery.registries_heard == (), "the registry is gone")
            assert endpoints(discovery) == both
            async with (
                first.again() as second,
                Listener(Sub(environment=Environment(options=OPTIONS))) as listener,
            ):
                await second.ready()
                listener.sub.connect(pub)
                async with asyncio.timeout(WITHIN_S):
                    # First it knows nobody, and says that this means nothing.
                    assert (await listener.next()).is_settling
                    told = await listener.until(lambda told: not told.is_settling)
                assert [one.endpoint for one in told.services[PAY]] == both
                await until(
                    lambda: discovery.lists_heard.get(told.registry_id, 0) >= told.list_seq, "it has settled"
                )
                count = caller.answered_count
                await until(lambda: caller.answered_count > count + 10, "calls go on")
            calling.cancel()
            assert caller.failed == []
            assert caller.answered == {b"ann", b"bob"}
            assert endpoints(discovery) == both
            assert len(heard.of(ProviderAdded)) == 2
            assert heard.of(ProviderRemoved) == heard.of(ServiceUnavailable) == []
            assert all(provider.stats.reregistrations_count == 1 for provider in providers)
