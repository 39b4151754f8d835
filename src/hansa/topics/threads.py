"""Spots and subscriptions for threads: their calls block, and any number of threads may use one at once.

Everything happens in the thread of the node's loop; threads hand it steps and wait for them.

Received messages come over in batches, through a `Tap`. A thread that finds nothing there stands in line and
asks the loop to look. The loop takes what waits, up to a bound, puts it there and wakes as many threads as
there are messages. If nothing waits, one task waits for the whole line. So most reads cost a popleft, many
readers share one look, and the loop does nothing for a tap at which no thread stands.

Only the loop's thread moves messages in, and does not wait between taking and putting: a reader that is
interrupted loses none. A woken thread may find that another was quicker; then it stands in line again. No
thread holds the lock while it waits for anything.

What the tap owes its readers. As many threads are woken as messages were put. A woken thread that takes
nothing wakes the next one. The last thread to leave the line ends the task that waits for the line; if a task
has ended while a thread stands in line, the loop is asked to look again.
"""

from __future__ import annotations

import asyncio
from _thread import LockType, allocate_lock, get_ident
from collections import deque
from collections.abc import Callable, Coroutine
from sys import maxsize
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from hansa.errors import AlreadyClosed, Backlogged, HansaError, InvariantBroken, TimedOut, WouldBlock
from hansa.limits import HANDOVER_S, SUBSCRIPTION_BYTES_MAX, SUBSCRIPTION_COUNT_MAX
from hansa.runtime.mailboxes import EventStream
from hansa.runtime.steps import Job, LooseStep, Steps, wait_for
from hansa.topics.events import SpotEvent, SubscriptionState
from hansa.topics.inbox import TopicMessage, WhenSlow
from hansa.topics.spot import Spot, Subscription

if TYPE_CHECKING:
    from hansa.coordination.handover import Handover

T = TypeVar("T")

LOOP_ADVICE: Final = "await node.spot() here, and use this one in other threads, as with asyncio.to_thread()"
"""The advice in errors of a node that belongs to the program's own loop."""

# Messages taken in one look: enough to make a look cheap, too few to hold up the loop or to grow old.
LOOK_COUNT_MAX: Final = 256


