"""The simulator: whole clusters in one process, in virtual time, under faults, replayed from a seed.

    class Pair(Scenario):
        name = "pair"

        def begin(self) -> None:
            self.world.host("alpha", alpha).start()
            self.world.host("beta", beta).start()

    Simulation(7, Pair).run()

Programs run on hosts unchanged: they are given the host, and through it a network, a clock and chance.
"""

from hansa.testing.faults import Crash, Cut, Fault, Pause, Refusal, Reset, SlowLink, Stop, draw_plan
from hansa.testing.history import Fact, History
from hansa.testing.host import Host, SimClock
from hansa.testing.loop import Deadlocked, SimLoop, Stuck
from hansa.testing.network import NetworkSettings, SimNetwork
from hansa.testing.refusals import NotSimulated
from hansa.testing.scenario import Scenario
from hansa.testing.simulation import Failure, Outcome, Simulation, SimulationFailed
from hansa.testing.world import Broken, World

__all__ = [
    "Broken",
    "Crash",
    "Cut",
    "Deadlocked",
    "Fact",
    "Failure",
    "Fault",
    "History",
    "Host",
    "NetworkSettings",
    "NotSimulated",
    "Outcome",
    "Pause",
    "Refusal",
    "Reset",
    "Scenario",
    "SimClock",
    "SimLoop",
    "SimNetwork",
    "Simulation",
    "SimulationFailed",
    "SlowLink",
    "Stop",
    "Stuck",
    "World",
    "draw_plan",
]
