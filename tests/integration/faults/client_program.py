"""Calls a service at a steady rate, whatever becomes of the calls, and keeps books of every outcome.

It tells {"event": "calling"} once it is connected to so many providers, and each failure. The order `books`
makes it tell its counts; `stop` makes it wait for the last outcomes, tell its counts and end.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa import (  # noqa: E402
    Discovery,
    Gateway,
    HansaError,
    RetryPolicy,
)
from hansa.runtime.loops import run  # noqa: E402
from hansa.services.gateway import Completion  # noqa: E402
from hansa.transport import Environment, SocketOptions  # noqa: E402
from tests.integration.faults.orders import orders, tell  # noqa: E402

OPTIONS = SocketOptions(reconnect_s_min=0.05, reconnect_s_max=0.5)
TICK_S = 0.002
FAILURES_TOLD_MAX = 20


class Caller:
    """Sends what is due, checks what comes back."""

    def __init__(self, gateway: Gateway, service: str, rate: float, *, once: bool, timeout_s: float) -> None:
        self._gateway = gateway
        self._service = service
        self._rate = rate
        self._once = once
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._ended_at = 0.0
        self._sent_count = 0
        self._replied: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._failures: list[str] = []
        self._wrong_count = 0
        self._settled = asyncio.Event()
        self._slowest_s = 0.0

    async def call_on(self) -> None:
        """Until cancelled: as many calls as are due by now, however those before them went."""
        while True:
            due_count = int((self._loop.time() - self._began_at) * self._rate) + 1
            while self._sent_count < due_count:
                self._call()
            await asyncio.sleep(TICK_S)

    async def settle(self) -> None:
        """Wait for the outcomes of what was sent."""
        self._ended_at = self._loop.time()
        while self._done_count < self._sent_count:
            self._settled.clear()
            await self._settled.wait()

    def tell(self) -> None:
        tell(
            "books",
            sent=self._sent_count,
            replied=self._replied.total(),
            failed=dict(self._failed),
            failures=self._failures,
            wrong=self._wrong_count,
            by=dict(self._replied),
            seconds=(self._ended_at or self._loop.time()) - self._began_at,
            slowest_s=self._slowest_s,
            stats=asdict(self._gateway.stats),
        )

    @property
    def _done_count(self) -> int:
        return self._replied.total() + self._failed.total()

    def _call(self) -> None:
        self._sent_count += 1
        number, sent_at = b"%d" % self._sent_count, self._loop.time()

        def came(completion: Completion) -> None:
            self._slowest_s = max(self._slowest_s, self._loop.time() - sent_at)
            if completion.error is not None:
                self._fail(number, completion.error)
            else:
                name, *said = completion.parts
                self._replied[name.decode()] += 1
                self._wrong_count += said != [number]
            self._settled.set()

        try:
            self._gateway.submit(
                self._service, number, came, timeout=self._timeout_s, idempotent=not self._once
            )
        except HansaError as error:
            self._fail(number, error)

    def _fail(self, number: bytes, error: HansaError) -> None:
        self._failed[error.code] += 1
        self._settled.set()
        if self._failed.total() <= FAILURES_TOLD_MAX:
            tell("failed", number=number.decode(), code=error.code, text=str(error))
            self._failures.append(f"{time.monotonic():.3f} {error}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service", required=True)
    parser.add_argument("--pub", action="append", required=True)
    parser.add_argument("--rate", type=float, required=True, help="calls a second")
    parser.add_argument("--connections", type=int, default=1, help="wait for so many providers first")
    parser.add_argument(
        "--once", action="store_true", help="a call is not repeatable, and nothing is retried"
    )
    parser.add_argument("--timeout", type=float, default=10.0)
    arguments = parser.parse_args()
    service = arguments.service
    retry = RetryPolicy(tries_max=1) if arguments.once else None
    discovery = Discovery(arguments.pub, environment=Environment(options=OPTIONS))
    discovery.subscribe(service)
    async with (
        discovery,
        Gateway(discovery, retry=retry, environment=Environment(options=OPTIONS)) as gateway,
    ):
        await gateway.wait_connected(service, arguments.connections, timeout=20.0)
        caller = Caller(gateway, service, arguments.rate, once=arguments.once, timeout_s=arguments.timeout)
        calling = asyncio.ensure_future(caller.call_on())
        tell("calling")
        async for order in orders():
            if order == "stop":
                break
            assert order == "books", order
            caller.tell()
        calling.cancel()
        await asyncio.wait((calling,))
        await caller.settle()
        caller.tell()


if __name__ == "__main__":
    run(main())
