"""One service's ROUTER socket: dials the providers that are listed, and knows whose connection is whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hansa.errors import HansaError
from hansa.messaging.gateway.balancers import Balancer
from hansa.messaging.gateway.calls import Call
from hansa.messaging.gateway.pool import Member, Pool
from hansa.messaging.gateway.stats import GatewayTally
from hansa.messaging.provider_info import ProviderInfo
from hansa.transport import Connected, Disconnected, HandshakeFailed, Outbound, Router, SocketEvent
from hansa.transport.over_tasks import TaskScope
from hansa.transport.over_waiters import Waiters


class LinkOwner(Protocol):
    """What the gateway does when a service's connections change."""

    def service_ready(self, service: ServiceLink) -> None:
        """Somebody is ready to take requests."""

    def service_hopeless(self, service: ServiceLink) -> None:
        """Nobody is ready, and nobody is about to be."""

    def member_lost(self, service: ServiceLink, member: Member, event: Disconnected) -> None:
        """A connection ended; requests that were with that member have no reply to come."""


class ServiceLink:
    """The connections of one service, and the requests that wait for one."""

    def __init__(
        self,
        name: str,
        *,
        owner: LinkOwner,
        balancer: Balancer,
        tasks: TaskScope,
        tally: GatewayTally,
        forget_peer: Callable[[bytes], None],
        make_router: Callable[[ServiceLink], Router],
    ) -> None:
        self.name = name
        self.pool = Pool(name)
        self.balancer = balancer
        self.parked: dict[Call, None] = {}
        self.waiters = Waiters()
        self._owner = owner
        self._tasks = tasks
        self._tally = tally
        self._forget_peer = forget_peer
        self._connected: dict[bytes, Member] = {}
        self._closing: set[str] = set()
        self._is_stopped = False
        self.router = make_router(self)

    def stop(self) -> None:
        """The gateway closes: whose connection ends from now on is not looked after any more."""
        self._is_stopped = True
        self.waiters.wake_all()

    def listed(self, provider: ProviderInfo) -> None:
        """The discovery has this provider: connect to it."""
        member = self.pool.add(provider)
        if member is None:
            self._look()
        elif member.endpoint not in self._closing:
            self._dial(member)
        # Else it left and came back: two connections at once with one peer would be one too many.

    def _dial(self, member: Member) -> None:
        try:
            member.connection = self.router.connect(member.endpoint)
        except HansaError:  # A registry of somebody else's may list anything.
            self._tally.bad_endpoints_count += 1
            self.pool.forget(member)
            self._look()

    def unlisted(self, provider: ProviderInfo) -> None:
        """The discovery has it no more: let it answer what it has, then disconnect."""
        member = self.pool.members.get(provider.endpoint)
        if member is not None:
            self.dismiss(member)

    def dismiss(self, member: Member) -> None:
        """No more requests for this member; when it owes nothing, its connection ends."""
        self.pool.dismiss(member)
        self.settled(member)

    def settled(self, member: Member) -> None:
        """One request less is with this member."""
        if not member.leaving or member.in_flight_count or self._is_stopped:
            return
        if self.pool.members.get(member.endpoint) is member:
            self.pool.forget(member)
            if member.connection is not None:
                self._closing.add(member.endpoint)
                self._tasks.spawn(self._leave(member), f"leaving {member.endpoint}")
            self._look()

    async def _leave(self, member: Member) -> None:
        """Disconnect from a member that is forgotten, then dial whoever was listed there meanwhile."""
        outbound: Outbound = member.connection
        try:
            await outbound.close()
        finally:
            self._closing.discard(member.endpoint)
        successor = self.pool.members.get(member.endpoint)
        if successor is not None and not self._is_stopped:
            self._dial(successor)

    def happened(self, event: SocketEvent) -> None:
        """What the socket says of its connections."""
        if isinstance(event, Connected):
            self._came(event.peer)
        elif isinstance(event, Disconnected):
            self._forget_peer(event.peer)
            member = self._connected.pop(event.peer, None)
            if member is not None:
                self._owner.member_lost(self, member, event)
                self.settled(member)
        elif isinstance(event, HandshakeFailed):
            for member in self.pool.members.values():
                if _has_missed(member.connection, event.address):
                    member.tried = True
            self._look()

    def _came(self, peer: bytes) -> None:
        for member in self.pool.candidates(peer):
            if member.connection is not None and member.connection.peer == peer and not member.peer:
                self._connected[peer] = member
                if not self.pool.connected(member, peer) and not member.leaving:
                    self._tally.impostors_count += 1
                self._look()
                return

    def _look(self) -> None:
        if self.pool.ready:
            self._owner.service_ready(self)
        elif not self.pool.is_hopeful:
            self._owner.service_hopeless(self)


def _has_missed(outbound: Outbound | None, address: str) -> bool:
    """Whether it is this one whose attempt to connect has just failed."""
    if outbound is None:
        return False
    connection = outbound.connection
    if connection is None:  # Nobody was reached: the address is what was dialled.
        return str(outbound.endpoint) == address
    return connection.closed.done() and not connection.admitted
