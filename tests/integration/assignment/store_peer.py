"""A worker in a process of its own that adds up its partitions' messages: see `tests.support.sums`.

    python tests/integration/assignment/store_peer.py --store etcd://... --cluster C --node a --start-s 123.4
        --folder DIR [--no-guards]

Message n of each partition is there from `start-s` + n / 200 seconds on, on the clock that all processes of a
machine share. It tells what happens in lines of JSON. Input, a line each: `end N`, there are N messages.
SIGTERM has it leave.

When there is a file `gate.<node>` in the folder its next save stands still, and all of the process with it,
until that is gone: there it can be stopped, in the middle of things. That save is sent afterwards, whatever
has become of its sender. With `--no-guards` saves compare nothing: this process trusts its claim.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any, cast

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa.assignment.handoff import Handoff  # noqa: E402
from hansa.assignment.work import Work  # noqa: E402
from hansa.assignment.worker import Worker  # noqa: E402
from hansa.coordination import Members, NodeInfo  # noqa: E402
from hansa.errors import Fenced, Unavailable  # noqa: E402
from hansa.keys import Keys  # noqa: E402
from hansa.limits import STORE_TIMEOUT_S  # noqa: E402
from hansa.store import Store, open_store  # noqa: E402
from hansa.store.values import Compare, Operation, Outcome, Put  # noqa: E402
from tests.support.sums import GROUP, RATE_PER_S, Row, Sums  # noqa: E402

HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S = 0.3, 1.0
SAVE_S = 0.2
TICK_S = 0.01
LOOK_S = 0.001


class HeldStore:
    """The store, in which a save of a handoff stands still when there is a gate."""

    def __init__(self, store: Store, handoffs: bytes, gate: Path, *, has_guards: bool) -> None:
        self._store = store
        self._handoffs = handoffs
        self._gate = gate
        self._has_guards = has_guards

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        saved = [each.key for each in then if isinstance(each, Put) and each.key.startswith(self._handoffs)]
        if saved and not self._has_guards:
            compares = ()
        if not saved or not self._gate.exists():
            return await self._store.commit(compares, then, otherwise, timeout=timeout)
        partition = saved[0].removeprefix(self._handoffs).decode()
        tell("held", partition=partition)
        while self._gate.exists():
            time.sleep(LOOK_S)  # noqa: ASYNC251 - the whole process is to stand still
        # It was on its way when the process was stopped: nobody can call it back.
        sending = asyncio.ensure_future(self._send(compares, then, otherwise))
        sending.add_done_callback(lambda done: tell("late", partition=partition, outcome=_outcome(done)))
        return await asyncio.shield(sending)

    async def _send(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]
    ) -> Outcome:
        """Until it is answered: what stood still for long may find its connection gone."""
        while True:
            try:
                return await self._store.commit(compares, then, otherwise)
            except Unavailable:
                await asyncio.sleep(TICK_S)


def _outcome(done: asyncio.Future[Outcome]) -> str:
    if done.cancelled():
        return "cancelled"
    if (error := done.exception()) is not None:
        return type(error).__name__
    return "saved" if done.result().is_success else "refused"


class Adder:
    """Adds up the messages of each partition that this process has."""

    def __init__(self, cluster: str, node: str, start_s: float) -> None:
        self._cluster = cluster
        self._node = node
        self._start_s = start_s
        self.count: float = inf

    async def messages(self, work: Work) -> AsyncIterator[int | None]:
        """The numbers of a partition's messages as they come; None: it is time to save."""
        number = work.handoff.next_offset
        while True:
            while number < self.count and self._start_s + number / RATE_PER_S <= time.monotonic():
                yield number
                number += 1
            yield None
            await asyncio.sleep(TICK_S)

    async def add_up(self, work: Work) -> None:
        partition, epoch = work.partition, work.epoch
        sums = Sums.decode(partition, work.handoff.state)
        saved_count = begun_count = sums.next_number
        saved_s = last_s = time.monotonic()
        try:
            async with work:
                tell("begun", partition=partition, epoch=epoch, next=begun_count)
                async for number in work:
                    if number is not None:
                        sums.add(number)
                        last_s = time.monotonic()
                        if number == begun_count:
                            tell("first", partition=partition, epoch=epoch, at_s=last_s)
                    elif sums.next_number > saved_count and time.monotonic() >= saved_s + SAVE_S:
                        saved_s = time.monotonic()
                        await self._save(work, sums, saved_count)
                        saved_count = sums.next_number
                if sums.next_number > saved_count:
                    await self._save(work, sums, saved_count)
        except Fenced as lost:
            tell("lost", partition=partition, epoch=epoch, reason=str(lost))
        except Unavailable as trouble:
            # Whether it was saved nobody knows; the block ends, and begins again from what is there.
            tell("unsaved", partition=partition, epoch=epoch, reason=str(trouble))
            raise
        else:
            tell("given", partition=partition, epoch=epoch, at_s=last_s, next=sums.next_number)

    async def _save(self, work: Work, sums: Sums, first: int) -> None:
        row = Row(
            partition=work.partition,
            first=first,
            last=sums.next_number - 1,
            node=self._node,
            epoch=work.epoch,
        )
        handoff = Handoff(
            checkpoint=self._node,
            state=sums.encode(),
            last_offset=sums.next_number - 1,
            processed_at=time.time(),
        )
        await work.save(handoff, operations=[Put(row.key(self._cluster), row.encode())])

    async def listen(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := (await reader.readline()).decode().split():
            self.count = int(line[1])


async def main(given: argparse.Namespace) -> None:
    adder = Adder(given.cluster, given.node, given.start_s)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with open_store(given.store) as real:
        gate = given.folder / f"gate.{given.node}"
        handoffs = Keys(given.cluster).handoffs(GROUP)
        store = cast(Store, HeldStore(real, handoffs, gate, has_guards=not given.no_guards))
        members = Members(
            store,
            NodeInfo(id=given.node),
            cluster=given.cluster,
            heartbeat_interval=HEARTBEAT_INTERVAL_S,
            heartbeat_timeout=HEARTBEAT_TIMEOUT_S,
        )
        async with members, Worker(members, GROUP, source=adder.messages) as worker:
            tell("ready")
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(adder.listen())
                tasks.create_task(worker.run(adder.add_up))
                await stopping.wait()
                tell("leaving")
                await worker.leave()
                listening.cancel()
            tell("left", **asdict(worker.stats))


def tell(event: str, **found: Any) -> None:
    print(json.dumps({"event": event, "told_s": time.monotonic()} | found), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--start-s", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--no-guards", action="store_true")
    asyncio.run(main(parser.parse_args()))
