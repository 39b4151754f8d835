"""Topics from many threads at once, on real sockets: two blocking nodes and a registry."""

from __future__ import annotations

import gc
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hansa import sync
from hansa.errors import AlreadyClosed, NoOwner, NotOwner, TimedOut, TopicExists, UsageError
from hansa.topics import (
    PeerLeft,
    Spot,
    SubscriptionActivated,
    SubscriptionState,
    SubscriptionSuspended,
    TopicAnnounced,
)
from hansa.topics.threads import ThreadsafeSpot
from hansa.transport import Environment, SocketOptions
from tests.support.leftovers import no_thread_is_left
from tests.support.sync_mesh import Mesh, opened
from tests.support.sync_stage import WITHIN_S

__all__ = ["no_thread_is_left"]

THREADS = 8
STEPS = 5
MESSAGES = 400


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with opened() as mesh:
        yield mesh


@pytest.mark.spec("SPT-18")
def test_many_threads_publish_and_receive_and_every_message_arrives_once_and_in_order(mesh: Mesh) -> None:
    owner, routed = mesh.left.spot("owner"), mesh.right.spot("routed")
    owner.create_topic("news")
    readers = {"near": mesh.left.spot("near"), "far": mesh.right.spot("far")}
    for reader in readers.values():
        reader.subscribe("news", count_max=100_000).active(WITHIN_S)
    all_count = 2 * THREADS * MESSAGES
    left_counts = dict.fromkeys(readers, all_count)
    turn = threading.Lock()

    def publish(source: ThreadsafeSpot, number: int) -> None:
        for step in range(MESSAGES):
            source.publish("news", f"{source.name} {number} {step}".encode())

    def read(where: str) -> list[tuple[str, int, int]]:
        found = []
        for message in readers[where]:
            source, number, step = message.payload.decode().split()
            found.append((f"{source} {number}", int(step), message.sequence))
            with turn:
                left_counts[where] -= 1
                is_last = left_counts[where] == 0
            if is_last:
                readers[where].close()
        return found

    with ThreadPoolExecutor(4 * THREADS) as pool:
        reading = {where: [pool.submit(read, where) for _ in range(THREADS)] for where in readers}
        publishing = [
            pool.submit(publish, source, number) for number in range(THREADS) for source in (owner, routed)
        ]
        for future in publishing:
            future.result(60)
        found = {where: [future.result(60) for future in futures] for where, futures in reading.items()}

    for threads in found.values():
        steps: dict[str, list[int]] = defaultdict(list)
        for seen in threads:
            # Each thread, by itself, sees the owner's order, and with it that of each publisher.
            assert [sequence for _, _, sequence in seen] == sorted(sequence for _, _, sequence in seen)
            for source in {source for source, _, _ in seen}:
                own = [step for who, step, _ in seen if who == source]
                assert own == sorted(own)
                steps[source] += own
        assert len(steps) == 2 * THREADS
        assert all(sorted(numbers) == list(range(MESSAGES)) for numbers in steps.values())
    stats = mesh.left.stats
    assert stats.published_count == all_count
    assert (stats.dropped_count, stats.inbox_dropped_count) == (0, 0)
    assert mesh.right.stats.missed_count == 0


def test_threads_wait_for_room_on_the_way_to_a_remote_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_count = 0
    publish_plainly = Spot.publish

    async def publish(spot: Spot, topic: str, payload: bytes) -> None:
        nonlocal waited_count
        waited_count += 1
        await publish_plainly(spot, topic, payload)

    monkeypatch.setattr(Spot, "publish", publish)
    with opened(environment=Environment(options=SocketOptions(outgoing_bytes_max=2_000_000))) as mesh:
        owner, routed = mesh.left.spot(), mesh.right.spot()
        owner.create_topic("big")
        subscription = owner.subscribe("big")
        mesh.right.in_step(WITHIN_S)
        while "big" not in mesh.right.topics:
            pass
        # Of all threads together more than the kernel takes at once, and that is some megabytes.
        payload = bytes(1_500_000)

        def publish_some(number: int) -> None:
            for step in range(STEPS):
                routed.publish("big", f"{number} {step} ".encode() + payload)

        steps, held = mesh.right._held(), threading.Event()

        def hold() -> None:
            held.set()
            while len(steps._steps) < THREADS:
                pass  # Until all threads want something at once.

        with ThreadPoolExecutor(THREADS + 1) as pool:
            publishing = [pool.submit(steps.run, hold)]
            assert held.wait(WITHIN_S)
            publishing += [pool.submit(publish_some, number) for number in range(THREADS)]
            found = [subscription.recv(WITHIN_S).payload.split()[:2] for _ in range(THREADS * STEPS)]
            for future in publishing:
                future.result(WITHIN_S)
    assert waited_count > 0
    for number in range(THREADS):
        assert [step for who, step in found if who == b"%d" % number] == [
            b"%d" % step for step in range(STEPS)
        ]


