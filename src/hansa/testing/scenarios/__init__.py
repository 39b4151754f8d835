"""The scenarios that `make sim` plays."""

from hansa.testing.scenario import Scenario
from hansa.testing.scenarios.registry_cluster import RegistryCluster
from hansa.testing.scenarios.router_dealer import RouterDealer

__all__ = ["SCENARIOS", "RegistryCluster", "RouterDealer"]

SCENARIOS: dict[str, type[Scenario]] = {one.name: one for one in (RegistryCluster, RouterDealer)}
