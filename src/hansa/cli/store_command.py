"""`hansa store`: a store for a local cluster, over etcd's own API."""

from __future__ import annotations

import gc
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

from hansa.cli.arguments import Parameter
from hansa.cli.log_lines import LogLines
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions
from hansa.cli.stop_signals import stop_signals
from hansa.errors import BadArgument
from hansa.runtime.loops import run

if TYPE_CHECKING:
    from hansa.store.served.server import StoreServer

LISTEN: Final = "127.0.0.1:2379"
DATA: Final = "hansa-store"
# How soon trouble with the disk is reported; a look costs nothing.
LOOK_INTERVAL_S: Final = 0.1

# A store's history is hundreds of thousands of objects that never refer to each other in cycles. To scan all
# of them delays every client by 0.1 s and more; by default that would happen every 25,000 changes.
GARBAGE_THRESHOLDS: Final = (700, 10, 1_000)


def store(
    *,
    listen: Annotated[str, Parameter(metavar="HOST:PORT")] = LISTEN,
    data: Annotated[str | None, Parameter(metavar="FOLDER")] = None,
    memory: bool = False,
    no_fsync: bool = False,
    give_up_damage: bool = False,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Run a store: keys with revisions, leases and watches, kept in a folder, spoken to as to etcd.

    One process, for development and small clusters; etcd itself takes its place when one machine must not be
    a single point that can fail. Whatever was answered is on the disk: kill it at any moment and start it
    again. Any client of etcd's v3 API works on it, and so does etcdctl. Port 0 takes any free port; the ready
    line tells which. It runs until SIGTERM or Ctrl-C.

    Examples:

        hansa store
        hansa store --listen 0.0.0.0:2379 --data /var/lib/hansa
        hansa store --memory
        etcdctl --endpoints=127.0.0.1:2379 put greeting hello

    Parameters
    ----------
    listen
        Where clients connect.
    data
        The folder that keeps it, `hansa-store` unless given. One process at a time has it.
    memory
        Keep nothing: what is in the store ends with the process.
    no_fsync
        Do not wait for the disk: quicker, and a crash of the machine (not of the process) may lose the last
        changes. For tests.
    give_up_damage
        Start though the end of the journal is damaged, without what cannot be read of it, answered or not; it
        is kept in a file beside the journal. Give it once, when there is no copy to restore.
    """
    if memory and data is not None:
        raise BadArgument("--memory keeps nothing, and --data says where to: give one of them")
    # Imported here, because gRPC takes longer to load than help should take.
    from hansa.store.served.server import StoreServer

    server = StoreServer(
        listen,
        folder=None if memory else data or DATA,
        fsync=not no_fsync,
        environment=tls.environment(),
        give_up_damage=give_up_damage,
    )
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    run(serve(server, as_json=as_json))


async def serve(server: StoreServer, *, as_json: bool) -> None:
    """Run until a signal says stop. Raises what starting it raises."""
    with stop_signals() as stop, LogLines(as_json=as_json) as log:
        async with server:
            tell_ready(server, log)
            trouble = None
            while not await stop.within(LOOK_INTERVAL_S):
                if trouble is None and (trouble := server.store.failure) is not None:
                    log.tell("failed", f"store failed: {trouble}; reads go on", reason=str(trouble))
        journal = server.store.journal_stats
        watches = server.watch_stats
        revision = server.store.safe_revision
        written = (
            "" if journal is None else f", {journal.records_count} records in {journal.flushes_count} flushes"
        )
        log.tell(
            "stopped",
            f"store stopped at revision {revision}{written}, {watches.events_count} events told",
            revision=revision,
            journal=None if journal is None else asdict(journal),
            watches=asdict(watches),
        )


def tell_ready(server: StoreServer, log: LogLines) -> None:
    """Report where it is, what it found, and what to do next."""
    store = server.store
    found = store.recovery
    if found.torn_bytes:
        log.tell(
            "torn",
            f"the last {found.torn_bytes} bytes of the journal were not written to their end, and are cut"
            " off: nobody was told of them",
            torn_bytes=found.torn_bytes,
        )
    if found.given_up is not None:
        log.tell(
            "given-up",
            f"the end of the journal is given up, answered or not: {found.given_up}",
            reason=found.given_up,
        )
    if found.is_after_failure:
        log.tell(
            "after-failure",
            "the last run ended because the disk refused a write or a flush: look after the disk."
            f" {found.renewed_bytes} bytes that were not surely on it were written anew",
            renewed_bytes=found.renewed_bytes,
        )
    where = "in memory only" if store.folder is None else f"in {store.folder}"
    log.tell(
        "ready",
        f"store ready: {server.url}, {where}, at revision {store.safe_revision} with"
        f" {store.state.keys_count} keys",
        address=server.address,
        url=server.url,
        folder=None if store.folder is None else str(store.folder),
        revision=store.safe_revision,
        keys_count=store.state.keys_count,
        records_count=found.records_count,
        snapshot_revision=found.snapshot_revision,
        pid=os.getpid(),
    )
    if not log.as_json:
        log.tell("hint", f'try: etcdctl --endpoints={server.url} get --prefix ""')
