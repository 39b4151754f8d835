"""The spot for threads: errors where they belong, a wait only where there is one, and a clear end."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hansa.errors import (
    AlreadyClosed,
    Backlogged,
    BadArgument,
    NoOwner,
    NotOwner,
    TimedOut,
    TopicExists,
    UsageError,
    WouldBlock,
)
from hansa.runtime.steps import Answer
from hansa.topics import (
    Spot,
    SpotNode,
    SubscriptionActivated,
    SubscriptionState,
    SubscriptionSuspended,
)
from hansa.topics.threads import ThreadsafeSpot, ThreadsafeSubscription
from tests.support.loop_thread import WITHIN_S, LoopThread
from tests.support.thread_spots import ThreadSpots, thread_spots


@pytest.fixture
def stage() -> Iterator[ThreadSpots]:
    with thread_spots() as stage:
        yield stage


def waiting_calls(
    spot: ThreadsafeSpot, subscription: ThreadsafeSubscription
) -> list[tuple[str, Callable[[], Any]]]:
    """Everything that may wait."""
    return [
        ("create_topic", lambda: spot.create_topic("u")),
        ("destroy_topic", lambda: spot.destroy_topic("t")),
        ("publish", lambda: spot.publish("t", b"")),
        ("subscribe", lambda: spot.subscribe("u")),
        ("subscribe_pattern", lambda: spot.subscribe_pattern("u*")),
        ("unsubscribe", lambda: spot.unsubscribe("t")),
        ("recv", spot.recv),
        ("recv_all", spot.recv_all),
        ("recv", subscription.recv),
        ("recv_all", subscription.recv_all),
        ("active", subscription.active),
        ("pending", subscription.pending),
    ]


@pytest.mark.spec("SPT-18")
def test_errors_come_to_the_thread_that_asked(stage: ThreadSpots) -> None:
    with pytest.raises(TopicExists):
        stage.reader.create_topic("t")
    with pytest.raises(NotOwner):
        stage.reader.destroy_topic("t")
    with pytest.raises(NoOwner):
        stage.reader.publish("nobody's", b"")
    with pytest.raises(NoOwner):
        stage.reader.post("nobody's", b"")
    for bad in (lambda: stage.owner.publish("t", "text"), lambda: stage.reader.subscribe_pattern("t")):  # type: ignore[arg-type]
        with pytest.raises(BadArgument):
            bad()
    with pytest.raises(BadArgument):
        stage.reader.unsubscribe("t")


def test_topics_are_made_and_unmade_from_any_thread(stage: ThreadSpots) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: stage.owner.create_topic(f"u{number}"), range(50)))
        assert sorted(stage.owner.owned) == sorted(["t", *(f"u{number}" for number in range(50))])
        list(pool.map(lambda number: stage.owner.destroy_topic(f"u{number}"), range(50)))
    assert stage.owner.owned == ("t",)


def test_a_retained_message_waits_for_who_subscribes_later(stage: ThreadSpots) -> None:
    stage.owner.create_topic("kept", retain=True)
    stage.owner.publish("kept", b"latest")
    assert stage.reader.subscribe("kept").recv(WITHIN_S).payload == b"latest"


def test_the_same_text_is_the_same_subscription_in_whatever_thread(stage: ThreadSpots) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: stage.reader.subscribe("zone:*"), range(40)))
    (subscription,) = found
    assert list(stage.reader.subscriptions) == [subscription]
    assert (subscription.text, subscription.is_pattern, subscription.spot) == ("zone:*", True, stage.reader)
    with pytest.raises(BadArgument):
        stage.reader.subscribe("zone:*", count_max=3)
    subscription.close()
    subscription.close()
    assert list(stage.reader.subscriptions) == []
    again = stage.reader.subscribe("zone:*")
    subscription.close()  # The old one, which is not the new one.
    assert list(stage.reader.subscriptions) == [again]
    assert again is not subscription


def test_state_and_counts_are_those_of_the_subscription(stage: ThreadSpots) -> None:
    subscription = stage.reader.subscribe("u", count_max=2)
    subscription.pending(WITHIN_S)
    assert subscription.state is SubscriptionState.PENDING
    with pytest.raises(TimedOut):
        subscription.active(0.01)
    with ThreadPoolExecutor(1) as pool:
        becoming = pool.submit(subscription.active, WITHIN_S)
        stage.owner.create_topic("u")
        becoming.result(WITHIN_S)
    assert subscription.topics == {"u": SubscriptionState.ACTIVE}
    stage.post(b"0", b"1", b"2", topic="u")
    assert (subscription.waiting_count, subscription.received_count) == (2, 3)
    assert (subscription.dropped_count, subscription.missed_count) == (1, 0)
    assert [one.payload for one in subscription.recv_all(WITHIN_S)] == [b"1", b"2"]


def test_events_are_kept_from_the_first_look_on(stage: ThreadSpots) -> None:
    stage.reader.subscribe("u")
    assert stage.reader.events_nowait() == []
    stage.owner.create_topic("u")
    stage.owner.destroy_topic("u")
    activated, suspended = stage.reader.events_nowait()
    assert isinstance(activated, SubscriptionActivated)
    assert isinstance(suspended, SubscriptionSuspended)
    assert stage.reader.events_nowait() == []
    stage.owner.create_topic("u")
    stage.reader.close()
    (last,) = stage.reader.events_nowait()
    assert isinstance(last, SubscriptionActivated)
    with pytest.raises(AlreadyClosed):
        stage.reader.events_nowait()


def test_a_spot_that_is_thrown_away_stops_listening_in_the_loops_thread(stage: ThreadSpots) -> None:
    inner = stage.loop.inside(stage.node.spot)
    spot = stage.loop.inside(lambda: ThreadsafeSpot(inner, stage.loop.steps))
    spot.events_nowait()
    held = threading.Event()

    def hold() -> None:
        assert held.wait(WITHIN_S)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(stage.loop.inside, hold)
        del spot
        gc.collect()
        assert inner._feeds  # The loop was busy, perhaps with these.
        held.set()
        holding.result(WITHIN_S)
    stage.until(lambda: not inner._feeds)
    assert not inner.is_closed  # Its topics are kept.


# ---- publishing --------------------------------------------------------------------------------


def test_publishing_where_there_is_room_starts_no_task(
    stage: ThreadSpots, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spawn(*_: object) -> None:
        raise AssertionError("a task")

    subscription = stage.reader.subscribe("t")
    monkeypatch.setattr(stage.loop.steps, "spawn", spawn)
    stage.owner.publish("t", b"0")
    stage.owner.post("t", b"1")
    monkeypatch.undo()
    assert [one.payload for one in subscription.recv_all(WITHIN_S)] == [b"0", b"1"]


class FullWay:
    """Makes a spot find no room, and tells what becomes of those who wait for some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = asyncio.Event()
        self.begun = threading.Event()
        self.ended = threading.Event()
        monkeypatch.setattr(Spot, "post", self.post)
        monkeypatch.setattr(Spot, "publish", self.publish)

    def post(self, topic: str, payload: bytes) -> None:
        raise Backlogged("no room")

    async def publish(self, topic: str, payload: bytes) -> None:
        try:
            self.begun.set()
            await self.room.wait()
        finally:
            self.ended.set()


