"""Claims: what they cost, what they say, and who makes leased keys."""

import ast
import asyncio
from pathlib import Path

import pytest

from hansa.coordination.barrier import Barrier
from hansa.coordination.election import Election
from hansa.coordination.handovers import Handovers
from hansa.coordination.line import KeyNumbers, Signed, decode_signed
from hansa.coordination.lock import Lock, Semaphore
from hansa.coordination.placed import PlacedClaim, PlacedClaims, Placement
from hansa.coordination.session import Session, SessionKeeper
from hansa.errors import BadRecord, Fenced, NotHeld, TimedOut, UsageError
from hansa.keys import Keys
from hansa.limits import GUARD_DELAY_S, SESSION_FREE_LINES_COUNT_MAX
from hansa.store.values import Delete, Put
from tests.support.virtual_store import TroubledStore, virtual

SOURCE = Path(__file__).resolve().parents[3] / "src" / "hansa"
# Who may hang a key on a lease.
LEASING = {
    "coordination/claim.py",
    "coordination/lookout.py",
    "coordination/stay.py",
}


# ---- what an uncontended lock costs


@pytest.mark.spec("OWN-01")
@virtual
async def test_a_lock_that_is_held_for_a_moment_costs_two_transactions_and_nothing_else(
    store: TroubledStore,
) -> None:
    async with Session(store) as session:
        lock, tasks = Lock(session, "dock"), asyncio.all_tasks()
        store.counts.clear()
        for _ in range(100):
            hold = await lock.acquire()
            assert asyncio.all_tasks() == tasks
            await hold.release()
        assert store.counts == {"commit": 200}
        await asyncio.sleep(1.0)
        assert store.counts == {"commit": 200}


@virtual
async def test_a_key_that_is_held_for_longer_is_watched_from_its_own_revision_on(
    store: TroubledStore,
) -> None:
    async with Session(store) as session:
        hold = await Lock(session, "dock").acquire()
        store.counts.clear()
        # Before anybody looks after it.
        await store.delete(hold.guard.key)
        assert store.counts["watch exact"] == 0
        began_s = store.now
        await hold.lost()
        assert store.now - began_s == pytest.approx(GUARD_DELAY_S, abs=0.01)
        assert store.counts["watch exact"] == 1


# ---- when the name of a key comes again


@virtual
async def test_names_of_keys_come_again_so_that_a_store_has_few_deleted_ones_to_walk(
    store: TroubledStore,
) -> None:
    async with Session(store) as session:
        lock = Lock(session, "dock")
        berth, other_berth = (Semaphore(session, "berths", 2) for _ in range(2))
        names, fences = set(), []
        for _ in range(10):
            async with lock as hold, berth as first, other_berth as second:
                names |= {hold.guard.key, first.guard.key, second.guard.key}
                fences.append(hold.fence)
        assert len(names) == 3
        assert fences == sorted(set(fences))


@virtual
async def test_a_name_of_which_a_request_may_be_under_way_does_not_come_again(store: TroubledStore) -> None:
    async with Session(store) as session:
        lock = Lock(session, "dock")
        hold = await lock.acquire()
        doubtful = hold.guard.key
        await hold.release()
        # The same name, and the put has no answer: it may be carried out much later.
        store.lost_answers_count = 1
        hold = await lock.acquire()
        assert hold.guard.key == doubtful
        await hold.release()
        for _ in range(3):
            async with lock as hold:
                assert hold.guard.key != doubtful


@virtual
async def test_a_late_deletion_does_not_take_the_next_key_of_that_name(store: TroubledStore) -> None:
    async with Session(store) as session:
        lock = Lock(session, "dock")
        hold = await lock.acquire()
        old = hold.guard
        await hold.release()
        async with lock as hold:
            assert hold.guard.key == old.key
            # A first try to give it back, of which nothing was heard, comes only now.
            assert not (await store.commit([old], then=[Delete(old.key)])).is_success
            assert await store.keys() == [old.key]


@virtual
async def test_a_name_that_a_hand_over_has_named_does_not_come_again(store: TroubledStore) -> None:
    async with Session(store, node="cog") as first, Session(store, node="hulk") as second:
        given = await Lock(first, "dock").acquire()
        waiting = asyncio.ensure_future(Lock(second, "dock").acquire())
        await asyncio.sleep(0.5)
        await given.hand_over("hulk")
        taken = await waiting
        await taken.release()
        named = {given.guard.key, taken.guard.key}
        for session in (first, second):
            async with Lock(session, "dock") as hold:
                assert hold.guard.key not in named


