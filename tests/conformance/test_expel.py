"""A ROUTER sends away a peer that talks nonsense."""

import asyncio

from hansa.transport import CloseReason, Connected, Disconnected
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane
from tests.support.recorder import Recorder


async def test_an_expelled_peer_is_told_why_and_its_connection_ends(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"rude")
        raw.send(zmtp.message(b"nonsense"))
        assert await hub.recv() == (b"rude", [b"nonsense"])
        hub.expel(b"rude", "a call has two frames")
        gone = await seen.wait(Disconnected, peer=b"rude")
        assert gone.reason is CloseReason.PROTOCOL_VIOLATION
        assert gone.detail == "a call has two frames"
        assert hub.peers == ()
        name, data = await raw.read_command()
        assert name == b"ERROR"
        assert data[1 : 1 + data[0]].startswith(b"protocol-violation")
        await raw.close()
        assert hub.stats.ended == {"protocol-violation": 1}


async def test_the_others_stay(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub, lane.dealer(b"good") as good:
        endpoint = await hub.bind(lane.endpoint())
        good.connect(endpoint)
        raw = await lane.dial_raw(endpoint)
        await raw.shake_hands(b"DEALER", b"rude")
        await seen.wait(Connected, count=2)
        hub.expel(b"rude", "enough")
        await seen.wait(Disconnected, peer=b"rude")
        await good.send([b"still here"])
        assert await hub.recv() == (b"good", [b"still here"])
        await hub.send(b"good", [b"so am I"])
        assert await good.recv() == (b"hub", [b"so am I"])


async def test_what_it_said_before_was_heard_and_what_it_says_after_is_not(lane: Lane) -> None:
    seen = Recorder()
    heard: list[bytes] = []
    marked = asyncio.Event()

    def take(peer: bytes, messages: list[list[bytes]]) -> None:
        for parts in messages:
            heard.append(parts[0])
            if parts[0] == b"nonsense":
                hub.expel(peer, "enough")
            if parts[0] == b"marker":
                marked.set()

    async with lane.router(b"hub", on_event=seen, on_messages=take) as hub:
        endpoint = await hub.bind(lane.endpoint())
        raw = await lane.dial_raw(endpoint)
        await raw.shake_hands(b"DEALER", b"rude")
        raw.send(zmtp.message(b"sense") + zmtp.message(b"nonsense"))
        await seen.wait(Disconnected, peer=b"rude")
        raw.send(zmtp.message(b"more"))
        await raw.close()
        other = await lane.dial_raw(endpoint)
        await other.shake_hands(b"DEALER", b"other")
        other.send(zmtp.message(b"marker"))
        await marked.wait()
        assert heard == [b"sense", b"nonsense", b"marker"]


async def test_it_may_come_again(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub, lane.dealer(b"rude") as rude:
        rude.connect(await hub.bind(lane.endpoint()))
        await seen.wait(Connected, peer=b"rude")
        hub.expel(b"rude", "enough")
        await seen.wait(Connected, peer=b"rude", count=2)
        await rude.send([b"better now"])
        assert await hub.recv() == (b"rude", [b"better now"])


async def test_expelling_a_stranger_does_nothing(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        await hub.bind(lane.endpoint())
        hub.expel(b"nobody", "never heard of")
        assert seen.events == []
        assert hub.stats.ended == {}
