"""Fifty zones of a game world on four servers, one of which is killed and comes back.

Every zone has two topics, `zone:7:state` and `zone:7:events`, owned by the server that runs the zone. A
server publishes the state of its zones ten times a second and subscribes to the zones beside them, with
`zone:8:*`, so that players see over the border. A player who crosses the border is handed over with an event.
The event is published to a topic of the other zone, and the publisher need not know which server owns it.
When a server is killed, its zones are dark and its neighbours wait. When it is back, it creates its topics
again, and everything goes on by itself.

Run it:  python examples/mmorpg_zones.py [--seconds 8]
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import hansa

ZONES = 50
SERVERS = 4
PLAYERS_PER_ZONE = 4
PROGRAM = str(Path(__file__).resolve())
TICK_S = 0.1
VICTIM = 2


def zones_of(server: int) -> list[int]:
    """A stretch of the world, so that most borders are inside a server and some are between two."""
    share = -(-ZONES // SERVERS)
    return list(range(server * share, min((server + 1) * share, ZONES)))


# ---- one server, a process of its own ---------------------------------------------------------------


@dataclass
class Player:
    number: int
    position: float
    speed: float


@dataclass
class Books:
    """What a server has seen, by its own count; the library's counts are compared with it."""

    published: int = 0
    received: int = 0
    expected: int = 0
    """How many messages there were from the first to the last received, by the owners' numbers."""
    crossings: int = 0
    arrivals: int = 0
    waiting: int = 0
    """How often a player had to wait at the border of a dark zone."""
    last: dict[str, int] = field(default_factory=dict)

    def count(self, message: hansa.TopicMessage) -> None:
        self.received += 1
        before = self.last.get(message.topic, 0)
        # A lower number than the last one: the zone has a new owner, which counts from the beginning.
        self.expected += message.sequence - before if 0 < before < message.sequence else 1
        self.last[message.topic] = message.sequence


class Server:
    """Runs its zones: moves the players, publishes their states, and listens to the zones over the border."""

    def __init__(self, number: int, node: hansa.SpotNode) -> None:
        self.books = Books()
        self._node = node
        self._spot = node.spot(f"server {number}")
        self._chance = random.Random(number)
        self._zones: dict[int, dict[int, Player]] = {
            zone: {
                player: Player(player, self._chance.random(), self._chance.uniform(-0.4, 0.4))
                for player in range(zone * PLAYERS_PER_ZONE, (zone + 1) * PLAYERS_PER_ZONE)
            }
            for zone in zones_of(number)
        }
        self._dark_since: dict[str, float] = {}
        self.dark_s: dict[str, float] = {}
        """For how long each topic over the border had no owner."""

    async def run(self, ends: asyncio.Event) -> None:
        for zone in self._zones:
            await self._spot.create_topic(f"zone:{zone}:state", retain=True)
            await self._spot.create_topic(f"zone:{zone}:events")
            await self._spot.subscribe(f"zone:{zone}:events")
        beyond = {near for zone in self._zones for near in (zone - 1, zone + 1)} - self._zones.keys()
        for zone in sorted(beyond & set(range(ZONES))):
            await self._spot.subscribe_pattern(f"zone:{zone}:*")
        events = self._spot.events()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(events))
            reader = tasks.create_task(self._read())
            while not ends.is_set():
                await self._tick()
                with suppress(TimeoutError):
                    await asyncio.wait_for(ends.wait(), TICK_S)
            events.close()
            reader.cancel()

    async def _tick(self) -> None:
        for zone, players in self._zones.items():
            for player in list(players.values()):
                player.position += player.speed * TICK_S
                if not 0 <= player.position < 1:
                    await self._cross(zone, player)
            await self._publish(
                f"zone:{zone}:state", [[one.number, one.position] for one in players.values()]
            )

    async def _cross(self, zone: int, player: Player) -> None:
        near = zone + (1 if player.position >= 1 else -1)
        if not 0 <= near < ZONES:
            player.speed = -player.speed
            player.position = min(max(player.position, 0.0), 0.999)
            return
        try:
            await self._publish(f"zone:{near}:events", [player.number, player.position % 1, player.speed])
        except hansa.NoOwner:
            self.books.waiting += 1
            player.position = min(max(player.position, 0.0), 0.999)
        else:
            self.books.crossings += 1
            del self._zones[zone][player.number]

    async def _publish(self, topic: str, what: object) -> None:
        await self._spot.publish(topic, json.dumps(what).encode())
        self.books.published += 1

    async def _read(self) -> None:
        async for message in self._spot:
            self.books.count(message)
            _, zone, kind = message.topic.split(":")
            if kind == "events" and int(zone) in self._zones:
                number, position, speed = json.loads(message.payload)
                self._zones[int(zone)][number] = Player(number, position, speed)
                self.books.arrivals += 1

    async def _watch(self, events: hansa.EventStream[hansa.SpotEvent]) -> None:
        async for event in events:
            match event:
                case hansa.SubscriptionSuspended(topic=topic):
                    self._dark_since[topic] = time.monotonic()
                case hansa.SubscriptionActivated(topic=topic) if topic in self._dark_since:
                    self.dark_s[topic] = time.monotonic() - self._dark_since.pop(topic)

    def report(self) -> dict[str, object]:
        counts: Counter[str] = Counter()
        for subscription in self._spot.subscriptions:
            counts["missed"] += subscription.missed_count
            counts["dropped"] += subscription.dropped_count
            counts["unread"] += subscription.waiting_count
        books = self.books
        return {
            "published": books.published,
            "received": books.received,
            "expected": books.expected,
            "missed": counts["missed"],
            "dropped": counts["dropped"],
            "unread": counts["unread"],
            "crossings": books.crossings,
            "arrivals": books.arrivals,
            "waiting": books.waiting,
            "players": sum(map(len, self._zones.values())),
            "dark_s": self.dark_s,
        }


