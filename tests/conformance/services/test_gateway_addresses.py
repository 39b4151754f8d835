"""A gateway without a discovery and a registry: it is given the endpoints of providers."""

from typing import Any

import pytest

from hansa.chance import Chance
from hansa.errors import BadArgument, BadEndpoint, NoProvider
from hansa.services.gateway import Addresses, Gateway
from hansa.services.provider import Provider, Request
from hansa.transport import Environment
from tests.support.gateway_stage import until
from tests.support.lanes import Lane, quick
from tests.support.scripted_provider import ScriptedProvider, saying, silence

pytestmark = pytest.mark.parametrize("lane", ["tcp", "inproc"], indirect=True)


def gateway_to(lane: Lane, addresses: Addresses, **settings: Any) -> Gateway:
    """A gateway on this lane that knows nothing but these addresses."""
    return Gateway(
        addresses,
        environment=Environment(tls=lane.tls, options=quick(), network=lane.memory, chance=Chance.seeded(1)),
        **settings,
    )


async def test_a_provider_is_called_by_its_address(lane: Lane) -> None:
    provider = Provider(lane.endpoint(), environment=Environment(options=quick(), network=lane.memory))

    @provider.handler(msg_id=3)
    async def shout(request: Request) -> bytes:
        return request.payload.upper()

    async with provider:
        addresses = Addresses({"shouts": [str(provider.endpoint)]})
        async with gateway_to(lane, addresses) as gateway:
            # Not waited for: a request waits until the first dial has ended.
            assert await gateway.request("shouts", b"ahoy", msg_id=3) == [b"AHOY"]
            assert gateway.connection_count("shouts") == 1


async def test_requests_are_shared_out_over_the_addresses(lane: Lane) -> None:
    async with ScriptedProvider(lane, b"ann") as ann, ScriptedProvider(lane, b"bob") as bob:
        addresses = Addresses({"echo": [ann.endpoint, bob.endpoint]})
        async with gateway_to(lane, addresses) as gateway:
            await gateway.wait_connected("echo", 2)
            for _ in range(4):
                await gateway.request("echo", b"?")
            assert len(ann.asked) == len(bob.asked) == 2


async def test_whoever_answers_at_an_address_is_its_provider_also_after_a_restart(lane: Lane) -> None:
    async with ScriptedProvider(lane, b"ann", answer=saying(b"first")) as first:
        endpoint = first.endpoint
        async with gateway_to(lane, Addresses({"echo": [endpoint]})) as gateway:
            assert await gateway.request("echo", b"?") == [b"first"]
            await first.close()
            await until(lambda: gateway.connection_count("echo") == 0)
            async with ScriptedProvider(lane, b"eve", answer=saying(b"second"), where=endpoint):
                await gateway.wait_connected("echo")
                assert await gateway.request("echo", b"?") == [b"second"]
            assert gateway.stats.impostors_count == 0


async def test_connections_follow_the_addresses(lane: Lane) -> None:
    async with ScriptedProvider(lane, b"ann") as ann, ScriptedProvider(lane, b"bob") as bob:
        addresses = Addresses()
        async with gateway_to(lane, addresses) as gateway:
            addresses.set("echo", [ann.endpoint])
            await gateway.wait_connected("echo", 1)
            addresses.set("echo", [ann.endpoint, bob.endpoint])
            await gateway.wait_connected("echo", 2)
            addresses.set("echo", [bob.endpoint])
            await ann.wait_left()
            assert gateway.connection_count("echo") == 1
            await gateway.request("echo", b"?")
            assert (len(ann.asked), len(bob.asked)) == (0, 1)
            addresses.set("echo", [])
            await bob.wait_left()
            with pytest.raises(NoProvider):
                await gateway.request("echo", b"?")


async def test_a_provider_that_is_left_out_answers_what_it_was_asked(lane: Lane) -> None:
    async with ScriptedProvider(lane, b"ann", answer=silence) as ann:
        addresses = Addresses({"echo": [ann.endpoint]})
        async with gateway_to(lane, addresses) as gateway:
            await gateway.wait_connected("echo")
            await gateway.send("echo", b"?")
            await until(lambda: bool(ann.asked))
            addresses.set("echo", [])
            ann.router.post(ann.asked[0].peer, ann.asked[0].reply(b"late but there"))
            assert (await gateway.recv()).result() == [b"late but there"]
            await ann.wait_left()


async def test_a_service_without_an_address_has_no_provider(lane: Lane) -> None:
    async with gateway_to(lane, Addresses()) as gateway:
        with pytest.raises(
            NoProvider, match="of 0 providers that are listed none is connected; its endpoints were"
        ):
            await gateway.request("echo", b"?")


async def test_an_address_where_nobody_listens_is_told_and_dialled_again(lane: Lane) -> None:
    async with ScriptedProvider(lane, b"ann") as gone:
        endpoint = gone.endpoint
    async with gateway_to(lane, Addresses({"echo": [endpoint]})) as gateway:
        with pytest.raises(NoProvider, match="of 1 providers that are listed none is connected"):
            await gateway.request("echo", b"?")
        async with ScriptedProvider(lane, b"ann", where=endpoint):
            await gateway.wait_connected("echo")
            assert await gateway.request("echo", b"!") == [b"!"]


async def test_a_gateway_that_closes_leaves_the_addresses_to_the_others(lane: Lane) -> None:
    async with ScriptedProvider(lane, b"ann") as ann:
        addresses = Addresses()
        async with gateway_to(lane, addresses) as staying:
            async with gateway_to(lane, addresses, name="leaving"):
                pass
            addresses.set("echo", [ann.endpoint])
            assert await staying.request("echo", b"?") == [b"?"]


async def test_wrong_addresses_are_refused_and_change_nothing(lane: Lane) -> None:
    async with ScriptedProvider(lane, b"ann") as ann:
        addresses = Addresses({"echo": [ann.endpoint]})
        with pytest.raises(BadArgument, match="write \\["):
            addresses.set("echo", ann.endpoint)
        with pytest.raises(BadEndpoint):
            addresses.set("echo", ["tcp://127.0.0.1:6000", "nonsense"])
        with pytest.raises(BadEndpoint, match="where to listen"):
            addresses.set("echo", ["tcp://*:6000"])
        assert [provider.endpoint for provider in addresses.services["echo"]] == [ann.endpoint]
