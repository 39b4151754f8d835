"""Keepers of sessions and placed claims, on every store."""

import asyncio

import pytest

from hansa.coordination import (
    Lock,
    Members,
    NodeInfo,
    PlacedClaim,
    PlacedClaims,
    Placement,
    Session,
    SessionKeeper,
)
from hansa.coordination.session import Hanging
from hansa.errors import LockLost, SessionLost
from hansa.store.store import Store
from hansa.store.values import Put

WAIT_S_MAX = 20.0


@pytest.mark.spec("OWN-02")
async def test_a_lease_that_the_store_ended_is_followed_by_another_one_and_all_are_told(
    store: Store, other_store: Store, ttl_s: float
) -> None:
    told: list[str] = []

    class Part(Hanging):
        """Something that hangs on the keeper."""

        def session_lost(self, lost: SessionLost) -> None:
            told.append("lost")

        def session_opened(self, session: Session) -> None:
            told.append("opened")

    async with SessionKeeper(store, ttl=ttl_s, node="cog") as keeper, asyncio.timeout(WAIT_S_MAX):
        keeper.hang_on(Part())
        session = await keeper.live()
        lock = Lock(keeper, "dock")
        with pytest.raises(LockLost):
            async with lock as first:
                await other_store.revoke(session.lease)
                await asyncio.Event().wait()
        async with lock as second:
            assert second.fence > first.fence
            assert (await keeper.live()).lease != session.lease
        assert told == ["opened", "lost", "opened"]


@pytest.mark.spec("OWN-01")
async def test_what_is_placed_on_a_node_is_guarded_by_its_record_and_its_entry(
    store: Store, other_store: Store, ttl_s: float
) -> None:
    claims: asyncio.Queue[PlacedClaim] = asyncio.Queue()

    async def acts(claim: PlacedClaim) -> bool:
        return (await store.commit(claim.guards, [Put("acted", b"")])).is_success

    async with (
        asyncio.timeout(WAIT_S_MAX),
        SessionKeeper(store, ttl=max(ttl_s, 4.0), node="cog") as keeper,
        Members(store, NodeInfo(id="cog"), session=keeper) as members,
    ):
        placed = PlacedClaims(keeper, "cog", b"entries/", on_claim=claims.put_nowait)
        running = asyncio.ensure_future(placed.run())
        placement = Placement(node="cog", lease=members.me.lease, epoch=1)
        for number in range(100):
            await other_store.put(f"entries/{number}", placement.encode())
        first, *others = [await claims.get() for _ in range(100)]
        assert all([await acts(claim) for claim in (first, others[-1])])
        await other_store.put(first.key, Placement(node="hulk", lease=1, epoch=2).encode())
        assert not await acts(first)
        assert await first.loss.wait()
        assert await acts(others[0])
        session = await keeper.live()
        await other_store.revoke(session.lease)
        # At once, before anybody has heard of it.
        assert not await acts(others[0])
        await session.lost()
        assert not any(claim.is_standing for claim in others)
        running.cancel()
