"""A work: a partition in the hands of this process, from being given it to giving it up.

A work is *ready* until the user enters its block, then it *runs*, and after the block it has *ended*. Before
that one of three things happens: the partition is asked for (another worker is to have it), it is lost, or
the block ends by itself. The `Worker` is told of the end, and does the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from hansa.assignment.handoff import Handoff, HandoffSave, SavedHandoff, checked
from hansa.assignment.partition import Partition
from hansa.coordination.placed import PlacedClaim
from hansa.errors import NotHeld, UsageError
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import GuardedBlock
from hansa.store.values import Compare, Operation

T = TypeVar("T")


class WorkState(Enum):
    """How far a work is."""

    READY = auto()
    """The user has not begun it."""
    RUNNING = auto()
    """The user is in its block."""
    ENDED = auto()
    """Its block was left, or will never be entered."""


class Messages(Protocol):
    """The messages of a partition, from an offset on. Iterating ends after `stop`."""

    def __aiter__(self) -> AsyncIterator[Any]: ...

    def stop(self) -> None: ...


OpenMessages: TypeAlias = Callable[[Handoff | None], Awaitable[Messages]]
"""Opens a partition's messages after this handoff; None: the partition never had one."""


class Boss(Protocol):
    """What a work needs of the worker that gave it to the user."""

    def save_until_s(self) -> float:
        """The time until which a save that begins now is tried, by the store's clock."""

    def prepared(self, work: Work, handoff: Handoff, operations: Sequence[Operation]) -> HandoffSave:
        """A save of this handoff, after the last saved one. Raises `BadArgument`, `LimitExceeded`."""

    async def carry_out(self, work: Work, save: HandoffSave, until_s: float) -> SavedHandoff:
        """Carry the save out under the work's claim, or find that it was done; returns it as it is stored."""

    def left(self, work: Work, error: BaseException | None) -> None:
        """The work's block was left, with this error. Calls `work.end()` when all that follows is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saving:
    """A save, its handoff, and how many notes there were when it began."""

    save: HandoffSave
    handoff: Handoff
    notes_count: int


class Work:
    """A partition with what its last owner left. For one task; made by a `Worker`.

    `async with work:` is the time in which this process works on the partition. The body is cancelled when
    the partition is lost, and the block raises the loss, a `Fenced`. When the partition is to go to another
    worker, `ending` returns, and the loops over `work` and `work.each(...)` end: then `note` how far the work
    is, and leave the block. The last note is saved before another worker has the partition.
    """

    def __init__(
        self,
        claim: PlacedClaim,
        definition: Partition,
        saved: SavedHandoff | None,
        boss: Boss,
        *,
        handoff: Handoff | None = None,
        generation: int = 0,
        open_messages: OpenMessages | None = None,
        messages: Messages | None = None,
        source: Callable[[Work], AsyncIterable[Any]] | None = None,
    ) -> None:
        """`handoff` is where to begin, if not at the last saved one.

        The partition's messages come from `messages`, or else from `source`.
        """
        self.claim = claim
        self.definition = definition
        self.saved = saved
        """The last saved handoff, None if there is none."""
        self.generation = generation
        self.open_messages = open_messages
        self.given_s = 0.0
        """For the worker: when the user was given the work, by the store's clock."""
        self.state = WorkState.READY
        self._handoff = handoff or (Handoff() if saved is None else saved.handoff)
        self._notes_count = 0 if handoff is None else 1
        self._saved_notes_count = 0
        # A save with operations that has no answer: no other save begins before it has one.
        self._in_doubt: _Saving | None = None
        self._boss = boss
        self._messages = messages
        self._source = source
        self._reason = ""
        self._asked = Waiters()
        # The waits in `each`, which end at once when the partition is asked for.
        self._steps: set[asyncio.Timeout] = set()
        self._ended = Waiters()
        self._block: GuardedBlock | None = None
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Work on {self.partition!r}, {self.epoch}, {self.state.name.lower()}>"

    # -- what it is

    @property
    def partition(self) -> str:
        """The partition's name."""
        return self.definition.name

    @property
    def resources(self) -> tuple[str, ...]:
        """The ids of the resources that belong to the partition now."""
        return self.definition.resources

    @property
    def epoch(self) -> int:
        """Grows from owner to owner: guarded storage refuses epochs lower than the highest it has seen."""
        return self.claim.epoch

    @property
    def guards(self) -> tuple[Compare, ...]:
        """Comparisons that hold while this process owns the partition: put them into your own `commit`."""
        return self.claim.guards

    @property
    def handoff(self) -> Handoff:
        """How far the work is: as handed on by the last owner, or as noted last."""
        return self._handoff

    @property
    def is_unsaved(self) -> bool:
        """Whether something was noted since the last save, or the last save has no answer."""
        return self.is_in_doubt or self._notes_count > self._saved_notes_count

    @property
    def is_in_doubt(self) -> bool:
        """Whether a save with operations has no answer: the worker sends it again before any other save."""
        return self._in_doubt is not None

    def check(self) -> None:
        """Raise the loss, if the partition is lost. Any thread may ask, at any moment."""
        self.claim.check()

    # -- how far it is

    def note(self, handoff: Handoff | None = None, **changes: Any) -> None:
        """Note how far the work is now: a whole `Handoff`, or its fields that have changed. Costs no time.

        It is saved when the partition is given up, and now and then before that. After a crash the next owner
        begins with the last saved handoff: so `state` must be the result of all messages up to `last_offset`,
        and of no others. Raises `BadArgument`.
        """
        handoff = replace(handoff or self._handoff, **changes)
        self._handoff = checked(handoff)
        self._notes_count += 1

    async def save(self, handoff: Handoff | None = None, *, operations: Sequence[Operation] = ()) -> None:
        """Save how far the work is, now; when this returns it is safe from any crash.

        `operations` write to keys of your own, in the same transaction. Give the handoff that they belong to
        in the same call: it is never saved without them. Raises `Fenced` when another worker owns the
        partition, and nothing was saved; `NotHeld` after the end of the work; `TimedOut` and
        `StoreUnavailable` when the store does not answer.

        When a save with operations raises, or is cancelled, look at `is_in_doubt`. If it is false, the store
        has done nothing. If it is true, the store may have carried the save out: the handoff is noted, and
        the worker sends the same save again before it saves anything else of this work, at the next `save`,
        at the next `save_interval`, or at the end of the work. So handoff and operations are saved together
        and once; or not at all, if the partition is lost before.
        """
        if handoff is not None and not operations:
            self.note(handoff)
        elif handoff is not None:
            checked(handoff)
        async with self._turn:
            if self.state is WorkState.ENDED:
                self.claim.check()
                # The next work on the partition saves it.
                raise NotHeld(f"{self!r}: nothing is saved after its end")
            until_s = self._boss.save_until_s()
            if (before := self._in_doubt) is not None:
                await self._carry_out(before, until_s)
                same = before.handoff, before.save.operations
                is_same = (handoff or before.handoff, tuple(operations)) == same
                if not self.is_unsaved and (is_same or not operations):
                    return
            # Not before this: the user may have noted something meanwhile.
            wanted = handoff if handoff is not None and operations else self._handoff
            save = self._boss.prepared(self, wanted, operations)
            await self._carry_out(_Saving(save=save, handoff=wanted, notes_count=self._notes_count), until_s)

    async def settle(self) -> None:
        """For the worker: send a save that has no answer again. Raises as `save`."""
        async with self._turn:
            if self._in_doubt is not None:
                await self._carry_out(self._in_doubt, self._boss.save_until_s())

    async def _carry_out(self, saving: _Saving, until_s: float) -> None:
        save = saving.save
        try:
            self.saved = await self._boss.carry_out(self, save, until_s)
        except BaseException:
            if save.is_sent and save.operations:
                self._in_doubt = saving
                self._note_saved(saving)
            raise
        self._in_doubt = None
        self._note_saved(saving)
        self._saved_notes_count = max(self._saved_notes_count, saving.notes_count)

    def _note_saved(self, saving: _Saving) -> None:
        """Note the saved handoff, unless the user has noted a newer one meanwhile."""
        if saving.notes_count == self._notes_count:
            self._handoff = saving.handoff

    async def saved_all(self) -> None:
        """For the worker: wait until no save is under way."""
        async with self._turn:
            pass

    # -- its end

    @property
    def is_left(self) -> bool:
        """Whether the user is not in its block: not yet, or no longer."""
        return self._block is None

    @property
    def is_ending(self) -> bool:
        """Whether another worker is to have the partition: come to an end soon."""
        return bool(self._reason)

    @property
    def reason(self) -> str:
        """Why the work is to end; empty while it goes on."""
        return self._reason

    async def ending(self) -> str:
        """Wait until the partition is to go to another worker; returns the reason."""
        while not self._reason:
            await self._asked.wait()
        return self._reason

    def ask(self, reason: str) -> None:
        """For the worker: the work is to come to an end."""
        self._reason = self._reason or reason or "it is to go to another worker"
        if self._messages is not None:
            self._messages.stop()
        for step in self._steps:
            if not step.expired():
                step.reschedule(0.0)
        self._asked.wake_all()

    async def ended(self) -> None:
        """Wait until its block was left, and the worker has done all that follows."""
        while self.state is not WorkState.ENDED:
            await self._ended.wait()

    def end(self) -> None:
        """For the worker: the work has ended, and all that follows is done."""
        self.state = WorkState.ENDED
        self._ended.wake_all()

    # -- its messages

    def __aiter__(self) -> AsyncIterator[Any]:
        """The partition's messages, from where the last owner stopped, until the partition is to go."""
        if self._messages is not None:
            return aiter(self._messages)
        if self._source is None:
            raise UsageError(
                f"partition {self.partition!r} has no messages of its own: give the worker a `source`,"
                " or use `work.each(...)`"
            )
        return self.each(self._source(self))

    async def each(self, source: AsyncIterable[T]) -> AsyncIterator[T]:
        """The items of a source, until the partition is to go. A step that waits then is cancelled."""
        steps = aiter(source)
        while not self._reason:
            step = asyncio.timeout(None)
            self._steps.add(step)
            try:
                async with step:
                    found = await anext(steps)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if step.expired():
                    return
                raise
            finally:
                self._steps.discard(step)
            yield found

    # -- its block

    async def __aenter__(self) -> Self:
        self.claim.check()
        if self.state is not WorkState.READY:
            raise UsageError(f"{self!r}: a work is begun once")
        block = GuardedBlock(self.claim.loss)
        await block.__aenter__()
        self._block = block
        self.state = WorkState.RUNNING
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, self._block = self._block, None
        if block is None:
            raise UsageError(f"{self!r}: it was not begun")
        failed = error
        try:
            await block.__aexit__(kind, error, trace)
        except BaseException as found:
            failed = found
            raise
        finally:
            # A cancellation that comes here does not stop what follows.
            self._boss.left(self, failed)
            await self.ended()


Handler: TypeAlias = Callable[[Work], Awaitable[None]]
"""What a user does with a work: the handler enters its block, and leaves it."""
