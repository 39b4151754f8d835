"""stdin and stdout: reads and writes that do not stall the program, and the console for tables.

Reads and writes of pipes, files and terminals may block for ever. Each runs in a thread that does not keep
the process alive, one at a time, on the bare descriptor: Python's own stream objects have locks, which a
blocked thread would hold when the process ends.

rich takes 0.1 s to load, and users of JSON or lines should not wait for it. So each function that draws loads
it, and no module does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from hansa.errors import BadArgument
from hansa.limits import FRAME_BYTES_MAX
from hansa.runtime.tasks import in_thread

if TYPE_CHECKING:
    from rich.console import Console

_READ_BYTES: Final = 64 * 1024
# How long the end of a program waits for the reader to take the last lines.
FLUSH_S_MAX: Final = 1.0


class Lines:
    """Cuts a stream of bytes into lines, without their ends."""

    def __init__(self, line_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._rest = bytearray()

    def cut(self, chunk: bytes) -> list[bytes]:
        """The lines that the chunk completes. Raises BadArgument for a line that is too long to be sent."""
        *ended, rest = chunk.split(b"\n")
        lines = []
        for line in ended:
            lines.append(bytes(self._rest) + line)
            self._rest.clear()
        self._rest += rest
        if max(map(len, (*lines, self._rest))) > self._line_bytes_max:
            raise BadArgument(
                f"a line is longer than the {self._line_bytes_max} bytes that one part may have"
            )
        return lines

    def last(self) -> list[bytes]:
        """The bytes after the last line's end, if there are any."""
        return [bytes(self._rest)] if self._rest else []


async def read_lines(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Every line as it comes, until the stream ends. It reads only as fast as the lines are taken.

    Raises BadArgument for a line that is too long to be sent.
    """
    lines = Lines()
    while chunk := await in_thread(lambda: os.read(descriptor, _READ_BYTES), "reading lines")[0]:
        for line in lines.cut(chunk):
            yield line
    for line in lines.last():
        yield line


class Output:
    """Writes to a descriptor, stdout by default, without stopping the event loop."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._thread: threading.Thread | None = None
        # Line ends that a reader has, or that wait for it in the pipe.
        self.lines_count = 0

    async def write(self, chunk: bytes) -> None:
        """Write it; returns when the reader has room for all of it. Raises BrokenPipeError when it has left.

        A call that is cancelled has still written, or continues to: `flush` waits for it.
        """
        written, self._thread = in_thread(lambda: self._write(chunk), "writing lines")
        await written

    def flush(self) -> None:
        """Wait a moment for the rest of a cancelled call."""
        if self._thread is not None:
            self._thread.join(FLUSH_S_MAX)

    def _write(self, chunk: bytes) -> None:
        while chunk:
            written = os.write(self._descriptor, chunk)
            self.lines_count += chunk.count(b"\n", 0, written)
            chunk = chunk[written:]


def console() -> Console:
    """Standard output, with a table's own colours and no others."""
    from rich.console import Console

    return Console(highlight=False)
