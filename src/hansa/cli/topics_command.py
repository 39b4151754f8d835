"""`hansa topics`: which topics there are, who owns them, and how much goes through them."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hansa.cli.exit_status import OK, complain, reader_left
from hansa.cli.fast_loop import run
from hansa.cli.log_lines import LogLines
from hansa.cli.mesh_options import ANY_MESH, Mesh
from hansa.cli.registry_options import NO_TLS, SECONDS, AsJson, TlsFiles
from hansa.cli.stop_signals import Cut, until_stopped
from hansa.cli.topics_board import Rates, Topics, as_object, as_table, summary, tell_changes
from hansa.errors import BadArgument, HansaError
from hansa.messaging.spot import SpotNode
from hansa.transport import Tls


def topics(
    *,
    mesh: Mesh = ANY_MESH,
    watch: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    interval: Annotated[float, SECONDS] = 1.0,
    as_json: AsJson = False,
    tls: TlsFiles = NO_TLS,
) -> int:
    """Show the topics of a mesh: owner, subscribers, messages per second, dropped, published in total.

    Joins the mesh as a node of its own and asks every other one. Dropped is what subscribers' nodes were too
    slow to take from the owner's; a dash stands where an owner does not tell.

    Examples:

        hansa topics
        hansa topics --watch
        hansa topics --pub tcp://host:5550 --router tcp://host:5551 --bind tcp://0.0.0.0:0 --json

    Parameters
    ----------
    watch
        Go on and show it again after every interval, until Ctrl-C.
    interval
        Rates are over so many seconds.
    as_json
        One JSON object for programs; with --watch an object a line for each topic whose numbers changed.
    """
    try:
        if mesh.mesh == "pubsub":
            raise BadArgument(
                "nobody tells of the topics of a PUB/SUB mesh: they have no owners. "
                "`hansa subscribe '*' --mesh pubsub` shows what is published"
            )
        run(show(mesh, tls.credentials(), watch=watch, interval_s=interval, as_json=as_json))
    except HansaError as error:
        return complain("topics", error, as_json=as_json)
    except BrokenPipeError:
        reader_left()
    return OK


async def show(mesh: Mesh, tls: Tls | None, *, watch: bool, interval_s: float, as_json: bool) -> None:
    """Join, ask, and show. Raises TimedOut when no registry answers."""
    console = Console(highlight=False)
    async with until_stopped() as cut, mesh.joined("topics", tls) as node:
        survey = Survey(node, interval_s)
        if watch and (as_json or not console.is_terminal):
            await _tell_changes(survey, cut, as_json=as_json)
        elif watch:
            await _draw(survey, console)
        else:
            # A second look, for the rates.
            await survey.look()
            await survey.look()
            if as_json:
                print(json.dumps(as_object(survey.topics, node.peers)), flush=True)
            else:
                console.print(survey.screen())


class Survey:
    """The numbers of all topics, at the last look and now."""

    def __init__(self, node: SpotNode, interval_s: float) -> None:
        self.node = node
        self.topics: Topics = {}
        self._interval_s = interval_s
        self._rates = Rates()
        self._next_at = asyncio.get_running_loop().time()

    async def look(self) -> Topics:
        """Wait until the next look is due, ask every node, and return what was known before."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._next_at - loop.time())
        # From now and not from when it was due: nobody is asked twice to make up for a slow node.
        self._next_at = loop.time() + self._interval_s
        reports = await self.node.survey()
        before, self.topics = self.topics, self._rates.look(reports, self.node.topics, now=loop.time())
        return before

    def screen(self) -> Group | Text:
        last = Text(summary(self.topics, self.node.peers))
        return Group(as_table(self.topics), last) if self.topics else last


async def _draw(survey: Survey, console: Console) -> None:
    """A live table, for a terminal."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            await survey.look()
            live.update(survey.screen(), refresh=True)


async def _tell_changes(survey: Survey, cut: Cut, *, as_json: bool) -> None:
    """A line per topic and change; what is there at the beginning is told, too."""
    loop = asyncio.get_running_loop()

    def broken() -> None:
        loop.call_soon_threadsafe(cut.make)

    with LogLines(as_json=as_json, on_broken=broken) as log:
        before = await survey.look()
        peers = survey.node.peers
        log.tell("ready", f"watching: {summary(survey.topics, peers)}", nodes_count=len(peers))
        while True:
            tell_changes(log, before, survey.topics)
            before = await survey.look()
