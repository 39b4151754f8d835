"""A node of the PUB/SUB mesh and libzmq in a process of its own: plain PUB and SUB take part."""

import asyncio
import re
from pathlib import Path

import pytest

from hansa import Registry, SpotNode
from hansa.ids import routing_id
from hansa.topics import PeerLeft
from hansa.wire.publication import decode_publication
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.peer_process import PeerProcess
from tests.support.topics_cast import TopicCast, messages, payloads, waiting
from tests.support.topics_pubsub import PUBSUB, ZONE, read_origin

SCRIPT = Path(__file__).with_name("raw_pubsub_node.py")

pytestmark = pytest.mark.timeout(60)


class RawNode(PeerProcess):
    """raw_pubsub_node.py, listed at a registry."""

    def __init__(self, registry: Registry, number: int) -> None:
        arguments = (f"--pub={registry.pub}", f"--router={registry.router}", f"--number={number}")
        super().__init__(f"topics/{SCRIPT.name}", *arguments)
        self.routing_id = routing_id(number)

    async def joined(self, node: SpotNode) -> None:
        assert (await self.hear()) == {"registered": True}
        await until(lambda: self.routing_id in node.peers, "hansa's SUB is connected")

    async def do(self, order: str) -> None:
        await self.say(order)
        while (await self.hear()).get("did") != order.split()[0]:
            pass

    async def heard(self) -> list[bytes]:
        while "heard" not in (told := await self.hear()):
            pass
        return [bytes.fromhex(frame) for frame in told["heard"]]


def test_the_raw_node_uses_nothing_of_hansas() -> None:
    assert re.search(r"^\s*(from|import) (hansa|tests)", SCRIPT.read_text(), re.MULTILINE) is None


@pytest.mark.spec("SPT-20")
async def test_a_raw_publisher_is_heard_and_what_it_sends_wrongly_is_counted() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5, **PUBSUB)
        events = cast.heard(node)
        exact, pattern = await node.spot().subscribe(ZONE), await node.spot().subscribe("*")
        async with RawNode(registry, 9) as raw:
            await raw.joined(node)
            while not exact.received_count:
                await raw.do(f"publish {ZONE} probe")
            await raw.do(f"publish {ZONE} go")
            await until(lambda: b"go" in waiting(exact), "it hears")
            waiting(pattern)
            # A topic alone; one that is no text; one that tells nonsense about itself.
            for frames in ([b"zone:1"], [b"\xff", b"x"], [b"zone:1", b"x", b"HPB1x"]):
                await raw.do("send " + " ".join(frame.hex() for frame in frames))
            await raw.do("publish zone:12 longer")
            await raw.do(f"publish {ZONE} first second")
            assert [(one.topic, one.payload, one.sequence) for one in await messages(pattern, 2)] == [
                ("zone:12", b"longer", 0),
                (ZONE, b"first", 0),
            ]
            assert await payloads(exact, 1) == [b"first"]
            assert node.stats.bad_frames == {"bad-frame": 3}
            await raw.say("leave")
            await events.wait(PeerLeft, peer=raw.routing_id)
        assert (exact.missed_count, node.peers) == (0, ())


@pytest.mark.spec("SPT-20")
async def test_a_raw_subscriber_sees_topic_and_payload_as_they_are() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5, **PUBSUB)
        spot = node.spot()
        async with RawNode(registry, 9) as raw:
            await raw.joined(node)
            await raw.do("subscribe zone:")
            probing = asyncio.Event()

            async def probe() -> None:
                while not probing.is_set():
                    await spot.publish("zone:0", b"probe")
                    await asyncio.sleep(0.005)

            async with asyncio.TaskGroup() as group:
                group.create_task(probe())
                assert (await raw.heard())[:2] == [b"zone:0", b"probe"]
                probing.set()
            await spot.publish("room:1", b"not wanted")
            await spot.publish(ZONE, b"first")
            await spot.publish(ZONE, b"")
            while (frames := await raw.heard())[0] == b"zone:0":
                pass
            for payload, sequence in ((b"first", 1), (b"", 2)):
                topic, told, origin, number = decode_publication(frames)
                assert (topic, told, number) == (ZONE.encode(), payload, sequence)
                assert read_origin(origin)[0] == node.routing_id
                if sequence == 1:
                    frames = await raw.heard()
