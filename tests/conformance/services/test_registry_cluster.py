"""Registries together, and registries among peers that make no sense."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hansa.limits import STRIKES_MAX
from hansa.services.registry import Registry
from hansa.transport import CloseReason, Disconnected, Pub
from hansa.transport.memory_network import MemoryNetwork
from hansa.wire.listing import REGISTRY_SYNC, ProviderEntry, RegistrySync, encode_list
from hansa.wire.registry import AckStatus, RegisterAck, encode
from tests.support.lanes import Lane
from tests.support.recorder import Recorder
from tests.support.registry_callers import (
    ANN,
    BOB,
    HERE,
    PAY,
    THERE,
    caller,
    eventually,
    listener,
    registry,
)


@pytest.fixture(params=["tcp", "inproc"])
async def lane(request: pytest.FixtureRequest, socket_folder: Path) -> AsyncIterator[Lane]:
    """Sockets are proved on all transports elsewhere; two are enough here."""
    memory = MemoryNetwork() if request.param == "inproc" else None
    lane = Lane(name=request.param, folder=socket_folder, memory=memory)
    yield lane
    await lane.end()


# ---- a cluster ------------------------------------------------------------------------------------


@pytest.mark.spec("DIS-11")
async def test_three_registries_show_one_list(lane: Lane) -> None:
    async with registry(lane) as a, registry(lane) as b, registry(lane) as c:
        cluster = (a, b, c)
        mesh(*cluster)
        async with caller(lane) as ann, caller(lane, BOB) as bob:
            await (await ann.dial(a.router)).register()
            await (await bob.dial(b.router)).register(THERE)
            for one in cluster:
                async with listener(lane) as heard:
                    await heard.dial(one.pub)
                    told = await heard.until_endpoints(HERE, THERE)
                    assert [entry.routing_id for entry in told.services[PAY]] == [ANN, BOB]
            assert a.services == b.services == c.services
            assert [one.stats.direct_count for one in cluster] == [1, 1, 0]
            assert a.peers_heard == tuple(sorted((b.registry_id, c.registry_id)))
            assert await ann.unregister() is AckStatus.OK
            await eventually(lambda: all(ends_of(one) == [THERE] for one in cluster))


@pytest.mark.spec("DIS-11")
@pytest.mark.spec("DIS-13")
async def test_a_provider_that_changes_its_registry_has_one_entry(lane: Lane) -> None:
    async with registry(lane) as a, registry(lane) as b:
        mesh(a, b)
        async with caller(lane) as ann:
            await (await ann.dial(a.router)).register()
            await eventually(lambda: ends_of(b) == [HERE])
        async with caller(lane) as ann:
            await (await ann.dial(b.router)).register(weight=5)
            await eventually(lambda: a.services == b.services and a.stats.direct_count == 0)
            assert [info.weight for info in a.services[PAY]] == [5]
            assert a.stats.conceded_count == 1


@pytest.mark.spec("DIS-10")
@pytest.mark.spec("DIS-11")
async def test_a_registry_that_restarts_is_believed_and_catches_up(lane: Lane) -> None:
    async with registry(lane, registry_id=1) as a:
        pub = str(a.pub)
        async with (
            registry(lane, registry_id=2, peers=[pub]) as b,
            caller(lane) as ann,
            caller(lane, BOB) as bob,
        ):
            a.add_peer(str(b.pub))
            a.add_peer(str(b.pub))
            await (await ann.dial(a.router)).register()
            await (await bob.dial(b.router)).register(THERE)
            await eventually(lambda: ends_of(a) == ends_of(b) == [HERE, THERE])
            await a.stop()
            assert ends_of(b) == [HERE, THERE]
            async with registry(
                lane,
                pub,
                registry_id=1,
                peers=[str(b.pub)],
                heartbeat_interval=0.2,
                heartbeat_timeout=0.5,
            ) as again:
                await eventually(lambda: ends_of(again) == [THERE])
                # While it settles, what it held before may still come back to it; then it is gone.
                assert ends_of(b) == [HERE, THERE]
                await eventually(lambda: ends_of(b) == [THERE])


@pytest.mark.spec("DIS-11")
async def test_a_registry_that_falls_silent_is_forgotten(lane: Lane) -> None:
    async with registry(lane, broadcast_interval=0.1) as b, caller(lane) as ann:
        async with registry(lane, broadcast_interval=0.1) as a:
            b.add_peer(str(a.pub))
            await (await ann.dial(a.router)).register()
            await eventually(lambda: ends_of(b) == [HERE])
        assert b.peers_heard == (a.registry_id,)
        await eventually(lambda: b.peers_heard == ())
        assert b.services == {}


@pytest.mark.spec("DIS-13")
async def test_a_provider_restarted_after_its_registry_died_gets_in_at_another(lane: Lane) -> None:
    async with registry(lane) as b, caller(lane, BOB) as bob:
        async with registry(lane) as a, caller(lane) as ann:
            b.add_peer(str(a.pub))
            await (await ann.dial(a.router)).register()
            await eventually(lambda: ends_of(b) == [HERE])
            await bob.dial(b.router)
            assert (await bob.register()).status is AckStatus.DUPLICATE
        # Both are gone, and what the dead registry said last stands against nobody.
        while (await bob.register()).status is not AckStatus.OK:
            pass
        assert b.stats.direct_count == 1
        assert [info.routing_id for info in b.services[PAY]] == [BOB]


# ---- what makes no sense --------------------------------------------------------------------------

BAD: list[list[bytes]] = [
    [b""],
    [b"\x01"],
    [b"\x01\x00"],
    [b"\x01\x00", b"", b"tcp://h:1"],
    [b"\x01\x00", b"\xff\xfe", b"tcp://h:1"],
    [b"\x01\x00", b"x" * 256, b"tcp://h:1"],
    [b"\x01\x00", b"x", b"tcp://h:1", b"12345"],
    [b"\x63\x00", b"x", b"y"],
    [b"\x04\x00", b"x"],
    [b"\x05\x00", b"1234", b"12345678", b"\xff\xff\xff\xff"],
    encode(RegisterAck(status=AckStatus.OK)),
]


@pytest.mark.parametrize("frames", BAD, ids=lambda frames: b"|".join(frames)[:20].hex())
async def test_a_bad_message_is_answered_and_counted_and_nobody_else_notices(
    lane: Lane, frames: list[bytes]
) -> None:
    async with registry(lane) as one, caller(lane) as ann, caller(lane, BOB) as bob:
        await ann.dial(one.router)
        await bob.dial(one.router)
        await ann.register()
        await bob.dealer.send(frames)
        ack = await bob.answer()
        assert ack.status is AckStatus.OTHER
        assert ack.error.startswith("not understood: ")
        assert sum(one.stats.bad_frames.values()) == 1
        assert (await bob.register(THERE)).status is AckStatus.OK
        assert ends_of(one) == [HERE, THERE]


async def test_a_peer_that_never_makes_sense_is_sent_away(lane: Lane) -> None:
    seen = Recorder()
    async with registry(lane) as one, caller(lane) as ann, caller(lane, BOB, on_event=seen) as bob:
        await ann.dial(one.router)
        await ann.register()
        await bob.dial(one.router)
        for _ in range(STRIKES_MAX):
            await bob.dealer.send([b"nonsense"])
        gone = await seen.wait(Disconnected)
        assert gone.reason in (CloseReason.REFUSED_BY_PEER, CloseReason.CLOSED_BY_PEER)
        assert one.stats.expelled_count == 1
        assert one.stats.bad_frames == {"bad-frame": STRIKES_MAX}
        # It may come back, and others have not noticed.
        assert (await bob.register(THERE)).status is AckStatus.OK
        assert (await ann.reweigh(2)).status is AckStatus.OK


async def test_lists_of_peers_that_make_no_sense_are_counted_and_ignored(lane: Lane) -> None:
    async with lane.pub() as pub:
        endpoint = str(await pub.bind(lane.endpoint()))
        async with registry(lane, peers=[endpoint], registry_id=1) as one:
            await tell(pub, [b"\x06\x00"])
            await tell(pub, [b"\x06\x00", b"1234", b"12345678", b"\xff\xff\xff\xff"])
            await tell(pub, encode_list(RegistrySync(registry_id=1, list_seq=9, services={})))
            entry = ProviderEntry(endpoint=HERE, routing_id=ANN, epoch=5)
            await tell(pub, encode_list(RegistrySync(registry_id=2, list_seq=9, services={PAY: (entry,)})))
            await tell(pub, encode_list(RegistrySync(registry_id=2, list_seq=9, services={})))
            await tell(pub, encode_list(RegistrySync(registry_id=2, list_seq=8, services={})))
            await eventually(lambda: one.stats.stale_lists_count == 2)
            stats = one.stats
            assert stats.bad_frames == {"bad-frame": 2}
            assert stats.echoed_lists_count == 1
            assert (stats.lists_count, stats.synced_count, stats.providers_count) == (1, 1, 1)
            assert one.peers_heard == (2,)


def mesh(*cluster: Registry) -> None:
    for one in cluster:
        for other in cluster:
            if other is not one:
                one.add_peer(str(other.pub))


def ends_of(one: Registry, service: str = PAY) -> list[str]:
    return [info.endpoint for info in one.services.get(service, ())]


async def tell(pub: Pub, frames: list[bytes]) -> None:
    """Publish to the registry that follows us, as soon as it does."""
    assert int.from_bytes(frames[0], "little") == REGISTRY_SYNC
    while not pub.post(frames):
        await asyncio.sleep(0)
