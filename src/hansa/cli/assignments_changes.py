"""`hansa assignments move`, `pin` and `drain`: where partitions are is not up to the leader alone.

`move` has the owner of one hand it over, once. `pin` keeps one at a worker. `drain` takes from a worker all
that others may have.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Annotated, Final

from hansa.assignment.assignments import Assignments, AssignmentView
from hansa.cli.arguments import guess
from hansa.cli.assignments_board import facts, in_order
from hansa.cli.exit_status import INTERRUPTED, OK
from hansa.cli.log_lines import LogLines, counted, visible
from hansa.cli.move_options import WITHIN, not_withdrawn, report_move
from hansa.cli.registry_options import NO_TLS, SECONDS, AsJson, TlsOptions
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import HERE, GroupOptions, first_of, no_partition, this_process
from hansa.coordination.handover import Handover
from hansa.coordination.succession import checked_offer
from hansa.errors import BadArgument, NoSuccessor, NotThere, TimedOut
from hansa.keys import as_name
from hansa.limits import HANDOVER_S
from hansa.runtime.loops import run

# How long `drain` waits.
DRAIN_WITHIN_S: Final = 60.0


# ---- move ---------------------------------------------------------------------------------------------


def move(
    group: str,
    partition: str,
    node: str,
    /,
    *,
    reason: str = "",
    within: Annotated[float, WITHIN] = HANDOVER_S,
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Move a partition to another worker, now: its owner ends its work in order and hands on how far it is.

    It waits until that has ended. The status is 0 when the partition was moved, and 1 when it stays: the
    sentence on stderr says why. It stays at its new owner until workers come or go, or partitions change:
    then the leader makes a new plan. `hansa assignments pin` has it stay for good. Ctrl-C or SIGTERM takes
    the request back, unless the partition is on its way already.

    Examples:

        hansa assignments move orders p3 host-2
        hansa assignments move orders p3 host-2 --reason "a new kernel on host-1"

    Parameters
    ----------
    group
        The group's name.
    partition
        The partition's name.
    node
        Where to: the id of a worker of the group that may have it.
    reason
        Why, for people who look at `hansa handovers`.
    within
        How long it may take. What has not moved by then stays where it is.
    as_json
        One JSON object for programs: the record of the hand-over, with `pause_s` and `took_s`; or `error` (a
        stable code) and `text`.
    """
    checked_offer(node, within, reason)
    record = run(_moved(group, partition, node, where, tls, reason=reason, within=within))
    if record is None:
        return INTERRUPTED
    place = {"group": group, "partition": partition}
    return report_move(record, place, paused="had", as_json=as_json)


async def _moved(
    group: str,
    partition: str,
    node: str,
    where: GroupOptions,
    tls: TlsOptions,
    *,
    reason: str,
    within: float,
) -> Handover | None:
    """The record of the move; None when a signal came before. Raises the errors that `move` reports."""
    async with until_stopped(), where.open(tls) as store:
        of = where.group(store, group)
        try:
            record = await of.move(partition, node, timeout=within, reason=reason, by=this_process())
        except NotThere:
            raise await no_partition(of, partition) from None
        except NoSuccessor as error:
            workers = await of.workers()
            raise NoSuccessor(f"{error}{'' if node in workers else guess(node, workers)}") from error
        return not_withdrawn(record)
    return None


# ---- pin ----------------------------------------------------------------------------------------------


