"""Who stands where in a line, and what the keys of a line say. Pure.

Everybody has one key below a prefix, and the oldest keys come first. The store gives each key the revision of
its creation, which only grows: so nobody ever enters ahead of somebody, those ahead only become fewer, and
who owns something next has a higher number than all before. Whoever waits looks at one key only, the one
right before its own; so a release wakes one waiter, and not all.

The value of a key begins with a line of JSON that says whose it is: the node, and since when it stands there,
by its own wall clock, for display. What follows is the user's note, byte by byte; of a semaphore or a barrier
first another line that people can read: how many may hold or must come, and whether this one waits or is
inside (`3 waiting`, `3 inside`). Older processes write no first line.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hansa.errors import BadRecord
from hansa.store.values import KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a key stands at a revision: the keys ahead of it, the oldest first, and its turn or not."""

    revision: int
    own: KeyValue
    ahead: tuple[KeyValue, ...]
    is_turn: bool
    # Of a line with several turns at once: whether those ahead are all at it, so that any may make room.
    is_next: bool


def in_order(items: Iterable[KeyValue]) -> list[KeyValue]:
    """The keys of a line, the first one first."""
    return sorted(items, key=lambda item: (item.create_revision, item.key))


def place_of(key: bytes, items: Iterable[KeyValue], *, revision: int, turns_count: int = 1) -> Place | None:
    """The place of a key among those of its line; None when it stands there no more."""
    ahead: list[KeyValue] = []
    for item in in_order(items):
        if item.key == key:
            return Place(
                revision=revision,
                own=item,
                ahead=tuple(ahead),
                is_turn=len(ahead) < turns_count,
                is_next=len(ahead) == turns_count,
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
