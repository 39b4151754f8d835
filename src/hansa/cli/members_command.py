"""`hansa members`: the members of a cluster, once or as they change; and a member made by hand, to try it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from hansa.cli.arguments import Number, Parameter
from hansa.cli.log_lines import LogLines, moment_of, visible
from hansa.cli.registry_options import NO_TLS, SECONDS, AsJson, TlsOptions, Whole
from hansa.cli.standard_streams import console
from hansa.cli.stop_signals import Interruption, until_stopped
from hansa.cli.store_options import STORE, ClusterName, StoreAddress, open_shared_store
from hansa.coordination.member import (
    Expelled,
    LoopLagged,
    Member,
    MemberDown,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MembersEvent,
    MemberStatus,
    MemberSuspected,
    MemberUpdated,
    NodeInfo,
    Rejoined,
)
from hansa.coordination.members import Members
from hansa.coordination.roster import Roster, silence_s
from hansa.errors import BadArgument, StoreUnavailable, TimedOut
from hansa.runtime.loops import run
from hansa.store.store import Store

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

_STYLES: Final = {
    MemberStatus.JOINING: "cyan",
    MemberStatus.UP: "green",
    MemberStatus.SUSPECT: "bold yellow",
    MemberStatus.DOWN: "bold red",
    MemberStatus.LEFT: "dim",
    MemberStatus.DRAINING: "magenta",
}
_WORDS: Final[Mapping[type[MembersEvent], tuple[str, str]]] = {
    MemberJoined: ("member-joined", "joined"),
    MemberUpdated: ("member-updated", "is"),
    MemberSuspected: ("member-suspected", "is suspected"),
    MemberRefuted: ("member-refuted", "is back"),
    MemberDown: ("member-down", "is down"),
    MemberLeft: ("member-left", "left"),
    Rejoined: ("rejoined", "(this process) had to join again"),
    Expelled: ("expelled", "(this process) is no longer a member"),
    LoopLagged: ("loop-lagged", "this process was late"),
}


def as_table(roster: Roster, silences_s: Mapping[str, float]) -> Table:
    """A row per member, and the columns that any of them has; the age of a heartbeat where it is known."""
    from rich.table import Table
    from rich.text import Text

    ages = {name: f"{silence_s:.1f} s" for name, silence_s in silences_s.items()}
    columns: dict[str, Callable[[Member], str]] = {
        "address": lambda one: one.address,
        "roles": lambda one: ", ".join(sorted(one.roles)),
        "zone": lambda one: one.zone,
        "version": lambda one: one.version,
        "since": lambda one: moment_of(one.since),
        "heartbeat": lambda one: ages.get(one.id, ""),
        "reason": lambda one: one.reason,
    }
    columns = {title: of for title, of in columns.items() if any(of(one) for one in roster.values())}
    table = Table(expand=False)
    for title in ("id", "status", *columns):
        # Short texts stay on one line on a narrow terminal.
        table.add_column(
            title,
            overflow="fold",
            no_wrap=title in ("status", "since", "heartbeat"),
            justify="right" if title == "heartbeat" else "left",
        )
    for one in roster.values():
        table.add_row(
            # Text and not str: what a member says of itself is never markup.
            Text(visible(one.id), "bold"),
            Text(one.status.value, _STYLES[one.status]),
            *(Text(visible(of(one)) or "-") for of in columns.values()),
        )
    return table


def as_object(
    roster: Roster, silences_s: Mapping[str, float], *, cluster: str, is_stale: bool
) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {
        "cluster": cluster,
        "is_stale": is_stale,
        "members": [facts(one) | {"heartbeat_age_s": silences_s.get(one.id)} for one in roster.values()],
    }


def facts(member: Member) -> dict[str, Any]:
    """A member as JSON."""
    return member.to_object() | {"address": member.address}


def summary(roster: Roster, *, cluster: str, stale_s: float) -> str:
    """A summary of the roster in one sentence."""
    counts = [
        f"{count} {status.value}" for status in MemberStatus if (count := len(roster.with_status(status)))
    ]
    stale = f"; the store has not answered for {stale_s:.0f} s" if stale_s else ""
    return f"cluster {cluster}: {', '.join(counts) or 'no members'}{stale}"


def tell_event(log: LogLines, event: MembersEvent) -> None:
    """One event as a line."""
    name, words = _WORDS[type(event)]
    if isinstance(event, LoopLagged):
        log.tell(name, f"{words}: {event.reason}", lag_s=event.lag_s, reason=event.reason)
        return
    member = event.member
    if isinstance(event, MemberUpdated):
        words = f"{words} {member.status.value}"
    # A reason that adds nothing to the event is not repeated.
    why = "" if event.reason in (words, member.status.value.lower()) else f": {event.reason}"
    revision = {} if isinstance(event, Rejoined | Expelled) else {"revision": event.revision}
    log.tell(name, f"{member.id} {words}{why}", reason=event.reason, member=facts(member), **revision)


DRAW_INTERVAL_S: Final = 0.5
# How many leases are asked for at the same time.
ASKED_COUNT_MAX: Final = 32


@dataclass(frozen=True, kw_only=True)
class Joining:
    """What this command says of itself when it joins.

    Parameters
    ----------
    join
        Join as a member of this id, watch, and leave at Ctrl-C.
    host
        With --join: where this member listens.
    port
        With --join: and at which port.
    role
        With --join: what it does; repeat it for each role.
    zone
        With --join: where it stands.
    metadata
        With --join: NAME=TEXT, anything else that others shall know; repeat it.
    """

    join: Annotated[str | None, Parameter(metavar="ID")] = None
    host: str = ""
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65_535))] = 0
    role: tuple[str, ...] = ()
    zone: str = ""
    metadata: Annotated[tuple[str, ...], Parameter(metavar="NAME=TEXT")] = ()

    def node(self) -> NodeInfo | None:
        """Raises BadArgument."""
        if self.join is None:
            if self.host or self.port or self.role or self.zone or self.metadata:
                raise BadArgument("--host, --port, --role, --zone and --metadata go with --join ID")
            return None
        pairs = [text.partition("=") for text in self.metadata]
        if not all(name and separator for name, separator, _ in pairs):
            raise BadArgument("--metadata takes NAME=TEXT")
        return NodeInfo(
            id=self.join,
            host=self.host,
            port=self.port,
            roles=frozenset(self.role),
            zone=self.zone,
            metadata={name: text for name, _, text in pairs},
        )


NOBODY: Final = Joining()


def members(
    *,
    store: StoreAddress = STORE,
    cluster: ClusterName = "default",
    watch: bool = False,
    joining: Joining = NOBODY,
    heartbeat_interval: Annotated[float, SECONDS] = 1.0,
    heartbeat_timeout: Annotated[float, SECONDS] = 5.0,
    timeout: Annotated[float, SECONDS] = 5.0,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Show the members of a cluster: status, address, roles, zone, since when, last heartbeat, and why.

    Examples:

        hansa members --store etcd://127.0.0.1:2379
        hansa members --watch
        hansa members --join worker-7 --host 10.0.0.7 --port 7400 --role worker --zone east

    Parameters
    ----------
    store
        Where the store is: etcd://HOST:PORT, with commas between several.
    cluster
        The cluster whose members are meant.
    watch
        Go on and show every change, until Ctrl-C. Only then members that went are shown, too.
    heartbeat_interval
        With --join: how often to renew its lease.
    heartbeat_timeout
        With --join: it is SUSPECT after so long without a renewal, and DOWN after twice that.
    timeout
        How long the store may take to answer at first.
    as_json
        One JSON object for programs; with --watch an object a line for each event.
    """
    node = joining.node()
    opened = open_shared_store(store, tls)
    view = Members(
        opened,
        node,
        cluster=cluster,
        heartbeat_interval=heartbeat_interval,
        heartbeat_timeout=heartbeat_timeout,
        timeout=timeout,
    )
    run(show(opened, view, watch=watch or node is not None, as_json=as_json))


