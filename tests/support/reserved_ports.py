"""Ports that nobody else gets, for processes that must find each other before they start, or start again."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved_endpoints(count: int) -> Iterator[list[str]]:
    """So many TCP endpoints on this machine, free to bind now and again within the block.

    A socket that is bound and never listens holds each port: the kernel gives it to nobody who asks for any
    port, and lets in those who ask for this one, because all of them set SO_REUSEADDR.
    """
    with ExitStack() as stack:
        endpoints = []
        for _ in range(count):
            holding = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holding.bind(("127.0.0.1", 0))
            endpoints.append(f"tcp://127.0.0.1:{holding.getsockname()[1]}")
        yield endpoints
