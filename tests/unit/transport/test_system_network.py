"""What is accepted is set up as what is dialled."""

import asyncio
import socket

from hansa.endpoint import Endpoint
from hansa.transport.system_network import SystemNetwork


async def test_small_answers_of_the_accepting_side_do_not_wait_for_each_other() -> None:
    """Asyncio turns Nagle off only for sockets whose protocol it knows, which accepted ones lack."""
    accepted: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            accepted.set_result(transport)

    network = SystemNetwork(None, handshake_s_max=5.0)
    listener = await network.listen(Endpoint.parse("tcp://127.0.0.1:0"), Accepting)
    await network.dial(listener.endpoint, asyncio.Protocol)
    transport = await accepted
    try:
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        transport.abort()
        await listener.close()
