"""The end of an etcd's log, so that a person can read it."""

import json
from typing import Final

_LINES_MAX: Final = 8
# What every etcd says that was started again after the others had removed it, and then ends.
REMOVED: Final = "permanently removed from the cluster"


def readable(tail: str) -> str:
    """The last few things that it said, each once: level, message and error, without stacks and times."""
    said: list[str] = []
    for line in tail.splitlines():
        words = _words(line)
        if words and words not in said:
            said.append(words)
    return "; ".join(said[-_LINES_MAX:]) or "(it said nothing)"


def _words(line: str) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        # The first line of a tail is cut; what another program printed is shown as it is.
        return "" if '"level"' in line or '"stacktrace"' in line or '"error"' in line else line.strip()
    if not isinstance(entry, dict):
        return line.strip()
    parts = [str(entry[name]) for name in ("level", "msg", "error") if name in entry]
    return ": ".join(parts)
