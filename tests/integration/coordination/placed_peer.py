"""Takes part in the hand-overs of entries that are placed, in a process of its own: see `placed_cast`.

    python tests/integration/coordination/placed_peer.py STORE CLUSTER NAME LEASE_S

It tells what happens in lines of JSON. Input, a line each: `open` lets go on what is held, `write` writes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.support.placed_cast import play  # noqa: E402


async def main(address: str, cluster: str, name: str, lease_s: str) -> None:
    orders: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(play(address, cluster, name, float(lease_s), tell, orders))
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := (await reader.readline()).decode().strip():
            orders.put_nowait(line)


def tell(event: str, entry: str = "", **found: Any) -> None:
    print(json.dumps({"event": event, "entry": entry} | found), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