async def show(store: Store, view: Members, *, watch: bool, as_json: bool) -> None:
    """Open the store, read, and show. Raises TimedOut when the store does not answer."""
    async with until_stopped() as cut, store, view:
        if watch and (as_json or not console().is_terminal):
            await _tell_events(view, cut, as_json=as_json)
        elif watch:
            await _draw(store, view, console())
        else:
            ages = await heartbeat_ages_s(store, view)
            if as_json:
                print(
                    json.dumps(as_object(view.view, ages, cluster=view.cluster, is_stale=view.is_stale)),
                    flush=True,
                )
            else:
                console().print(_screen(view, ages))


async def heartbeat_ages_s(store: Store, view: Members) -> Mapping[str, float]:
    """How long ago each member that is here renewed its lease, where the store can tell."""
    ages: dict[str, float] = {}
    turn = asyncio.Semaphore(ASKED_COUNT_MAX)

    async def ask(member: Member) -> None:
        async with turn:
            try:
                lease = await store.lease_info(member.lease, timeout=DRAW_INTERVAL_S)
            except (StoreUnavailable, TimedOut):
                return
        if lease is not None:
            ages[member.id] = silence_s(lease)

    async with asyncio.TaskGroup() as tasks:
        for member in view.view.here():
            if member.lease:
                tasks.create_task(ask(member), name=f"asking for {member.id}")
    return ages


def _screen(view: Members, ages: Mapping[str, float]) -> Group | Text:
    from rich.console import Group
    from rich.text import Text

    last = Text(summary(view.view, cluster=view.cluster, stale_s=view.stale_s))
    return Group(as_table(view.view, ages), last) if view.view else last


async def _draw(store: Store, view: Members, to: Console) -> None:
    """A live table, for a terminal."""
    from rich.live import Live

    with Live(console=to, auto_refresh=False) as live:
        while True:
            live.update(_screen(view, await heartbeat_ages_s(store, view)), refresh=True)
            await asyncio.sleep(DRAW_INTERVAL_S)


async def _tell_events(view: Members, cut: Interruption, *, as_json: bool) -> None:
    """A line per event, after one with the state at the beginning."""
    loop = asyncio.get_running_loop()
    with LogLines(as_json=as_json, on_broken=lambda: loop.call_soon_threadsafe(cut.make)) as log:
        events = view.events()
        log.tell(
            "ready",
            f"watching {summary(view.view, cluster=view.cluster, stale_s=view.stale_s)}",
            **as_object(view.view, {}, cluster=view.cluster, is_stale=view.is_stale),
        )
        async for event in events:
            tell_event(log, event)
