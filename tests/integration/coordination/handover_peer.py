"""A node that owns six locks and hands them over, or waits for them: each is held at another step.

    python tests/integration/coordination/handover_peer.py STORE CLUSTER NODE LEASE_S TIMEOUT_S

The locks are called by the steps at which they stand still: of `offered` the offer is committed, and whoever
writes the next step holds it back until it hears `open`. The owner of `withdrawn` is unwilling when the new
owner is ready. It tells what happens in lines of JSON. Input, a line each: `acquire`; `give NODE` hands all
over; `heed` does so when somebody asks, and `ask NODE` asks; `open`; `write` tries to write under each fence
that it ever had, and tells what it holds and could write.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa.coordination import FencedKey, Handovers, Hold, Lock, Session  # noqa: E402
from hansa.coordination.handover import HandoverStep  # noqa: E402
from hansa.errors import HansaError, UsageError  # noqa: E402
from hansa.store import Store, open_store  # noqa: E402
from tests.support.gated_store import GatedStore  # noqa: E402

# The step that comes after the one by which the lock is called.
NEXT_STEPS = {
    "offered": HandoverStep.PREPARED,
    "prepared": HandoverStep.SEALED,
    "sealed": HandoverStep.TAKEN,
    "taken": HandoverStep.DONE,
    "done": None,
    "withdrawn": None,
}


async def unwilling() -> bytes:
    raise UsageError("its work cannot be interrupted")


class Node:
    """One process, with a session for each lock, so that each has a gate of its own."""

    def __init__(
        self,
        store: Store,
        cluster: str,
        name: str,
        lease_s: float,
        timeout_s: float,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._name = name
        self._lease_s = lease_s
        self._timeout_s = timeout_s
        self._tasks = tasks
        self._gates: dict[str, GatedStore] = {}
        self._holds: dict[str, Hold] = {}

    async def enter(self, stack: AsyncExitStack) -> None:
        for lock, step in NEXT_STEPS.items():
            gate = self._gates[lock] = GatedStore(self._store)
            if step is not None:
                gate.hold(step)
                self._tasks.create_task(self._tell_held(lock, step))
            session = Session(gate, self._lease_s, cluster=self._cluster, node=self._name)
            self._tasks.create_task(self._acquire(lock, await stack.enter_async_context(session)))

    async def _tell_held(self, lock: str, step: HandoverStep) -> None:
        await self._gates[lock].reached(step)
        tell("held", lock)

    async def _acquire(self, lock: str, session: Session) -> None:
        try:
            hold = await Lock(session, lock).acquire()
            if hold.state:
                tell("read", lock, state=hold.state.decode())
            register = FencedKey(self._store, f"{self._cluster}/{lock}")
            before = await register.take(hold.fence)
            await register.write(hold.fence, self._name.encode())
        except HansaError as error:
            tell("failed", lock, error=error.code)
            return
        self._holds[lock] = hold
        tell("owns", lock, state=hold.state.decode(), before=(before or b"").decode(), fence=hold.fence)

    def give(self, to: str | None) -> None:
        """Hand all over to a node, or to whichever somebody asks for."""
        for lock in self._holds:
            self._tasks.create_task(self._give(lock, to))

    async def _give(self, lock: str, to: str | None) -> None:
        try:
            if to is None:
                to = (await self._holds[lock].wanted()).target
            state = unwilling if lock == "withdrawn" else f"state of {lock}".encode()
            record = await self._holds[lock].hand_over(to, state=state, timeout=self._timeout_s)
        except HansaError as error:
            tell("kept", lock, error=error.code, is_held=self._holds[lock].is_held)
        else:
            tell("gave", lock, step=record.step.value, is_held=self._holds[lock].is_held)

    def ask(self, to: str) -> None:
        """Have all handed over to a node, whoever has them."""
        for lock in NEXT_STEPS:
            self._tasks.create_task(self._ask(lock, to))

    async def _ask(self, lock: str, to: str) -> None:
        handovers = Handovers(self._store, cluster=self._cluster, name=self._name)
        record = await handovers.move("lock", lock, to, timeout=self._timeout_s)
        tell("asked", lock, step=record.step.value)

    def open(self) -> None:
        for lock, step in NEXT_STEPS.items():
            if step is not None and lock in self._gates:
                self._gates[lock].open(step)

    async def write(self) -> None:
        could: dict[str, str] = {}
        for lock, hold in self._holds.items():
            register = FencedKey(self._store, f"{self._cluster}/{lock}")
            try:
                await register.take(hold.fence)
                await register.write(hold.fence, self._name.encode())
            except HansaError as error:
                could[lock] = error.code
            else:
                could[lock] = "written"
        tell("wrote", could=could, held=sorted(lock for lock, hold in self._holds.items() if hold.is_held))


async def main(address: str, cluster: str, name: str, lease_s: str, timeout_s: str) -> None:
    async with open_store(address) as store, AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        node = Node(store, cluster, name, float(lease_s), float(timeout_s), tasks)
        tell("ready")
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := (await reader.readline()).decode().split():
            match line:
                case ["acquire"]:
                    await node.enter(stack)
                case ["give", to]:
                    node.give(to)
                case ["heed"]:
                    node.give(None)
                case ["ask", to]:
                    node.ask(to)
                case ["open"]:
                    node.open()
                case ["write"]:
                    await node.write()


def tell(event: str, lock: str = "", **found: Any) -> None:
    print(json.dumps({"event": event, "lock": lock} | found), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
