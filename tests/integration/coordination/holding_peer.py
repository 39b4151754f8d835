"""A process that holds a lock, is a member, and runs code that gives no other thread of it a turn.

It tells what happens in lines of JSON. Input, a line each: `hold SECONDS` holds the interpreter, then tells
what became of the lock; `write TEXT` writes under its fence, and tells whether that was refused.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import repeat
from operator import gt
from typing import Any

from hansa.coordination import FencedKey, Hold, Lock, LoopLagged, Members, NodeInfo, Rejoined, Session
from hansa.errors import Fenced, LockLost
from hansa.store import open_store


def hold_interpreter(seconds: float) -> None:
    """One call into C after the other, and no byte code in between: no other thread gets a turn."""
    all(map(gt, repeat(time.monotonic() + seconds), iter(time.monotonic, None)))


async def main(address: str, ttl_s: float, timeout_s: float) -> None:
    async with (
        open_store(address) as store,
        Members(
            store, NodeInfo(id="held"), heartbeat_interval=timeout_s / 4, heartbeat_timeout=timeout_s
        ) as members,
        Session(store, ttl=ttl_s) as session,
        asyncio.TaskGroup() as tasks,
    ):
        hold = await Lock(session, "dock").acquire()
        cargo = FencedKey(store, "cargo")
        await cargo.take(hold.fence)
        tasks.create_task(tell_members(members))
        tell(event="ready")
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := (await reader.readline()).decode().split():
            if line[0] == "hold":
                await held(float(line[1]), session, hold)
            else:
                await write(cargo, hold, line[1].encode())


async def held(seconds: float, session: Session, hold: Hold) -> None:
    began_s = time.monotonic()
    hold_interpreter(seconds)
    # At once, before the loop or the keeper had a turn.
    is_held, held_s = hold.is_held, time.monotonic() - began_s
    async with asyncio.timeout(10):
        while session.loop_lag_s < seconds / 2:
            await asyncio.sleep(0.001)
    reason = ""
    try:
        hold.check()
    except LockLost as lost:
        reason = str(lost)
    tell(event="held", held_s=held_s, is_held=is_held, reason=reason, lag_s=session.loop_lag_s)


async def write(cargo: FencedKey, hold: Hold, value: bytes) -> None:
    try:
        await cargo.write(hold.fence, value)
    except Fenced as refusal:
        tell(event="written", refusal=type(refusal).__name__)
    else:
        tell(event="written", refusal="")


async def tell_members(members: Members) -> None:
    async for event in members.events():
        if isinstance(event, LoopLagged | Rejoined):
            tell(event=type(event).__name__, reason=event.reason)


def tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
