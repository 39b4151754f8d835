"""The messages that wait to be read from a subscription: a bounded queue with a policy when full. Pure.

Theory of operation. Messages enter at the end of one list and leave from the end of another, which is the
first one reversed when it ran empty: appending and taking cost a few instructions each, and taking everything
costs nothing at all. Messages are shared by all inboxes that hold them; only references are queued.

A spot reads its subscriptions through one Reader. With one subscription the reader just reads its inbox; with
more, it also keeps the order in which messages came, one token each. A token may outlive its message, if a
policy dropped the message or the program read the subscription itself. Such a token is skipped, and when
there are many the line of tokens is made again.

Compiled by mypyc with the fan-out (`make bench`, cases topic and local).
"""

from collections import OrderedDict, deque
from enum import Enum
from typing import Any, Final, Protocol

try:
    from mypy_extensions import mypyc_attr
except ImportError:

    def mypyc_attr(*attrs: str, **kwattrs: object) -> Any:  # type: ignore[misc]
        """Only the compiler reads this."""
        return lambda kind: kind


_STALE_MAX: Final = 1_024


class WhenSlow(Enum):
    """What happens to messages when a subscription's inbox is full. Every dropped message is counted."""

    DROP_OLDEST = "drop-oldest"
    """The new message takes the place of the one that has waited longest."""
    DROP_NEWEST = "drop-newest"
    """The new message is dropped."""
    KEEP_LATEST = "keep-latest"
    """Only the newest message of each topic waits, even if the inbox is not full."""


# It holds no other objects, so the garbage collector need not look at it: a fifth of what receiving costs.
@mypyc_attr(acyclic=True)
class TopicMessage:
    """One message of a topic. `sequence` is the owner's number for it; 0 if the owner gave none.

    It is shared by all subscriptions that receive it: do not change it.
    """

    def __init__(self, topic: str, payload: bytes, sequence: int = 0) -> None:
        self.topic = topic
        self.payload = payload
        self.sequence = sequence

    def __repr__(self) -> str:
        return f"TopicMessage({self.topic!r}, {self.payload!r}, {self.sequence})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TopicMessage)
            and self.topic == other.topic
            and self.payload == other.payload
            and self.sequence == other.sequence
        )

    def __hash__(self) -> int:
        return hash((self.topic, self.payload, self.sequence))


class Inbox:
    """The messages that wait in one subscription. It always takes the newest, except under DROP_NEWEST."""

    def __init__(self, reader: "Reader", count_max: int, bytes_max: int, when_slow: WhenSlow) -> None:
        self.reader = reader
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.when_slow = when_slow
        self.held_count = 0
        self.held_bytes = 0
        self.accepted_count = 0
        """Messages that were queued since the beginning, including those dropped later."""
        self.dropped_count = 0
        """Messages that the policy dropped."""
        self.missed_count = 0
        """Messages that were lost between nodes."""
        self.untold_count = 0
        """Dropped messages that the reader has not been told of yet."""
        # Under KEEP_LATEST nothing is queued without looking at the waiting messages.
        self._quick_count_max = 0 if when_slow is WhenSlow.KEEP_LATEST else count_max
        self._coming: list[TopicMessage] = []
        self._going: list[TopicMessage] = []
        self._latest: OrderedDict[str, TopicMessage] | None = None

    def put(self, message: TopicMessage, size_bytes: int) -> bool:
        """Take a message; returns whether the reader must be woken."""
        reader = self.reader
        if self.held_count < self._quick_count_max and self.held_bytes < self.bytes_max:
            self._coming.append(message)
            self.held_count += 1
            self.held_bytes += size_bytes
            self.accepted_count += 1
            if reader.line is not None:
                reader.line.append(self)
        elif not self._squeeze(message, size_bytes):
            return False
        if reader.is_awaited:
            reader.is_awaited = False
            return True
        return False

    def next(self) -> TopicMessage | None:
        """The oldest message, or None."""
        if not self._going:
            if not self._coming:
                return self._next_latest()
            self._going = self._coming
            self._coming = []
            self._going.reverse()
        message = self._going.pop()
        self.held_count -= 1
        self.held_bytes -= len(message.payload)
        return message

    def take_all(self) -> list[TopicMessage]:
        """All messages, oldest first."""
        if self._latest is not None:
            messages = list(self._latest.values())
            self._latest = None
        elif self._going:
            self._going.reverse()
            messages = self._going + self._coming
            self._going = []
            self._coming = []
        else:
            messages = self._coming
            self._coming = []
        self.held_count = 0
        self.held_bytes = 0
        return messages

    def take_untold(self) -> int:
        """How many messages were dropped since the last call."""
        count = self.untold_count
        self.untold_count = 0
        return count

    def _squeeze(self, message: TopicMessage, size_bytes: int) -> bool:
        """Make room as the policy says; returns whether the message was put in."""
        if self.when_slow is WhenSlow.KEEP_LATEST:
            self._keep_latest(message, size_bytes)
            return True
        if self.when_slow is WhenSlow.DROP_NEWEST:
            self._count_dropped()
            return False
        # One large message may stand in the way of several small ones, or take the room of several.
        while self.held_count and (self.held_count >= self.count_max or self.held_bytes >= self.bytes_max):
            self.next()
            self._count_dropped()
            self.reader.passed_by(1)
        self._coming.append(message)
        self.held_count += 1
        self.held_bytes += size_bytes
        self.accepted_count += 1
        if self.reader.line is not None:
            self.reader.line.append(self)
        return True

    def _keep_latest(self, message: TopicMessage, size_bytes: int) -> None:
        latest = self._latest
        if latest is None:
            latest = self._latest = OrderedDict()
        self.accepted_count += 1
        former = latest.get(message.topic)
        if former is not None:
            # In the older one's place: else a topic that changes all the time would wait for ever.
            latest[message.topic] = message
            self.held_bytes += size_bytes - len(former.payload)
            self._count_dropped()
        else:
            latest[message.topic] = message
            self.held_count += 1
            self.held_bytes += size_bytes
            if self.reader.line is not None:
                self.reader.line.append(self)
        while self.held_count > 1 and (self.held_count > self.count_max or self.held_bytes > self.bytes_max):
            # The new message may be larger than the one whose place it took: the others make room for it.
            latest.move_to_end(message.topic)
            self._next_latest()
            self._count_dropped()
            self.reader.passed_by(1)

    def _next_latest(self) -> TopicMessage | None:
        if not self._latest:
            return None
        message: TopicMessage = self._latest.popitem(last=False)[1]
        self.held_count -= 1
        self.held_bytes -= len(message.payload)
        return message

    def _count_dropped(self) -> None:
        self.dropped_count += 1
        self.untold_count += 1
        self.reader.has_untold = True


