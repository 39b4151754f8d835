"""The run: every round visits every case, and on each case every peer, one trial at a time.

So a slow minute of the machine falls on all peers alike, and the rounds show it as spread.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.case import Case
from bench.kinds import KINDS
from bench.measurement import Trial
from bench.peers import Peer
from bench.stage import Stage, TrialFailed
from bench.window import Window


@dataclass(slots=True, kw_only=True)
class Run:
    """What to measure, and what was learnt about the peers on the way."""

    cases: Sequence[Case]
    peers: Sequence[Peer]
    round_count: int
    window: Window
    profiles: Path | None = None
    """Where each worker leaves a profile of itself; its numbers are then worth nothing."""
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def plan(self) -> Iterator[tuple[int, Case, Peer]]:
        """Every trial in the order in which it is run."""
        for round_number in range(1, self.round_count + 1):
            for case in self.cases:
                if round_number > (KINDS[case.kind].rounds_max or round_number):
                    continue
                for peer in self.peers:
                    if case.kind in peer.kinds:
                        yield round_number, case, peer

    async def trials(self) -> AsyncIterator[Trial]:
        """Each trial as it is done. A peer that fails does not stop the others."""
        for round_number, case, peer in self.plan():
            yield await self._trial(round_number, case, peer)

    async def _trial(self, round_number: int, case: Case, peer: Peer) -> Trial:
        try:
            async with Stage(peer, case, self.profiles) as stage:
                measurement = await KINDS[case.kind].measure(stage, self.window)
                self.facts.setdefault(peer.name, {}).update(stage.facts)
        except TrialFailed as failure:
            return Trial(case=case, peer=peer.name, round_number=round_number, failure=str(failure))
        return Trial(case=case, peer=peer.name, round_number=round_number, measurement=measurement)
