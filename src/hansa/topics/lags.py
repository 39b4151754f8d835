"""Tells peers how much they missed while their outboxes were full, once there is room again. Pure.

The exchange notes which peers missed messages of which topics. A mark tells such a peer how far the topic is,
so that the peer knows of its gap even if nobody publishes; for a retained topic the latest message follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hansa.topics.effects import Effect, Peer, Send
from hansa.topics.fanout import Exchange, Outlet
from hansa.topics.inbox import TopicMessage
from hansa.wire.topics import Mark, Message, TopicAnnounce, TopicCounts


class Lags:
    """The part of the mesh's machine that tells peers what they missed. It adds to the machine's effects."""

    def __init__(
        self, node: bytes, exchange: Exchange, peers: dict[bytes, Peer], effects: list[Effect]
    ) -> None:
        self._node = node
        self._exchange = exchange
        self._peers = peers
        self._effects = effects

    def tell_all(self, claims: Mapping[bytes, int]) -> None:
        """Tell the peers that have room again. `claims` has the epochs of this node's claims, by topic."""
        exchange = self._exchange
        members = {member.box: member for member in self._peers.values() if member.box in exchange.lagging}
        for box, outlets in list(exchange.lagging.items()):
            member = members.get(box)
            is_full = box.held_count * 2 > box.count_max or box.held_bytes * 2 > box.bytes_max
            if member is not None and is_full:
                continue
            del exchange.lagging[box]
            if member is not None and member.is_hansa:
                for outlet in outlets:
                    self.tell(member, outlet, claims)

    def tell_at_once(self, outlet: Outlet, claims: Mapping[bytes, int]) -> None:
        """Tell all peers that lag behind with a topic, whether there is room or not: this is a last word."""
        for member in [self._peers[peer] for peer in outlet.subscribers]:
            if outlet in self._exchange.lagging.get(member.box, ()):
                self.tell(member, outlet, claims)
                self.forget(member, outlet)

    def tell(self, member: Peer, outlet: Outlet, claims: Mapping[bytes, int]) -> None:
        """Tell a peer how far a topic is; send a retained topic's latest message again: it must be known."""
        latest = outlet.latest
        mark = mark_of(outlet, self._node)
        if latest is not None:
            # The mark says that the latest message is still to come.
            mark = replace(mark, sequence=mark.sequence - 1)
        claim = claims.get(outlet.frame, 0)
        announce = TopicAnnounce(topic=outlet.feed.topic, mark=mark, claim=claim)
        self._effects.append(Send(peer=member.id, command=announce))
        if latest is not None:
            self._effects.append(Send(peer=member.id, command=again(latest)))

    def forget(self, member: Peer, outlet: Outlet) -> None:
        """Note that the peer no longer misses anything of this topic."""
        lagging = self._exchange.lagging.get(member.box)
        if lagging is not None:
            lagging.pop(outlet, None)


def again(latest: TopicMessage) -> Message:
    """A retained message, for a peer that has not had it."""
    return Message(topic=latest.topic, payload=latest.payload, sequence=latest.sequence)


def mark_of(outlet: Outlet, node: bytes, *, confirm: bool = False) -> Mark:
    """The mark that says how far a topic of this node is."""
    return Mark(
        epoch=outlet.epoch,
        sequence=outlet.sequence,
        retain=outlet.retain,
        confirm=confirm,
        founder=b"" if outlet.founder == node else outlet.founder,
    )


def counts_of(outlet: Outlet) -> TopicCounts:
    """The counts of a topic of this node."""
    return TopicCounts(
        subscribers_count=len(outlet.subscribers) + len(outlet.feed.inboxes),
        published_count=outlet.sequence,
        dropped_count=outlet.dropped_count,
    )
