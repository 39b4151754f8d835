"""Fetches an etcd's page of metrics."""

from __future__ import annotations

import asyncio

from hansa.errors import StoreUnavailable
from hansa.limits import RAFT_MEASURES_BYTES_MAX, RAFT_REACH_S_MAX
from hansa.store.raft.member_measures import Measures, read_measures


async def fetch_measures(address: str) -> Measures:
    """The measures of the member at a client address. Raises `StoreUnavailable`."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(RAFT_REACH_S_MAX):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                # HTTP/1.0: the answer ends with the connection, in one piece.
                writer.write(f"GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
                page = b""
                while chunk := await reader.read(65_536):
                    page += chunk
                    if len(page) > RAFT_MEASURES_BYTES_MAX:
                        break
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise StoreUnavailable(f"the metrics of the member at {address}: {error}") from error
    return read_measures(page.decode(errors="replace"))
