"""The scenarios that `make sim` plays.

- `router_dealer`: sockets.
- `registry_cluster`: registries, providers and callers. `calling`: the programs of callers. `cluster`: what
  their programs share. `cluster_books`: the books of entries and requests.
- `spot_mesh`: a mesh of topics. `spot_cast`: what its programs share. `spot_living`: the programs of nodes
  and spots. `spot_posts`, `spot_accounts`: the books.
- `roster`: members, and the books of their records and events.
- `locks`, `elections`: ownership in a store. `claims`: its books. `topic_claims`: topics claimed in a store.
- `topic_moves`: topics that are handed over while they are used. `moving_cast`: what its programs share, and
  the books of delivered messages. `moving_living`: the programs of nodes.
- `handovers`: locks and offices, handed over. `handover_truth`: its books. `strikes`: trouble at one step.
- `placements`: entries that a leader places on the nodes that are there, and trouble when it moves them.
- `assignments`: work that is shared out among workers. `assignment_truth`: its books. `assignment_facts`:
  what the books go by.
"""

from hansa.testing.scenarios.assignments import AssignmentScenario
from hansa.testing.scenarios.elections import Elections
from hansa.testing.scenarios.handovers import HandoverScenario
from hansa.testing.scenarios.locks import Locks
from hansa.testing.scenarios.placements import PlacedHandovers, Placements
from hansa.testing.scenarios.registry_cluster import RegistryCluster
from hansa.testing.scenarios.roster import RosterScenario
from hansa.testing.scenarios.router_dealer import RouterDealer
from hansa.testing.scenarios.spot_mesh import SpotMesh
from hansa.testing.scenarios.topic_claims import TopicClaiming
from hansa.testing.scenarios.topic_moves import TopicMoves
from hansa.testing.simulation import Scenario

__all__ = [
    "SCENARIOS",
    "AssignmentScenario",
    "Elections",
    "HandoverScenario",
    "Locks",
    "PlacedHandovers",
    "Placements",
    "RegistryCluster",
    "RosterScenario",
    "RouterDealer",
    "SpotMesh",
    "TopicClaiming",
    "TopicMoves",
]

SCENARIOS: dict[str, type[Scenario]] = {
    one.name: one
    for one in (
        AssignmentScenario,
        Elections,
        HandoverScenario,
        Locks,
        PlacedHandovers,
        Placements,
        RegistryCluster,
        RosterScenario,
        RouterDealer,
        SpotMesh,
        TopicClaiming,
        TopicMoves,
    )
}
