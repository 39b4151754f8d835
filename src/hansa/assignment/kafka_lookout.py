"""The lookout of a Kafka member: it finds out whether the member has missed an assignment by the broker.

In the protocol of KIP-848 the broker tells an assignment once, in its answer to a heartbeat. The client
(librdkafka 2.16.0) drops an answer that is later than the heartbeat's interval, and does not ask again: the
group would stand still for `max.poll.interval.ms`, and newly assigned partitions for ever. In the classic
protocol a member is told until it has answered, and can miss nothing.

`KafkaLookout` must: after an answer that came too late, ask the broker what it has assigned, until that is
what the member has heard, with growing pauses; see that all members of a large group together do not ask too
often; ask nothing while no answer was late; and report a missed assignment when `KafkaShare` is sure. The
member then leaves the group, and another one joins in its place.
"""

from __future__ import annotations

import logging
from math import inf

from hansa.assignment.kafka_group import GroupMember
from hansa.assignment.kafka_share import KafkaPart, KafkaShare, Membership, names_of
from hansa.chance import Chance
from hansa.errors import GroupRefused, KafkaUnavailable
from hansa.limits import KAFKA_LOOK_S_MAX, KAFKA_LOOK_S_MIN, KAFKA_LOOKS_PER_S, RECONNECT_JITTER
from hansa.runtime.backoff import Backoff

logger = logging.getLogger(__name__)


class KafkaLookout:
    """Watches one member after the other. `due_s` is when to call `look` next, one call at a time."""

    def __init__(self, share: KafkaShare, *, name: str, chance: Chance) -> None:
        self._share = share
        self._name = name
        self._pauses = Backoff(
            s_min=KAFKA_LOOK_S_MIN, s_max=KAFKA_LOOK_S_MAX, jitter=RECONNECT_JITTER, chance=chance
        )
        # The number of late answers that have done no harm.
        self._settled_count = 0
        self.due_s = inf
        self.has_missed = False
        """Whether the member has missed something, for good."""

    def begin(self, *, now: float) -> None:
        """A new member joins."""
        self.has_missed = False
        self._settled_count = 0
        self.due_s = now + self._pauses.next_s()

    async def look(self, member: GroupMember, mine: Membership) -> float:
        """Compare what the broker has assigned with what the member has heard; returns the next pause."""
        late_count = member.late_count
        if late_count == self._settled_count:
            self._pauses.reset()
            return self._pauses.next_s()
        members_count = 0
        try:
            view = await member.view(mine.member)
        except (KafkaUnavailable, GroupRefused) as error:
            logger.debug("%s cannot see what the broker has assigned to it: %s", self._name, error)
        else:
            members_count = view.members_count
            # A member that the broker does not know is about to hear of that.
            if view.parts is not None and mine.generation > 0 and self._agrees(view.parts):
                self._settled_count = late_count
        return max(self._pauses.next_s(), members_count / KAFKA_LOOKS_PER_S)

    def _agrees(self, named: frozenset[KafkaPart]) -> bool:
        here = {tenure.part for tenure in self._share.tenures}
        self.has_missed = self._share.has_missed(named)
        if self.has_missed:
            logger.warning(
                "%s has missed what it was assigned: the broker names %s, and has told of %s",
                self._name,
                names_of(named),
                names_of(here),
            )
        return here == named
