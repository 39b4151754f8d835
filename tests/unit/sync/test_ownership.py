"""The blocks of what a thread owns."""

import asyncio
from time import monotonic

import pytest

from hansa import sync
from hansa.errors import LockLost
from hansa.limits import FAREWELL_STORE_S_MAX
from hansa.sync.ownership import Ownership


def test_a_loss_of_another_owner_is_not_held_up_by_a_store_that_does_not_answer() -> None:
    ends: list[str] = []

    async def give_back() -> bool:
        try:
            return await asyncio.Event().wait()
        finally:
            ends.append("given up")

    with sync.open_store("memory://farewell") as store, sync.Session(store) as session:
        begun_at = monotonic()
        with pytest.raises(LockLost, match="of another"), Ownership(session, lambda: None, give_back):
            raise LockLost("the lock of another session")
        assert monotonic() - begun_at < FAREWELL_STORE_S_MAX
    assert ends == ["given up"]


def test_what_was_lost_is_given_back_and_told_when_the_block_is_left() -> None:
    given_back: list[bool] = []
    checks = iter([None, LockLost("nightly is lost")])

    def check() -> None:
        if (loss := next(checks)) is not None:
            raise loss

    async def give_back() -> bool:
        given_back.append(True)
        return False

    with sync.open_store("memory://loss") as store, sync.Session(store) as session:
        with pytest.raises(LockLost, match="nightly"), Ownership(session, check, give_back):
            assert given_back == []
        assert given_back == [True]
