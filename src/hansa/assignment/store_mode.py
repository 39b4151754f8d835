"""A worker's mode, and store mode: a leader places a group's partitions on its workers.

`Mode` is what a worker asks of its mode. `StoreMode` is for a store of any kind, raft groups too. It must:
own what the leader places on this process's session, and nothing else; say that it is ready for what is
offered to it, unless the worker leaves; tell the worker when the leader wants a partition to go elsewhere,
once the next owner is ready; and take its turn to lead the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from hansa.assignment.assigner import Assigner
from hansa.assignment.rebalancing import RebalancingStats
from hansa.assignment.topology import candidate_of, handovers_of, standby_of
from hansa.coordination.handover import Handover
from hansa.coordination.placed import PlacedClaim, PlacedClaims
from hansa.coordination.placing import PlacedMoves
from hansa.errors import HandoverWithdrawn, NotHeld
from hansa.limits import ASSIGNMENT_LOOK_S, HANDOFF_LIFETIME_S, HANDOFF_SAVE_S
from hansa.store.values import Operation

if TYPE_CHECKING:
    from hansa.assignment.worker import Worker


class Mode(Protocol):
    """How partitions come to a worker, and leave it: what a worker asks of its mode."""

    def attach(self, worker: Worker) -> None:
        """Called before anything else."""

    async def run(self) -> None:
        """Run until cancelled; call `begin` and `ask` as partitions come and go. Raises `AlreadyClosed`."""

    async def began(self, claim: PlacedClaim) -> None:
        """The worker has read what the last owner left."""

    def farewell(self, claim: PlacedClaim) -> Sequence[Operation]:
        """Operations to carry out together with the last save, if any."""

    async def let_go(self, claim: PlacedClaim) -> None:
        """Let another worker own it: all notes are saved. Raises `HandoverWithdrawn`: it stays here."""

    async def leave(self, timeout: float) -> None:
        """Take nothing more, and give everything up, in good order; `run` goes on meanwhile."""


class StoreMode:
    """The leader of the group shares the work out: see `Worker`.

    With `leads` this process may become the leader. Handoffs that nobody has saved for `handoff_lifetime`
    seconds are deleted, except those of defined partitions; None keeps all.
    """

    def __init__(self, *, leads: bool = True, handoff_lifetime: float | None = HANDOFF_LIFETIME_S) -> None:
        self._leads = leads
        self._lifetime_s = handoff_lifetime
        self.assigner: Assigner | None = None

    @property
    def stats(self) -> RebalancingStats:
        """What this process has counted in its present term as the group's leader; otherwise zeros."""
        return RebalancingStats() if self.assigner is None else self.assigner.stats

    @property
    def last_applied_index(self) -> int:
        """The store's revision up to which this worker has followed what the leader wrote."""
        return self._claims.revision

    def attach(self, worker: Worker) -> None:
        self._worker = worker
        self._prefix = worker.keys.assignments(worker.group)
        self._claims = PlacedClaims(worker.sessions, worker.node, self._prefix, on_claim=self._own)
        self._moves = PlacedMoves(
            worker.sessions,
            worker.node,
            self._claims,
            kind=handovers_of(worker.group),
            on_wanted=self._wanted,
            refuse=lambda _record: "its worker leaves" if worker.is_leaving else "",
        )
        self._is_alone = False
        if self._leads:
            self.assigner = Assigner(
                worker.members,
                worker.group,
                handoff_lifetime=self._lifetime_s,
                environment=worker.environment.fork("assigner"),
            )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claims.run(), name="following entries")
            tasks.create_task(self._moves.run(), name="following hand-overs")
            if self.assigner is not None:
                tasks.create_task(self.assigner.run(), name="leading")

    async def began(self, claim: PlacedClaim) -> None:
        await self._moves.finish(claim)

    def farewell(self, claim: PlacedClaim) -> Sequence[Operation]:
        return ()

    async def let_go(self, claim: PlacedClaim) -> None:
        try:
            await self._moves.seal(claim, b"")
        except (HandoverWithdrawn, NotHeld) as error:
            if claim.as_lost() is not None or claim.has_left:
                raise
            if not self._is_alone:
                if isinstance(error, HandoverWithdrawn):
                    raise
                text = f"{claim.what} stays here: nobody is ready to have it any more"
                raise HandoverWithdrawn(text) from None
            await claim.release()

    async def leave(self, timeout: float) -> None:
        """Let the leader move all partitions away; save what no other worker takes, for the next worker.

        Saving gets the last half of the time, but no more than a save may take.
        """
        worker, clock = self._worker, self._worker.store.clock
        until_s = clock.monotonic() + timeout
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout - min(timeout / 2, HANDOFF_SAVE_S)):
                await self._until_free()
        self._is_alone = True
        left_s = max(until_s - clock.monotonic(), 0.0)
        # Time for a save and, if that fails, for a second one of what `recover` returns.
        worker.save_timeout_s = min(worker.save_timeout_s, left_s / 2)
        worker.ask_all("its worker leaves")
        # Also works that are about to be given to their users again. A work that does not end is lost.
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await worker.until(lambda partitions: not partitions)

    async def _until_free(self) -> None:
        """Wait until this worker has nothing that another worker could have."""
        worker = self._worker
        while self._claims.claims:
            others = [
                candidate
                for member in worker.members.view.values()
                if (candidate := candidate_of(member, worker.group)) is not None
            ]
            definitions = [work.definition for work in worker.works.values()]
            is_all_ready = len(definitions) == len(self._claims.claims)
            if is_all_ready and not any(standby_of(each, worker.node, others) for each in definitions):
                return
            await asyncio.sleep(ASSIGNMENT_LOOK_S)

    def _own(self, claim: PlacedClaim) -> None:
        self._worker.begin(claim, self._partition(claim))

    def _wanted(self, claim: PlacedClaim, record: Handover) -> None:
        self._worker.ask(claim, self._partition(claim), record.reason)

    def _partition(self, claim: PlacedClaim) -> str:
        return claim.key.removeprefix(self._prefix).decode()
