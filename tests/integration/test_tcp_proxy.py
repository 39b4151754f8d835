"""The proxy of the tests leaves nothing behind."""

import asyncio
import gc
import socket
import warnings
from contextlib import suppress

import pytest

from tests.support.tcp_proxy import TcpProxy


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_was_just_accepted_ends_with_the_proxy(turns: int) -> None:
    with warnings.catch_warnings(record=True) as caught, socket.socket() as caller:
        warnings.simplefilter("always")
        async with TcpProxy("tcp://127.0.0.1:1") as proxy:
            host, _, port = proxy.endpoint.removeprefix("tcp://").rpartition(":")
            caller.connect((host, int(port)))
            # So many turns of the loop after it came nobody may have been told of it.
            for _ in range(turns):
                await asyncio.sleep(0)
        caller.settimeout(5.0)
        with suppress(ConnectionResetError):
            assert await asyncio.to_thread(caller.recv, 1) == b""
        gc.collect()
    assert [str(each.message) for each in caught] == []
