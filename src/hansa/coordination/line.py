"""Who stands where in a line: everybody has one key below a prefix, and the oldest keys come first.

The store gives each key the revision of its creation, which only grows: so nobody ever enters ahead of
somebody, those ahead only become fewer, and who owns something next has a higher number than all before.
Whoever waits looks at one key only, the one right before its own; so a hand-over wakes one, and not all.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hansa.store.values import KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a key stands at a revision: the keys ahead of it, the oldest first, and its turn or not."""

    revision: int
    created: int
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
                created=item.create_revision,
                ahead=tuple(ahead),
                is_turn=len(ahead) < turns_count,
                is_next=len(ahead) == turns_count,
            )
        ahead.append(item)
    return None
