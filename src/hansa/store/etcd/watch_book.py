"""The watches over one stream of an etcd server: put together, resumed, and bounded. Pure.

A *tape* holds what one watch has heard and not told yet. It knows the next revision that it wants, and the
driver asks every new stream, at whichever member, from there on: that is all it takes to resume without a gap
and without repeats. If a watch starts "now", the current revision is asked first, with a read that all
members agree on. So no watch is requested without a start, and a member that lags cannot tell it anything
older. A tape that wants to begin beyond that revision comes from a history that was lost: etcd would let it
wait, here it is ended.

etcd sends one revision whole, unless it is so large that the answer is sent in fragments; only the last
fragment says that it is the last. So a revision is complete when a later one comes or an answer ends.

etcd tells how far a quiet tape has come in an answer without events under the watch's own number
(`progress_notify`, every ten minutes unless configured otherwise). It goes the same way as the events, behind
them. The answer to a progress *request* goes another way, and before 3.4.25 and 3.5.8 it may overtake older
events: its revision is never believed. It only shows that the member is alive.
"""

from collections import deque
from collections.abc import Sequence

from hansa.errors import Compacted, HandshakeRefused, HansaError, StoreUnavailable, WatchOverrun
from hansa.limits import STORE_WATCH_BYTES_MAX, STORE_WATCH_COUNT_MAX, STORE_WATCHERS_MAX
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd.messages import event_from_message
from hansa.store.values import FROM_KEY, Event, WatchBatch
from hansa.store.watching import event_bytes


class WatchTape:
    """One watch: what was heard and not taken yet, and where to resume."""

    def __init__(
        self,
        key: bytes,
        range_end: bytes,
        *,
        start_revision: int = 0,
        before: bool = False,
        count_max: int = STORE_WATCH_COUNT_MAX,
        bytes_max: int = STORE_WATCH_BYTES_MAX,
    ) -> None:
        self.key = key
        self.range_end = range_end
        self.before = before
        # 0: from now on, and the current revision is not known yet.
        self.start_revision = start_revision
        self.next_revision = start_revision
        # Whether the store is known to have reached the start revision.
        self.is_begun = start_revision > 0
        # The store's revision when a member first had the watch; 0 before.
        self.created_revision = 0
        self.error: HansaError | None = None
        self.repeats_count = 0
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._backlog: deque[WatchBatch] = deque()
        self._backlog_count = 0
        self._backlog_bytes = 0
        # The events of the revision that is being put together.
        self._open: list[Event] = []

    @property
    def is_surely_kept(self) -> bool:
        """Whether the store surely had all that was asked for: it began in the future, or has told."""
        return self.start_revision > self.created_revision or self.next_revision > self.start_revision

    def begin(self, revision: int) -> None:
        """The store is at this revision now: the watch begins with the next one, or an earlier one."""
        if self.start_revision > revision + 1:
            self.fail(
                Compacted(
                    f"no watcher from revision {self.start_revision}: the store is at {revision}; what it had"
                    " then is lost",
                    revision,
                )
            )
        elif not self.start_revision:
            self.start_revision = self.next_revision = revision + 1
        self.is_begun = True

    def request(self, watch_id: int) -> api.WatchRequest:
        """The request for a member."""
        return api.WatchRequest(
            create_request=api.WatchCreateRequest(
                key=self.key,
                range_end=self.range_end,
                start_revision=self.next_revision,
                progress_notify=True,
                prev_kv=self.before,
                watch_id=watch_id,
                fragment=True,
            )
        )

    def hear(self, response: api.WatchResponse) -> None:
        """Take in an answer for this watch that does not end it."""
        if response.created:
            self.created_revision = self.created_revision or response.header.revision
            return
        for message in response.events:
            event = event_from_message(message)
            if event.item.mod_revision < self.next_revision:
                self.repeats_count += 1
                continue
            if self._open and event.item.mod_revision != self._open[0].item.mod_revision:
                self._complete()
            self._open.append(event)
        if response.fragment:
            return
        if self._open:
            self._complete()
        elif not response.events:
            self.next_revision = max(self.next_revision, response.header.revision + 1)

    def break_off(self) -> None:
        """The stream is gone. An incomplete revision is requested again."""
        self._open.clear()

    def fail(self, error: HansaError) -> None:
        """Raise this error after all that was heard, and tell nothing more."""
        if self.error is None:
            self.error = error
        self._open.clear()

    def take(self) -> WatchBatch | None:
        """The oldest revision that was not taken yet; None when there is none.

        Raises the error that ended it.
        """
        if self._backlog:
            batch = self._backlog.popleft()
            self._backlog_count -= len(batch.events)
            self._backlog_bytes -= sum(map(event_bytes, batch.events))
            return batch
        if self.error is not None:
            # Without its old traceback: the same error is raised again and again.
            raise self.error.with_traceback(None)
        return None

    def _complete(self) -> None:
        events, self._open = tuple(self._open), []
        revision = events[0].item.mod_revision
        if self.error is not None:
            return
        count = self._backlog_count + len(events)
        bytes_count = self._backlog_bytes + sum(map(event_bytes, events))
        # A tape with an empty backlog takes a revision of any size: a revision cannot be told in parts.
        if self._backlog and (count > self._count_max or bytes_count > self._bytes_max):
            self.error = WatchOverrun(
                f"a watcher of {self.key!r} let {self._backlog_count} events wait and was ended;"
                f" watch again from revision {revision}",
                revision,
            )
            return
        self._backlog.append(WatchBatch(revision=revision, events=events))
        self._backlog_count, self._backlog_bytes = count, bytes_count
        self.next_revision = revision + 1


