"""`hansa assignments drain`: a worker is to give up all that others can have, so that it can be stopped."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Final

from hansa.assignment.assignments import Assignments, AssignmentView
from hansa.cli.arguments import guess
from hansa.cli.assignments_board import in_order
from hansa.cli.exit_status import INTERRUPTED, OK
from hansa.cli.log_lines import LogLines, counted
from hansa.cli.registry_options import NO_TLS, SECONDS, AsJson, TlsOptions
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import HERE, GroupOptions, first_of
from hansa.errors import NotThere, TimedOut
from hansa.runtime.loops import run

WITHIN_S: Final = 60.0


def drain(
    group: str,
    node: str,
    /,
    *,
    off: bool = False,
    within: Annotated[float, SECONDS] = WITHIN_S,
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
            await _check(of, node)
            await of.drain(node)
            async with of.view() as view:
                await wait_until_drained(view, node, log, within=within)
        return OK
    return INTERRUPTED


async def _check(of: Assignments, node: str) -> None:
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
