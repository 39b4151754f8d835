"""What travels with the msgId of a request: how long its caller still waits, and its trace."""

from __future__ import annotations

from hansa.wire.business import CallHeader, TraceContext, encode_header

_REMAINING_MS_MAX = 0xFFFF_FFFF
# Timeouts whose headers are kept; a program has a few.
_KEPT_MAX = 64


class Headers:
    """Makes headers, and keeps those of first tries: most have one of a few timeouts."""

    def __init__(self) -> None:
        self.kept: dict[float | None, bytes] = {}
        """Without a trace, by timeout; looked into by who opens requests (`make bench`, case gateway)."""

    def first(self, timeout: float | None, trace: TraceContext | None) -> bytes:
        """For a first try, with all of its time left."""
        header = header_of(timeout, trace)
        if trace is None:
            if len(self.kept) >= _KEPT_MAX:
                self.kept.clear()  # Those of the usual timeouts are soon back.
            self.kept[timeout] = header
        return header


def header_of(left_s: float | None, trace: TraceContext | None) -> bytes:
    """The header of a request that has so much time left; None (or -1) has no deadline."""
    if left_s is None or left_s < 0:
        remaining_ms = None
    else:
        remaining_ms = int(min(_REMAINING_MS_MAX, max(1, left_s * 1000)))
    return encode_header(CallHeader(remaining_ms, trace))
