"""A Discovery on real connections, with publishers that say by hand what registries say."""

import asyncio
from typing import Any

import pytest

from hansa.services.discovery import (
    ProviderAdded,
    ProviderRemoved,
    ServiceAvailable,
    ServiceState,
    ServiceUnavailable,
    WeightChanged,
    directory,
)
from hansa.wire.listing import RegistrySync, ServiceList, encode_list
from tests.support import zmtp_bytes as zmtp
from tests.support.hand_registry import discovery, entry, names, registry
from tests.support.lanes import Lane
from tests.support.recorder import Recorder


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that broke off is believed for a moment only."""
    monkeypatch.setattr(directory, "REGISTRY_GRACE_S", 0.05)


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
        discovery(lane, quiet, loud, silence_timeout=0.3) as found,
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
