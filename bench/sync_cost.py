"""What the blocking API costs: requests a second and latency, beside the async API in the same run.

Run it as `python -m bench.sync_cost`. A provider in a process of its own answers; callers are one or several
tasks (async) or threads (`hansa.sync`, and a coroutine per call for comparison), each with one request under
way. Rounds alternate, so that what the machine does meanwhile hits all. `measure` gives the numbers as
values, for `make bench`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Any

from hansa import sync
from hansa.services.discovery import Discovery
from hansa.services.gateway import Gateway
from hansa.services.provider import Provider, Request
from hansa.services.registry import Registry

SERVICE = "echo"
CALLERS = (1, 16)
ROUNDS = 5
ROUND_S = 1.0
PAYLOAD = bytes(64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One API with so many callers: medians over the rounds."""

    api: str
    callers_count: int
    requests_per_s: float
    p50_us: float
    p99_us: float
    cpu_us: float
    """CPU time of the caller's process per request, which other work on the machine disturbs least."""


def run(program: Any) -> Any:
    """On uvloop where it is installed, as `hansa.sync` does."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(program)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(program)


async def _serve(told: Any) -> None:
    async with (
        Registry("tcp://127.0.0.1:0", "tcp://127.0.0.1:0") as registry,
        Provider(registries=[str(registry.router)]) as provider,
    ):

        @provider.handler()
        async def echo(request: Request) -> list[bytes]:
            return request.parts

        await provider.register(SERVICE)
        told.send(str(registry.pub))
        await asyncio.get_running_loop().run_in_executor(None, told.recv)


def _serve_in_process(told: Any) -> None:
    run(_serve(told))


def sync_round(ask: Callable[[], object], callers_count: int, round_s: float) -> list[float]:
    """The latency of every request that as many threads made within the time."""
    latencies: list[list[float]] = [[] for _ in range(callers_count)]
    gate = threading.Barrier(callers_count)

    def caller(noted: list[float]) -> None:
        gate.wait()
        end_at = perf_counter() + round_s
        begun_at = perf_counter()
        while begun_at < end_at:
            ask()
            now = perf_counter()
            noted.append(now - begun_at)
            begun_at = now

    threads = [threading.Thread(target=caller, args=(noted,)) for noted in latencies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [value for noted in latencies for value in noted]


async def async_round(gateway: Gateway, callers_count: int, round_s: float) -> list[float]:
    """The same with tasks."""
    latencies: list[float] = []

    async def caller() -> None:
        end_at = perf_counter() + round_s
        begun_at = perf_counter()
        while begun_at < end_at:
            await gateway.request(SERVICE, PAYLOAD)
            now = perf_counter()
            latencies.append(now - begun_at)
            begun_at = now

    async with asyncio.TaskGroup() as group:
        for number in range(callers_count):
            group.create_task(caller(), name=f"caller {number}")
    return latencies


def _async_side(pub: str, callers_count: int, round_s: float) -> list[float]:
    async def play() -> list[float]:
        async with Discovery([pub]) as discovery, Gateway(discovery) as gateway:
            discovery.subscribe(SERVICE)
            await gateway.wait_connected(SERVICE, timeout=10)
            await async_round(gateway, callers_count, round_s / 10)
            return await async_round(gateway, callers_count, round_s)

    found: list[float] = run(play())
    return found


def _sync_side(pub: str, callers_count: int, round_s: float) -> list[float]:
    with sync.Discovery([pub]) as discovery, sync.Gateway(discovery) as gateway:
        discovery.subscribe(SERVICE)
        gateway.wait_connected(SERVICE, timeout=10)
        ask = partial(gateway.request, SERVICE, PAYLOAD)
        sync_round(ask, callers_count, round_s / 10)
        return sync_round(ask, callers_count, round_s)


def _threadsafe_side(pub: str, callers_count: int, round_s: float) -> list[float]:
    """What a user would write over the async API: a coroutine a call, handed to the loop's thread."""
    with sync.Discovery([pub]) as discovery, sync.Gateway(discovery) as gateway:
        discovery.subscribe(SERVICE)
        gateway.wait_connected(SERVICE, timeout=10)
        background = gateway._background
        assert background is not None

        def ask() -> list[bytes]:
            work = gateway._inner.request(SERVICE, PAYLOAD)
            return asyncio.run_coroutine_threadsafe(work, background.loop).result()

        sync_round(ask, callers_count, round_s / 10)
        return sync_round(ask, callers_count, round_s)


def measure(*, rounds: int = ROUNDS, round_s: float = ROUND_S) -> list[Cost]:
    """The cost of each API, interleaved: every round measures each with each number of callers."""
    sides: dict[str, Callable[[str, int, float], list[float]]] = {
        "async": _async_side,
        "sync": _sync_side,
        "run_coroutine_threadsafe": _threadsafe_side,
    }
    found: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve_in_process, args=(theirs,))
    server.start()
    try:
        pub = ours.recv()
        for _ in range(rounds):
            for callers_count in CALLERS:
                for api, side in sides.items():
                    cpu_s = process_time()
                    latencies = sorted(side(pub, callers_count, round_s))
                    # The warm-up makes a tenth of the requests as well.
                    cpu_s = (process_time() - cpu_s) / 1.1
                    count = len(latencies)
                    found.setdefault((api, callers_count), []).append(
                        (
                            count / round_s,
                            latencies[count // 2] * 1e6,
                            latencies[count * 99 // 100] * 1e6,
                            cpu_s / count * 1e6,
                        )
                    )
        ours.send("end")
        server.join(10)
    finally:
        server.kill()
        server.join()
    return [
        Cost(
            api=api,
            callers_count=callers_count,
            requests_per_s=median(one[0] for one in values),
            p50_us=median(one[1] for one in values),
            p99_us=median(one[2] for one in values),
            cpu_us=median(one[3] for one in values),
        )
        for (api, callers_count), values in found.items()
    ]


def main() -> None:
    for cost in measure():
        print(
            f"{cost.api:>24} {cost.callers_count:>3} callers {cost.requests_per_s:>9,.0f} requests/s"
            f"  p50 {cost.p50_us:>7,.0f} us  p99 {cost.p99_us:>7,.0f} us  cpu {cost.cpu_us:>5,.0f} us"
        )


if __name__ == "__main__":
    main()
