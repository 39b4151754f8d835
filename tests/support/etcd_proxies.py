"""A client of an etcd group whose connections a test can cut, stall and slow down."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from hansa.store.opening import open_store
from hansa.store.store import Store
from tests.support.etcd_servers import EtcdGroup
from tests.support.tcp_proxy import TcpProxy


@dataclass(frozen=True, slots=True)
class ProxiedStore:
    """A store, and the proxies on the ways to its members, in the order of the group."""

    store: Store
    proxies: list[TcpProxy]

    def cut(self) -> None:
        """End every connection, and let none through."""
        for proxy in self.proxies:
            proxy.refuse()

    def mend(self) -> None:
        """Let everything through again."""
        for proxy in self.proxies:
            proxy.forward()


@asynccontextmanager
async def proxied_store(group: EtcdGroup) -> AsyncIterator[ProxiedStore]:
    """An open store that reaches each member through a proxy of its own."""
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(TcpProxy(endpoint)) for endpoint in group.endpoints]
        address = ",".join(proxy.endpoint.removeprefix("tcp://") for proxy in proxies)
        store = await stack.enter_async_context(open_store(f"etcd://{address}"))
        yield ProxiedStore(store, proxies)
