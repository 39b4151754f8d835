"""The lineage of a store's answers: whether the store that answers now is the one that answered before. Pure.

A store may go back in time: an older copy or a snapshot of it was restored, or it was kept in memory only and
is empty again. Then all that was told after the copy was made is lost. A client that goes on as if nothing
had happened waits for revisions that come late or never, and believes in keys that are gone; and if revisions
are given out a second time, fences can go down.

Every answer has a head: the cluster that answers, its term, its revision. Three things are done with it.

    told       of a read or a change, which no older state may answer: cluster and revision are compared
    strange    of a renewal or a status, by a member that may lag behind: it can only raise a doubt
    doubt      another term, or a broken connection. It is settled by two reads (`question`): the same history
               has the revision that was seen last, and has the last change that was seen where it was seen
               (`confirmed`); another one never had it (`denied`), or has something else there

A history that ended is reported as a `HistoryLost`. The driver then ends its watches, whose readers read
again, and its leases: a key that was given back may be there again, on a lease that somebody still keeps.
When the new revision is lower than one that was seen, the revisions between are given out twice. Then changes
are refused (`refusal`) until the store is beyond them: a fence could be lower than one that was shown
already.
"""

from dataclasses import dataclass

from hansa.errors import StoreWentBack
from hansa.store.values import KeyValue

__all__ = ["HistoryLost", "HistoryQuestion", "Lineage", "Mark"]

Mark = tuple[int, int]
"""A point in a history, taken when something was asked: the history's number, and the revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLost:
    """The store that answers is not the one that answered before. It is at `revision` now."""

    why: str
    revision: int


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """A question that settles a doubt: was the store at the mark's revision, and does it have the witness?"""

    mark: Mark
    witness: KeyValue | None


class Lineage:
    """What one client has seen of a store's history."""

    def __init__(self) -> None:
        # The highest revision seen of this history, and of all histories.
        self.revision = 0
        self._peak = 0
        self._cluster_id = 0
        self._term = 0
        self._told_term = 0
        # The key of the newest put that was seen: a history that has something else there is another one.
        self._witness: KeyValue | None = None
        # What was seen before the doubt: what is seen since then may belong to another history.
        self._doubted: HistoryQuestion | None = None
        self.losses_count = 0

    @property
    def mark(self) -> Mark:
        """Take it before a request, and pass it on with the answer."""
        return self.losses_count, self.revision

    @property
    def is_doubtful(self) -> bool:
        """Whether another store than before may be answering."""
        return self._doubted is not None

    @property
    def question(self) -> HistoryQuestion:
        """What to read to settle a doubt."""
        return self._doubted or HistoryQuestion(self.mark, self._witness)

    def doubt(self, *, anew: bool = False) -> None:
        """Another store may be answering: an answer was strange, or (`again`) a connection just broke.

        An answer to an earlier question cannot settle a new doubt.
        """
        if self._doubted is None or anew:
            asked = self.question
            self._doubted = HistoryQuestion(asked.mark, asked.witness)

    @property
    def is_behind(self) -> bool:
        """Whether the store has not yet reached the highest revision that was seen."""
        return self.revision < self._peak

    def refusal(self, name: str) -> StoreWentBack | None:
        """Why nothing may be changed now; None when it may."""
        if not self.is_behind:
            return None
        return StoreWentBack(
            f"{name} went back in time: it is at revision {self.revision} and was at {self._peak}; it would"
            " give out revisions and fences once more, and changes are refused. Restore it so that they grow:"
            " etcdutl snapshot restore FILE --bump-revision 1000000000 --mark-compacted (etcd 3.6 or newer);"
            " or begin anew with every process that has seen it, and with whatever remembers a fence"
        )

    def seen(self, revision: int, item: KeyValue | None = None) -> None:
        """A watch or a read has told this revision, and a key that was put."""
        self._advance(max(revision, 0 if item is None else item.mod_revision))
        if item is not None and (self._witness is None or item.mod_revision >= self._witness.mod_revision):
            self._witness = item

    def told(self, cluster_id: int, term: int, revision: int, *, since: Mark) -> HistoryLost | None:
        """Take in the head of an answer that cannot be older than earlier answers. 0 means "not said"."""
        if since[0] != self.losses_count or not revision:
            # Nobody knows which of two histories has answered.
            return None
        self._told_term = term
        if self._is_other(cluster_id):
            why = f"cluster {cluster_id:x} answers, and no longer {self._cluster_id:x}"
            return self._lost(why, cluster_id, revision)
        if revision < since[1]:
            return self._lost(f"it is at revision {revision} and was at {since[1]}", cluster_id, revision)
        self._cluster_id = cluster_id or self._cluster_id
        if not self._term:
            self._term = term
        elif term != self._term:
            self.doubt()
        self._advance(revision)
        return None

    def is_strange(self, cluster_id: int, term: int, revision: int) -> bool:
        """Whether the head of an answer that may be old is a reason to doubt. Any thread may ask."""
        if not revision or not self.revision:
            return False
        return self._is_other(cluster_id) or term != self._term or revision < self.revision

    def confirmed(self, found: KeyValue | None, *, asked: HistoryQuestion) -> HistoryLost | None:
        """The store has the revision that was asked for, and `found` in the witness's place."""
        if asked.mark[0] != self.losses_count:
            return None
        witness = asked.witness
        if witness is None or found == witness:
            self._settle(asked)
            return None
        why = f"at revision {witness.mod_revision} it has something else than was seen there"
        return self._lost(why, self._cluster_id, self.revision)

    def denied(self, revision: int, *, asked: HistoryQuestion) -> HistoryLost | None:
        """The store, which is at this revision now, never had the one that was asked for."""
        if asked.mark[0] != self.losses_count:
            return None
        return self._lost(f"it is at revision {revision} and never was at {asked.mark[1]}", 0, revision)

    def unsettled(self, *, asked: HistoryQuestion) -> None:
        """The store has forgotten the revision that was asked for: there is nothing more to ask."""
        if asked.mark[0] == self.losses_count:
            self._settle(asked)

    def _is_other(self, cluster_id: int) -> bool:
        return 0 not in (cluster_id, self._cluster_id) and cluster_id != self._cluster_id

    def _advance(self, revision: int) -> None:
        if revision > self.revision:
            self.revision = revision
            self._peak = max(self._peak, revision)

    def _settle(self, asked: HistoryQuestion | None) -> None:
        if self._doubted is asked:
            self._doubted = None
            self._term = self._told_term

    def _lost(self, why: str, cluster_id: int, revision: int) -> HistoryLost:
        self._settle(self._doubted)
        self.losses_count += 1
        self._cluster_id = cluster_id or self._cluster_id
        self._witness = None
        self.revision = revision
        self._peak = max(self._peak, revision)
        return HistoryLost(why=why, revision=revision)
