"""ZMTP sockets on the event loop: ROUTER, DEALER, PUB and SUB over TCP, TLS, Unix sockets and memory.

In the order in which a message goes out, from the socket to the wire:

- `router_dealer`, `pub_sub`: the four kinds of sockets, as their users call them.
- `zmtp_socket`: what all four share: bound and dialled endpoints, admission of peers, events, a clean end.
- `admission`: which peers are admitted, under which id, and which are expelled. `events`: a socket's events.
- `outbound_socket`: an endpoint that is dialled, and dialled again after every end.
- `subscriptions`: which peers want which messages, and one message put into the outbox of each of them.
- `outbox`: the messages that wait for one peer, in wire form.
- `connection`: the way to one peer, connected or not, and the stream of the current connection.
- `link`: the protocol of one connection.
- `environment`: how sockets behave, and what every component needs from the world, as one value.
- `network`: listening, dialling, and how streams are read. `system_network` is TCP, TLS and Unix sockets,
  `memory_network` their twin inside a process, also for the simulator.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.transport.environment import Away, Environment, Overflow, SocketOptions, Tls
    from hansa.transport.events import (
        CloseReason,
        Connected,
        Disconnected,
        HandshakeFailed,
        MessagesLost,
        SocketEvent,
    )
    from hansa.transport.network import Listener, Network
    from hansa.transport.outbound_socket import Outbound
    from hansa.transport.pub_sub import Pub, Sub
    from hansa.transport.router_dealer import Dealer, Router
    from hansa.transport.zmtp_socket import Message, SocketStats
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.transport.environment": "Away Environment Overflow SocketOptions Tls",
            "hansa.transport.events": (
                "CloseReason Connected Disconnected HandshakeFailed MessagesLost SocketEvent"
            ),
            "hansa.transport.network": "Listener Network",
            "hansa.transport.outbound_socket": "Outbound",
            "hansa.transport.pub_sub": "Pub Sub",
            "hansa.transport.router_dealer": "Dealer Router",
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
