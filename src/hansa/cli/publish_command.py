"""`hansa publish`: messages to a topic, from a shell, and their outcome."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from hansa.cli.arguments import Number, Parameter
from hansa.cli.exit_status import FAILED, INTERRUPTED, OK, complain
from hansa.cli.log_lines import visible
from hansa.cli.mesh_options import ANY_MESH, LOOK_INTERVAL_S, MeshOptions
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions, Whole
from hansa.cli.standard_streams import read_lines, read_payload
from hansa.cli.stop_signals import Interruption, until_stopped
from hansa.cli.store_options import ClusterName, open_shared_store
from hansa.errors import BadArgument, Fenced, HansaError, NoOwner, TimedOut, TopicExists
from hansa.ids import format_id
from hansa.runtime.loops import run
from hansa.topics import SpotNode, TopicDemoted, TopicLost
from hansa.topics.names import check_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """What the user asked for."""

    topic: str
    payload: str = "-"
    create: bool = False
    retain: bool = False
    wait: int | None = None
    lines: bool = False
    count: int | None = None
    hold: bool = False
    store: str | None = None
    cluster: str = "default"
    has_owners: bool = True

    @property
    def stays(self) -> bool:
        """Whether the owner lives on until it is ended."""
        return self.create and (self.lines or self.hold)

    @property
    def awaits_subscribers(self) -> bool:
        """Whether this node can wait for subscribers: it sends to them itself, as an owner or without one."""
        return self.create or not self.has_owners

    def check(self) -> None:
        """Raise BadArgument for an impossible topic and for options that exclude each other."""
        check_topic(self.topic)
        of_an_owner = {"retain": self.retain, "hold": self.hold, "store": self.store is not None}
        if not self.has_owners:
            for name, is_given in {"create": self.create, **of_an_owner}.items():
                if is_given:
                    raise BadArgument(f"--{name} is up to an owner, and topics of --mesh pubsub have none")
        elif not self.create:
            for name, is_given in {**of_an_owner, "wait": self.wait is not None}.items():
                if is_given:
                    raise BadArgument(f"--{name} is up to the owner of the topic: give --create as well")
        if self.lines and self.payload != "-":
            raise BadArgument("--lines publishes standard input: leave out the payload, or pipe it in")
        if self.lines and self.count is not None:
            raise BadArgument("--count repeats one message, and --lines publishes each line once")


@dataclass(slots=True, kw_only=True)
class Published:
    """The outcome, as far as it is known."""

    topic: str
    published_count: int = 0
    is_complete: bool = False
    """Whether all of it was published, and the owner has taken it."""
    nodes_count: int | None = None
    """How many nodes had subscribed at the end; only the owner knows."""
    dropped_count: int = 0
    """How many of the messages, counted for each node, were dropped on their way to a slow one."""
    refused_count: int = 0
    in_doubt_count: int = 0

    @property
    def is_well(self) -> bool:
        return self.is_complete and not self.refused_count and not self.in_doubt_count

    def explained(self, error: HansaError, order: Publishing) -> HansaError:
        """The error with advice, and with how far it came before."""
        before = f" any more, after {self.published_count:,} published" if self.published_count else ""
        if isinstance(error, NoOwner) and order.create:
            return NoOwner(f"{self.topic!r} was lost, and nobody owns it{before}")
        if isinstance(error, NoOwner):
            return NoOwner(
                f"nobody owns {self.topic!r}{before}. Start its owner, or give --create: then this command "
                "owns it, for as long as it runs"
            )
        if isinstance(error, TopicExists):
            return TopicExists(f"{error}. Leave out --create to publish through its owner")
        return error

    def sentence(self) -> str:
        """For people."""
        words = [f"{self.published_count:,} published to {visible(self.topic)}"]
        if self.nodes_count is not None:
            words.append(f"{self.nodes_count:,} node{'' if self.nodes_count == 1 else 's'} subscribed")
        if self.dropped_count:
            words.append(f"{self.dropped_count:,} dropped for nodes that were too slow")
        if self.refused_count:
            words.append(f"{self.refused_count:,} refused, because the owner had left the topic")
        if self.in_doubt_count:
            words.append(
                f"at most {self.in_doubt_count:,} lost, because the connection to the owner broke under them"
            )
        return ", ".join(words)

    def facts(self) -> dict[str, Any]:
        """For programs."""
        facts = asdict(self)
        del facts["is_complete"]
        return facts


# Nodes that hear of a new topic subscribe within a round trip; after this long without a new one, all have.
QUIET_S: Final = 0.2


def publish(
    topic: str,
    payload: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-",
    /,
    *,
    create: bool = False,
    retain: bool = False,
    wait: Annotated[Whole | None, Parameter(metavar="NODES", validator=Number(gte=0))] = None,
    hold: bool = False,
    lines: bool = False,
    count: Annotated[Whole | None, Parameter(validator=Number(gte=1))] = None,
    store: Annotated[str | None, Parameter(metavar="ADDRESS")] = None,
    cluster: ClusterName = "default",
    mesh: MeshOptions = ANY_MESH,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Publish to a topic: to one that a node of the mesh owns, or with --create to a new one.

    A topic lives as long as its owner: one that --create made is destroyed when this command ends. Status 0
    means that the owner has taken everything, and has sent it to every node that had subscribed.

    Examples:

        hansa publish chat:room1 hello
        hansa publish chat:room1 hello --create
        tail -f app.log | hansa publish log:app --create --lines
        hansa publish config:flags @flags.json --create --retain --wait 0 --hold
        hansa publish config:flags @flags.json --create --retain --wait 0 --hold --store etcd://127.0.0.1:2379

    Parameters
    ----------
    topic
        Its whole name, such as `chat:room1`.
    payload
        Text; `-`, or nothing at all, reads standard input to its end as one message, `@path` a file (write
        `@@` for text that begins with `@`).
    create
        Make the topic first. It must not have an owner yet.
    retain
        A later subscriber gets the latest message at once; with --create.
    wait
        Publish when so many nodes have subscribed, and fail if they have not after --timeout; with --create,
        or --mesh pubsub. When not given, one is waited for, and all others that subscribe along with it.
    hold
        Keep the topic after the last message, until Ctrl-C or SIGTERM, and fail if it is lost
        meanwhile; with --create. With --store other nodes may hand their topics over to this one, and it
        hands its own over to them when it is ended, if one takes it.
    lines
        Publish each line of standard input, without its end, as soon as it comes.
    count
        Publish the message so many times.
    store
        Claim the topic in this store before creating it, such as etcd://HOST:PORT: of all nodes that do so
        one can own it, also when they do not hear each other; with --create.
    cluster
        The cluster in that store.
    as_json
        An object for the outcome: what was published, or `error` (a stable code) and `text`.
    """
    order = Publishing(
        topic=topic,
        payload=payload,
        create=create,
        retain=retain,
        wait=wait,
        lines=lines,
        count=count,
        hold=hold,
        store=store,
        cluster=cluster,
        has_owners=mesh.mesh == "router",
    )
    outcome = Published(topic=topic)
    try:
        order.check()
        content = None if lines else read_payload(payload)
        run(carry_out(order, content, outcome, mesh, tls, as_json=as_json))
    except HansaError as error:
        return complain("publish", outcome.explained(error, order), as_json=as_json)
    if not outcome.is_complete:
        return INTERRUPTED
    return OK if outcome.is_well else FAILED


