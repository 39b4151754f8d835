"""`hansa handovers`: the hand-overs from node to node, ended and open, once or as they happen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from hansa.cli.handover_board import as_object, as_table, facts, sentence, summary
from hansa.cli.log_lines import LogLines, visible
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions
from hansa.cli.standard_streams import console
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import STORE, ClusterName, StoreAddress, open_shared_store
from hansa.coordination.handover import Handover
from hansa.coordination.handovers import Handovers, HandoverStuck
from hansa.errors import StoreUnavailable, TimedOut
from hansa.runtime.loops import run
from hansa.runtime.tasks import TaskScope
from hansa.store.store import Store

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text

DRAW_INTERVAL_S: Final = 0.5


def handovers(
    *,
    store: StoreAddress = STORE,
    cluster: ClusterName = "default",
    watch: bool = False,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Show what is handed over from node to node: what, from whom to whom, how far, since when, and why.

    A lock, a leadership or a topic stands here from its first hand-over on, with the last one, for a while
    after the end of that. While this watches, what does not end in its time is withdrawn, or told as stuck
    with the reason. `hansa lead --move`, `hansa lock --move` and `hansa topics move` ask for one.

    Examples:

        hansa handovers --store etcd://127.0.0.1:2379
        hansa handovers --watch
        hansa handovers --watch --json

    Parameters
    ----------
    store
        Where the store is: etcd://HOST:PORT, with commas between several.
    cluster
        The cluster whose hand-overs are meant.
    watch
        Go on and show every step, until Ctrl-C.
    as_json
        One JSON object for programs; with --watch an object a line for each step.
    """
    run(show(open_shared_store(store, tls), cluster, watch=watch, as_json=as_json))


async def show(store: Store, cluster: str, *, watch: bool, as_json: bool) -> None:
    """Open the store, read, and show. Raises what the store raises."""
    view = Handovers(store, cluster=cluster)
    async with until_stopped() as cut, store:
        if watch and (as_json or not console().is_terminal):
            loop = asyncio.get_running_loop()
            broken = partial(loop.call_soon_threadsafe, cut.make)
            with LogLines(as_json=as_json, on_broken=broken) as log:
                async with looking_after(view, partial(tell_stuck, log)):
                    await tell_steps(view, cluster, log)
        elif watch:
            async with looking_after(view):
                await draw(view, cluster, console())
        elif as_json:
            print(json.dumps(as_object(await view.all(), cluster=cluster)), flush=True)
        else:
            out = console()
            out.print(_screen(await view.all(), cluster, out.width))


@asynccontextmanager
async def looking_after(
    view: Handovers, on_stuck: Callable[[HandoverStuck], None] | None = None
) -> AsyncGenerator[None, None]:
    """Meanwhile end overdue hand-overs: a participant may stand still."""
    # The command's own reads report trouble with the store.
    tasks = TaskScope("hansa handovers", lambda error: None)
    tasks.spawn(view.look_after(on_stuck), "looks after them")
    try:
        yield
    finally:
        await tasks.close()


def tell_stuck(log: LogLines, stuck: HandoverStuck) -> None:
    one = stuck.handover
    log.tell("stuck", f"{sentence(one)}: it does not end: {stuck.reason}", why=stuck.reason, **facts(one))


def _screen(records: Sequence[Handover], cluster: str, width: int, trouble: str = "") -> Group | Text:
    from rich.console import Group
    from rich.text import Text

    last = Text(visible(summary(records, cluster=cluster) + trouble))
    return Group(as_table(records, width), last) if records else last


async def draw(view: Handovers, cluster: str, to: Console) -> None:
    """A live table, for a terminal."""
    from rich.live import Live

    records = await view.all()
    with Live(console=to, auto_refresh=False) as live:
        trouble = ""
        while True:
            live.update(_screen(records, cluster, to.width, trouble), refresh=True)
            await asyncio.sleep(DRAW_INTERVAL_S)
            try:
                records, trouble = await view.all(), ""
            except (StoreUnavailable, TimedOut) as error:
                trouble = f"; this is old: {error}"


async def tell_steps(view: Handovers, cluster: str, log: LogLines) -> None:
    """A line per step, after one with the state at the beginning."""
    records = await view.all()
    log.tell("ready", f"watching {summary(records, cluster=cluster)}", **as_object(records, cluster=cluster))
    # Following begins with the current records, which were told just now.
    told = {(one.kind, one.name): one.revision for one in records}
    async with aclosing(view.follow()) as news:
        async for event in news:
            one = event.handover
            if one.revision <= told.pop((one.kind, one.name), 0):
                continue
            gap = " (steps before it may not have been told)" if event.is_after_gap else ""
            log.tell("step", f"{sentence(one)}{gap}", is_after_gap=event.is_after_gap, **facts(one))
