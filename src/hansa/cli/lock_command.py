"""`hansa lock`: a command that runs while a lock is held, and only then."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from cyclopts import Parameter

from hansa.cli.exit_status import complain
from hansa.cli.guarded_command import Guardian
from hansa.cli.log_lines import LogLines
from hansa.cli.owned_command import (
    LOST,
    NOT_IN_TIME,
    SIGNALLED,
    Lost,
    Relay,
    relayed_signals,
    run_owned,
    tell_programs,
)
from hansa.cli.registry_options import NO_TLS, SECONDS, AsJson, TlsFiles
from hansa.cli.session_options import DEFAULTS, SessionOptions
from hansa.coordination.keys import Keys
from hansa.coordination.over_lock import Hold, Lock
from hansa.coordination.over_session import Session
from hansa.errors import BadArgument, HansaError, LockLost, StoreUnavailable, TimedOut

# How often one who waits looks for its place, to tell it.
PLACE_INTERVAL_S: Final = 2.0


def lock(
    name: str,
    /,
    *command: Annotated[str, Parameter(metavar="COMMAND", allow_leading_hyphen=True)],
    timeout: Annotated[float | None, SECONDS] = None,
    at_once: Annotated[bool, Parameter(name="--try", negative="", show_default=False)] = False,
    options: SessionOptions = DEFAULTS,
    as_json: AsJson = False,
    tls: TlsFiles = NO_TLS,
) -> int:
    """Run a command while holding a lock: waits in line, runs it, and gives the lock back when it ends.

    The command finds the lock's name in HANSA_LOCK_NAME and its fence in HANSA_LOCK_FENCE: a number that
    grows from holder to holder. What the command writes to should refuse a lower fence than it has seen,
    because no lock can stop a machine that stands still.

    If the lock is lost (the store could not be reached for too long, or somebody deleted the lock's key) the
    command and all that it started gets SIGTERM, and SIGKILL before anybody else can hold the lock. A second
    process, its guardian, does so also when `hansa lock` itself was killed or stopped. Signals are passed on
    to the command. The status is the command's own (128 + N for signal N), 69 when the lock did not become
    free in time, 75 when it was lost, 1 when the store cannot be reached.

    Examples:

        hansa lock nightly -- ./backup.sh
        hansa lock nightly --try --store etcd://store-1:2379,store-2:2379 -- ./backup.sh --full
        hansa lock nightly --timeout 60 -- sh -c 'write-report --fence $HANSA_LOCK_FENCE'

    Parameters
    ----------
    name
        The lock.
    command
        What to run, after `--`.
    timeout
        Wait no longer for the lock.
    at_once
        Do not wait for it at all.
    as_json
        Tell events on stderr as JSON, an object a line, for programs.
    """
    try:
        if not command:
            raise BadArgument("say what to run: hansa lock NAME -- COMMAND")
        if at_once and timeout is not None:
            raise BadArgument("--try does not wait, and --timeout does: give one of them")
        Keys(options.cluster).lock(name)  # Bad names are told before a store is asked for.
        # The guardian first: what a store opens has threads, and a fork does not go well with them.
        with Guardian() as guardian, LogLines(as_json=as_json, descriptor=2) as log:
            return asyncio.run(
                _run(name, command, guardian, log, options, tls, timeout_s=timeout, at_once=at_once)
            )
    except HansaError as error:
        return complain("lock", error)


async def _run(
    name: str,
    command: tuple[str, ...],
    guardian: Guardian,
    log: LogLines,
    options: SessionOptions,
    tls: TlsFiles,
    *,
    timeout_s: float | None,
    at_once: bool,
) -> int:
    with relayed_signals() as relay:
        try:
            async with asyncio.timeout(None) as scope:
                relay.cuts(scope)
                return await _hold(name, command, guardian, log, options, tls, relay, timeout_s, at_once)
        except TimeoutError:
            return SIGNALLED + (relay.signalled or 0)


async def _hold(
    name: str,
    command: tuple[str, ...],
    guardian: Guardian,
    log: LogLines,
    options: SessionOptions,
    tls: TlsFiles,
    relay: Relay,
    timeout_s: float | None,
    at_once: bool,
) -> int:
    async with options.open(tls) as store, options.session(store, f"hansa lock {name}") as session:
        hold = await _acquire(Lock(session, name), session, log, timeout_s, at_once)
        if hold is None:
            log.tell("busy", f"lock {name} is held by another", name=name)
            return NOT_IN_TIME
        tell_programs(log, "acquired", name=name, fence=hold.fence)
        try:
            status = await run_owned(
                command,
                {"HANSA_LOCK_NAME": name, "HANSA_LOCK_FENCE": str(hold.fence)},
                owned=hold,
                session=session,
                guardian=guardian,
                relay=relay,
                log=log,
            )
            await hold.release()
        except (Lost, LockLost):
            return LOST
        tell_programs(log, "ended", name=name, status=status)
        return status


async def _acquire(
    lock: Lock, session: Session, log: LogLines, timeout_s: float | None, at_once: bool
) -> Hold | None:
    """None when it did not become free in time."""
    if at_once:
        return await lock.try_acquire()
    hold: Hold | HansaError
    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(_tell_place(lock, session, log), name="telling the place")
        try:
            hold = await lock.acquire(timeout=timeout_s)
        except HansaError as error:
            # A task group would wrap it.
            hold = error
        telling.cancel()
    if isinstance(hold, TimedOut):
        return None
    if isinstance(hold, HansaError):
        raise hold
    return hold


async def _tell_place(lock: Lock, session: Session, log: LogLines) -> None:
    told = 0
    while True:
        try:
            waiting = [info.lease for info in await lock.waiting()]
        except (StoreUnavailable, TimedOut):
            waiting = []
        place = waiting.index(session.lease) + 1 if session.lease in waiting else 0
        if place and place != told:
            told = place
            log.tell("waiting", f"waiting for lock {lock.name}: {place} in line", name=lock.name, place=place)
        await asyncio.sleep(PLACE_INTERVAL_S if told else PLACE_INTERVAL_S / 10)
