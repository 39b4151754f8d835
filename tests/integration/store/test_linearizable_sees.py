"""The check of the check: real clients of a store, or of a lock, that does one thing wrong are found out."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.coordination import claim, line
from hansa.errors import StoreUnavailable
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.memory import MemoryStore
from hansa.store.values import Compare, KeyValue, Operation, Outcome
from hansa.testing import Judgement, LockModel, RegisterModel, check_linearizability
from tests.support.store_history import KEYS, LOCKS, Clients

WRONG_EVERY = 5


class WrongStore(MemoryStore):
    """Does one thing wrong, now and then."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self._wrong = wrong
        self._chances_count = 0
        self._old: dict[bytes | str, KeyValue | None] = {}

    async def get(
        self, key: bytes | str, *, revision: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> KeyValue | None:
        found = await super().get(key, revision=revision, timeout=timeout)
        old = self._old.setdefault(key, found)
        return old if self._is_due("a read is stale") else found

    async def put(
        self, key: bytes | str, value: bytes, *, lease: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> int:
        if self._is_due("a write is lost"):
            return (await self.status()).revision
        revision = await super().put(key, value, lease=lease, timeout=timeout)
        if self._is_due("a refused write is there"):
            raise StoreUnavailable("no")
        return revision

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        if self._is_due("a comparison is left out"):
            compares = ()
        return await super().commit(compares, then, otherwise, timeout=timeout)

    def _is_due(self, wrong: str) -> bool:
        self._chances_count += wrong == self._wrong
        return wrong == self._wrong and self._chances_count % WRONG_EVERY == 0


async def judged(store: MemoryStore, **counts: int) -> Judgement:
    """What is found of clients of both kinds."""
    async with store:
        async with Clients(store, "here", Chance.seeded(7), **counts) as clients:
            await clients.progress(200)
        calls = clients.calls
    verdicts = [
        check_linearizability([call for call in calls if call.key in KEYS], RegisterModel()),
        check_linearizability([call for call in calls if call.key in LOCKS], LockModel()),
    ]
    for verdict in verdicts:
        if not verdict.is_linearizable:
            return verdict.judgement
    return Judgement.LINEARIZABLE


async def test_a_store_that_does_nothing_wrong_passes() -> None:
    assert await judged(WrongStore("nothing"), registers_count=4, locks_count=4) is Judgement.LINEARIZABLE


@pytest.mark.parametrize(
    "wrong",
    ["a read is stale", "a write is lost", "a refused write is there", "a comparison is left out"],
)
async def test_a_store_that_does_something_wrong_is_found_out(wrong: str) -> None:
    assert await judged(WrongStore(wrong), registers_count=4, locks_count=0) is Judgement.VIOLATED


async def test_a_lock_that_does_not_wait_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(*arguments: Any, **settings: Any) -> Any:
        place = line.place_of(*arguments, **settings)
        return None if place is None else dataclasses.replace(place, is_turn=True)

    monkeypatch.setattr(claim, "place_of", hasty)
    assert await judged(MemoryStore(), registers_count=0, locks_count=4) is Judgement.VIOLATED
