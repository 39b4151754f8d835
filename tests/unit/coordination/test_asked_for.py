"""Asking for a hand-over, and giving what was asked for: that very hand-over, and no other one."""

import asyncio
from typing import Any, cast

import pytest

from hansa.coordination import Election, Handovers, HandoverStep, Leadership, Session
from hansa.errors import HandoverWithdrawn, TimedOut
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.memory import MemoryStore
from hansa.store.store import Store
from hansa.store.values import Outcome
from tests.support.virtual_store import TroubledStore, virtual


async def asked_for(store: MemoryStore, leadership: Leadership, to: str) -> int:
    """Ask for it, and wait until the leader knows; gives the number of the hand-over."""
    offered = await Handovers(store).offer("leader", "harbour", to)
    assert (await leadership.wanted()).number == offered.number
    return offered.number


async def stopped() -> bytes:
    raise AssertionError("the new owner is not there: nothing is to be stopped")


@virtual
async def test_what_was_taken_back_is_not_handed_over(store: TroubledStore) -> None:
    """Whoever asked was told that it stays: a leader that hears of it late begins no other hand-over."""
    async with Session(store, node="host-1") as one, Session(store, node="host-2") as two:
        leadership = await Election(one, "harbour").win()
        waiting = one.spawn(_win(two), "waits")
        number = await _when_it_waits(store, leadership)
        asked = await leadership.wanted()
        await Handovers(store).withdraw("leader", "harbour", reason="never mind")
        with pytest.raises(HandoverWithdrawn, match="never mind") as caught:
            await leadership.hand_over(asked, state=stopped)
        assert caught.value.reason == "never mind"
        assert leadership.is_leading
        found = await Handovers(store).get("leader", "harbour")
        assert found is not None
        assert (found.number, found.step) == (number, HandoverStep.WITHDRAWN)
        waiting.cancel()


@virtual
async def test_another_one_that_was_asked_for_since_is_left_alone(store: TroubledStore) -> None:
    async with Session(store, node="host-1") as one, Session(store, node="host-2") as two:
        leadership = await Election(one, "harbour").win()
        waiting = one.spawn(_win(two), "waits")
        await _when_it_waits(store, leadership)
        asked = await leadership.wanted()
        await Handovers(store).withdraw("leader", "harbour")
        again = await asked_for(store, leadership, "host-2")
        with pytest.raises(HandoverWithdrawn, match="is over"):
            await leadership.hand_over(asked, state=stopped)
        record = await leadership.hand_over(await leadership.wanted())
        assert (record.number, record.target) == (again, "host-2")
        await waiting


async def _win(session: Session) -> None:
    await Election(session, "harbour").win()


async def _until_it_waits(store: TroubledStore) -> None:
    """Until the other one stands in the line."""
    async with asyncio.timeout(10.0):
        while len(await store.keys("/hansa/default/leader/")) < 2:
            await asyncio.sleep(0.01)


async def _when_it_waits(store: TroubledStore, leadership: Leadership) -> int:
    await _until_it_waits(store)
    return await asked_for(store, leadership, "host-2")


class LateRequests:
    """A way to a store on which each change is under way for some seconds, whoever gives it up meanwhile."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.came_count = 0
        self._has_sent = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, compares: Any, then: Any = (), **options: Any) -> Outcome:
        if not compares or self._has_sent:
            if self._has_sent and not compares:
                await asyncio.sleep(1.0)
            return await self._store.commit(compares, then, **options)
        self._has_sent = True

        async def come() -> None:
            await asyncio.sleep(5.0)
            await self._store.commit(compares, then, **options)
            self.came_count += 1

        self._coming = asyncio.ensure_future(come())
        await asyncio.sleep(1.0)
        raise TimedOut("the answer was lost")


class LateAnswers:
    """A way to a store on which the answer to each change is under way for a second, and then is lost."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, compares: Any, then: Any = (), **options: Any) -> Outcome:
        outcome = await self._store.commit(compares, then, **options)
        if compares:
            await asyncio.sleep(1.0)
            raise TimedOut("the answer was lost")
        return outcome