class Sleeper(Protocol):
    """A waiting caller that can be woken."""

    def wake(self) -> None: ...


class Reader:
    """A spot, as its inboxes see it: whether it waits, and the order in which its messages came."""

    def __init__(self, sleeper: Sleeper) -> None:
        self.sleeper = sleeper
        """What to wake."""
        self.is_awaited = False
        """Whether a caller waits for the next message."""
        self.has_untold = False
        """Whether an inbox has dropped messages that the reader has not been told of."""
        self.line: deque[Inbox] | None = None
        """The inbox of each message, in order; only kept with more than one inbox."""
        self._only: Inbox | None = None
        self._stale_count = 0
        self._inboxes: dict[Inbox, None] = {}

    def add(self, inbox: Inbox) -> None:
        self._inboxes[inbox] = None
        if len(self._inboxes) == 1:
            self._only = inbox
        elif self.line is None:
            self._only = None
            self._line_up()

    def remove(self, inbox: Inbox) -> None:
        """Remove an inbox; the messages that wait in it are gone."""
        self._inboxes.pop(inbox, None)
        if self._only is inbox:
            self._only = None
        if len(self._inboxes) <= 1:
            self.line = None
            self._stale_count = 0
            for only in self._inboxes:
                self._only = only
        else:
            inbox.take_all()
            self._line_up_again()

    def quick(self) -> TopicMessage | None:
        """The message that came first; also None if the reader must look at something else first."""
        if self._only is None or self.has_untold:
            return None
        return self._only.next()

    def next(self) -> TopicMessage | None:
        """The message that came first, or None."""
        if self._only is not None:
            return self._only.next()
        line = self.line
        while line:
            message = line.popleft().next()
            if message is not None:
                return message
        return None

    def take_all(self) -> list[TopicMessage]:
        """All messages in the order in which they came."""
        if self._only is not None:
            return self._only.take_all()
        messages: list[TopicMessage] = []
        message = self.next()
        while message is not None:
            messages.append(message)
            message = self.next()
        return messages

    def expect(self) -> None:
        """A caller waits: wake the sleeper with the next message."""
        self.is_awaited = True

    def told(self) -> None:
        """The reader is now told what its inboxes have dropped."""
        self.has_untold = False

    def passed_by(self, count: int) -> None:
        """`count` messages left without their tokens: dropped by a policy, or read from an inbox itself."""
        if self.line is None:
            return
        self._stale_count += count
        if self._stale_count > _STALE_MAX and self._stale_count * 2 > len(self.line):
            self._line_up_again()

    def _line_up(self) -> None:
        self.line = deque()
        for inbox in self._inboxes:
            for _ in range(inbox.held_count):
                self.line.append(inbox)

    def _line_up_again(self) -> None:
        """Keep as many tokens of each inbox as it has messages: the last ones."""
        assert self.line is not None
        left: dict[Inbox, int] = {inbox: inbox.held_count for inbox in self._inboxes}
        kept: deque[Inbox] = deque()
        while self.line:
            inbox = self.line.pop()
            count = left.get(inbox, 0)
            if count:
                left[inbox] = count - 1
                kept.appendleft(inbox)
        self.line = kept
        self._stale_count = 0
