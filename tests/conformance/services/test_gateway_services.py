"""What a gateway keeps of a service, and what it does before anything is known of one."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import pytest

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, BadArgument, NoProvider, TimedOut
from hansa.services.discovery import Discovery
from hansa.services.gateway import Choice, Completion, Gateway
from tests.support.gateway_stage import Stage, until
from tests.support.lanes import Lane
from tests.support.scripted_provider import saying, silence

pytestmark = pytest.mark.parametrize("lane", ["tcp", "inproc"], indirect=True)


async def gone(stage: Stage, gateway: Gateway, service: str, endpoint: str) -> None:
    """The registry lists it no more, and the gateway has given the service up."""
    stage.retract(service, endpoint)
    await until(lambda: gateway.stats.services_count == 0)


# -- no socket for a service that is gone


@pytest.mark.spec("DIS-18")
async def test_a_service_that_nobody_offers_any_more_has_no_socket(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await stage.gateway()
        ann = await stage.provider("ann")
        for number in range(5):
            service = f"job-{number}"
            stage.offer(service, ann.entry())
            await stage.listed(service, 1)
            assert await gateway.request(service, b"?") == [b"?"]
            assert gateway.stats.services_count == 1
            await gone(stage, gateway, service, ann.endpoint)
        await ann.wait_left(5)
        board = gateway._board
        assert board is not None
        await until(lambda: not board._tasks._tasks)


async def test_a_service_keeps_its_socket_while_a_request_is_in_flight(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        ann.answer = silence
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("echo", b"?", timeout=None))
            (asked,) = await ann.wait_asked(1)
            stage.retract("echo", ann.endpoint)
            await until(lambda: gateway.connection_count("echo") == 0)
            assert gateway.stats.services_count == 1
            ann.reply(asked, b"!")
        assert task.result() == [b"!"]
        await until(lambda: gateway.stats.services_count == 0)


async def test_names_that_are_asked_for_in_vain_leave_nothing_behind(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await stage.gateway()
        stage.publish()
        await stage.discovery.wait_heard()
        for number in range(3):
            with pytest.raises(NoProvider):
                await gateway.request(f"nobody-{number}", b"?")
            with pytest.raises(NoProvider):
                await gateway.router(f"nobody-{number}").send(b"ann", 1, b"?")
            with pytest.raises(TimedOut):
                await gateway.wait_connected(f"nobody-{number}", timeout=0.01)
        assert gateway.stats.services_count == 0


M = TypeVar("M", bound=Choice)


class Last:
    """Chooses the last in the order of endpoints."""

    def choose(self, members: Sequence[M], key: bytes | None, chance: Chance) -> M:
        return max(members, key=lambda member: member.endpoint)


async def test_what_was_set_for_a_service_stays_when_it_goes_and_comes_back(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, providers = await stage.echo_service("ann", "bob")
        gateway.set_balancer("echo", Last())
        router = gateway.router("echo")
        assert set(router.peers) == {b"ann", b"bob"}
        for one in providers:
            stage.retract("echo", one.endpoint)
        await until(lambda: gateway.stats.services_count == 0)
        assert router.peers == ()
        for one in providers:
            stage.offer("echo", one.entry())
        await gateway.wait_connected("echo", 2)
        for _ in range(4):
            await gateway.request("echo", b"?")
        last, other = sorted(providers, key=lambda one: one.endpoint, reverse=True)
        assert (len(last.asked), len(other.asked)) == (4, 0)
        assert set(router.peers) == {b"ann", b"bob"}
        await router.send(b"ann", 77, b"direct")
        assert (await gateway.recv()).result() == [b"direct"]
        gateway.set_balancer("echo", None)
        for _ in range(2):
            await gateway.request("echo", b"?")
        assert {one.endpoint for one in providers if len(one.asked) > (4 if one is last else 0)} == {
            one.endpoint for one in providers
        }


async def test_who_waits_for_a_service_hears_of_it_however_often_it_came_and_went(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await stage.gateway()
        ann = await stage.provider("ann", "echo")
        await gateway.wait_connected("echo")
        async with asyncio.TaskGroup() as group:
            both = group.create_task(gateway.wait_connected("echo", 2))
            for _ in range(2):
                stage.retract("echo", ann.endpoint)
                await until(lambda: not ann.router.peers)
                stage.offer("echo", ann.entry())
                await until(lambda: gateway.connection_count("echo") == 1)
            assert not both.done()
            await stage.provider("bob", "echo")


# -- unknown is not none


@pytest.mark.spec("DIS-20")
@pytest.mark.parametrize("timeout", [10.0, None])
async def test_a_request_waits_until_a_registry_has_been_heard(lane: Lane, timeout: float | None) -> None:
    async with Stage(lane) as stage:
        ann = await stage.provider("ann", answer=saying(b"!"))
        gateway = await stage.gateway()
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(gateway.request("echo", b"?", timeout=timeout))
            got: list[Completion] = []
            gateway.submit("echo", b"?", got.append, timeout=timeout)
            await gateway.request_send("echo", b"?", timeout=timeout)
            direct = group.create_task(gateway.router("echo").send(b"ann", 77, b"?", timeout=timeout))
            await until(lambda: gateway.stats.parked_count == 3)
            assert not stage.discovery.has_heard
            stage.offer("echo", ann.entry())
            ends = [await gateway.recv() for _ in range(2)]
        await until(lambda: bool(got))
        assert direct.done()
        assert asked.result() == [b"!"]
        assert [one.result() for one in [*got, *ends]] == [[b"!"]] * 3


async def test_the_first_list_tells_those_who_wait_for_what_is_not_in_it(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await stage.gateway()
        waiting = [
            asyncio.ensure_future(gateway.request("echo", b"?", timeout=None)),
            asyncio.ensure_future(gateway.router("echo").send(b"ann", 77, b"?", timeout=None)),
        ]
        await until(lambda: gateway.stats.parked_count == 1)
        await stage.provider("ann", "another")
        for task in waiting:
            with pytest.raises(NoProvider, match=r"of 0 providers .* registry 7 was heard"):
                await task
        await until(lambda: list(gateway._board.links) == ["another"])  # type: ignore[union-attr]
        # From now on that is known.
        with pytest.raises(NoProvider):
            gateway.submit("echo", b"?", lambda completion: None)


async def test_a_request_that_no_registry_answered_in_time_says_which_were_tried(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await stage.gateway()
        with pytest.raises(TimedOut, match=r"no provider was ready .no registry answered; tried"):
            await gateway.request("echo", b"?", timeout=0.02)
        with pytest.raises(TimedOut, match="nothing was sent; no registry answered; tried"):
            await gateway.router("echo").send(b"ann", 1, b"?", timeout=0.02)
        await until(lambda: gateway.stats.services_count == 0)


async def test_without_a_registry_to_hear_there_is_nothing_to_wait_for(lane: Lane) -> None:
    discovery = Discovery()
    discovery.subscribe("echo")
    async with Gateway(discovery) as gateway:
        with pytest.raises(NoProvider, match="no registry was given"):
            await gateway.request("echo", b"?", timeout=None)
    discovery.connect_registry("tcp://127.0.0.1:1")
    async with Gateway(discovery) as gateway:
        with pytest.raises(NoProvider, match="was not entered"):
            await gateway.request("echo", b"?", timeout=None)


async def test_a_discovery_that_closes_ends_the_wait(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await stage.gateway()
        task = asyncio.ensure_future(gateway.request("echo", b"?", timeout=None))
        heard = asyncio.ensure_future(stage.discovery.wait_heard())
        await until(lambda: gateway.stats.parked_count == 1)
        await stage.discovery.close()
        with pytest.raises(NoProvider, match="discovery is closed"):
            await task
        with pytest.raises(AlreadyClosed):
            await heard


async def test_a_service_that_is_not_followed_is_told_so_at_any_time(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (_,) = await stage.echo_service("ann")
        stage.discovery.unsubscribe("echo")
        await until(lambda: gateway.stats.services_count == 0)
        with pytest.raises(BadArgument, match=r"subscribe\('echo'\) first"):
            gateway.submit("echo", b"?", lambda completion: None)
        with pytest.raises(BadArgument, match=r"subscribe\('echo'\) first"):
            gateway.router("echo")
        # What is subscribed to later is dialled at once, and waited for.
        stage.discovery.subscribe("echo")
        assert await gateway.request("echo", b"?") == [b"?"]
