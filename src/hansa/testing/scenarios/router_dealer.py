"""ROUTER and DEALER sockets under every fault: lost messages are reported, and all others arrive.

Two routers listen, the second also dials the first. Two dealers talk to one router each, in order; a third is
connected to both and shares its messages out. All of them write numbered letters to every peer they know,
with buffers so small that they fill. The ledger judges: nothing twice, nothing out of order, nothing that was
refused, and no letter missing that the sender's socket did not report as unsent or in doubt.

Two things excuse a missing letter: the sender crashed, so that no socket is left to report, or the letter was
in the inbox of a receiver that crashed or stopped.

A letter is offered, then accepted or refused by the socket, and received at most once. The letters of one
life to one destination form a channel. A channel in which the socket promises order must deliver in order,
and the loss reports, in their order, must cover each run of missing letters: a broken connection loses the
tail of what it was handed, never something in the middle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, Unavailable, WouldBlock
from hansa.testing.host import Host
from hansa.testing.life import Life, LifeState
from hansa.testing.simulation import Scenario
from hansa.testing.world import World
from hansa.transport import (
    Away,
    Dealer,
    Disconnected,
    MessagesLost,
    Overflow,
    Router,
    SocketEvent,
    SocketOptions,
)

ANYBODY = ""

PORT = 5000
# Each host, its kind, and the hosts that it dials.
HOSTS: dict[str, tuple[type[Router] | type[Dealer], tuple[str, ...]]] = {
    "r1": (Router, ()),
    "r2": (Router, ("r1",)),
    "d1": (Dealer, ("r1",)),
    "d2": (Dealer, ("r2",)),
    "d3": (Dealer, ("r1", "r2")),
}
PAUSE_S_MAX = 0.2
# Longer than every timeout of sockets and network together, so that nothing of the chaos is left.
RECOVERY_S = 30.0
FINALS_COUNT = 5

Socket = Router | Dealer


class RouterDealer(Scenario):
    """Sockets lose nothing that they do not report as lost."""

    name: ClassVar[str] = "router_dealer"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ledger = Ledger(world)
        self._chance = world.chance.fork("router_dealer")
        self._takeover = self._chance.flip(0.5)
        self._sockets: dict[str, Socket] = {}
        # Lives that began and whose inboxes have not been checked after their end.
        self._unburied: dict[str, Life] = {}
        self._finished: set[str] = set()
        self._is_calm = False

    def begin(self) -> None:
        for name in HOSTS:
            self.world.host(name, self._program).start()

    def check(self) -> None:
        if self._is_calm:
            self._check_counts()
            return
        self._bury_the_dead()

    def calm(self) -> None:
        self._is_calm = True
        self._bury_the_dead()

    def unsettled(self) -> str:
        lives = [str(host.life) for host in self.world.hosts.values()]
        busy = [life for life in lives if life not in self._finished]
        if busy:
            return f"{', '.join(busy)} did not send the last letters"
        self._bury_the_dead()
        late = self.ledger.missing_finals(excused=self.world.crashed_lives)
        lost = self.ledger.unexplained(excused=self.world.crashed_lives)
        return "\n".join((late + lost)[:20])

    def _check_counts(self) -> None:
        """A socket's counts must match what it did, letter by letter."""
        for life, socket in self._sockets.items():
            if life in self.world.crashed_lives:
                continue
            channels = [one for one in self.ledger.channels if one.sender == life]
            accepted = sum(letter.is_accepted for one in channels for letter in one.letters)
            reported = sum(sum(one.reports) for one in channels)
            stats = socket.stats
            if stats.sent_count != accepted:
                self.world.fail(
                    "sent_count is what was accepted", f"{life}: {stats.sent_count}, not {accepted}"
                )
            if stats.unsent_count + stats.in_doubt_count != reported:
                self.world.fail("the counts are what the events say", f"{life}: {stats}, events: {reported}")

    # What runs on the hosts.

    async def _program(self, host: Host) -> None:
        kind, dials = HOSTS[host.name]
        chance = host.chance
        life = str(host.life)
        settings: dict[str, Any] = {
            "environment": host.environment.fork("socket").but(
                options=_options(chance.fork("options"), takeover=self._takeover)
            ),
            "on_event": lambda event: self._on_event(host, life, event),
            "name": life,
        }
        is_direct = chance.flip(0.5)
        if is_direct:
            settings["on_messages"] = lambda peer, messages: self._on_messages(host, messages)
        async with kind(host.name.encode(), **settings) as socket:
            self._sockets[life] = socket
            self._unburied[life] = host.life
            if isinstance(socket, Router):
                await socket.bind(f"tcp://*:{PORT}")
            for other in dials:
                socket.connect(f"tcp://{other}:{PORT}")
            async with asyncio.TaskGroup() as group:
                if not is_direct:
                    group.create_task(self._read(host, socket, chance.fork("reader")), name=f"{life} reader")
                group.create_task(self._write(host, socket, chance.fork("writer")), name=f"{life} writer")
                await asyncio.Event().wait()

    async def _read(self, host: Host, socket: Socket, chance: Chance) -> None:
        while True:
            message = await socket.recv()
            self._on_messages(host, [message.parts])
            if chance.flip(0.2):
                await asyncio.sleep(chance.uniform(0.0, PAUSE_S_MAX))

    async def _write(self, host: Host, socket: Socket, chance: Chance) -> None:
        life = str(host.life)
        while not self._is_calm:
            await asyncio.sleep(chance.uniform(0.0, PAUSE_S_MAX))
            for destination in self._destinations(host, socket, chance):
                for _ in range(chance.choose((1, 1, 1, 20))):
                    await self._send(socket, self._channel(life, socket, destination), chance)
        await asyncio.sleep(RECOVERY_S)
        for destination in _neighbours(host.name) if isinstance(socket, Router) else [ANYBODY]:
            for _ in range(FINALS_COUNT):
                await self._send_final(host, socket, self._channel(life, socket, destination))
        host.record("has sent its last letters")
        self._finished.add(life)

    def _destinations(self, host: Host, socket: Socket, chance: Chance) -> list[str]:
        if isinstance(socket, Dealer):
            return [ANYBODY]
        return [chance.choose(_neighbours(host.name))]

    async def _send(self, socket: Socket, channel: Channel, chance: Chance) -> None:
        size_bytes = chance.below(chance.choose((1, 100, 2_000, 40_000 if chance.flip(0.05) else 300)))
        letter = self.ledger.offer(channel, size_bytes=size_bytes, is_final=False)
        how = chance.choose(("post", "send", "impatient"))
        # Unless the socket says that it took the letter, it must not have: a cancelled call sends nothing.
        is_accepted = False
        try:
            if how == "post":
                is_accepted = _post(socket, letter)
            elif how == "send":
                is_accepted = await _send(socket, letter)
            else:
                async with asyncio.timeout(chance.choose((0.0, chance.uniform(0.0, PAUSE_S_MAX)))):
                    is_accepted = await _send(socket, letter)
        except (Unavailable, TimeoutError):
            pass
        finally:
            self.ledger.settle_offer(letter, is_accepted=is_accepted)

    async def _send_final(self, host: Host, socket: Socket, channel: Channel) -> None:
        letter = self.ledger.offer(channel, size_bytes=10, is_final=True)
        try:
            is_accepted = await _send(socket, letter)
        except Unavailable as error:
            self.world.fail("after the faults everybody is reachable", f"{letter} from {host.name}: {error}")
        self.ledger.settle_offer(letter, is_accepted=is_accepted)
        if not is_accepted:
            self.world.fail("after the faults nothing is dropped", f"{letter} from {host.name}")

    # The reports of sockets.

    def _on_messages(self, host: Host, messages: list[list[bytes]]) -> None:
        for parts in messages:
            letter = self.ledger.receive(host.name, parts)
            host.record(f"got {letter}")

    def _on_event(self, host: Host, life: str, event: SocketEvent) -> None:
        host.record(_line(event))
        if isinstance(event, Disconnected):
            lost_count = event.unsent_count + event.in_doubt_count
        elif isinstance(event, MessagesLost):
            lost_count = event.count
        else:
            return
        channel = self._channel(life, self._sockets[life], event.peer.decode())
        self.ledger.report_lost(channel, lost_count)

    # The books.

    def _channel(self, life: str, socket: Socket, destination: str) -> Channel:
        if isinstance(socket, Router):
            return self.ledger.channel(life, destination, is_ordered=True)
        # A dealer with one connection keeps order; with more, a lost peer's messages go to another peer.
        is_single = len(HOSTS[life.partition("/")[0]][1]) == 1
        return self.ledger.channel(life, ANYBODY, is_ordered=is_single)

    def _bury_the_dead(self) -> None:
        """No socket must report messages that it had received and its ended program had not read."""
        for life in [life for life in self._unburied.values() if life.state is LifeState.DEAD]:
            del self._unburied[str(life)]
            while (parts := _left_in_inbox(self._sockets[str(life)])) is not None:
                self.ledger.bury(life.name, parts)


