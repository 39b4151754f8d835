"""Keeps what happened and lets a test wait for what is still to happen."""

import asyncio
from typing import Any, TypeVar

E = TypeVar("E")


class Recorder:
    """Use it as `on_event`: every event is kept, and `wait` returns the first that fits, past or future."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self._waiting: list[asyncio.Future[None]] = []

    def __call__(self, event: object) -> None:
        self.events.append(event)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def of(self, kind: type[E], **wanted: Any) -> list[E]:
        """All kept events of a kind whose fields have the wanted values."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) and all(getattr(event, key) == value for key, value in wanted.items())
        ]

    async def wait(self, kind: type[E], *, count: int = 1, within_s: float = 10.0, **wanted: Any) -> E:
        """The `count`th event of a kind with the wanted values, as soon as it is there."""
        try:
            async with asyncio.timeout(within_s):
                while len(found := self.of(kind, **wanted)) < count:
                    future = asyncio.get_running_loop().create_future()
                    self._waiting.append(future)
                    await future
        except TimeoutError:
            raise AssertionError(
                f"no {kind.__name__} number {count} with {wanted}; happened: {self.events}"
            ) from None
        return found[count - 1]
