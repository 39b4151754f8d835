"""Closing by several tasks at once, and what is left when it is done: nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.coordination.lock import Lock
from hansa.coordination.member import NodeInfo
from hansa.coordination.members import Members
from hansa.coordination.nodes import NodeRegistry
from hansa.coordination.session import Session
from hansa.limits import STORE_TIMEOUT_S
from hansa.transport.environment import Environment
from tests.support.virtual_store import TroubledStore, virtual

A = NodeInfo(id="a")


def closed_twice(make: Callable[[TroubledStore], Any]) -> None:
    """Close it twice while the store does not answer: nobody returns until it does, and then both."""

    async def live(store: TroubledStore) -> None:
        component = await make(store).__aenter__()
        store.pause()
        first = asyncio.create_task(component.__aexit__(None, None, None))
        await asyncio.sleep(0.5)
        second = asyncio.create_task(component.__aexit__(None, None, None))
        await asyncio.sleep(0.5)
        assert not first.done()
        assert not second.done()
        store.resume()
        await second
        assert first.done()
        await first

    virtual(live)()


def test_who_leaves_a_session_second_returns_when_the_lease_is_ended() -> None:
    closed_twice(Session)


def test_who_closes_members_second_returns_when_they_have_left() -> None:
    closed_twice(lambda store: Members(store, A, environment=Environment(chance=Chance.seeded(1))))


@virtual
async def test_who_releases_a_lock_second_returns_when_it_is_free(store: TroubledStore) -> None:
    async with Session(store) as session, Session(store) as other:
        hold = await Lock(session, "l").acquire()
        store.pause()
        first = asyncio.create_task(hold.release())
        await asyncio.sleep(0.5)
        second = asyncio.create_task(hold.release())
        await asyncio.sleep(0.5)
        assert not second.done()
        store.resume()
        assert not await second
        assert await first
        assert await Lock(other, "l").try_acquire() is not None


class LingeringStore(TroubledStore):
    """Its renewals take a while to be given up."""

    async def keep_alive(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> float:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(50):
                await asyncio.sleep(0)
        return 0.0


async def leave_session(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0):
        await asyncio.sleep(5.0)


async def leave_lost_session(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        await session.lost()


async def stop_registering(store: TroubledStore) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5.0):
            await NodeRegistry(store, environment=Environment(chance=Chance.seeded(1))).register(A)


async def leave_members(store: TroubledStore) -> None:
    async with Members(store, A, environment=Environment(chance=Chance.seeded(1))):
        await asyncio.sleep(5.0)


@pytest.mark.parametrize("live", [leave_session, leave_lost_session, stop_registering, leave_members])
def test_a_renewal_that_is_slow_to_be_given_up_is_waited_for(live: Callable[[TroubledStore], Any]) -> None:
    async def all_of_it(store: TroubledStore) -> None:
        store.__class__ = LingeringStore
        tasks = asyncio.all_tasks()
        await live(store)
        assert asyncio.all_tasks() == tasks

    virtual(all_of_it)()
