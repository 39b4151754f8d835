"""A Discovery on real connections, with publishers that say by hand what registries say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hansa.errors import AlreadyClosed, BadArgument, BadEndpoint, TimedOut
from hansa.messaging.discovery import (
    Discovery,
    ProviderAdded,
    ProviderRemoved,
    ServiceAvailable,
    ServiceState,
    ServiceUnavailable,
    WeightChanged,
    client,
    directory,
)
from hansa.transport import Connected, Pub
from hansa.wire.listing import ProviderEntry, RegistrySync, ServiceList, encode_list
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane, quick
from tests.support.leftovers import alive
from tests.support.recorder import Recorder


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that broke off is believed for a moment only."""
    monkeypatch.setattr(directory, "REGISTRY_GRACE_S", 0.05)


def entry(name: str, weight: int = 1) -> ProviderEntry:
    return ProviderEntry(endpoint=f"tcp://{name}:1", routing_id=name.encode(), weight=weight)


class HandRegistry:
    """Publishes lists as a registry does: to all when told so, and the last one to each newcomer."""

    def __init__(self, pub: Pub, registry_id: int, endpoint: str, seq: int) -> None:
        self.pub = pub
        self.registry_id = registry_id
        self.endpoint = endpoint
        self.seq = seq
        self.frames: list[bytes] = []

    def tell(self, *names: str, seq: int | None = None, **services: list[ProviderEntry]) -> int:
        """A new list: `names` provide "pay", and other services as given. To how many it went."""
        self.seq = self.seq + 1 if seq is None else seq
        listed = {"pay": [entry(name) for name in names], **services}
        self.frames = encode_list(
            ServiceList(
                registry_id=self.registry_id,
                list_seq=self.seq,
                services={service: tuple(entries) for service, entries in listed.items()},
            )
        )
        return self.pub.post(self.frames)


@asynccontextmanager
async def registry(
    lane: Lane, *names: str, registry_id: int = 1, endpoint: str = "", seq: int = 100, **settings: Any
) -> AsyncIterator[HandRegistry]:
    """A registry that tells newcomers that `names` provide "pay"."""

    def subscribed(peer: bytes, prefix: bytes, wanted: bool) -> None:
        if wanted:
            assert prefix == b"\x05\x00"
            hand.pub.post(hand.frames)

    async with lane.pub(on_subscription=subscribed, **settings) as pub:
        where = str(await pub.bind(endpoint or lane.endpoint()))
        hand = HandRegistry(pub, registry_id, where, seq - 1)
        hand.tell(*names)
        yield hand


def discovery(lane: Lane, *registries: HandRegistry | str, **settings: Any) -> Discovery:
    endpoints = [each if isinstance(each, str) else each.endpoint for each in registries]
    return Discovery(endpoints, tls=lane.tls, network=lane.memory, options=quick(), **settings)


def names(found: Discovery, service: str = "pay") -> list[str]:
    return [provider.endpoint[6:-2] for provider in found.providers(service)]


@pytest.mark.spec("DIS-15")
@pytest.mark.spec("DIS-17")
async def test_a_discovery_alone_lists_who_provides_what(lane: Lane) -> None:
    async with registry(lane, "b", "a") as hand, discovery(lane, hand) as found:
        found.subscribe("pay")
        assert found.state("pay") is ServiceState.EMPTY
        await found.wait_available("pay", timeout=10)
        assert names(found) == ["a", "b"]
        assert found.provider_count("pay") == 2
        assert found.is_available("pay")
        assert found.state("pay") is ServiceState.AVAILABLE
        assert found.registries_heard == (1,)
        provider = found.providers("pay")[0]
        assert (provider.service, provider.routing_id, provider.weight) == ("pay", b"a", 1)
        assert list(found.services) == ["pay"]


@pytest.mark.spec("DIS-15")
async def test_subscriptions_filter_what_is_shown_and_told(lane: Lane) -> None:
    seen = Recorder()
    async with registry(lane, "a") as hand, discovery(lane, hand) as found:
        found.listen(seen)
        found.subscribe("user")
        assert found.follows("user")
        assert not found.follows("pay")
        hand.tell("a", user=[entry("u")])
        await seen.wait(ServiceAvailable, service="user")
        assert list(found.services) == ["user"]
        assert not found.is_available("pay")
        found.subscribe_all()
        assert list(found.services) == ["pay", "user"]
        found.unsubscribe("user")
        assert list(found.services) == ["pay"]
        assert found.state("user") is ServiceState.EMPTY
        assert [type(event).__name__ for event in seen.events] == [
            *("ProviderAdded", "ServiceAvailable"),
            *("ProviderAdded", "ServiceAvailable"),
            *("ProviderRemoved", "ServiceUnavailable"),
        ]


