"""What is asked for: a kind of exchange, a payload size if there is one, and how many at once."""

from dataclasses import dataclass
from typing import Self

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to measure. `width` counts what the kind says: requests in flight, receivers, providers."""

    kind: str
    width: int
    size_bytes: int = 0
    """Of the payload; 0 where no payload is measured."""

    @property
    def name(self) -> str:
        """The case's stable name: `rr-64B-x100`. It keys the results, the command line and the goals."""
        size = f"-{size_text(self.size_bytes)}" if self.size_bytes else ""
        return f"{self.kind}{size}-x{self.width}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """The case of that name. Raises ValueError if the name is none."""
        kind, *sizes, width = name.split("-")
        size = sizes[0] if sizes else "0B"
        number = int(size.removesuffix("KiB")) * KIB if size.endswith("KiB") else int(size.removesuffix("B"))
        return cls(kind=kind, size_bytes=number, width=int(width.removeprefix("x")))


def size_text(size_bytes: int) -> str:
    """The size for people: 64B, 1KiB."""
    return f"{size_bytes // KIB}KiB" if size_bytes >= KIB and size_bytes % KIB == 0 else f"{size_bytes}B"