def _left_in_inbox(socket: Socket) -> list[bytes] | None:
    try:
        return socket.recv_nowait().parts
    except (WouldBlock, AlreadyClosed):
        return None


def _options(chance: Chance, *, takeover: bool) -> SocketOptions:
    return SocketOptions(
        outgoing_count_max=chance.choose((8, 50)),
        outgoing_bytes_max=chance.choose((2_000, 1_000_000)),
        incoming_count_max=chance.choose((4, 1_000)),
        incoming_bytes_max=chance.choose((2_000, 1_000_000)),
        overflow=chance.choose((Overflow.BLOCK, Overflow.BLOCK, Overflow.DROP, Overflow.FAIL)),
        away=chance.choose((Away.WAIT, Away.FAIL)),
        heartbeat_interval=1.0,
        heartbeat_timeout=3.0,
        handshake_s_max=3.0,
        reconnect_s_min=0.05,
        reconnect_s_max=1.0,
        takeover=takeover,
        linger=chance.choose((0.0, 2.0)),
    )


def _neighbours(name: str) -> list[str]:
    """The hosts with which a router exchanges letters."""
    dialled = list(HOSTS[name][1])
    return dialled + [other for other, (_, dials) in HOSTS.items() if name in dials]


def _post(socket: Socket, letter: Letter) -> bool:
    if isinstance(socket, Router):
        return socket.post(letter.destination.encode(), letter.parts)
    return socket.post(letter.parts)


