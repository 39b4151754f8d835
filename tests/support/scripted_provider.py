"""A provider that does what a test says: answers, waits, errs, talks nonsense, stays silent or vanishes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from hansa.transport import Connected, Disconnected, Router
from hansa.wire.business import CallHeader, ErrorReply, decode_call, decode_header, encode_call, encode_error
from hansa.wire.listing import ProviderEntry
from tests.support.lanes import Lane, quick
from tests.support.recorder import Recorder

# Frames to send back, or None to keep silent.
Answer = Callable[["Asked"], list[bytes] | None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    peer: bytes
    request_id: int
    msg_id: int
    header: CallHeader
    parts: list[bytes]

    def reply(self, *parts: bytes) -> list[bytes]:
        """The frames of a reply."""
        return encode_call(self.request_id, self.msg_id, list(parts))

    def failure(self, code: str, text: str = "as the test says") -> list[bytes]:
        """The frames of a reply that failed."""
        return encode_error(self.request_id, ErrorReply(code, text))


def echo(asked: Asked) -> list[bytes]:
    """Back what came."""
    return asked.reply(*asked.parts)


def silence(asked: Asked) -> None:
    """Nothing comes back."""


def saying(*parts: bytes) -> Answer:
    """Always the same reply."""
    return lambda asked: asked.reply(*parts)


def refusing(code: str) -> Answer:
    """Always the same failure."""
    return lambda asked: asked.failure(code)


@dataclass
class ScriptedProvider:
    """A bound ROUTER with an `answer` that may be changed at any time. Use `async with`."""

    lane: Lane
    routing_id: bytes
    answer: Answer = echo
    where: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.asked: list[Asked] = []
        self.events = Recorder()
        self.endpoint = ""
        self._came = asyncio.Event()
        self.router: Router = self.lane.router(
            self.routing_id,
            on_messages=self._received,
            on_event=self.events,
            **{"options": quick(), **self.settings},
        )

    async def __aenter__(self) -> Self:
        await self.router.__aenter__()
        self.endpoint = str(await self.router.bind(self.where or self.lane.endpoint()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave in order: connections are closed after what was said has been read."""
        await self.router.close()

    def vanish(self) -> None:
        """Every connection breaks at once; the door stays open."""
        for connection in list(self.router._connections):
            connection.abort()

    def entry(self, weight: int = 1) -> ProviderEntry:
        """How a registry lists it."""
        return ProviderEntry(endpoint=self.endpoint, routing_id=self.routing_id, weight=weight)

    def say(self, peer: bytes, frames: list[bytes]) -> None:
        """Send whatever a test likes."""
        self.router.post(peer, frames)

    def reply(self, asked: Asked, *parts: bytes) -> None:
        """Answer a request that was kept waiting."""
        self.say(asked.peer, asked.reply(*parts))

    def fail(self, asked: Asked, code: str) -> None:
        """Refuse a request that was kept waiting."""
        self.say(asked.peer, asked.failure(code))

    async def wait_asked(self, count: int) -> list[Asked]:
        """All requests, as soon as there are so many."""
        while len(self.asked) < count:
            self._came.clear()
            await self._came.wait()
        return self.asked

    async def wait_left(self, count: int = 1) -> None:
        """Wait until so many connections have ended."""
        await self.events.wait(Disconnected, count=count)

    @property
    def came_count(self) -> int:
        """How many connections there have been."""
        return len(self.events.of(Connected))

    def _received(self, peer: bytes, messages: list[list[bytes]]) -> None:
        for frames in messages:
            request_id, msg_id, header, parts = decode_call(frames)
            asked = Asked(
                peer=peer, request_id=request_id, msg_id=msg_id, header=decode_header(header), parts=parts
            )
            self.asked.append(asked)
            answer = self.answer(asked)
            if answer is not None:
                self.say(peer, answer)
        self._came.set()
