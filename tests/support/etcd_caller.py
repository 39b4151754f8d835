"""Etcd's calls as they are, without a client in between: for tests of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd import messages
from hansa.store.etcd.messages import EtcdCall

CALL_S_MAX = 20.0


class EtcdCaller:
    """Makes calls over one channel, and returns or raises what comes back."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def ask(self, call: EtcdCall[Any, Any], **fields: Any) -> Any:
        return await call.stub(self._channel)(call.request(**fields), timeout=CALL_S_MAX)

    async def refusal(self, call: EtcdCall[Any, Any], **fields: Any) -> tuple[str, str]:
        """The code's name and the words with which a call is refused."""
        try:
            answer = await self.ask(call, **fields)
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""
        raise AssertionError(f"it was not refused: {answer}")

    async def put(self, key: str, value: bytes = b"", **fields: Any) -> int:
        answer = await self.ask(messages.PUT, key=key.encode(), value=value, **fields)
        revision: int = answer.header.revision
        return revision

    async def get(self, key: str, range_end: bytes = b"", **fields: Any) -> Any:
        return await self.ask(messages.RANGE, key=key.encode(), range_end=range_end, **fields)

    def stream(self, call: EtcdCall[Any, Any]) -> Any:
        return call.stream_stub(self._channel)(timeout=CALL_S_MAX)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[WatchCall]:
        stream = self.stream(messages.WATCH)
        try:
            yield WatchCall(stream)
        finally:
            stream.cancel()


class WatchCall:
    """A stream of watches."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    async def create(self, key: str, range_end: bytes = b"", **fields: Any) -> Any:
        """Ask for a watcher, and give the answer, which must come next."""
        await self.ask(key, range_end, **fields)
        answer = await self.stream.read()
        assert answer.created
        return answer

    async def ask(self, key: str, range_end: bytes = b"", **fields: Any) -> None:
        request = api.WatchCreateRequest(key=key.encode(), range_end=range_end, **fields)
        await self.stream.write(api.WatchRequest(create_request=request))

    async def cancel(self, number: int) -> None:
        await self.stream.write(api.WatchRequest(cancel_request=api.WatchCancelRequest(watch_id=number)))

    async def ask_progress(self) -> None:
        await self.stream.write(api.WatchRequest(progress_request=api.WatchProgressRequest()))

    async def read(self) -> Any:
        return await self.stream.read()

    async def events(self, count: int) -> list[Any]:
        """The next so many events, in however many answers."""
        found: list[Any] = []
        while len(found) < count:
            answer = await self.stream.read()
            assert not answer.canceled, answer
            found += answer.events
        return found


@asynccontextmanager
async def etcd_caller(
    address: str, credentials: grpc.ChannelCredentials | None = None
) -> AsyncIterator[EtcdCaller]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        channel = grpc.aio.secure_channel(address, credentials, options=options)
    async with channel:
        yield EtcdCaller(channel)
