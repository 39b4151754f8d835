"""What is lost is told when it is lost: a farewell to a store that is away holds up nobody's error."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from hansa.chance import Chance
from hansa.coordination.barrier import Barrier
from hansa.coordination.election import Election
from hansa.coordination.lock import Lock, Semaphore
from hansa.coordination.member import Expelled, NodeInfo, NodeRecord
from hansa.coordination.members import Members
from hansa.coordination.session import Session, farewell_s
from hansa.errors import Fenced, LockLost, SessionLost, StoreUnavailable, TimedOut
from hansa.keys import Keys
from hansa.limits import FAREWELL_STORE_S_MAX, LOSS_FAREWELL_S_MAX
from hansa.transport.environment import Environment
from tests.support.virtual_store import TroubledStore, virtual

A = NodeInfo(id="a")
Body = Callable[[Session], AbstractAsyncContextManager[object]]


@asynccontextmanager
async def barred(session: Session) -> AsyncGenerator[None]:
    """A body that waits at a barrier to which nobody else comes."""
    await Barrier(session, "b", 2).wait()
    yield


@asynccontextmanager
async def watched(session: Session) -> AsyncGenerator[None]:
    """A body that raises the loss of the session itself."""
    raise await session.lost()
    yield


BODIES: dict[str, Body] = {
    "lock": lambda session: Lock(session, "l"),
    "semaphore": lambda session: Semaphore(session, "s", 2),
    "election": lambda session: Election(session, "e").campaign(),
    "barrier": barred,
    "session": watched,
}


@pytest.mark.spec("CRD-08", "CRD-11")
@pytest.mark.parametrize("body", BODIES)
def test_a_loss_leaves_all_blocks_at_the_deadline_of_its_session(body: str) -> None:
    async def live(store: TroubledStore) -> None:
        with pytest.raises(Fenced, match="could not renew"):
            async with Session(store, ttl=10.0) as session:
                asyncio.get_running_loop().call_later(5.0, store.pause)
                async with BODIES[body](session):
                    await asyncio.Event().wait()
        assert store.now == pytest.approx(session.deadline_s, abs=0.01)

    virtual(live)()


@pytest.mark.spec("CRD-08")
@pytest.mark.parametrize("is_grouped", [False, True])
def test_a_loss_that_passes_through_blocks_which_live_on_is_held_up_by_none(is_grouped: bool) -> None:
    """The members' lease and the outer session's have a long time left, and nobody to say farewell to."""

    async def lead(session: Session) -> None:
        async with Election(session, "e").campaign():
            await asyncio.Event().wait()

    async def live(store: TroubledStore) -> None:
        chance = Chance.seeded(1)
        with pytest.raises(Fenced if not is_grouped else ExceptionGroup) as caught:
            async with (
                Members(store, A, heartbeat_timeout=60.0, environment=Environment(chance=chance)),
                Session(store, ttl=60.0, renew_interval=1.0) as outer,
                Lock(outer, "l"),
                Session(store, ttl=10.0) as session,
            ):
                asyncio.get_running_loop().call_later(5.0, store.pause)
                if not is_grouped:
                    await lead(session)
                async with asyncio.TaskGroup() as group:
                    group.create_task(lead(session))
        assert not is_grouped or caught.group_contains(Fenced)
        assert store.now == pytest.approx(session.deadline_s, abs=0.01)

    virtual(live)()


@virtual
async def test_a_loss_waits_a_moment_for_a_store_that_is_there_to_hear_the_others(
    store: TroubledStore,
) -> None:
    async with Session(store) as other, Session(store) as taken:
        with pytest.raises(LockLost):
            async with Session(store) as kept, Lock(kept, "kept"), Lock(taken, "taken") as hold:
                await store.delete(hold.guard.key)
                await asyncio.Event().wait()
        # Its lease was not lost, and is given back with the lock on it: nobody waits for its end.
        assert await Lock(other, "kept").try_acquire() is not None


def test_how_long_a_farewell_may_take() -> None:
    assert farewell_s(None, failures_count=3) == FAREWELL_STORE_S_MAX
    assert farewell_s(KeyError(), failures_count=3) == FAREWELL_STORE_S_MAX
    assert farewell_s(asyncio.CancelledError(), failures_count=3) == FAREWELL_STORE_S_MAX
    assert farewell_s(SessionLost("s"), failures_count=0) == LOSS_FAREWELL_S_MAX
    assert farewell_s(SessionLost("s"), failures_count=1) == 0.0
    assert farewell_s(ExceptionGroup("g", [KeyError(), SessionLost("s")]), failures_count=1) == 0.0
    assert farewell_s(ExceptionGroup("g", [KeyError()]), failures_count=1) == FAREWELL_STORE_S_MAX


@virtual
async def test_a_lock_whose_key_is_in_doubt_is_told_to_be_lost_at_once(store: TroubledStore) -> None:
    """The request that made the key may come again: the key is deleted once more, after the loss is told."""
    async with Session(store, ttl=60.0) as session:
        store.lost_answers_count = 1
        with pytest.raises(LockLost, match="somebody deleted"):
            async with Lock(session, "l") as hold:
                await store.delete(hold.guard.key)
                try:
                    await asyncio.Event().wait()
                finally:
                    store.pause()
                    lost_s = store.now
        assert store.now == pytest.approx(lost_s, abs=0.01)
        store.resume()


@virtual
async def test_members_that_cannot_enter_say_so_by_the_deadline(store: TroubledStore) -> None:
    """Also when there is a lease already, which nobody would answer the end of."""
    grant = store.grant

    async def last_answer(ttl: float, *, timeout: float | None = None) -> int:
        lease = await grant(ttl, timeout=timeout)
        store.pause()
        return lease

    store.grant = last_answer  # type: ignore[method-assign]
    began_s = store.now
    with pytest.raises((StoreUnavailable, TimedOut)):
        async with Members(store, A, timeout=3.0, environment=Environment(chance=Chance.seeded(1))):
            raise AssertionError("nobody entered")
    assert store.now - began_s == pytest.approx(3.0, abs=0.01)


@virtual
async def test_a_member_that_was_replaced_is_told_so_before_its_lease_is_ended(store: TroubledStore) -> None:
    revoke = store.revoke

    async def unanswered(lease: int, *, timeout: float | None = None) -> None:
        store.pause()
        await revoke(lease, timeout=timeout)

    store.revoke = unanswered  # type: ignore[method-assign]
    async with Members(store, A, environment=Environment(chance=Chance.seeded(1))) as members:
        events = members.events()
        await store.put(Keys().node("a"), NodeRecord(info=A, incarnation=10**9).encode())
        replaced_s = store.now
        while not isinstance(await anext(events), Expelled):
            pass
        assert store.now == replaced_s
        assert not members.is_member
        store.resume()
