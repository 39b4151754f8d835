"""`hansa assignments move`: the owner of a partition is asked to hand it over to another worker."""

from __future__ import annotations

import json
from typing import Annotated

from hansa.cli.arguments import guess
from hansa.cli.exit_status import INTERRUPTED
from hansa.cli.handover_board import facts, pause_s, sentence, took_s
from hansa.cli.log_lines import visible
from hansa.cli.move_options import WITHIN, status_of_move
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import HERE, GroupOptions, no_partition, this_process
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.succession import checked_offer
from hansa.errors import HandoverWithdrawn, NoSuccessor, NotThere
from hansa.limits import HANDOVER_S
from hansa.runtime.loops import run


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
        Why, for whoever looks at `hansa handovers`.
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
    if as_json:
        more = {"pause_s": round(pause_s(record), 6), "took_s": round(took_s(record), 6)}
        print(json.dumps(facts(record) | {"group": group, "partition": partition} | more), flush=True)
    else:
        print(visible(f"{sentence(record)}; nobody had it for {pause_s(record):.3f} s"), flush=True)
    return status_of_move(record)


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
        if record.step is HandoverStep.WITHDRAWN:
            raise HandoverWithdrawn(sentence(record), record.reached.value, record.trouble)
        return record
    return None
