"""The parts of calls that are written by hand: a gateway's `request`, which is the hot path, and handlers.

The rest of both is generated, into `services`.
"""

from __future__ import annotations

import asyncio
import inspect
from _thread import get_ident
from collections.abc import Callable, Sequence
from typing import TypeVar

from hansa.errors import AlreadyClosed, Backlogged, UsageError
from hansa.limits import REQUEST_TIMEOUT_S
from hansa.runtime.steps import Answer, LooseStep, Steps
from hansa.services.gateway import Completion
from hansa.services.gateway import Gateway as AsyncGateway
from hansa.services.provider import Provider as AsyncProvider
from hansa.services.provider.work import Reply, Request
from hansa.sync.mirror import Mirror
from hansa.wire.business import TraceContext

F = TypeVar("F", bound=Callable[[Request], Reply])


class Requests(Mirror[AsyncGateway]):
    """The part of a blocking gateway that asks and waits."""

    def request(
        self,
        service: str,
        parts: Sequence[bytes] | bytes,
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
        key: bytes | str | None = None,
        idempotent: bool = False,
        trace: TraceContext | None = None,
    ) -> list[bytes]:
        """Send a request and wait for the reply; returns its parts.

        `timeout` None (or -1) waits without end. `key` is what a Rendezvous balancer chooses by. `idempotent`
        allows another try when the first may have been carried out. At the in-flight limit it waits for room.

        Raises TimedOut (ETIMEDOUT), NoProvider, ProviderLost, ProviderBusy, ProviderDraining, UnknownMsgId,
        HandlerFailed and any other error of hansa's that the handler raised; AlreadyClosed when the gateway
        closes. An interrupt (Ctrl-C) gives the request up: its reply is dropped and counted.
        """
        steps = self._steps
        if steps is None:
            steps = self._held()
        if get_ident() == steps.ident:
            steps.check_not_inside(f"request of {self.name}")
        asked = _Request(steps, self._inner, service, parts, msg_id, timeout, key, idempotent, trace)
        try:
            steps.post(asked)
            return asked.wait()
        except BaseException:
            if not asked.is_settled:
                steps.post(LooseStep(asked.abandon))
            raise


class Handlers(Mirror[AsyncProvider]):
    """The part of a blocking provider that takes handlers."""

    def handler(self, msg_id: int = 0) -> Callable[[F], F]:
        """Decorates the function for requests with this msgId: it takes a Request and returns the reply.

        An exception of it reaches the caller as an error: HandlerFailed with its reason, another error of
        hansa's as itself, anything else as HandlerFailed. Raises BadArgument, UsageError, the latter also for
        an `async def`: that is a handler for `hansa.Provider`.
        """
        if callable(msg_id):
            raise UsageError("write @provider.handler(), with parentheses")

        def add(function: F) -> F:
            called = getattr(function, "__call__", None)  # noqa: B004
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
                raise UsageError(
                    f"a handler of a blocking provider is a plain function: {self.name} cannot run an async "
                    "one, hansa.Provider can"
                )
            self._ask(lambda: self._inner.handler(msg_id)(function))
            return function

        return add


class _Request(Answer[list[bytes]]):
    """One blocking request: posted to the loop, submitted there, and settled by its callback.

    It needs no coroutine, task or future, which makes it cheaper than `asyncio.run_coroutine_threadsafe`
    (measured by `bench/sync_cost.py`).
    """

    __slots__ = (
        "_gateway",
        "_idempotent",
        "_key",
        "_msg_id",
        "_parts",
        "_request_id",
        "_service",
        "_steps",
        "_task",
        "_timeout",
        "_trace",
    )

    def __init__(
        self,
        steps: Steps,
        gateway: AsyncGateway,
        service: str,
        parts: Sequence[bytes] | bytes,
        msg_id: int,
        timeout: float | None,
        key: bytes | str | None,
        idempotent: bool,
        trace: TraceContext | None,
    ) -> None:
        super().__init__()
        self._steps = steps
        self._gateway = gateway
        self._service = service
        self._parts = parts
        self._msg_id = msg_id
        self._timeout = timeout
        self._key = key
        self._idempotent = idempotent
        self._trace = trace
        self._request_id: int | None = None
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        try:
            self._request_id = self._gateway.submit(
                self._service,
                self._parts,
                self._completed,
                msg_id=self._msg_id,
                timeout=self._timeout,
                key=self._key,
                idempotent=self._idempotent,
                trace=self._trace,
            )
        except Backlogged:
            # Rare, and then it takes long in any case: a task waits for room.
            self._task = self._steps.spawn(self._request(), f"a request to {self._service}")
            self._task.add_done_callback(self._ended)
        except BaseException as error:
            self.fail(error)

    def abandon(self) -> None:
        """Nobody waits for it any longer."""
        if self._task is not None:
            self._task.cancel()
        elif self._request_id is not None:
            self._gateway.abandon(self._request_id)

    def _completed(self, completion: Completion) -> None:
        if completion.error is None:
            self.succeed(completion.parts)
        else:
            self.fail(completion.error)

    async def _request(self) -> None:
        try:
            parts = await self._gateway.request(
                self._service,
                self._parts,
                msg_id=self._msg_id,
                timeout=self._timeout,
                key=self._key,
                idempotent=self._idempotent,
                trace=self._trace,
            )
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)
        else:
            self.succeed(parts)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.fail(AlreadyClosed(f"the request to {self._service} was given up: the gateway is closed"))