def test_publishing_waits_for_room(stage: ThreadSpots, monkeypatch: pytest.MonkeyPatch) -> None:
    way = FullWay(monkeypatch)
    with pytest.raises(Backlogged):
        stage.owner.post("t", b"")
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(stage.owner.publish, "t", b"")
        assert way.begun.wait(WITHIN_S)
        assert not publishing.done()
        stage.loop.inside(way.room.set)
        publishing.result(WITHIN_S)


def test_an_interrupt_of_a_publisher_ends_its_wait_for_room(
    stage: ThreadSpots, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = FullWay(monkeypatch)

    def interrupted(outcome: Answer[None]) -> None:
        assert way.begun.wait(WITHIN_S)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Answer, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stage.owner.publish("t", b"")
    assert way.ended.is_set()


# ---- the loop's own thread ---------------------------------------------------------------------


@pytest.mark.spec("SPT-18")
def test_in_the_loops_thread_what_waits_is_refused_with_advice(stage: ThreadSpots) -> None:
    subscription = stage.owner.subscribe("t")
    stage.post(b"0", b"1")
    assert stage.owner.recv(WITHIN_S).payload == b"0"  # And the other one is there.
    for what, call in waiting_calls(stage.owner, subscription):
        with pytest.raises(UsageError, match=f"{what[:4]}.* ask somebody else"):
            stage.loop.inside(call)
    assert stage.owner.owned == ("t",)


def test_in_the_loops_thread_what_does_not_wait_works(stage: ThreadSpots) -> None:
    subscription = stage.owner.subscribe("t")

    def inside() -> None:
        stage.owner.post("t", b"0")
        assert stage.owner.recv_nowait().payload == b"0"
        with pytest.raises(WouldBlock):
            subscription.recv_nowait()
        assert stage.owner.subscriptions == (subscription,)
        assert stage.owner.owned == ("t",)
        assert stage.owner.events_nowait() == []
        assert subscription.state is SubscriptionState.ACTIVE
        subscription.close()
        stage.owner.close()
        assert stage.owner.is_closed

    stage.loop.inside(inside)


@pytest.mark.spec("SPT-18")
def test_the_plain_spot_in_another_thread_names_the_one_to_use(stage: ThreadSpots) -> None:
    plain = stage.loop.inside(stage.node.spot)

    async def publish() -> None:
        await plain.publish("t", b"")

    for call in (
        lambda: plain.post("t", b""),
        plain.recv_nowait,
        lambda: asyncio.run(publish()),
        lambda: asyncio.run(plain.recv()),
        lambda: asyncio.run(plain.close()),
    ):
        with pytest.raises(UsageError, match=r"node\.threadsafe_spot\(\)"):
            call()


# ---- the end -----------------------------------------------------------------------------------


def ended_by_spot(stage: ThreadSpots) -> None:
    stage.reader.close()


def ended_by_node(stage: ThreadSpots) -> None:
    stage.loop.awaited(stage.node.close)


@pytest.mark.parametrize("end", [ended_by_spot, ended_by_node])
def test_the_end_wakes_all_who_wait(stage: ThreadSpots, end: Callable[[ThreadSpots], None]) -> None:
    subscription = stage.reader.subscribe("u")
    with ThreadPoolExecutor(7) as pool:
        waiting: list[Future[Any]] = [pool.submit(stage.reader.recv) for _ in range(3)]
        waiting += [pool.submit(stage.reader.recv_all), pool.submit(subscription.recv)]
        waiting += [pool.submit(subscription.active)]
        iterating = pool.submit(list, stage.reader)
        stage.until_waiting(5)
        stage.until(lambda: len(subscription._tap._line) == 1 and subscription._inner._waiters is not None)
        end(stage)
        for future in waiting:
            assert isinstance(future.exception(WITHIN_S), AlreadyClosed)
        assert iterating.result(WITHIN_S) == []


def test_ending_a_subscription_wakes_those_who_read_it_and_nobody_else(stage: ThreadSpots) -> None:
    subscription, other = stage.reader.subscribe("u"), stage.reader.subscribe("t")
    with ThreadPoolExecutor(4) as pool:
        ending: list[Future[Any]] = [pool.submit(subscription.recv), pool.submit(subscription.active)]
        staying = [pool.submit(other.recv, WITHIN_S)]
        stage.until(lambda: all(one._tap._task is not None for one in (subscription, other)))
        stage.until(lambda: subscription._inner._waiters is not None)
        stage.reader.unsubscribe("u")
        for future in ending:
            assert isinstance(future.exception(WITHIN_S), AlreadyClosed)
        stage.post(b"0")
        assert [future.result(WITHIN_S).payload for future in staying] == [b"0"]
    assert list(subscription) == []


@pytest.mark.parametrize("end", [ended_by_spot, ended_by_node])
@pytest.mark.spec("SPT-17")
def test_after_the_end_every_call_says_so(stage: ThreadSpots, end: Callable[[ThreadSpots], None]) -> None:
    subscription = stage.reader.subscribe("t")
    stage.post(b"0", b"1")
    assert stage.reader.recv(WITHIN_S).payload == b"0"
    end(stage)
    assert stage.reader.is_closed
    calls = [call for _, call in waiting_calls(stage.reader, subscription)]
    calls += [stage.reader.recv_nowait, lambda: stage.reader.post("t", b""), stage.reader.events_nowait]
    calls += [subscription.recv_nowait, lambda: stage.reader.recv(0), lambda: subscription.recv_all(0)]
    for call in calls:
        with pytest.raises(AlreadyClosed):
            call()
    assert list(stage.reader) == list(subscription) == []
    assert stage.reader.subscriptions == ()
    assert stage.reader.owned == ()
    stage.reader.close()
    subscription.close()


def test_after_the_loop_has_ended_every_call_says_so() -> None:
    loop = LoopThread()
    node = SpotNode()
    loop.awaited(node.__aenter__)
    spot = loop.inside(lambda: ThreadsafeSpot(node.spot("mine"), loop.steps))
    spot.create_topic("t")
    subscription = spot.subscribe("t")
    for payload in (b"0", b"1"):
        spot.publish("t", payload)
    assert spot.recv(WITHIN_S).payload == b"0"
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(subscription.recv)
        while subscription._tap._task is None:
            loop.inside(lambda: None)
        loop.leave()  # Before the node was closed, as a program may.
        assert isinstance(waiting.exception(WITHIN_S), AlreadyClosed)
    assert spot.is_closed
    for _, call in waiting_calls(spot, subscription):
        with pytest.raises(AlreadyClosed):
            call()
    with pytest.raises(AlreadyClosed):
        spot.recv_nowait()
    spot.close()
    subscription.close()


def test_it_is_closed_at_the_end_of_its_block(stage: ThreadSpots) -> None:
    with stage.owner as spot:
        assert not spot.is_closed
        assert repr(spot) == "<ThreadsafeSpot 'owner' of node>"
    assert stage.owner.is_closed
    assert stage.loop.inside(lambda: stage.node.topics) == {}


@pytest.mark.spec("SPT-18")
async def test_a_node_makes_spots_in_its_own_thread_only() -> None:
    async with SpotNode(name="harbour") as node:
        for make in (node.spot, node.threadsafe_spot):
            with pytest.raises(UsageError, match="harbour belongs to the event loop of another thread"):
                await asyncio.to_thread(make)
        assert node.stats.spots_count == 0
