"""A process of the demo's cast, as its director sees it."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import randrange
from typing import Any

LAST_WORDS_MAX = 20
# Below what operating systems give to outgoing connections: while a process is away, nobody takes its port.
PORTS = (20_000, 30_000)


class DemoFailed(Exception):
    """Something happened that the play does not foresee."""


class Player:
    """One process of the cast. What it tells is read as it comes; what is no JSON are its last words."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.dismissed = False
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS_MAX)

    async def reports(self) -> AsyncIterator[dict[str, Any]]:
        """Everything it tells, until it ends. Raises DemoFailed when it ends without being dismissed."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                yield json.loads(line)
            except ValueError:
                self._last_words.append(line.decode(errors="replace").rstrip())
        status = await self.process.wait()
        if not self.dismissed:
            words = "\n".join(self._last_words)
            raise DemoFailed(f"{self.name} ended by itself with status {status}\n{words}".rstrip())

    async def stop(self) -> None:
        """Ask it to end when everything has its outcome."""
        self.dismissed = True
        await self.order("stop")

    async def order(self, word: str) -> None:
        """Tell it what to do next."""
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(word.encode() + b"\n")
            await self.process.stdin.drain()

    def kill(self) -> None:
        """SIGKILL: no clean-up, no goodbye."""
        self.dismissed = True
        with suppress(ProcessLookupError):
            self.process.kill()


@asynccontextmanager
async def cast(name: str, role: str, settings: dict[str, Any]) -> AsyncIterator[Player]:
    """A player, running for as long as the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "hansa.cli.demo_cast", role, json.dumps(settings)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    player = Player(name, process)
    try:
        yield player
    finally:
        player.kill()
        await process.wait()


def free_endpoints(count: int) -> list[str]:
    """Endpoints on this machine that nobody listens on."""
    ports: set[int] = set()
    while len(ports) < count:
        port = randrange(*PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.add(port)
    return [f"tcp://127.0.0.1:{port}" for port in ports]
