"""The connections of a gateway's services: one ROUTER for each service, which dials its listed providers.

A service has a socket while a provider is listed, or a request waits for one, and no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from hansa.errors import AlreadyClosed, BadArgument, HansaError, NoProvider
from hansa.ids import format_id
from hansa.presence.provider_info import ProviderInfo
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import TaskScope
from hansa.services.discovery import (
    DiscoveryEvent,
    ProviderAdded,
    ProviderRemoved,
    WeightChanged,
)
from hansa.services.gateway.addresses import ProviderSource
from hansa.services.gateway.balancers import Balancer, RoundRobin
from hansa.services.gateway.calls import Call
from hansa.services.gateway.pool import Pool, PoolMember
from hansa.services.gateway.tries import Hedging, RetryPolicy
from hansa.transport import Connected, Disconnected, HandshakeFailed, Outbound, Router, SocketEvent


@dataclass(slots=True)
class LinkTally:
    """Counts of what was wrong with listed providers."""

    impostors_count: int = 0
    bad_endpoints_count: int = 0


class LinkOwner(Protocol):
    """The gateway's part when a service's connections change."""

    def service_ready(self, service: ServiceLink) -> None:
        """A provider is ready to take requests."""

    def service_hopeless(self, service: ServiceLink) -> None:
        """No provider is ready, and none is about to be."""

    def member_lost(self, service: ServiceLink, member: PoolMember, event: Disconnected) -> None:
        """A connection ended; requests that were with that member get no reply."""


class ServiceLink:
    """The connections of one service, and the requests that wait for one."""

    def __init__(
        self,
        name: str,
        *,
        owner: LinkOwner,
        balancer: Balancer,
        retry: RetryPolicy,
        tasks: TaskScope,
        tally: LinkTally,
        forget_peer: Callable[[bytes], None],
        make_router: Callable[[ServiceLink], Router],
        on_empty: Callable[[ServiceLink], None],
    ) -> None:
        self.name = name
        self.pool = Pool(name)
        self.balancer = balancer
        self.hedging = Hedging(tries_max=retry.tries_max, hedge_share=retry.hedge_share)
        self.parked: dict[Call, None] = {}
        """Requests that wait for a ready provider."""
        self.pausing: dict[Call, asyncio.TimerHandle] = {}
        """Requests that pause before their next try, each with the timer that ends the pause."""
        self.waiters = Waiters()
        self._owner = owner
        self._tasks = tasks
        self._tally = tally
        self._forget_peer = forget_peer
        self._on_empty = on_empty
        self._connected: dict[bytes, PoolMember] = {}
        self._closing: set[str] = set()
        self._is_stopped = False
        self.router = make_router(self)
        self.lanes = self.router.lanes

    @property
    def is_empty(self) -> bool:
        """Whether no provider is listed, no connection is left, and no request waits for one."""
        pool = self.pool
        return not (pool.members or self._closing or self.parked or self.pausing or self.waiters)

    def stop(self) -> None:
        """Give the link up: connections that end from now on are ignored."""
        self._is_stopped = True
        for pause in self.pausing.values():
            pause.cancel()
        self.waiters.wake_all()

    # -- requests that wait

    def park(self, call: Call) -> None:
        """Keep a call until a provider is ready."""
        self.parked[call] = None

    def take_parked(self) -> list[Call]:
        """Take out the calls that waited for a ready provider."""
        parked, self.parked = list(self.parked), {}
        return parked

    def pause(self, call: Call, timer: asyncio.TimerHandle) -> None:
        """Keep a call until the timer rings."""
        self.pausing[call] = timer

    def forget(self, call: Call) -> None:
        """The call waits no longer."""
        self.parked.pop(call, None)
        if (timer := self.pausing.pop(call, None)) is not None:
            timer.cancel()

    # -- providers come and go

    def listed(self, provider: ProviderInfo) -> None:
        """This provider is listed: connect to it."""
        member = self.pool.add(provider)
        if member is None:
            self.look()
        elif member.endpoint not in self._closing:
            self._dial(member)
        # Else it left and came back: dial once the old connection is closed, since a peer must have only one.

    def _dial(self, member: PoolMember) -> None:
        try:
            member.connection = self.router.connect(member.endpoint)
        except HansaError:  # A foreign registry may list anything.
            self._tally.bad_endpoints_count += 1
            self.pool.forget(member)
            self.look()

    def unlisted(self, provider: ProviderInfo) -> None:
        """It is no longer listed: let it answer its requests, then disconnect."""
        member = self.pool.members.get(provider.endpoint)
        if member is not None:
            self.pool.dismiss(member)
            self.settled(member)

    def answered(self, peer: bytes) -> None:
        """This peer answered requests."""
        member = self._connected.get(peer)
        if member is not None and member.leaving:
            self.settled(member)

    def settled(self, member: PoolMember) -> None:
        """A request of this member has ended."""
        if not member.leaving or member.in_flight_count or self._is_stopped:
            return
        if self.pool.members.get(member.endpoint) is member:
            self.pool.forget(member)
            if member.connection is not None:
                self._closing.add(member.endpoint)
                self._tasks.spawn(self._leave(member), f"leaving {member.endpoint}")
            self.look()

    async def _leave(self, member: PoolMember) -> None:
        """Disconnect from a forgotten member, then dial a provider that was listed there meanwhile."""
        outbound: Outbound = member.connection
        try:
            await outbound.close()
        finally:
            self._closing.discard(member.endpoint)
        successor = self.pool.members.get(member.endpoint)
        if self._is_stopped:
            return
        if successor is not None:
            self._dial(successor)
        else:
            self.look()

    def happened(self, event: SocketEvent) -> None:
        """An event of the socket's connections."""
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
                    self.pool.missed(member)
            self.look()

    def _came(self, peer: bytes) -> None:
        for member in self.pool.candidates(peer):
            if member.connection is not None and member.connection.peer == peer and not member.peer:
                self._connected[peer] = member
                if not self.pool.connected(member, peer) and not member.leaving:
                    self._tally.impostors_count += 1
                self.look()
                return

    def look(self) -> None:
        """Tell the gateway whether the service is ready or hopeless."""
        if self.pool.ready:
            self._owner.service_ready(self)
        elif not self.pool.is_hopeful:
            self._owner.service_hopeless(self)
        self._on_empty(self)


