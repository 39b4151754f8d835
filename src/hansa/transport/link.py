"""One ZMTP connection as a machine: greeting, handshake, traffic, heartbeats. Pure.

Theory of operation. A link goes through GREETING, HANDSHAKE and READY to CLOSED. Bytes go in through
`receive`, which returns whole messages; all other meanings of the bytes become effects, and the driver
performs them in order. Parsing stops at every command, so that a message is never seen before the effect of a
command that was sent ahead of it: the driver calls `proceed` until the parser has nothing left.

    GREETING  -- 64 bytes of ZMTP 3.x, mechanism NULL --> HANDSHAKE
    HANDSHAKE -- READY with a socket type that fits   --> READY      (effect Established)
    any       -- violation, refusal, silence          --> CLOSED     (effect LinkEnded, once)

The dialling side sends its READY with its greeting. The accepting side sends its READY when the peer has been
admitted (`welcome`), or an ERROR instead: a dialler counts as connected only where it is wanted, and does not
have to wait to learn that it is not.

Heartbeats do two jobs. Silence for `heartbeat_timeout_s` ends the link. And each PING carries the number of
messages that were handed to the connection before it; the PONG brings the number back, so the peer has read
all of those. Messages that were handed over later are in doubt when the connection breaks, and the link can
say how many.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from hansa.errors import BadFrame
from hansa.limits import COMMAND_BYTES_MAX, ROUTING_ID_BYTES_MAX
from hansa.transport.environment import SocketOptions
from hansa.transport.events import CloseReason
from hansa.wire import commands
from hansa.wire.frames import FrameParser

# Which socket types may talk to which (the peer's types include libzmq's REQ, REP, XPUB and XSUB).
FITTING: Final[dict[str, frozenset[str]]] = {
    "ROUTER": frozenset(("ROUTER", "DEALER", "REQ")),
    "DEALER": frozenset(("ROUTER", "DEALER", "REP")),
    "PUB": frozenset(("SUB", "XSUB")),
    "SUB": frozenset(("PUB", "XPUB")),
}


class LinkState(Enum):
    GREETING = "greeting"
    HANDSHAKE = "handshake"
    READY = "ready"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBytes:
    """Bytes for the peer, ahead of waiting messages.

    While the connection takes no more, only the latest write of one `kind` is kept: a newer PING or PONG says
    all that an older one did, and a peer that asks without reading the answers costs no memory.
    """

    data: bytes
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Established:
    """The handshake is over; `identity` is empty for a peer that gave none."""

    identity: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionAdded:
    prefix: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionCancelled:
    prefix: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEnded:
    """The link is over: write the effects before this one, then close the connection."""

    reason: CloseReason
    detail: str


Effect = WriteBytes | Established | SubscriptionAdded | SubscriptionCancelled | LinkEnded


class Link:
    """The protocol of one connection. The caller passes bytes and the time."""

    def __init__(
        self, *, socket_type: str, identity: bytes, accepting: bool, options: SocketOptions, now: float
    ) -> None:
        self.state = LinkState.GREETING
        self.effects: list[Effect] = []
        self.heard = False
        """Set by the driver when bytes came since the last tick: cheaper than reading a clock per chunk."""
        self.handed_count = 0
        """Messages that the driver handed to the connection."""
        self.confirmed_count = 0
        """Of those, how many the peer has certainly read."""
        self.peer_minor = 0
        self.parser = FrameParser(
            frame_bytes_max=options.frame_bytes_max,
            message_bytes_max=options.message_bytes_max,
            parts_max=options.parts_max,
            command_bytes_max=COMMAND_BYTES_MAX,
        )
        self._socket_type = socket_type
        self._identity = identity
        self._greeting = b""
        self._interval_s = options.heartbeat_interval
        self._timeout_s = options.heartbeat_timeout
        self._heard_at = now
        self._ping_at = now
        self._handshake_deadline = now + options.handshake_s_max
        self._peer_ttl_s = 0.0
        properties = {"Socket-Type": socket_type.encode()}
        if socket_type in ("ROUTER", "DEALER"):
            properties["Identity"] = identity
        self._ready = commands.encode_ready(properties)
        self._welcomed = not accepting
        first = commands.encode_greeting()
        self.effects.append(WriteBytes(data=first if accepting else first + self._ready))

    @property
    def in_doubt_count(self) -> int:
        return self.handed_count - self.confirmed_count

    @property
    def is_closed(self) -> bool:
        return self.state is LinkState.CLOSED

    @property
    def knows_commands(self) -> bool:
        """Whether the peer speaks 3.1, and with it PING and SUBSCRIBE."""
        return self.peer_minor >= 1

    def receive(self, data: bytes) -> list[list[bytes]]:
        """The messages that these bytes complete, up to the first command: then call `proceed`."""
        if self.state is LinkState.READY or self.state is LinkState.HANDSHAKE:
            return self.parser.feed(data)
        return self._greet(data) if self.state is LinkState.GREETING else []

    def proceed(self, now: float) -> list[list[bytes]]:
        """Handle the command at which the parser stopped; returns the messages after it."""
        parser = self.parser
        if self.state is LinkState.CLOSED:
            return []
        if parser.violation:
            self.end(CloseReason(parser.violation), parser.detail)
            return []
        try:
            self._obey(commands.decode_command(parser.command or b""), now)
        except BadFrame as error:
            self.end(CloseReason.PROTOCOL_VIOLATION, str(error))
        return [] if self.is_closed else parser.resume()

    def tick(self, now: float) -> None:
        """Time passed: check the handshake deadline, silence, and the next PING."""
        if self.state is LinkState.CLOSED:
            return
        if self.heard:
            self.heard = False
            self._heard_at = now
        if self.state is not LinkState.READY:
            if now >= self._handshake_deadline:
                self.end(CloseReason.HANDSHAKE_TIMEOUT, f"the peer got as far as {self.state.value}")
            return
        silence_s_max = self._silence_s_max()
        # The same sum as in `deadline`: a difference may round to just below the bound when it is due.
        if silence_s_max is not None and now >= self._heard_at + silence_s_max:
            self.end(CloseReason.HEARTBEAT_TIMEOUT, f"nothing heard for {now - self._heard_at:.1f} s")
        elif self._interval_s is not None and self.knows_commands and now >= self._ping_at + self._interval_s:
            self.ping(now)

    def deadline(self) -> float | None:
        """When `tick` is due next."""
        if self.state is LinkState.CLOSED:
            return None
        if self.state is not LinkState.READY:
            return self._handshake_deadline
        silence_s_max = self._silence_s_max()
        due = [] if silence_s_max is None else [self._heard_at + silence_s_max]
        if self._interval_s is not None and self.knows_commands:
            due.append(self._ping_at + self._interval_s)
        return min(due, default=None)

    def handed(self, count: int) -> None:
        """This many more messages were handed to the connection."""
        self.handed_count += count

    def ping(self, now: float) -> None:
        """Ask the peer to confirm all that was handed over so far."""
        self._ping_at = now
        ping = commands.encode_ping(context=self.handed_count.to_bytes(8, "little"))
        self.effects.append(WriteBytes(data=ping, kind="ping"))

    def subscription(self, prefix: bytes, *, wanted: bool) -> bytes:
        """The bytes that subscribe or cancel, in the form that this peer understands."""
        if self.knows_commands:
            return commands.encode_subscribe(prefix) if wanted else commands.encode_cancel(prefix)
        body = (b"\x01" if wanted else b"\x00") + prefix
        return (
            bytes((0, len(body))) + body if len(body) < 256 else b"\x02" + len(body).to_bytes(8, "big") + body
        )

    def welcome(self) -> None:
        """The peer is admitted. An accepting side says READY only now, so the dialler is never misled."""
        if not self._welcomed:
            self._welcomed = True
            self.effects.append(WriteBytes(data=self._ready))

    def refuse(self, reason: CloseReason, detail: str) -> None:
        """Tell the peer why, and end."""
        if self.state is not LinkState.CLOSED:
            self.effects.append(WriteBytes(data=commands.encode_rejection(f"{reason}: {detail}")))
            self.end(reason, detail)

    def end(self, reason: CloseReason, detail: str) -> None:
        if self.state is not LinkState.CLOSED:
            self.state = LinkState.CLOSED
            self.effects.append(LinkEnded(reason=reason, detail=detail))

    def _silence_s_max(self) -> float | None:
        # A 3.0 peer answers no PING, so its silence means nothing unless it set a limit itself.
        timeout_s = self._timeout_s if self._interval_s is not None and self.knows_commands else None
        if not self._peer_ttl_s:
            return timeout_s
        return self._peer_ttl_s if timeout_s is None else min(timeout_s, self._peer_ttl_s)

    def _greet(self, data: bytes) -> list[list[bytes]]:
        """Collect the greeting, at most 64 bytes of it."""
        missing = commands.GREETING_BYTES - len(self._greeting)
        self._greeting += data[:missing]
        wrong = commands.greeting_is_hopeless(self._greeting)
        if wrong:
            self.end(CloseReason.BAD_VERSION, wrong)
        elif len(self._greeting) == commands.GREETING_BYTES:
            greeting = commands.decode_greeting(self._greeting)
            if greeting.mechanism != commands.NULL:
                self.refuse(
                    CloseReason.BAD_MECHANISM, f"the peer wants {greeting.mechanism!r}, NULL is spoken here"
                )
            else:
                self.peer_minor = (
                    greeting.minor if greeting.major == commands.VERSION[0] else commands.VERSION[1]
                )
                self.state = LinkState.HANDSHAKE
                return self.parser.feed(data[missing:])
        return []

    def _obey(self, command: commands.Command, now: float) -> None:
        if self.state is LinkState.HANDSHAKE:
            self._shake(command, now)
        elif isinstance(command, commands.Ping):
            self._peer_ttl_s = command.ttl_s
            self.effects.append(WriteBytes(data=commands.encode_pong(command.context), kind="pong"))
        elif isinstance(command, commands.Pong):
            self._confirm(command.context)
        elif isinstance(command, commands.Subscribe | commands.Cancel):
            if self._socket_type != "PUB":
                self.end(CloseReason.PROTOCOL_VIOLATION, f"a subscription sent to a {self._socket_type}")
            elif isinstance(command, commands.Subscribe):
                self.effects.append(SubscriptionAdded(prefix=command.prefix))
            else:
                self.effects.append(SubscriptionCancelled(prefix=command.prefix))
        elif isinstance(command, commands.Rejection):
            self.end(CloseReason.REFUSED_BY_PEER, command.reason)
        elif isinstance(command, commands.Ready):
            self.end(CloseReason.PROTOCOL_VIOLATION, "a second READY")

    def _shake(self, command: commands.Command, now: float) -> None:
        if isinstance(command, commands.Rejection):
            self.end(CloseReason.REFUSED_BY_PEER, command.reason)
        elif not isinstance(command, commands.Ready):
            self.end(CloseReason.PROTOCOL_VIOLATION, f"{type(command).__name__} before READY")
        elif command.socket_type not in FITTING[self._socket_type]:
            self.refuse(
                CloseReason.BAD_SOCKET_TYPE,
                f"a {command.socket_type or 'nameless'} met a {self._socket_type}",
            )
        elif len(command.identity) > ROUTING_ID_BYTES_MAX:
            self.refuse(CloseReason.PROTOCOL_VIOLATION, f"an identity of {len(command.identity)} bytes")
        else:
            self.state = LinkState.READY
            self.parser.commands_only = False
            self._heard_at = self._ping_at = now
            self.effects.append(Established(identity=command.identity))

    def _confirm(self, context: bytes) -> None:
        """Believe a PONG only as far as it can be true."""
        if len(context) == 8:
            count = int.from_bytes(context, "little")
            if self.confirmed_count < count <= self.handed_count:
                self.confirmed_count = count
