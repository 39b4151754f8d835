"""How a Discovery is used: iterating, waiting, connecting, leaving."""

import asyncio

import pytest

from hansa.errors import AlreadyClosed, BadArgument, BadEndpoint, TimedOut
from hansa.services.discovery import Discovery, ProviderAdded, ProviderRemoved, ServiceAvailable, client
from hansa.transport import Connected
from tests.support.hand_registry import discovery, names, registry
from tests.support.lanes import Lane
from tests.support.leftovers import alive
from tests.support.recorder import Recorder


async def test_an_iterator_hears_from_its_call_on_and_ends_with_the_discovery(lane: Lane) -> None:
    async with registry(lane, "a") as hand:
        async with discovery(lane, hand) as found:
            found.subscribe("pay")
            early = found.events()
            await found.wait_available("pay", timeout=10)
            late = found.events()
            found.unsubscribe("pay")
            closed = found.events()
            closed.close()
            found.subscribe("pay")
        assert len([event async for event in early]) == 6
        assert len([event async for event in late]) == 4
        assert [event async for event in closed] == []
        assert names(found) == ["a"]
        with pytest.raises(AlreadyClosed):
            found.events()


async def test_a_cancelled_step_of_an_iterator_takes_nothing_out(lane: Lane) -> None:
    async with registry(lane, "a") as hand, discovery(lane, hand) as found:
        events = found.events()
        async with asyncio.TaskGroup() as group:
            step = group.create_task(anext(events))
            await asyncio.sleep(0)
            step.cancel()
        found.subscribe("pay")
        assert isinstance(await anext(events), ProviderAdded)


async def test_an_iterator_that_is_not_read_drops_its_oldest_events_counted(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "EVENTS_COUNT_MAX", 3)
    async with registry(lane, "a", "b") as hand, discovery(lane, hand) as found:
        events = found.events()
        found.subscribe("pay")
        await found.wait_available("pay", timeout=10)
        found.unsubscribe("pay")
        assert (events.dropped_count, found.stats.events_dropped_count) == (3, 3)
        assert isinstance(await anext(events), ProviderRemoved)


async def test_waiting_for_what_never_comes_says_which_registries_were_heard(lane: Lane) -> None:
    async with registry(lane, "a", registry_id=77) as hand, discovery(lane, hand) as found:
        found.subscribe("pay")
        await found.wait_available("pay")
        found.subscribe("nobody")
        with pytest.raises(TimedOut, match=r"'nobody'.* registry 77 "):
            await found.wait_available("nobody", timeout=0.01)
        assert found._waiters == {}


async def test_waiting_without_any_registry_says_what_was_tried(lane: Lane) -> None:
    listener = await lane.listen_raw()
    nowhere = "tcp://127.0.0.1:1" if lane.name in ("tcp", "tls") else "inproc://nobody-listens"
    async with discovery(lane) as found:
        found.subscribe("pay")
        with pytest.raises(TimedOut, match="no registry was given: call connect_registry"):
            await found.wait_available("pay", timeout=0.01)
        if lane.name == "inproc":
            found.connect_registry(nowhere)
        found.connect_registry(listener.endpoint)
        raw = await listener.accept()
        await raw.shake_hands(b"PUB")
        await raw.read_command()
        with pytest.raises(TimedOut) as timed_out:
            await found.wait_available("pay", timeout=0.01)
        text = str(timed_out.value)
        assert "no registry answered" in text
        assert f"{listener.endpoint} (connected, no list yet)" in text
        if lane.name == "inproc":
            assert f"{nowhere} (not connected" in text


async def test_waiting_can_be_cancelled_and_ends_when_the_discovery_does(lane: Lane) -> None:
    async def wait_in_vain(found: Discovery) -> None:
        with pytest.raises(AlreadyClosed):
            await found.wait_available("pay", timeout=60)

    async with asyncio.TaskGroup() as group, discovery(lane) as found:
        found.subscribe("pay")
        given_up = group.create_task(found.wait_available("pay"))
        group.create_task(wait_in_vain(found))
        await asyncio.sleep(0)
        assert len(found._waiters["pay"]) == 2
        given_up.cancel()
        await asyncio.wait([given_up])
        assert len(found._waiters["pay"]) == 1
    assert found._waiters == {}


async def test_one_cannot_wait_for_what_is_not_subscribed(lane: Lane) -> None:
    async with discovery(lane) as found:
        with pytest.raises(BadArgument, match="subscribe\\('pay'\\) first"):
            await found.wait_available("pay")


async def test_connecting_twice_to_one_registry_is_one_connection(lane: Lane) -> None:
    events, seen = Recorder(), Recorder()
    async with registry(lane, "a", on_event=events) as hand:
        found = discovery(lane, hand, hand.endpoint)
        found.connect_registry(hand.endpoint)
        found.subscribe("pay")
        found.listen(seen)
        async with found:
            found.connect_registry(hand.endpoint)
            await seen.wait(ServiceAvailable)
            assert hand.tell("a", "b") == 1
            await seen.wait(ProviderAdded, count=2)
            assert len(events.of(Connected)) == 1
        with pytest.raises(AlreadyClosed):
            found.connect_registry(hand.endpoint)


@pytest.mark.parametrize("endpoint", ["5550", "tcp://*:5550", "tcp://127.0.0.1:0", "udp://x:1", ""])
async def test_a_bad_endpoint_fails_at_once(lane: Lane, endpoint: str) -> None:
    with pytest.raises(BadEndpoint):
        discovery(lane, endpoint)
    async with discovery(lane) as found:
        with pytest.raises(BadEndpoint):
            found.connect_registry(endpoint)
        assert found._registries == {}


def test_one_string_is_not_taken_for_many_endpoints() -> None:
    with pytest.raises(BadArgument, match="list of endpoints"):
        Discovery("tcp://127.0.0.1:5550")


async def test_a_discovery_that_cannot_begin_leaves_nothing_behind() -> None:
    before = alive()
    with pytest.raises(BadArgument, match="needs credentials"):
        async with Discovery(["tcp://127.0.0.1:1", "tls://127.0.0.1:1"]):
            pass
    assert alive() == before


async def test_leaving_the_block_ends_everything_and_keeps_what_was_known(lane: Lane) -> None:
    async with registry(lane, "a") as hand:
        async with discovery(lane, hand) as found:
            found.subscribe("pay")
            seen = Recorder()
            found.listen(seen)
            await seen.wait(ServiceAvailable)
            count = len(seen.events)
            with pytest.raises(BadArgument, match="entered already"):
                await found.__aenter__()
        assert len(seen.events) == count
        assert names(found) == ["a"]
        await found.close()
        with pytest.raises(AlreadyClosed):
            await found.__aenter__()
        assert found._timer is None


@pytest.mark.spec("DIS-17")
async def test_two_discoveries_of_one_registry_see_the_same(lane: Lane) -> None:
    async with registry(lane, "a", "b") as hand, discovery(lane, hand) as one, discovery(lane, hand) as two:
        for found in (one, two):
            found.subscribe_all()
            found.subscribe("pay")
            await found.wait_available("pay", timeout=10)
        assert one.services == two.services