@pytest.mark.spec("DIS-16")
async def test_all_listeners_and_iterators_are_told_of_every_change_in_order(lane: Lane) -> None:
    first, second = Recorder(), Recorder()
    async with registry(lane, "a", "b") as hand, discovery(lane, hand) as found:
        found.subscribe("pay")
        stop = found.listen(first)
        found.listen(second)
        events = found.events()
        await second.wait(ServiceAvailable)
        hand.tell("b", "c", pay=[entry("b", 5), entry("c")])
        await second.wait(WeightChanged)
        hand.tell()
        await second.wait(ServiceUnavailable)
        stop()
        hand.tell("d")
        await second.wait(ServiceAvailable, count=2)
        told = [await anext(events) for _ in second.events]
        assert told == second.events
        assert first.events == second.events[:9]
        kinds = (
            ProviderAdded,
            ProviderAdded,
            ServiceAvailable,
            ProviderRemoved,
            ProviderAdded,
            WeightChanged,
        )
        assert tuple(map(type, told[:6])) == kinds
        changed = told[5]
        assert isinstance(changed, WeightChanged)
        assert (changed.provider.weight, changed.weight_before) == (5, 1)
        assert found.stats.events_count == 11


@pytest.mark.spec("DIS-16")
async def test_a_listener_that_fails_is_reported_and_the_others_hear_on(lane: Lane) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(event: object) -> None:
        raise ValueError("cannot bear it")

    seen = Recorder()
    async with registry(lane, "a") as hand, discovery(lane, hand) as found:
        found.subscribe("pay")
        found.listen(fail)
        found.listen(seen)
        await seen.wait(ServiceAvailable)
        assert found.stats.listener_failures_count == len(reported) == 2
        assert isinstance(reported[0]["exception"], ValueError)
        assert found.name in reported[0]["message"]


@pytest.mark.spec("DIS-14")
@pytest.mark.spec("DIS-10")
@pytest.mark.usefixtures("short_grace")
async def test_registries_may_go_one_by_one_and_the_last_known_list_stays(lane: Lane) -> None:
    seen = Recorder()
    found = discovery(lane)
    found.subscribe("pay")
    found.listen(seen)
    async with found:
        async with registry(lane, "both", "only-2", registry_id=2) as second:
            found.connect_registry(second.endpoint)
            await seen.wait(ProviderAdded, count=2)
            async with registry(lane, "both", "only-1", registry_id=1) as first:
                found.connect_registry(first.endpoint)
                await seen.wait(ProviderAdded, count=3)
                assert names(found) == ["both", "only-1", "only-2"]
                assert found.registries_heard == (1, 2)
            gone = await seen.wait(ProviderRemoved)
            assert gone.provider.endpoint == "tcp://only-1:1"
            second.tell("both", "only-2", "new")
            await seen.wait(ProviderAdded, count=4)
        while found._directory.deadline() is not None:
            await asyncio.sleep(0.01)
        assert not found.stats.registries_count
        assert names(found) == ["both", "new", "only-2"]
        assert found.is_available("pay")
        # The first comes back under its id and on its endpoint, restarted: believed at once.
        async with registry(lane, "fresh", registry_id=1, endpoint=first.endpoint, seq=first.seq + 1):
            await seen.wait(ProviderAdded, count=5)
            assert names(found) == ["fresh"]


