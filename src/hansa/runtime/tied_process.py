"""Processes that never outlive the one that started them, whatever ends it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

# Sets that this process is killed when its parent dies (PR_SET_PDEATHSIG is 1), then becomes the program. Not
# a preexec_fn: that forks the whole process, and gRPC's threads do not survive a fork.
_TIED: Final = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit('the parent is gone')\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def tied(command: Sequence[str]) -> list[str]:
    """The command, extended so that the kernel kills its process when the thread that starts it has ended.

    Its first word is a path. Only Linux can do that: elsewhere the command is returned as it is.
    """
    if sys.platform == "linux" and sys.executable:
        return [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command]
    return list(command)