class WatchBook:
    """All tapes of a store, and the number of each on the stream that is open now."""

    def __init__(self, *, tapes_max: int = STORE_WATCHERS_MAX) -> None:
        self._tapes_max = tapes_max
        # Dicts as sets that keep their order.
        self._tapes: dict[WatchTape, None] = {}
        self._unasked: dict[WatchTape, None] = {}
        self._by_id: dict[int, WatchTape] = {}
        self._ids: dict[WatchTape, int] = {}
        self._ids_count = 0
        # Numbers that were requested and not confirmed yet, in order.
        self._unconfirmed: dict[int, None] = {}
        self._cancels: list[api.WatchRequest] = []
        # Tapes that a member refused although we had authenticated.
        self._denied: dict[WatchTape, None] = {}

    def __len__(self) -> int:
        return len(self._tapes)

    def add(self, tape: WatchTape) -> None:
        if len(self._tapes) >= self._tapes_max:
            tape.fail(StoreUnavailable(f"this client has {self._tapes_max} watchers and takes no more"))
            return
        self._tapes[tape] = None
        self._unasked[tape] = None

    def remove(self, tape: WatchTape) -> None:
        """The tape wants nothing more. Removing twice is once."""
        self._tapes.pop(tape, None)
        self._unasked.pop(tape, None)
        self._denied.pop(tape, None)
        watch_id = self._ids.pop(tape, 0)
        if watch_id:
            del self._by_id[watch_id]
            self._cancels.append(api.WatchRequest(cancel_request=api.WatchCancelRequest(watch_id=watch_id)))

    @property
    def key(self) -> bytes:
        """A key that the watchers may see."""
        return next((tape.key for tape in self._tapes), FROM_KEY)

    def unbegun(self) -> list[WatchTape]:
        """The tapes that wait to be told the current revision."""
        return [tape for tape in self._unasked if not tape.is_begun]

    def requests(self) -> list[api.WatchRequest]:
        """What to send on the open stream now."""
        said, self._cancels = self._cancels, []
        for tape in list(self._unasked):
            if tape.is_begun:
                del self._unasked[tape]
                # Never a number that was used before: late answers for an old number find no tape.
                self._ids_count += 1
                self._ids[tape] = self._ids_count
                self._by_id[self._ids_count] = tape
                self._unconfirmed[self._ids_count] = None
                said.append(tape.request(self._ids_count))
        return said

    def hear(self, response: api.WatchResponse) -> tuple[Sequence[WatchTape], bool]:
        """Take in an answer; returns the tapes with news, and whether the stream must be opened again."""
        watch_id = response.watch_id
        if response.created and response.canceled and watch_id not in self._unconfirmed:
            # Some versions refuse without naming the watch. They answer in the order of the requests.
            watch_id = next(iter(self._unconfirmed), watch_id)
        if response.created:
            self._unconfirmed.pop(watch_id, None)
        tape = self._by_id.get(watch_id)
        if tape is None:
            return (), False
        if response.canceled:
            return self._cancelled(tape, response)
        tape.hear(response)
        if response.created:
            self._denied.pop(tape, None)
        if tape.error is not None:
            self.remove(tape)
        return (tape,), False

    def break_off(self) -> None:
        """The stream is gone, and with it all numbers."""
        for tape in self._ids:
            tape.break_off()
        self._unasked = dict.fromkeys(self._tapes)
        self._ids.clear()
        self._by_id.clear()
        self._unconfirmed.clear()
        self._cancels.clear()

    def fail_all(self, error: HansaError, *, only_begun: bool = False) -> list[WatchTape]:
        """End all tapes, or only those that have begun; returns them."""
        tapes = [tape for tape in self._tapes if tape.is_begun or not only_begun]
        for tape in tapes:
            tape.fail(error)
            self.remove(tape)
        return tapes

    def _cancelled(self, tape: WatchTape, response: api.WatchResponse) -> tuple[Sequence[WatchTape], bool]:
        # The member no longer knows the number: there is nothing to cancel.
        del self._by_id[self._ids.pop(tape)]
        if response.compact_revision:
            oldest = response.compact_revision
            tape.fail(
                Compacted(
                    f"no watcher from revision {tape.next_revision}: the store remembers from {oldest} on",
                    oldest,
                )
            )
        elif "permission denied" in response.cancel_reason and tape not in self._denied:
            # etcd also says so to a token that has grown old. A new stream comes with a new token.
            self._denied[tape] = None
            return (), True
        elif "permission denied" in response.cancel_reason:
            tape.fail(HandshakeRefused(f"the store says: {response.cancel_reason}", "permission-denied"))
        elif response.created:
            tape.fail(StoreUnavailable(f"the store takes no such watcher: {response.cancel_reason}"))
        else:
            return (), True
        self.remove(tape)
        return (tape,), False
