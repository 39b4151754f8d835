"""Cluster events on a topic and back, each end in a process of its own."""

from __future__ import annotations

from typing import Any

import pytest

from hansa import Discovery, Registry, SpotNode
from hansa.coordination import Members, NodeInfo
from hansa.store import open_store
from hansa.topics.cluster_events import bridged_events
from tests.support.peer_process import PeerProcess
from tests.support.store_process import StoreProcess

ANY = "tcp://127.0.0.1:0"
PEER = "coordination/bridge_peer.py"


async def hear(peer: PeerProcess, event: str) -> None:
    heard = await peer.hear()
    assert heard["event"] == event, heard


async def hear_until(peer: PeerProcess, event: str, name: str) -> list[dict[str, Any]]:
    """All events up to this one of this member."""
    heard = [await peer.hear()]
    while (heard[-1]["event"], heard[-1]["id"]) != (event, name):
        heard.append(await peer.hear())
    return heard


@pytest.mark.spec("CRD-14")
@pytest.mark.timeout(100)
async def test_a_process_without_a_store_hears_of_members_of_others_also_when_a_bridge_is_killed() -> None:
    with StoreProcess(None) as process:
        address = f"etcd://{process.address}"
        async with (
            Registry(ANY, ANY, heartbeat_interval=0.5, heartbeat_timeout=4.0) as registry,
            open_store(address) as store,
        ):
            mesh = (str(registry.pub), str(registry.router))
            async with (
                PeerProcess(PEER, "listen", *mesh) as listener,
                PeerProcess(PEER, "bridge", address, "one", *mesh) as one,
            ):
                await hear(listener, "ready")
                await hear(one, "ready")
                await hear(one, "owning")
                async with PeerProcess(PEER, "bridge", address, "two", *mesh) as two:
                    await hear(two, "ready")
                    told = await hear_until(listener, "MemberJoined", "two")
                    # The one that publishes is killed: the other one goes on, with the news of that first.
                    await one.kill()
                    told += await hear_until(listener, "MemberDown", "one")
                    await hear(two, "owning")
                    # Members of a third process, this one.
                    async with Members(store, NodeInfo(id="guest", zone="east")):
                        told += await hear_until(listener, "MemberJoined", "guest")
                        assert told[-1]["zone"] == "east"
                    told += await hear_until(listener, "MemberLeft", "guest")
                    assert told[-1]["reason"] == "left"
                    # Who comes later is told what the bridge still holds.
                    async with (
                        Discovery([mesh[0]]) as discovery,
                        SpotNode(ANY, [mesh[1]], discovery=discovery, heartbeat_interval=0.5) as node,
                        node.spot() as spot,
                    ):
                        late = await bridged_events(spot)
                        again = [type(await anext(late)).__name__ for _ in range(4)]
            assert [each["event"] for each in told] == ["MemberJoined", *again]
            assert again == ["MemberSuspected", "MemberDown", "MemberJoined", "MemberLeft"]
