"""How a command ends when it fails: one sentence on stderr, and a status for scripts."""

from __future__ import annotations

import json
import os
import sys
from typing import Final

from hansa.cli.log_lines import visible
from hansa.errors import HandlerFailed, HansaError, StoreCorrupt, StoreUnavailable, TopicExists, UsageError

OK = 0
FAILED = 1
USAGE = 2
"""The typed command cannot work, now or later."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it."""

ON_A_STORE: Final = frozenset({"lock", "lead", "handovers", "members", "topics move"})
"""The commands that need a store."""


def status_of(error: HansaError) -> int:
    """The exit status that says what helps: to type something else (2), or to try again later (1)."""
    # A topic that exists now may be free later: the typed command is right. A damaged folder stays damaged.
    is_lasting = isinstance(error, UsageError | StoreCorrupt) and not isinstance(error, TopicExists)
    return USAGE if is_lasting else FAILED


def error_facts(error: HansaError) -> dict[str, str]:
    """An error for programs: its stable code (a handler's own word if it gave one) and its text."""
    code = error.reason if isinstance(error, HandlerFailed) else error.code
    return {"error": code, "text": str(error)}


def complain(command: str, error: HansaError, *, as_json: bool = False, status: int | None = None) -> int:
    """Say what is wrong, and return the exit status: the given one, or that of the error.

    The sentence goes to stderr; a program that asked for JSON also finds it on stdout, as one object.
    """
    # A handler's own word is half of its message.
    reason = f"{error.reason}: " if isinstance(error, HandlerFailed) else ""
    print(visible(f"{f'hansa {command}'.strip()}: {reason}{error}"), file=sys.stderr)
    if (command in ON_A_STORE or command.startswith("assignments")) and isinstance(error, StoreUnavailable):
        print(
            "`hansa store` runs a store on this machine; --store or HANSA_STORE names another",
            file=sys.stderr,
        )
    if as_json:
        print(json.dumps(error_facts(error)), flush=True)
    return status_of(error) if status is None else status


def reader_left() -> None:
    """The reader of stdout has left: nothing more is written, not even when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
