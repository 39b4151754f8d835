"""How long a trial warms up and how long it is measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time between two samples, and the load's time before the first of them."""

    warmup_s: float
    measured_s: float
