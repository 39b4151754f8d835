"""`hansa assignments work`: a worker made by hand, to try a group out before any program is written."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from hansa.assignment.topology import TopologyEvent
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.cli.arguments import Number, Parameter
from hansa.cli.assignments_board import event_facts, sentence
from hansa.cli.log_lines import LogLines
from hansa.cli.registry_options import NO_TLS, SECONDS, AsJson, TlsOptions, Whole
from hansa.cli.stop_signals import StopRequest, stop_signals
from hansa.cli.store_options import HERE, GroupOptions
from hansa.coordination.member import NodeInfo
from hansa.coordination.members import Members
from hansa.runtime.loops import run
from hansa.runtime.mailboxes import EventStream
from hansa.store.store import Store


def work(
    group: str,
    node: str,
    /,
    *,
    role: tuple[str, ...] = (),
    zone: str = "",
    weight: Annotated[Whole, Parameter(validator=Number(gte=1))] = 1,
    resource_group: tuple[str, ...] = (),
    every: Annotated[float, SECONDS] = 1.0,
    heartbeat_interval: Annotated[float, SECONDS] = 1.0,
    heartbeat_timeout: Annotated[float, SECONDS] = 5.0,
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Take part in a group's work as a worker made by hand, to try things out; until Ctrl-C.

    It takes its share of the partitions and counts in each of them, from where the last owner stopped: the
    count is the offset that `hansa assignments GROUP` shows. Ctrl-C or SIGTERM hands all of them over and
    leaves; kill -9 is a crash, and others have its partitions after twice the heartbeat timeout.

    Examples:

        hansa assignments define orders --partitions 12
        hansa assignments work orders anna
        hansa assignments work orders bert

    Parameters
    ----------
    group
        The group's name.
    node
        As which member it takes part.
    role
        What it does; repeat it for each role. Partitions may ask for one.
    zone
        Where it stands. Partitions may prefer one.
    weight
        How much it can carry beside others.
    resource_group
        A resource group that it belongs to; repeat it for each.
    every
        How long it takes to count one further.
    heartbeat_interval
        How often to renew its lease.
    heartbeat_timeout
        It is SUSPECT after so long without a renewal, and DOWN after twice that.
    as_json
        An object a line for each partition that comes or goes.
    """
    store = where.open(tls)
    members = Members(
        store,
        NodeInfo(id=node, roles=frozenset(role), zone=zone),
        cluster=where.cluster,
        heartbeat_interval=heartbeat_interval,
        heartbeat_timeout=heartbeat_timeout,
    )
    worker = Worker(members, group, weight=weight, resource_groups=resource_group)
    run(_take_part(store, members, worker, every, as_json=as_json))


async def _take_part(store: Store, members: Members, worker: Worker, every: float, *, as_json: bool) -> None:
    loop = asyncio.get_running_loop()
    with (
        stop_signals() as stop,
        LogLines(as_json=as_json, on_broken=lambda: loop.call_soon_threadsafe(stop.ask)) as log,
    ):
        # Events while the worker leaves are reported, too: the events end with its block.
        async with asyncio.TaskGroup() as tasks, store:
            async with members, worker:
                facts = {"node": worker.node, "group": worker.group}
                log.tell("ready", f"{worker.node} works for {worker.group}", **facts)
                tasks.create_task(_tell(worker.events(), log), name="telling")
                leaving = tasks.create_task(_leave(worker, stop), name="leaving when asked to")
                await worker.run(partial(_count, every=every))
                leaving.cancel()
            log.tell("left", f"{worker.node} no longer works for {worker.group}", **facts)


async def _leave(worker: Worker, stop: StopRequest) -> None:
    await stop.asked.wait()
    await worker.leave()


async def _tell(events: EventStream[TopologyEvent], log: LogLines) -> None:
    async for event in events:
        name, facts = event_facts(event)
        log.tell(name, sentence(event), **facts)


async def _count(work: Work, *, every: float) -> None:
    async with work:
        async for count in work.each(_counting(work.handoff.next_offset, every)):
            work.note(last_offset=count, processed_at=time.time())


async def _counting(since: int, every: float) -> AsyncIterator[int]:
    for count in itertools.count(since):
        await asyncio.sleep(every)
        yield count
