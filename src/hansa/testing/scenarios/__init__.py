"""The scenarios that `make sim` plays."""

from hansa.testing.scenario import Scenario
from hansa.testing.scenarios.registry_cluster import RegistryCluster
from hansa.testing.scenarios.router_dealer import RouterDealer
from hansa.testing.scenarios.spot_mesh import SpotMesh

__all__ = ["SCENARIOS", "RegistryCluster", "RouterDealer", "SpotMesh"]

SCENARIOS: dict[str, type[Scenario]] = {one.name: one for one in (RegistryCluster, RouterDealer, SpotMesh)}
