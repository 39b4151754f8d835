"""eclipse-zenoh: a Rust core with its own threads, called from Python.

Settings: both sides are peers over one TCP address, multicast and gossip scouting off, the rest as it is by
default. By default zenoh moves payloads from about 3 KiB up through shared memory between processes of one
host, so its 64 KiB numbers are not TCP's; the variant "tcp" turns that off. Publishing uses congestion
control BLOCK, the library's back-pressure. Server and receivers work in callbacks on zenoh's threads.
There and back over two keys is published as express, which zenoh sends without waiting for a batch.
"""

import json
import time
from collections import deque

import zenoh

from bench.job import Job
from bench.link import Link
from bench.load import BEACON_S, BURST_COUNT, SETTLE_S

KEY, BACK_KEY = "bench/topic", "bench/back"


def _open(job: Job, side: str) -> zenoh.Session:
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    # The default listens on every interface as well.
    config.insert_json5("listen/endpoints", "[]")
    config.insert_json5(f"{side}/endpoints", json.dumps([f"tcp/{job.address}"]))
    if job.peer.variant == "tcp":
        config.insert_json5("transport/shared_memory/enabled", "false")
    return zenoh.open(config)


def _wait_for_ever() -> None:
    while True:
        time.sleep(3600)


def serve(job: Job, link: Link) -> None:
    """Echo from a queryable's callback."""

    def echo(query: zenoh.Query) -> None:
        payload = query.payload
        assert payload is not None
        query.reply(KEY, payload.to_bytes())

    session = _open(job, "listen")
    session.declare_queryable(KEY, echo)
    link.ready()
    _wait_for_ever()


def call(job: Job, link: Link) -> None:
    """Keep the case's width in flight; each caller is the channel of its own query.

    Callbacks for the replies were tried as well: with a hundred in flight they are ten times slower.
    """
    session = _open(job, "connect")
    querier = session.declare_querier(KEY)
    payload, width = job.payload, job.case.width
    while not any(reply.ok for reply in querier.get(payload=payload)):
        time.sleep(BEACON_S)
    link.ready()
    begun_ns = time.perf_counter_ns()
    waiting = deque(querier.get(payload=payload) for _ in range(width))
    while True:
        answer = waiting.popleft().recv().ok
        assert answer is not None
        link.last = answer.payload.to_bytes()
        link.count += 1
        if width == 1:
            now_ns = time.perf_counter_ns()
            link.latencies_ns.append(now_ns - begun_ns)
            begun_ns = now_ns
        waiting.append(querier.get(payload=payload))


def publish(job: Job, link: Link) -> None:
    """One put a message; zenoh multiplies."""
    session = _open(job, "listen")
    publisher = session.declare_publisher(KEY, congestion_control=zenoh.CongestionControl.BLOCK)
    payload = job.payload
    link.ready()
    while not link.hushed:
        publisher.put(payload)
        time.sleep(BEACON_S)
    link.go.wait()
    while not link.halted:
        for _ in range(BURST_COUNT):
            publisher.put(payload)
        link.count += BURST_COUNT
    _wait_for_ever()


def receive(job: Job, link: Link) -> None:
    """Count samples in a subscriber's callback."""

    def count(sample: zenoh.Sample) -> None:
        link.last = sample.payload.to_bytes()
        link.count += 1

    session = _open(job, "connect")
    session.declare_subscriber(KEY, count)
    link.ready()
    _wait_for_ever()


def bounce(job: Job, link: Link) -> None:
    """Put on one key what came on another, in the callback."""
    session = _open(job, "listen")
    publisher = session.declare_publisher(BACK_KEY, express=True)
    session.declare_subscriber(KEY, lambda sample: publisher.put(sample.payload.to_bytes()))
    link.ready()
    _wait_for_ever()


def throw(job: Job, link: Link) -> None:
    """One message under way, received from the subscriber's channel."""
    session, payload = _open(job, "connect"), job.payload
    publisher = session.declare_publisher(KEY, express=True)
    subscriber = session.declare_subscriber(BACK_KEY)
    publisher.put(payload)
    while subscriber.try_recv() is None:
        time.sleep(BEACON_S)
        publisher.put(payload)
    # More than one may be on the way from the beginning: the answers to all of them go first.
    time.sleep(SETTLE_S)
    while subscriber.try_recv() is not None:
        pass
    link.ready()
    while True:
        begun_ns = time.perf_counter_ns()
        publisher.put(payload)
        link.last = subscriber.recv().payload.to_bytes()
        link.latencies_ns.append(time.perf_counter_ns() - begun_ns)
        link.count += 1
