"""What a worker is told to do."""

from dataclasses import dataclass

from bench.case import Case
from bench.peers import Peer

BACKLOG_BYTES = 64 * 1024 * 1024
BACKLOG_COUNT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The first argument of every role of a peer's module."""

    peer: Peer
    case: Case
    address: str
    """host:port of the server, the publisher or the broker of this trial."""
    second_address: str
    """Another, for what listens at two places."""
    third_address: str
    """A third one, for a store beside a registry."""
    index: int
    """Which of the workers with the same role this is, from 0."""

    @property
    def payload(self) -> bytes:
        """What travels: of the case's size, and not one repeated byte."""
        return bytes(number * 167 % 251 for number in range(self.case.size_bytes))

    @property
    def backlog_count(self) -> int:
        """The bound of a peer's buffers in messages, where it can be set: 64 MiB, and 100,000 at most."""
        return min(BACKLOG_COUNT, BACKLOG_BYTES // max(1, self.case.size_bytes))
