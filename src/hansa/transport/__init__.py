"""ZMTP sockets on the event loop: ROUTER, DEALER, PUB and SUB over TCP, TLS, Unix sockets and memory."""

from hansa.transport.dealer_socket import Dealer
from hansa.transport.events import (
    CloseReason,
    Connected,
    Disconnected,
    HandshakeFailed,
    MessagesLost,
    SocketEvent,
)
from hansa.transport.message import Message
from hansa.transport.network import Listener, Network
from hansa.transport.options import Away, Overflow, SocketOptions, Tls
from hansa.transport.outbound_socket import Outbound
from hansa.transport.pub_socket import Pub
from hansa.transport.router_socket import Router
from hansa.transport.stats import SocketStats
from hansa.transport.sub_socket import Sub

__all__ = [
    "Away",
    "CloseReason",
    "Connected",
    "Dealer",
    "Disconnected",
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
