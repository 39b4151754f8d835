"""`hansa assignments pin`: a partition is to be at one worker and at no other."""

from __future__ import annotations

import json

from hansa.cli.arguments import guess
from hansa.cli.assignments_board import facts
from hansa.cli.log_lines import visible
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import HERE, GroupOptions, no_partition
from hansa.errors import BadArgument, NotThere
from hansa.keys import as_name
from hansa.runtime.loops import run


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

    The leader moves it there, with a hand-over as any other: `hansa assignments GROUP --watch` shows it.
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
            how = f"is pinned to {node}" if node else "is pinned no more"
            print(visible(f"{partition} {how}; {now}{away}"), flush=True)
