"""What a worker needs of its mode: how partitions come to the worker, and leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from hansa.coordination.placed import PlacedClaim
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