async def serve(number: int, pub: str, router: str) -> None:
    """Runs the server until standard input ends, then writes its report to standard output."""
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, lambda: ends.set() if not sys.stdin.read(1) else None)
    async with (
        hansa.Discovery([pub]) as discovery,
        hansa.SpotNode("tcp://127.0.0.1:0", [router], discovery=discovery, name=f"server {number}") as node,
    ):
        server = Server(number, node)
        print("ready", flush=True)
        await server.run(ends)
        print(json.dumps(server.report()), flush=True)


# ---- the world: a registry, four servers, and a kill ---------------------------------------------------


async def start(number: int, registry: hansa.Registry) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        PROGRAM,
        *("--server", str(number), "--pub", str(registry.pub), "--router", str(registry.router)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def finish(process: asyncio.subprocess.Process) -> dict[str, object]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    report: dict[str, object] = json.loads(await process.stdout.readline())
    await process.wait()
    return report


async def play(seconds: float) -> int:
    async with hansa.Registry("tcp://127.0.0.1:0", "tcp://127.0.0.1:0") as registry:
        servers = list(await asyncio.gather(*(start(number, registry) for number in range(SERVERS))))
        print(f"{SERVERS} servers run {ZONES} zones with {ZONES * PLAYERS_PER_ZONE} players")
        await asyncio.sleep(seconds / 3)
        servers[VICTIM].send_signal(signal.SIGKILL)
        await servers[VICTIM].wait()
        killed_at_s = time.monotonic()
        print(f"server {VICTIM} is killed: zones {zones_of(VICTIM)[0]} to {zones_of(VICTIM)[-1]} are dark")
        await asyncio.sleep(seconds / 6)
        servers[VICTIM] = await start(VICTIM, registry)
        print(f"server {VICTIM} is back after {time.monotonic() - killed_at_s:.2f} s")
        await asyncio.sleep(seconds / 2)
        reports = await asyncio.gather(*map(finish, servers))
    return tell(reports)


def tell(reports: list[dict[str, object]]) -> int:
    columns = ("published", "received", "missed", "dropped", "crossings", "arrivals", "waiting", "players")
    print("\nserver " + " ".join(f"{column:>10}" for column in columns))
    for number, report in enumerate(reports):
        print(f"{number:>6} " + " ".join(f"{report[column]:>10}" for column in columns))
    dark_s = [s for report in reports for s in dict(report["dark_s"]).values()]  # type: ignore[call-overload]
    if dark_s:
        print(
            f"\nhand-over: {len(dark_s)} border topics were without an owner for "
            f"{min(dark_s):.2f} to {max(dark_s):.2f} s, and active again without anybody acting"
        )
    problems = [
        f"server {number}: the numbers say {report['expected']}, {report['received']} came and "
        f"{report['missed']} were reported missed"
        for number, report in enumerate(reports)
        if report["received"] + report["missed"] != report["expected"]  # type: ignore[operator]
    ]
    if not dark_s:
        problems.append("nobody noticed that a server was killed")
    print("\n".join(problems) or "every message that was published over a border came, or was reported")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="how long the world lives")
    parser.add_argument("--server", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--pub", help=argparse.SUPPRESS)
    parser.add_argument("--router", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.server is None:
        return asyncio.run(play(options.seconds))
    asyncio.run(serve(options.server, options.pub, options.router))
    return 0


if __name__ == "__main__":
    sys.exit(main())
