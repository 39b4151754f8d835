"""Guarded storage in the store, for threads."""

from __future__ import annotations

from hansa.coordination.fencing import FencedKey as AsyncFencedKey
from hansa.limits import STORE_TIMEOUT_S
from hansa.sync.store import Store


class FencedKey:
    """A key in a store, and beside it, with `/fence` at its end, the highest fence that was shown.

    The fences of one key come from one lock or one election. The value is the key's own, byte by byte:
    anybody can read it with `store.get`.
    """

    def __init__(self, store: Store, key: bytes | str) -> None:
        """Raises BadArgument."""
        self._store = store
        self._inner = AsyncFencedKey(store._inner, key)
        self.key = self._inner.key
        self.fence_key = self._inner.fence_key

    def take(self, fence: int, *, timeout: float | None = STORE_TIMEOUT_S) -> bytes | None:
        """Raise the fence, then read the value, in one transaction; None when there is none yet.

        Taking again with the same fence is fine. Raises StaleFence; also TimedOut and StoreUnavailable: then
        take again.
        """
        return self._store._call(lambda: self._inner.take(fence, timeout=timeout), f"take of {self.key!r}")

    def write(self, fence: int, value: bytes, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Set the value, if it and the fence are as this object's last call left them; gives the revision.

        Raises StaleFence when a newer owner has raised the fence, NotHeld when this one was never taken here.
        After TimedOut, or an interrupt, it may have been written, now or later: `take` with the same fence
        again, then a write that was given up is refused, if it comes after one that was not. Conflict says
        that such a one came in between: take again.
        """
        return self._store._call(
            lambda: self._inner.write(fence, value, timeout=timeout), f"write of {self.key!r}"
        )
