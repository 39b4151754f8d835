"""One service's ROUTER socket: dials the providers that are listed, and knows whose connection is whose."""

from __future__ import annotations

from collections import deque
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


class ServiceOwner(Protocol):
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
        owner: ServiceOwner,
        balancer: Balancer,
        tasks: TaskScope,
        tally: GatewayTally,
        forget_peer: Callable[[bytes], None],
        make_router: Callable[[ServiceLink], Router],
    ) -> None:
        self.name = name
        self.pool = Pool(name)
        self.balancer = balancer
        self.parked: deque[Call] = deque()
        self.waiters = Waiters()
        self._owner = owner
        self._tasks = tasks
        self._tally = tally
        self._forget_peer = forget_peer
        self._connected: dict[bytes, Member] = {}
        self.router = make_router(self)

    def listed(self, provider: ProviderInfo) -> None:
        """The discovery has this provider: connect to it."""
        member = self.pool.add(provider)
        if member is None:
            self._look()
            return
        try:
            member.connection = self.router.connect(member.endpoint)
        except HansaError:  # A registry of somebody else's may list anything.
            self._tally.bad_endpoints_count += 1
            self.pool.forget(member)

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
        if not member.leaving or member.in_flight_count:
            return
        if self.pool.members.get(member.endpoint) is member:
            self.pool.forget(member)
            outbound: Outbound = member.connection
            self._tasks.spawn(outbound.close(), f"leaving {member.endpoint}")
            self._look()

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
            failed = self.pool.members.get(event.address)
            if failed is not None:
                failed.tried = True
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
