"""A keeper of sessions: one after the other, and everybody is told."""

import asyncio

import pytest

from hansa.coordination.lock import Lock
from hansa.coordination.member import Expelled, NodeInfo
from hansa.coordination.members import Members
from hansa.coordination.nodes import NodeRegistry
from hansa.coordination.session import Hanging, Session, SessionKeeper
from hansa.errors import AlreadyClosed, LockLost, SessionLost, StoreUnavailable, TimedOut, UsageError
from hansa.keys import Keys
from hansa.topics.node import SpotNode
from tests.support.virtual_store import TroubledStore, virtual


class Part(Hanging):
    """Something that hangs on a keeper."""

    def __init__(self, name: str, told: list[str]) -> None:
        self._name = name
        self._told = told

    def session_lost(self, lost: SessionLost) -> None:
        self._told.append(f"{self._name} lost")

    def session_opened(self, session: Session) -> None:
        self._told.append(f"{self._name} opened")


async def lose(keeper: SessionKeeper) -> None:
    """Lose the session, and wait for the next one."""
    session = await keeper.live()
    session.end_lost("for the test")
    while await keeper.live() is session:
        await asyncio.sleep(0.01)


@pytest.mark.spec("OWN-02")
@virtual
async def test_all_who_hang_on_are_told_of_the_loss_and_then_of_the_next_session(
    store: TroubledStore,
) -> None:
    told: list[str] = []
    first, second, gone = Part("first", told), Part("second", told), Part("gone", told)
    async with SessionKeeper(store) as keeper:
        for part in (first, second, gone):
            keeper.hang_on(part)
        keeper.let_go(gone)
        await keeper.live()
        assert told == ["first opened", "second opened"]
        late = Part("late", told)
        keeper.hang_on(late)
        told.clear()
        await lose(keeper)
        assert told == [
            *("first lost", "second lost", "late lost"),
            *("first opened", "second opened", "late opened"),
        ]
        assert (keeper.losses_count, keeper.reopened_count) == (1, 1)


@pytest.mark.spec("OWN-02")
@virtual
async def test_a_store_that_is_away_is_waited_for_with_growing_pauses(store: TroubledStore) -> None:
    store.pause()
    async with SessionKeeper(store, ttl=10.0) as keeper:
        with pytest.raises((StoreUnavailable, TimedOut), match="has none after 30 s: the keeper"):
            await keeper.live(30.0)
        assert 5 < keeper.errors_count < 20
        store.resume()
        session = await keeper.live(3.0)
        assert session is keeper.session
        assert keeper.losses_count == keeper.reopened_count == 0


@virtual
async def test_leaving_ends_the_lease_and_nobody_is_given_a_session_then(store: TroubledStore) -> None:
    keeper = SessionKeeper(store)
    with pytest.raises(UsageError, match="not open"):
        await keeper.live()
    async with keeper:
        lease = (await keeper.live()).lease
    assert await store.lease_info(lease) is None
    with pytest.raises(AlreadyClosed):
        await keeper.live()
    with pytest.raises(UsageError, match="once"):
        await keeper.__aenter__()


@virtual
async def test_a_keeper_of_a_store_that_is_closed_says_so(store: TroubledStore) -> None:
    async with SessionKeeper(store, ttl=2.0) as keeper:
        await keeper.live()
        await store.close()
        with pytest.raises(AlreadyClosed):
            while True:
                await keeper.live()
                await asyncio.sleep(0.1)


@pytest.mark.spec("OWN-02")
@virtual
async def test_a_lock_on_a_keeper_waits_for_a_session_and_is_taken_again_on_the_next_one(
    store: TroubledStore,
) -> None:
    async with SessionKeeper(store, ttl=10.0) as keeper:
        lock = Lock(keeper, "dock")
        with pytest.raises(LockLost):
            async with lock as hold:
                (await keeper.live()).end_lost("for the test")
                await asyncio.Event().wait()
        # The key of the lost session stands there until its lease ends: that is waited for.
        again = await lock.acquire(timeout=15.0)
        assert again.fence > hold.fence
        assert await again.release()
        assert not await hold.release()
        store.pause()
        (await keeper.live()).end_lost("for the test")
        with pytest.raises((StoreUnavailable, TimedOut)):
            await lock.acquire(timeout=1.0)
        store.resume()


@virtual
async def test_a_key_is_guarded_on_each_session_anew(store: TroubledStore) -> None:
    async with SessionKeeper(store) as keeper:
        for _ in range(2):
            hold = await Lock(keeper, "dock").acquire(timeout=20.0)
            await asyncio.sleep(1.0)
            began_s = store.now
            await store.delete(hold.guard.key)
            assert "somebody deleted" in str(await hold.lost())
            assert store.now - began_s < 0.1
            await lose(keeper)


@pytest.mark.spec("OWN-02")
@virtual
async def test_a_member_a_node_and_a_lock_share_one_lease_and_leave_it_to_the_others(
    store: TroubledStore,
) -> None:
    async with SessionKeeper(store, node="a") as keeper:
        session = await keeper.live()
        async with Lock(keeper, "dock"):
            async with (
                Members(store, NodeInfo(id="a"), session=keeper) as members,
                SpotNode(session=keeper) as node,
            ):
                spot = node.spot()
                for number in range(150):
                    await spot.create_topic(f"t{number}")
                assert members.me.lease == session.lease
                info = await store.lease_info(session.lease)
                assert info is not None
                assert {item.lease for item in (await store.scan("")).items} == {session.lease}
                store.counts.clear()
            await asyncio.sleep(0.1)
            # Topics are given up in batches of what a transaction may have, and the rest is there still.
            assert store.counts["commit"] < 10
            (left,) = await store.keys()
            assert left.startswith(Keys().lock("dock"))
            assert session.is_live


@virtual
async def test_a_process_that_is_replaced_loses_all_that_hung_on_its_session(store: TroubledStore) -> None:
    async with SessionKeeper(store, node="a") as keeper:
        hold = await Lock(keeper, "dock").acquire()
        async with Members(store, NodeInfo(id="a"), session=keeper) as former:
            events = former.events()
            async with Members(store, NodeInfo(id="a")):
                while not isinstance(await anext(events), Expelled):
                    pass
                await hold.lost()
                lost_s = store.now
                with pytest.raises(AlreadyClosed, match="replaced by a newer process"):
                    await keeper.live()
                while [key for key in await store.keys() if key.startswith(Keys().lock("dock"))]:
                    await asyncio.sleep(0.01)
                assert store.now - lost_s < 1.0


@virtual
async def test_who_deregisters_a_node_takes_nothing_but_its_record(store: TroubledStore) -> None:
    """What else hangs on its lease is ended by the node itself, when it hears of it."""
    async with Session(store, node="a") as session:
        hold = await Lock(session, "dock").acquire()
        await store.put(Keys().node("a"), NodeInfo(id="a").encode(), lease=session.lease)
        assert await NodeRegistry(store).deregister("a")
        assert await store.get(Keys().node("a")) is None
        assert hold.is_held
        await session.renew()
