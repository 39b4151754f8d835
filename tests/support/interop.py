"""Brings a socket of hansa and a libzmq socket of another process together, whoever binds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hansa.transport import Dealer, Pub, Router, SocketOptions, Sub
from tests.support.peer_process import PeerProcess, zmq_peer

Socket = Router | Dealer | Pub | Sub

# Room for a whole flood: the tests ask for no loss, and a PUB that runs out of room drops.
ROOMY = SocketOptions(
    outgoing_count_max=1_000_000, incoming_count_max=1_000_000, reconnect_s_min=0.02, reconnect_s_max=0.1
)


def any_endpoint(transport: str, folder: Path) -> str:
    """An endpoint to bind, in words that libzmq and hansa both read."""
    return "tcp://127.0.0.1:*" if transport == "tcp" else f"ipc://{folder}/interop.sock"


@asynccontextmanager
async def paired(
    socket: Socket, kind: str, behaviour: str, *, hansa_binds: bool, endpoint: str, **options: object
) -> AsyncIterator[PeerProcess]:
    """A libzmq peer on its way to the socket, or the other way round."""
    if hansa_binds:
        where = str(await socket.bind(endpoint))
        async with zmq_peer(kind, behaviour, connect=where, **options) as peer:
            await peer.where()
            yield peer
    else:
        async with zmq_peer(kind, behaviour, bind=endpoint, **options) as peer:
            socket.connect(await peer.where())
            yield peer
