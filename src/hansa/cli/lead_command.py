"""`hansa lead`: a command that runs while this process leads, and only then."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

from hansa.chance import Chance
from hansa.cli.arguments import Parameter
from hansa.cli.exit_status import complain
from hansa.cli.log_lines import by_whom
from hansa.cli.move_options import NOWHERE, MoveOptions, ask_to_move, tell_moved
from hansa.cli.owned_command import LOST, SIGNALLED, Lost, Moved, Runner, run_owner
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions
from hansa.cli.store_options import DEFAULTS, SessionOptions, swept
from hansa.coordination.election import Election
from hansa.coordination.following import patient_backoff
from hansa.coordination.session import Session
from hansa.errors import HansaError, LeadershipLost, SessionLost, StoreUnavailable, TimedOut
from hansa.keys import Keys
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.store import Store


def lead(
    name: str,
    /,
    *command: Annotated[str, Parameter(metavar="COMMAND", allow_leading_hyphen=True)],
    value: str = "",
    once: bool = False,
    move: MoveOptions = NOWHERE,
    options: SessionOptions = DEFAULTS,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Run a command on one machine of many: the one that leads. The others wait to take over.

    The command finds the election in HANSA_ELECTION and its term in HANSA_TERM: a number that grows from
    leader to leader. What the command writes to should refuse a lower term than it has seen.

    If leadership is lost (the store could not be reached for too long) the command and all that it started
    gets SIGTERM, and SIGKILL before anybody else can lead; SIGKILL at once if somebody deposed this leader.
    Then this process campaigns again. A second process, the command's guardian, stops it also when `hansa
    lead` itself was killed or stopped. When the command ends by itself another one leads. Signals are passed
    on to the command, which runs in a session of its own, without a controlling terminal. The status is the
    command's own (128 + N for signal N), with --once 75 when leadership was lost or moved, 1 when the store
    cannot be reached at the start; later it is waited for.

    With --move nothing is run: the leader is asked to hand over to a node that waits, ahead of all others.
    The leader's command runs on until that node is ready. Then it gets SIGTERM, and SIGKILL after half of the
    time that the move may take, or before the lease can end; the other node leads, and `hansa lead` goes back
    into the line (with --once it ends). If the move fails after that, the command is run again, in the same
    term. The status is 0 when it was moved, and 1 when it stays: the sentence on stderr says why.

    Examples:

        hansa lead scheduler -- ./scheduler --port 8080
        hansa lead scheduler --value host-1:8080 --store etcd://store-1:2379 -- ./scheduler
        hansa lead scheduler --once -- sh -c './scheduler --term $HANSA_TERM'
        hansa lead scheduler --node host-1 -- ./scheduler
        hansa lead scheduler --move host-2 --reason "a new kernel on host-1"

    Parameters
    ----------
    name
        The election.
    command
        What to run, after `--`: options before that are hansa's own.
    value
        What others are told of this leader, an address for example.
    once
        End when leadership was lost or moved, and do not campaign again.
    as_json
        Tell events on stderr as JSON, an object a line, for programs.
    """
    try:
        if move.is_asked(command):
            return ask_to_move("leader", name, move, options, tls, as_json=as_json)
        Keys(options.cluster).leader(name)  # Bad names are reported before a store is opened.

        async def campaign(runner: Runner) -> int:
            async with options.open(tls) as store, swept(store, options.cluster):
                return await _campaign_on(name, value.encode(), options, store, runner, once)

        return run_owner("lead", command, campaign, as_json=as_json)
    except HansaError as error:
        return complain("lead", error)


async def _campaign_on(
    name: str, value: bytes, options: SessionOptions, store: Store, runner: Runner, once: bool
) -> int:
    """Campaign, lead, lose and campaign again, until the command ends by itself; returns its status."""
    backoff = patient_backoff(Chance.system())
    async with options.keeper(store, f"hansa lead {name}") as keeper:
        await keeper.live(STORE_TIMEOUT_S)
        while True:
            try:
                session = await keeper.live(STORE_TIMEOUT_S)
                backoff.reset()
                return await _lead(Election(session, name, value=value), session, runner)
            except Lost:
                if once:
                    return LOST
            except Moved as moved:
                tell_moved(runner.log, moved.record)
                if once:
                    return LOST
            except (LeadershipLost, SessionLost):
                pass  # It did not lead yet.
            except (StoreUnavailable, TimedOut) as error:
                runner.log.tell("trouble", f"the store cannot be reached: {error}", text=str(error))
            if runner.relay.signalled is not None:
                return SIGNALLED + runner.relay.signalled
            await asyncio.sleep(backoff.next_s())


async def _lead(election: Election, session: Session, runner: Runner) -> int:
    name, log = election.name, runner.log
    pid = os.getpid()
    leader = await election.leader()
    led = "" if leader is None else by_whom(leader.node, leader.since)
    who = {} if leader is None else {"leader": leader.node, "since": leader.since}
    log.tell(
        "campaigning",
        f"campaigning for {name}, pid {pid}" + (f"; it is led{led}" if led else ""),
        name=name,
        pid=pid,
        **who,
    )
    leadership = await election.win()
    term = leadership.term
    log.tell("leading", f"leading {name}, term {term}", name=name, term=term)
    env = {"HANSA_ELECTION": name, "HANSA_TERM": str(term)}
    try:
        status = await runner.run(env, owned=leadership, session=session)
    except Lost:
        # Also without a loss, when the guardian is gone: the session goes on, but must not lead any longer.
        await leadership.resign()
        raise
    await leadership.resign()
    runner.tell_programs("ended", name=name, status=status)
    return status