@virtual
async def test_a_lost_answer_is_found_though_the_new_owner_was_quicker(store: TroubledStore) -> None:
    """It is prepared when whoever asked looks for it, and is not somebody else's for that."""
    async with Session(store, node="host-1") as one, Session(store, node="host-2") as two:
        leadership = await Election(one, "harbour").win()
        waiting = one.spawn(_win(two), "waits")
        await _until_it_waits(store)
        far = cast(Store, LateAnswers(store))
        record = await Handovers(far).offer("leader", "harbour", "host-2")
        assert (record.number, record.step) == (1, HandoverStep.PREPARED)
        await leadership.hand_over(record)
        await waiting


@virtual
async def test_whoever_gives_up_before_the_answer_came_takes_it_back_too(store: TroubledStore) -> None:
    async with Session(store, node="host-1") as one, Session(store, node="host-2") as two:
        await Election(one, "harbour").win()
        waiting = one.spawn(_win(two), "waits")
        await _until_it_waits(store)
        far = cast(Store, LateAnswers(store))
        asking = asyncio.ensure_future(Handovers(far, name="ops").move("leader", "harbour", "host-2"))
        await asyncio.sleep(0.5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        found = await Handovers(store).get("leader", "harbour")
        assert found is not None
        assert (found.step, found.trouble) == (HandoverStep.WITHDRAWN, "ops took it back")
        waiting.cancel()


@pytest.mark.parametrize("given_up_s", [0.5, 1.5])
def test_a_request_that_was_given_up_on_its_way_is_offered_no_more(given_up_s: float) -> None:
    async def live(store: TroubledStore) -> None:
        async with Session(store, node="host-1") as one, Session(store, node="host-2") as two:
            await Election(one, "harbour").win()
            waiting = one.spawn(_win(two), "waits")
            await _until_it_waits(store)
            far = LateRequests(store)
            handovers = Handovers(cast(Store, far), name="ops")
            asking = asyncio.ensure_future(handovers.move("leader", "harbour", "host-2"))
            await asyncio.sleep(given_up_s)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            # Now it comes, and finds nothing that it may be written over.
            await asyncio.sleep(10.0)
            assert far.came_count == 1
            found = await Handovers(store).get("leader", "harbour")
            assert found is not None
            assert (found.number, found.step, found.trouble) == (
                1,
                HandoverStep.WITHDRAWN,
                "ops took it back",
            )
            waiting.cancel()

    virtual(live)()


@virtual
async def test_whoever_gives_up_asks_a_store_that_is_away_once_more(store: TroubledStore) -> None:
    async with Session(store, node="host-1") as one, Session(store, node="host-2") as two:
        await Election(one, "harbour").win()
        waiting = one.spawn(_win(two), "waits")
        await _until_it_waits(store)
        asking = asyncio.ensure_future(Handovers(store, name="ops").move("leader", "harbour", "host-2"))
        await asyncio.sleep(0.5)
        store.lost_requests_count = 3
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        found = await Handovers(store).get("leader", "harbour")
        assert found is not None
        assert (found.step, found.trouble) == (HandoverStep.WITHDRAWN, "ops took it back")
        # For a bounded time; then it ends by its deadline.
        asking = asyncio.ensure_future(Handovers(store, name="ops").move("leader", "harbour", "host-2"))
        await asyncio.sleep(0.5)
        store.lost_requests_count = 1_000
        began_s = store.now
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        assert store.now - began_s == pytest.approx(STORE_TIMEOUT_S, abs=0.1)
        store.lost_requests_count = 0
        waiting.cancel()


@virtual
async def test_whoever_gives_up_leaves_what_another_one_asked_for_since(store: TroubledStore) -> None:
    async with Session(store, node="host-1") as one, Session(store, node="host-2") as two:
        await Election(one, "harbour").win()
        waiting = one.spawn(_win(two), "waits")
        await _until_it_waits(store)
        far = cast(Store, LateAnswers(store))
        asking = asyncio.ensure_future(Handovers(far).move("leader", "harbour", "host-2"))
        await asyncio.sleep(0.5)
        # Both before it hears of them.
        await Handovers(store).withdraw("leader", "harbour")
        again = await Handovers(store).offer("leader", "harbour", "host-2")
        asking.cancel()
        await asyncio.wait([asking])
        found = await Handovers(store).get("leader", "harbour")
        assert found is not None
        assert (found.number, found.is_open) == (again.number, True)
        waiting.cancel()
