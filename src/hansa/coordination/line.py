"""Who stands where in a line, and what the keys of a line say. Pure.

Everybody has one key below a prefix, and the oldest keys come first. The store gives each key the revision of
its creation, which only grows: so nobody ever enters ahead of somebody, those ahead only become fewer, and
who owns something next has a higher number than all before. Whoever waits looks at one key only, the one
right before its own; so a release wakes one waiter, and not all.

The value of a key begins with a line of JSON that says whose it is: the node, and since when it stands there,
by its own wall clock, for display. What follows is the user's note, byte by byte; of a semaphore or a barrier
first another line that people can read: how many may hold or must come, and whether this one waits or is
inside (`3 waiting`, `3 inside`). Older processes write no first line.

A hand-over puts a later key first. Then the line has a `Head`, one more key, which is on no lease: who stands
first, whatever the order of creation says, and in which epoch. Whoever has its turn afterwards and came
before the head was written last takes its turn by writing the head: so epochs grow there too. A line in which
nothing was ever handed over has no head, and pays nothing for it.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from typing import Final

from hansa.errors import BadRecord
from hansa.limits import SESSION_FREE_LINES_COUNT_MAX
from hansa.store.values import KeyValue

# The last part of a head's key. Those of claims begin with the digits of a lease.
_HEAD: Final = b"handover"
_HEAD_END: Final = b"/" + _HEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Who stands first in a line after a hand-over: its key, and its epoch (0: the head's own revision).

    While a hand-over is sealed, `first` is who gives, and `next` the key of who is to have it. `is_open` says
    that a sealed state waits for whoever owns next, or that its new owner has not said to have read it.
    """

    first: bytes
    epoch: int = 0
    next: bytes = b""
    is_open: bool = False
    revision: int = field(default=0, compare=False)

    @property
    def first_epoch(self) -> int:
        """The epoch of who stands first."""
        return self.epoch or self.revision

    def encode(self) -> bytes:
        found = {"first": self.first.decode(), "epoch": self.epoch, "next": self.next.decode()}
        return json.dumps(found | {"open": self.is_open}).encode()

    @classmethod
    def decode(cls, item: KeyValue) -> "Head":
        """Raises `BadRecord`."""
        with suppress(ValueError, RecursionError):
            match json.loads(item.value):
                case {"first": str(first), "epoch": int(epoch), "next": str(after), "open": bool(is_open)}:
                    return cls(
                        first=first.encode(),
                        epoch=epoch,
                        next=after.encode(),
                        is_open=is_open,
                        revision=item.mod_revision,
                    )
        raise BadRecord(f"{item.key!r} says who stands first in a line, and cannot be {item.value[:100]!r}")


def head_key(prefix: bytes) -> bytes:
    """The key of a line's head."""
    return prefix + _HEAD


def head_of(items: Iterable[KeyValue]) -> Head | None:
    """The head among a line's keys, read with their values; None in a line without. Raises `BadRecord`."""
    for item in items:
        if item.key.endswith(_HEAD_END):
            return Head.decode(item)
    return None


def has_head(items: Iterable[KeyValue]) -> bool:
    """Whether there is one, also where the keys were read without their values."""
    return any(item.key.endswith(_HEAD_END) for item in items)


def in_order(items: Iterable[KeyValue]) -> list[KeyValue]:
    """The keys of a line, the first one first, without the head. Raises `BadRecord`."""
    items = tuple(items)
    return _ordered(items, head_of(items))


def _ordered(items: Iterable[KeyValue], head: Head | None) -> list[KeyValue]:
    if head is None:
        return sorted(items, key=lambda item: (item.create_revision, item.key))

    def rank(item: KeyValue) -> tuple[bool, bool, int, bytes]:
        return item.key != head.first, item.key != head.next, item.create_revision, item.key

    return sorted((item for item in items if not item.key.endswith(_HEAD_END)), key=rank)


