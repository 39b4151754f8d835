"""How the registries of a cluster reach each other, so that a test can cut two of them apart."""

import asyncio
import os
import shutil
import subprocess
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import Self

from tests.support.reserved_ports import reserved_endpoints
from tests.support.tcp_proxy import TcpProxy

COUNT = 3


class Wiring:
    """Registries side by side on this machine. Their ports stay theirs, so that they can start again."""

    host = "127.0.0.1"
    """Where everybody else binds: providers, callers, watchers."""

    def __init__(self) -> None:
        self._ports = ExitStack()
        self.pubs: list[str] = []
        self.routers: list[str] = []

    async def __aenter__(self) -> Self:
        endpoints = self._ports.enter_context(reserved_endpoints(2 * COUNT))
        self.pubs, self.routers = endpoints[:COUNT], endpoints[COUNT:]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ports.close()

    def peers_of(self, number: int) -> tuple[str, ...]:
        """Where this registry finds the others."""
        return tuple(pub for other, pub in enumerate(self.pubs) if other != number)

    def registry_prefix(self, number: int) -> list[str]:
        """What comes before the command line of a registry."""
        return []

    @property
    def prefix(self) -> list[str]:
        """What comes before the command line of anybody else."""
        return []

    async def cut(self, one: int, other: int) -> None:
        raise NotImplementedError("these registries cannot be cut apart")

    async def heal(self, one: int, other: int) -> None:
        raise NotImplementedError


class ProxyWiring(Wiring):
    """Each registry follows each other one through a proxy of the tests.

    A silent cut holds what is sent; otherwise connections break, nobody gets through, and after healing each
    piece is under way for a while.
    """

    def __init__(self, *, silent: bool) -> None:
        super().__init__()
        self._silent = silent
        self._stack = AsyncExitStack()
        self._proxies: dict[tuple[int, int], TcpProxy] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        for one in range(COUNT):
            for other in range(COUNT):
                if one != other:
                    proxy = await self._stack.enter_async_context(TcpProxy(self.pubs[other]))
                    self._proxies[one, other] = proxy
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        await super().__aexit__(kind, error, trace)

    def peers_of(self, number: int) -> tuple[str, ...]:
        return tuple(proxy.endpoint for (one, _), proxy in self._proxies.items() if one == number)

    async def cut(self, one: int, other: int) -> None:
        for proxy in (self._proxies[one, other], self._proxies[other, one]):
            if self._silent:
                proxy.hold()
            else:
                proxy.refuse()

    async def heal(self, one: int, other: int) -> None:
        for proxy in (self._proxies[one, other], self._proxies[other, one]):
            proxy.delay_s = 0.0 if self._silent else 0.1
            proxy.forward()


class NamespaceWiring(Wiring):
    """Each registry in a network namespace of its own, all of them ports of one bridge; root is needed.

    Two ports that are isolated reach everybody but each other, and nobody is told: a cut cable. A namespace
    lives as long as the process that was started in it, so nothing is left behind when the tests are killed.
    """

    host = "10.77.0.1"

    def __init__(self) -> None:
        super().__init__()
        self._holders: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        try:
            await self._lay()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for holder in self._holders:
            if holder.returncode is None:
                holder.kill()
            await holder.communicate()

    async def _lay(self) -> None:
        for _ in range(COUNT + 1):
            holder = await asyncio.create_subprocess_exec(
                *("unshare", "--net", "sh", "-c", "echo in; exec cat"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            self._holders.append(holder)
            assert holder.stdout is not None
            assert await holder.stdout.readline() == b"in\n", "no network namespace could be made"
        await self._ip(self.prefix, "link add bridge0 type bridge")
        await self._ip(self.prefix, f"addr add {self.host}/24 dev bridge0")
        await self._ip(self.prefix, "link set bridge0 up")
        await self._ip(self.prefix, "link set lo up")
        for number in range(COUNT):
            inside, address = self.registry_prefix(number), f"10.77.0.{11 + number}"
            peer = f"type veth peer name cable netns {self._holders[number].pid}"
            await self._ip(self.prefix, f"link add port{number} {peer}")
            await self._ip(self.prefix, f"link set port{number} master bridge0 up")
            await self._ip(inside, f"addr add {address}/24 dev cable")
            await self._ip(inside, "link set cable up")
            await self._ip(inside, "link set lo up")
            self.pubs.append(f"tcp://{address}:5550")
            self.routers.append(f"tcp://{address}:5551")

    def registry_prefix(self, number: int) -> list[str]:
        return ["nsenter", f"--target={self._holders[number].pid}", "--net"]

    @property
    def prefix(self) -> list[str]:
        return self.registry_prefix(COUNT)

    async def cut(self, one: int, other: int) -> None:
        await self._isolate(one, other, "on")

    async def heal(self, one: int, other: int) -> None:
        await self._isolate(one, other, "off")

    async def _isolate(self, one: int, other: int, how: str) -> None:
        for number in (one, other):
            await self._ip(self.prefix, f"link set port{number} type bridge_slave isolated {how}")

    @staticmethod
    async def _ip(prefix: list[str], words: str) -> None:
        made = await asyncio.create_subprocess_exec(
            *prefix, "ip", *words.split(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await made.communicate()
        assert made.returncode == 0, f"ip {words}: {said.decode().strip()}"


def namespaces_allowed() -> bool:
    """Whether this user and this kernel can do what NamespaceWiring needs, tried out in a throw-away one."""
    tools = ("ip", "unshare", "nsenter", "sh", "cat")
    if os.geteuid() != 0 or not all(map(shutil.which, tools)):
        return False
    tried = "ip link add bridge0 type bridge && ip link add port0 type veth peer name cable0"
    tried += " && ip link set port0 master bridge0 && ip link set port0 type bridge_slave isolated on"
    return subprocess.run(["unshare", "--net", "sh", "-c", tried], capture_output=True).returncode == 0
