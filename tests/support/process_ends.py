"""Whether processes have ended that are not this one's children."""

from __future__ import annotations

import os
import time
from pathlib import Path

END_S_MAX = 20.0
_LOOK_S = 0.02


def has_ended(pid: int) -> bool:
    """Also one that nobody has waited for yet: it does nothing any more."""
    status = Path(f"/proc/{pid}/status")
    try:
        os.kill(pid, 0)
        return status.exists() and "State:\tZ" in status.read_text()
    except (ProcessLookupError, FileNotFoundError):
        return True


def wait_for_end(pid: int) -> None:
    until_s = time.monotonic() + END_S_MAX
    while not has_ended(pid):
        assert time.monotonic() < until_s, f"process {pid} is still there after {END_S_MAX} s"
        time.sleep(_LOOK_S)
