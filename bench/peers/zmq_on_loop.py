"""pyzmq's asyncio sockets on uvloop, ROUTER to ROUTER.

Settings and frames are those of `pyzmq_sockets`; each send and receive is awaited, and callers wait on
futures found by request id.
"""

import asyncio
import struct

import zmq
import zmq.asyncio

from bench.job import Job
from bench.link import Link
from bench.load import BEACON_S, keep_in_flight, keep_publishing

MESSAGE_ID = b"\x01\x00"
TOPIC = b"topic"
_number = struct.Struct("<Q").pack


def _router(job: Job, routing_id: bytes) -> zmq.asyncio.Socket:
    socket = zmq.asyncio.Context().socket(zmq.ROUTER)
    socket.setsockopt(zmq.SNDHWM, job.backlog_count)
    socket.setsockopt(zmq.RCVHWM, job.backlog_count)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.ROUTING_ID, routing_id)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    return socket


async def _send_when_possible(socket: zmq.asyncio.Socket, parts: list[bytes]) -> None:
    """Try again while the peer is not there yet, or has no room: a mandatory ROUTER waits for neither."""
    while True:
        try:
            await socket.send_multipart(parts)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            await asyncio.sleep(0 if error.errno == zmq.EAGAIN else BEACON_S)
        else:
            return


async def serve(job: Job, link: Link) -> None:
    """Echo."""
    socket = _router(job, b"server")
    socket.bind(f"tcp://{job.address}")
    link.ready()
    while True:
        await socket.send_multipart(await socket.recv_multipart())


async def call(job: Job, link: Link) -> None:
    """Numbered requests, each with a future; one task receives."""
    socket = _router(job, b"client")
    socket.setsockopt(zmq.CONNECT_ROUTING_ID, b"server")
    socket.connect(f"tcp://{job.address}")
    loop = asyncio.get_running_loop()
    waiting: dict[bytes, asyncio.Future[bytes]] = {}
    number = 0

    async def settle() -> None:
        while True:
            _, request_id, _, payload = await socket.recv_multipart()
            waiting.pop(request_id).set_result(payload)

    async def request(payload: bytes) -> bytes:
        nonlocal number
        number += 1
        request_id = _number(number)
        future: asyncio.Future[bytes] = loop.create_future()
        waiting[request_id] = future
        await socket.send_multipart([b"server", request_id, MESSAGE_ID, payload])
        return await future

    first = waiting[_number(0)] = loop.create_future()
    await _send_when_possible(socket, [b"server", _number(0), MESSAGE_ID, job.payload])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(settle(), name="settle")
        await first
        link.ready()
        await keep_in_flight(request, job, link)


async def publish(job: Job, link: Link) -> None:
    """One send a receiver; it waits at the high-water mark."""
    socket = _router(job, b"publisher")
    socket.bind(f"tcp://{job.address}")
    messages = [[b"receiver-%d" % index, TOPIC, job.payload] for index in range(job.case.width)]
    link.ready()
    for message in messages:
        await _send_when_possible(socket, message)

    async def send_many(count: int) -> None:
        for _ in range(count):
            for message in messages:
                await _send_when_possible(socket, message)

    await keep_publishing(send_many, link)


async def receive(job: Job, link: Link) -> None:
    """Count messages."""
    socket = _router(job, b"receiver-%d" % job.index)
    socket.connect(f"tcp://{job.address}")
    link.ready()
    while True:
        link.last = (await socket.recv_multipart())[-1]
        link.count += 1
