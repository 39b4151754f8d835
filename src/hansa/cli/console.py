"""The console that tables are drawn on.

rich takes 0.1 s to load, which whoever asks for JSON or for lines should not wait for. So each function that
draws loads it, and no module does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Standard output, with a table's own colours and no others."""
    from rich.console import Console

    return Console(highlight=False)
