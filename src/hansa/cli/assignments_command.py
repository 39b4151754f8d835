"""`hansa assignments`: which worker has which partition of a group, once or as it changes; and all groups.

`hansa assignments plan`: what would move now.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Final

from hansa.assignment.assignments import Assignments, AssignmentView, all_groups
from hansa.assignment.planner import Sharing
from hansa.assignment.topology import Assignment, PartitionUpdated
from hansa.cli.assignments_board import (
    Workers,
    as_object,
    as_table,
    event_facts,
    groups_table,
    in_order,
    moves_table,
    plan_object,
    plan_summary,
    sentence,
    summary,
    unplaced_table,
    workers_table,
)
from hansa.cli.log_lines import LogLines, counted, visible
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions
from hansa.cli.standard_streams import console
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import HERE, GroupOptions, no_group
from hansa.errors import BadArgument
from hansa.runtime.loops import run

if TYPE_CHECKING:
    from rich.console import Console, Group

DRAW_INTERVAL_S: Final = 0.5
# Lines of a live screen that are no rows: borders, titles, the workers' table without its rows, the summary.
_FRAME_LINES: Final = 10


def assignments(
    group: str = "",
    /,
    *,
    watch: bool = False,
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Show which worker has which partition of a group: since when, how far, who else could, and why.

    Without a group: the groups that there are. A partition's offset, the age of what was processed last and
    the size are those of the handoff that was saved last, which is where its next owner begins. `hansa
    assignments plan` tells what would move now; `move`, `pin` and `drain` change it.

    Examples:

        hansa assignments
        hansa assignments define orders --partitions 12
        hansa assignments orders
        hansa assignments orders --watch

    Parameters
    ----------
    group
        The group's name, as its workers have it.
    watch
        Go on and show every change, until Ctrl-C. What is not on a terminal is told a line an event, of saved
        handoffs only with --json.
    as_json
        One JSON object for programs; with --watch an object a line for each event.
    """
    if watch and not group:
        raise BadArgument("--watch shows one group: say which (`hansa assignments` lists them)")
    run(_show_owners(group, where, tls, watch=watch, as_json=as_json))


async def _show_owners(
    group: str, where: GroupOptions, tls: TlsOptions, *, watch: bool, as_json: bool
) -> None:
    async with until_stopped() as cut, where.open(tls) as store:
        if not group:
            groups = await all_groups(store, cluster=where.cluster)
            _tell_groups(groups, where.cluster, as_json=as_json)
            return
        of = where.group(store, group)
        if not watch:
            found, workers = in_order(await of.all()), await of.workers()
            if not found:
                raise await no_group(of)
            if as_json:
                shown = as_object(found, workers, cluster=where.cluster, group=group)
                settings = (await of.settings()).to_object()
                print(json.dumps(shown | {"settings": settings}), flush=True)
            else:
                out = console()
                now = store.clock.wall()
                out.print(_screen(found, workers, group, out.width, now=now))
            return
        async with of.view() as view:
            if as_json or not console().is_terminal:
                loop = asyncio.get_running_loop()
                broken = partial(loop.call_soon_threadsafe, cut.make)
                with LogLines(as_json=as_json, on_broken=broken) as log:
                    await tell_events(of, view, log)
            else:
                await draw(of, view, console())


def _tell_groups(groups: dict[str, int], cluster: str, *, as_json: bool) -> None:
    if as_json:
        listed = [{"group": name, "partitions": count} for name, count in groups.items()]
        print(json.dumps({"cluster": cluster, "groups": listed}), flush=True)
        return
    out = console()
    if groups:
        out.print(groups_table(groups, out.width))
    advice = "" if groups else "; `hansa assignments define GROUP --partitions 12` makes one"
    print(visible(f"cluster {cluster}: {counted(len(groups), 'group')}{advice}"), flush=True)


def _screen(
    found: list[Assignment], workers: Workers, group: str, width: int, *, now: float, rows_max: int = 0
) -> Group:
    from rich.console import Group
    from rich.text import Text

    shown = found[:rows_max] if rows_max else found
    more = f"; {len(found) - len(shown):,} more rows than fit" if len(shown) < len(found) else ""
    parts = [as_table(shown, width, now=now)] if shown else []
    if workers or any(one.owner for one in found):
        parts.append(workers_table(found, workers, width))
    return Group(*parts, Text(visible(summary(found, workers, group=group) + more)))


async def draw(of: Assignments, view: AssignmentView, to: Console) -> None:
    """A live table, for a terminal; of very many partitions it shows the first ones, and counts all."""
    from rich.live import Live

    with Live(console=to, auto_refresh=False) as live:
        while True:
            found, workers = in_order(view.all()), view.workers
            rows_max = max(to.height - _FRAME_LINES - len(workers), 1)
            now = of.store.clock.wall()
            live.update(_screen(found, workers, of.group, to.width, now=now, rows_max=rows_max), refresh=True)
            await asyncio.sleep(DRAW_INTERVAL_S)


async def tell_events(of: Assignments, view: AssignmentView, log: LogLines) -> None:
    """A line per event, after one with the state at the beginning."""
    events = view.events()
    found, workers = in_order(view.all()), view.workers
    log.tell(
        "ready",
        f"watching {summary(found, workers, group=of.group)}",
        **as_object(found, workers, cluster=of.cluster, group=of.group),
    )
    async for event in events:
        if isinstance(event, PartitionUpdated) and event.reason == "handoff" and not log.as_json:
            continue
        name, more = event_facts(event)
        log.tell(name, sentence(event), **more)


# ---- plan ---------------------------------------------------------------------------------------------


def plan(
    group: str, /, *, where: GroupOptions = HERE, as_json: AsJson = False, tls: TlsOptions = NO_TLS
) -> None:
    """Tell what would move now if a plan were made, with the reasons; nothing is done.

    It is a dry run, with the workers, partitions, pins and drains as they are at this moment. Below stands
    what nobody may have, and why. While nothing changes the leader has carried out its plan, and nothing
    would move.

    Examples:

        hansa assignments plan orders
        hansa assignments plan orders --json

    Parameters
    ----------
    group
        The group's name.
    as_json
        One JSON object for programs.
    """
    run(_show_plan(group, where, tls, as_json=as_json))


async def _show_plan(group: str, where: GroupOptions, tls: TlsOptions, *, as_json: bool) -> None:
    async with until_stopped(), where.open(tls) as store:
        of = where.group(store, group)
        if not await of.partitions():
            raise await no_group(of)
        found = await of.plan()
        if as_json:
            print(json.dumps(plan_object(found, cluster=where.cluster, group=group)), flush=True)
        else:
            _tell_plan(found, group)


def _tell_plan(found: Sharing, group: str) -> None:
    out = console()
    if found.moves:
        out.print(moves_table(found.moves, out.width))
    if found.unplaced:
        out.print(unplaced_table(found.unplaced, out.width))
    print(visible(plan_summary(found, group=group)), flush=True)