async def carry_out(
    order: Publishing,
    content: bytes | None,
    outcome: Published,
    mesh: MeshOptions,
    tls: TlsOptions,
    *,
    as_json: bool,
) -> None:
    """Join, publish, make sure, and report the outcome. A signal ends it, in order.

    Raises what joining, creating and publishing raise, and TimedOut when the owner does not answer.
    """
    async with AsyncExitStack() as stack:
        cut = await stack.enter_async_context(until_stopped())
        store = None
        if order.store is not None:
            store = await stack.enter_async_context(open_shared_store(order.store, tls))
        node = await stack.enter_async_context(
            mesh.joined(
                "publish",
                tls.environment(),
                store=store,
                cluster=order.cluster,
                takes_topics=order.hold,
            )
        )
        spot = await stack.enter_async_context(node.spot())
        stack.push_async_callback(drain_if, cut, node)
        if order.create:
            await spot.create_topic(order.topic, retain=order.retain)
            if order.stays:
                print(visible(f"owner of {order.topic}, pid {os.getpid()}"), file=sys.stderr, flush=True)
        if order.awaits_subscribers:
            await await_subscribers(node, order, timeout_s=mesh.timeout)
        async for message in messages(order, content):
            await spot.publish(order.topic, message)
            outcome.published_count += 1
        await make_sure(node, order, outcome, timeout_s=mesh.timeout)
        tell(outcome, is_brief=not order.lines and order.count is None, as_json=as_json)
        if order.hold:
            await until_lost(node, order.topic)


