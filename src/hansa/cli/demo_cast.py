"""The processes of the demo: a ROUTER that answers, and DEALERs that ask and keep the books.

Each is started as `python -m hansa.cli.demo_cast`, tells its state on stdout as lines of JSON, and does
what it reads from stdin: "stop" means ask nothing more and end when everything is answered; the end of
stdin means end at once, so that nothing outlives a demo that was killed.

The books: a question is open from the moment it is asked until its first answer. When a connection breaks,
the questions that are open then are in doubt (they may or may not have arrived), so they are asked again
on the next connection. A question that is answered twice is counted, not hidden.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from time import perf_counter
from typing import Any

from hansa.cli.fast_loop import run
from hansa.cli.latencies import Latencies
from hansa.errors import Unavailable
from hansa.transport import Connected, Dealer, Disconnected, Router, SocketOptions

REPORT_INTERVAL_S = 0.25
# Short pauses between attempts, so that a few seconds show a whole recovery.
OPTIONS = SocketOptions(reconnect_s_min=0.05, reconnect_s_max=0.5)


def tell(**facts: Any) -> None:
    """One line of JSON to whoever started this process."""
    print(json.dumps(facts), flush=True)


class Orders:
    """What stdin says: `stop` is set by the word, `end` by the end of the stream."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.end = asyncio.Event()

    async def read(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        try:
            while line := await reader.readline():
                if line.strip() == b"stop":
                    self.stop.set()
        finally:
            transport.close()
            self.end.set()


async def play_router(endpoint: str) -> None:
    """Answer every question with its own parts."""
    orders = Orders()
    async with Router(b"router", options=OPTIONS) as router, asyncio.TaskGroup() as group:
        bound = await router.bind(endpoint)
        tell(bound=str(bound), pid=os.getpid())
        tasks = [
            group.create_task(orders.read(), name="orders"),
            group.create_task(answer(router), name="answer"),
        ]
        await orders.end.wait()
        for task in tasks:
            task.cancel()


async def answer(router: Router) -> None:
    async for message in router:
        with suppress(Unavailable):  # The one who asked has gone, and with it the question.
            await router.send(message.peer, message.parts)


class Asker:
    """A DEALER's books: which questions are open, since when, and what came of the others."""

    def __init__(self, dealer: Dealer, *, in_flight_count: int, payload: bytes) -> None:
        self._dealer = dealer
        self._in_flight_count = in_flight_count
        self._payload = payload
        self._open: dict[int, float] = {}
        self._asking = True
        self._latencies = Latencies()
        self._asked_count = 0
        self._answered_count = 0
        self._asked_again_count = 0
        self._answered_twice_count = 0
        self._connections_count = 0
        self._connected = False
        self.all_answered = asyncio.Event()

    async def ask(self) -> None:
        """Keep the window full until told to stop. An answer makes room for the next question."""
        self._fill()
        async for message in self._dealer:
            asked_at = self._open.pop(int.from_bytes(message.parts[0], "little"), None)
            if asked_at is None:
                self._answered_twice_count += 1
                continue
            self._answered_count += 1
            self._latencies.note(perf_counter() - asked_at)
            self._fill()

    def stop_asking(self) -> None:
        self._asking = False
        self._fill()

    def _fill(self) -> None:
        while self._asking and len(self._open) < self._in_flight_count:
            self._asked_count += 1
            self._open[self._asked_count] = perf_counter()
            self._post(self._asked_count)
        if not self._asking and not self._open:
            self.all_answered.set()

    def _post(self, number: int) -> None:
        self._dealer.post([number.to_bytes(8, "little"), self._payload])

    async def follow_connections(self) -> None:
        """Ask again what was open when a connection broke, as soon as there is another."""
        in_doubt: list[int] = []
        async for event in self._dealer.events():
            match event:
                case Connected():
                    self._connected = True
                    self._connections_count += 1
                    still_open = [number for number in in_doubt if number in self._open]
                    in_doubt.clear()
                    self._asked_again_count += len(still_open)
                    for number in still_open:
                        self._post(number)
                case Disconnected():
                    self._connected = False
                    in_doubt = list(self._open)
                case _:
                    pass  # An attempt that failed; the socket tries again by itself.

    def report(self, *, done: bool = False) -> None:
        tell(
            pid=os.getpid(),
            connected=self._connected,
            reconnects_count=max(self._connections_count - 1, 0),
            asked_count=self._asked_count,
            answered_count=self._answered_count,
            asked_again_count=self._asked_again_count,
            answered_twice_count=self._answered_twice_count,
            latencies=self._latencies.as_json(),
            done=done,
        )
        self._latencies.clear()

    async def report_often(self) -> None:
        while True:
            await asyncio.sleep(REPORT_INTERVAL_S)
            self.report()


async def play_dealer(endpoint: str, name: str, in_flight_count: int, payload_bytes: int) -> None:
    """Ask until told to stop, then wait until all is answered, and tell the final numbers."""
    orders = Orders()
    async with Dealer(name.encode(), options=OPTIONS) as dealer, asyncio.TaskGroup() as group:
        asker = Asker(dealer, in_flight_count=in_flight_count, payload=bytes(payload_bytes))
        dealer.connect(endpoint)
        work = {
            "ask": asker.ask(),
            "follow connections": asker.follow_connections(),
            "report": asker.report_often(),
            "orders": orders.read(),
        }
        tasks = [group.create_task(step, name=name) for name, step in work.items()]
        await first(orders.stop, orders.end)
        asker.stop_asking()
        await first(asker.all_answered, orders.end)
        for task in tasks:
            task.cancel()
    asker.report(done=True)


async def first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(event.wait(), name="wait for an event") for event in events]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def main(arguments: list[str]) -> None:
    # Ctrl-C reaches every process of the terminal; the demo itself decides how its cast ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    match arguments:
        case ["router", endpoint]:
            run(play_router(endpoint))
        case ["dealer", endpoint, name, in_flight_count, payload_bytes]:
            run(play_dealer(endpoint, name, int(in_flight_count), int(payload_bytes)))
        case _:
            raise SystemExit(f"the demo has no such role: {arguments}")


if __name__ == "__main__":
    main(sys.argv[1:])
