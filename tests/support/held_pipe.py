"""A named pipe that shows when the last process that holds it open has gone."""

import os
import select
from pathlib import Path

WAIT_S_MAX = 20.0


class HeldPipe:
    """Opened for reading at once, so that neither side waits for the other to open it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read_line(self) -> bytes:
        """What the holder wrote first. Raises TimeoutError."""
        self._wait()
        return os.read(self._descriptor, 4096)

    def read_to_end(self) -> bytes:
        """Everything until nobody holds it any more; then it is closed. Raises TimeoutError."""
        told = b""
        try:
            while True:
                self._wait()
                chunk = os.read(self._descriptor, 4096)
                if not chunk:
                    return told
                told += chunk
        finally:
            os.close(self._descriptor)

    def _wait(self) -> None:
        # A pipe that nobody has opened for writing yet is quiet, and one that nobody holds any more is not.
        if not select.select([self._descriptor], [], [], WAIT_S_MAX)[0]:
            raise TimeoutError(f"{self.path} was still held after {WAIT_S_MAX} s")
