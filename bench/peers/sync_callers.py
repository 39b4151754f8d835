"""hansa.sync: as `gateways`, but the callers are threads that block in `gateway.request`.

The gateway's event loop runs in a thread of its own; as many callers as the case is wide share it.
"""

import threading
import time

from bench.job import Job
from bench.link import Link
from bench.peers.gateways import MESSAGE_ID, SERVICE, START_S_MAX, broker, serve
from hansa import sync

__all__ = ["broker", "call", "serve"]


def call(job: Job, link: Link) -> None:
    """One thread a caller."""
    payload, is_timed, turn = job.payload, job.case.width == 1, threading.Lock()

    def keep_asking() -> None:
        while True:
            begun_ns = time.perf_counter_ns()
            [reply] = gateway.request(SERVICE, [payload], msg_id=MESSAGE_ID)
            if is_timed:
                link.latencies_ns.append(time.perf_counter_ns() - begun_ns)
            with turn:
                link.last = reply
                link.count += 1

    with sync.Discovery([f"tcp://{job.address}"]) as discovery, sync.Gateway(discovery) as gateway:
        discovery.subscribe(SERVICE)
        gateway.wait_connected(SERVICE, timeout=START_S_MAX)
        callers = [
            threading.Thread(target=keep_asking, name=f"caller-{number}", daemon=True)
            for number in range(job.case.width)
        ]
        for caller in callers:
            caller.start()
        link.ready()
        for caller in callers:
            caller.join()
