"""Claims and owners come and go together, whatever is cancelled, closed or lost, and whenever."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from uuid import uuid4

import pytest

from hansa import Fenced, SpotNode, Store, TimedOut, TopicExists, open_store
from hansa.errors import AlreadyClosed, SessionLost
from hansa.topics.stats import TopicReport

ROOM = "chat:room1"
RIVAL = b"\x01\x00\x00\x00\x09"
WITHIN_S = 20.0
# More turns of the loop than anything here takes with a store in memory.
TURNS_COUNT = 15

pytestmark = [pytest.mark.timeout(60), pytest.mark.spec("SPT-25")]


class Books:
    """A store, and what became of the leases that it granted."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.leases: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._grant = store.grant

    async def grant(self, *arguments: Any, **settings: Any) -> int:
        await self.gate.wait()
        self.leases.append(await self._grant(*arguments, **settings))
        return self.leases[-1]

    async def keys(self) -> list[bytes]:
        return [item.key for item in (await self.store.scan("/hansa/default/topics/")).items]

    async def live(self) -> list[int]:
        infos = [await self.store.lease_info(lease) for lease in self.leases]
        return [info.lease for info in infos if info is not None]

    async def nothing_is_claimed(self) -> None:
        """Wait until it is so."""
        async with asyncio.timeout(WITHIN_S):
            while await self.keys():
                await asyncio.sleep(0.001)

    async def no_lease_is_left(self) -> None:
        """Wait until it is so."""
        async with asyncio.timeout(WITHIN_S):
            while await self.live():
                await asyncio.sleep(0.001)


@pytest.fixture
async def books(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Books]:
    async with open_store(f"memory://{uuid4()}") as store:
        books = Books(store)
        monkeypatch.setattr(store, "grant", books.grant)
        yield books


