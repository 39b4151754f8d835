"""`hansa topics`: the topics of a mesh, their owners, and how much goes through them.

`hansa topics move`: the owner of one is asked to hand it over to another node.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from hansa.cli.arguments import guess
from hansa.cli.exit_status import INTERRUPTED
from hansa.cli.log_lines import LogLines, counted, visible
from hansa.cli.mesh_options import ANY_MESH, MeshOptions
from hansa.cli.move_options import WITHIN, moved, report_move
from hansa.cli.registry_options import NO_TLS, SECONDS, AsJson, TlsOptions
from hansa.cli.standard_streams import console
from hansa.cli.stop_signals import Interruption, until_stopped
from hansa.cli.store_options import (
    STORE,
    ClusterName,
    StoreAddress,
    first_of,
    open_shared_store,
    this_process,
)
from hansa.coordination.handover import Handover
from hansa.coordination.handovers import Handovers
from hansa.coordination.succession import checked_offer
from hansa.errors import BadArgument, NoOwner, NoSuccessor
from hansa.ids import format_id
from hansa.keys import topic_name
from hansa.limits import HANDOVER_S
from hansa.runtime.loops import run
from hansa.store.store import Store
from hansa.topics import SpotNode, TopicReport
from hansa.topics.names import check_topic
from hansa.transport import Environment

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table


def topics(
    *,
    mesh: MeshOptions = ANY_MESH,
    watch: bool = False,
    interval: Annotated[float, SECONDS] = 1.0,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Show the topics of a mesh: owner, subscribers, messages per second, dropped, published in total.

    Joins the mesh as a node of its own and asks every other one. Dropped is what subscribers' nodes were too
    slow to take from the owner's; a dash stands where an owner does not tell. Nodes with a store take topics
    that others hand over, and stand in a table of their own: `hansa topics move TOPIC NODE` moves one there.

    Examples:

        hansa topics
        hansa topics move --help
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
    if mesh.mesh == "pubsub":
        raise BadArgument(
            "nobody tells of the topics of a PUB/SUB mesh: they have no owners. "
            "`hansa subscribe '*' --mesh pubsub` shows what is published"
        )
    run(show(mesh, tls.environment(), watch=watch, interval_s=interval, as_json=as_json))


async def show(
    mesh: MeshOptions, environment: Environment, *, watch: bool, interval_s: float, as_json: bool
) -> None:
    """Join, ask, and show. Raises TimedOut when no registry answers."""
    async with until_stopped() as cut, mesh.joined("topics", environment) as node:
        survey = Survey(node, interval_s)
        if watch and (as_json or not console().is_terminal):
            await _tell_changes(survey, cut, as_json=as_json)
        elif watch:
            await _draw(survey, console())
        else:
            # A second look, for the rates.
            await survey.look()
            await survey.look()
            if as_json:
                print(json.dumps(as_object(survey.topics, node.peers, node.takers)), flush=True)
            else:
                console().print(survey.screen())


async def _draw(survey: Survey, to: Console) -> None:
    """A live table, for a terminal."""
    from rich.live import Live

    with Live(console=to, auto_refresh=False) as live:
        while True:
            await survey.look()
            live.update(survey.screen(), refresh=True)


async def _tell_changes(survey: Survey, cut: Interruption, *, as_json: bool) -> None:
    """A line per topic and change; the topics at the beginning are told, too."""
    loop = asyncio.get_running_loop()
    with LogLines(as_json=as_json, on_broken=lambda: loop.call_soon_threadsafe(cut.make)) as log:
        before = await survey.look()
        peers = survey.node.peers
        log.tell("ready", f"watching: {summary(survey.topics, peers)}", nodes_count=len(peers))
        while True:
            tell_changes(log, before, survey.topics)
            before = await survey.look()


class Survey:
    """The numbers of all topics, at the last look and now."""

    def __init__(self, node: SpotNode, interval_s: float) -> None:
        self.node = node
        self.topics: Topics = {}
        self._interval_s = interval_s
        self._rates = Rates()
        self._next_at = asyncio.get_running_loop().time()

    async def look(self) -> Topics:
        """Wait until the next look is due, ask every node, and return the state before."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._next_at - loop.time())
        # From now and not from when it was due: nobody is asked twice to make up for a slow node.
        self._next_at = loop.time() + self._interval_s
        reports = await self.node.survey()
        before, self.topics = self.topics, self._rates.look(reports, self.node.topics, now=loop.time())
        return before

    def screen(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        takers = self.node.takers
        shown = [as_table(self.topics)] if self.topics else []
        shown += [takers_table(takers, self.topics)] if takers else []
        return Group(*shown, Text(summary(self.topics, self.node.peers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLine:
    """A topic at one look. What its owner does not tell, and a rate at the first look, is None."""

    topic: str
    owner: str
    subscribers_count: int | None
    published_count: int | None
    dropped_count: int | None
    rate: float | None

    def facts(self) -> dict[str, object]:
        """The line as JSON."""
        facts = asdict(self)
        rate = facts.pop("rate")
        return facts | {"messages_per_s": None if rate is None else round(rate, 3)}

    def sentence(self) -> str:
        """The line for people."""
        return (
            f"{self.topic}: owner {self.owner}, {number(self.subscribers_count)} subscribers, "
            f"{number(self.rate)} messages/s, {number(self.dropped_count)} dropped, "
            f"{number(self.published_count)} in total"
        )


# By topic and owner: until they have settled it, two nodes may both own a topic.
Topics: TypeAlias = Mapping[tuple[str, str], TopicLine]


class Rates:
    """Turns surveys, one after the other, into lines with rates."""

    def __init__(self) -> None:
        self._before: Topics = {}
        self._looked_at = 0.0

    def look(self, reports: Iterable[TopicReport], known: Mapping[str, bytes], *, now: float) -> Topics:
        """The lines of a survey that was made just now; rates are those since the last one.

        Topics that are `known` (with their owners) and were not reported are included without numbers.
        """
        elapsed_s, self._looked_at = now - self._looked_at, now
        told = {(report.topic, report.owner): report for report in reports}
        lines = {}
        for topic, owner in sorted(told.keys() | known.items()):
            key, report = (topic, format_id(owner)), told.get((topic, owner))
            lines[key] = TopicLine(
                topic=topic,
                owner=key[1],
                subscribers_count=None if report is None else report.subscribers_count,
                published_count=None if report is None else report.published_count,
                dropped_count=None if report is None else report.dropped_count,
                rate=_rate(self._before.get(key), report, elapsed_s),
            )
        self._before = lines
        return lines


def _rate(before: TopicLine | None, report: TopicReport | None, elapsed_s: float) -> float | None:
    if before is None or before.published_count is None or elapsed_s <= 0:
        return None
    if report is None or report.published_count is None:
        return None
    # Less than before: the topic was destroyed and created again by the same node.
    count = report.published_count - before.published_count
    return count / elapsed_s if count >= 0 else None


def as_table(topics: Topics) -> Table:
    """A row per topic."""
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=False)
    table.add_column("topic", overflow="fold")
    table.add_column("owner", overflow="fold")
    for title in ("subscribers", "messages/s", "dropped", "total"):
        table.add_column(title, justify="right")
    for line in topics.values():
        table.add_row(
            # Text and not str: what a peer wrote is never markup.
            Text(visible(line.topic), "bold"),
            Text(line.owner),
            number(line.subscribers_count),
            number(line.rate),
            Text(number(line.dropped_count), "bold red" if line.dropped_count else ""),
            number(line.published_count),
        )
    return table


def takers_table(takers: Mapping[bytes, str], topics: Topics) -> Table:
    """A row per node to which topics can be moved, with the word to type for it."""
    from rich.table import Table
    from rich.text import Text

    owned = Counter(owner for _, owner in topics)
    rows = [(format_id(peer), name) for peer, name in takers.items()]
    are_named = any(name != node for node, name in rows)
    table = Table(expand=False)
    table.add_column("takes topics", overflow="fold")
    if are_named:
        table.add_column("in the store", overflow="fold")
    table.add_column("owns", justify="right")
    for node, name in rows:
        names = [Text(visible(name))] if are_named else []
        table.add_row(Text(node), *names, number(owned[node]))
    return table


def as_object(topics: Topics, peers: Sequence[bytes], takers: Mapping[bytes, str]) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {
        "nodes": [format_id(peer) for peer in peers],
        "takers": [{"node": format_id(peer), "name": name} for peer, name in takers.items()],
        "topics": [line.facts() for line in topics.values()],
    }


def summary(topics: Topics, peers: Sequence[bytes]) -> str:
    """A summary in one sentence; this command's own node does not count."""
    rates = [line.rate for line in topics.values() if line.rate is not None]
    told = f", {sum(rates):,.0f} messages/s" if rates else ""
    return f"{counted(len({topic for topic, _ in topics}), 'topic')} at {counted(len(peers), 'node')}{told}"


def tell_changes(log: LogLines, before: Topics, after: Topics) -> None:
    """A line for each topic whose numbers changed since the last look, and for each that is gone."""
    for key, line in after.items():
        if key not in before or _news(line) != _news(before[key]):
            log.tell("topic", line.sentence(), **line.facts())
    for key, line in before.items():
        if key not in after:
            log.tell(
                "topic-removed", f"{line.topic}: removed by {line.owner}", topic=line.topic, owner=line.owner
            )


def _news(line: TopicLine) -> tuple[object, ...]:
    # A rate that goes from unknown to 0 is no change, one that goes from a number to 0 is.
    return line.owner, line.subscribers_count, line.published_count, line.dropped_count, bool(line.rate)


def number(value: float | None) -> str:
    """A number for people; an unknown one is a dash."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


# ---- move ---------------------------------------------------------------------------------------------


def move(
    topic: str,
    node: str,
    /,
    *,
    reason: str = "",
    within: Annotated[float, WITHIN] = HANDOVER_S,
    store: StoreAddress = STORE,
    cluster: ClusterName = "default",
    mesh: MeshOptions = ANY_MESH,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Move a topic to another node, while it is used: nobody sees an error or misses a message.

    Its owner is asked through the store in which it claimed the topic, and hands it over. Both nodes have
    that store (`hansa publish --create --hold --store ADDRESS`); publishers and subscribers need none. The
    status is 0 when the topic was moved, and 1 when it stays: the sentence on stderr says why. Ctrl-C or
    SIGTERM takes the request back, unless the topic is on its way already.

    Examples:

        hansa topics
        hansa topics move zone:12 01:5f3c91aa
        hansa topics move zone:12 host-2 --reason "a new kernel on host-1" --store etcd://store-1:2379

    Parameters
    ----------
    topic
        Its whole name, such as `zone:12`.
    node
        Where to: a node that takes topics, by its id or by its name in the store. `hansa topics` lists them.
    reason
        Why, for people who look at `hansa handovers`.
    within
        How long it may take. What has not moved by then stays where it is.
    store
        The store in which the topic is claimed: etcd://HOST:PORT, with commas between several.
    cluster
        The cluster in that store.
    as_json
        One JSON object for programs: the record of the hand-over, with `pause_s` and `took_s`; or `error` (a
        stable code) and `text`.
    """
    if mesh.mesh == "pubsub":
        raise BadArgument("topics of a PUB/SUB mesh have no owners: there is nothing to move")
    check_topic(topic)
    checked_offer(node, within, reason)
    opened = open_shared_store(store, tls)
    order = _moved_in_mesh(
        topic, node, opened, mesh, tls.environment(), cluster=cluster, within=within, reason=reason
    )
    record = run(order)
    if record is None:
        return INTERRUPTED
    return report_move(record, {"topic": topic}, paused="owned", as_json=as_json)


async def _moved_in_mesh(
    topic: str,
    to: str,
    store: Store,
    mesh: MeshOptions,
    environment: Environment,
    *,
    cluster: str,
    within: float,
    reason: str,
) -> Handover | None:
    """The record of the move; None when a signal came before. Raises the errors that `move` reports."""
    name = topic_name(mesh.service, topic)
    async with until_stopped(), store, mesh.joined("topics move", environment) as node:
        handovers = Handovers(store, cluster=cluster, name=this_process())
        target = taker(node, topic, to)
        try:
            return await moved(handovers, "topic", name, target, within=within, reason=reason)
        except NoOwner as error:
            raise _unowned(node, topic, cluster) from error
    return None


def taker(node: SpotNode, topic: str, to: str) -> str:
    """The name in the store of the node that the user named.

    Raises `NoSuccessor`, which lists the possible ones.
    """
    takers = node.takers
    # An id first: somebody may have named a node like the id of another one.
    found = [peer for peer in takers if format_id(peer) == to]
    found += [peer for peer, name in takers.items() if name == to]
    stays = f"topic {topic!r} stays where it is"
    if found and found[0] == node.topics.get(topic):
        raise NoSuccessor(f"{stays}: node {to!r} owns it already")
    if found:
        return takers[found[0]]
    if any(format_id(peer) == to for peer in node.peers):
        why = f"node {to!r} takes no topics"
    else:
        why = f"no node {to!r} that takes topics is connected"
    raise NoSuccessor(f"{stays}: {why}; {_named(takers)}")


def _named(takers: Mapping[bytes, str]) -> str:
    if not takers:
        return "no node of this mesh does, because none has a store (`hansa publish --hold --store ADDRESS`)"
    nodes = {format_id(peer): name for peer, name in takers.items()}
    names = [node if name == node else f"{node} ({name})" for node, name in nodes.items()]
    return f"these take topics: {first_of(names)}"


def _unowned(node: SpotNode, topic: str, cluster: str) -> NoOwner:
    """The error for a topic without an owner in the store, with the reason."""
    owner = node.topics.get(topic)
    if owner is None:
        return NoOwner(f"nobody owns topic {topic!r} now.{guess(topic, node.topics)}")
    return NoOwner(
        f"topic {topic!r} stays at node {format_id(owner)}, which has not claimed it in this store, cluster "
        f"{cluster!r}: only a topic that was created with a store can be moved, and with that store"
    )
