"""The scenarios that `make sim` plays."""

from hansa.testing.scenario import Scenario
from hansa.testing.scenarios.elections import Elections
from hansa.testing.scenarios.locks import Locks
from hansa.testing.scenarios.registry_cluster import RegistryCluster
from hansa.testing.scenarios.roster import RosterScenario
from hansa.testing.scenarios.router_dealer import RouterDealer
from hansa.testing.scenarios.spot_mesh import SpotMesh
from hansa.testing.scenarios.topic_claims import TopicClaiming

__all__ = [
    "SCENARIOS",
    "Elections",
    "Locks",
    "RegistryCluster",
    "RosterScenario",
    "RouterDealer",
    "SpotMesh",
    "TopicClaiming",
]

SCENARIOS: dict[str, type[Scenario]] = {
    one.name: one
    for one in (Elections, Locks, RegistryCluster, RosterScenario, RouterDealer, SpotMesh, TopicClaiming)
}
