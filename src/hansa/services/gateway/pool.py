"""The providers of one service, as a gateway sees them: listed or not, connected or not. Pure.

A member is *ready* when it is connected under the very id that the list gives: another process may listen on
that endpoint by now. A member that is listed without an id is ready under any. Only ready members get
requests, so a stale entry costs nothing. A member that is no longer listed gets no more requests, and stays
connected until it has answered those it has. A member that says that it is draining gets none either, as long
as this connection lasts: it never takes requests again. While it is listed it stays in the pool, for the next
process may come to its endpoint so soon that no list shows the change.

A ready member is *suspected* when it did not answer a try in time: it may stand still, with its connection
up. It gets no requests while there are others, until it answers anything, is connected again, or a pause is
over. The pause is twice as long each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hansa.limits import SUSPICION_S_MAX, SUSPICION_S_MIN
from hansa.presence.provider_info import ProviderInfo


class PoolMember:
    """One provider of one service. `endpoint`, `weight` and `in_flight_count` are what balancers see."""

    __slots__ = (
        "connection",
        "draining",
        "endpoint",
        "in_flight_count",
        "in_ready",
        "leaving",
        "peer",
        "posted_count",
        "routing_id",
        "suspected_until",
        "suspicions_count",
        "tried",
        "weight",
    )

    def __init__(self, provider: ProviderInfo) -> None:
        self.endpoint = provider.endpoint
        self.routing_id = provider.routing_id
        self.weight = provider.weight
        self.in_flight_count = 0
        self.posted_count = 0
        """Requests handed to the socket for this member since its connection was made."""
        self.peer = b""
        """The id under which it is connected; empty while it is not."""
        self.leaving = False
        """Whether it is no longer listed."""
        self.draining = False
        """Whether it said so on its present connection."""
        self.in_ready = False
        """Whether it is in the pool's `ready`."""
        self.tried = False
        """Whether an attempt to connect has ended since it was listed or lost."""
        self.suspected_until = 0.0
        """Without meaning unless it is in the pool's `suspects`."""
        self.suspicions_count = 0
        """How often it was suspected since it last answered."""
        self.connection: Any = None
        """For the driver."""

    def __repr__(self) -> str:
        return (
            f"<Member {self.endpoint} {'leaving' if self.leaving else 'ready' if self.is_ready else 'away'}>"
        )

    def took(self) -> int:
        """A request was handed to its connection; returns the number of that request there."""
        self.in_flight_count += 1
        self.posted_count += 1
        return self.posted_count

    @property
    def is_ready(self) -> bool:
        return (
            bool(self.peer)
            and self.peer == (self.routing_id or self.peer)
            and not self.leaving
            and not self.draining
        )


