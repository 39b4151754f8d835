"""The whole registry in virtual time, with networks that are cut and processes that are stopped."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hansa.errors import Unavailable
from hansa.services.provider import Provider
from hansa.services.registry import Registry
from hansa.testing import Host, World
from hansa.transport import Dealer, SocketOptions, Sub
from hansa.wire.listing import RegistrySync, ServiceList, decode_list
from hansa.wire.registry import AckStatus, Heartbeat, Register, RegisterAck, Unregister, decode, encode

PAY = "payment"
REGISTRIES = ("r1", "r2", "r3")


class Play:
    """Three registries that follow each other, providers that stand by their entries, and a listener each."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.registries: dict[str, Registry] = {}
        self.lists: dict[str, list[ServiceList | RegistrySync]] = {}
        for name in REGISTRIES:
            self.world.host(name, self._registry).start()
        for name in REGISTRIES:
            self.listener(f"ear-{name}")

    def listener(self, name: str, *, asks_at_s: float = 0.0) -> None:
        """A host that keeps the lists of the registry that its name says: `ear-r1`, `ear-r1-2`."""
        heard = self.lists[name.removeprefix("ear-")] = []

        async def program(host: Host) -> None:
            # Only the connection is watched, so that a stopped registry keeps it.
            options = SocketOptions(heartbeat_interval=None)
            async with Sub(environment=host.environment.but(options=options)) as sub:
                sub.connect(f"tcp://{name.split('-')[1]}:5550")
                await asyncio.sleep(asks_at_s - self.world.elapsed_s())
                sub.subscribe(b"\x05\x00")
                async for message in sub:
                    heard.append(decode_list(message.parts))

        self.world.host(name, program).start()

    def provider(self, name: str, registry: str, *, silent: bool = False, leaves_at_s: float = 1e9) -> None:
        """A host that registers at one registry, as `tcp://<name>:1`, and beats every five seconds."""

        async def program(host: Host) -> None:
            dealer = Dealer(name.encode(), environment=host.environment)
            async with dealer:
                dealer.connect(f"tcp://{registry}:5551")
                await self._stand_by(dealer, name, silent=silent, leaves_at_s=leaves_at_s)
                await asyncio.Event().wait()

        self.world.host(name, program).start()

    async def _stand_by(self, dealer: Dealer, name: str, *, silent: bool, leaves_at_s: float) -> None:
        endpoint = f"tcp://{name}:1"
        register = Register(service=PAY, endpoint=endpoint)
        heartbeat = Heartbeat(service=PAY, endpoint=endpoint)
        message: Register | Heartbeat = register
        while self.world.elapsed_s() < leaves_at_s:
            await dealer.send(encode(message))
            try:
                async with asyncio.timeout(5.0):
                    ack = decode((await dealer.recv()).parts)
                assert isinstance(ack, RegisterAck)
                if ack.status is not AckStatus.OK:
                    message = register
                    continue
                if silent:
                    return
                message = heartbeat
                await asyncio.sleep(5.0)
            except TimeoutError:
                message = heartbeat
        await dealer.send(encode(Unregister(service=PAY, endpoint=endpoint)))

    async def _registry(self, host: Host) -> None:
        peers = [f"tcp://{name}:5550" for name in REGISTRIES if name != host.name]
        async with Registry(
            "tcp://*:5550", "tcp://*:5551", peers=peers, environment=host.environment
        ) as registry:
            self.registries[host.name] = registry
            await asyncio.Event().wait()

    def run(self, course: Coroutine[Any, Any, None]) -> None:
        with self.world:
            self.world.run(course)

    async def until(self, holds: Callable[[], bool], *, within_s: float) -> None:
        async with asyncio.timeout(within_s):
            while not holds():
                await asyncio.sleep(0.01)

    def listed(self, name: str) -> list[str]:
        registry = self.registries.get(name)
        infos = () if registry is None else registry.services.get(PAY, ())
        return [info.endpoint.removeprefix("tcp://")[:-2] for info in infos]

    def weights(self, name: str) -> list[int]:
        return [info.weight for info in self.registries[name].services.get(PAY, ())]

    def all_list(self, *providers: str) -> bool:
        return all(self.listed(name) == list(providers) for name in REGISTRIES)

    def heard(self, name: str) -> list[set[str]]:
        """The providers in each list that the listener at a registry has heard."""
        return [
            {entry.endpoint.removeprefix("tcp://")[:-2] for entry in found.services.get(PAY, ())}
            for found in self.lists[name]
        ]


