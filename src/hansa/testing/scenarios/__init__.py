"""The scenarios that `make sim` plays."""

from hansa.testing.scenario import Scenario
from hansa.testing.scenarios.router_dealer import RouterDealer

__all__ = ["SCENARIOS", "RouterDealer"]

SCENARIOS: dict[str, type[Scenario]] = {one.name: one for one in (RouterDealer,)}
