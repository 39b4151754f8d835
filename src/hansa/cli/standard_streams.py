"""stdin and stdout: payloads and replies, lines that do not stall the program, and the console for tables.

A payload is typed: as text, as `-` for standard input, or as `@path` for a file. It is read before anything
else runs, and that may block. While a program runs, nothing may block it, and a read or write of a pipe, a
file or a terminal may take for ever. So each runs in a thread that does not keep the process alive, one at a
time, on the bare descriptor: Python's own stream objects have locks, which a blocked thread would hold when
the process ends.

rich takes 0.1 s to load, and users of JSON or lines should not wait for it. So each function that draws loads
it, and no module does.
"""

from __future__ import annotations

import os
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hansa.cli.log_lines import visible
from hansa.errors import BadArgument
from hansa.limits import FRAME_BYTES_MAX
from hansa.runtime.tasks import in_thread

if TYPE_CHECKING:
    from rich.console import Console

_READ_BYTES: Final = 64 * 1024
# How long the end of a program waits for the reader to take the last lines.
FLUSH_S_MAX: Final = 1.0


# ---- payloads and replies -----------------------------------------------------------------------------


def read_payload(argument: str) -> bytes:
    """The bytes that the argument stands for; `@@text` is the text `@text`. Raises BadArgument."""
    if argument == "-":
        payload = sys.stdin.buffer.read(FRAME_BYTES_MAX + 1)
    elif argument.startswith("@@"):
        payload = argument[1:].encode(errors="surrogateescape")
    elif argument.startswith("@"):
        payload = _read_file(Path(argument[1:]))
    else:
        # Bytes that the shell gave and Python turned into text go out as the same bytes.
        payload = argument.encode(errors="surrogateescape")
    if len(payload) > FRAME_BYTES_MAX:
        raise BadArgument(f"the payload is larger than the {FRAME_BYTES_MAX} bytes that one part may have")
    return payload


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FRAME_BYTES_MAX + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise BadArgument(f"{path} cannot be read ({why}); write @@ for text that begins with @") from error


def parts_object(parts: list[bytes]) -> dict[str, Any]:
    """A reply as JSON: as text where all of it is, else as base64."""
    try:
        return {"encoding": "utf-8", "parts": [part.decode() for part in parts]}
    except UnicodeDecodeError:
        return {"encoding": "base64", "parts": [b64encode(part).decode() for part in parts]}


def part_lines(part: bytes, *, for_terminal: bool) -> bytes:
    """A part as lines: it ends with a newline, and a terminal gets no characters that it would obey."""
    if for_terminal:
        text = part.decode(errors="backslashreplace")
        part = "\n".join(map(visible, text.split("\n"))).encode()
    return part if part.endswith(b"\n") else part + b"\n"


# ---- lines --------------------------------------------------------------------------------------------


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


# ---- tables -------------------------------------------------------------------------------------------


def console() -> Console:
    """Standard output, with a table's own colours and no others."""
    from rich.console import Console

    return Console(highlight=False)
