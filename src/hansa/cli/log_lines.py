"""The output of a running command on stdout: a line per event, for people or as JSON.

A log must not stop the program that writes it. A thread of its own writes the lines, so a reader that stalls
(a pipe that nobody empties, a stopped terminal) holds up nobody; when too many lines wait, new ones are
dropped and counted, and the next line that finds room says how many.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

# A few seconds of a busy registry; a reader that is further behind has stalled.
LINES_WAITING_MAX: Final = 10_000
# How long closing waits for the reader to take the last lines.
FLUSH_S_MAX: Final = 1.0


class LogLines:
    """Writes lines to a file descriptor, in order, without ever making the caller wait.

    `on_broken` is called once, in the writing thread, when the reader has closed its end: from then on all
    lines are dropped. A context manager: leaving it waits a moment for the last lines.
    """

    def __init__(
        self, *, as_json: bool, descriptor: int = 1, on_broken: Callable[[], object] | None = None
    ) -> None:
        self.as_json = as_json
        self.dropped_count = 0
        self._descriptor = descriptor
        self._on_broken = on_broken
        self._untold_count = 0
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_broken = False
        # A daemon thread: a reader that never reads must not keep the process alive.
        self._thread = threading.Thread(target=self._write_all, name="log lines", daemon=True)

    def __enter__(self) -> LogLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(FLUSH_S_MAX)

    def tell(self, event: str, sentence: str, **facts: Any) -> None:
        """Tell one event: its sentence for people, or its name and facts as a JSON object on one line."""
        line = json.dumps({"event": event, **facts}) if self.as_json else visible(sentence)
        with self._changed:
            if self._is_broken or len(self._lines) >= LINES_WAITING_MAX:
                self.dropped_count += 1
                self._untold_count += 1
                return
            if self._untold_count:
                self._lines.append(self._gap())
            self._lines.append(line.encode(errors="backslashreplace") + b"\n")
            self._changed.notify_all()

    def _gap(self) -> bytes:
        count, self._untold_count = self._untold_count, 0
        if self.as_json:
            return json.dumps({"event": "lines-dropped", "count": count}).encode() + b"\n"
        return f"({count} lines dropped: the reader was too slow)\n".encode()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._is_closed:
                    self._changed.wait()
                if not self._lines:
                    return
                chunk = b"".join(self._lines)
                self._lines.clear()
            try:
                while chunk:
                    # Not through sys.stdout: its lock, held by a stalled write, would stop the exit.
                    chunk = chunk[os.write(self._descriptor, chunk) :]
            except OSError:
                with self._changed:
                    self._is_broken = True
                    self.dropped_count += len(self._lines)
                    self._lines.clear()
                if self._on_broken is not None:
                    self._on_broken()
                return


def moment_of(since: float) -> str:
    """A wall time, in local time; empty when it is not known."""
    if not since:
        return ""
    try:
        return f"{datetime.fromtimestamp(since):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):  # A peer's clock may say anything.
        return "?"


def by_whom(node: str, since: float) -> str:
    """Who has something, and since when, as the end of a sentence; empty if an older process does not say."""
    return f" by {visible(node)} since {moment_of(since)}" if node else ""


def counted(count: int, noun: str) -> str:
    """A number of things, with the noun in the right form."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: int) -> str:
    """A number of bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def visible(text: str) -> str:
    """The text with escapes for characters that a terminal would obey: names come from peers."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
