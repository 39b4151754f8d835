"""A member in a process of its own: joins, tells every event as a line of JSON, and does what its input says.

Input, a line each: `block SECONDS` stops the event loop, `leave` leaves.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from hansa.coordination import Members, MembersEvent, NodeInfo
from hansa.runtime.mailboxes import EventStream
from hansa.store import open_store


async def main(address: str, name: str, interval_s: float, timeout_s: float) -> None:
    store = open_store(address)
    async with (
        store,
        Members(
            store, NodeInfo(id=name), heartbeat_interval=interval_s, heartbeat_timeout=timeout_s
        ) as members,
    ):
        events = members.events()
        tell({"event": "ready", "members": sorted(members.view), "incarnation": members.me.incarnation})
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(tell_all(events))
            await obey(interval_s)
            telling.cancel()
    tell({"event": "left"})


async def tell_all(events: EventStream[MembersEvent]) -> None:
    async for event in events:
        found: dict[str, Any] = {"event": type(event).__name__, "reason": event.reason}
        if (member := getattr(event, "member", None)) is not None:
            found |= {"id": member.id, "incarnation": member.incarnation}
        tell(found)


async def obey(rest_s: float) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := (await reader.readline()).decode().split():
        if line[0] == "leave":
            return
        # The whole point: this stops the loop, and everything on it.
        time.sleep(float(line[1]))  # noqa: ASYNC251
        # The loop runs for a while, on time, before anybody hears of it.
        await asyncio.sleep(rest_s)
        tell({"event": "blocked"})


def tell(found: dict[str, Any]) -> None:
    print(json.dumps(found | {"at": time.monotonic()}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
