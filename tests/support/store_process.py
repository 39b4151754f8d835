"""`hansa store` as a process that tests start, kill and start again, on the same port and folder."""

from __future__ import annotations

import signal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.commands import RUN_S_MAX, Command


class StoreProcess:
    """A store in a folder, or in memory: `with StoreProcess(folder) as store` waits until it serves."""

    def __init__(self, folder: Path | None, *options: str) -> None:
        self._where = ("--memory",) if folder is None else ("--data", str(folder))
        self._options = options
        self._command: Command | None = None
        self.address = "127.0.0.1:0"
        self.ready: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._command is not None:
            self._command.__exit__()

    def start(self) -> None:
        """Run it, and wait until it is ready."""
        self._command = Command("store", "--listen", self.address, *self._where, "--json", *self._options)
        self.ready = self._command.event("ready")
        self.address = self.ready["address"]

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name that it tells."""
        assert self._command is not None
        return self._command.event(name)

    def kill(self) -> None:
        """As kill -9 does, and wait until it is dead."""
        assert self._command is not None
        self._command.process.send_signal(signal.SIGKILL)
        self._command.process.communicate(timeout=RUN_S_MAX)

    def freeze(self) -> None:
        """SIGSTOP: it stands still until `thaw`."""
        assert self._command is not None
        self._command.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._command is not None
        self._command.process.send_signal(signal.SIGCONT)

    def stop(self) -> tuple[int, str, str]:
        """Ask it to stop: its status, and what it still wrote to stdout and stderr."""
        assert self._command is not None
        return self._command.stop()
