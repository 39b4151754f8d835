"""What it costs to begin: the CPU time of a program until it has loaded, or until its first message is out.

The kind "start" starts a program `width` times, each time beside a bare interpreter, and takes the median. A
program that sends is ended when its first bytes arrive.
"""

from bench.measurement import Measurement
from bench.stage import Stage
from bench.window import Window

START_S_MAX = 120.0


async def measure(stage: Stage, _window: Window) -> Measurement:
    """All starts of one program."""
    starter = await stage.start("start")
    return Measurement(figures=await starter.do("start", s_max=START_S_MAX))
