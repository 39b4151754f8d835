"""A process that only sleeps, and counts how often the machine woke it up much too late.

What happened in that moment says more about the machine than about what is measured: it is told apart.
"""

import time

from bench.job import Job
from bench.link import Link

SLEEP_S = 0.002
LATE_S = 0.05


def control(_job: Job, link: Link) -> None:
    """Sleep again and again; the gauge has how often that took LATE_S longer than it should."""
    late_count = 0
    link.gauges = lambda: {"late": float(late_count)}
    link.ready()
    while True:
        begun_s = time.monotonic()
        time.sleep(SLEEP_S)
        late_count += time.monotonic() - begun_s > SLEEP_S + LATE_S
