"""pyzmq as most programs use it: one thread, blocking calls, whole messages.

Settings: one I/O thread (libzmq's default), SNDHWM and RCVHWM as `Job.backlog_count`, LINGER 0,
ROUTER_MANDATORY, so that a full or missing peer blocks or fails instead of dropping. Request/reply is ROUTER
to ROUTER with frames [request id][message id][payload]. Publishing is ROUTER to ROUTER, one send a receiver,
which blocks at the high-water mark; the variant "pubsub" is PUB to SUB, which drops there. There and back
over two topics each side has a PUB and a SUB.
"""

import struct
import time

import zmq

from bench.job import Job
from bench.link import Link
from bench.load import BEACON_S, BURST_COUNT, SETTLE_S

MESSAGE_ID = b"\x01\x00"
TOPIC, BACK_TOPIC = b"topic", b"back"
_number = struct.Struct("<Q").pack


def _socket(job: Job, kind: int, routing_id: bytes = b"") -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = zmq.Context().socket(kind)
    socket.setsockopt(zmq.SNDHWM, job.backlog_count)
    socket.setsockopt(zmq.RCVHWM, job.backlog_count)
    socket.setsockopt(zmq.LINGER, 0)
    if kind == zmq.ROUTER:
        socket.setsockopt(zmq.ROUTING_ID, routing_id)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    return socket


def _facts() -> dict[str, str]:
    return {"libzmq": zmq.zmq_version()}


def serve(job: Job, link: Link) -> None:
    """Echo: the message comes with its sender's id in front, which is where the reply wants it."""
    socket = _socket(job, zmq.ROUTER, b"server")
    socket.bind(f"tcp://{job.address}")
    link.ready(**_facts())
    while True:
        peer, request_id, message_id, payload = socket.recv_multipart()
        socket.send_multipart([peer, request_id, message_id, payload])


def call(job: Job, link: Link) -> None:
    """Keep the case's width in flight; the callers are the entries of a dict."""
    socket = _socket(job, zmq.ROUTER, b"client")
    socket.setsockopt(zmq.CONNECT_ROUTING_ID, b"server")
    socket.connect(f"tcp://{job.address}")
    payload, number = job.payload, job.case.width
    waiting = {_number(caller): time.perf_counter_ns() for caller in range(number)}
    for request_id in waiting:
        _send_when_connected(socket, [b"server", request_id, MESSAGE_ID, payload])
    link.ready(**_facts())
    timed = job.case.width == 1
    while True:
        _, request_id, _, link.last = socket.recv_multipart()
        begun_ns = waiting.pop(request_id)
        link.count += 1
        if timed:
            now_ns = time.perf_counter_ns()
            link.latencies_ns.append(now_ns - begun_ns)
            begun_ns = now_ns
        number += 1
        request_id = _number(number)
        waiting[request_id] = begun_ns
        socket.send_multipart([b"server", request_id, MESSAGE_ID, payload])


def _send_when_connected(socket: zmq.Socket[bytes], parts: list[bytes]) -> None:
    while True:
        try:
            socket.send_multipart(parts)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            time.sleep(BEACON_S)
        else:
            return


def publish(job: Job, link: Link) -> None:
    """One send a receiver over ROUTER, or one send over PUB."""
    payload = job.payload
    if job.peer.variant == "pubsub":
        socket = _socket(job, zmq.PUB)
        messages = [[TOPIC, payload]]
    else:
        socket = _socket(job, zmq.ROUTER, b"publisher")
        messages = [[_receiver_id(index), TOPIC, payload] for index in range(job.case.width)]
    socket.bind(f"tcp://{job.address}")
    link.ready(**_facts())
    while not link.hushed:
        for message in messages:
            _send_when_connected(socket, message)
        time.sleep(BEACON_S)
    link.go.wait()
    while not link.halted:
        for _ in range(BURST_COUNT):
            for message in messages:
                socket.send_multipart(message)
        link.count += BURST_COUNT
    while True:
        time.sleep(1)


def receive(job: Job, link: Link) -> None:
    """Count messages."""
    if job.peer.variant == "pubsub":
        socket = _socket(job, zmq.SUB)
        socket.setsockopt(zmq.SUBSCRIBE, TOPIC)
    else:
        socket = _socket(job, zmq.ROUTER, _receiver_id(job.index))
    socket.connect(f"tcp://{job.address}")
    link.ready(**_facts())
    while True:
        link.last = socket.recv_multipart()[-1]
        link.count += 1


def bounce(job: Job, link: Link) -> None:
    """Publish on one topic what came on another."""
    pub, sub = _pub_and_sub(job, bound=job.second_address, connected=job.address, topic=TOPIC)
    link.ready(**_facts())
    while True:
        pub.send_multipart([BACK_TOPIC, sub.recv_multipart()[1]])


def throw(job: Job, link: Link) -> None:
    """One message under way."""
    payload = job.payload
    pub, sub = _pub_and_sub(job, bound=job.address, connected=job.second_address, topic=BACK_TOPIC)
    pub.send_multipart([TOPIC, payload])
    while not sub.poll(int(BEACON_S * 1000)):
        pub.send_multipart([TOPIC, payload])
    # More than one may be on the way from the beginning: the answers to all of them go first.
    while sub.poll(int(SETTLE_S * 1000)):
        sub.recv_multipart()
    link.ready(**_facts())
    while True:
        begun_ns = time.perf_counter_ns()
        pub.send_multipart([TOPIC, payload])
        link.last = sub.recv_multipart()[1]
        link.latencies_ns.append(time.perf_counter_ns() - begun_ns)
        link.count += 1


def _pub_and_sub(
    job: Job, *, bound: str, connected: str, topic: bytes
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    pub, sub = _socket(job, zmq.PUB), _socket(job, zmq.SUB)
    pub.bind(f"tcp://{bound}")
    sub.setsockopt(zmq.SUBSCRIBE, topic)
    sub.connect(f"tcp://{connected}")
    return pub, sub


def _receiver_id(index: int) -> bytes:
    return b"receiver-%d" % index