async def _send(socket: Socket, letter: Letter) -> bool:
    if isinstance(socket, Router):
        return await socket.send(letter.destination.encode(), letter.parts)
    return await socket.send(letter.parts)


def _line(event: SocketEvent) -> str:
    fields = [f"{name}={getattr(event, name)!s}" for name in type(event).__dataclass_fields__]
    return f"{type(event).__name__} {' '.join(fields)}"


@dataclass(slots=True, kw_only=True)
class Letter:
    """One message on its way. `is_final` letters are sent when all is healed, and have no excuse."""

    sender: str
    destination: str
    number: int
    is_final: bool
    size_bytes: int
    is_accepted: bool = False
    is_refused: bool = False
    is_received: bool = False

    @property
    def parts(self) -> list[bytes]:
        """The parts on the wire; the filling proves that nothing was mixed up or cut."""
        head = [self.sender.encode(), self.destination.encode(), str(self.number).encode()]
        return [*head, self.filling]

    @property
    def filling(self) -> bytes:
        return bytes([self.number % 256]) * self.size_bytes

    def __str__(self) -> str:
        return f"letter {self.number} of {self.sender} to {self.destination or 'anybody'}"


@dataclass(slots=True, kw_only=True)
class Channel:
    """Letters of one life to one destination, in the order in which they were offered."""

    sender: str
    destination: str
    is_ordered: bool
    letters: list[Letter] = field(default_factory=list)
    reports: list[int] = field(default_factory=list)
    last_received: int = -1

    def missing(self) -> list[Letter]:
        return [letter for letter in self.letters if letter.is_accepted and not letter.is_received]

    def unexplained(self) -> str:
        """Letters that are missing and were not reported, or the empty string."""
        missing = self.missing()
        if len(missing) <= sum(self.reports) and (not self.is_ordered or self._runs_are_covered()):
            return ""
        numbers = ", ".join(str(letter.number) for letter in missing[:20])
        return (
            f"{self.sender} to {self.destination or 'anybody'}: {len(missing)} letters are missing "
            f"({numbers}), the reports say {self.reports or 'nothing'}"
        )

    def _runs_are_covered(self) -> bool:
        """Match runs of missing letters with reports, both in order; one report explains one run only."""
        reports = iter(self.reports)
        for run in self._missing_runs():
            while run > 0:
                reported = next(reports, None)
                if reported is None:
                    return False
                run -= reported
        return True

    def _missing_runs(self) -> list[int]:
        runs = [0]
        for letter in self.letters:
            if letter.is_accepted and not letter.is_received:
                runs[-1] += 1
            elif letter.is_received:
                runs.append(0)
        return [run for run in runs if run]