@virtual
async def test_what_was_asked_of_an_owner_is_not_asked_of_the_next_one_with_that_name(
    store: TroubledStore,
) -> None:
    async with Session(store, node="cog") as first, Session(store, node="hulk") as second:
        lock, other = Lock(first, "dock"), Lock(second, "dock")
        hold = await lock.acquire()
        key = hold.guard.key
        waiting = asyncio.ensure_future(other.acquire())
        await asyncio.sleep(0.5)
        await Handovers(store).offer("lock", "dock", "hulk", timeout=60.0)
        waiting.cancel()
        await hold.release()
        hold = await lock.acquire()
        assert hold.guard.key == key
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await hold.wanted()
        # It is open still, and says nothing of this owner: another one takes its place.
        waiting = asyncio.ensure_future(other.acquire())
        await asyncio.sleep(0.5)
        assert (await Handovers(store).offer("lock", "dock", "hulk")).number == 2
        assert (await hold.wanted()).number == 2
        waiting.cancel()


def test_a_session_remembers_the_free_names_of_so_many_lines() -> None:
    numbers = KeyNumbers()
    for line in range(SESSION_FREE_LINES_COUNT_MAX + 1):
        numbers.give_back(b"%d/" % line, numbers.take(b"%d/" % line))
    assert numbers.take(b"0/") == SESSION_FREE_LINES_COUNT_MAX + 2
    assert numbers.take(b"1/") == 2
    assert numbers.take(b"1/") == SESSION_FREE_LINES_COUNT_MAX + 3


# ---- what a record says


@pytest.mark.spec("CRD-16")
@virtual
async def test_records_name_the_node_and_since_when(store: TroubledStore) -> None:
    async with Session(store, node="cog") as first, Session(store, node="hulk") as second:
        note = b'{"node": "no", "since": 1}\n\0\xff'
        since = store.clock.wall()
        async with (
            Lock(first, "dock", note=note),
            Semaphore(first, "berths", 2, note=note),
            Election(first, "harbour", value=note).campaign(),
        ):
            waiting = [
                asyncio.ensure_future(Lock(second, "dock").acquire()),
                asyncio.ensure_future(Barrier(second, "gate", 2).wait()),
            ]
            await asyncio.sleep(5.0)
            holder = await Lock(second, "dock").holder()
            assert holder is not None
            assert (holder.node, holder.since, holder.note) == ("cog", since, note)
            (waiter,) = await Lock(second, "dock").waiting()
            assert (waiter.node, waiter.note) == ("hulk", b"")
            (place,) = await Semaphore(second, "berths", 2).holders()
            assert (place.node, place.since, place.note) == ("cog", since, note)
            leader = await Election(second, "harbour").leader()
            assert leader is not None
            assert (leader.node, leader.since, leader.value) == ("cog", since, note)
            (party,) = (await store.scan(Keys().barrier("gate"))).items
            assert decode_signed(party.value).node == "hulk"
            for each in waiting:
                each.cancel()


@virtual
async def test_records_of_older_processes_are_read(store: TroubledStore) -> None:
    async with Session(store) as session:
        await store.put(Keys().lock("dock") + b"1-1", b"an old note", lease=session.lease)
        await store.put(Keys().semaphore("berths") + b"1-1", b"2 waiting\na note", lease=session.lease)
        await store.put(Keys().leader("harbour") + b"1-1", b"{not json\n", lease=session.lease)
        holder = await Lock(session, "dock").holder()
        assert holder is not None
        assert (holder.node, holder.since, holder.note) == ("", 0.0, b"an old note")
        (place,) = await Semaphore(session, "berths", 2).holders()
        assert place.note == b"a note"
        async with Semaphore(session, "berths", 2):
            pass
        leader = await Election(session, "harbour").leader()
        assert leader is not None
        assert leader.value == b"{not json\n"


@pytest.mark.parametrize("body", [b"", b"\n", b"a\nb\0\xff", Signed(node="x", body=b"y").encode()])
@pytest.mark.parametrize("node", ["", "a", "a\n\x22 \u20ac"])
def test_what_is_signed_comes_back_as_it_was(node: str, body: bytes) -> None:
    signed = Signed(node=node, since=1_700_000_000.25, body=body)
    assert decode_signed(signed.encode()) == signed


@pytest.mark.parametrize(
    "value", [b"", b"x", b'{"node": 1, "since": 2}\n', b'{"node": "a"}\n', b'{"node": "a", "since": 1}']
)
def test_what_nobody_signed_is_all_body(value: bytes) -> None:
    assert decode_signed(value) == Signed(body=value)


# ---- who would wait for itself


