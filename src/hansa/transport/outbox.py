"""The outbox of one peer: messages that wait to be written, bounded in bytes and messages. Pure.

Messages are kept in wire form, in batches that end at message boundaries: a batch is handed to the connection
in one write, and is carried over whole when the connection breaks before that. The outbox also knows when its
driver must act: a message that only joins others costs no call.

Compiled by mypyc together with the frame encoder: every outgoing message passes through here (`make bench`,
cases rr and pub).
"""

from collections import deque
from typing import Final

from hansa.limits import WRITE_JOIN_BYTES, WRITE_TURN_BYTES
from hansa.wire.frames import encode

# What the driver must do after `put`.
FULL: Final = -1  # Nothing was taken: the policy decides.
QUIET: Final = 0  # Nothing to do: a flush is due already, or the box is stalled.
ROUSE: Final = 1  # Flush at the end of this turn.
BURST: Final = 2  # A turn's worth waits: flush now.


class Batch:
    """Whole messages in wire form. `large` says that some of them must not be joined with the rest."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.count = 0
        self.size_bytes = 0
        self.large = False

    def buffers(self) -> list[bytes]:
        """What to write, in order: small pieces joined, large ones as they are."""
        if not self.large:
            return [b"".join(self.pieces)]
        buffers: list[bytes] = []
        small: list[bytes] = []
        for piece in self.pieces:
            if len(piece) < WRITE_JOIN_BYTES:
                small.append(piece)
                continue
            if small:
                buffers.append(b"".join(small))
                small = []
            buffers.append(piece)
        if small:
            buffers.append(b"".join(small))
        return buffers


class Outbox:
    """A bounded queue of encoded messages. Bounds are checked before a message is taken, not after.

    One message may therefore exceed what is left of the bytes: a message larger than the whole bound can
    still be sent when nothing else waits.
    """

    def __init__(self, *, bytes_max: int, count_max: int, burst_count: int) -> None:
        self.bytes_max = bytes_max
        self.count_max = count_max
        self.burst_count = burst_count
        """This many messages are a turn's worth, however small."""
        self.held_bytes = 0
        self.held_count = 0
        self.taken_count = 0
        """Messages accepted since the beginning, whatever became of them."""
        self.dropped_count = 0
        """Messages not accepted because of the bounds, where that is the policy."""
        self.stalled = True
        """Nothing can be written now: there is no connection, or it takes no more."""
        self.due = False
        """The driver will flush at the end of this turn."""
        self._open = Batch()
        self._sealed: deque[Batch] = deque()

    def has_room(self) -> bool:
        return self.held_bytes < self.bytes_max and self.held_count < self.count_max

    def put(self, parts: list[bytes]) -> int:
        """Take a message: FULL, QUIET, ROUSE or BURST. Raises BadArgument, with nothing taken."""
        if self.held_bytes >= self.bytes_max or self.held_count >= self.count_max:
            return FULL
        batch = self._open
        return self._grow(batch, encode(parts, batch.pieces))

    def put_beyond(self, parts: list[bytes], extra_count: int, extra_bytes: int) -> int:
        """As `put`, past the bounds by this much: for messages that keep two peers in step."""
        if self.held_bytes >= self.bytes_max + extra_bytes or self.held_count >= self.count_max + extra_count:
            return FULL
        batch = self._open
        return self._grow(batch, encode(parts, batch.pieces))

    def put_encoded(self, pieces: list[bytes], size_bytes: int) -> int:
        """The same for a message in wire form, as when many peers get it."""
        if self.held_bytes >= self.bytes_max or self.held_count >= self.count_max:
            return FULL
        batch = self._open
        if len(pieces) == 1:
            batch.pieces.append(pieces[0])
        else:
            batch.pieces.extend(pieces)
        return self._grow(batch, size_bytes)

    def _grow(self, batch: Batch, size_bytes: int) -> int:
        batch.count += 1
        batch.size_bytes += size_bytes
        if size_bytes >= WRITE_JOIN_BYTES:
            batch.large = True
        self.taken_count += 1
        self.held_count += 1
        self.held_bytes += size_bytes
        if batch.size_bytes >= WRITE_TURN_BYTES:
            self._sealed.append(batch)
            self._open = Batch()
        if self.stalled:
            return QUIET
        if self.held_bytes >= WRITE_TURN_BYTES or self.held_count >= self.burst_count:
            return BURST
        if self.due:
            return QUIET
        self.due = True
        return ROUSE

    def stall(self) -> None:
        """Nothing can be written from now on."""
        self.stalled = True

    def flow(self) -> None:
        """There is a connection that takes bytes again."""
        self.stalled = False

    def drop(self) -> None:
        """A message that found no room is given up."""
        self.dropped_count += 1

    def begin_flush(self) -> None:
        """The driver writes what it can: later messages rouse it again."""
        self.due = False

    def take_counts(self) -> tuple[int, int]:
        """Messages accepted and dropped since the last call."""
        counts = self.taken_count, self.dropped_count
        self.taken_count = self.dropped_count = 0
        return counts

    def take(self) -> Batch | None:
        """The next batch to write, oldest first; it is no longer held here."""
        if self._sealed:
            batch = self._sealed.popleft()
        elif self._open.count:
            batch = self._open
            self._open = Batch()
        else:
            return None
        self.held_count -= batch.count
        self.held_bytes -= batch.size_bytes
        return batch

    def absorb(self, earlier: "Outbox") -> None:
        """Put everything that `earlier` holds before what is held here, past the bounds if need be.

        Those messages were accepted once; refusing them now would lose them.
        """
        batches: list[Batch] = []
        batch = earlier.take()
        while batch is not None:
            batches.append(batch)
            batch = earlier.take()
        for batch in reversed(batches):
            self._sealed.appendleft(batch)
            self.held_count += batch.count
            self.held_bytes += batch.size_bytes

    def clear(self) -> int:
        """Forget everything; returns how many messages there were."""
        count = self.held_count
        self._sealed.clear()
        self._open = Batch()
        self.held_count = 0
        self.held_bytes = 0
        return count
