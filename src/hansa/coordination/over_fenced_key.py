"""Guarded storage in the store itself: one value that only the newest owner writes."""

from __future__ import annotations

from hansa.coordination.fenced_value import as_fence, decode_fence, encode_fence, refusal
from hansa.errors import Conflict, NotHeld, StaleFence
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.store import Store
from hansa.store.values import Compare, Get, GetResult, KeyValue, Outcome, Put, as_key


class FencedKey:
    """A key in a store, and beside it, with `/fence` at its end, the highest fence that was shown.

    The fences of one key come from one lock or one election. The value is the key's own, byte by byte:
    anybody can read it with `store.get`.
    """

    def __init__(self, store: Store, key: bytes | str) -> None:
        self.key = as_key(key)
        self.fence_key = as_key(self.key + b"/fence")
        self._store = store
        # The revision of the value as the last call saw it, 0 for none; None before the first `take`.
        self._revision: int | None = None
        self._taken_fence = 0

    def __repr__(self) -> str:
        return f"<FencedKey {self.key!r}>"

    async def take(self, fence: int, *, timeout: float | None = STORE_TIMEOUT_S) -> bytes | None:
        """Raise the fence, then read the value, in one transaction; None when there is none yet.

        Taking again with the same fence is fine. Raises `StaleFence`; also `TimedOut` and `StoreUnavailable`:
        then take again.
        """
        as_fence(fence)
        raised = Put(self.fence_key, encode_fence(fence))
        while True:
            # Lower than the next one: not higher than this one.
            outcome = await self._store.commit(
                [Compare.value(self.fence_key, "<", encode_fence(fence + 1))],
                then=[raised, Get(self.key)],
                otherwise=[Get(self.fence_key)],
                timeout=timeout,
            )
            found = _read(outcome, self.key if outcome.is_success else self.fence_key)
            if outcome.is_success:
                return self._seen(fence, found)
            if found is not None:
                raise self._refusal(fence, found)
            # The first fence of all: an absent key compares with nothing. Who is beaten to it looks again.
            outcome = await self._store.commit(
                [Compare.absent(self.fence_key)], then=[raised, Get(self.key)], timeout=timeout
            )
            if outcome.is_success:
                return self._seen(fence, _read(outcome, self.key))

    async def write(self, fence: int, value: bytes, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Set the value, if it and the fence are as this object's last call left them; gives the revision.

        Raises `StaleFence` when a newer owner has raised the fence, `NotHeld` when this one was never taken
        here. After `TimedOut` it may have been written, now or later: `take` with the same fence again, then
        a write that was given up is refused, if it comes after one that was not. `Conflict` says that such a
        one came in between, or that the store went back in time behind the `take`: take again.
        """
        as_fence(fence)
        if self._revision is None:
            raise self._refusal(fence, await self._store.get(self.fence_key, timeout=timeout))
        outcome = await self._store.commit(
            [
                Compare.value(self.fence_key, "=", encode_fence(fence)),
                Compare.revision(self.key, "=", self._revision),
            ],
            then=[Put(self.key, value)],
            otherwise=[Get(self.fence_key), Get(self.key)],
            timeout=timeout,
        )
        if outcome.is_success:
            self._revision = outcome.revision
            return outcome.revision
        found = _read(outcome, self.fence_key)
        stored = 0 if found is None else decode_fence(found.value)
        if stored < fence == self._taken_fence:
            raise Conflict(f"{self!r} forgot fence {fence}: the store went back in time; take it again")
        if stored != fence:
            raise self._refusal(fence, found)
        raise Conflict(f"{self!r} was written to under the same fence {fence}; take it again")

    def _seen(self, fence: int, found: KeyValue | None) -> bytes | None:
        self._taken_fence = fence
        self._revision = 0 if found is None else found.mod_revision
        return None if found is None else found.value

    def _refusal(self, fence: int, found: KeyValue | None) -> StaleFence | NotHeld:
        stored = 0 if found is None else decode_fence(found.value)
        return refusal(repr(self), fence=fence, stored=stored)


def _read(outcome: Outcome, key: bytes) -> KeyValue | None:
    for result in outcome.results:
        if isinstance(result, GetResult):
            for item in result.items:
                if item.key == key:
                    return item
    return None
