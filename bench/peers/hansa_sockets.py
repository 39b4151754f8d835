"""hansa's own sockets through their public interface.

Settings: the defaults of SocketOptions (64 MiB and 100,000 messages a peer), heartbeats included.
Request/reply is ROUTER to ROUTER with the business frames [request id u64][message id u16][payload], received
in `on_messages`, answered with `post`; callers wait on futures found by request id. Publishing is PUB to SUB;
there and back over two topics each side has both.
"""

import asyncio
import struct
import time

import hansa.wire.frames
from bench.job import Job
from bench.link import Link
from bench.load import BEACON_S, SETTLE_S, keep_in_flight, keep_publishing
from hansa.transport import Pub, Router, Sub

MESSAGE_ID = b"\x01\x00"
TOPIC, BACK_TOPIC = b"topic", b"back"
_number = struct.Struct("<Q").pack


def _facts() -> dict[str, bool]:
    return {"compiled": not (hansa.wire.frames.__file__ or "").endswith(".py")}


async def serve(job: Job, link: Link) -> None:
    """Echo what came in a chunk, in the same turn of the loop."""

    def echo(peer: bytes, messages: list[list[bytes]]) -> None:
        post = router.post
        for request_id, message_id, payload in messages:
            post(peer, [request_id, message_id, payload])

    async with Router(b"server", on_messages=echo) as router:
        await router.bind(f"tcp://{job.address}")
        link.ready(**_facts())
        await asyncio.Event().wait()


async def call(job: Job, link: Link) -> None:
    """Numbered requests, each with a future."""
    create_future = asyncio.get_running_loop().create_future
    waiting: dict[bytes, asyncio.Future[bytes]] = {}
    number = 0

    def settle(_peer: bytes, messages: list[list[bytes]]) -> None:
        for request_id, _message_id, payload in messages:
            waiting.pop(request_id).set_result(payload)

    def request(payload: bytes) -> asyncio.Future[bytes]:
        nonlocal number
        number += 1
        request_id = _number(number)
        future = waiting[request_id] = create_future()
        router.post(b"server", [request_id, MESSAGE_ID, payload])
        return future

    async with Router(b"client", on_messages=settle) as router:
        await router.connect(f"tcp://{job.address}").up()
        link.ready(**_facts())
        await keep_in_flight(request, job, link)


async def publish(job: Job, link: Link) -> None:
    """One awaited send a message."""
    payload = job.payload

    async def send_many(count: int) -> None:
        for _ in range(count):
            await pub.send([TOPIC, payload])

    async with Pub() as pub:
        await pub.bind(f"tcp://{job.address}")
        link.ready(**_facts())
        await keep_publishing(send_many, link)


async def receive(job: Job, link: Link) -> None:
    """Look at every message of every chunk and count it."""

    def count(_peer: bytes, messages: list[list[bytes]]) -> None:
        for _topic, payload in messages:
            link.last = payload
            link.count += 1

    async with Sub(on_messages=count) as sub:
        sub.subscribe(TOPIC)
        await sub.connect(f"tcp://{job.address}").up()
        link.ready(**_facts())
        await asyncio.Event().wait()


async def bounce(job: Job, link: Link) -> None:
    """Publish on one topic what came on another."""

    def back(_peer: bytes, messages: list[list[bytes]]) -> None:
        for _topic, payload in messages:
            pub.post([BACK_TOPIC, payload])

    async with Pub() as pub, Sub(on_messages=back) as sub:
        sub.subscribe(TOPIC)
        await pub.bind(f"tcp://{job.second_address}")
        sub.connect(f"tcp://{job.address}")
        link.ready(**_facts())
        await asyncio.Event().wait()


async def throw(job: Job, link: Link) -> None:
    """One message under way, the next one posted when it is back."""
    payload, answered, begun_ns = job.payload, asyncio.Event(), 0

    def again(_peer: bytes, messages: list[list[bytes]]) -> None:
        nonlocal begun_ns
        answered.set()
        if not begun_ns:
            return
        for _topic, link.last in messages:
            link.latencies_ns.append(time.perf_counter_ns() - begun_ns)
            link.count += 1
            begun_ns = time.perf_counter_ns()
            pub.post([TOPIC, payload])

    async with Pub() as pub, Sub(on_messages=again) as sub:
        sub.subscribe(BACK_TOPIC)
        await pub.bind(f"tcp://{job.address}")
        await sub.connect(f"tcp://{job.second_address}").up()
        while not answered.is_set():
            pub.post([TOPIC, payload])
            await asyncio.sleep(BEACON_S)
        # More than one may be on the way from the beginning: the answers to all of them go first.
        await asyncio.sleep(SETTLE_S)
        link.ready(**_facts())
        begun_ns = time.perf_counter_ns()
        pub.post([TOPIC, payload])
        await asyncio.Event().wait()