def pin(
    group: str,
    partition: str,
    node: str = "",
    /,
    *,
    off: bool = False,
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Have one worker, and no other, have a partition; while that worker is away nobody has it.

    The leader moves it there, with a hand-over like any other: `hansa assignments GROUP --watch` shows it.
    --off ends that, and the partition is shared out with the others again.

    Examples:

        hansa assignments pin orders p3 host-2
        hansa assignments pin orders p3 --off

    Parameters
    ----------
    group
        The group's name.
    partition
        The partition's name.
    node
        The id of the worker. It need not be there yet.
    off
        End its pin.
    as_json
        One JSON object for programs: who has the partition now, and `pinned`.
    """
    if bool(node) == off:
        raise BadArgument("give the worker to pin it to, or --off")
    run(_pinned(group, partition, node, where, tls, as_json=as_json))


async def _pinned(
    group: str, partition: str, node: str, where: GroupOptions, tls: TlsOptions, *, as_json: bool
) -> None:
    if node:
        as_name(node, "a node")
    async with until_stopped(), where.open(tls) as store:
        of = where.group(store, group)
        try:
            await of.pin(partition, node)
        except NotThere:
            raise await no_partition(of, partition) from None
        found = await of.get(partition)
        if found is not None and as_json:
            print(json.dumps(facts(found) | {"pinned": node}), flush=True)
        elif found is not None:
            workers = await of.workers()
            now = f"{found.owner} has it now" if found.owner else "nobody has it now"
            is_there = f"; {node} does not work for the group yet, and until then nobody has it"
            away = "" if not node or node in workers else is_there + guess(node, workers)
            how = f"is pinned to {node}" if node else "is no longer pinned"
            print(visible(f"{partition} {how}; {now}{away}"), flush=True)


# ---- drain --------------------------------------------------------------------------------------------


def drain(
    group: str,
    node: str,
    /,
    *,
    off: bool = False,
    within: Annotated[float, SECONDS] = DRAIN_WITHIN_S,
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Have a worker give up all that others may have, and be given nothing more; wait until it has.

    Each partition is handed over with how far it is, a few at a time. When this ends with status 0 the
    worker can be stopped without anybody waiting for it. What only it may have stays with it, and is named.
    --off gives it its share again. Ctrl-C ends the waiting and not the draining.

    Examples:

        hansa assignments drain orders host-2
        hansa assignments drain orders host-2 --off

    Parameters
    ----------
    group
        The group's name.
    node
        The id of the worker.
    off
        Stop draining it.
    within
        How long to wait. The worker goes on draining after that, and the status is 1.
    as_json
        A JSON object a line: each time that it has fewer, and at the end.
    """
    return run(_drained(group, node, where, tls, off=off, within=within, as_json=as_json))


async def _drained(
    group: str, node: str, where: GroupOptions, tls: TlsOptions, *, off: bool, within: float, as_json: bool
) -> int:
    async with until_stopped() as cut, where.open(tls) as store:
        of = where.group(store, group)
        loop = asyncio.get_running_loop()
        broken = partial(loop.call_soon_threadsafe, cut.make)
        with LogLines(as_json=as_json, on_broken=broken) as log:
            if off:
                await of.undrain(node)
                log.tell("undrained", f"{node} is given its share of {group} again", group=group, node=node)
                return OK
            await _check_works(of, node)
            await of.drain(node)
            async with of.view() as view:
                await wait_until_drained(view, node, log, within=within)
        return OK
    return INTERRUPTED


async def _check_works(of: Assignments, node: str) -> None:
    """Raise `NotThere` for a name that no worker has: a drain by mistake would stay for ever."""
    workers = await of.workers()
    if node not in workers:
        there = f"these do: {first_of(list(workers))}" if workers else "nobody does now"
        raise NotThere(f"node {node!r} does not work for group {of.group!r}, {there}.{guess(node, workers)}")


async def wait_until_drained(view: AssignmentView, node: str, log: LogLines, *, within: float) -> None:
    """Report how many are left, each time that the number changes. Raises `TimedOut`, `AlreadyClosed`."""
    told = -1
    deadline_s = asyncio.get_running_loop().time() + within
    while True:
        leaving = [one.partition for one in in_order(view.of(node)) if one.standby]
        if not leaving:
            break
        if len(leaving) != told:
            told = len(leaving)
            text = f"{node} has {counted(told, 'partition')} that others may have"
            log.tell("draining", text, group=view.group, node=node, left=told)
        left_s = deadline_s - asyncio.get_running_loop().time()
        try:
            await view.until(partial(_is_other_count, view, node, told), timeout=left_s)
        except TimedOut:
            raise TimedOut(
                f"node {node!r} still has {first_of(leaving)} of group {view.group!r} after {within:g} s, and"
                " goes on draining: `hansa handovers` tells what is on its way, `--off` ends it"
            ) from None
    kept = [one.partition for one in in_order(view.of(node))]
    stays = f"; it keeps {first_of(kept)}, which nobody else may have now" if kept else ", and can be stopped"
    text = f"{node} has nothing more of {view.group} that others may have{stays}"
    log.tell("drained", text, group=view.group, node=node, kept=kept)


def _is_other_count(view: AssignmentView, node: str, told: int, _: object) -> bool:
    return sum(bool(one.standby) for one in view.of(node).values()) != told
