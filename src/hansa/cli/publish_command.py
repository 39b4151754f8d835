"""`hansa publish`: messages to a topic, from a shell."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from hansa.cli.exit_status import FAILED, INTERRUPTED, OK, complain
from hansa.cli.fast_loop import run
from hansa.cli.log_lines import visible
from hansa.cli.mesh_options import ANY_MESH, LOOK_INTERVAL_S, Mesh
from hansa.cli.payload_argument import read_payload
from hansa.cli.publish_order import Order, Outcome
from hansa.cli.registry_options import NO_TLS, AsJson, TlsFiles, Whole
from hansa.cli.session_options import ClusterName, open_shared_store
from hansa.cli.standard_streams import read_lines
from hansa.cli.stop_signals import until_stopped
from hansa.errors import Fenced, HansaError, TimedOut
from hansa.ids import format_id
from hansa.messaging.spot import SpotNode, TopicDemoted, TopicLost

# Nodes that hear of a new topic subscribe within a round trip; when no more have for so long, all have.
QUIET_S: Final = 0.2

Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]


def publish(
    topic: str,
    payload: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)] = "-",
    /,
    *,
    create: Flag = False,
    retain: Flag = False,
    wait: Annotated[Whole | None, Parameter(metavar="NODES", validator=Number(gte=0))] = None,
    hold: Flag = False,
    lines: Flag = False,
    count: Annotated[Whole | None, Parameter(validator=Number(gte=1))] = None,
    store: Annotated[str | None, Parameter(metavar="ADDRESS")] = None,
    cluster: ClusterName = "default",
    mesh: Mesh = ANY_MESH,
    as_json: AsJson = False,
    tls: TlsFiles = NO_TLS,
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
        Whoever subscribes later gets the latest message at once; with --create.
    wait
        Publish when so many nodes have subscribed, and fail if they have not after --timeout; with --create,
        or --mesh pubsub. When not given, one is waited for, and all others that subscribe along with it.
    hold
        Keep the topic after the last message, until Ctrl-C or SIGTERM, and fail if it is lost
        meanwhile; with --create.
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
    order = Order(
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
    outcome = Outcome(topic=topic)
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
    order: Order, content: bytes | None, outcome: Outcome, mesh: Mesh, tls: TlsFiles, *, as_json: bool
) -> None:
    """Join, publish, make sure, and tell. A signal ends it, in order.

    Raises what joining, creating and publishing raise, and TimedOut when the owner does not answer.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(until_stopped())
        store = None
        if order.store is not None:
            store = await stack.enter_async_context(open_shared_store(order.store, tls))
        node = await stack.enter_async_context(
            mesh.joined("publish", tls.credentials(), store=store, cluster=order.cluster)
        )
        spot = await stack.enter_async_context(node.spot())
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


async def messages(order: Order, content: bytes | None) -> AsyncIterator[bytes]:
    """The content as often as it was asked for; without one, the lines of stdin."""
    if content is None:
        async for line in read_lines():
            yield line
    else:
        for _ in range(order.count or 1):
            yield content


async def await_subscribers(node: SpotNode, order: Order, *, timeout_s: float) -> None:
    """Wait for those who are to hear it. Raises TimedOut when they do not subscribe."""
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
        # That a node subscribes is no event at the owner's: this looks again.
        await asyncio.sleep(LOOK_INTERVAL_S)
        before_count, found_count = found_count, node.subscribers_count(order.topic)
        if found_count != before_count:
            changed_at = loop.time()


async def until_lost(node: SpotNode, topic: str) -> None:
    """Hold a topic for as long as it is this node's. Raises Fenced when it is no more."""
    events = node.events()
    if topic not in node.owned:
        raise Fenced(f"{topic!r} was lost before the last message")
    async for event in events:
        if isinstance(event, TopicLost) and event.topic == topic:
            raise Fenced(f"{topic!r} is lost: {event.reason}")
        if isinstance(event, TopicDemoted) and event.topic == topic:
            raise Fenced(f"{topic!r} is lost: {format_id(event.winner)} has created it as well, and keeps it")


async def make_sure(node: SpotNode, order: Order, outcome: Outcome, *, timeout_s: float) -> None:
    """Ask the owner over the connection on which everything was published: it answers when it has all that.

    Raises TimedOut when it does not answer.
    """
    reports = {(report.topic, report.owner): report for report in await node.survey(timeout_s)}
    stats = node.stats
    outcome.refused_count = stats.publishes_refused_count
    outcome.in_doubt_count = stats.publishes_in_doubt_count
    owner = node.topics.get(order.topic)
    # Without an owner by now there is nobody to answer, and what it did not take was counted.
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


def tell(outcome: Outcome, *, is_brief: bool, as_json: bool) -> None:
    """The outcome; people are told of one message only if there is something to say about it."""
    if as_json:
        print(json.dumps(outcome.facts()), flush=True)
    if not outcome.is_well or outcome.dropped_count or not (is_brief or as_json):
        print(outcome.sentence(), file=sys.stderr, flush=True)
