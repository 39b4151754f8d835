"""A simulated store that can be copied, and be started again as it was: with an older copy, too."""

from __future__ import annotations

from collections.abc import Sequence

from hansa.chance import Chance
from hansa.store.engine import Engine
from hansa.store.journal_records import record_of
from hansa.store.recorded import Image
from hansa.store.restorable import RestorableKeys, RestorableLeases, set_up
from hansa.store.values import KeyValue
from hansa.store.watching import Watchers

__all__ = ["RestorableEngine"]


class RestorableEngine(Engine):
    """An `Engine`, and what a disk holds of it: all but its watchers and the time of its leases."""

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self._mvcc: RestorableKeys = RestorableKeys()
        self._leases: RestorableLeases = RestorableLeases()
        self._watchers = Watchers(self._mvcc)

    @property
    def items(self) -> Sequence[KeyValue]:
        """All keys as they are now."""
        return self._mvcc.live_items()

    @property
    def compacted_revision(self) -> int:
        return self._mvcc.compacted_revision

    def image(self) -> Image:
        """A copy of everything."""
        return Image(
            revision=self._mvcc.revision,
            compacted_revision=self._mvcc.compacted_revision,
            first_logged_revision=self._mvcc.first_logged_revision,
            items=self._mvcc.live_items(),
            log=self._mvcc.whole_log(),
            leases=self._leases.granted(),
        )

    def restored(self, image: Image, *, now: float) -> RestorableEngine:
        """A new one that has what the image has, and draws other numbers than this one did."""
        engine = RestorableEngine(self._chance)
        set_up(
            engine._mvcc,
            engine._leases,
            image.base(),
            map(record_of, image.log),
            image.leases,
            base_revision=image.first_logged_revision - 1,
            compacted_revision=image.compacted_revision,
            now=now,
        )
        return engine

    def begin_run(self, revision: int, *, now: float) -> None:
        """A start: go on from this revision, beyond all that were ever issued. Leases have all their time."""
        self._mvcc.begin_run(revision)
        self._leases.renew_all(now=now)
