"""The limit inside one process: a deque a receiver, and a task that takes all there is.

A message is appended to every deque; the receivers that wait are woken once a burst, and the loop runs. There
are no topics, no numbers, no bounds and no errors.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from bench.job import Job
from bench.link import Link

BURST_COUNT = 256
"""As many as hansa's publisher sends before it lets the loop run."""


class Mailbox:
    """What one receiver has not taken yet."""

    __slots__ = ("_messages", "_waiter", "append")

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.append: Callable[[bytes], None] = self._messages.append
        """The deque's own: a method around it would cost more than it does."""

    def wake(self) -> None:
        """Let the receiver go on, if it waits."""
        if self._waiter is not None:
            self._waiter.set_result(None)
            self._waiter = None

    async def take_all(self) -> list[bytes]:
        """All messages, at least one."""
        messages = self._messages
        if not messages:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        taken = list(messages)
        messages.clear()
        return taken


def post(mailboxes: Sequence[Mailbox], payload: bytes, count: int) -> None:
    """The same message so many times to all of them, then wake all."""
    appends = [mailbox.append for mailbox in mailboxes]
    for _ in range(count):
        for append in appends:
            append(payload)
    for mailbox in mailboxes:
        mailbox.wake()


async def publish_here(job: Job, link: Link) -> None:
    """As many receivers as the case is wide."""
    payload, published = job.payload, 0
    mailboxes = [Mailbox() for _ in range(job.case.width)]

    async def read(mailbox: Mailbox) -> None:
        while True:
            messages = await mailbox.take_all()
            for message in messages:
                link.last = message
            link.count += len(messages)

    async with asyncio.TaskGroup() as readers:
        for number, mailbox in enumerate(mailboxes):
            readers.create_task(read(mailbox), name=f"reader-{number}")
        link.gauges = lambda: {"published": published}
        link.ready()
        await asyncio.to_thread(link.go.wait)
        while not link.halted:
            post(mailboxes, payload, BURST_COUNT)
            published += BURST_COUNT
            await asyncio.sleep(0)
        await asyncio.Event().wait()