class Pool:
    """The members of one service. `ready` is kept up to date: choosing one must not cost a scan."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.members: dict[str, PoolMember] = {}
        self.ready: list[PoolMember] = []
        self.well: list[PoolMember] = self.ready
        """The members of `ready` that are not suspected; the very same list while none is."""
        self.suspects: dict[PoolMember, None] = {}
        self._listed: dict[bytes, PoolMember] = {}

    @property
    def is_hopeful(self) -> bool:
        """Whether a member may be ready soon: an attempt to connect is under way."""
        return any(not member.tried and not member.leaving for member in self.members.values())

    def add(self, provider: ProviderInfo) -> PoolMember | None:
        """The provider is listed. Returns a member to dial, or None when its endpoint is dialled already."""
        member = self.members.get(provider.endpoint)
        if member is None:
            self.members[provider.endpoint] = member = PoolMember(provider)
            self._list(member)
            return member
        # Listed again before it had left, perhaps after a restart and so under another id.
        self._unlist(member)
        member.routing_id = provider.routing_id
        member.weight = provider.weight
        member.leaving = False
        self._list(member)
        self._sort(member)
        return None

    def dismiss(self, member: PoolMember) -> None:
        """Send this member no more requests."""
        member.leaving = True
        self._sort(member)

    def drains(self, member: PoolMember) -> None:
        """Send it no more requests before another process answers at its endpoint."""
        member.draining = True
        self._sort(member)

    def forget(self, member: PoolMember) -> None:
        """The member has left for good."""
        self.dismiss(member)
        self._unlist(member)
        if self.members.get(member.endpoint) is member:
            del self.members[member.endpoint]

    def reweigh(self, provider: ProviderInfo) -> None:
        member = self.members.get(provider.endpoint)
        if member is not None:
            member.weight = provider.weight

    def candidates(self, peer: bytes) -> Iterator[PoolMember]:
        """Members that a connection with this peer may belong to, the one listed under its id first."""
        if peer in self._listed:
            yield self._listed[peer]
        yield from self.members.values()

    def connected(self, member: PoolMember, peer: bytes) -> bool:
        """The member's endpoint answered as `peer`; returns whether that is the listed provider."""
        member.peer = peer
        member.tried = True
        member.posted_count = 0
        member.draining = False
        self._trust(member)
        self._sort(member)
        return member.is_ready

    def missed(self, member: PoolMember) -> None:
        """An attempt to connect to it has ended."""
        member.tried = True

    def disconnected(self, member: PoolMember) -> None:
        member.peer = b""
        member.in_flight_count = 0
        member.tried = False  # It is dialled again at once, and may be back before a caller gives up.
        self._sort(member)

    def ready_as(self, peer: bytes) -> PoolMember | None:
        """The ready member with this routing id."""
        return next((member for member in self.ready if member.peer == peer), None)

    def choices(self, tried: Sequence[str]) -> list[PoolMember]:
        """The members for a request that was with these endpoints already: others, if there are any."""
        if not tried:
            return self.well or self.ready
        return self._others(tried) or self.well or self.ready

    def has_others(self, tried: Sequence[str]) -> bool:
        """Whether a member is ready that was not tried."""
        return any(member.endpoint not in tried for member in self.ready)

    def choices_beside(self, asked: Sequence[str], tried: Sequence[str]) -> list[PoolMember]:
        """The members for a request that the `asked` endpoints have and `tried` had: none of `asked`."""
        return self._others(tried) or self._others(asked)

    def _others(self, endpoints: Sequence[str]) -> list[PoolMember]:
        """Members at none of these endpoints; suspected ones only if there are no others."""
        others = [member for member in self.ready if member.endpoint not in endpoints]
        return [member for member in others if member not in self.suspects] or others

    # -- suspicion

    def suspect(self, member: PoolMember, *, now: float) -> None:
        """The member did not answer a try in time."""
        if member in self.suspects or not member.is_ready:
            return
        member.suspicions_count += 1
        lasting_s = min(SUSPICION_S_MAX, SUSPICION_S_MIN * 2 ** min(16, member.suspicions_count - 1))
        member.suspected_until = now + lasting_s
        self.suspects[member] = None
        self._sort(member)

    def heard(self, peer: bytes) -> None:
        """A message came from this peer: it is no longer suspected."""
        for member in [one for one in self.suspects if one.peer == peer]:
            self._trust(member)

    def relieve(self, *, now: float) -> None:
        """Members whose suspicion is over get requests again."""
        for member in [one for one in self.suspects if one.suspected_until <= now]:
            del self.suspects[member]
            self._sort(member)

    def _trust(self, member: PoolMember) -> None:
        member.suspicions_count = 0
        if member in self.suspects:
            del self.suspects[member]
            self._sort(member)

    def _list(self, member: PoolMember) -> None:
        if member.routing_id:
            self._listed[member.routing_id] = member

    def _unlist(self, member: PoolMember) -> None:
        if self._listed.get(member.routing_id) is member:
            del self._listed[member.routing_id]

    def _sort(self, member: PoolMember) -> None:
        if member.is_ready and not member.in_ready:
            self.ready.append(member)
        elif member.in_ready and not member.is_ready:
            self.ready.remove(member)
        member.in_ready = member.is_ready
        if not member.in_ready:
            self.suspects.pop(member, None)
        self.well = [one for one in self.ready if one not in self.suspects] if self.suspects else self.ready
