"""The simulator: whole clusters in one process, in virtual time, under faults, replayed from a seed.

    class Pair(Scenario):
        name = "pair"

        def begin(self) -> None:
            self.world.host("alpha", alpha).start()
            self.world.host("beta", beta).start()

    Simulation(7, Pair).run()

Programs run on hosts unchanged: each is given its host, and through it a network, a clock and chance.

- `simulation`: a scenario, and playing it from a seed. `faults`: what goes wrong, drawn beforehand.
- `world`: the hosts, their network, the clock, and what happened, in order.
- `host`: a simulated machine. `life`: one run of its program.
- `loop`: the event loop without a clock, and what it refuses to do.
- `network`: streams between hosts, and each direction of them.
- `store_host`: a store on a host. `store_link`: the store as another host sees it, and the way between them.
- `scenarios`: what `make sim` plays, with the command `python -m hansa.testing`.

And a judge of histories of calls, from a simulation or anywhere else: `check_linearizability`.

- `calls`: the log of what was asked and answered. `models`: what a sequential system would answer.
- `linearizability`: the search, what is shown on failure, and the verdict.
"""

from hansa.testing.calls import Call, CallLog, OpenCall
from hansa.testing.faults import Crash, Cut, Fault, Pause, Refusal, Reset, Rewind, SlowLink, Stop, draw_plan
from hansa.testing.host import Host, SimClock
from hansa.testing.linearizability import Counterexample, Judgement, Verdict, check_linearizability
from hansa.testing.loop import Deadlocked, NotSimulated, SimLoop, Stuck
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
from hansa.testing.simulation import Failure, Outcome, Scenario, Simulation, SimulationFailed
from hansa.testing.store_host import StoreHost, StoreTrouble
from hansa.testing.store_link import StoreLink
from hansa.testing.world import Broken, Fact, History, World

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
