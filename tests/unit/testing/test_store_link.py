"""A store on another host of the simulator: what crosses the network, what is lost there, what survives."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest

from hansa.chance import Chance
from hansa.errors import (
    AlreadyClosed,
    Compacted,
    FutureRevision,
    HansaError,
    LeaseLost,
    StoreUnavailable,
    TimedOut,
)
from hansa.store.memory import MemoryStore
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, Get, Put, WatchBatch
from hansa.testing import Host, NetworkSettings, Rewind, World
from hansa.testing.store_host import StoreHost, StoreTrouble
from hansa.testing.store_link import POLL_S, LinkWatch, StoreLink
from hansa.transport import Environment

T = TypeVar("T")
Program = Callable[[StoreLink], Awaitable[None]]


class Stage:
    """One store, and clients that do what a test says."""

    def __init__(self, seed: int = 1, *, drift_max: float = 0.0) -> None:
        self.world = World(seed, settings=NetworkSettings(spike_probability=0.0))
        self.told: list[tuple[WatchBatch, str]] = []
        self.store = StoreHost(
            self.world,
            trouble=StoreTrouble(drift_max=drift_max),
            witness=lambda batch, origin: self.told.append((batch, origin)),
        )
        self.store.start()

    def client(self, name: str, program: Program) -> Host:
        async def run(host: Host) -> None:
            async with StoreLink(host, self.store) as link:
                await program(link)

        host = self.world.host(name, run)
        host.start()
        return host

    def play(self, program: Program, *, seconds: float = 60.0) -> None:
        """Run a program on the host "client" to its end."""

        async def main() -> None:
            host = self.client("client", program)
            async with asyncio.timeout(seconds):
                while host.is_up:
                    await asyncio.sleep(0.1)

        with self.world as world:
            world.run(main())


async def raised(work: Awaitable[object]) -> type[HansaError] | None:
    try:
        await work
    except HansaError as error:
        return type(error)
    return None


async def deed(store: Store, chance: Chance, leases: list[int]) -> object:
    """Something that anybody may do to a store, drawn; gives what came of it."""
    key = chance.choose(("a", "b", "ab", "c"))
    lease = leases[chance.below(len(leases))] if leases and chance.flip(0.3) else 0
    match chance.below(7):
        case 0:
            return await store.get(key)
        case 1:
            return await store.scan("a")
        case 2:
            return await store.put(key, chance.token(3), lease=lease)
        case 3:
            return await store.delete(key)
        case 4:
            return await store.commit(
                (Compare.exists(key),), (Delete(key), Get("a")), (Put(key, b"new"), Get("a", "z"))
            )
        case 5:
            leases.append(await store.grant(100.0))
            return len(leases)
        case _:
            return await store.delete_prefix("a")


async def deeds(store: Store, seed: int) -> list[object]:
    chance = Chance.seeded(seed)
    leases: list[int] = []
    outcomes: list[object] = []
    watch = store.watch("", start_revision=1, before=True)
    for _ in range(60):
        try:
            outcomes.append(await deed(store, chance, leases))
        except HansaError as error:
            outcomes.append(type(error))
    status = await store.status()
    seen = [await anext(watch)]
    while seen[-1].revision < status.revision:
        seen.append(await anext(watch))
    # Leases have other numbers in another store, and mean the same.
    numbers = {lease: number for number, lease in enumerate(leases, 1)}
    shown = repr([*outcomes, *seen, [await store.lease_info(lease) is not None for lease in leases]])
    for lease, number in numbers.items():
        shown = shown.replace(f"lease={lease}", f"lease #{number}")
    watch.close()
    return [shown]


@pytest.mark.parametrize("seed", range(5))
def test_a_link_says_what_a_store_in_the_process_says(seed: int) -> None:
    stage, found, expected = Stage(seed), [], []

    async def program(link: StoreLink) -> None:
        found.extend(await deeds(link, seed))
        async with MemoryStore(
            environment=Environment(clock=link.clock, chance=Chance.seeded(seed))
        ) as memory:
            expected.extend(await deeds(memory, seed))

    stage.play(program)
    assert found == expected


def test_a_call_takes_a_round_trip() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        before = stage.world.elapsed_s()
        await link.put("a", b"1")
        assert stage.world.elapsed_s() - before >= 2 * stage.world.network.settings.delay_s_min

    stage.play(program)
    assert [(batch.revision, origin) for batch, origin in stage.told] == [(2, "client")]


def test_what_does_not_reach_the_store_did_not_happen() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        stage.world.network.cut("client", "store", both_ways=False)
        before = stage.world.elapsed_s()
        with pytest.raises(TimedOut):
            await link.put("a", b"1", timeout=1.5)
        assert stage.world.elapsed_s() - before == pytest.approx(1.5)
        assert stage.store.item(b"a") is None

    stage.play(program)


def test_what_reached_the_store_happened_though_nobody_says_so() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        stage.world.network.cut("store", "client", both_ways=False)
        with pytest.raises(TimedOut):
            await link.put("a", b"1", timeout=1.5)
        assert stage.store.item(b"a") is not None

    stage.play(program)


def test_a_request_may_come_after_its_deadline() -> None:
    late = 0
    for seed in range(10):
        stage = Stage(seed)

        async def program(link: StoreLink, stage: Stage = stage) -> None:
            stage.world.network.cut("client", "store")
            with pytest.raises(TimedOut):
                await link.put("a", b"1", timeout=1.0)
            stage.world.network.heal("client", "store")
            await asyncio.sleep(2.0)

        stage.play(program)
        late += stage.store.item(b"a") is not None
    assert 0 < late < 10


def test_a_store_that_is_down_refuses_and_has_everything_when_it_is_back() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        await link.put("a", b"1")
        stage.world.crash("store")
        with pytest.raises(StoreUnavailable):
            await link.put("a", b"2")
        stage.world.restart("store")
        item = await again(lambda: link.get("a"))
        assert item is not None
        assert item.value == b"1"

    stage.play(program)


async def again(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.1)


def test_a_host_that_refuses_is_unavailable() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        stage.world.network.refuse("store", refusing=True)
        assert await raised(link.get("a")) is StoreUnavailable

    stage.play(program)


def test_leases_have_all_their_time_again_after_a_restart() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        lease = await link.grant(3.0)
        await asyncio.sleep(2.0)
        await link.get("a")
        stage.world.crash("store", silent=True)
        await asyncio.sleep(30.0)
        stage.world.restart("store")
        await asyncio.sleep(2.5)
        info = await link.lease_info(lease)
        assert info is not None
        assert info.ttl_s == pytest.approx(0.5, abs=0.1)
        await asyncio.sleep(1.0)
        assert await raised(link.keep_alive(lease)) is LeaseLost

    stage.play(program)


def test_a_paused_store_answers_nobody_and_ends_no_lease_until_it_runs() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        lease = await link.grant(1.0)
        await link.put("a", b"1", lease=lease)
        stage.world.pause("store")
        with pytest.raises(TimedOut):
            await link.get("a", timeout=3.0)
        assert stage.store.item(b"a") is not None
        stage.world.resume("store")
        assert await link.get("a") is None

    stage.play(program)
    assert [origin for _, origin in stage.told] == ["client", ""]


def test_the_leases_of_a_paused_client_run_out() -> None:
    stage = Stage()
    lost: list[float] = []

    async def sleepy(link: StoreLink) -> None:
        lease = await link.grant(2.0)
        await link.put("a", b"1", lease=lease)
        keeping = link.keep(
            lease,
            ttl=2.0,
            granted_s=link.clock.monotonic(),
            interval=0.5,
            loop_silence_s_max=2.0,
            on_change=lambda: None,
        )
        while not keeping.is_lost:
            await asyncio.sleep(0.1)
        lost.append(stage.world.elapsed_s())

    async def program(link: StoreLink) -> None:
        stage.client("sleepy", sleepy)
        await asyncio.sleep(5.0)
        assert await link.get("a") is not None
        stage.world.pause("sleepy")
        await asyncio.sleep(3.0)
        assert await link.get("a") is None
        assert not lost
        stage.world.resume("sleepy")
        await asyncio.sleep(1.0)

    stage.play(program)
    assert lost


def test_a_watch_goes_on_after_cuts_without_gap_and_without_repeat() -> None:
    for seed in range(5):
        stage = Stage(seed)
        seen: list[int] = []

        async def watcher(link: StoreLink, stage: Stage = stage, seen: list[int] = seen) -> None:
            async for batch in link.watch("", start_revision=1):
                seen.append(batch.revision)

        async def program(link: StoreLink, stage: Stage = stage) -> None:
            host = stage.client("watcher", watcher)
            for number in range(40):
                if number % 10 == 3:
                    stage.world.network.cut("store", "watcher", both_ways=number % 20 == 3)
                if number % 10 == 7:
                    stage.world.network.heal_all()
                if number == 25:
                    stage.world.crash("store")
                    stage.world.restart("store")
                await again(partial(link.put, "a", bytes([number])))
                await asyncio.sleep(0.3)
            await asyncio.sleep(5.0)
            await host.stop()

        stage.play(program, seconds=200.0)
        assert seen == [batch.revision for batch, _ in stage.told]
        assert len(seen) == 40


def test_a_watch_from_now_tells_what_comes_after_ready() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        await link.put("a", b"1")
        watch = link.watch("a")
        assert await watch.ready() == 3
        await link.put("a", b"2")
        assert (await anext(watch)).revision == 3
        step = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.1)
        closed_s = stage.world.elapsed_s()
        watch.close()
        with pytest.raises(StopAsyncIteration):
            await step
        assert stage.world.elapsed_s() == closed_s

    stage.play(program)


def test_a_step_that_is_cancelled_takes_nothing_out() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        watch = link.watch("a", start_revision=1)
        await link.put("a", b"1")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.000_3):
                await anext(watch)
        assert (await anext(watch)).revision == 2

    stage.play(program)


def test_a_watch_whose_history_is_gone_says_so_ever_after() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        for number in range(5):
            await link.put("a", bytes([number]))
        await link.compact(5)
        watch = link.watch("a", start_revision=2)
        for _ in range(2):
            with pytest.raises(Compacted):
                await anext(watch)
        with pytest.raises(Compacted):
            await watch.ready()
        assert (await anext(link.watch("a", start_revision=5))).revision == 5

    stage.play(program)


def test_a_watch_that_falls_behind_a_compaction_says_so_ever_after() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        watch = link.watch("a")
        assert await watch.ready() == 2
        for number in range(5):
            await link.put("a", bytes([number]))
        await link.compact(5)
        for _ in range(2):
            with pytest.raises(Compacted):
                await anext(watch)

    stage.play(program)


def test_who_is_called_back_hears_through_cuts_and_restarts_and_how_it_ends() -> None:
    for seed in range(5):
        stage = Stage(seed)
        seen: list[int] = []
        ends: list[str] = []

        async def watcher(
            link: StoreLink, stage: Stage = stage, seen: list[int] = seen, ends: list[str] = ends
        ) -> None:
            ended = asyncio.Event()
            watch = link.watch("a", start_revision=1, exact=True)
            watch.call_back(lambda: look(watch, ended))
            await ended.wait()

        def look(
            watch: LinkWatch, ended: asyncio.Event, seen: list[int] = seen, ends: list[str] = ends
        ) -> None:
            try:
                while (batch := watch.take()) is not None:
                    seen.append(batch.revision)
            except HansaError as error:
                ends.append(error.code)
                ended.set()

        async def program(link: StoreLink, stage: Stage = stage, seen: list[int] = seen) -> None:
            stage.client("watcher", watcher)
            for number in range(20):
                if number % 10 == 3:
                    stage.world.network.cut("store", "watcher", both_ways=number > 10)
                if number % 10 == 7:
                    stage.world.network.heal_all()
                if number == 15:
                    stage.world.crash("store")
                    stage.world.restart("store")
                await again(partial(link.put, "a", bytes([number])))
                await asyncio.sleep(0.3)
            await asyncio.sleep(5.0)
            assert len(seen) == 20
            # While it hears nothing all is forgotten.
            stage.world.network.cut("store", "watcher", both_ways=True)
            await asyncio.sleep(POLL_S)
            for _ in range(3):
                revision = await link.put("a", b"")
            await link.compact(revision)
            stage.world.network.heal_all()
            await asyncio.sleep(10.0)

        stage.play(program, seconds=200.0)
        assert seen == [batch.revision for batch, _ in stage.told][:20]
        assert ends == ["compacted"]


def test_a_watch_that_begins_too_late_calls_back_and_says_so() -> None:
    stage = Stage()
    errors: list[object] = []

    async def program(link: StoreLink) -> None:
        for number in range(5):
            await link.put("a", bytes([number]))
        await link.compact(5)
        watch = link.watch("a", start_revision=2)

        def look() -> None:
            try:
                watch.take()
            except HansaError as error:
                errors.append(error.code)

        watch.call_back(look)
        await asyncio.sleep(5.0)
        watch.close()
        assert watch.take() is None

    stage.play(program)
    assert set(errors) == {"compacted"}


def test_a_link_that_is_closed_says_so_to_who_is_called_back() -> None:
    stage = Stage()
    errors: list[object] = []

    async def program(link: StoreLink) -> None:
        watch = link.watch("a")

        def look() -> None:
            try:
                watch.take()
            except AlreadyClosed as error:
                errors.append(error)

        watch.call_back(look)
        await asyncio.sleep(0.5)
        assert not errors
        await link.close()
        await asyncio.sleep(0.5)

    stage.play(program)
    assert errors


def test_a_closed_link_says_so_also_to_those_who_wait() -> None:
    stage = Stage()
    outcomes: list[object] = []

    async def program(host: Host) -> None:
        link = StoreLink(host, stage.store)
        async with asyncio.TaskGroup() as tasks:
            async with link:
                stage.world.network.cut("client", "store")
                for work in (link.get("a"), anext(link.watch("a"))):
                    tasks.create_task(note(work))
                await asyncio.sleep(0.5)
            await note(link.get("a"))

    async def note(work: Awaitable[object]) -> None:
        outcomes.append(await raised(work))

    async def main() -> None:
        host = stage.world.host("client", program)
        host.start()
        while host.is_up:
            await asyncio.sleep(0.1)

    with stage.world as world:
        world.run(main())
    assert outcomes == [AlreadyClosed] * 3


def test_clocks_of_hosts_drift_by_a_hundredth_at_most_and_keep_their_rate() -> None:
    stage = Stage(3, drift_max=0.01)
    with stage.world as world:
        hosts = [world.host(f"h{number}", _nothing) for number in range(40)]
        rates = [stage.store.clock_of(host).rate for host in hosts]
        assert rates == [stage.store.clock_of(host).rate for host in hosts]
    assert min(rates) == 0.99
    assert max(rates) == 1.01
    assert len(set(rates)) > 5


async def _nothing(host: Host) -> None:
    """A program that ends at once."""


@pytest.mark.parametrize("drift_max", [0.0, 0.01])
def test_a_lease_ends_by_the_store_s_clock(drift_max: float) -> None:
    stage = Stage(1, drift_max=drift_max)
    ended: list[float] = []

    async def program(link: StoreLink) -> None:
        lease = await link.grant(10.0)
        granted_s = stage.world.elapsed_s()
        await link.put("a", b"1", lease=lease)
        while await link.get("a") is not None:
            await asyncio.sleep(0.005)
        ended.append(stage.world.elapsed_s() - granted_s)

    stage.play(program)
    rate = stage.store.clock_of(stage.store.host).rate
    assert ended == [pytest.approx(10.0 / rate, abs=0.03)]
    assert abs(rate - 1.0) == pytest.approx(drift_max)


def test_a_lease_ends_though_nobody_asks() -> None:
    stage = Stage()

    async def program(link: StoreLink) -> None:
        await link.put("a", b"1", lease=await link.grant(1.0))
        await asyncio.sleep(1.1)
        assert stage.store.item(b"a") is None

    stage.play(program)
    assert [origin for _, origin in stage.told] == ["client", ""]


def rewind(stage: Stage) -> Rewind:
    fault = Rewind(at_s=0.0, lasting_s=0.0, host=stage.store.name)
    assert fault.begin(stage.world)
    return fault


@pytest.mark.spec("CRD-17")
def test_a_store_that_is_put_back_has_what_it_had_and_its_watchers_are_told() -> None:
    stage = Stage()

    async def play(store: StoreLink) -> None:
        kept = await store.put("kept", b"")
        fault = rewind(stage)
        watch = store.watch("", start_revision=kept + 1)
        lost = await store.put("lost", b"")
        assert (await anext(watch)).revision == lost
        fault.end(stage.world)
        # Also what was asked for meanwhile is answered: nobody waits in vain.
        assert await raised(anext(watch)) is Compacted
        scan = await store.scan("")
        assert [item.key for item in scan.items] == [b"kept"]
        assert scan.revision > lost
        assert await raised(store.get("kept", revision=lost)) is FutureRevision
        # Who was not behind the copy goes on as if nothing had happened.
        early = store.watch("", start_revision=kept)
        assert (await anext(early)).revision == kept
        assert await store.put("new", b"") > lost
        assert (await anext(early)).events[0].item.key == b"new"

    stage.play(play)


@pytest.mark.spec("CRD-17")
def test_a_link_loses_its_leases_when_the_store_went_back_and_not_when_it_was_started_again() -> None:
    stage = Stage()

    async def play(store: StoreLink) -> None:
        changes: list[int] = []
        lease = await store.grant(20.0)
        keeping = store.keep(
            lease,
            ttl=20.0,
            granted_s=store.clock.monotonic(),
            interval=1.0,
            loop_silence_s_max=20.0,
            on_change=lambda: changes.append(1),
        )
        fault = rewind(stage)
        await store.put("seen", b"")
        stage.world.crash(stage.store.name)
        stage.world.restart(stage.store.name)
        count = len(changes)
        while len(changes) < count + 3:
            await asyncio.sleep(0.5)
        assert not keeping.is_lost
        fault.end(stage.world)
        while not keeping.is_lost:
            await asyncio.sleep(0.5)
        # The store has it still, and what hangs on it: until its time is over, and no longer.
        assert await store.lease_info(lease) is not None
        await asyncio.sleep(21.0)
        assert await store.lease_info(lease) is None

    stage.play(play)
