"""Messages on their way from the loop's thread to the threads that read them.

Theory of operation. A thread that finds nothing here stands in line and asks the loop to look. The loop takes
what waits, up to a bound, puts it here and wakes as many threads as there are messages. If nothing waits, one
task waits for the whole line. So most reads cost a popleft, many readers share one look, and the loop does
nothing for a tap at which no thread stands.

Only the loop's thread moves messages in, and does not wait between taking and putting: a reader that is
interrupted loses none. A woken thread may find that another was quicker; then it stands in line again. No
thread holds the lock while it waits for anything.

What the tap owes its readers. As many threads are woken as messages were put. A woken thread that takes
nothing wakes the next. The last thread to leave the line ends the task that waits for it, and a task that has
ended while a thread stands in line is asked for again.
"""

from __future__ import annotations

import asyncio
from _thread import LockType, allocate_lock, get_ident
from collections import deque
from collections.abc import Callable
from sys import maxsize
from time import monotonic
from typing import Final

from hansa.errors import AlreadyClosed, HansaError, InvariantBroken, TimedOut, WouldBlock
from hansa.runtime.steps import LooseStep, Steps
from hansa.topics.inbox import TopicMessage
from hansa.topics.spot import Spot, Subscription

# Taken in one look: enough to make a look cheap, and too few to hold up the loop or to grow old here.
LOOK_COUNT_MAX: Final = 256


class Tap:
    """Where any number of threads read a spot, or one of its subscriptions."""

    def __init__(self, steps: Steps, spot: Spot, source: Spot | Subscription) -> None:
        self.is_fresh = False
        """Whether messages are only taken for threads that wait, since newer ones replace those that wait."""
        self._steps = steps
        self._spot = spot
        self._source = source
        self._messages: deque[TopicMessage] = deque()
        self._line: deque[LockType] = deque()
        self._greedy_count = 0
        self._error: HansaError | None = None
        self._turn = allocate_lock()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._messages)

    # -- for any thread

    def recv(self, timeout: float | None) -> TopicMessage:
        """Raises TimedOut, AlreadyClosed; UsageError in the loop's thread."""
        if get_ident() == self._steps.ident:
            self._steps.check_not_inside(f"recv of {self._source}")
        if self._steps.refusal is None and not self._spot.is_closed:
            try:
                return self._messages.popleft()
            except IndexError:
                pass  # Then it takes longer.
        if timeout is not None and timeout <= 0:
            try:
                return self.recv_nowait()
            except WouldBlock:
                raise self._timed_out(timeout) from None
        return self._wait(timeout)

    def recv_nowait(self) -> TopicMessage:
        """Raises WouldBlock, AlreadyClosed."""
        if not self._messages:
            self._steps.run(self._pull)
        self._check()
        try:
            return self._messages.popleft()
        except IndexError:
            raise WouldBlock(f"{self._source} has no message yet") from None

    def recv_all(self, timeout: float | None) -> list[TopicMessage]:
        """All that wait, at least one. Raises as `recv`."""
        self._check()  # In a forked child first of all: whoever has the lock there is not there.
        with self._turn:
            self._greedy_count += 1
        try:
            if self._messages:
                self._steps.run(self._pull)
            first = self.recv(timeout)
            with self._turn:
                messages = [first, *self._messages]
                self._messages.clear()
            return messages
        finally:
            with self._turn:
                self._greedy_count -= 1

    def _wait(self, timeout: float | None) -> TopicMessage:
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            self._check()
            waiter = allocate_lock()
            waiter.acquire()
            try:
                with self._turn:
                    if self._messages:
                        return self._messages.popleft()
                    self._line.append(waiter)
                self._steps.post(self)
                if deadline is None:
                    is_woken = waiter.acquire()
                else:
                    is_woken = waiter.acquire(timeout=max(0.0, deadline - monotonic()))
            except BaseException:
                self._leave(waiter)
                raise
            if not is_woken:
                self._leave(waiter)
                raise self._timed_out(timeout)

    def _leave(self, waiter: LockType) -> None:
        with self._turn:
            if waiter in self._line:
                self._line.remove(waiter)
            elif self._messages and self._line:
                # It was woken and takes nothing: that was the next one's turn.
                self._line.popleft().release()
            is_empty = not self._line
        if is_empty:
            self._steps.post(LooseStep(self._rest))

    def _check(self) -> None:
        error = self._steps.refusal or self._error
        if error is not None:
            raise type(error)(str(error))
        if self._spot.is_closed:
            raise AlreadyClosed(f"{self._spot} is closed")

    def _timed_out(self, timeout: float | None) -> TimedOut:
        return TimedOut(f"{self._source} has no message after {timeout} s")

    # -- in the loop's thread

    def run(self) -> None:
        """Somebody stands in line: look."""
        if self._task is not None or not self._line:
            return
        try:
            messages = self._take(self._wanted_count())
        except BaseException as error:
            self._fail(error)
            return
        if messages:
            self._put(messages)
        else:
            self._task = self._steps.spawn(self._fetch(), f"recv of {self._source}")
            self._task.add_done_callback(self._fetched)

    def refuse(self, error: HansaError) -> None:
        """There is no loop to look in. In whatever thread."""
        self.end(error)

    def end(self, error: HansaError) -> None:
        """Nothing comes any more: what was not read is dropped, and who waits gets the error."""
        with self._turn:
            self._error = error
            self._messages.clear()
            while self._line:
                self._line.popleft().release()

    def keep(self, is_wanted: Callable[[str], bool]) -> None:
        """Drop what waits here of topics that are not wanted any more."""
        with self._turn:
            kept = [message for message in self._messages if is_wanted(message.topic)]
            self._messages.clear()
            self._messages.extend(kept)

    def _pull(self) -> None:
        self._put(self._take(self._wanted_count()))

    def _wanted_count(self) -> int:
        if self._greedy_count:
            return maxsize
        return max(1, len(self._line)) if self.is_fresh else LOOK_COUNT_MAX

    def _take(self, count_max: int) -> list[TopicMessage]:
        """What waits, no more than this. Raises AlreadyClosed."""
        messages: list[TopicMessage] = []
        try:
            while len(messages) < count_max:
                messages.append(self._source.recv_nowait())
        except WouldBlock:
            pass  # That was all.
        return messages

    def _put(self, messages: list[TopicMessage]) -> None:
        with self._turn:
            self._messages.extend(messages)
            for _ in range(min(len(messages), len(self._line))):
                self._line.popleft().release()

    async def _fetch(self) -> None:
        try:
            while self._line:
                message = await self._source.recv()
                self._put([message, *self._take(self._wanted_count() - 1)])
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._line:
            # It was told to rest, or closed, just when somebody came.
            self._steps.post(self)

    def _fail(self, error: BaseException) -> None:
        self.end(error if isinstance(error, HansaError) else InvariantBroken(f"recv failed: {error!r}"))

    def _rest(self) -> None:
        if self._task is not None and not self._line:
            self._task.cancel()
