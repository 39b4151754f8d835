"""Which hansa is installed: its version, and whether its hot modules are compiled."""

import platform
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

__all__ = ["BuildInfo", "build_info"]

__version__ = "0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInfo:
    """The build of hansa that runs. As text it is a line for people that begins with the version.

    `compiled` names the modules that run as C; without any, everything works, only slower, and `reason` says
    why they were not compiled, if that was known when the package was built.
    """

    version: str
    python: str
    compiled: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def is_compiled(self) -> bool:
        return bool(self.compiled)

    def __str__(self) -> str:
        form = "compiled" if self.is_compiled else "not compiled"
        why = f": {self.reason}" if self.reason is not None else ""
        return f"{self.version} ({form}{why}; {self.python})"


def build_info() -> BuildInfo:
    """The build of hansa that runs here. Looks through the package's folder."""
    home = Path(__file__).parent
    # An extension module is imported in place of the source beside it. The library that they share is none.
    found = [path.relative_to(home.parent) for path in home.rglob(f"*{EXTENSION_SUFFIXES[0]}")]
    names = [".".join((*path.parts[:-1], path.name.partition(".")[0])) for path in found]
    compiled = tuple(sorted(name for name in names if not name.endswith("__mypyc")))
    note = home / "uncompiled.txt"
    return BuildInfo(
        version=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        compiled=compiled,
        reason=note.read_text(encoding="utf-8") if note.exists() and not compiled else None,
    )
