"""How every process of the demo takes orders and reports.

It reports its state on stdout as lines of JSON, and obeys what it reads from stdin: "go" means begin, "stop"
means begin nothing more, and the end of stdin means end at once, so that no process outlives a killed demo.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

from hansa.transport import Environment, SocketOptions

# A change is told within a tick, everything else now and then.
TICK_S = 0.02
START_S_MAX = 60.0
REPORT_INTERVAL_S = 0.25
# Short, so that a few seconds show a whole recovery.
HEARTBEAT_INTERVAL_S = 0.5
HEARTBEAT_TIMEOUT_S = 2.0
BROADCAST_INTERVAL_S = 2.0
ENVIRONMENT = Environment(options=SocketOptions(reconnect_s_min=0.05, reconnect_s_max=0.5))

Facts = dict[str, Any]


class Orders:
    """What stdin says: `go` and `stop` are set by the words, `end` by the end of the stream."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.stop = asyncio.Event()
        self.end = asyncio.Event()

    async def read(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        words = {b"go": self.go, b"stop": self.stop}
        try:
            while line := await reader.readline():
                if order := words.get(line.strip()):
                    order.set()
            self.end.set()
        finally:
            transport.close()


class Reporter:
    """Tells `state` as soon as it changes, and `state` with `numbers` every so often."""

    def __init__(self, state: Callable[[], Facts], numbers: Callable[[], Facts]) -> None:
        self._state = state
        self._numbers = numbers

    def tell(self, **more: Any) -> None:
        """One line of JSON to whoever started this process."""
        print(json.dumps({"pid": os.getpid(), **self._state(), **self._numbers(), **more}), flush=True)

    async def report(self) -> None:
        told: Facts = {}
        told_at = 0.0
        while True:
            now, state = perf_counter(), self._state()
            if state != told or now - told_at >= REPORT_INTERVAL_S:
                told, told_at = state, now
                self.tell()
            await asyncio.sleep(TICK_S)


async def act(
    orders: Orders, *steps: Coroutine[Any, Any, None], until: tuple[asyncio.Event, ...] | None = None
) -> None:
    """Do the steps, all at once, until stdin says "stop" or ends, or says what else is waited for."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(step, name="act") for step in (*steps, orders.read())]
        events = (orders.stop, orders.end) if until is None else until
        waits = [group.create_task(event.wait(), name="wait") for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, *waits):
            task.cancel()
