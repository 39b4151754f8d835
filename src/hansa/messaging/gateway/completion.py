"""How a request ended, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from hansa.errors import HansaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The one outcome of one request: the reply's parts, or the error that it ended with."""

    service: str
    request_id: int
    parts: list[bytes]
    error: HansaError | None = None

    def result(self) -> list[bytes]:
        """The reply's parts. Raises the error if the request failed."""
        if self.error is not None:
            raise self.error
        return self.parts
