"""What the driver of a provider's registrations owes to its machine."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from hansa.errors import AlreadyClosed
from hansa.presence.registrations import TellRegistry
from hansa.services.provider import Provider
from hansa.transport import CloseReason, Dealer, Disconnected, Environment
from hansa.transport.memory_network import MemoryNetwork
from hansa.wire.registry import Heartbeat, Unregister
from tests.support.lanes import Lane, quick
from tests.support.scripted import ScriptedRegistry, until

BEAT = TellRegistry(message=Heartbeat(service="pay", endpoint="tcp://h:1"))
LOST = Disconnected(
    peer=b"", address="", reason=CloseReason.CONNECTION_LOST, detail="", unsent_count=0, in_doubt_count=0
)


@pytest.fixture
async def lane(tmp_path: Path) -> AsyncIterator[Lane]:
    lane = Lane(name="inproc", folder=tmp_path, memory=MemoryNetwork())
    yield lane
    await lane.end()


def provide(lane: Lane, *registries: ScriptedRegistry) -> Provider:
    endpoints = [registry.endpoint for registry in registries]
    return Provider(lane.endpoint(), endpoints, environment=Environment(options=quick(), network=lane.memory))


@pytest.mark.spec("DIS-12")
async def test_a_message_that_cannot_leave_is_a_lost_connection_and_so_is_all_behind_it(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        ScriptedRegistry(lane) as first,
        ScriptedRegistry(lane) as second,
        provide(lane, first, second) as provider,
    ):
        await provider.register("pay")
        line = provider._line
        # Long enough ago for the next registry to be dialled at once.
        line.machine._dialled_at -= 10.0
        real, problems = line._send, iter(["there is no room"])
        monkeypatch.setattr(line, "_send", lambda frames: next(problems, None) or real(frames))
        line._perform([BEAT, BEAT, BEAT])
        await until(lambda: provider.registry == second.endpoint)
        assert provider.stats.failovers_count == 1
        assert provider.stats.dials_failed_count == 0
        assert line.machine.problems == {first.endpoint: "there is no room"}
        await first.seen.wait(Disconnected)
        assert first.heard.of(Heartbeat) == []


@pytest.mark.spec("DIS-12")
@pytest.mark.parametrize("how", ["it breaks", "a message cannot leave"])
async def test_a_lost_registry_is_not_dialled_again_by_its_own_socket(
    lane: Lane, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its DEALER would reconnect while the machine rests, and the registry would see the provider twice."""
    async with ScriptedRegistry(lane) as registry, provide(lane, registry) as provider:
        await provider.register("pay")
        line, dealer = provider._line, provider._line._dealer
        assert dealer is not None
        lingers = lingers_of(dealer, monkeypatch)
        if how == "it breaks":
            line._happened(dealer, LOST)
        else:
            with monkeypatch.context() as patched:
                patched.setattr(line, "_send", lambda frames: "there is no room")
                line._perform([BEAT])
        assert provider.registry is None
        assert line._dealer is None
        await until(lambda: provider.registry is not None)
        assert lingers == [0.0]  # A registry that was given up is told nothing more.
        # What the former socket still says is nobody's concern.
        line._happened(dealer, LOST)
        line._heard(dealer, [[b"nonsense"]])
        assert provider.registry is not None
        assert provider.stats.failovers_count == 1
        assert provider.stats.registry_bad_frames_count == 0


@pytest.mark.spec("DIS-05")
async def test_the_last_words_to_a_registry_that_never_answers_them_are_read(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedRegistry(lane, knows_tokens=False) as registry:
        async with provide(lane, registry) as provider:
            await provider.register("pay")
            dealer = provider._line._dealer
            assert dealer is not None
            lingers = lingers_of(dealer, monkeypatch)
        assert lingers == [quick().linger]
        assert lingers[0] > 0
        assert [message.service for message in registry.heard.of(Unregister)] == ["pay"]
        assert registry.entries == {}


@pytest.mark.spec("DIS-05")
async def test_who_waits_for_a_registry_is_told_when_the_provider_closes(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, asyncio.TaskGroup() as group:
        async with provide(lane, registry) as provider:
            await provider.register("pay")
            registry.script = lambda message: None  # From now on it says nothing.
            waiting = group.create_task(closed(provider.unregister("pay", timeout=None)))
            await registry.heard.wait(Unregister)
        assert "was closed" in await waiting
        assert provider._line._timer is None


def lingers_of(dealer: Dealer, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it is to linger whenever it is closed from now on."""
    lingers: list[float] = []
    close = dealer.close

    async def closing(*, linger: float) -> None:
        lingers.append(linger)
        await close(linger=linger)

    monkeypatch.setattr(dealer, "close", closing)
    return lingers


async def closed(work: Coroutine[Any, Any, None]) -> str:
    with pytest.raises(AlreadyClosed) as caught:
        await work
    return str(caught.value)
