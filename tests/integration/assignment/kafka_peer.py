"""A worker of a Kafka group in a process of its own that adds up its messages: see `tests.support.sums`.

    python tests/integration/assignment/kafka_peer.py BROKER STORE TOPIC GROUP NODE [--unfenced] ...

A work that is lost does what no work should: it saves what it has all the same, and does not look whether it
may. With `--unfenced` the store does not look either: no transaction that writes a handoff has a condition.

It tells what happens in lines of JSON. Input, a line: `leave`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from operator import ne
from pathlib import Path
from typing import Any, cast

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa.assignment.handoff import Handoffs  # noqa: E402
from hansa.assignment.kafka_mode import KafkaMode  # noqa: E402
from hansa.assignment.work import Work  # noqa: E402
from hansa.assignment.worker import Worker  # noqa: E402
from hansa.coordination import Members, NodeInfo, SessionKeeper  # noqa: E402
from hansa.errors import Fenced, HansaError  # noqa: E402
from hansa.keys import Keys  # noqa: E402
from hansa.store import Store, open_store  # noqa: E402
from hansa.store.values import Compare, Operation, Outcome, Put  # noqa: E402
from tests.support.sums import Row, Sums  # noqa: E402

# Longer than any stop of this process: what stops its late writes is the epoch alone.
LEASE_S = 60.0
CLUSTER = "default"


class BlindStore:
    """Another store, in which transactions that write a handoff have no conditions."""

    def __init__(self, store: Store, group: str) -> None:
        self._store = store
        self._prefix = Keys().handoffs(group)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        **options: Any,
    ) -> Outcome:
        if any(isinstance(each, Put) and each.key.startswith(self._prefix) for each in then):
            compares = ()
        return await self._store.commit(compares, then, otherwise, **options)


class Peer:
    def __init__(self, options: argparse.Namespace, store: Store) -> None:
        self._options = options
        self._store = store
        self._numbers = 0
        self.handoffs: list[tuple[float, int]] = []
        self.readies: list[float] = []

    async def run(self) -> None:
        options = self._options
        settings: dict[str, Any] = {"fetch.wait.max.ms": 50, "socket.timeout.ms": 10_000}
        if options.protocol == "classic":
            settings |= {"session.timeout.ms": options.session_ms, "heartbeat.interval.ms": 300}
        mode = KafkaMode(
            options.broker,
            options.topic,
            protocol=options.protocol,
            settings=settings,
            handoff_lifetime=None,
            revoke_timeout=20.0,
        )
        async with (
            SessionKeeper(self._store, ttl=LEASE_S, node=options.node) as keeper,
            Members(self._store, NodeInfo(id=options.node), session=keeper) as members,
            Worker(members, options.group, mode=mode, save_interval=3_600.0) as worker,
        ):
            self._mode, self._worker = mode, worker
            tell("open")
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(worker.run(self._add_up))
                telling = tasks.create_task(self._tell_owned())
                await asyncio.to_thread(sys.stdin.readline)
                await worker.leave()
                await running
                telling.cancel()
        tell(
            "left",
            mode=asdict(mode.stats),
            worker=asdict(worker.stats),
            handoffs=self.handoffs,
            readies=self.readies,
        )

    async def _tell_owned(self) -> None:
        while True:
            owned = set(self._worker.works)
            tell("owns", partitions=sorted(owned))
            await self._worker.until(partial(ne, owned))

    async def _add_up(self, work: Work) -> None:
        self.readies.append(self._mode.stats.ready_s)
        adding = Adding(work, self._options.node)
        saving: asyncio.Task[None] | None = None
        try:
            async with work:
                saving = asyncio.create_task(adding.save_often(self._options.save_s))
                async for message in work:
                    adding.add(message.offset(), int(message.value()))
                saving.cancel()
                await adding.save()
        except Fenced:
            if saving is not None:
                saving.cancel()
            await self._save_late(adding)
            raise
        finally:
            if saving is not None:
                saving.cancel()
        self.handoffs.append((self._worker.stats.handoff_s, self._worker.stats.handoff_bytes))

    async def _save_late(self, adding: Adding) -> None:
        """In doubt it goes on for a moment: whoever has this partition now must not suffer from it."""
        work, count, why = adding.work, adding.unsaved_count, ""
        cast(Any, work.claim).check = lambda: None
        handoffs = Handoffs(self._store, self._options.group)
        rows = [adding.row()] if count else []
        try:
            await handoffs.save(work.claim, work.partition, work.handoff, before=work.saved, operations=rows)
        except HansaError as error:
            why = f"{error.code}: {error}"
        tell("late", partition=work.partition, count=count, why=why, is_refused=why.startswith("fenced"))


class Adding:
    """One work's sum, and what of it the ledger has."""

    def __init__(self, work: Work, node: str) -> None:
        self.work = work
        self._node = node
        self._sums = Sums.decode(work.partition, work.handoff.state)
        self._saved_count = work.handoff.next_offset
        self._turn = asyncio.Lock()

    @property
    def unsaved_count(self) -> int:
        return self._sums.next_number - self._saved_count

    def add(self, offset: int, number: int) -> None:
        if (offset, number) != (self._sums.next_number, self._sums.next_number):
            tell("disorder", partition=self.work.partition, offset=offset, wanted=self._sums.next_number)
        if number == self._saved_count:
            tell("unsaved", partition=self.work.partition, number=number)
        self._sums.add(number)
        self.work.note(state=self._sums.encode(), last_offset=offset)

    async def save(self) -> None:
        """Put the state and a row of the ledger into the store, both or none."""
        async with self._turn:
            count = self._sums.next_number
            if count > self._saved_count:
                await self.work.save(operations=[self.row()])
                self._saved_count = count

    def row(self) -> Put:
        """What is not in the ledger yet, as a row of it."""
        row = Row(
            partition=self.work.partition,
            first=self._saved_count,
            last=self._sums.next_number - 1,
            node=self._node,
            epoch=self.work.epoch,
        )
        return Put(row.key(CLUSTER), row.encode())

    async def save_often(self, about_s: float) -> None:
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.5) * about_s)
            try:
                await self.save()
            except Fenced:
                # The block tells.
                return
            except HansaError as trouble:
                tell("trouble", partition=self.work.partition, why=str(trouble))


def tell(event: str, **what: Any) -> None:
    print(json.dumps({"event": event, **what}), flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("broker", "store", "topic", "group", "node"):
        parser.add_argument(name)
    parser.add_argument("--protocol", default="classic")
    parser.add_argument("--session-ms", type=int, default=3_000)
    parser.add_argument("--save-s", type=float, default=0.2)
    parser.add_argument("--unfenced", action="store_true")
    options = parser.parse_args()
    async with open_store(options.store) as store:
        seen = cast(Store, BlindStore(store, options.group)) if options.unfenced else store
        await Peer(options, seen).run()


if __name__ == "__main__":
    asyncio.run(main())