def epoch_of(item: KeyValue, head: Head | None) -> int:
    """The epoch in which a key owns when it is first; 0 when it must take its turn before."""
    if head is None:
        return item.create_revision
    if item.key == head.first:
        return head.first_epoch
    return 0 if head.is_open or item.create_revision < head.revision else item.create_revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a key stands at a revision: the keys ahead of it, the first one first, and its turn or not."""

    revision: int
    own: KeyValue
    ahead: tuple[KeyValue, ...]
    is_turn: bool
    # Of a line with several turns at once: whether those ahead are all at it, so that any may make room.
    is_next: bool
    head: Head | None = None

    @property
    def before(self) -> KeyValue:
        """The last one ahead that stays ahead until it is gone: the one to wait for.

        Who is named in a sealed hand-over stands ahead of those who came before it, and behind them again if
        that is withdrawn: two who wait for each other would wait for ever.
        """
        for item in reversed(self.ahead):
            is_named = self.head is not None and item.key == self.head.next
            if not is_named or item.create_revision < self.own.create_revision:
                return item
        return self.ahead[-1]

    @property
    def epoch(self) -> int:
        """The epoch in which it owns, if it is its turn; 0 when it must take it before."""
        return epoch_of(self.own, self.head)


def place_of(key: bytes, items: Iterable[KeyValue], *, revision: int, turns_count: int = 1) -> Place | None:
    """The place of a key among those of its line; None when it stands there no more. Raises `BadRecord`."""
    items = tuple(items)
    head = head_of(items)
    ahead: list[KeyValue] = []
    for item in _ordered(items, head):
        if item.key == key:
            return Place(
                revision=revision,
                own=item,
                ahead=tuple(ahead),
                # Who was named in a sealed hand-over has its turn although the old owner still stands there.
                is_turn=len(ahead) < turns_count or (head is not None and head.next == key),
                is_next=len(ahead) == turns_count,
                head=head,
            )
        ahead.append(item)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineStats:
    """What one lock, semaphore or election object has seen so far.

    `waited_s` is the sum over all that were acquired, `waited_s_max` the longest of them.
    """

    acquired_count: int = 0
    timed_out_count: int = 0
    lost_count: int = 0
    waited_s: float = 0.0
    waited_s_max: float = 0.0


class KeyNumbers:
    """The numbers in the names of one session's keys. A number that was given back is used again first.

    Until it is compacted etcd walks all the deleted keys of a line whenever the line is read. With a new name
    each time a lock grew slower by 18 us with every thousand times that it was taken (`make bench`, lock).
    """

    def __init__(self) -> None:
        self._latest = 0
        # By line; the line that was left last comes last.
        self._free: dict[bytes, list[int]] = {}

    def take(self, prefix: bytes) -> int:
        """A number for a new key in this line."""
        free = self._free.get(prefix)
        if free:
            return heappop(free)
        self._latest += 1
        return self._latest

    def give_back(self, prefix: bytes, number: int) -> None:
        """The key is gone, no request for it is under way, and no hand-over has named it."""
        free = self._free.pop(prefix, [])
        heappush(free, number)
        self._free[prefix] = free
        if len(self._free) > SESSION_FREE_LINES_COUNT_MAX:
            # Forgotten for good: whoever comes into that line again gets new numbers.
            del self._free[next(iter(self._free))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A key's value: whose the key is, since when, and the rest."""

    node: str = ""
    since: float = 0.0
    body: bytes = b""

    def encode(self) -> bytes:
        return b'{"node": %s, "since": %.3f}\n%s' % (_as_json(self.node), self.since, self.body)


@lru_cache(maxsize=64)
def _as_json(node: str) -> bytes:
    """A process says it with each lock, and has few."""
    return json.dumps(node).encode()


def decode_signed(value: bytes) -> Signed:
    """Read a key's value. One without the first line is from an older process, which says not who it is."""
    head, separator, body = value.partition(b"\n")
    if separator and head.startswith(b'{"node": '):
        with suppress(ValueError, RecursionError):
            match json.loads(head):
                case {"node": str(node), "since": int(since) | float(since)}:
                    return Signed(node=node, since=float(since), body=body)
    return Signed(body=value)


_STATES: Final = {b"waiting": False, b"inside": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What a semaphore's or a barrier's key says, after who says it."""

    count: int
    is_inside: bool = False
    note: bytes = b""

    def encode(self) -> bytes:
        return b"%d %s\n" % (self.count, b"inside" if self.is_inside else b"waiting") + self.note


def decode_permit(value: bytes) -> Permit:
    """Read a key's value, signed or not. Raises `BadRecord`."""
    value = decode_signed(value).body
    head, separator, note = value.partition(b"\n")
    digits, _, state = head.partition(b" ")
    if not separator or not digits.isdigit() or len(digits) > 9 or state not in _STATES:
        raise BadRecord(f"a place in a semaphore or at a barrier cannot be {value[:40]!r}")
    return Permit(count=int(digits), is_inside=_STATES[state], note=note)


def waiting_of(items: Iterable[KeyValue]) -> list[KeyValue]:
    """Those who are not inside yet, in the order in which they came. Raises `BadRecord`."""
    return [item for item in in_order(items) if not decode_permit(item.value).is_inside]