@pytest.mark.spec("SPT-18")
def test_all_threads_of_a_spot_subscribe_create_and_publish_at_once(mesh: Mesh) -> None:
    near, far = mesh.left.spot("near"), mesh.right.spot("far")

    def work(number: int) -> list[bytes]:
        topic = f"zone:{number}"
        near.create_topic(topic)
        subscription = far.subscribe(topic)
        subscription.active(WITHIN_S)
        for step in range(20):
            near.publish(topic, b"%d" % step)
        found = [subscription.recv(WITHIN_S).payload for _ in range(20)]
        subscription.close()
        near.destroy_topic(topic)
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        for found in pool.map(work, range(THREADS * 4)):
            assert found == [b"%d" % step for step in range(20)]
    assert mesh.left.owned == ()
    assert mesh.right.wanted == {}


@pytest.mark.spec("SPT-18")
def test_closing_while_threads_publish_and_receive_ends_each_of_them(mesh: Mesh) -> None:
    owner, far = mesh.left.spot("owner"), mesh.right.spot("far")
    owner.create_topic("news")
    subscription = far.subscribe("news")
    subscription.active(WITHIN_S)
    received = threading.Semaphore(0)

    def publish(spot: ThreadsafeSpot) -> str:
        while True:
            try:
                spot.publish("news", b"x")
            except (AlreadyClosed, NoOwner) as error:
                return type(error).__name__

    def read() -> str:
        for _ in far:
            received.release()
        return "end"

    with ThreadPoolExecutor(20) as pool:
        publishing = [pool.submit(publish, owner) for _ in range(4)]
        routing = [pool.submit(publish, far) for _ in range(4)]
        reading = [pool.submit(read) for _ in range(4)]
        waiting: list[Future[Any]] = [pool.submit(subscription.pending) for _ in range(2)]
        for _ in range(50):
            assert received.acquire(timeout=WITHIN_S)
        mesh.left.close()
        assert Counter(future.result(WITHIN_S) for future in publishing) == {"AlreadyClosed": 4}
        assert Counter(future.result(WITHIN_S) for future in routing) == {"NoOwner": 4}
        for future in waiting:
            future.result(WITHIN_S)
        waiting = [pool.submit(subscription.active) for _ in range(2)]
        mesh.right.close()
        assert Counter(future.result(WITHIN_S) for future in reading) == {"end": 4}
        for future in waiting:
            assert isinstance(future.exception(WITHIN_S), AlreadyClosed)
    for spot in (owner, far):
        with pytest.raises(AlreadyClosed):
            spot.publish("news", b"x")
        with pytest.raises(AlreadyClosed):
            spot.recv()


@pytest.mark.spec("SPT-18")
def test_a_blocking_node_answers_as_its_async_twin(mesh: Mesh) -> None:
    left, right = mesh.left, mesh.right
    events, told = left.events(), right.events()
    spot, other = left.spot("mine"), right.spot("theirs")
    spot.create_topic("a", retain=True)
    spot.publish("a", b"kept")
    with pytest.raises(TopicExists):
        other.create_topic("a")
    with pytest.raises(NotOwner):
        other.destroy_topic("a")
    subscription = other.subscribe("*")
    subscription.active(WITHIN_S)
    assert subscription.recv(WITHIN_S).payload == b"kept"
    assert (left.name, left.service) == ("left", "spot-node")
    assert left.endpoint is not None
    assert left.endpoint.port
    assert left.registry == str(mesh.registry.router)
    assert [info.endpoint for info in mesh.registry.services["spot-node"]] == sorted(
        str(node.endpoint) for node in (left, right)
    )
    assert left.topics == right.topics == {"a": left.routing_id}
    assert (left.owned, right.owned) == (("a",), ())
    assert (left.wanted, right.wanted) == ({}, {"a": 1})
    assert left.subscribers("a") == left.peers == (right.routing_id,)
    (report,) = right.survey(WITHIN_S)
    assert (report.topic, report.owner, report.subscribers_count) == ("a", left.routing_id, 1)
    assert (left.stats.spots_count, right.stats.subscriptions_count) == (1, 1)
    assert left.has_owners
    assert isinstance(events.get(WITHIN_S), TopicAnnounced)
    announced = told.get(WITHIN_S)
    assert announced == TopicAnnounced(topic="a", owner=left.routing_id)
    left.close()
    kinds = set()
    while PeerLeft not in kinds:
        kinds.add(type(told.get(WITHIN_S)))
    assert SubscriptionSuspended in kinds
    assert subscription.state is SubscriptionState.PENDING
    assert right.topics == {}
    # Queries answer after the end, too.
    assert left.topics == {}
    assert [*left.owned, *left.peers] == []


