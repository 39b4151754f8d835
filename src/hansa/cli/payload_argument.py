"""Payloads as they are typed (text, `-` for standard input, `@path` for a file), and replies as shown."""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

from hansa.cli.log_lines import visible
from hansa.errors import BadArgument
from hansa.limits import FRAME_BYTES_MAX


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
