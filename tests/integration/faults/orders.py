"""How the programs of this folder are told what to do (lines on stdin) and tell what they did (on stdout)."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any


async def orders() -> AsyncIterator[str]:
    """Each line, until stdin ends: a program that outlived its test would be left over."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            yield line.decode().strip()
    finally:
        transport.close()


def tell(event: str, **facts: Any) -> None:
    """One line of JSON."""
    print(json.dumps({"event": event, **facts}), flush=True)


def rss_kib() -> int:
    """The memory of this process that is in RAM now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not tell VmRSS")
