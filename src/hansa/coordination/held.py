"""What a hold and a leadership have in common: a claim under the name that its users know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from hansa.coordination.claim import TakenClaim
from hansa.coordination.handover import Handover
from hansa.errors import Fenced
from hansa.limits import HANDOVER_S
from hansa.store.values import Compare

E = TypeVar("E", bound=Fenced)


class Held(Generic[E]):
    """A hold or a leadership."""

    def __init__(self, name: str, claim: TakenClaim[E]) -> None:
        self.name = name
        self._claim = claim

    def __repr__(self) -> str:
        return repr(self._claim).replace(type(self._claim).__name__, type(self).__name__, 1)

    @property
    def guard(self) -> Compare:
        """A compare that holds as long as this owner owns. Put it into your own `commit` in this store."""
        return self._claim.guards[0]

    def check(self) -> None:
        """Raise the loss, with its reason, or `NotHeld` once it was given back. Any thread may ask.

        It asks nobody. It knows the session's end at any moment. That somebody deleted the key, it knows as
        soon as the store has told: the store is asked when the key is 0.05 s old, for all changes to it.
        """
        self._claim.check()

    async def refresh(self) -> None:
        """Renew the session's lease now. Raises the loss; `TimedOut` and `StoreUnavailable` lose nothing."""
        await self._claim.refresh()

    async def lost(self) -> E:
        """Wait until it is lost; returns the reason. Something that was given back is never lost."""
        return await self._claim.loss.wait()

    @property
    def state(self) -> bytes:
        """The state that the previous owner handed on; empty if there was no hand-over, or no state.

        Raises `StoreCorrupt` for a state that is lost: a large one is a blob in the store, which somebody may
        delete or damage. Then it is held all the same, and the record says so as its `trouble`.
        """
        return self._claim.state

    async def wanted(self) -> Handover:
        """Wait until somebody asks to move it to another node, as `hansa lead --move` does.

        Returns the record. Then stop the work, and `hand_over(record)`: the record says how long it may take.
        An owner that does not hand over keeps it, and the hand-over ends by its deadline. Raises the loss,
        `NotHeld` and `UsageError`.
        """
        return await self._claim.wanted()

    async def hand_over(
        self,
        to: str | Handover,
        *,
        state: bytes | Callable[[], Awaitable[bytes]] = b"",
        timeout: float = HANDOVER_S,
        reason: str = "",
    ) -> Handover:
        """Hand it over, with a state, to a node that waits for it, ahead of all others; returns the record.

        When the new owner is ready `state` is called, if it is a function. From its return on this owner no
        longer acts: it is not held then, and none of its blocks is cancelled. A state has at most 16 MiB; one
        that does not fit into the record is stored before, in the time that the hand-over has. `to` is the
        name of a `Session(node=...)`, or the record that `wanted` returned: then only that hand-over is
        carried out, and no other one if it is over meanwhile.

        Raises `NoSuccessor` and `HandoverWithdrawn`: then it is held as before. Raises the loss, `NotHeld`,
        `BadArgument`; `Conflict` while another hand-over is open; `TimedOut` and `StoreUnavailable`.
        Cancelling it withdraws, or, when this owner has stopped acting, lets the hand-over come to its end.
        """
        return await self._claim.hand_over(to, state=state, timeout=timeout, reason=reason)

    async def __aenter__(self) -> Self:
        await self._claim.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._claim.__aexit__(kind, error, trace)
