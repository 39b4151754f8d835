"""What an etcd says of itself in numbers: the few that are told on, out of its page of metrics."""

from dataclasses import dataclass
from typing import Final

_SAVED: Final = "etcd_debugging_snap_save_total_duration_seconds"
_RECEIVED: Final = "etcd_network_snapshot_receive_total_duration_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Snapshots since the process started: written, and received from another member."""

    snapshots_count: int = 0
    snapshots_s: float = 0.0
    received_count: int = 0
    received_s: float = 0.0


def read_measures(page: str) -> Measures:
    """The measures on a page of metrics; what is not there is 0, since versions differ."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        name, _, number = line.rpartition(" ")
        # The labels say from whom; only the sum over all counts here.
        name = name.partition("{")[0]
        if name.startswith((_SAVED, _RECEIVED)):
            try:
                sums[name] = sums.get(name, 0.0) + float(number)
            except ValueError:
                continue
    return Measures(
        snapshots_count=int(sums.get(f"{_SAVED}_count", 0)),
        snapshots_s=sums.get(f"{_SAVED}_sum", 0.0),
        received_count=int(sums.get(f"{_RECEIVED}_count", 0)),
        received_s=sums.get(f"{_RECEIVED}_sum", 0.0),
    )
