"""One process's share of a group's partitions, and what it is told to do: kind "takeover".

The orders and answers are in `bench.kinds.takeover`. A peer gives `obey` a function that takes part in its
group until an event is set, and tells the `Share` of each message and of what it gave up.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from bench.link import Link
from hansa.runtime.mailboxes import Waiters


class Share:
    """What this process works on, with the time of the first message, and what it gave up, with the last."""

    def __init__(self) -> None:
        self._has: dict[str, float] = {}
        self._given: dict[str, float] = {}
        self._last_s: dict[str, float] = {}
        self._since_s = 0.0
        self._changed = Waiters()

    def worked(self, name: str, sent_s: float) -> None:
        """A message of this partition, which came into being at that time, had its effect."""
        now_s = self._last_s[name] = time.monotonic()
        if name not in self._has and sent_s >= self._since_s:
            self._has[name] = now_s
            self._changed.wake_all()

    def gave_up(self, name: str) -> None:
        last_s = self._last_s.pop(name, 0.0)
        if self._has.pop(name, None) is not None:
            self._given[name] = last_s
            self._changed.wake_all()

    def gave_up_all(self) -> None:
        for name in list(self._last_s):
            self.gave_up(name)

    async def until(self, count: int, since_s: float) -> None:
        """Wait until it works on so many, and no more. Of what comes anew only messages since then count."""
        self._since_s = since_s
        while len(self._has) != count:
            await self._changed.wait()

    def answer(self) -> dict[str, dict[str, float]]:
        given, self._given = self._given, {}
        return {"has": dict(self._has), "given": given}


TakePart: TypeAlias = Callable[[Share, asyncio.Event], Awaitable[None]]
"""Takes part in the group until the event, and has then given up all."""


async def obey(link: Link, take_part: TakePart) -> None:
    """Do what the conductor says, for ever."""
    share, leaving = Share(), asyncio.Event()

    async def part() -> None:
        try:
            await take_part(share, leaving)
        except Exception:
            # The order that is waited for holds a thread: nothing else would end this process.
            traceback.print_exc()
            link.end(1)

    async with asyncio.TaskGroup() as tasks:
        link.ready()
        while True:
            match await link.order():
                case ["join"]:
                    leaving.clear()
                    taking_part = tasks.create_task(part(), name="share")
                    link.done()
                case ["leave"]:
                    leaving.set()
                    await taking_part
                    link.done(**share.answer())
                case ["await", count, since_s]:
                    await share.until(int(count), float(since_s))
                    link.done(**share.answer())
