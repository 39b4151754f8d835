"""What can be lost, once and for good: who waits for that, and who is called back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from hansa.errors import Fenced
from hansa.transport.over_waiters import Waiters

E = TypeVar("E", bound=Fenced)


class Loss(Generic[E]):
    """A loss that may come. The first error is the one that counts; belongs to one event loop."""

    def __init__(self) -> None:
        self._error: E | None = None
        self._waiters = Waiters()
        self._callbacks: dict[Callable[[], None], None] = {}

    @property
    def error(self) -> E | None:
        return self._error

    def set(self, error: E) -> None:
        """It is lost. Callbacks run before this returns, each once."""
        if self._error is not None:
            return
        self._error = error
        self._waiters.wake_all()
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks:
            callback()

    def call_back(self, callback: Callable[[], None]) -> None:
        """Call it when it is lost: at the loop's next turn if it is already."""
        if self._error is not None:
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._callbacks[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call it. One that was never given, or was called, is fine."""
        self._callbacks.pop(callback, None)

    def check(self) -> None:
        """Raise the error if it is lost."""
        if self._error is not None:
            raise again(self._error)

    async def wait(self) -> E:
        """Wait until it is lost; gives the error, and does not raise it. Cancelling it changes nothing."""
        while self._error is None:
            await self._waiters.wait()
        return self._error


def again(error: E) -> E:
    """The same error to raise once more: one object that is raised in two places would tell of both ways."""
    copy = type(error)(str(error))
    copy.__cause__ = error.__cause__
    return copy
