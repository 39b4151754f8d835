"""A process at one end of a bridge of cluster events: it tells what it sees in lines of JSON.

`bridge STORE NAME PUB ROUTER` is a member, and publishes the events of its view. `listen PUB ROUTER` has no
store: it tells the events that it gets back from the topic.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from hansa import Discovery, SpotNode
from hansa.coordination import Members, NodeInfo
from hansa.store import open_store
from hansa.topics.cluster_events import TopicBridge, bridged_events

ANY = "tcp://127.0.0.1:0"


async def bridge(address: str, name: str, pub: str, router: str) -> None:
    async with (
        Discovery([pub]) as discovery,
        SpotNode(ANY, [router], discovery=discovery, heartbeat_interval=0.5, name=name) as node,
        open_store(address) as store,
        Members(store, NodeInfo(id=name), heartbeat_interval=0.25, heartbeat_timeout=1.0) as view,
        TopicBridge(view, node) as bridge,
    ):
        tell(event="ready")
        await bridge.owning()
        tell(event="owning")
        await asyncio.Event().wait()


async def listen(pub: str, router: str) -> None:
    async with (
        Discovery([pub]) as discovery,
        SpotNode(ANY, [router], discovery=discovery, heartbeat_interval=0.5, name="listener") as node,
        node.spot() as spot,
    ):
        events = await bridged_events(spot)
        tell(event="ready")
        async for event in events:
            tell(
                event=type(event).__name__,
                id=event.member.id,
                incarnation=event.member.incarnation,
                zone=event.member.info.zone,
                reason=event.reason,
            )


def tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(bridge(*sys.argv[2:]) if sys.argv[1] == "bridge" else listen(*sys.argv[2:]))
