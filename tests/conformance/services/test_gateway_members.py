"""Providers come, go, move and are not who the list says: the gateway follows."""

import asyncio

import pytest

from hansa.errors import BadArgument, NoProvider, TimedOut
from hansa.services.gateway import Completion
from hansa.transport import Connected, Disconnected
from hansa.wire.listing import ProviderEntry
from tests.support import zmtp_bytes as zmtp
from tests.support.gateway_stage import Stage, until
from tests.support.lanes import Lane
from tests.support.scripted_provider import ScriptedProvider, saying, silence

pytestmark = pytest.mark.parametrize("lane", ["tcp", "inproc"], indirect=True)


def forged(provider: ScriptedProvider, routing_id: bytes) -> ProviderEntry:
    """An entry that names somebody else at this provider's endpoint."""
    return ProviderEntry(endpoint=provider.endpoint, routing_id=routing_id)


@pytest.mark.spec("DIS-18")
async def test_connections_follow_the_list(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await stage.gateway()
        assert gateway.connection_count("echo") == 0
        ann = await stage.provider("ann", "echo")
        await gateway.wait_connected("echo", 1)
        bob = await stage.provider("bob", "echo")
        await gateway.wait_connected("echo", 2)
        assert gateway.connection_count("echo") == gateway.stats.connections_count == 2
        stage.retract("echo", ann.endpoint)
        await ann.wait_left()
        assert gateway.connection_count("echo") == 1
        assert [await gateway.request("echo", b"?") for _ in range(3)] == [[b"?"]] * 3
        assert ann.asked == []
        assert len(bob.asked) == 3


@pytest.mark.spec("DIS-18")
async def test_what_the_discovery_knew_before_the_gateway_is_connected_too(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.provider("ann", "one", "two")
        await stage.listed("two", 1)
        gateway = await stage.gateway()
        await gateway.wait_connected("one")
        await gateway.wait_connected("two")
        assert gateway.stats.connections_count == 2


async def test_waiting_for_connections_gives_up_in_time_and_says_what_is_there(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await stage.echo_service("ann")
        with pytest.raises(TimedOut, match="1 of 2 providers of echo"):
            await gateway.wait_connected("echo", 2, timeout=0.01)
        stage.discovery.unsubscribe("other")
        with pytest.raises(BadArgument):
            await gateway.wait_connected("other")


@pytest.mark.spec("DIS-18")
async def test_a_lost_connection_is_made_again(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        ann.vanish()
        await until(lambda: gateway.connection_count("echo") == 0)
        # It is being dialled: the request waits for that instead of failing.
        assert await gateway.request("echo", b"?") == [b"?"]
        assert ann.came_count == 2


async def test_nobody_listed_is_no_provider_at_once(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await stage.gateway()
        stage.publish()
        await stage.discovery.wait_heard()
        with pytest.raises(NoProvider, match=r"of 0 providers .* registry 7 was heard"):
            await gateway.request("echo", b"?", timeout=None)
        with pytest.raises(NoProvider):
            gateway.submit("echo", b"?", lambda completion: None)
        with pytest.raises(NoProvider):
            await gateway.send("echo", b"?")
        assert gateway.stats.in_flight_count == 0


async def test_a_request_waits_for_the_first_dial(lane: Lane) -> None:
    async with Stage(lane) as stage:
        listener, _ = await stage.raw_provider("echo", b"ann")
        gateway = await stage.gateway()
        await stage.listed("echo", 1)
        got: list[Completion] = []
        for number in range(3):
            gateway.submit("echo", b"%d" % number, got.append)
        assert gateway.stats.parked_count == 3
        raw = await listener.accept()
        await raw.shake_hands(b"ROUTER", b"ann")
        messages = [await raw.read_message() for _ in range(3)]
        assert [message[2] for message in messages] == [b"0", b"1", b"2"]
        raw.send(b"".join(zmtp.message(*message) for message in messages))
        await until(lambda: len(got) == 3)
        assert [one.result() for one in got] == [[b"0"], [b"1"], [b"2"]]
        assert gateway.stats.parked_count == 0


async def test_when_the_dial_fails_those_who_waited_are_told(lane: Lane) -> None:
    async with Stage(lane) as stage:
        async with await stage.provider("gone") as gone:
            endpoint = gone.endpoint
        stage.offer("echo", ProviderEntry(endpoint=endpoint, routing_id=b"gone"))
        gateway = await stage.gateway()
        await stage.listed("echo", 1)
        with pytest.raises(NoProvider, match="of 1 providers that are listed none is connected"):
            await gateway.request("echo", b"?", timeout=None)
        assert gateway.stats.failed in ({}, {"no-provider": 1})
        # And at once, while it is dialled again and again.
        with pytest.raises(NoProvider):
            await gateway.request("echo", b"?", timeout=None)


@pytest.mark.parametrize("answer", [b"", b"this is no greeting of ZMTP, whatever else it may be " * 2])
async def test_when_the_handshake_fails_those_who_waited_are_told(lane: Lane, answer: bytes) -> None:
    async with Stage(lane) as stage:
        listener, _ = await stage.raw_provider("echo", b"ann")
        gateway = await stage.gateway()
        await stage.listed("echo", 1)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                asyncio.wait_for(failing(gateway.request("echo", b"?", timeout=None)), 10)
            )
            raw = await listener.accept()
            await until(lambda: gateway.stats.parked_count == 1)
            if answer:
                raw.send(answer)
            else:
                await raw.close()
        assert type(task.result()) is NoProvider


async def failing(request: object) -> BaseException | None:
    try:
        await request  # type: ignore[misc]
    except NoProvider as error:
        return error
    return None


async def test_a_provider_that_appears_serves_those_who_wait_for_another(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.raw_provider("echo", b"mute")
        gateway = await stage.gateway()
        await stage.listed("echo", 1)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("echo", b"?", timeout=None))
            await until(lambda: gateway.stats.parked_count == 1)
            await stage.provider("ann", "echo")
        assert task.result() == [b"?"]


async def test_when_the_provider_that_was_dialled_is_unlisted_those_who_waited_are_told(lane: Lane) -> None:
    async with Stage(lane) as stage:
        listener, entry = await stage.raw_provider("echo", b"mute")
        gateway = await stage.gateway()
        await stage.listed("echo", 1)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(failing(gateway.request("echo", b"?", timeout=None)))
            await listener.accept()
            await until(lambda: gateway.stats.parked_count == 1)
            stage.retract("echo", entry.endpoint)
        assert type(task.result()) is NoProvider


@pytest.mark.spec("DIS-18")
async def test_an_impostor_gets_no_requests_until_the_list_names_it(lane: Lane) -> None:
    async with Stage(lane) as stage:
        stranger = await stage.provider("stranger")
        stage.offer("echo", forged(stranger, b"the one before"))
        gateway = await stage.gateway()
        await until(lambda: gateway.stats.impostors_count == 1)
        assert gateway.connection_count("echo") == 0
        with pytest.raises(NoProvider):
            await gateway.request("echo", b"secret")
        stage.offer("echo", stranger.entry())
        await gateway.wait_connected("echo")
        assert await gateway.request("echo", b"now") == [b"now"]
        assert [one.parts for one in stranger.asked] == [[b"now"]]


@pytest.mark.spec("DIS-18")
async def test_a_provider_restarted_under_another_id_is_found_when_the_list_says_so(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        await ann.close()
        async with ScriptedProvider(lane, b"new ann", saying(b"new"), where=ann.endpoint) as successor:
            await until(lambda: gateway.stats.impostors_count == 1)
            with pytest.raises(NoProvider):
                await gateway.request("echo", b"?")
            stage.offer("echo", successor.entry())
            await gateway.wait_connected("echo")
            assert await gateway.request("echo", b"?") == [b"new"]
            await gateway.close()


@pytest.mark.spec("DIS-18")
async def test_a_removed_provider_finishes_what_it_has_and_only_then_is_disconnected(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        ann.answer = silence
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gateway.request("echo", b"%d" % number)) for number in range(2)]
            asked = await ann.wait_asked(2)
            stage.retract("echo", ann.endpoint)
            await until(lambda: gateway.connection_count("echo") == 0)
            with pytest.raises(NoProvider):
                await gateway.request("echo", b"late")
            ann.reply(asked[0], b"0")
            assert await tasks[0] == [b"0"]
            assert ann.events.of(Disconnected) == []
            ann.reply(asked[1], b"1")
        assert tasks[1].result() == [b"1"]
        await ann.wait_left()
        assert len(ann.asked) == 2


@pytest.mark.spec("DIS-18")
@pytest.mark.parametrize("how", ["timeout", "cancel", "error", "lost"])
async def test_a_removed_provider_is_disconnected_however_its_last_request_ends(lane: Lane, how: str) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        ann.answer = silence
        timeout = 0.1 if how == "timeout" else None
        task = asyncio.ensure_future(gateway.request("echo", b"?", timeout=timeout))
        (asked,) = await ann.wait_asked(1)
        stage.retract("echo", ann.endpoint)
        await until(lambda: gateway.connection_count("echo") == 0)
        if how == "cancel":
            task.cancel()
        elif how == "error":
            ann.fail(asked, "own")
        elif how == "lost":
            ann.vanish()
        await asyncio.wait({task})
        assert task.cancelled() or task.exception() is not None
        await ann.wait_left()
        await until(lambda: gateway.stats.services_count == 0)
        assert ann.came_count == 1


async def test_a_provider_that_is_listed_again_while_it_leaves_stays(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        ann.answer = silence
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gateway.request("echo", b"?"))
            (asked,) = await ann.wait_asked(1)
            stage.retract("echo", ann.endpoint)
            await until(lambda: gateway.connection_count("echo") == 0)
            stage.offer("echo", ann.entry(weight=9))
            await gateway.wait_connected("echo")
            ann.reply(asked, b"!")
        assert task.result() == [b"!"]
        ann.answer = saying(b"again")
        assert await gateway.request("echo", b"?") == [b"again"]
        assert ann.came_count == 1


async def test_a_provider_that_is_listed_again_while_its_connection_closes_is_dialled_after_that(
    lane: Lane,
) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        for _ in range(5):
            await gateway.request("echo", b"in doubt until confirmed")
            stage.retract("echo", ann.endpoint)
            stage.offer("echo", ann.entry())
            await until(lambda: stage.discovery.stats.lists_count >= stage._list_seq)
            # The request waits for the new connection; neither side sees two at once and refuses one.
            assert await gateway.request("echo", b"?") == [b"?"]
        assert ann.came_count == 6
        assert set(ann.router.stats.ended) <= {"closed-by-peer"}


async def test_a_provider_that_comes_and_goes_while_its_connection_closes_is_not_dialled(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway, (ann,) = await stage.echo_service("ann")
        stage.retract("echo", ann.endpoint)
        stage.offer("echo", ann.entry())
        stage.retract("echo", ann.endpoint)
        await until(lambda: stage.discovery.stats.lists_count >= stage._list_seq)
        await ann.wait_left()
        await until(lambda: gateway.stats.services_count == 0)
        assert ann.came_count == len(ann.events.of(Disconnected)) == len(ann.events.of(Connected))
        stage.offer("echo", ann.entry())
        await gateway.wait_connected("echo")


@pytest.mark.parametrize(
    "endpoint", ["nonsense", "tcp://*:5555", "tcp://127.0.0.1:0", "carrier-pigeon://roof"]
)
async def test_a_bad_endpoint_in_a_list_is_counted_and_harmless(lane: Lane, endpoint: str) -> None:
    async with Stage(lane) as stage:
        gateway, _ = await stage.echo_service("ann")
        stage.offer("echo", ProviderEntry(endpoint=endpoint, routing_id=b"bad"))
        await until(lambda: gateway.stats.bad_endpoints_count == 1)
        assert gateway.connection_count("echo") == 1
        assert await gateway.request("echo", b"?") == [b"?"]
        stage.retract("echo", endpoint)
        await stage.listed("echo", 1)
        assert await gateway.request("echo", b"?") == [b"?"]


async def test_one_process_listed_at_two_endpoints_is_connected_once(lane: Lane) -> None:
    async with Stage(lane) as stage:
        ann = await stage.provider("ann", "echo")
        second = str(await ann.router.bind(lane.endpoint()))
        stage.offer("echo", ProviderEntry(endpoint=second, routing_id=b"ann"))
        gateway = await stage.gateway()
        await gateway.wait_connected("echo")
        assert [await gateway.request("echo", b"%d" % number) for number in range(4)] == [
            [b"%d" % number] for number in range(4)
        ]
        assert gateway.connection_count("echo") == 1
