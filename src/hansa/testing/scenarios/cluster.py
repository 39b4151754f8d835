"""What the programs of the registry cluster share: hosts, ports, the phase of the run, and the books."""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto

from hansa.chance import Chance
from hansa.services.discovery.client import Discovery
from hansa.services.gateway.client import Gateway
from hansa.services.provider.server import Provider
from hansa.services.registry import Registry
from hansa.testing.scenarios.cluster_books import Errands, Offer, Offers
from hansa.testing.world import World
from hansa.transport import SocketOptions

REGISTRIES = ("r1", "r2", "r3")
CALLERS = ("d1", "d2")
# What each provider may offer. Some share a service, some share nothing.
SERVICES: dict[str, tuple[str, ...]] = {
    "p1": ("alpha", "beta"),
    "p2": ("alpha",),
    "p3": ("beta", "gamma"),
    "p4": ("gamma", "alpha"),
    "p5": ("delta",),
}
PUB_PORT = 5550
ROUTER_PORT = 5551
PROVIDER_PORT = 6000
HEARTBEAT_INTERVAL_S = 1.0
HEARTBEAT_TIMEOUT_S = 3.0
POLL_S = 0.25
WALL_SKEW_S_MAX = 3.0


class ClusterPhase(Enum):
    """The phases of the programs: anything; come to rest; one provider leaves and returns; ask all once."""

    CHAOS = auto()
    CALM = auto()
    ROLLING = auto()
    CLOSING = auto()


class ProviderRun:
    """One provider from its binding to its end; a host has one after the other, all at one endpoint."""

    def __init__(self, provider: Provider, label: str, endpoint: str) -> None:
        self.provider = provider
        self.label = label
        self.endpoint = endpoint
        self.offers: dict[str, Offer] = {}
        """Its current offers, by service."""
        self.is_steady = False
        """Whether everything that it wants to offer is registered, as far as it knows."""


class Caller:
    """One life of a host that finds providers and sends requests."""

    def __init__(self, label: str, discovery: Discovery, gateway: Gateway) -> None:
        self.label = label
        self.discovery = discovery
        self.gateway = gateway
        self.has_finished = False


class Cluster:
    """Shared by all programs of one run."""

    def __init__(self, world: World, chance: Chance) -> None:
        self.world = world
        self.offers = Offers(world)
        self.errands = Errands(world)
        self.phase = ClusterPhase.CHAOS
        self.broadcast_interval_s = chance.choose((2.0, 3.0, 5.0))
        self.has_fixed_ids = chance.flip(0.5)
        self._has_skew = chance.flip(0.5)
        # Some providers come back under their former id.
        self.faithful = {name for name in SERVICES if chance.flip(0.2)}
        self.leaver = chance.choose(tuple(SERVICES))
        """The provider that leaves and returns when all is well."""
        self.has_left = False
        self.registries: dict[str, Registry] = {}
        self.registry_labels: dict[str, str] = {}
        self.sessions: dict[str, ProviderRun] = {}
        self.callers: dict[str, Caller] = {}
        self.unread: Counter[str] = Counter()
        """By provider, how many callers do not read its replies now: these delay everybody's replies."""

    def wall_skew_s(self, chance: Chance) -> float:
        """How wrong a clock is about the date."""
        return chance.uniform(-WALL_SKEW_S_MAX, WALL_SKEW_S_MAX) if self._has_skew else 0.0

    @property
    def callers_now(self) -> set[str]:
        """The lives that send requests now."""
        return {caller.label for caller in self.callers.values()}

    @property
    def is_chaotic(self) -> bool:
        return self.phase is ClusterPhase.CHAOS


def socket_options(chance: Chance) -> SocketOptions:
    """Quick to notice and quick to return, so that a run is short."""
    return SocketOptions(
        heartbeat_interval=1.5,
        heartbeat_timeout=chance.choose((3.0, 4.0)),
        handshake_s_max=3.0,
        reconnect_s_min=0.05,
        reconnect_s_max=1.0,
        linger=chance.choose((0.0, 1.0)),
    )
