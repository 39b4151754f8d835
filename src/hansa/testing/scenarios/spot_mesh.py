"""A mesh of nodes and their topics under every fault.

One or two registries, and three to seven nodes of one to four spots each. The spots create and destroy
topics, retained and not, in some runs the same one at two nodes; they subscribe topics and patterns, with
little room and with much, and unsubscribe, in half of the runs most of all while owners are away; they
publish to their own topics, to others' and to nobody's; they read fast or slowly; they close and others open.
Nodes crash, lose power, stop and come back, under a new id or the old one, or unregister for a while.

Always: nothing is delivered twice, nothing that was not published or not subscribed, nothing out of its
publisher's order; one owner numbers a message once; of what was before, only the latest of a retained topic;
what is lost is counted, by the subscription exactly, by the spot through all its subscriptions, and by the
publisher at least; a closed spot says so.

When the faults are over: all nodes know the same owner of each topic, which agrees; each pair shares one
connection; owners give to exactly the nodes that want; subscriptions are active where there is an owner and
receive the final round, each message once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import combinations, product
from typing import ClassVar

from hansa.messaging.registry import Registry
from hansa.testing.host import Host
from hansa.testing.scenario import Scenario
from hansa.testing.scenarios.cluster import HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S, socket_options
from hansa.testing.scenarios.spot_agreement import disagreement
from hansa.testing.scenarios.spot_cast import PUB_PORT, ROUTER_PORT, Cast, Phase
from hansa.testing.scenarios.spot_living import Living
from hansa.testing.world import World

__all__ = ["SpotMesh"]

# So long all must agree before it counts: a connection that is being closed lingers for a second.
AGREED_S = 2.0
# After the last publish everything has arrived by then.
LANDING_S = 1.0


class SpotMesh(Scenario):
    """Topics over a mesh of nodes: one owner each, what is lost is counted, all agree in the end."""

    name: ClassVar[str] = "spot_mesh"
    chaos_s: ClassVar[float] = 12.0
    quiet_s: ClassVar[float] = 60.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.cast = Cast(world, world.chance.fork("spot_mesh"))
        self._agreed_s: float | None = None
        self._finished_s: float | None = None

    def begin(self) -> None:
        for name in self.cast.registries:
            self.world.host(name, self._keep_registry).start()
        for name in self.cast.nodes:
            self.world.host(name, lambda host: Living(host, self.cast).run()).start()

    def pairs(self) -> Sequence[tuple[str, str]]:
        cast = self.cast
        return list(combinations(cast.nodes, 2)) * 3 + list(product(cast.registries, cast.nodes))

    def calm(self) -> None:
        self.cast.phase = Phase.CALM

    def check(self) -> None:
        """A crashed node's books are closed where they are: its objects stay as they were when it died."""
        for session in self.cast.sessions.values():
            if session.label.rpartition(".")[0] in self.world.crashed_lives:
                self.cast.close_session(session, crashed=True)

    def unsettled(self) -> str:
        cast = self.cast
        if cast.phase is Phase.CLOSING:
            return ""
        if cast.phase is Phase.CALM:
            return self._unagreed()
        busy = [session.label for session in cast.sessions.values() if not session.has_finished]
        if busy:
            return f"{', '.join(busy)} has not published the final round"
        if missing := disagreement(cast):
            return f"after the final round: {missing}"
        if unmet := cast.accounts.unmet():
            return "\n".join(unmet[:20])
        now = self.world.elapsed_s()
        self._finished_s = self._finished_s or now
        if now < self._finished_s + LANDING_S:
            return "the last messages may be under way"
        self._judge()
        return ""

    def _unagreed(self) -> str:
        """What the nodes do not agree on; the final round begins when it has been nothing for a while."""
        now = self.world.elapsed_s()
        if missing := disagreement(self.cast):
            self._agreed_s = None
            return missing
        self._agreed_s = self._agreed_s or now
        if now >= self._agreed_s + AGREED_S:
            self.cast.phase = Phase.ROUNDS
            self.cast.round_called.set()
        return "the final round has not been published"

    def _judge(self) -> None:
        """Close the books and look into them."""
        cast = self.cast
        cast.phase = Phase.CLOSING
        for session in cast.sessions.values():
            if session.witness is not None:
                session.witness.drain()
        for player in cast.players():
            for text in list(player.accounts):
                cast.close_account(player, text, settled=True)
            player.is_over = True
        cast.tenures.resolve()
        cast.accounts.judge()
        cast.posts.judge(cast.watched, crashed=cast.crashed)

    async def _keep_registry(self, host: Host) -> None:
        cast, chance = self.cast, host.chance
        registry = cast.keepers[host.name] = Registry(
            f"tcp://*:{PUB_PORT}",
            f"tcp://*:{ROUTER_PORT}",
            peers=[f"tcp://{name}:{PUB_PORT}" for name in cast.registries if name != host.name],
            heartbeat_interval_s=HEARTBEAT_INTERVAL_S,
            heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
            broadcast_interval_s=cast.broadcast_interval_s,
            network=host.network,
            clock=host.clock,
            chance=chance.fork("registry"),
            options=socket_options(chance.fork("options")),
            name=str(host.life),
        )
        async with registry:
            await asyncio.Event().wait()
