"""`hansa assignments plan`: what the leader of a group would move now, and why; nothing is done."""

from __future__ import annotations

import json

from hansa.assignment.planner import Sharing
from hansa.cli.assignments_board import moves_table, plan_object, plan_summary, unplaced_table
from hansa.cli.log_lines import visible
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions
from hansa.cli.standard_streams import console
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import HERE, GroupOptions, no_group
from hansa.runtime.loops import run


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
    run(_tell(group, where, tls, as_json=as_json))


async def _tell(group: str, where: GroupOptions, tls: TlsOptions, *, as_json: bool) -> None:
    async with until_stopped(), where.open(tls) as store:
        of = where.group(store, group)
        if not await of.partitions():
            raise await no_group(of)
        found = await of.plan()
        if as_json:
            print(json.dumps(plan_object(found, cluster=where.cluster, group=group)), flush=True)
        else:
            _show(found, group)


def _show(found: Sharing, group: str) -> None:
    out = console()
    if found.moves:
        out.print(moves_table(found.moves, out.width))
    if found.unplaced:
        out.print(unplaced_table(found.unplaced, out.width))
    print(visible(plan_summary(found, group=group)), flush=True)