@pytest.mark.spec("DIS-06")
@pytest.mark.parametrize("seed", range(5))
def test_who_beats_stays_and_who_is_silent_goes_after_the_timeout(seed: int) -> None:
    play = Play(seed)

    async def course() -> None:
        play.provider("beats", "r1")
        play.provider("silent", "r1", silent=True)
        await play.until(lambda: play.all_list("beats", "silent"), within_s=5.0)
        began = play.world.elapsed_s()
        await play.until(lambda: play.all_list("beats"), within_s=16.0)
        assert play.world.elapsed_s() - began > 13.0
        await asyncio.sleep(300.0)
        assert play.all_list("beats")

    play.run(course())


@pytest.mark.spec("DIS-11")
@pytest.mark.parametrize("seed", range(5))
def test_after_a_cut_all_lists_are_equal_and_nothing_removed_is_back(seed: int) -> None:
    play = Play(seed)

    async def course() -> None:
        play.provider("a", "r1")
        play.provider("b", "r2")
        play.provider("leaver", "r2", leaves_at_s=60.0)
        await play.until(lambda: play.all_list("a", "b", "leaver"), within_s=5.0)
        play.world.network.cut("r1", "r2")
        play.world.network.cut("r1", "r3")
        play.provider("late", "r1")
        await play.until(lambda: play.listed("r2") == ["a", "b"], within_s=90.0)
        # The silent one is forgotten on both sides, and comes back with the first list after the cut.
        await play.until(lambda: play.listed("r2") == ["b"], within_s=120.0)
        await play.until(lambda: play.listed("r1") == ["a", "late"], within_s=120.0)
        healed = len(play.lists["r1"])
        play.world.network.heal_all()
        await play.until(lambda: play.all_list("a", "b", "late"), within_s=60.0)
        await asyncio.sleep(200.0)
        assert play.all_list("a", "b", "late")
        assert not any("leaver" in listed for listed in play.heard("r1")[healed:])
        assert len({tuple(sorted(registry.services)) for registry in play.registries.values()}) == 1

    play.run(course())


@pytest.mark.spec("DIS-11")
@pytest.mark.parametrize("seed", range(5))
def test_a_stopped_registry_tells_nothing_stale_when_it_goes_on(seed: int) -> None:
    play = Play(seed)

    async def course() -> None:
        play.provider("a", "r1")
        play.provider("gone", "r1")
        play.provider("b", "r2")
        await play.until(lambda: play.all_list("a", "b", "gone"), within_s=5.0)
        # Those who ask a registry while it is stopped are told nothing stale either.
        newcomers = [f"ear-r1-{number}" for number in range(4)]
        for newcomer in newcomers:
            play.listener(newcomer, asks_at_s=play.world.elapsed_s() + 40.0)
        await asyncio.sleep(1.0)
        play.world.pause("r1")
        play.world.crash("gone")
        await asyncio.sleep(50.0)
        before = len(play.lists["r1"])
        play.world.resume("r1")
        await play.until(lambda: play.all_list("a", "b"), within_s=30.0)
        await play.until(lambda: len(play.lists["r1"]) > before, within_s=30.0)
        assert not any("gone" in listed for listed in play.heard("r1")[before:])
        await asyncio.sleep(200.0)
        assert play.all_list("a", "b")
        for newcomer in newcomers:
            lists = play.heard(newcomer.removeprefix("ear-"))
            assert lists
            assert not any("gone" in listed for listed in lists)

    play.run(course())


