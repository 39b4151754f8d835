"""Options of the commands that join a topic mesh, and how they join it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from hansa.cli.registry_options import ENDPOINT, PUB, ROUTER, SECONDS, Pubs, Routers
from hansa.errors import TimedOut
from hansa.services.discovery import Discovery
from hansa.store.store import Store
from hansa.topics import SpotNode
from hansa.topics.names import SERVICE
from hansa.transport import Environment

LOOK_INTERVAL_S: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class MeshOptions:
    """Where the mesh is, and where this command's own node stands in it.

    Parameters
    ----------
    bind
        Where other nodes connect to this one; port 0 takes any free port.
    advertise
        What other nodes are told to connect to, if it is not where this one is bound.
    mesh
        `router`: a topic has an owner, through which everything is published; `pubsub`: no topic has one, and
        everybody publishes directly. All nodes of a service are of one kind.
    service
        The mesh's name: `spot-node`, or `spot-node.NAME` for one of several on the same registries.
    timeout
        How long joining the mesh may take.
    """

    pub: Pubs = (PUB,)
    router: Routers = (ROUTER,)
    bind: Annotated[str, ENDPOINT] = "tcp://127.0.0.1:0"
    advertise: Annotated[str | None, ENDPOINT] = None
    mesh: Literal["router", "pubsub"] = "router"
    service: str = SERVICE
    timeout: Annotated[float, SECONDS] = 5.0

    @asynccontextmanager
    async def joined(
        self,
        name: str,
        environment: Environment,
        *,
        store: Store | None = None,
        cluster: str = "default",
        takes_topics: bool = False,
    ) -> AsyncIterator[SpotNode]:
        """A node that has registered and knows the topics of the others, for as long as the block.

        With a store it claims there what it creates; with `takes_topics` others may hand theirs over to it.

        Raises BadArgument and BadEndpoint for options that cannot work, TimedOut without a registry.
        """
        discovery = Discovery(self.pub, environment=environment)
        node = SpotNode(
            self.bind,
            self.router,
            discovery=discovery,
            service=self.service,
            mesh=self.mesh,
            advertise=self.advertise,
            store=store,
            cluster=cluster,
            takes_topics=takes_topics,
            environment=environment,
            name=name,
        )
        end_at = asyncio.get_running_loop().time() + self.timeout
        async with discovery, node:
            await self._be_known(node, discovery, end_at)
            # A listed node that does not answer, because it was killed, must not stop this one.
            with suppress(TimedOut):
                await node.in_step(_left_s(end_at))
            yield node

    async def _be_known(self, node: SpotNode, discovery: Discovery, end_at: float) -> None:
        """Wait until a registry lists this node: nodes that came before are listed then, too."""
        try:
            await node.registered(_left_s(end_at))
        except TimedOut as error:
            raise TimedOut(
                f"no registry took this node within {self.timeout:g} s; tried {', '.join(self.router)}. Is "
                "one running (`hansa registry`), and is that its ROUTER endpoint?"
            ) from error
        while all(one.routing_id != node.routing_id for one in discovery.providers(self.service)):
            if asyncio.get_running_loop().time() >= end_at:
                raise TimedOut(
                    f"no registry was heard to list this node within {self.timeout:g} s: "
                    f"{discovery.situation}. It is registered at {node.registry or ', '.join(self.router)}"
                )
            await asyncio.sleep(LOOK_INTERVAL_S)


ANY_MESH: Final = MeshOptions()


def _left_s(end_at: float) -> float:
    return max(0.0, end_at - asyncio.get_running_loop().time())
