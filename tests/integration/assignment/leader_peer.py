"""Leads a group in a process of its own, until it stands still at a step, where harm comes to it.

    python tests/integration/assignment/leader_peer.py STORE CLUSTER STEP [NUMBER]

From the first line on that it hears it counts the writes that make this STEP (`plan`: a plan counts from then
on; a step of a hand-over; `end`: a plan has ended). It does not send the one with this NUMBER, nor anything
after it, until it hears a second line: then it sends that one whatever has become of whoever wanted it, and
tells what came of it. `none` never stops. It tells `ready`, `armed`, `halted` and `late` in lines of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa.assignment.assigner import Assigner  # noqa: E402
from hansa.coordination import Members, NodeInfo  # noqa: E402
from hansa.errors import HansaError  # noqa: E402
from hansa.keys import Keys  # noqa: E402
from hansa.limits import STORE_TIMEOUT_S  # noqa: E402
from hansa.store import Store, open_store  # noqa: E402
from hansa.store.values import Compare, Operation, Outcome, Put  # noqa: E402
from tests.support.gated_store import step_in  # noqa: E402

GROUP = "led"
HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S = 0.5, 2.0


class HaltingLeader:
    """The store, to which nothing is written from one step on until it is let go on."""

    def __init__(self, store: Store, head: bytes, step: str, number: int) -> None:
        self._store = store
        self._head = head
        self._step = step
        self._left_count = number
        self._released = asyncio.Event()
        self._sending: asyncio.Task[Outcome] | None = None
        self.is_armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def release(self) -> None:
        self._released.set()

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        if self.is_armed and self._step in self._steps(then):
            self._left_count -= 1
            if self._left_count == 0:
                tell("halted")
                late = self._send_late(compares, then, otherwise, timeout)
                self._sending = asyncio.create_task(late, name="sends it late")
                return await asyncio.shield(self._sending)
        if self._left_count <= 0:
            await self._released.wait()
        return await self._store.commit(compares, then, otherwise, timeout=timeout)

    async def _send_late(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        otherwise: Sequence[Operation],
        timeout: float | None,
    ) -> Outcome:
        await self._released.wait()
        try:
            outcome = await self._store.commit(compares, then, otherwise, timeout=timeout)
        except HansaError as error:
            tell("late", outcome=error.code)
            raise
        tell("late", outcome="done" if outcome.is_success else "refused")
        return outcome

    def _steps(self, then: Sequence[Operation]) -> list[str]:
        heads = [each for each in then if isinstance(each, Put) and each.key == self._head]
        steps = ["plan" if json.loads(each.value)["state"] == "open" else "end" for each in heads]
        step = step_in(then)
        return steps if step is None else [*steps, step.value]


async def main(address: str, cluster: str, step: str, number: str = "1") -> None:
    async with open_store(address) as real:
        head = Keys(cluster).plans(GROUP) + b"head"
        halting = HaltingLeader(real, head, step, int(number))
        members = Members(
            cast(Store, halting),
            NodeInfo(id="leader"),
            cluster=cluster,
            heartbeat_interval=HEARTBEAT_INTERVAL_S,
            heartbeat_timeout=HEARTBEAT_TIMEOUT_S,
        )
        async with members, asyncio.TaskGroup() as tasks:
            tasks.create_task(Assigner(members, GROUP).run())
            tell("ready")
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
            )
            await reader.readline()
            halting.is_armed = True
            tell("armed")
            await reader.readline()
            halting.release()


def tell(event: str, **found: str) -> None:
    print(json.dumps({"event": event} | found), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