@pytest.mark.spec("DIS-14")
async def test_a_provider_whose_registry_dies_before_others_know_it_moves_without_being_removed(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a slow machine needs to move it, and no longer than a test may take.
    monkeypatch.setattr(directory, "REGISTRY_GRACE_S", 0.5)
    seen = Recorder()
    async with registry(lane, "b", registry_id=2) as second, discovery(lane, second) as found:
        found.subscribe("pay")
        found.listen(seen)
        async with registry(lane, "moving", "dead", registry_id=1) as first:
            found.connect_registry(first.endpoint)
            await seen.wait(ProviderAdded, count=3)
        while found.registries_heard != (2,):
            await asyncio.sleep(0)
        assert names(found) == ["b", "dead", "moving"]
        second.tell("b", "moving")
        gone = await seen.wait(ProviderRemoved)
        assert gone.provider.endpoint == "tcp://dead:1"
        assert names(found) == ["b", "moving"]
        assert len(seen.of(ProviderRemoved)) == 1


@pytest.mark.spec("DIS-14")
async def test_a_registry_that_is_heard_again_soon_was_never_missed(lane: Lane) -> None:
    seen = Recorder()
    async with registry(lane, "b", registry_id=2) as other, discovery(lane, other) as found:
        found.subscribe("pay")
        found.listen(seen)
        async with registry(lane, "a") as hand:
            found.connect_registry(hand.endpoint)
            await seen.wait(ProviderAdded, count=2)
        while found.registries_heard != (2,):
            await asyncio.sleep(0)
        async with registry(lane, "a", endpoint=hand.endpoint, seq=hand.seq):
            while len(found.registries_heard) < 2:
                await asyncio.sleep(0.01)
            assert names(found) == ["a", "b"]
            assert seen.of(ProviderRemoved) == []


@pytest.mark.spec("DIS-14")
@pytest.mark.usefixtures("short_grace")
async def test_a_broken_connection_to_a_registry_that_lives_on_heals_with_the_same_list(lane: Lane) -> None:
    seen = Recorder()
    async with (
        registry(lane, "b", registry_id=2) as other,
        discovery(lane, other) as found,
    ):
        found.subscribe("pay")
        found.listen(seen)
        async with registry(lane, "a") as hand:
            found.connect_registry(hand.endpoint)
            await seen.wait(ProviderAdded, count=2)
        await seen.wait(ProviderRemoved)
        async with registry(lane, "a", endpoint=hand.endpoint, seq=hand.seq):
            await seen.wait(ProviderAdded, count=3)
            assert names(found) == ["a", "b"]


@pytest.mark.spec("DIS-14")
async def test_a_registry_that_is_connected_and_silent_stops_counting(lane: Lane) -> None:
    seen = Recorder()
    async with (
        registry(lane, "quiet", registry_id=1) as quiet,
        registry(lane, "loud", registry_id=2) as loud,
        discovery(lane, quiet, loud, silence_s=0.3) as found,
    ):
        found.listen(seen)
        found.subscribe("pay")
        await seen.wait(ProviderAdded, count=2)
        while found.registries_heard != (2,):
            loud.tell("loud")
            await asyncio.sleep(0.02)
        assert names(found) == ["loud"]
        while found.registries_heard:
            await asyncio.sleep(0.02)
        assert names(found) == ["loud"]
        quiet.tell("quiet")
        while names(found) != ["quiet"]:
            await asyncio.sleep(0.02)


@pytest.mark.spec("DIS-10")
async def test_older_and_repeated_lists_are_ignored_and_counted(lane: Lane) -> None:
    seen = Recorder()
    async with registry(lane, "a") as hand, discovery(lane, hand) as found:
        found.subscribe("pay")
        found.listen(seen)
        await seen.wait(ServiceAvailable)
        for seq in (hand.seq, 1, 99):
            hand.tell("evil", seq=seq)
        hand.tell("a", "b", seq=101)
        await seen.wait(ProviderAdded, count=2)
        assert names(found) == ["a", "b"]
        stats = found.stats
        assert (stats.lists_count, stats.lists_older_count, stats.lists_repeated_count) == (2, 2, 1)
        assert (stats.registries_count, stats.services_count, stats.providers_count) == (1, 1, 2)


async def test_what_is_no_list_is_counted_and_changes_nothing(lane: Lane) -> None:
    seen = Recorder()
    good = ServiceList(registry_id=9, list_seq=1, services={"pay": (entry("a"),)})
    better = ServiceList(registry_id=9, list_seq=2, services={"pay": (entry("a"), entry("b"))})
    sync = RegistrySync(registry_id=9, list_seq=5, services={"pay": (entry("sync"),)})
    bad: list[list[bytes]] = [
        [b"\x05\x00"],
        [b"\x05\x00", b"", b"", b""],
        [b"\x05\x00", bytes(4), bytes(8), b"\xff\xff\xff\xff"],
        [*encode_list(good)[:-1]],
        [b"\x05\x00\x00", b"x"],
        [b""],
        [b"\x05\x00", bytes(4), bytes(8), b"\x01\x00\x00\x00", b"\xff\xfe", bytes(4)],
    ]
    listener = await lane.listen_raw()
    async with discovery(lane, listener.endpoint) as found:
        found.subscribe("pay")
        found.listen(seen)
        raw = await listener.accept()
        await raw.shake_hands(b"PUB")
        raw.send(zmtp.message(*encode_list(good)))
        for frames in bad:
            raw.send(zmtp.message(*frames))
        raw.send(zmtp.message(*encode_list(sync)))
        raw.send(zmtp.message(*encode_list(better)))
        await seen.wait(ProviderAdded, count=2)
        assert names(found) == ["a", "b"]
        refused = found.stats.refused
        assert refused.pop("not-a-service-list") == 1
        assert sum(refused.values()) == len(bad)
        assert not raw.lost.done()


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
            assert f"{nowhere} (not connected)" in text


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
