"""ZMTP sockets on the event loop: ROUTER, DEALER, PUB and SUB over TCP, TLS, Unix sockets and memory.

In the order in which a message goes out, from the socket to the wire:

- `router_socket`, `dealer_socket`, `pub_socket`, `sub_socket`: the four kinds, as their users call them.
- `zmtp_socket`: what all four share: bound and dialled endpoints, admission of peers, events, a clean end.
- `admission`: who may come in, as which peer, and who has to go. `events`: what a socket tells.
- `outbound_socket`: an endpoint that is dialled, and dialled again after every end.
- `subscriptions`: who wants which messages, and one message put into the outbox of each of them.
- `lane`, `outbox`: the way to one peer, connected or not, and what waits on it.
- `connection`, `link`: one connection: the driver on asyncio's transport, and the protocol that it drives.
- `environment`: how sockets behave, and what every component needs from the world, as one value.
- `network`: what sockets stand on, and how streams are read. `system_network` is TCP, TLS and Unix sockets,
  `memory_network` their twin inside a process, also for the simulator.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.transport.dealer_socket import Dealer
    from hansa.transport.environment import Environment
    from hansa.transport.events import (
        CloseReason,
        Connected,
        Disconnected,
        HandshakeFailed,
        MessagesLost,
        SocketEvent,
    )
    from hansa.transport.network import Listener, Network
    from hansa.transport.options import Away, Overflow, SocketOptions, Tls
    from hansa.transport.outbound_socket import Outbound
    from hansa.transport.pub_socket import Pub
    from hansa.transport.router_socket import Router
    from hansa.transport.sub_socket import Sub
    from hansa.transport.zmtp_socket import Message, SocketStats
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.transport.dealer_socket": "Dealer",
            "hansa.transport.environment": "Environment",
            "hansa.transport.events": (
                "CloseReason Connected Disconnected HandshakeFailed MessagesLost SocketEvent"
            ),
            "hansa.transport.network": "Listener Network",
            "hansa.transport.options": "Away Overflow SocketOptions Tls",
            "hansa.transport.outbound_socket": "Outbound",
            "hansa.transport.pub_socket": "Pub",
            "hansa.transport.router_socket": "Router",
            "hansa.transport.sub_socket": "Sub",
            "hansa.transport.zmtp_socket": "Message SocketStats",
        },
    )

__all__ = [
    "Away",
    "CloseReason",
    "Connected",
    "Dealer",
    "Disconnected",
    "Environment",
    "HandshakeFailed",
    "Listener",
    "Message",
    "MessagesLost",
    "Network",
    "Outbound",
    "Overflow",
    "Pub",
    "Router",
    "SocketEvent",
    "SocketOptions",
    "SocketStats",
    "Sub",
    "Tls",
]
