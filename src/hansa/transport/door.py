"""How many may come in through one bound endpoint, and how many before they have shown who they are."""

from __future__ import annotations

from hansa.transport.events import CloseReason


class Door:
    """Counts the connections of one listener against its bounds."""

    def __init__(self, *, connections_max: int, handshaking_max: int) -> None:
        self._connections_max = connections_max
        self._handshaking_max = handshaking_max
        self._inside_count = 0
        self._handshaking_count = 0

    def enter(self) -> CloseReason | None:
        """Count one more in, or say why it must stay out."""
        if self._inside_count >= self._connections_max:
            return CloseReason.TOO_MANY_CONNECTIONS
        if self._handshaking_count >= self._handshaking_max:
            return CloseReason.TOO_MANY_HANDSHAKING
        self._inside_count += 1
        self._handshaking_count += 1
        return None

    def admitted(self) -> None:
        self._handshaking_count -= 1

    def left(self, *, was_admitted: bool) -> None:
        self._inside_count -= 1
        if not was_admitted:
            self._handshaking_count -= 1
