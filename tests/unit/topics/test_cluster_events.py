"""Events of members on a topic and back: the messages, what a reader drops, and bridges that take over."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from hansa.coordination import (
    Member,
    MemberDown,
    MemberEvent,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    Members,
    MemberStatus,
    MemberSuspected,
    MemberUpdated,
    NodeInfo,
)
from hansa.errors import BadRecord, TimedOut
from hansa.keys import Keys
from hansa.store.memory import MemoryStore
from hansa.topics import SpotNode
from hansa.topics.cluster_events import (
    TOPIC,
    BridgedEvents,
    Heard,
    TopicBridge,
    bridged_events,
    decode_event,
    encode_event,
)

WAIT_S_MAX = 10.0
KINDS: list[type[MemberEvent]] = [
    MemberJoined,
    MemberUpdated,
    MemberSuspected,
    MemberRefuted,
    MemberDown,
    MemberLeft,
]


def member(name: str = "a", stay: int = 1, status: MemberStatus = MemberStatus.UP) -> Member:
    info = NodeInfo(id=name, host="10.0.0.1", port=7, roles=frozenset({"ps"}), metadata={"k": "v"})
    return Member(info=info, status=status, incarnation=stay, reason="why", since=12.5)


def event(kind: type[MemberEvent], revision: int, *, stay: int = 1, name: str = "a") -> MemberEvent:
    return kind(member=member(name, stay), reason="why", revision=revision)


@pytest.mark.spec("CRD-14")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [MemberStatus.SUSPECT, MemberStatus.DOWN, MemberStatus.DRAINING])
def test_an_event_comes_back_as_it_was(kind: type[MemberEvent], status: MemberStatus) -> None:
    sent = kind(member=member(status=status), reason="so", revision=7)
    assert decode_event(encode_event(sent)) == sent


def test_a_message_is_plain_json() -> None:
    found = json.loads(encode_event(event(MemberDown, 7)))
    assert (found["kind"], found["member"]["id"], found["reason"], found["revision"]) == (
        "member-down",
        "a",
        "why",
        7,
    )


@pytest.mark.parametrize("name", ["kind", "member", "reason", "revision"])
def test_a_message_without_one_of_its_fields_is_refused(name: str) -> None:
    found = json.loads(encode_event(event(MemberDown, 7)))
    del found[name]
    with pytest.raises(BadRecord):
        decode_event(json.dumps(found).encode())


@pytest.mark.parametrize("name", ["id", "status", "incarnation", "reason", "since"])
def test_a_message_whose_member_lacks_something_is_refused(name: str) -> None:
    found = json.loads(encode_event(event(MemberDown, 7)))
    del found["member"][name]
    with pytest.raises(BadRecord):
        decode_event(json.dumps(found).encode())


@pytest.mark.spec("CRD-14")
def test_a_reader_drops_what_it_has_heard() -> None:
    heard = Heard(members_count_max=10)
    story = [
        event(MemberJoined, 5),
        event(MemberSuspected, 9),
        # Of another watch: its revision may be lower than that of a suspicion.
        event(MemberUpdated, 8),
        event(MemberRefuted, 11),
        event(MemberDown, 12),
        # The record of the next stay was written over this one's, in one revision.
        event(MemberJoined, 12, stay=2),
        event(MemberLeft, 13, stay=2),
        event(MemberJoined, 14, stay=3),
        event(MemberJoined, 3, name="b"),
    ]
    assert [heard.is_news(one) for one in story] == [True] * len(story)
    assert [heard.is_news(one) for one in story] == [False] * len(story)
    # Another bridge read the end of a stay after a gap, at a later revision: still the same end.
    assert not heard.is_news(event(MemberDown, 50, stay=2))
    assert not heard.is_news(event(MemberSuspected, 51, stay=1))
    assert heard.is_news(event(MemberDown, 50, stay=3))


def test_a_reader_remembers_a_bounded_number_of_members() -> None:
    heard = Heard(members_count_max=2)
    for name in "abac":
        heard.is_news(event(MemberUpdated, 5, name=name))
    assert not heard.is_news(event(MemberUpdated, 5, name="a"))
    assert heard.is_news(event(MemberUpdated, 5, name="b"))


# ---- bridges -------------------------------------------------------------------------------------


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    async with MemoryStore() as store:
        yield store


@pytest.fixture
async def node() -> AsyncIterator[SpotNode]:
    async with SpotNode() as node:
        yield node


async def put(store: MemoryStore, name: str, **what: str) -> None:
    await store.put(Keys().node(name), NodeInfo(id=name, **what).encode())  # type: ignore[arg-type]


async def next_of(events: BridgedEvents) -> tuple[type[MemberEvent], str]:
    async with asyncio.timeout(WAIT_S_MAX):
        found = await anext(events)
    return type(found), found.member.id


@pytest.mark.spec("CRD-14")
async def test_events_cross_the_bridge_and_come_back_as_values(store: MemoryStore, node: SpotNode) -> None:
    async with Members(store) as view, TopicBridge(view, node) as bridge, node.spot() as reader:
        events = await bridged_events(reader)
        await bridge.owning(WAIT_S_MAX)
        await put(store, "a")
        await put(store, "a", zone="east")
        await store.delete(Keys().node("a"))
        assert [await next_of(events) for _ in range(3)] == [
            (MemberJoined, "a"),
            (MemberUpdated, "a"),
            (MemberDown, "a"),
        ]
        # What others write there harms nobody.
        await reader.publish(TOPIC, b"nonsense")
        await put(store, "b")
        assert await next_of(events) == (MemberJoined, "b")
        assert events.bad_count == 1
        await events.close()
        assert [one async for one in events] == []


@pytest.mark.spec("CRD-14")
async def test_when_a_bridge_goes_another_one_goes_on_and_nothing_is_told_twice(
    store: MemoryStore, node: SpotNode
) -> None:
    async with Members(store) as view, node.spot() as reader:
        events = await bridged_events(reader)
        async with TopicBridge(view, node) as first:
            await first.owning(WAIT_S_MAX)
            async with TopicBridge(view, node) as second:
                await put(store, "a")
                assert await next_of(events) == (MemberJoined, "a")
                with pytest.raises(TimedOut, match="another bridge"):
                    await second.owning(0.01)
                await first.__aexit__(None, None, None)
                # Nobody may own it for a moment; what happens then is told all the same.
                await put(store, "b")
                assert await next_of(events) == (MemberJoined, "b")
                await second.owning(WAIT_S_MAX)
                await put(store, "c")
                assert await next_of(events) == (MemberJoined, "c")
                assert second.takeovers_count == 1
                # Told again when it took over, and dropped here.
                assert events.repeated_count >= 1
                assert not first.is_owner


async def test_who_subscribes_late_is_told_the_last_events(
    store: MemoryStore, node: SpotNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansa.topics.cluster_events.BRIDGE_COUNT_MAX", 2)
    async with Members(store) as view, node.spot() as reader:
        # The topic is somebody else's first, so that the bridge stands by.
        await reader.create_topic(TOPIC)
        async with TopicBridge(view, node) as bridge:
            for name in "abcd":
                await put(store, name)
            await view.until(lambda roster: len(roster) == 4, timeout=WAIT_S_MAX)
            assert not bridge.is_owner
            events = await bridged_events(reader)
            await reader.destroy_topic(TOPIC)
            assert [await next_of(events) for _ in range(2)] == [(MemberJoined, "c"), (MemberJoined, "d")]
