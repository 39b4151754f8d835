"""Who sent what, who got it, and what was reported as lost: the books that a messaging scenario is judged by.

A letter is offered, then accepted or refused by the socket, and received at most once. Letters of one life to
one destination form a channel. A channel in which the socket promises order must deliver in order, and then
each run of missing letters must be covered by the loss reports in their order: a broken connection loses the
tail of what it was handed, never something in the middle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hansa.testing.world import World

__all__ = ["Channel", "Ledger", "Letter"]

ANYBODY = ""


@dataclass(slots=True, kw_only=True)
class Letter:
    """One message on its way. `is_final` letters are sent when all is healed, and have no excuse."""

    sender: str
    destination: str
    number: int
    is_final: bool
    size_bytes: int
    is_accepted: bool = False
    is_refused: bool = False
    is_received: bool = False

    @property
    def parts(self) -> list[bytes]:
        """What goes over the wire; the filling proves that nothing was mixed up or cut."""
        head = [self.sender.encode(), self.destination.encode(), str(self.number).encode()]
        return [*head, self.filling]

    @property
    def filling(self) -> bytes:
        return bytes([self.number % 256]) * self.size_bytes

    def __str__(self) -> str:
        return f"letter {self.number} of {self.sender} to {self.destination or 'anybody'}"


@dataclass(slots=True, kw_only=True)
class Channel:
    """Letters of one life to one destination, in the order in which they were offered."""

    sender: str
    destination: str
    is_ordered: bool
    letters: list[Letter] = field(default_factory=list)
    reports: list[int] = field(default_factory=list)
    last_received: int = -1

    def missing(self) -> list[Letter]:
        return [letter for letter in self.letters if letter.is_accepted and not letter.is_received]

    def unexplained(self) -> str:
        """What is missing and was not reported, or nothing."""
        missing = self.missing()
        if len(missing) <= sum(self.reports) and (not self.is_ordered or self._runs_are_covered()):
            return ""
        numbers = ", ".join(str(letter.number) for letter in missing[:20])
        return (
            f"{self.sender} to {self.destination or 'anybody'}: {len(missing)} letters are missing "
            f"({numbers}), the reports say {self.reports or 'nothing'}"
        )

    def _runs_are_covered(self) -> bool:
        """Match runs of missing letters with reports, both in order; one report explains one run only."""
        reports = iter(self.reports)
        for run in self._missing_runs():
            while run > 0:
                reported = next(reports, None)
                if reported is None:
                    return False
                run -= reported
        return True

    def _missing_runs(self) -> list[int]:
        runs = [0]
        for letter in self.letters:
            if letter.is_accepted and not letter.is_received:
                runs[-1] += 1
            elif letter.is_received:
                runs.append(0)
        return [run for run in runs if run]


class Ledger:
    """All channels of a run. Fails the world at once when a letter arrives that must not."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._channels: dict[tuple[str, str], Channel] = {}

    @property
    def channels(self) -> Iterable[Channel]:
        return self._channels.values()

    def channel(self, sender: str, destination: str, *, is_ordered: bool) -> Channel:
        """The channel, opened when it is first asked for."""
        key = (sender, destination)
        if key not in self._channels:
            self._channels[key] = Channel(sender=sender, destination=destination, is_ordered=is_ordered)
        return self._channels[key]

    def offer(self, channel: Channel, *, size_bytes: int, is_final: bool) -> Letter:
        """Write a letter. It counts once it is accepted."""
        letter = Letter(
            sender=channel.sender,
            destination=channel.destination,
            number=len(channel.letters),
            is_final=is_final,
            size_bytes=size_bytes,
        )
        channel.letters.append(letter)
        return letter

    def settle_offer(self, letter: Letter, *, is_accepted: bool) -> None:
        """The socket took it, or did not; in between, the letter may have arrived already."""
        letter.is_accepted = is_accepted
        letter.is_refused = not is_accepted
        if letter.is_refused and letter.is_received:
            self._world.fail("what was refused is not delivered", f"{letter} was refused, and received")

    def receive(self, receiver: str, parts: list[bytes]) -> Letter:
        """A letter came out of a socket."""
        letter, channel = self._arrived(receiver, parts)
        if channel.is_ordered and letter.number <= channel.last_received:
            self._world.fail(
                "order is kept", f"{letter} came to {receiver} after letter {channel.last_received}"
            )
        channel.last_received = letter.number
        return letter

    def bury(self, receiver: str, parts: list[bytes]) -> None:
        """A letter reached a socket whose program ended before it read it. When is not known any more."""
        self._arrived(receiver, parts)

    def report_lost(self, channel: Channel, count: int) -> None:
        """The sender's socket says that up to so many accepted letters may not arrive."""
        if count:
            channel.reports.append(count)

    def unexplained(self, *, excused: set[str]) -> list[str]:
        """Channels that miss more than was reported, except those of the excused lives."""
        problems = [one.unexplained() for one in self.channels if one.sender not in excused]
        return [problem for problem in problems if problem]

    def missing_finals(self, *, excused: set[str]) -> list[str]:
        """Letters of the quiet phase that have not arrived."""
        return [
            str(letter)
            for one in self.channels
            if one.sender not in excused
            for letter in one.letters
            if letter.is_final and not letter.is_received
        ]

    def _arrived(self, receiver: str, parts: list[bytes]) -> tuple[Letter, Channel]:
        letter, channel = self._find(receiver, parts)
        if letter.is_refused:
            self._world.fail("what was refused is not delivered", f"{letter} was refused; {receiver} got it")
        if letter.is_received:
            self._world.fail("nothing is delivered twice", f"{letter} came to {receiver} again")
        letter.is_received = True
        return letter, channel

    def _find(self, receiver: str, parts: list[bytes]) -> tuple[Letter, Channel]:
        sender, destination, number = (
            part.decode("ascii", "replace") for part in (*parts, b"", b"", b"")[:3]
        )
        channel = self._channels.get((sender, destination))
        index = int(number) if number.isdigit() else -1
        if channel is None or not 0 <= index < len(channel.letters) or destination not in (ANYBODY, receiver):
            self._world.fail("only what was sent is delivered", f"{receiver} got {parts[:3]!r}")
        letter = channel.letters[index]
        if parts != letter.parts:
            self._world.fail("messages arrive whole and alone", f"{letter} came to {receiver} changed")
        return letter, channel