def test_a_new_owner_is_found_with_nobody_acting(mesh: Mesh) -> None:
    reader = mesh.right.spot("reader")
    assert reader.events_nowait() == []
    subscription = reader.subscribe("news")
    for payload in (b"first", b"second"):
        with mesh.left.spot("owner") as owner:
            owner.create_topic("news")
            subscription.active(WITHIN_S)
            owner.publish("news", payload)
            assert reader.recv(WITHIN_S).payload == payload
        subscription.pending(WITHIN_S)
    kinds = [type(event) for event in reader.events_nowait()]
    assert kinds == [SubscriptionActivated, SubscriptionSuspended] * 2


def test_events_are_a_blocking_iterator_that_ends_with_the_node() -> None:
    with opened() as mesh, ThreadPoolExecutor(1) as pool:
        events = mesh.left.events()
        reading = pool.submit(list, events)
        mesh.right.spot().create_topic("a")
        mesh.right.close()
        mesh.left.close()
        assert [type(event) for event in reading.result(WITHIN_S)][-1] is PeerLeft
        with pytest.raises(AlreadyClosed):
            events.get()
        assert events.dropped_count == 0


def test_events_that_were_kept_are_read_after_the_end() -> None:
    with sync.SpotNode() as node:
        events = node.events()
        node.spot().create_topic("a")
        with pytest.raises(TimedOut):
            while True:
                assert events.get(0.01) == TopicAnnounced(topic="a", owner=node.routing_id)
        node.spot().create_topic("b")
    assert events.get() == TopicAnnounced(topic="b", owner=node.routing_id)
    with pytest.raises(AlreadyClosed):
        for _ in range(10):  # The end of the topics may be told, too.
            events.get()


def test_a_forgotten_iterator_leaves_in_the_loops_thread() -> None:
    with sync.SpotNode() as node, ThreadPoolExecutor(1) as pool:
        events = node.events()
        held = threading.Event()
        holding = pool.submit(node._held().run, lambda: held.wait(WITHIN_S))
        del events
        gc.collect()
        assert len(node._inner._feeds) == 1  # The loop was busy, perhaps with these.
        held.set()
        assert holding.result(WITHIN_S)
        assert node.stats.spots_count == 0  # One step later.
        assert len(node._inner._feeds) == 0


def test_a_mesh_without_owners_works_from_threads(mesh: Mesh) -> None:
    with opened(mesh="pubsub", service="spot-node.open") as other:
        subscription = other.right.spot().subscribe("news")
        source = other.left.spot()
        assert not other.left.has_owners
        message = None
        while message is None:  # Nobody confirms a subscription here.
            source.publish("news", b"x")
            try:
                message = subscription.recv(0.05)
            except TimedOut:
                continue
        assert message.payload == b"x"


def test_a_local_node_needs_no_sockets() -> None:
    with sync.SpotNode() as node, node.spot("one") as one, node.spot("two") as two:
        assert node.endpoint is None
        one.create_topic("a")
        subscription = two.subscribe("a")
        with ThreadPoolExecutor(2) as pool:
            reading = pool.submit(lambda: [message.payload for message in subscription])
            for number in range(100):
                one.publish("a", b"%d" % number)
            while subscription.waiting_count:
                pass
            subscription.close()
            assert reading.result(WITHIN_S) == [b"%d" % number for number in range(100)]
        with pytest.raises(UsageError, match="registry"):
            node.registered()


@pytest.mark.spec("SPT-24")
def test_a_node_unregisters_and_registers_again(mesh: Mesh) -> None:
    owner, reader = mesh.left.spot(), mesh.right.spot()
    owner.create_topic("news")
    subscription = reader.subscribe("news")
    subscription.active(WITHIN_S)
    mesh.left.unregister(timeout=WITHIN_S)
    subscription.pending(WITHIN_S)
    mesh.left.register(timeout=WITHIN_S)
    subscription.active(WITHIN_S)
    owner.publish("news", b"back")
    assert subscription.recv(WITHIN_S).payload == b"back"