class ServiceLinks:
    """The services of one gateway. A service without providers and waiting requests has no socket.

    Services come and go under ever new names: one that is back gets a new socket, and its user's balancer.
    """

    def __init__(
        self,
        providers: ProviderSource,
        *,
        owner: LinkOwner,
        balancers: Mapping[str, Balancer],
        retry: RetryPolicy,
        tasks: TaskScope,
        forget_peer: Callable[[bytes], None],
        make_router: Callable[[ServiceLink], Router],
    ) -> None:
        self.links: dict[str, ServiceLink] = {}
        self._providers = providers
        self._owner = owner
        self._balancers = balancers
        self._retry = retry
        self._tasks = tasks
        self.tally = LinkTally()
        self._forget_peer = forget_peer
        self._make_router = make_router
        self._is_stopped = False

    def begin(self) -> None:
        """Connect to the providers that are known already. Before any can be known, all requests wait."""
        if self._providers.awaits_first_list:
            self._tasks.spawn(self._look_at_first_list(), "first list")
        for listed in self._providers.services.values():
            for provider in listed:
                self.discovered(ProviderAdded(provider=provider))

    def stop(self) -> None:
        """Stop, because the gateway closes."""
        self._is_stopped = True
        for link in self.links.values():
            link.stop()

    # -- providers come and go

    def discovered(self, event: DiscoveryEvent) -> None:
        if isinstance(event, ProviderAdded):
            name = event.provider.service
            (self.links.get(name) or self._add(name)).listed(event.provider)
        elif isinstance(event, ProviderRemoved):
            if event.provider.service in self.links:
                self.links[event.provider.service].unlisted(event.provider)
        elif isinstance(event, WeightChanged) and event.provider.service in self.links:
            self.links[event.provider.service].pool.reweigh(event.provider)

    def rebalance(self, service: str) -> None:
        """Use the balancer that was set for the service now."""
        if service in self.links:
            self.links[service].balancer = self._balancer(service)

    def _balancer(self, service: str) -> Balancer:
        return self._balancers.get(service) or RoundRobin()

    async def _look_at_first_list(self) -> None:
        """Once it is known, tell calls that wait for a service without providers."""
        # A source that closed will never have providers, which is as good as an answer.
        with suppress(AlreadyClosed):
            await self._providers.wait_heard()
        for link in list(self.links.values()):
            link.look()

    def _add(self, name: str) -> ServiceLink:
        link = self.links[name] = ServiceLink(
            name,
            owner=self._owner,
            balancer=self._balancer(name),
            retry=self._retry,
            tasks=self._tasks,
            tally=self.tally,
            forget_peer=self._forget_peer,
            make_router=self._make_router,
            on_empty=self.release,
        )
        return link

    def release(self, link: ServiceLink) -> None:
        """Close the socket of a service that has no provider and no waiting request."""
        if link.is_empty and self.links.get(link.name) is link and not self._is_stopped:
            del self.links[link.name]
            link.stop()
            # Without a connection this takes no time, and if the gateway closes first there is nothing left.
            self._tasks.spawn(link.router.close(), f"giving up {link.name}")

    # -- who is there, and who may come

    def check_followed(self, service: str) -> None:
        """Raise BadArgument for a service that the discovery does not show."""
        if not self._providers.follows(service):
            raise BadArgument(
                f"the discovery does not follow {service!r}: call discovery.subscribe({service!r}) first"
            )

    def absent(self, service: str) -> ServiceLink:
        """The link of a service without listed providers, to wait there. Raises NoProvider, BadArgument."""
        self.check_followed(service)
        if not self._providers.awaits_first_list:
            raise self.nobody(service)
        return self._add(service)

    def is_hopeful(self, link: ServiceLink) -> bool:
        """Whether a provider may be ready soon: one is being dialled, or no list is known yet."""
        return link.pool.is_hopeful or self._providers.awaits_first_list

    def may_come(self, service: str, routing_id: bytes) -> bool:
        """Whether this provider is not ready, and perhaps will be soon."""
        link = self.links.get(service)
        if link is None:
            return self._providers.awaits_first_list
        return link.pool.ready_as(routing_id) is None and self.is_hopeful(link)

    def peers(self, service: str) -> tuple[bytes, ...]:
        """Routing ids of the providers that are ready."""
        link = self.links.get(service)
        return () if link is None else tuple(member.peer for member in link.pool.ready)

    async def changed(self, service: str) -> None:
        """Wait until a provider is ready, or none is about to be. Raises BadArgument."""
        self.check_followed(service)
        link = self.links.get(service) or self._add(service)
        try:
            await link.waiters.wait()
        finally:
            self.release(link)

    def nobody(self, service: str) -> NoProvider:
        return NoProvider(f"a request to {service} has nobody to go to: {self._known(service)}")

    def not_there(self, service: str, routing_id: bytes) -> NoProvider:
        return NoProvider(
            f"no provider {format_id(routing_id)} of {service} is connected: {self._known(service)}"
        )

    def _known(self, service: str) -> str:
        """What a request that finds no provider is told about the service."""
        count, link = self._providers.provider_count(service), self.links.get(service)
        members = () if link is None else link.pool.members.values()
        draining_count = sum(member.draining and bool(member.peer) for member in members)
        verb = "is" if draining_count == 1 else "are"
        others = f"{draining_count} {verb} draining and no other" if draining_count else "none"
        return f"of {count} providers that are listed {others} is connected; {self._providers.situation}"


def _has_missed(outbound: Outbound | None, address: str) -> bool:
    """Whether it is this outbound whose attempt to connect has just failed."""
    if outbound is None:
        return False
    connection = outbound.connection
    if connection is None:  # Nobody answered: the address is the one that was dialled.
        return str(outbound.endpoint) == address
    return connection.closed.done() and not connection.admitted