class HeldSurvey:
    """Makes a node believe that another one owns the topic, and asks nobody until it is let go."""

    def __init__(self, node: SpotNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[tuple[TopicReport, ...]] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(node.mesh, "owner", lambda topic: RIVAL)
        monkeypatch.setattr(node.mesh, "survey", self._survey)

    async def _survey(self, timeout_s: float) -> tuple[TopicReport, ...]:
        self.asked.set()
        return await self.answer


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled_after(count: int, work: Coroutine[Any, Any, None]) -> bool:
    """Run this for so many turns of the loop; says whether it was cancelled."""
    task = asyncio.ensure_future(work)
    await turns(count)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


# -- lost


async def test_a_claim_that_is_lost_while_the_others_are_asked_gives_no_owner(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SpotNode(store=books.store) as node, SpotNode(store=books.store) as other:
        survey = HeldSurvey(node, monkeypatch)
        creating = asyncio.ensure_future(node.spot().create_topic(ROOM))
        await survey.asked.wait()
        await books.store.delete_prefix("/hansa/default/topics/")
        await other.spot().create_topic(ROOM)
        survey.answer.set_result(())
        with pytest.raises(Fenced, match="somebody deleted the key"):
            await creating
        assert (node.owned, other.owned) == ((), (ROOM,))
        assert len(await books.keys()) == 1


async def test_a_lease_that_ends_while_the_others_are_asked_gives_no_owner(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SpotNode(store=books.store) as node:
        survey = HeldSurvey(node, monkeypatch)
        spot = node.spot()
        creating = asyncio.ensure_future(spot.create_topic(ROOM))
        await survey.asked.wait()
        await books.store.revoke(books.leases[0])
        survey.answer.set_result(())
        with pytest.raises(Fenced, match="is lost"):
            await creating
        assert (node.owned, spot.owned) == ((), ())
        # Who asks next learns that the lease is gone, and the one after that has another.
        with pytest.raises(SessionLost):
            await spot.create_topic(ROOM)
        await spot.create_topic(ROOM)
        await turns(TURNS_COUNT)
        assert (node.owned, len(await books.keys())) == ((ROOM,), 1)


async def test_the_loss_of_a_claim_is_told_although_another_spot_of_the_node_claimed_meanwhile(
    books: Books,
) -> None:
    """Somebody deletes the key; before the node hears of it, another of its spots is first in line."""
    async with SpotNode(store=books.store) as node:
        spot, late = node.spot(), node.spot()
        await spot.create_topic(ROOM)
        _, result = await asyncio.gather(
            books.store.delete_prefix("/hansa/default/topics/"),
            late.create_topic(ROOM),
            return_exceptions=True,
        )
        assert result is None or isinstance(result, TopicExists)
        async with asyncio.timeout(WITHIN_S):
            while spot.owned:
                await asyncio.sleep(0.001)
        assert node.owned == late.owned
        await late.close()
        await books.nothing_is_claimed()


# -- cancelled


@pytest.mark.parametrize("spots_count", [1, 3])
async def test_a_node_whose_closing_is_cancelled_gives_up_its_claims(books: Books, spots_count: int) -> None:
    for turns_count in range(1, TURNS_COUNT):
        node = SpotNode(store=books.store, claim_ttl=0.2)
        await node.__aenter__()
        node.threadsafe_spot()
        for number in range(spots_count):
            await node.spot().create_topic(f"{ROOM}:{turns_count}:{number}")
        await cancelled_after(turns_count, node.close())
        assert node.owned == ()
    # At the latest when the leases end by themselves, because nobody renews them.
    await books.no_lease_is_left()
    assert len(books.leases) == TURNS_COUNT - 1
    assert await books.keys() == []


@pytest.mark.parametrize("way", ["create", "destroy"])
async def test_an_owner_has_a_claim_and_a_claim_an_owner_whenever_a_call_is_cancelled(
    books: Books, way: str
) -> None:
    async with SpotNode(store=books.store) as node:
        spot = node.spot()
        for turns_count in range(TURNS_COUNT):
            if way == "destroy":
                await spot.create_topic(ROOM)
            calls: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
                "create": spot.create_topic,
                "destroy": spot.destroy_topic,
            }
            was_cancelled = await cancelled_after(turns_count, calls[way](ROOM))
            assert node.owned == spot.owned
            if node.owned:
                assert len(await books.keys()) == 1
                assert way == "create" or (turns_count == 0 and was_cancelled)
                await spot.destroy_topic(ROOM)
            await books.nothing_is_claimed()


# -- closed


async def test_a_topic_that_is_being_created_when_the_node_closes_is_not_claimed(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SpotNode(store=books.store)
    await node.__aenter__()
    in_step = asyncio.Event()
    monkeypatch.setattr(node.mesh, "in_step", in_step.wait)
    creating = asyncio.ensure_future(node.spot().create_topic(ROOM))
    await turns(1)
    await node.close()
    in_step.set()
    with pytest.raises(AlreadyClosed):
        await creating
    assert (books.leases, await books.keys()) == ([], [])


async def test_a_lease_that_is_granted_when_the_node_is_closed_is_ended(books: Books) -> None:
    node = SpotNode(store=books.store)
    await node.__aenter__()
    books.gate.clear()
    creating = asyncio.ensure_future(node.spot().create_topic(ROOM))
    await turns(TURNS_COUNT)
    await node.close()
    books.gate.set()
    with pytest.raises(AlreadyClosed):
        await creating
    assert len(books.leases) == 1
    assert (await books.live(), await books.keys()) == ([], [])


async def test_closing_at_any_moment_of_a_creation_leaves_no_claim(books: Books) -> None:
    for turns_count in range(TURNS_COUNT):
        node = SpotNode(store=books.store)
        await node.__aenter__()
        creating = asyncio.ensure_future(node.spot().create_topic(ROOM))
        await turns(turns_count)
        await node.close()
        await asyncio.wait([creating])
        assert creating.exception() is None or isinstance(creating.exception(), AlreadyClosed | Fenced)
        assert (node.owned, await books.live(), await books.keys()) == ((), [], [])


@pytest.mark.parametrize("way", ["destroy the topic", "close the spot", "close the node"])
async def test_who_has_closed_the_store_before_can_still_end_what_is_owned(way: str) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    store = open_store(f"memory://{uuid4()}")
    async with SpotNode(store=store) as node:
        async with store:
            spot = node.spot()
            await spot.create_topic(ROOM)
        if way == "destroy the topic":
            await spot.destroy_topic(ROOM)
        elif way == "close the spot":
            await spot.close()
            await turns(TURNS_COUNT)
        else:
            await node.close()
        assert (node.owned, complaints) == ((), [])


# -- the answer is lost


async def test_a_claim_whose_answer_is_lost_is_taken_back(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = books.store.commit
    made: list[bytes] = []

    async def unheard(*arguments: Any, **settings: Any) -> Any:
        monkeypatch.setattr(books.store, "commit", commit)
        await commit(*arguments, **settings)
        made.extend(await books.keys())
        raise TimedOut("the answer was lost")

    async with SpotNode(store=books.store) as node:
        monkeypatch.setattr(books.store, "commit", unheard)
        with pytest.raises(TimedOut):
            await node.spot().create_topic(ROOM)
        assert (len(made), node.owned) == (1, ())
        await books.nothing_is_claimed()
        await node.spot().create_topic(ROOM)
