"""One node's stay: what it puts, again and again, and when it stops to."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.coordination.member import MemberStatus, NodeInfo, NodeRecord
from hansa.coordination.session import SessionKeeper
from hansa.coordination.stay import Stay
from hansa.errors import Conflict, StoreUnavailable, TimedOut
from hansa.keys import Keys
from hansa.store.values import Put
from hansa.transport.environment import Environment
from tests.support.virtual_store import TroubledStore, virtual

KEY = Keys().node("a")
TTL_S = 10.0


@dataclass
class Staying:
    """A stay that runs, and what it told."""

    store: TroubledStore
    reasons: list[str] = field(default_factory=list)
    were_live: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keeper = SessionKeeper(
            self.store, ttl=TTL_S, renew_interval=1.0, environment=Environment(chance=Chance.seeded(1))
        )
        self.stay = Stay(self.keeper, NodeInfo(id="a"), takeover=True, on_joined=self._joined)
        self.running = asyncio.ensure_future(self._run())

    async def _run(self) -> str:
        await self.keeper.__aenter__()
        return await self.stay.run()

    def _joined(self, reason: str) -> None:
        self.reasons.append(reason)
        self.were_live.append(self.stay.session is not None and self.stay.session.is_live)

    async def joined(self, count: int) -> float:
        """Wait until it has joined so often; gives how long that took."""
        began_s = self.store.now
        async with asyncio.timeout(60):
            while len(self.reasons) < count:
                await asyncio.sleep(0.01)
        return self.store.now - began_s

    async def told_gone(self) -> None:
        """As its watch does, when somebody deletes the record."""
        await self.store.delete(KEY)
        await self.heard()

    async def heard(self) -> None:
        """As whoever follows the records tells it after each of their changes."""
        scan = await self.store.scan(KEY, b"")
        self.stay.hear(scan.items[0] if scan.items else None, revision=scan.revision)

    async def end(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])
        await self.keeper.abandon()


def staying(scene: Callable[[Staying], Awaitable[None]]) -> Callable[[], None]:
    """The scene in virtual time, with a stay that has joined."""

    async def live(store: TroubledStore) -> None:
        stay = Staying(store)
        await stay.joined(1)
        await scene(stay)
        await stay.end()

    live.__name__, live.__module__ = scene.__name__, scene.__module__
    return virtual(live)


def before_commit(store: TroubledStore, act: Callable[[], Awaitable[None]]) -> None:
    """Do this once, right before the next commit."""
    commit, acts = store.commit, [act]

    async def acting(*arguments: Any, **settings: Any) -> Any:
        while acts:
            await acts.pop()()
        return await commit(*arguments, **settings)

    store.commit = acting  # type: ignore[method-assign]


@staying
async def test_the_pauses_begin_anew_after_it_has_joined(staying: Staying) -> None:
    store = staying.store
    await staying.told_gone()
    store.lost_requests_count = 8
    assert await staying.joined(2) > 2.0
    await staying.told_gone()
    store.lost_requests_count = 1
    assert await staying.joined(3) < 0.2


@staying
async def test_news_that_are_older_than_its_new_record_do_not_make_it_join_twice(staying: Staying) -> None:
    """Its watch tells of the deletion a second time, after it has looked and before it has written."""

    async def hear_again() -> None:
        await staying.heard()

    await staying.told_gone()
    before_commit(staying.store, hear_again)
    await staying.joined(2)
    await asyncio.sleep(5.0)
    assert len(staying.reasons) == 2
    found = await staying.store.get(KEY)
    assert found is not None
    assert found.version == 1


@staying
async def test_a_lease_that_is_gone_is_not_tried_again(staying: Staying) -> None:
    """The record went with it, and the stay hears of the record first."""
    session = staying.stay.session
    assert session is not None
    await staying.store.revoke(session.lease)
    await staying.heard()
    assert await staying.joined(2) < 1.0
    assert staying.stay.session is not session
    assert staying.were_live == [True, True]


@staying
async def test_its_own_record_on_a_lease_that_it_lost_is_no_rival(staying: Staying) -> None:
    """The store has put it and the answer is lost; then the session is, before the stay looks again."""
    store, commit = staying.store, staying.store.commit

    async def unanswered(*given: Any, **more: Any) -> Any:
        store.commit = commit  # type: ignore[method-assign]
        await commit(*given, **more)
        assert staying.stay.session is not None
        staying.stay.session.end_lost("nobody renews it")
        raise TimedOut("no answer")

    await staying.told_gone()
    store.commit = unanswered  # type: ignore[method-assign]
    await staying.joined(2)
    assert not staying.running.done()
    found = await store.get(KEY)
    assert found is not None
    # Over that one, with an incarnation of its own.
    assert (found.version, found.lease) == (2, staying.stay.session and staying.stay.session.lease)
    assert found.create_revision <= NodeRecord.decode(found.value).incarnation == staying.stay.incarnation


@staying
async def test_each_session_has_an_incarnation_of_its_own_and_keeps_it(staying: Staying) -> None:
    """Its record stands all the time, on one lease after the other."""
    seen = [staying.stay.incarnation]
    for count in (2, 3):
        session = staying.stay.session
        assert session is not None
        session.end_lost("for the test")
        await staying.joined(count)
        seen.append(staying.stay.incarnation)
        await staying.stay.write(lambda info: replace(info, zone=f"{info.zone}+"), reason="moved")
        assert staying.stay.incarnation == seen[-1]
    assert seen == sorted(set(seen))
    found = await staying.store.get(KEY)
    assert found is not None
    assert (found.version, NodeRecord.decode(found.value).incarnation) == (5, seen[-1])
    assert staying.reasons[1].startswith("joined again: ")


@staying
async def test_it_joins_with_no_session_that_was_lost_meanwhile(staying: Staying) -> None:
    """Somebody else was faster, and the process was stopped before it looked again."""
    other = NodeRecord(info=NodeInfo(id="a")).encode()

    async def be_beaten() -> None:
        await staying.store.put(KEY, other)
        staying.store.process_stops(9.5)

    await staying.told_gone()
    before_commit(staying.store, be_beaten)
    await staying.joined(2)
    assert staying.were_live == [True, True]


@staying
async def test_who_is_beaten_again_and_again_tries_with_pauses(staying: Staying) -> None:
    store, commit, beaten_count = staying.store, staying.store.commit, 6

    async def beaten(*arguments: Any, **settings: Any) -> Any:
        nonlocal beaten_count
        if beaten_count:
            beaten_count -= 1
            await commit((), [Put(KEY, NodeRecord(info=NodeInfo(id="a")).encode())])
        return await commit(*arguments, **settings)

    await staying.told_gone()
    store.commit = beaten  # type: ignore[method-assign]
    assert await staying.joined(2) > 1.0


@staying
async def test_who_is_replaced_while_it_is_away_is_not_told_that_it_has_joined(staying: Staying) -> None:
    newer = NodeRecord(info=NodeInfo(id="a"), incarnation=10**9).encode()
    session = staying.stay.session
    assert session is not None
    await staying.store.put(KEY, newer)
    session.end_lost("for the test")
    assert "replaced by a newer process" in await staying.running
    assert len(staying.reasons) == 1


@staying
async def test_a_word_is_not_waited_for_beyond_the_session(staying: Staying) -> None:
    """Whoever joins again must not wait for a write of the session that was lost."""
    session = staying.stay.session
    assert session is not None
    staying.store.pause()
    await asyncio.sleep(session.remaining_s - 0.5)
    with pytest.raises((StoreUnavailable, TimedOut, Conflict)):
        await staying.stay.write(
            lambda info: NodeInfo(id="a", status=MemberStatus.DRAINING), reason="draining"
        )
    assert staying.store.now == pytest.approx(session.deadline_s, abs=0.01)
    staying.store.resume()


@staying
async def test_what_a_store_forgot_that_went_back_is_said_again(staying: Staying) -> None:
    """An older copy was put back: the record is there, on the same lease, as it was before the last word."""
    before = await staying.store.get(KEY)
    await staying.stay.write(lambda info: replace(info, zone="east"), reason="moved")
    assert before is not None
    later = (await staying.store.status()).revision + 5
    staying.stay.hear(before, revision=later)
    assert not staying.stay.is_joined
    await staying.joined(2)
    assert staying.stay.is_joined
    found = await staying.store.get(KEY)
    assert found is not None
    assert NodeRecord.decode(found.value).info.zone == "east"
    assert "went back" in staying.reasons[1]


@staying
async def test_an_older_record_that_was_read_before_the_last_word_is_no_news(staying: Staying) -> None:
    before = await staying.store.get(KEY)
    assert before is not None
    await staying.stay.write(lambda info: replace(info, zone="east"), reason="moved")
    staying.stay.hear(before, revision=before.mod_revision)
    await asyncio.sleep(5.0)
    assert staying.reasons == ["joined"]


@staying
async def test_a_read_of_its_own_record_does_not_end_the_doubt_about_a_write(staying: Staying) -> None:
    """The write is under way: what was read is older, and says nothing of it."""
    before = await staying.store.get(KEY)
    assert before is not None
    staying.stay._is_in_doubt = True
    await staying.store.put("something else", b"")
    await staying.heard()
    await staying.stay.write(lambda info: info, reason="again")
    found = await staying.store.get(KEY)
    assert found is not None
    assert found.mod_revision > before.mod_revision


@staying
async def test_who_has_a_lease_and_no_record_yet_is_not_joined(staying: Staying) -> None:
    seen: list[bool] = []

    async def look() -> None:
        seen.append(staying.stay.is_joined)

    session = staying.stay.session
    assert session is not None
    await staying.store.revoke(session.lease)
    session.end_lost("revoked")
    before_commit(staying.store, look)
    await staying.joined(2)
    assert (seen, staying.stay.is_joined) == ([False], True)
