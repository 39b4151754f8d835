"""Topics that go from node to node over real sockets while they are used, with a store that says who owns."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from uuid import uuid4

import pytest

from hansa import SpotNode, Store, UsageError, open_store
from hansa.coordination.handover import HandoverStep
from hansa.coordination.handovers import Handovers
from hansa.errors import AlreadyClosed, Backlogged, HandoverWithdrawn, NoSuccessor, NotOwner
from hansa.ids import format_id, routing_id
from hansa.keys import topic_name
from hansa.limits import DRAIN_AT_ONCE_COUNT, HANDOVER_INLINE_BYTES_MAX
from hansa.store.blobs import Blobs
from hansa.topics import MessagesMissed, SubscriptionSuspended, TopicLost, TopicMoved, TopicRemoved
from hansa.topics.router_mesh import RouterMesh
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.gated_store import GatedStore
from tests.support.peer_process import PeerProcess
from tests.support.topics_cast import TopicCast, payloads
from tests.support.topics_wire import ANNOUNCE, MESSAGE, PUBLISH, REMOVE, SUBSCRIBE, WirePeer

ROOM = "chat:room/1 100%"
NAME = topic_name("spot-node", ROOM)
MOVES_MAX = 6

pytestmark = [pytest.mark.timeout(60)]


def _owns_nothing(node: SpotNode) -> bool:
    return node.owned == ()


def _has_peer(node: SpotNode, peer: bytes) -> bool:
    return peer in node.peers


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store(f"memory://{uuid4()}") as store:
        yield store


@pytest.mark.spec("OWN-03")
async def test_a_topic_goes_around_while_all_publish_and_all_read_it(store: Store) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        nodes = await cast.mesh(registry, 1, 5, 9, store=store)
        heard = [cast.heard(node) for node in nodes]
        spots = [node.spot() for node in nodes]
        subscriptions = [await spot.subscribe(ROOM, count_max=1_000_000) for spot in spots]
        await spots[0].create_topic(ROOM)
        for subscription in subscriptions:
            await subscription.active()
        counts = [0] * len(spots)
        is_over = False

        async def publish(at: int) -> None:
            while not is_over:
                await spots[at].publish(ROOM, b"%d %d" % (at, counts[at]))
                counts[at] += 1
                if counts[at] % 20 == 0:
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for at in range(len(spots)):
                group.create_task(publish(at))
            owner = spots[0]
            for target in (2, 1, 0, 2, 1, 0, 1, 2):
                record = await owner.hand_over(ROOM, to=nodes[target].routing_id, reason="around")
                assert (record.target, record.reason) == (format_id(nodes[target].routing_id), "around")
                assert (nodes[target].owned, nodes[target].heir.owned, owner.owned) == ((ROOM,), (ROOM,), ())
                owner = nodes[target].heir
            is_over = True
        for subscription in subscriptions:
            came: list[list[int]] = [[] for _ in spots]
            for payload in await payloads(subscription, sum(counts)):
                at, number = map(int, payload.split())
                came[at].append(number)
            assert came == [list(range(count)) for count in counts]
            assert (subscription.waiting_count, subscription.missed_count) == (0, 0)
        for recorder in heard:
            assert len(recorder.of(TopicMoved)) == 8
            for kind in (SubscriptionSuspended, TopicLost, TopicRemoved, MessagesMissed):
                assert recorder.of(kind) == []


async def test_the_latest_message_of_a_retained_topic_goes_along_and_its_counting(
    store: Store,
) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        nodes = await cast.mesh(await cast.registry(), 1, 5, store=store)
        spot = nodes[0].spot()
        await spot.create_topic(ROOM, retain=True)
        await spot.publish(ROOM, b"first")
        await spot.publish(ROOM, b"latest")
        await spot.hand_over(ROOM, to=format_id(nodes[1].routing_id))
        late = [await node.spot().subscribe(ROOM) for node in nodes]
        for subscription in late:
            async with asyncio.timeout(WITHIN_S):
                message = await subscription.recv()
            assert (message.payload, message.sequence) == (b"latest", 2)
        await nodes[1].heir.destroy_topic(ROOM)
        assert [item.key for item in (await store.scan("/hansa/default/topics/")).items if item.lease] == []


async def test_a_new_owner_keeps_what_it_has_taken_whatever_is_offered_before_it_hears_that_it_is_done(
    store: Store,
) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        gate = GatedStore(store)
        first = await cast.node(registry, 1, store=store)
        second = await cast.node(registry, 5, store=gate)
        await until(lambda: len(first.takers) == 1, "they know each other")
        heard = cast.heard(second)
        spot = first.spot()
        subscription = await second.spot().subscribe(ROOM)
        await spot.create_topic(ROOM)
        await subscription.active()
        gate.slow_answers[HandoverStep.DONE] = 0.5
        moving = asyncio.ensure_future(spot.hand_over(ROOM, to=second.routing_id))
        handovers = Handovers(store)
        while (record := await handovers.get("topic", NAME)) is None or record.is_open:
            await asyncio.sleep(0.001)
        await handovers.offer("topic", NAME, format_id(second.routing_id))
        await moving
        await until(lambda: second.owned == (ROOM,), "it owns the topic")
        await spot.publish(ROOM, b"1")
        assert await payloads(subscription, 1) == [b"1"]
        assert heard.of(SubscriptionSuspended) == []


async def test_who_gives_up_waiting_has_handed_it_over_all_the_same(store: Store) -> None:
    """The new owner was heard before the store has answered the old one."""
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        gate = GatedStore(store)
        first = await cast.node(registry, 1, store=gate)
        second = await cast.node(registry, 5, store=store)
        await until(lambda: len(first.takers) == 1, "they know each other")
        spot = first.spot()
        await spot.create_topic(ROOM)
        gate.slow_answers[HandoverStep.SEALED] = 0.5
        moving = asyncio.ensure_future(spot.hand_over(ROOM, to=second.routing_id))
        await until(lambda: second.owned == (ROOM,) and first.owned == (), "it has moved")
        moving.cancel()
        assert first.claims is not None
        claims = first.claims
        await until(lambda: claims.topics == (), "it is forgotten")
        assert await first.drain() == {}


async def test_what_cannot_be_handed_over_is_refused_with_the_reason_and_stays(store: Store) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        owner = await cast.node(registry, 1, store=store)
        unwilling = await cast.node(registry, 5, store=store, takes_topics=False)
        storeless = await cast.node(registry, 9)
        await until(lambda: len(owner.peers) == 2, "all are connected")
        await owner.in_step()
        spot = owner.spot()
        await spot.create_topic(ROOM)
        for to in (unwilling.routing_id, storeless.routing_id, "nobody", owner.routing_id):
            with pytest.raises(NoSuccessor, match="stays here"):
                await spot.hand_over(ROOM, to=to)
        with pytest.raises(NotOwner):
            await spot.hand_over("another", to=unwilling.routing_id)
        with pytest.raises(NotOwner):
            await owner.spot().hand_over(ROOM, to=unwilling.routing_id)
        other = storeless.spot()
        await other.create_topic("free")
        with pytest.raises(UsageError, match="needs a store"):
            await other.hand_over("free", to=owner.routing_id)
        # From outside the node that is named says no by itself.
        record = await Handovers(store).move("topic", NAME, format_id(unwilling.routing_id), timeout=WITHIN_S)
        assert record.step is HandoverStep.WITHDRAWN
        assert "no connected node" in record.trouble or "takes no topics" in record.trouble
        assert owner.owned == (ROOM,)
        assert await owner.drain() == {}
        await spot.publish(ROOM, b"still mine")


async def test_a_topic_is_moved_from_outside(store: Store) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        nodes = await cast.mesh(await cast.registry(), 1, 5, store=store)
        spot = nodes[0].spot()
        heard = cast.heard(spot)
        await spot.create_topic(ROOM)
        handovers = Handovers(store, name="somebody")
        for source, target in ((0, 1), (1, 0)):
            to = format_id(nodes[target].routing_id)
            record = await handovers.move("topic", NAME, to, timeout=WITHIN_S)
            assert (record.step, record.asked_by) == (HandoverStep.DONE, "somebody")
            await until(partial(_owns_nothing, nodes[source]), "the old owner has let go")
            assert nodes[target].owned == (ROOM,)
        moved = await heard.wait(TopicMoved)
        assert (moved.source, moved.target) == (nodes[0].routing_id, nodes[1].routing_id)


async def test_a_node_that_leaves_hands_its_topics_to_the_least_loaded_and_its_readers_go_on(
    store: Store,
) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        nodes = await cast.mesh(await cast.registry(), 1, 5, 9, store=store)
        busy = nodes[1].spot()
        for number in range(4):
            await busy.create_topic(f"busy:{number}")
        spot = nodes[0].spot()
        topics = [f"room:{number}" for number in range(12)]
        for topic in topics:
            await spot.create_topic(topic)
        reader = await nodes[2].spot().subscribe("room:*")
        await reader.active()
        await until(lambda: len(nodes[0].topics) == 16, "all are known")
        moved = await nodes[0].drain()
        assert set(moved) == set(topics)
        await nodes[0].close()
        assert [len(node.owned) for node in nodes[1:]] == [8, 8]
        with pytest.raises(AlreadyClosed):
            await nodes[0].drain()
        sender = nodes[1].spot()
        for topic in topics:
            await sender.publish(topic, topic.encode())
        assert sorted(await payloads(reader, 12)) == sorted(topic.encode() for topic in topics)


async def test_few_topics_of_a_node_that_leaves_are_spread_too(store: Store) -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        nodes = await cast.mesh(await cast.registry(), 1, 5, 9, store=store)
        spot = nodes[0].spot()
        # Fewer than are handed over at once: none of them is announced before the last one is on its way.
        for number in range(4):
            await spot.create_topic(f"room:{number}")
        assert len(await nodes[0].drain()) == 4
        assert [len(node.owned) for node in nodes] == [0, 2, 2]


async def test_a_topic_that_cannot_be_handed_on_keeps_no_other_from_leaving(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansa.coordination.handed.BLOB_BYTES_MAX", HANDOVER_INLINE_BYTES_MAX)
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        nodes = await cast.mesh(await cast.registry(), 1, 5, store=store)
        spot = nodes[0].spot()
        await spot.create_topic("large", retain=True)
        await spot.publish("large", bytes(2 * HANDOVER_INLINE_BYTES_MAX))
        small = {f"room:{number}" for number in range(2 * DRAIN_AT_ONCE_COUNT)}
        for topic in small:
            await spot.create_topic(topic)
        assert set(await nodes[0].drain()) == small
        assert nodes[0].owned == ("large",)


async def test_a_retained_message_that_is_too_large_for_the_record_goes_along(store: Store) -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        nodes = await cast.mesh(await cast.registry(), 1, 5, store=store)
        spots = [node.spot() for node in nodes]
        await spots[0].create_topic(ROOM, retain=True)
        large = bytes(range(256)) * 4_096
        await spots[0].publish(ROOM, large)
        await spots[0].hand_over(ROOM, to=nodes[1].routing_id)
        assert (nodes[0].owned, nodes[1].owned) == ((), (ROOM,))
        assert (await (await spots[1].subscribe(ROOM)).recv()).payload == large
        while await Blobs(store, space="handed").all():
            await asyncio.sleep(0.01)


async def test_while_the_record_waits_publishers_wait_and_when_it_is_withdrawn_all_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansa.topics.moving.TOPIC_HOLD_COUNT_MAX", 3)
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        nodes = await cast.mesh(await cast.registry(), 1, 5, 9, store=store)
        spots = [node.spot() for node in nodes]
        await spots[0].create_topic(ROOM)
        subscription = await spots[1].subscribe(ROOM)
        await subscription.active()
        # The new owner is prepared, and never takes what is sealed: its node can write nothing any more.
        commit = store.commit
        sealed = asyncio.Event()

        async def hold_back(compares: object, then: object = (), *rest: object, **settings: object) -> object:
            if b'"taken"' in repr(then).encode():
                sealed.set()
                await asyncio.Event().wait()
            return await commit(compares, then, *rest, **settings)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "commit", hold_back)
        giving = asyncio.ensure_future(spots[0].hand_over(ROOM, to=nodes[1].routing_id, timeout=1.0))
        await sealed.wait()
        mesh = nodes[2].mesh
        assert isinstance(mesh, RouterMesh)
        await until(lambda: ROOM in mesh._mesh.moves.holds, "the publisher has heard of it")
        for spot in (spots[0], spots[2]):
            for number in range(3):
                await spot.publish(ROOM, b"%d" % number)
            with pytest.raises(Backlogged, match="being handed over"):
                spot.post(ROOM, b"too many")
        waiting = [asyncio.ensure_future(spot.publish(ROOM, b"3")) for spot in (spots[0], spots[2])]
        with pytest.raises(HandoverWithdrawn):
            await giving
        await asyncio.gather(*waiting)
        assert sorted(await payloads(subscription, 8)) == sorted([b"0", b"1", b"2", b"3"] * 2)
        assert nodes[0].owned == (ROOM,)


@pytest.mark.parametrize("number", [2, 7], ids=["low", "high"])
async def test_a_peer_that_knows_only_the_specification_follows_the_topic(store: Store, number: int) -> None:
    async with TopicCast() as cast, WirePeer(number) as raw, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        nodes = await cast.mesh(registry, 1, 9, store=store)
        spot = nodes[0].spot()
        subscription = await nodes[1].spot().subscribe(ROOM)
        await spot.create_topic(ROOM)
        await subscription.active()
        await raw.register(registry)
        for node in nodes:
            await raw.meet(node)
        raw.say(nodes[0], SUBSCRIBE, ROOM.encode())
        await raw.heard_all(nodes[0])
        await spot.publish(ROOM, b"1")
        await spot.hand_over(ROOM, to=nodes[1].routing_id)
        # It has not read of it yet, and goes on as before.
        raw.say(nodes[0], PUBLISH, ROOM.encode(), b"2")
        await until(lambda: len(raw.of(MESSAGE, ROOM)) == 2, "it has got both")
        said = [(peer, frames[0]) for peer, frames in raw.heard if frames[0] in (ANNOUNCE, REMOVE)]
        owner, heir = nodes[0].routing_id, nodes[1].routing_id
        # The old owner says once more that the topic is its own, when it closes it.
        assert [what for peer, what in said if peer == owner] == [ANNOUNCE, REMOVE]
        assert [what for peer, what in said if peer == heir] == [ANNOUNCE, ANNOUNCE]
        raw.say(nodes[1], PUBLISH, ROOM.encode(), b"3")
        assert await payloads(subscription, 3) == [b"1", b"2", b"3"]
        await until(lambda: len(raw.of(MESSAGE, ROOM)) == 3, "it gets what is published there")
        assert [frames[2] for frames in raw.of(MESSAGE, ROOM)] == [b"1", b"2", b"3"]


async def test_a_libzmq_node_that_forgets_on_every_removal_still_publishes_to_the_new_owner(
    store: Store,
) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        nodes = await cast.mesh(registry, 1, 9, store=store)
        arguments = (f"--pub={registry.pub}", f"--router={registry.router}", "--number=5")
        async with PeerProcess("topics/raw_node.py", *arguments) as raw:
            for node in nodes:
                await until(partial(_has_peer, node, routing_id(5)), "they are connected")
            spot = nodes[0].spot()
            await spot.create_topic("chat:room1")
            subscription = await nodes[1].spot().subscribe("chat:room1")
            await subscription.active()
            # The removal goes another way than the announcements. To a node that forgets whatever it hears
            # removed it comes too late now and then: then the next move tells it anew.
            for turn in range(MOVES_MAX):
                heir = nodes[1 - turn % 2]
                source = spot if turn == 0 else nodes[turn % 2].heir
                await source.hand_over("chat:room1", to=heir.routing_id)
                heard: list[str] = []
                while heard.count("TOPIC_ANNOUNCE") < 2 or "TOPIC_REMOVE" not in heard:
                    told = await raw.hear()
                    is_of_heir = told.get("peer") == heir.routing_id.hex()
                    if told.get("heard") == ("TOPIC_ANNOUNCE" if is_of_heir else "TOPIC_REMOVE"):
                        heard.append(told["heard"])
                if heard[-1] == "TOPIC_ANNOUNCE":
                    break
            await raw.say("publish chat:room1 hello")
            assert await payloads(subscription, 1) == [b"hello"]


async def test_who_closes_the_node_meanwhile_leaves_no_claim(store: Store) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        nodes = await cast.mesh(await cast.registry(), 1, 5, store=store)
        spot = nodes[0].spot()
        await spot.create_topic(ROOM)
        giving = asyncio.ensure_future(spot.hand_over(ROOM, to=nodes[1].routing_id))
        await asyncio.sleep(0)
        await nodes[0].close()
        with pytest.raises(AlreadyClosed):
            await giving
        await nodes[1].close()
        keys = [item for item in (await store.scan("/hansa/default/topics/")).items if item.lease]
        assert keys == []