class Ledger:
    """All channels of a run. Fails the world at once when a forbidden letter arrives."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._channels: dict[tuple[str, str], Channel] = {}

    @property
    def channels(self) -> Iterable[Channel]:
        return self._channels.values()

    def channel(self, sender: str, destination: str, *, is_ordered: bool) -> Channel:
        """The channel, opened when it is first asked for."""
        key = (sender, destination)
        if key not in self._channels:
            self._channels[key] = Channel(sender=sender, destination=destination, is_ordered=is_ordered)
        return self._channels[key]

    def offer(self, channel: Channel, *, size_bytes: int, is_final: bool) -> Letter:
        """Write a letter. It counts once it is accepted."""
        letter = Letter(
            sender=channel.sender,
            destination=channel.destination,
            number=len(channel.letters),
            is_final=is_final,
            size_bytes=size_bytes,
        )
        channel.letters.append(letter)
        return letter

    def settle_offer(self, letter: Letter, *, is_accepted: bool) -> None:
        """The socket took the letter, or did not; in between, it may have arrived already."""
        letter.is_accepted = is_accepted
        letter.is_refused = not is_accepted
        if letter.is_refused and letter.is_received:
            self._world.fail("what was refused is not delivered", f"{letter} was refused, and received")

    def receive(self, receiver: str, parts: list[bytes]) -> Letter:
        """A letter came out of a socket."""
        letter, channel = self._arrived(receiver, parts)
        if channel.is_ordered and letter.number <= channel.last_received:
            self._world.fail(
                "order is kept", f"{letter} came to {receiver} after letter {channel.last_received}"
            )
        channel.last_received = letter.number
        return letter

    def bury(self, receiver: str, parts: list[bytes]) -> None:
        """A letter reached a socket whose program ended before it read it. Its time is not known."""
        self._arrived(receiver, parts)

    def report_lost(self, channel: Channel, count: int) -> None:
        """The sender's socket says that up to `count` accepted letters may not arrive."""
        if count:
            channel.reports.append(count)

    def unexplained(self, *, excused: set[str]) -> list[str]:
        """Channels that miss more than was reported, except those of the excused lives."""
        problems = [one.unexplained() for one in self.channels if one.sender not in excused]
        return [problem for problem in problems if problem]

    def missing_finals(self, *, excused: set[str]) -> list[str]:
        """Letters of the quiet phase that have not arrived."""
        return [
            str(letter)
            for one in self.channels
            if one.sender not in excused
            for letter in one.letters
            if letter.is_final and not letter.is_received
        ]

    def _arrived(self, receiver: str, parts: list[bytes]) -> tuple[Letter, Channel]:
        letter, channel = self._find(receiver, parts)
        if letter.is_refused:
            self._world.fail("what was refused is not delivered", f"{letter} was refused; {receiver} got it")
        if letter.is_received:
            self._world.fail("nothing is delivered twice", f"{letter} came to {receiver} again")
        letter.is_received = True
        return letter, channel

    def _find(self, receiver: str, parts: list[bytes]) -> tuple[Letter, Channel]:
        sender, destination, number = (
            part.decode("ascii", "replace") for part in (*parts, b"", b"", b"")[:3]
        )
        channel = self._channels.get((sender, destination))
        index = int(number) if number.isdigit() else -1
        if channel is None or not 0 <= index < len(channel.letters) or destination not in (ANYBODY, receiver):
            self._world.fail("only what was sent is delivered", f"{receiver} got {parts[:3]!r}")
        letter = channel.letters[index]
        if parts != letter.parts:
            self._world.fail("messages arrive whole and alone", f"{letter} came to {receiver} changed")
        return letter, channel
