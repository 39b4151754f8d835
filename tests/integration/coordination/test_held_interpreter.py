"""Code that holds the interpreter stops the event loop and the thread that renews: what is survived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hansa.coordination import (
    FencedKey,
    Lock,
    MemberDown,
    MemberJoined,
    Members,
    MemberSuspected,
    NodeInfo,
    Session,
)
from hansa.errors import WouldBlock
from hansa.store import open_store
from tests.support.peer_process import PeerProcess
from tests.support.store_process import StoreProcess

pytestmark = [pytest.mark.spec("CRD-07"), pytest.mark.timeout(60)]


@asynccontextmanager
async def stage(ttl_s: float, timeout_s: float) -> AsyncIterator[tuple[PeerProcess, Session, Members]]:
    """A store, the process that will hold its interpreter, and this one, which looks after it."""
    with StoreProcess(None) as process:
        address = f"etcd://{process.address}"
        async with (
            open_store(address) as store,
            Members(
                store, NodeInfo(id="free"), heartbeat_interval=timeout_s / 4, heartbeat_timeout=timeout_s
            ) as members,
            Session(store, ttl=20.0) as session,
            PeerProcess("coordination/holding_peer.py", address, str(ttl_s), str(timeout_s)) as peer,
        ):
            await hear(peer, "ready")
            await members.until(lambda view: "held" in view, timeout=20)
            yield peer, session, members


async def hear(peer: PeerProcess, *names: str) -> dict[str, dict[str, Any]]:
    """The next events of these names, each once, in any order."""
    found: dict[str, dict[str, Any]] = {}
    while set(found) != set(names):
        heard = await peer.hear()
        found[heard["event"]] = heard
    return found


async def test_a_short_hold_is_reported_and_not_mistaken_for_death() -> None:
    async with stage(ttl_s=6.0, timeout_s=4.0) as (peer, session, members):
        events = members.events()
        await peer.say("hold 1.5")
        told = await hear(peer, "held", "LoopLagged")
        # Both report it: the session by the lag of its keeper, the member by an event.
        assert told["held"]["lag_s"] > 0.7
        assert told["LoopLagged"]["reason"].startswith("the event loop was stuck for")
        assert (told["held"]["is_held"], told["held"]["reason"]) == (True, "")
        await peer.say("write 10")
        assert (await hear(peer, "written"))["written"]["refusal"] == ""
        assert (await session.store.get("cargo")).value == b"10"  # type: ignore[union-attr]
        with pytest.raises(WouldBlock):
            while True:
                assert not isinstance(events.get_nowait(), MemberSuspected | MemberDown)


async def test_a_hold_beyond_the_lease_loses_it_with_that_reason_and_the_fence_refuses() -> None:
    async with stage(ttl_s=2.0, timeout_s=1.0) as (peer, session, members):
        events = members.events()
        cargo = FencedKey(session.store, "cargo")
        waiting = asyncio.ensure_future(Lock(session, "dock").acquire(timeout=20))
        await peer.say("hold 3")
        async with await waiting as hold, asyncio.timeout(20):
            await cargo.take(hold.fence)
            await cargo.write(hold.fence, b"ours")
            told = await hear(peer, "held", "LoopLagged", "Rejoined")
            assert not told["held"]["is_held"]
            assert "the event loop, or the whole process, was stuck for" in told["held"]["reason"]
            assert told["held"]["lag_s"] > 1.5
            await peer.say("write theirs")
            assert (await hear(peer, "written"))["written"]["refusal"] == "StaleFence"
            assert (await session.store.get("cargo")).value == b"ours"  # type: ignore[union-attr]
            # To the others it was dead, and came back.
            kinds = [type(await anext(events))]
            while kinds[-1] is not MemberJoined:
                kinds.append(type(await anext(events)))
            assert kinds[-2:] == [MemberDown, MemberJoined]
