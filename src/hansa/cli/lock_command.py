"""`hansa lock`: a command that runs while a lock is held, and only then."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from hansa.cli.arguments import Parameter
from hansa.cli.exit_status import complain
from hansa.cli.log_lines import LogLines, by_whom
from hansa.cli.move_options import NOWHERE, MoveOptions, ask_to_move, tell_moved
from hansa.cli.owned_command import LOST, NOT_IN_TIME, Lost, Moved, Runner, run_owner
from hansa.cli.registry_options import NO_TLS, SECONDS, AsJson, TlsOptions
from hansa.cli.store_options import DEFAULTS, SessionOptions, swept
from hansa.coordination.lock import Hold, HolderInfo, Lock
from hansa.coordination.session import Session
from hansa.errors import BadArgument, HansaError, TimedOut
from hansa.keys import Keys

# How often a waiter looks for its place, to report it.
PLACE_INTERVAL_S: Final = 2.0
# A waiter further behind looks that much less often: a look reads the whole line, and many of them would keep
# the store busy.
NEAR_COUNT: Final = 10


def lock(
    name: str,
    /,
    *command: Annotated[str, Parameter(metavar="COMMAND", allow_leading_hyphen=True)],
    timeout: Annotated[float | None, SECONDS] = None,
    at_once: Annotated[bool, Parameter(name="--try")] = False,
    move: MoveOptions = NOWHERE,
    options: SessionOptions = DEFAULTS,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Run a command while holding a lock: waits in line, runs it, and gives the lock back when it ends.

    The command finds the lock's name in HANSA_LOCK_NAME and its fence in HANSA_LOCK_FENCE: a number that
    grows from holder to holder. What the command writes to should refuse a lower fence than it has seen,
    because no lock can stop a machine that stands still.

    If the lock is lost (the store could not be reached for too long) the command and all that it started gets
    SIGTERM, and SIGKILL before anybody else can hold the lock; SIGKILL at once if somebody deleted the lock's
    key. A second process, its guardian, does so also when `hansa lock` itself was killed or stopped. Signals
    are passed on to the command. The status is the command's own (128 + N for signal N), 69 when the lock did
    not become free in time, 75 when it was lost or moved, 1 when the store cannot be reached.

    With --move nothing is run: the holder of the lock is asked to hand it over to a node that waits, ahead of
    all others. The holder's command runs on until that node is ready. Then it gets SIGTERM, and SIGKILL after
    half of the time that the move may take, or before the lease can end; and `hansa lock` ends with 75. If
    the move fails after that, the command is run again, under the same fence. The status is 0 when the lock
    was moved, and 1 when it stays: the sentence on stderr says why.

    The command runs in a session of its own, so that all of it can be stopped. It reads from the terminal and
    Ctrl-C reaches it, but there is no job control, and no /dev/tty, where ssh and sudo ask for passwords.

    Examples:

        hansa lock nightly -- ./backup.sh
        hansa lock nightly --try --store etcd://store-1:2379,store-2:2379 -- ./backup.sh --full
        hansa lock nightly --timeout 60 -- sh -c 'write-report --fence $HANSA_LOCK_FENCE'
        hansa lock nightly --move host-2

    Parameters
    ----------
    name
        The lock.
    command
        What to run, after `--`: options before that are hansa's own.
    timeout
        Wait no longer for the lock.
    at_once
        Do not wait for it at all.
    as_json
        Tell events on stderr as JSON, an object a line, for programs.
    """
    try:
        if at_once and timeout is not None:
            raise BadArgument("--try does not wait, and --timeout does: give one of them")
        if move.is_asked(command):
            return ask_to_move("lock", name, move, options, tls, as_json=as_json)
        Keys(options.cluster).lock(name)  # Bad names are reported before a store is opened.

        async def hold(runner: Runner) -> int:
            async with (
                options.open(tls) as store,
                swept(store, options.cluster),
                options.session(store, f"hansa lock {name}") as session,
            ):
                return await _hold(Lock(session, name), session, runner, timeout, at_once)

        return run_owner("lock", command, hold, as_json=as_json)
    except HansaError as error:
        return complain("lock", error)


async def _hold(lock: Lock, session: Session, runner: Runner, timeout_s: float | None, at_once: bool) -> int:
    name = lock.name
    hold = await _acquire(lock, session, runner.log, timeout_s, at_once)
    if hold is None:
        holder = await _holder(lock)
        runner.log.tell(
            "busy", f"lock {name} is held{_by(holder) or ' by another'}", name=name, **_holder_facts(holder)
        )
        return NOT_IN_TIME
    runner.tell_programs("acquired", name=name, fence=hold.fence)
    env = {"HANSA_LOCK_NAME": name, "HANSA_LOCK_FENCE": str(hold.fence)}
    try:
        status = await runner.run(env, owned=hold, session=session)
    except Lost:
        return LOST
    except Moved as moved:
        tell_moved(runner.log, moved.record)
        return LOST
    await hold.release()
    runner.tell_programs("ended", name=name, status=status)
    return status


async def _acquire(
    lock: Lock, session: Session, log: LogLines, timeout_s: float | None, at_once: bool
) -> Hold | None:
    """Acquire the lock; returns None when it did not become free in time."""
    if at_once:
        return await lock.try_acquire()
    hold: Hold | HansaError
    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(_tell_place(lock, session, log), name="telling the place")
        try:
            hold = await lock.acquire(timeout=timeout_s)
        except HansaError as error:
            # A task group would wrap the error.
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
        except HansaError:
            waiting = []  # `acquire` raises the error, if it matters.
        place = waiting.index(session.lease) + 1 if session.lease in waiting else 0
        if place and place != told:
            told = place
            holder = await _holder(lock)
            held = f", held{_by(holder)}" if _by(holder) else ""
            log.tell(
                "waiting",
                f"waiting for lock {lock.name}: {place} in line{held}",
                name=lock.name,
                place=place,
                **_holder_facts(holder),
            )
        share = max(1.0, told / NEAR_COUNT) if told else 0.1
        await asyncio.sleep(PLACE_INTERVAL_S * share)


async def _holder(lock: Lock) -> HolderInfo | None:
    """The holder, if the store answers."""
    try:
        return await lock.holder()
    except HansaError:
        return None


def _by(holder: HolderInfo | None) -> str:
    return "" if holder is None else by_whom(holder.node, holder.since)


def _holder_facts(holder: HolderInfo | None) -> dict[str, object]:
    return {} if holder is None else {"holder": holder.node, "since": holder.since}
