"""Options of the commands that ask for something to be moved to another node, and their output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from hansa.cli.arguments import Number, Parameter
from hansa.cli.exit_status import FAILED, OK, complain
from hansa.cli.handover_board import epochs, facts, pause_s, sentence, took_s
from hansa.cli.log_lines import LogLines, visible
from hansa.cli.registry_options import TlsOptions
from hansa.cli.store_options import SessionOptions
from hansa.coordination.claim import Standing
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.handovers import Handovers
from hansa.errors import BadArgument, HandoverWithdrawn, HansaError, NoSuccessor
from hansa.keys import Keys
from hansa.limits import HANDOVER_S, HANDOVER_S_MAX
from hansa.runtime.loops import run

# The command for each kind of things.
COMMANDS: Final = {"leader": "lead", "lock": "lock"}
WITHIN: Final = Parameter(metavar="SECONDS", validator=Number(gt=0, lte=HANDOVER_S_MAX))


@dataclass(frozen=True, kw_only=True)
class MoveOptions:
    """Where to, why, and how long it may take.

    Parameters
    ----------
    to
        Run nothing, but ask the present owner to hand it over to this node, which waits for it.
    reason
        With --move: why, for people who look at `hansa handovers`.
    within
        With --move: how long it may take; else 30 seconds. What has not moved by then stays where it is.
    """

    to: Annotated[str | None, Parameter(name="--move", metavar="NODE")] = None
    reason: str = ""
    within: Annotated[float | None, WITHIN] = None

    def is_asked(self, command: Sequence[str]) -> bool:
        """Whether something is to be moved, and no command to be run. Raises `BadArgument`."""
        if self.to is None and (self.reason or self.within is not None):
            raise BadArgument("--reason and --within go with --move NODE")
        if self.to is not None and command:
            raise BadArgument("--move asks the process that has it, and runs nothing: give no command")
        return self.to is not None


NOWHERE: Final = MoveOptions()


def ask_to_move(
    kind: str, name: str, move: MoveOptions, options: SessionOptions, tls: TlsOptions, *, as_json: bool
) -> int:
    """Ask for the move, wait, and report the result; returns the status."""
    try:
        record = run(_moved_in_line(kind, name, move, options, tls))
    except HansaError as error:
        return complain(COMMANDS[kind], error, as_json=as_json)
    print(json.dumps(facts(record)) if as_json else visible(sentence(record)), flush=True)
    return _status_of_move(record)


def _status_of_move(record: Handover) -> int:
    """If both the old and the new owner are gone on the way, the next one in line has it."""
    return OK if record.taken_by in ("", record.target) else FAILED


async def _moved_in_line(
    kind: str, name: str, move: MoveOptions, options: SessionOptions, tls: TlsOptions
) -> Handover:
    """The record of the move. Raises `HandoverWithdrawn` when it stays, and as `Handovers.move`."""
    to = move.to or ""
    async with options.open(tls) as store:
        handovers = Handovers(store, cluster=options.cluster, name=options.who)
        try:
            return await moved(
                handovers, kind, name, to, within=move.within or HANDOVER_S, reason=move.reason
            )
        except NoSuccessor as error:
            line = Standing.of((await store.scan(Keys(options.cluster).line(kind, name))).items)
            who = ", ".join(sorted({one.signed.node for one in line[1:] if one.signed.node}))
            raise NoSuccessor(f"{error}; {f'these do: {who}' if who else 'nobody does'}") from error


async def moved(
    handovers: Handovers, kind: str, name: str, to: str, *, within: float, reason: str
) -> Handover:
    """Ask, and wait. Raises `HandoverWithdrawn` when it stays, and as `Handovers.move`."""
    return not_withdrawn(await handovers.move(kind, name, to, timeout=within, reason=reason))


def not_withdrawn(record: Handover) -> Handover:
    """Raises `HandoverWithdrawn` for the record of something that stays where it was."""
    if record.step is HandoverStep.WITHDRAWN:
        raise HandoverWithdrawn(sentence(record), record.reached.value, record.trouble)
    return record


def report_move(record: Handover, place: Mapping[str, str], *, paused: str, as_json: bool) -> int:
    """Report the result of a move, and for how long there was no owner; returns the status.

    `place` is what was moved, as JSON; `paused` what nobody did with it meanwhile.
    """
    if as_json:
        times = {"pause_s": round(pause_s(record), 6), "took_s": round(took_s(record), 6)}
        print(json.dumps({**facts(record), **place, **times}), flush=True)
    else:
        print(visible(f"{sentence(record)}; nobody {paused} it for {pause_s(record):.3f} s"), flush=True)
    return _status_of_move(record)


def tell_moved(log: LogLines, record: Handover) -> None:
    """Report that what this node owned is another node's now."""
    log.tell(
        "handed-over",
        f"handed {record.name} over to {record.target}, epoch {epochs(record)}",
        name=record.name,
        target=record.target,
        epoch=record.epoch,
        next_epoch=record.next_epoch,
    )
