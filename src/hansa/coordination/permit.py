"""What a key of a semaphore or a barrier says: how many may hold or must come, whether it is at its turn.

As text that people can read: `3 waiting`, `3 inside`, and after a line's end the note.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hansa.coordination.line import in_order
from hansa.errors import BadRecord
from hansa.store.values import KeyValue

_STATES: Final = {b"waiting": False, b"inside": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """One key's value."""

    count: int
    is_inside: bool = False
    note: bytes = b""

    def encode(self) -> bytes:
        return b"%d %s\n" % (self.count, b"inside" if self.is_inside else b"waiting") + self.note


def decode_permit(value: bytes) -> Permit:
    """Read a key's value. Raises `BadRecord`."""
    head, separator, note = value.partition(b"\n")
    digits, _, state = head.partition(b" ")
    if not separator or not digits.isdigit() or len(digits) > 9 or state not in _STATES:
        raise BadRecord(f"a place in a semaphore or at a barrier cannot be {value[:40]!r}")
    return Permit(count=int(digits), is_inside=_STATES[state], note=note)


def waiting_of(items: Iterable[KeyValue]) -> list[KeyValue]:
    """Those who are not inside yet, in the order in which they came. Raises `BadRecord`."""
    return [item for item in in_order(items) if not decode_permit(item.value).is_inside]