@pytest.mark.spec("DIS-14")
@pytest.mark.parametrize("seed", range(5))
def test_a_stopped_registry_never_tells_a_list_without_those_who_live(seed: int) -> None:
    play = Play(seed)

    async def course() -> None:
        play.provider("a", "r1")
        play.provider("b", "r2")
        await play.until(lambda: play.all_list("a", "b"), within_s=5.0)
        await asyncio.sleep(4.0)
        # It was heard four seconds ago and is overdue when the registry goes on; its connection still stands.
        play.world.pause("r1")
        await asyncio.sleep(14.0)
        before = len(play.lists["r1"])
        play.world.resume("r1")
        await play.until(lambda: len(play.lists["r1"]) > before, within_s=30.0)
        await asyncio.sleep(100.0)
        assert play.all_list("a", "b")
        assert [listed for listed in play.heard("r1")[before:] if listed != {"a", "b"}] == []
        # Nor does it tell the others that somebody is gone whom it could not hear.
        assert [found.tombstones for found in play.lists["r1"][before:] if found.tombstones] == []

    play.run(course())


@pytest.mark.spec("DIS-07")
@pytest.mark.spec("DIS-10")
@pytest.mark.parametrize("seed", range(5))
def test_a_crashed_registry_comes_back_and_its_providers_with_it(seed: int) -> None:
    play = Play(seed)

    async def course() -> None:
        play.provider("a", "r1")
        play.provider("b", "r2")
        await play.until(lambda: play.all_list("a", "b"), within_s=5.0)
        for name in REGISTRIES:
            play.world.crash(name, silent=name == "r3")
            await asyncio.sleep(1.0)
            play.world.restart(name)
            await play.until(lambda: play.all_list("a", "b"), within_s=60.0)
        assert all(seqs == sorted(seqs) for seqs in _seqs_by_id(play))

    play.run(course())


@pytest.mark.spec("DIS-11")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("registers_again", [False, True])
@pytest.mark.parametrize("stopped_s", [12.0, 40.0, 130.0])
def test_what_a_stopped_registry_reads_late_changes_nothing(
    seed: int, registers_again: bool, stopped_s: float
) -> None:
    """It was told of a new weight while it stood still; the provider went elsewhere and left there."""
    play = Play(seed)
    told: list[str] = []

    async def mover(host: Host) -> None:
        registries = ["tcp://r1:5551", "tcp://r2:5551"]
        async with Provider(
            "tcp://*:1", registries, advertise="tcp://mover:1", environment=host.environment
        ) as provider:
            await provider.register(PAY, weight=1)
            await play.until(lambda: play.all_list("mover"), within_s=5.0)
            play.world.pause("r1")
            await provider.register(PAY, weight=2)
            assert provider.registry == "tcp://r2:5551"
            await provider.unregister(PAY)
            told.append("has left")
            if registers_again:
                await provider.register(PAY, weight=3)
            told.append("is done")
            await asyncio.Event().wait()

    async def course() -> None:
        await asyncio.sleep(1.0)
        play.world.host("mover", mover).start()
        await play.until(lambda: "is done" in told, within_s=30.0)
        weights = [3] if registers_again else []
        await play.until(lambda: play.weights("r2") == play.weights("r3") == weights, within_s=5.0)
        await asyncio.sleep(stopped_s)
        before = {name: len(lists) for name, lists in play.lists.items()}
        play.world.resume("r1")
        await asyncio.sleep(60.0)
        assert all(play.weights(name) == weights for name in REGISTRIES)
        for name in REGISTRIES:
            for found in play.lists[name][before[name] :]:
                assert [entry.weight for entry in found.services.get(PAY, ())] == weights, name

    play.run(course())


def _seqs_by_id(play: Play) -> list[list[int]]:
    seqs: dict[int, list[int]] = {}
    for name in REGISTRIES:
        for found in play.lists[name]:
            seqs.setdefault(found.registry_id, []).append(found.list_seq)
    return list(seqs.values())


def test_the_same_seed_has_the_same_history() -> None:
    def digest() -> str:
        play = Play(3)

        async def course() -> None:
            play.provider("a", "r1")
            await play.until(lambda: play.all_list("a"), within_s=5.0)
            play.world.stop("r1")
            try:
                await play.until(lambda: play.all_list(), within_s=5.0)
            except (TimeoutError, Unavailable):
                return

        play.run(course())
        return play.world.digest()

    assert digest() == digest()
