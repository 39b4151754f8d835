"""The other sides of a provider, made by hand: a registry and a gateway that do what a test says."""

import asyncio
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Self

from hansa.endpoint import Endpoint
from hansa.errors import HansaError, error_from_code
from hansa.services.provider.server import Provider
from hansa.services.provider.work import Request
from hansa.transport import Router
from hansa.wire.business import (
    ERROR_MSG_ID,
    CallHeader,
    decode_call,
    decode_error,
    encode_call,
    encode_header,
)
from hansa.wire.registry import (
    AckStatus,
    Heartbeat,
    Register,
    RegisterAck,
    RegistryMessage,
    Unregister,
    UpdateWeight,
    decode,
    encode,
)
from tests.support.lanes import Lane
from tests.support.recorder import Recorder

_serial = itertools.count(1)


class ScriptedRegistry:
    """Keeps entries as a registry does. `script` may answer a message instead, or None to stay silent."""

    def __init__(self, lane: Lane, *, knows_tokens: bool = True) -> None:
        self.heard = Recorder()
        self.seen = Recorder()
        self.entries: dict[tuple[str, str], tuple[bytes, int]] = {}
        self.script: Callable[[RegistryMessage], RegisterAck | None] | None = None
        self.endpoint = ""
        self._lane = lane
        self._knows_tokens = knows_tokens
        self.router = self._new_router()

    def _new_router(self) -> Router:
        name = b"registry-%d" % next(_serial)
        return self._lane.router(name, on_messages=self._take, on_event=self.seen)

    async def __aenter__(self) -> Self:
        self.endpoint = str(await self.router.bind(self.endpoint or self._lane.endpoint()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.router.close()

    async def restart(self) -> None:
        """Come back at the same endpoint, with nothing remembered."""
        await self.router.close()
        self.entries.clear()
        self.router = self._new_router()
        await self.router.bind(self.endpoint)

    def tell(self, peer: bytes, ack: RegisterAck) -> None:
        self.router.post(peer, encode(ack))

    def _take(self, peer: bytes, messages: list[list[bytes]]) -> None:
        for frames in messages:
            message = decode(frames)
            answer = self._answer(peer, message) if self.script is None else self.script(message)
            if answer is not None:
                self.tell(peer, answer)
            self.heard(message)

    def _answer(self, peer: bytes, message: RegistryMessage) -> RegisterAck | None:
        assert isinstance(message, Register | Unregister | Heartbeat | UpdateWeight)
        token = message.token if self._knows_tokens else None
        key = (message.service, message.endpoint)
        yes = RegisterAck(status=AckStatus.OK, endpoint=message.endpoint, token=token)
        no = RegisterAck(
            status=AckStatus.OTHER, endpoint=message.endpoint, error="not registered", token=token
        )
        match message:
            case Register(weight=weight):
                self.entries[key] = (peer, weight)
                return yes
            case Unregister():
                self.entries.pop(key, None)
            case Heartbeat():
                return None if key in self.entries else no
            case UpdateWeight(weight=weight):
                if key not in self.entries:
                    return no
                self.entries[key] = (peer, weight)
        return yes if self._knows_tokens else None


class ScriptedGateway:
    """Dials a provider and sends it requests."""

    def __init__(self, lane: Lane, routing_id: bytes = b"", **arguments: object) -> None:
        self.seen = Recorder()
        self.router = lane.router(
            routing_id or b"gateway-%d" % next(_serial),
            on_messages=self._take,
            on_event=self.seen,
            **arguments,
        )
        self.provider = b""
        self._replies: dict[int, asyncio.Future[tuple[int, list[bytes]]]] = {}
        self._next_id = itertools.count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.router.close()

    async def connect(self, provider: Provider | Endpoint) -> Self:
        endpoint = provider.endpoint if isinstance(provider, Provider) else provider
        self.provider = await self.router.connect(endpoint).up()
        return self

    def ask(self, *parts: bytes, msg_id: int = 0, remaining_ms: int | None = None) -> int:
        """Send a request; its id."""
        request_id = next(self._next_id)
        header = encode_header(CallHeader(remaining_ms))
        self.send_raw(encode_call(request_id, msg_id, list(parts), header))
        return request_id

    def send_raw(self, frames: list[bytes]) -> None:
        self.router.post(self.provider, frames)

    async def reply(self, request_id: int) -> tuple[int, list[bytes]]:
        """The msgId and parts of the reply. Raises the error that it stands for."""
        async with asyncio.timeout(10):
            msg_id, parts = await self._future(request_id)
        if msg_id == ERROR_MSG_ID:
            raise error_from_code(*decode_error(parts))
        return msg_id, parts

    async def error(self, request_id: int) -> HansaError:
        """The error in the reply."""
        try:
            reply = await self.reply(request_id)
        except HansaError as error:
            return error
        raise AssertionError(f"request {request_id} succeeded: {reply}")

    async def call(self, *parts: bytes, msg_id: int = 0, remaining_ms: int | None = None) -> list[bytes]:
        """Send a request and wait for the reply's parts."""
        return (await self.reply(self.ask(*parts, msg_id=msg_id, remaining_ms=remaining_ms)))[1]

    def has_reply(self, request_id: int) -> bool:
        return self._future(request_id).done()

    def _future(self, request_id: int) -> asyncio.Future[tuple[int, list[bytes]]]:
        if request_id not in self._replies:
            self._replies[request_id] = asyncio.get_running_loop().create_future()
        return self._replies[request_id]

    def _take(self, peer: bytes, messages: list[list[bytes]]) -> None:
        for frames in messages:
            request_id, msg_id, _, parts = decode_call(frames)
            future = self._future(request_id)
            assert not future.done(), f"request {request_id} has a second reply"
            future.set_result((msg_id, parts))


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for what nothing announces; the suite's deadline bounds it."""
    while not is_true():
        await asyncio.sleep(0.001)


class Gate:
    """A handler that counts who has come and lets nobody out before it is opened."""

    def __init__(self) -> None:
        self.entered: list[bytes] = []
        self.cancelled: list[bytes] = []
        self._open = asyncio.Event()

    async def __call__(self, request: Request) -> bytes:
        self.entered.append(request.payload)
        try:
            await self._open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.payload)
            raise
        return request.payload

    def open(self) -> None:
        self._open.set()

    async def has(self, count: int) -> None:
        await until(lambda: len(self.entered) >= count)
