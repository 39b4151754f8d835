"""`hansa lead`: a command that runs while this process leads, and only then."""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import Parameter

from hansa.chance import Chance
from hansa.cli.exit_status import complain
from hansa.cli.guarded_command import Guardian
from hansa.cli.log_lines import LogLines
from hansa.cli.owned_command import LOST, SIGNALLED, Lost, Relay, relayed_signals, run_owned, tell_programs
from hansa.cli.registry_options import NO_TLS, AsJson, TlsFiles
from hansa.cli.session_options import DEFAULTS, SessionOptions
from hansa.coordination.keys import Keys
from hansa.coordination.over_election import Election
from hansa.coordination.over_key_watch import patient_backoff
from hansa.errors import BadArgument, HansaError, LeadershipLost, SessionLost, StoreUnavailable, TimedOut
from hansa.store.store import Store


def lead(
    name: str,
    /,
    *command: Annotated[str, Parameter(metavar="COMMAND", allow_leading_hyphen=True)],
    value: str = "",
    once: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    options: SessionOptions = DEFAULTS,
    as_json: AsJson = False,
    tls: TlsFiles = NO_TLS,
) -> int:
    """Run a command on one machine of many: the one that leads. The others wait to take over.

    The command finds the election in HANSA_ELECTION and its term in HANSA_TERM: a number that grows from
    leader to leader. What the command writes to should refuse a lower term than it has seen.

    If leadership is lost (the store could not be reached for too long, or somebody deposed this leader) the
    command and all that it started gets SIGTERM, and SIGKILL before anybody else can lead; then this process
    campaigns again. A second process, the command's guardian, stops it also when `hansa lead` itself was
    killed or stopped. When the command ends by itself another one leads. Signals are passed on to the
    command. The status is the command's own (128 + N for signal N), with --once 75 when leadership was lost,
    1 when the store cannot be reached at the start.

    Examples:

        hansa lead scheduler -- ./scheduler --port 8080
        hansa lead scheduler --value host-1:8080 --store etcd://store-1:2379 -- ./scheduler
        hansa lead scheduler --once -- sh -c './scheduler --term $HANSA_TERM'

    Parameters
    ----------
    name
        The election.
    command
        What to run, after `--`.
    value
        What others are told of this leader, an address for example.
    once
        End when leadership was lost, and do not campaign again.
    as_json
        Tell events on stderr as JSON, an object a line, for programs.
    """
    try:
        if not command:
            raise BadArgument("say what to run: hansa lead NAME -- COMMAND")
        Keys(options.cluster).leader(name)  # Bad names are told before a store is asked for.
        # The guardian first: what a store opens has threads, and a fork does not go well with them.
        with Guardian() as guardian, LogLines(as_json=as_json, descriptor=2) as log:
            return asyncio.run(
                _run(name, command, guardian, log, options, tls, value=value.encode(), once=once)
            )
    except HansaError as error:
        return complain("lead", error)


async def _run(
    name: str,
    command: tuple[str, ...],
    guardian: Guardian,
    log: LogLines,
    options: SessionOptions,
    tls: TlsFiles,
    *,
    value: bytes,
    once: bool,
) -> int:
    with relayed_signals() as relay:
        try:
            async with asyncio.timeout(None) as scope:
                relay.cuts(scope)
                async with options.open(tls) as store:
                    return await _campaign_on(
                        name, command, guardian, log, options, store, relay, value, once
                    )
        except TimeoutError:
            return SIGNALLED + (relay.signalled or 0)


async def _campaign_on(
    name: str,
    command: tuple[str, ...],
    guardian: Guardian,
    log: LogLines,
    options: SessionOptions,
    store: Store,
    relay: Relay,
    value: bytes,
    once: bool,
) -> int:
    """Campaign, lead, lose and campaign again, until the command ends by itself; its status."""
    backoff = patient_backoff(Chance.system())
    has_led = False
    while True:
        try:
            async with options.session(store, f"hansa lead {name}") as session:
                log.tell("campaigning", f"campaigning for {name}", name=name)
                leadership = await Election(session, name, value=value).win()
                has_led = True
                log.tell(
                    "leading", f"leading {name}, term {leadership.term}", name=name, term=leadership.term
                )
                status = await run_owned(
                    command,
                    {"HANSA_ELECTION": name, "HANSA_TERM": str(leadership.term)},
                    owned=leadership,
                    session=session,
                    guardian=guardian,
                    relay=relay,
                    log=log,
                )
                await leadership.resign()
                tell_programs(log, "ended", name=name, status=status)
                return status
        except (Lost, LeadershipLost, SessionLost):
            if once:
                return LOST
            backoff.reset()
        except (StoreUnavailable, TimedOut) as error:
            if not has_led:
                raise
            log.tell("trouble", f"the store cannot be reached: {error}", text=str(error))
        if relay.signalled is not None:
            return SIGNALLED + relay.signalled
        await asyncio.sleep(backoff.next_s())
