"""A TCP connection to a local port where nobody listens can, by chance, be its own other end."""

import asyncio
import socket

from hansa.endpoint import Endpoint
from hansa.transport import CloseReason, Dealer, Environment, HandshakeFailed, SocketEvent, SocketOptions
from hansa.transport.system_network import Factory, SystemNetwork


class UnluckyNetwork(SystemNetwork):
    """Dials every endpoint from the port that it dials."""

    async def dial(self, endpoint: Endpoint, factory: Factory) -> None:
        own = socket.socket()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind((endpoint.host, endpoint.port))
        own.connect((endpoint.host, endpoint.port))
        own.setblocking(False)
        await asyncio.get_running_loop().create_connection(factory, sock=own)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_connection_to_itself_is_given_up_and_its_port_is_free_again() -> None:
    events: list[SocketEvent] = []
    port = free_port()
    options = SocketOptions(reconnect_s_min=60.0, reconnect_s_max=60.0)
    async with Dealer(
        b"echo", environment=Environment(options=options, network=UnluckyNetwork()), on_event=events.append
    ) as dealer:
        outbound = dealer.connect(f"tcp://127.0.0.1:{port}")
        async with asyncio.timeout(10):
            while not events:
                await asyncio.sleep(0.01)
        (event,) = events
        assert isinstance(event, HandshakeFailed)
        assert event.reason is CloseReason.CONNECT_FAILED
        assert "itself" in event.detail
        assert not outbound.is_up
        assert dealer.peers == ()
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port)
        server.close()
        await server.wait_closed()
