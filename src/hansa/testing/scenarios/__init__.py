"""The scenarios that `make sim` plays.

- `router_dealer`: sockets.
- `registry_cluster`: registries, providers and callers. `cluster`: what their programs share. `offering`,
  `calling`: the programs of providers and callers. `offers`, `errands`: the books of entries and requests.
- `spot_mesh`: a mesh of topics. `spot_cast`: what its programs share. `spot_living`, `spot_acting`: the
  programs of nodes and spots. `spot_posts`, `spot_accounts`, `spot_witness`: the books.
- `roster`: members. `roster_truth`: the books of their records and events.
- `locks`, `elections`: ownership in a store. `claims`: its books. `topic_claims`: topics claimed in a store.
- `topic_moves`: topics that are handed over while they are used. `moving_cast`: what its programs share.
  `moving_living`: the programs of nodes. `topic_books`: the books of delivered messages.
- `handovers`: locks and offices, handed over. `handover_truth`: its books. `strikes`: trouble at one step.
- `placements`: entries that a leader places on the nodes that are there. `placed_handovers`: trouble when it
  moves them.
- `assignments`: work that is shared out among workers. `assignment_truth`: its books.
"""

from hansa.testing.scenarios.assignments import AssignmentScenario
from hansa.testing.scenarios.elections import Elections
from hansa.testing.scenarios.handovers import HandoverScenario
from hansa.testing.scenarios.locks import Locks
from hansa.testing.scenarios.placed_handovers import PlacedHandovers
from hansa.testing.scenarios.placements import Placements
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
