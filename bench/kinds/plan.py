"""What it costs to plan who works on what: `width` partitions on a tenth as many workers, in one process.

Nothing is carried out. A plan is made for partitions that nobody has, for what is so after that, for when one
worker has left and for when it is back; once with all alike, and once with weights, roles and zones.
"""

from bench.measurement import Measurement
from bench.stage import Stage
from bench.window import Window

PLAN_S_MAX = 120.0


async def measure(stage: Stage, _window: Window) -> Measurement:
    """All plans."""
    planner = await stage.start("plan")
    return Measurement(figures=await planner.do("plan", s_max=PLAN_S_MAX))
