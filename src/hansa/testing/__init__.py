"""The simulator: whole clusters in one process, in virtual time, under faults, replayed from a seed.

    class Pair(Scenario):
        name = "pair"

        def begin(self) -> None:
            self.world.host("alpha", alpha).start()
            self.world.host("beta", beta).start()

    Simulation(7, Pair).run()

Programs run on hosts unchanged: they are given the host, and through it a network, a clock and chance.

And a judge of what clients saw, in a simulation or anywhere else: `check_linearizability`.
"""

from hansa.testing.calls import Call, CallLog, OpenCall
from hansa.testing.counterexample import Counterexample
from hansa.testing.faults import Crash, Cut, Fault, Pause, Refusal, Reset, Rewind, SlowLink, Stop, draw_plan
from hansa.testing.history import Fact, History
from hansa.testing.host import Host, SimClock
from hansa.testing.linearizability import Judgement, Verdict, check_linearizability
from hansa.testing.loop import Deadlocked, SimLoop, Stuck
from hansa.testing.models import (
    UNKNOWN,
    Acquire,
    Add,
    CompareAndSet,
    CounterModel,
    LockModel,
    LockState,
    Model,
    Read,
    RegisterModel,
    Release,
    Write,
)
from hansa.testing.network import NetworkSettings, SimNetwork
from hansa.testing.refusals import NotSimulated
from hansa.testing.scenario import Scenario
from hansa.testing.simulation import Failure, Outcome, Simulation, SimulationFailed
from hansa.testing.store_host import StoreHost, StoreTrouble
from hansa.testing.store_link import StoreLink
from hansa.testing.world import Broken, World

__all__ = [
    "UNKNOWN",
    "Acquire",
    "Add",
    "Broken",
    "Call",
    "CallLog",
    "CompareAndSet",
    "CounterModel",
    "Counterexample",
    "Crash",
    "Cut",
    "Deadlocked",
    "Fact",
    "Failure",
    "Fault",
    "History",
    "Host",
    "Judgement",
    "LockModel",
    "LockState",
    "Model",
    "NetworkSettings",
    "NotSimulated",
    "OpenCall",
    "Outcome",
    "Pause",
    "Read",
    "Refusal",
    "RegisterModel",
    "Release",
    "Reset",
    "Rewind",
    "Scenario",
    "SimClock",
    "SimLoop",
    "SimNetwork",
    "Simulation",
    "SimulationFailed",
    "SlowLink",
    "Stop",
    "StoreHost",
    "StoreLink",
    "StoreTrouble",
    "Stuck",
    "Verdict",
    "World",
    "Write",
    "check_linearizability",
    "draw_plan",
]
