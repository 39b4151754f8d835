"""The sweep of a Kafka group's handoffs: they are kept for longer than the topics keep messages.

`KafkaSweep` must: refuse a lifetime that is not longer, because there would be messages to read and no state
to go on from; have one worker of the group, by an `Election`, delete older handoffs; look at the retention
again before each sweep, since it may have changed; and keep the handoffs of partitions that a worker has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hansa.assignment.handoff import Handoffs
from hansa.assignment.kafka_entries import KafkaEntries
from hansa.assignment.topology import election_of
from hansa.coordination.election import Election
from hansa.coordination.following import TROUBLE, patient_backoff
from hansa.errors import BadRecord, Conflict, Fenced, GroupRefused, KafkaUnavailable, UsageError
from hansa.limits import ASSIGNMENT_SWEEP_S

if TYPE_CHECKING:
    from hansa.assignment.worker import Worker

logger = logging.getLogger(__name__)


class KafkaSweep:
    """The sweep of a group's handoffs, run by one worker. `ask` tells how long the topics keep messages."""

    def __init__(
        self,
        worker: Worker,
        entries: KafkaEntries,
        *,
        topics: Sequence[str],
        lifetime_s: float,
        ask: Callable[[], Awaitable[float | None]],
    ) -> None:
        self._worker = worker
        self._entries = entries
        self._topics = ", ".join(topics)
        self._lifetime_s = lifetime_s
        self._ask = ask
        self._name = f"the sweep of {worker.group} at {worker.node}"
        self.is_leading = False
        """Whether this worker is the one that deletes."""

    async def is_needed(self) -> bool:
        """Whether handoffs are deleted at all: not if messages stay for ever.

        Raises `UsageError` for a lifetime that is too short, or that cannot be compared; `KafkaUnavailable`.
        """
        try:
            retention_s = await self._ask()
        except GroupRefused as refused:
            raise UsageError(
                f"it may not be looked up how long {self._topics} keep messages ({refused}):"
                " grant it, or have handoffs kept for ever with handoff_lifetime=None"
            ) from refused
        if retention_s is not None and self._lifetime_s <= retention_s:
            raise UsageError(
                f"handoffs are kept for {self._lifetime_s:g} s, but messages of {self._topics} for"
                f" {retention_s:g} s: there would be some to read, and no state to go on from. Give a longer"
                " handoff_lifetime, or None"
            )
        return retention_s is not None

    async def run(self) -> None:
        """Delete old handoffs now and then, whenever this worker leads the group, until cancelled."""
        worker = self._worker
        environment = worker.environment.fork("kafka sweep")
        election = Election(worker.sessions, election_of(worker.group))
        handoffs = Handoffs(
            worker.store, worker.group, cluster=worker.members.cluster, environment=environment
        )
        backoff = patient_backoff(environment.chance)
        while True:
            try:
                async with election.campaign():
                    self.is_leading = True
                    while True:
                        await asyncio.sleep(environment.chance.uniform(0.5, 1.5) * ASSIGNMENT_SWEEP_S)
                        if await self._may_sweep():
                            with suppress(*TROUBLE, BadRecord):
                                kept = await self._entries.owned()
                                await handoffs.sweep(lifetime=self._lifetime_s, kept=kept)
            except* (*TROUBLE, Fenced, Conflict) as errors:
                logger.info("%s leads no more: %s", self._name, errors.exceptions[0])
            finally:
                self.is_leading = False
            await asyncio.sleep(backoff.next_s())

    async def _may_sweep(self) -> bool:
        """Whether handoffs are still kept for longer than messages."""
        why: object = "messages stay for ever by now"
        try:
            if await self.is_needed():
                return True
        except (UsageError, KafkaUnavailable) as error:
            why = error
        logger.error("%s deletes no handoffs: %s", self._name, why)
        return False
