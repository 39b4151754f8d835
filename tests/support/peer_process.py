"""A peer in another process: start it, hear its lines, stop it, kill it."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SCRIPTS = Path(__file__).parents[1] / "integration"
LINE_S_MAX = 20.0


class PeerProcess:
    """Runs a script of tests/integration that reports in lines of JSON. Leaving the block kills it."""

    def __init__(self, script: str, *arguments: str) -> None:
        self._command = [sys.executable, str(SCRIPTS / script), *arguments]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "the process is not started"
        return self._process

    async def hear(self) -> dict[str, Any]:
        """The next thing it reports."""
        assert self.process.stdout is not None
        async with asyncio.timeout(LINE_S_MAX):
            line = await self.process.stdout.readline()
        assert line, f"{self._command} ended with {await self.process.wait()}"
        heard: dict[str, Any] = json.loads(line)
        return heard

    async def where(self) -> str:
        """The endpoint of its first report."""
        heard = await self.hear()
        endpoint: str = heard.get("bound") or heard["connected"]
        return endpoint

    async def say(self, line: str = "go") -> None:
        """Write it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        await self.process.stdin.drain()

    def freeze(self) -> None:
        """SIGSTOP: alive for the kernel, dead for its peers."""
        self.process.send_signal(signal.SIGSTOP)

    async def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self.process.returncode is None:
            self.process.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        await self.process.stdout.read()
        await self.process.wait()


def zmq_peer(kind: str, behaviour: str, **options: object) -> PeerProcess:
    """A libzmq socket in its own process; options become its command line."""
    return PeerProcess("zmq_peer.py", kind, behaviour, *_flags(options))


def hansa_peer(kind: str, **options: object) -> PeerProcess:
    """A socket of hansa in its own process, which echoes."""
    return PeerProcess("hansa_peer.py", kind, *_flags(options))


def _flags(options: dict[str, object]) -> list[str]:
    flags: list[str] = []
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            flags += [f"--{name.replace('_', '-')}={one}"]
    return flags
