"""`hansa topics move`: the owner of a topic is asked to hand it over to another node of the mesh."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Final

from hansa.cli.arguments import guess
from hansa.cli.exit_status import INTERRUPTED
from hansa.cli.handover_board import facts, pause_s, sentence, took_s
from hansa.cli.log_lines import visible
from hansa.cli.mesh_options import ANY_MESH, MeshOptions
from hansa.cli.move_options import WITHIN, moved, status_of_move
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import STORE, ClusterName, StoreAddress, open_shared_store, this_process
from hansa.coordination.handover import Handover
from hansa.coordination.handovers import Handovers
from hansa.coordination.succession import checked_offer
from hansa.errors import BadArgument, NoOwner, NoSuccessor
from hansa.ids import format_id
from hansa.keys import topic_name
from hansa.limits import HANDOVER_S
from hansa.runtime.loops import run
from hansa.store.store import Store
from hansa.topics import SpotNode
from hansa.topics.names import check_topic
from hansa.transport import Environment

NAMED_MAX: Final = 8


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
    that store (`hansa publish --create --hold --store ADDRESS`); who publishes and subscribes needs none. The
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
        Why, for whoever looks at `hansa handovers`.
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
    if as_json:
        more = {"topic": topic, "pause_s": round(pause_s(record), 6), "took_s": round(took_s(record), 6)}
        print(json.dumps(facts(record) | more), flush=True)
    else:
        print(visible(f"{sentence(record)}; nobody owned it for {pause_s(record):.3f} s"), flush=True)
    return status_of_move(record)


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
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"these take topics: {', '.join(names[:NAMED_MAX])}{more}"


def _unowned(node: SpotNode, topic: str, cluster: str) -> NoOwner:
    """The error for a topic without an owner in the store, with the reason."""
    owner = node.topics.get(topic)
    if owner is None:
        return NoOwner(f"nobody owns topic {topic!r} now.{guess(topic, node.topics)}")
    return NoOwner(
        f"topic {topic!r} stays at node {format_id(owner)}, which has not claimed it in this store, cluster "
        f"{cluster!r}: only a topic that was created with a store can be moved, and with that store"
    )
