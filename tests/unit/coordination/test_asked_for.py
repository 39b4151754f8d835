"""Handing over what was asked for from outside: that very hand-over, and no other one when it is over."""

import pytest

from hansa.coordination import Election, Handovers, HandoverStep, Leadership, Session
from hansa.errors import HandoverWithdrawn
from hansa.store.memory import MemoryStore
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


async def _when_it_waits(store: TroubledStore, leadership: Leadership) -> int:
    """Ask for it as soon as the other one stands in the line."""
    while len(await store.keys("/hansa/default/leader/")) < 2:
        pass
    return await asked_for(store, leadership, "host-2")
