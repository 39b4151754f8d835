"""Who looks after whom: each member after the next few in a ring, so that looking after all costs little."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["successors"]

_DIGEST_BYTES = 8


def successors(ids: Iterable[str], me: str, count: int) -> tuple[str, ...]:
    """The next `count` after me, or all others when there are no more. `me` need not be among them.

    The ring is in the order of digests: members of one machine often have names that follow each other, and
    fall together.
    """
    mine = _place(me)
    places = sorted(_place(one) for one in set(ids) if one != me)
    after = [place for place in places if place > mine]
    before = [place for place in places if place < mine]
    return tuple(one for _, one in [*after, *before][:count])


def _place(one: str) -> tuple[bytes, str]:
    return blake2b(one.encode("utf-8"), digest_size=_DIGEST_BYTES).digest(), one
