"""How late the event loop itself was: what a busy machine does to a test is no fault of a store."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

_LOOK_S = 0.01
_KEPT_COUNT = 1_000


class LagMeter:
    """`async with LagMeter() as meter`: it looks at the loop a hundred times a second."""

    def __init__(self) -> None:
        self._tasks = asyncio.TaskGroup()
        self._looking: asyncio.Task[None] | None = None
        self._due_s = 0.0
        # When it was late lately, and by how much.
        self._lags: deque[tuple[float, float]] = deque(maxlen=_KEPT_COUNT)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._due_s = asyncio.get_running_loop().time() + _LOOK_S
        self._looking = self._tasks.create_task(self._look(), name="lag")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    def lag_s_since(self, when_s: float) -> float:
        """The longest time since then, on the loop's clock, for which the loop did not run."""
        # It may be late just now, and not have looked again.
        late_now_s = asyncio.get_running_loop().time() - self._due_s
        return max([late_now_s, 0.0, *(lag_s for at_s, lag_s in self._lags if at_s >= when_s)])

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._due_s = loop.time() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            lag_s = loop.time() - self._due_s
            if lag_s > _LOOK_S:
                self._lags.append((loop.time(), lag_s))