class ThreadsafeSpot:
    """A spot for threads: any number may create, publish, subscribe and receive with one at the same time.

    Made by `node.threadsafe_spot()`, for all threads except that of the node's loop, and by
    `hansa.sync.SpotNode.spot()`. As `hansa.Spot`, but calls block, and receiving has a timeout. Each message
    goes to one of the threads that receive; each thread gets those of one publisher and topic in order.
    Ctrl-C interrupts a waiting call. When the spot or its node closes, waiting callers get AlreadyClosed.
    """

    def __init__(self, spot: Spot, steps: Steps) -> None:
        """Call it only in the loop's thread."""
        self.name = spot.name
        self._inner = spot
        self._steps = steps
        self._tap = Tap(steps, spot, spot)
        # Used only in the loop's thread, as the spot itself.
        self._subscriptions: dict[str, ThreadsafeSubscription] = {}
        self._events: EventStream[SpotEvent] | None = None

    # -- life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Destroy its topics and end its subscriptions; waits end with AlreadyClosed. Twice does no harm."""
        try:
            self._steps.run(self._close)
        except AlreadyClosed:
            return  # It was closed with its node, or with the loop.

    @property
    def is_closed(self) -> bool:
        return self._inner.is_closed or self._steps.refusal is not None

    # -- topics

    def create_topic(self, topic: str, *, retain: bool = False) -> None:
        """Own a topic from now on, and tell every node. With `retain` new subscribers get the latest message.

        It waits until the listed nodes have told their topics, two seconds at most for a node that does not
        answer. Raises TopicExists (EEXIST) when the topic has an owner; BadArgument; AlreadyClosed.
        """
        self._call(lambda: self._inner.create_topic(topic, retain=retain), "create_topic")

    def destroy_topic(self, topic: str) -> None:
        """Stop owning it; its subscriptions wait for the next owner. Raises NotOwner, AlreadyClosed."""
        self._call(lambda: self._inner.destroy_topic(topic), "destroy_topic")

    def hand_over(
        self, topic: str, to: str | bytes, *, timeout: float = HANDOVER_S, reason: str = ""
    ) -> Handover:
        """Give a topic to another node, while it is published to and read. As `Spot.hand_over`."""
        return self._call(
            lambda: self._inner.hand_over(topic, to, timeout=timeout, reason=reason), "hand_over"
        )

    @property
    def owned(self) -> tuple[str, ...]:
        """Topics that this spot owns."""
        return self._steps.run(lambda: self._inner.owned)

    # -- publishing

    def publish(self, topic: str, payload: bytes) -> None:
        """Give a message to all who are subscribed now, through the topic's owner if that is another node.

        It never waits for a subscriber, only for room on the way to a remote owner. An interrupt while it
        waits for that publishes nothing. Raises NoOwner (ENOENT), BadArgument, AlreadyClosed.
        """
        steps = self._steps
        if get_ident() == steps.ident:
            steps.check_not_inside(f"publish of {self}")
        _Publishing(steps, self._inner, topic, payload).carry_out()

    def post(self, topic: str, payload: bytes) -> None:
        """As `publish`, without waiting for room, also in the loop's thread. Also raises Backlogged."""
        self._steps.run(lambda: self._inner.post(topic, payload))

    # -- subscribing

    def subscribe(
        self,
        topic: str,
        *,
        count_max: int = SUBSCRIPTION_COUNT_MAX,
        bytes_max: int = SUBSCRIPTION_BYTES_MAX,
        when_slow: WhenSlow = WhenSlow.DROP_OLDEST,
    ) -> ThreadsafeSubscription:
        """Receive a topic, or with a pattern such as `zone:12:*` all that begin so, now and later.

        It succeeds without an owner; `subscription.active()` waits for one. At most `count_max` messages and
        `bytes_max` bytes wait to be read, besides a batch that is being read, and `when_slow` says what
        happens to the rest. Subscribing the same text again returns the same subscription. Raises BadArgument
        (EINVAL), AlreadyClosed.
        """
        return self._call(
            lambda: self._subscribe(
                self._inner.subscribe(topic, count_max=count_max, bytes_max=bytes_max, when_slow=when_slow),
                when_slow,
            ),
            "subscribe",
        )

    def subscribe_pattern(
        self,
        pattern: str,
        *,
        count_max: int = SUBSCRIPTION_COUNT_MAX,
        bytes_max: int = SUBSCRIPTION_BYTES_MAX,
        when_slow: WhenSlow = WhenSlow.DROP_OLDEST,
    ) -> ThreadsafeSubscription:
        """As `subscribe`, for patterns only: one `*`, at the end. Raises BadArgument (EINVAL)."""
        return self._call(
            lambda: self._subscribe(
                self._inner.subscribe_pattern(
                    pattern, count_max=count_max, bytes_max=bytes_max, when_slow=when_slow
                ),
                when_slow,
            ),
            "subscribe_pattern",
        )

    def unsubscribe(self, topic_or_pattern: str) -> None:
        """End a subscription; its unread messages are dropped. Raises BadArgument when there is none."""
        self._call(lambda: self._unsubscribe(topic_or_pattern), "unsubscribe")

    @property
    def subscriptions(self) -> tuple[ThreadsafeSubscription, ...]:
        return self._steps.run(lambda: () if self._inner.is_closed else tuple(self._subscriptions.values()))

    # -- receiving

    def recv(self, timeout: float | None = None) -> TopicMessage:
        """The next message of any subscription. Raises TimedOut, AlreadyClosed; an interrupt loses nothing.

        A message that is read here is not seen by readers of its subscription, and the other way round.
        """
        return self._tap.recv(timeout)

    def recv_nowait(self) -> TopicMessage:
        """The next message if one is there. Raises WouldBlock (EAGAIN), AlreadyClosed."""
        return self._tap.recv_nowait()

    def recv_all(self, timeout: float | None = None) -> list[TopicMessage]:
        """All waiting messages, at least one. Raises TimedOut, AlreadyClosed."""
        return self._tap.recv_all(timeout)

    def __iter__(self) -> Self:
        """Messages until the spot closes."""
        return self

    def __next__(self) -> TopicMessage:
        try:
            return self._tap.recv(None)
        except AlreadyClosed:
            raise StopIteration from None

    def events_nowait(self) -> list[SpotEvent]:
        """What happened to this spot's topics and subscriptions since the last call.

        The first call begins to listen, and returns nothing. It keeps a bounded number of events; then the
        oldest are dropped, counted in the node's stats. Raises AlreadyClosed.
        """
        return self._steps.run(self._take_events)

    def __repr__(self) -> str:
        return repr(self._inner).replace("Spot", "ThreadsafeSpot", 1)

    def __del__(self) -> None:
        # The loop's thread may be iterating over the listeners: let that thread remove this one.
        if self._events is not None:
            self._steps.post(LooseStep(self._events.close))

    # -- in the loop's thread

    def _close(self) -> None:
        self._inner.end()
        self._tap.end(AlreadyClosed(f"{self} is closed"))
        for subscription in self._subscriptions.values():
            subscription._tap.end(AlreadyClosed(f"{subscription} ended with its spot"))
        self._subscriptions.clear()

    async def _subscribe(
        self, work: Coroutine[Any, Any, Subscription], when_slow: WhenSlow
    ) -> ThreadsafeSubscription:
        inner = await work
        subscription = self._subscriptions.get(inner.text)
        if subscription is None:
            tap = Tap(self._steps, self._inner, inner)
            subscription = self._subscriptions[inner.text] = ThreadsafeSubscription(self, inner, tap)
        if when_slow is WhenSlow.KEEP_LATEST:
            subscription._tap.is_fresh = self._tap.is_fresh = True
        return subscription

    async def _unsubscribe(self, text: str) -> None:
        await self._inner.unsubscribe(text)
        self._unsubscribed(self._subscriptions[text])

    def _end_subscription(self, subscription: ThreadsafeSubscription) -> None:
        if self._subscriptions.get(subscription.text) is subscription:
            subscription._inner.end()
            self._unsubscribed(subscription)

    def _unsubscribed(self, subscription: ThreadsafeSubscription) -> None:
        del self._subscriptions[subscription.text]
        subscription._tap.end(AlreadyClosed(f"{subscription} was unsubscribed"))
        exact = {one.text for one in self._inner.subscriptions if not one.is_pattern}
        prefixes = tuple(one.text[:-1] for one in self._inner.subscriptions if one.is_pattern)
        self._tap.keep(lambda topic: topic in exact or topic.startswith(prefixes))

    def _take_events(self) -> list[SpotEvent]:
        if self._events is None:
            self._events = self._inner.events()
        events: list[SpotEvent] = []
        try:
            while True:
                events.append(self._events.get_nowait())
        except WouldBlock:
            return events
        except AlreadyClosed:
            if events:
                return events
            raise

    def _call(self, make_work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        return self._steps.call(make_work, f"{what} of {self}")


class ThreadsafeSubscription:
    """A topic or a pattern that a spot receives, for threads. Made by `spot.subscribe`."""

    def __init__(self, spot: ThreadsafeSpot, inner: Subscription, tap: Tap) -> None:
        self.spot = spot
        self.text = inner.text
        self.is_pattern = inner.is_pattern
        self._inner = inner
        self._tap = tap

    # -- state

    @property
    def state(self) -> SubscriptionState:
        """ACTIVE when an owner has confirmed it; for a pattern: when it has topics and all are confirmed."""
        return self._ask(lambda: self._inner.state)

    @property
    def topics(self) -> dict[str, SubscriptionState]:
        """The topics that it receives, or waits for, and the state of each."""
        return self._ask(lambda: self._inner.topics)

    def active(self, timeout: float | None = None) -> None:
        """Wait until it is active: messages published from then on arrive. Raises TimedOut, AlreadyClosed."""
        self._call(lambda: self._inner.active(timeout), "active")

    def pending(self, timeout: float | None = None) -> None:
        """Wait until it is pending. Raises TimedOut, AlreadyClosed."""
        self._call(lambda: self._inner.pending(timeout), "pending")

    # -- counts

    @property
    def waiting_count(self) -> int:
        """Messages that wait to be read, except those that were taken to be read from the spot."""
        return self._ask(lambda: self._inner.waiting_count + len(self._tap))

    @property
    def received_count(self) -> int:
        """Messages that came, except those that were dropped at once because the inbox was full."""
        return self._ask(lambda: self._inner.received_count)

    @property
    def dropped_count(self) -> int:
        """Messages dropped because the inbox was full."""
        return self._ask(lambda: self._inner.dropped_count)

    @property
    def missed_count(self) -> int:
        """Messages lost on their way from the owner's node to this one."""
        return self._ask(lambda: self._inner.missed_count)

    # -- receiving

    def recv(self, timeout: float | None = None) -> TopicMessage:
        """The next message of this subscription. Raises TimedOut, AlreadyClosed.

        An interrupt loses nothing.
        """
        return self._tap.recv(timeout)

    def recv_nowait(self) -> TopicMessage:
        """The next message if one is there. Raises WouldBlock (EAGAIN), AlreadyClosed."""
        return self._tap.recv_nowait()

    def recv_all(self, timeout: float | None = None) -> list[TopicMessage]:
        """All waiting messages, at least one. Raises TimedOut, AlreadyClosed."""
        return self._tap.recv_all(timeout)

    def __iter__(self) -> Self:
        """Messages until the subscription ends."""
        return self

    def __next__(self) -> TopicMessage:
        try:
            return self._tap.recv(None)
        except AlreadyClosed:
            raise StopIteration from None

    def close(self) -> None:
        """The same as `spot.unsubscribe`. Closing twice does no harm."""
        try:
            self._ask(lambda: self.spot._end_subscription(self))
        except AlreadyClosed:
            return  # It was closed with its spot.

    def __repr__(self) -> str:
        return f"<ThreadsafeSubscription {self.text!r} of {self.spot}>"

    def _ask(self, question: Callable[[], T]) -> T:
        return self.spot._steps.run(question)

    def _call(self, make_work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        return self.spot._steps.call(make_work, f"{what} of {self}")


class _Publishing(Job[None]):
    """Publishes one message: in the step itself, or in a task that waits if there is no room."""

    __slots__ = ("_payload", "_spot", "_topic")

    def __init__(self, steps: Steps, spot: Spot, topic: str, payload: bytes) -> None:
        super().__init__(steps, lambda: spot.publish(topic, payload), "publish")
        self._spot = spot
        self._topic = topic
        self._payload = payload

    def run(self) -> None:
        try:
            self._spot.post(self._topic, self._payload)
        except Backlogged:
            super().run()
        except BaseException as error:
            self.fail(error)
        else:
            self.succeed(None)


class Tap:
    """The place where any number of threads read a spot, or one of its subscriptions."""

    def __init__(self, steps: Steps, spot: Spot, source: Spot | Subscription) -> None:
        self.is_fresh = False
        """Whether messages are taken only for waiting threads, since newer messages replace waiting ones."""
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
                pass  # No message is here: take the longer way.
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
        """All waiting messages, at least one. Raises as `recv`."""
        self._check()  # First of all, in a forked child: the thread that holds the lock is not there.
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
        deadline_s = None if timeout is None else monotonic() + timeout
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
                is_woken = wait_for(waiter, deadline_s)
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
                # This thread was woken and takes nothing: that was the next one's turn.
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
        """A thread stands in line: look."""
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
        """There is no loop to look in. Any thread may call it."""
        self.end(error)

    def end(self, error: HansaError) -> None:
        """Nothing comes any more: unread messages are dropped, and waiting threads get the error."""
        with self._turn:
            self._error = error
            self._messages.clear()
            while self._line:
                self._line.popleft().release()

    def keep(self, is_wanted: Callable[[str], bool]) -> None:
        """Drop the messages here whose topics are no longer wanted."""
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
        """What waits, at most `count_max` messages. Raises AlreadyClosed."""
        messages: list[TopicMessage] = []
        try:
            while len(messages) < count_max:
                messages.append(self._source.recv_nowait())
        except WouldBlock:
            pass  # No more messages wait.
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
            # It was told to rest, or closed, just when a thread came.
            self._steps.post(self)

    def _fail(self, error: BaseException) -> None:
        self.end(error if isinstance(error, HansaError) else InvariantBroken(f"recv failed: {error!r}"))

    def _rest(self) -> None:
        if self._task is not None and not self._line:
            self._task.cancel()