@virtual
async def test_a_task_that_would_wait_for_itself_is_told_so(store: TroubledStore) -> None:
    async with Session(store) as session:
        async with Lock(session, "dock"):
            with pytest.raises(UsageError, match="lock 'dock': this task is inside already"):
                async with Lock(session, "dock"):
                    pass
            with pytest.raises(UsageError, match="might wait for itself"):
                await Lock(session, "dock").acquire()
            # Who has a limit to its patience waits, and who asks for another lock has it.
            with pytest.raises(TimedOut):
                await Lock(session, "dock").acquire(timeout=0.1)
            async with Lock(session, "other"):
                pass
        async with Election(session, "harbour").campaign():
            with pytest.raises(UsageError, match="leadership of 'harbour'"):
                await Election(session, "harbour").win()
        async with Lock(session, "dock"):
            pass
        assert not session.inside


@virtual
async def test_a_task_may_have_as_many_places_as_there_are(store: TroubledStore) -> None:
    async with Session(store) as session:
        async with Semaphore(session, "berths", 2), Semaphore(session, "berths", 2):
            with pytest.raises(UsageError, match="semaphore 'berths'"):
                async with Semaphore(session, "berths", 2):
                    pass
            other = asyncio.ensure_future(Semaphore(session, "berths", 2).acquire())
            await asyncio.sleep(1.0)
            assert not other.done()
        await (await other).release()


# ---- what a leader places


@virtual
async def test_a_placed_claim_is_owned_until_its_entry_or_its_session_is_another_one(
    store: TroubledStore,
) -> None:
    own: list[PlacedClaim] = []
    async with SessionKeeper(store, node="a") as keeper:
        session = await keeper.live()
        await store.put(Keys().node("a"), b"its record", lease=session.lease)
        claims = PlacedClaims(keeper, "a", b"e/", on_claim=own.append)
        running = asyncio.ensure_future(claims.run())

        async def place(lease: int, epoch: int, *, node: str = "a", body: bytes = b"") -> None:
            await store.put("e/x", Placement(node=node, lease=lease, epoch=epoch, body=body).encode())
            await asyncio.sleep(0.1)

        await place(session.lease + 1, 1)
        await place(session.lease, 2, node="b")
        await store.put("e/y", b"no entry")
        await asyncio.sleep(0.1)
        assert (own, claims.bad_records_count) == ([], 1)
        await place(session.lease, 3)
        (claim,) = own
        assert (claim.epoch, claim.is_standing, dict(claims.claims)) == (3, True, {b"e/x": claim})
        assert (await store.commit(claim.guards, [Put("k", b"1")])).is_success
        # Written again for the same owner: its guards go along.
        await place(session.lease, 3, body=b"more")
        assert (own, claim.placement.body) == ([claim], b"more")
        assert (await store.commit(claim.guards, [Put("k", b"2")])).is_success
        with pytest.raises(Fenced, match="placed on 'b' in epoch 4"):
            async with claim:
                await place(session.lease, 4, node="b")
        assert not (await store.commit(claim.guards, [Put("k", b"3")])).is_success
        await place(session.lease, 5)
        last = own[-1]
        # The record is another process's.
        await store.put(Keys().node("a"), b"its record")
        assert last.is_standing
        assert not (await store.commit(last.guards, [Put("k", b"4")])).is_success
        session.end_lost("for the test")
        with pytest.raises(Fenced, match="for the test"):
            last.check()
        assert not claims.claims
        await place((await keeper.live()).lease, 6)
        assert own[-1].is_standing
        assert await own[-1].release()
        with pytest.raises(NotHeld):
            own[-1].check()
        await store.delete("e/x")
        await asyncio.sleep(0.1)
        running.cancel()


@pytest.mark.parametrize("value", [b"", b"[]", b'{"node": 1, "lease": 2, "epoch": 3}', b'{"node": "a"}'])
def test_an_entry_that_nobody_can_read_says_so(value: bytes) -> None:
    with pytest.raises(BadRecord):
        Placement.decode(value)


# ---- who makes leased keys


def leased_puts(tree: ast.AST) -> list[int]:
    """The lines at which a put is given a lease."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id == "Put" and _has_lease(node, 2))
            or (isinstance(node.func, ast.Attribute) and node.func.attr == "put" and _has_lease(node, 3))
        )
    ]


def _has_lease(call: ast.Call, position: int) -> bool:
    return len(call.args) > position or any(each.arg == "lease" for each in call.keywords)


@pytest.mark.spec("OWN-01")
def test_leased_keys_are_made_in_few_places_only() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if not path.is_relative_to(SOURCE / "testing")
        and leased_puts(ast.parse(path.read_text(encoding="utf-8")))
    }
    # The store itself, and its mirror, pass on what they are given.
    others = {name for name in found - LEASING if not name.startswith(("store/", "sync/store"))}
    assert (others, LEASING - found) == (set(), set())


def test_a_planted_leased_key_is_found() -> None:
    planted = "await store.put(key, value, lease=session.lease); Put(a, b, c); Put(a, b); Put(a, b, lease=3)"
    assert len(leased_puts(ast.parse(f"async def f():\n {planted}"))) == 3