async def drain_if(cut: Interruption, node: SpotNode) -> None:
    """Hand over what this node owns if a signal ends it; when it ends by itself its topics end too."""
    if cut.was_made:
        for topic, owner in (await node.drain()).items():
            print(visible(f"{topic} is handed over to {format_id(owner)}"), file=sys.stderr, flush=True)


async def messages(order: Publishing, content: bytes | None) -> AsyncIterator[bytes]:
    """The content, as often as requested; without one, the lines of stdin."""
    if content is None:
        async for line in read_lines():
            yield line
    else:
        for _ in range(order.count or 1):
            yield content


async def await_subscribers(node: SpotNode, order: Publishing, *, timeout_s: float) -> None:
    """Wait for the subscribers. Raises TimedOut when they do not subscribe."""
    loop = asyncio.get_running_loop()
    wanted_count, quiet_s = (1, QUIET_S) if order.wait is None else (order.wait, 0.0)
    found_count, changed_at = node.subscribers_count(order.topic), loop.time()
    end_at = changed_at + timeout_s
    while found_count < wanted_count or loop.time() < changed_at + quiet_s:
        if found_count < wanted_count and loop.time() >= end_at:
            raise TimedOut(
                f"{found_count} of {wanted_count} nodes subscribed to {order.topic!r} within {timeout_s:g} s"
                ", and nothing was published. Is `hansa subscribe` running? `--wait 0` does not ask"
            )
        # That a node subscribes is no event at the owner: so this polls.
        await asyncio.sleep(LOOK_INTERVAL_S)
        before_count, found_count = found_count, node.subscribers_count(order.topic)
        if found_count != before_count:
            changed_at = loop.time()


async def until_lost(node: SpotNode, topic: str) -> None:
    """Hold a topic for as long as it is this node's. Raises Fenced when it was lost.

    After it was handed over the node lives on: others may have handed it their topics.
    """
    events = node.events()
    if topic not in node.owned and not node.stats.moved_count:
        raise Fenced(f"{topic!r} was lost before the last message")
    async for event in events:
        if isinstance(event, TopicLost) and event.topic == topic:
            raise Fenced(f"{topic!r} is lost: {event.reason}")
        if isinstance(event, TopicDemoted) and event.topic == topic:
            raise Fenced(f"{topic!r} is lost: {format_id(event.winner)} has created it as well, and keeps it")


async def make_sure(node: SpotNode, order: Publishing, outcome: Published, *, timeout_s: float) -> None:
    """Ask the owner over the same connection as the messages: it answers when it has all of them.

    Raises TimedOut when it does not answer.
    """
    reports = {(report.topic, report.owner): report for report in await node.survey(timeout_s)}
    stats = node.stats
    outcome.refused_count = stats.publishes_refused_count
    outcome.in_doubt_count = stats.publishes_in_doubt_count
    owner = node.topics.get(order.topic)
    # Without an owner by now nobody can answer, and messages that it did not take were counted.
    if owner is not None:
        report = reports.get((order.topic, owner))
        if report is None:
            raise TimedOut(
                f"{format_id(owner)}, which owns {order.topic!r}, did not answer within {timeout_s:g} s: "
                f"some of the {outcome.published_count:,} messages may not have reached it"
            )
        if owner == node.routing_id:
            outcome.nodes_count = node.subscribers_count(order.topic)
            outcome.dropped_count = report.dropped_count or 0
    outcome.is_complete = True


def tell(outcome: Published, *, is_brief: bool, as_json: bool) -> None:
    """Report the outcome; people are told about one message only if there is something to say."""
    if as_json:
        print(json.dumps(outcome.facts()), flush=True)
    if not outcome.is_well or outcome.dropped_count or not (is_brief or as_json):
        print(outcome.sentence(), file=sys.stderr, flush=True)
