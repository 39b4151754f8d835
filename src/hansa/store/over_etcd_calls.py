"""Calls to an etcd group: to a member that answers, as often as is safe, and what is known when they fail."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import grpc
import grpc.aio

from hansa.chance import Chance
from hansa.errors import HandshakeRefused, TimedOut
from hansa.store import etcd_api_pb2 as api
from hansa.store.etcd_calls import AUTHENTICATE, STATUS, EtcdCall, RequestT, ResponseT, encode
from hansa.store.etcd_failures import Doubt, Failure, judge
from hansa.store.etcd_rotation import Rotation, Trail
from hansa.store.over_etcd_channels import EtcdAccess, open_channels

# A fresh token that is refused so often in one call was not refused for its age.
_STRANGERS_MAX: Final = 3
NOT_ENABLED: Final = "authentication is not enabled"


class EtcdCaller:
    """The channels of a store, for the event loop that opened them."""

    def __init__(self, access: EtcdAccess, *, try_timeout_s: float, chance: Chance) -> None:
        self.access = access
        self._try_timeout_s = try_timeout_s
        self._chance = chance
        self._rotation = Rotation(len(access.endpoints), chance)
        self._channels: list[grpc.aio.Channel] = []
        self._stubs: dict[tuple[int, str], grpc.aio.UnaryUnaryMultiCallable[Any, Any]] = {}
        self._authenticating = asyncio.Lock()

    def open(self) -> None:
        """Raises `BadArgument` for credentials that cannot be used."""
        self._channels = open_channels(self.access)

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    def channel(self, index: int) -> grpc.aio.Channel:
        return self._channels[index]

    def trail(self) -> Trail:
        """For one call, or one line of them that share a deadline."""
        return Trail(len(self.access.endpoints), self._chance)

    async def ask(
        self,
        call: EtcdCall[RequestT, ResponseT],
        request: RequestT,
        *,
        trail: Trail,
        repeatable: bool = True,
    ) -> ResponseT:
        """The group's answer, however long it takes; who waits sets the deadline.

        What must not be done twice is sent to a member that is known to be reached, and is asked again only
        if it surely was not done: else `TimedOut`. Raises what the store refuses with. Cancelling it leaves
        open whether it was done.
        """
        while True:
            index = self._rotation.current
            token = self.access.token
            is_sent = False
            try:
                if self.access.needs_token:
                    await self._authenticate(index, trail)
                if not repeatable and self._channels[index].get_state() is not grpc.ChannelConnectivity.READY:
                    await self._once(index, STATUS, api.StatusRequest(), trail.try_s(self._try_timeout_s))
                is_sent = trail.is_under_way = True
                timeout_s = trail.try_s(self._try_timeout_s) if repeatable else None
                response = await self._once(index, call, request, timeout_s)
            except grpc.aio.AioRpcError as error:
                cause, failure = error, judge(error.code().name, error.details() or "")
            else:
                trail.is_under_way = False
                return response
            trail.is_under_way = False
            if not is_sent and failure.doubt is Doubt.DOUBTFUL:
                failure = replace(failure, doubt=Doubt.UNDONE)
            # An answer that was lost does not make what must not be repeated undone.
            if failure.error is not None and (repeatable or failure.doubt is not Doubt.DOUBTFUL):
                raise failure.error from cause
            delay_s = self._failed(index, failure, token, trail)
            if not repeatable and failure.doubt is Doubt.DOUBTFUL:
                raise TimedOut(
                    f"{call.name} at {self.access.endpoints[index]} may or may not have been done:"
                    f" {failure.text}"
                ) from cause
            await asyncio.sleep(delay_s)

    async def greet(self, trail: Trail) -> None:
        """Have a token, where one is needed. Raises `HandshakeRefused`."""
        await self.ask(STATUS, api.StatusRequest(), trail=trail)

    async def probe(self, index: int) -> Failure | None:
        """Whether a member lives and has a leader: None when it is well."""
        try:
            await self._once(index, STATUS, api.StatusRequest(), self._try_timeout_s)
        except grpc.aio.AioRpcError as error:
            return judge(error.code().name, error.details() or "")
        return None

    def _failed(self, index: int, failure: Failure, token: str | None, trail: Trail) -> float:
        delay_s = trail.note(failure)
        if failure.doubt is not Doubt.STRANGER:
            self._rotation.failed(index)
            return delay_s
        if self.access.user is None or trail.strangers_count > _STRANGERS_MAX:
            raise HandshakeRefused(f"the store does not know us: {failure.text}", "auth-failed")
        self.access.forget(token)
        return 0.0

    async def _authenticate(self, index: int, trail: Trail) -> None:
        async with self._authenticating:
            if not self.access.needs_token:
                return
            request = api.AuthenticateRequest(name=self.access.user, password=self.access.password)
            try:
                answer = await self._once(index, AUTHENTICATE, request, trail.try_s(self._try_timeout_s))
            except grpc.aio.AioRpcError as error:
                if NOT_ENABLED not in (error.details() or ""):
                    raise
                self.access.token = ""
            else:
                self.access.token = answer.token

    async def _once(
        self, index: int, call: EtcdCall[RequestT, ResponseT], request: RequestT, timeout_s: float | None
    ) -> ResponseT:
        stub = self._stubs.get((index, call.path))
        if stub is None:
            # A stream of one question and one answer is a plain call on the wire.
            stub = self._channels[index].unary_unary(
                call.path, request_serializer=encode, response_deserializer=call.response.FromString
            )
            self._stubs[index, call.path] = stub
        response: ResponseT = await stub(request, timeout=timeout_s, metadata=self.access.metadata())
        return response
