"""The machine of the PUB/SUB mesh: two of them, whose publications the test carries, and loses."""

import pytest

from hansa import limits
from hansa.errors import BadArgument, BadFrame
from hansa.ids import routing_id
from hansa.topics.events import MessagesMissed
from hansa.topics.fanout import Exchange
from hansa.topics.inbox import Inbox, Reader, WhenSlow
from hansa.topics.open_mesh import Arrivals, Departures, OpenMesh
from hansa.topics.wants import WantState
from hansa.wire.publication import decode_publication, encode_origin
from tests.support.spot_mesh import NOBODY, FakeSubscriber

PAYLOAD_MAX = 1_000


class Node:
    """One machine, and words for what happens to it."""

    def __init__(self, number: int = 1, *, epoch: int = 7, feeds_max: int = 100) -> None:
        self.exchange = Exchange(PAYLOAD_MAX)
        self.machine = OpenMesh(
            self.exchange, Arrivals(), Departures(routing_id(number), epoch), feeds_max=feeds_max
        )

    def subscribe(self, text: str, spot: object = None) -> FakeSubscriber:
        inbox = Inbox(Reader(NOBODY), 1_000, 1 << 30, WhenSlow.DROP_OLDEST)
        prefix, is_pattern = text.removesuffix("*").encode(), text.endswith("*")
        one = FakeSubscriber(text, object() if spot is None else spot, inbox, prefix, is_pattern)
        self.machine.subscribe(one)
        return one

    def unsubscribe(self, one: FakeSubscriber) -> None:
        self.machine.unsubscribe(one)

    def publish(self, topic: str, payload: bytes = b"x") -> list[bytes]:
        return self.machine.publish(topic, payload)

    def hear(self, *publications: list[bytes]) -> list[MessagesMissed]:
        """What is missed, as it is told."""
        tells = [tell for frames in publications for tell in self.machine.hear(frames)]
        events = [tell.event for tell in tells if isinstance(tell.event, MessagesMissed)]
        assert len(events) == len(tells)
        return events


def numbers(one: FakeSubscriber) -> list[int]:
    return [sequence for _, _, sequence in one.received]


@pytest.mark.spec("SPT-20")
def test_what_is_published_reaches_local_and_remote_subscriptions() -> None:
    here, there = Node(1), Node(2)
    near, far = here.subscribe("zone:1"), there.subscribe("zone:1")
    there.hear(here.publish("zone:1", b"a"), here.publish("zone:1", b"b"))
    assert near.received == far.received == [("zone:1", b"a", 1), ("zone:1", b"b", 2)]


@pytest.mark.spec("SPT-20")
def test_a_publication_tells_who_counts() -> None:
    topic, payload, origin, sequence = decode_publication(Node(9, epoch=5).publish("zone:1", b"a"))
    assert (topic, payload, origin, sequence) == (b"zone:1", b"a", encode_origin(routing_id(9), 5), 1)


@pytest.mark.spec("SPT-20")
def test_a_name_does_not_receive_longer_names() -> None:
    here, there = Node(1), Node(2)
    exact, pattern = here.subscribe("zone:1"), here.subscribe("zone:*")
    here.hear(there.publish("zone:12", b"not mine"), there.publish("zone:1", b"mine"))
    here.publish("zone:12", b"nor this")
    assert [payload for _, payload, _ in exact.received] == [b"mine"]
    assert [payload for _, payload, _ in pattern.received] == [b"not mine", b"mine", b"nor this"]


@pytest.mark.spec("SPT-08")
def test_a_spot_that_matches_twice_receives_once() -> None:
    here, there, spot = Node(1), Node(2), object()
    everything, pattern, exact = (here.subscribe(text, spot) for text in ("*", "zone:*", "zone:1"))
    here.hear(there.publish("zone:1", b"by name"), there.publish("zone:2", b"by pattern"))
    here.publish("room:1", b"whatever")
    assert [[payload for _, payload, _ in one.received] for one in (everything, pattern, exact)] == [
        [b"whatever"],
        [b"by pattern"],
        [b"by name"],
    ]


def test_what_nobody_wants_is_counted_and_not_remembered() -> None:
    here, there = Node(1), Node(2)
    here.subscribe("zone:1")
    here.hear(there.publish("zone:12"), there.publish("zone:12"))
    assert here.machine.tally.unwanted_count == 2
    assert len(here.machine.arrivals) == 0


@pytest.mark.spec("SPT-22")
def test_a_gap_is_told_with_its_size_to_every_subscription_that_receives() -> None:
    here, there = Node(1), Node(2)
    exact, pattern, other = here.subscribe("zone:1"), here.subscribe("zone:*"), here.subscribe("zone:2")
    sent = [there.publish("zone:1") for _ in range(10)]
    assert here.hear(sent[0], sent[1]) == []
    assert here.hear(sent[6]) == [
        MessagesMissed(subscription="zone:1", topic="zone:1", count=4),
        MessagesMissed(subscription="zone:*", topic="zone:1", count=4),
    ]
    assert here.hear(sent[7], sent[9])[0].count == 1
    assert here.machine.tally.missed_count == 5
    assert [one.inbox.missed_count for one in (exact, pattern, other)] == [5, 5, 0]
    assert numbers(exact) == numbers(pattern) == [1, 2, 7, 8, 10]


@pytest.mark.spec("SPT-22")
def test_gaps_are_counted_for_each_publisher_and_topic() -> None:
    here, one, two = Node(1), Node(2), Node(3)
    here.subscribe("*")
    ones, twos = [one.publish("a") for _ in range(5)], [two.publish("a") for _ in range(5)]
    others = [one.publish("b") for _ in range(5)]
    assert here.hear(ones[0], twos[3], others[2], ones[1], twos[4], others[3]) == []
    assert [event.count for event in here.hear(ones[4])] == [2]


def test_the_first_publication_says_where_to_begin() -> None:
    here, there = Node(1), Node(2)
    here.subscribe("a")
    late = [there.publish("a") for _ in range(100)]
    assert here.hear(late[98], late[99]) == []
    assert here.machine.tally.missed_count == 0


def test_a_repeated_publication_is_counted_and_not_delivered() -> None:
    here, there = Node(1), Node(2)
    one = here.subscribe("a")
    sent = [there.publish("a") for _ in range(3)]
    here.hear(sent[0], sent[1], sent[1], sent[0], sent[2])
    assert numbers(one) == [1, 2, 3]
    assert here.machine.tally.duplicates_count == 2


def test_a_node_that_returns_under_its_id_begins_anew() -> None:
    here, before, after = Node(1), Node(2, epoch=7), Node(2, epoch=8)
    one = here.subscribe("a")
    sent = [before.publish("a") for _ in range(5)]
    assert here.hear(*sent, after.publish("a"), after.publish("a")) == []
    assert numbers(one) == [1, 2, 3, 4, 5, 1, 2]


@pytest.mark.parametrize("text", ["a", "a*", "*"])
def test_what_is_published_while_nobody_wants_it_is_not_missed(text: str) -> None:
    here, there = Node(1), Node(2)
    sent = [there.publish("a") for _ in range(10)]
    one = here.subscribe(text)
    here.hear(sent[0])
    here.unsubscribe(one)
    again = here.subscribe("a")
    assert here.hear(sent[8], sent[9]) == []
    assert numbers(again) == [9, 10]


@pytest.mark.parametrize(("leaving", "staying"), [("a", "*"), ("*", "a"), ("a*", "*"), ("a", "a*")])
def test_counting_goes_on_while_somebody_else_wants_it(leaving: str, staying: str) -> None:
    here, there = Node(1), Node(2)
    sent = [there.publish("a") for _ in range(10)]
    gone = here.subscribe(leaving)
    here.subscribe(staying)
    here.hear(sent[0])
    here.unsubscribe(gone)
    assert [event.count for event in here.hear(sent[9])] == [8]
    assert gone.inbox.missed_count == 0


def test_a_plain_publication_is_delivered_without_a_number() -> None:
    here = Node(1)
    one = here.subscribe("zone:1")
    assert here.hear([b"zone:1", b"a"], [b"zone:1", b"a"], [b"zone:1", b"b", b"some frame"]) == []
    assert one.received == [("zone:1", b"a", 0), ("zone:1", b"a", 0), ("zone:1", b"b", 0)]
    assert len(here.machine.arrivals) == 0


@pytest.mark.parametrize(
    "frames", [[b"a"], [b"", b"x"], [b"\xff", b"x"], [b"a" * 256, b"x"], [b"a", b"x", b"HPB1"]]
)
def test_what_is_no_publication_is_refused_and_changes_nothing(frames: list[bytes]) -> None:
    here = Node(1)
    one = here.subscribe("*")
    with pytest.raises(BadFrame):
        here.hear(frames)
    assert one.received == []
    assert here.exchange.feeds == {}


@pytest.mark.parametrize(
    ("topic", "payload"),
    [("", b""), ("zone:*", b""), ("a\0", b""), ("a", "text"), ("a", b"x" * (PAYLOAD_MAX + 1))],
)
def test_what_cannot_be_published_is_refused_and_not_numbered(topic: str, payload: bytes) -> None:
    here = Node(1)
    one = here.subscribe("*")
    with pytest.raises(BadArgument):
        here.publish(topic, payload)
    assert one.received == []
    assert decode_publication(here.publish("a", b"x" * PAYLOAD_MAX))[3] == 1
    assert here.exchange.published_count == 1


def test_subscriptions_change_who_gets_what_is_known_already() -> None:
    here = Node(1)
    spot = object()
    pattern = here.subscribe("zone:*", spot)
    here.publish("zone:1", b"1")
    exact = here.subscribe("zone:1", spot)
    here.publish("zone:1", b"2")
    here.unsubscribe(exact)
    here.publish("zone:1", b"3")
    here.unsubscribe(pattern)
    here.publish("zone:1", b"4")
    assert [payload for _, payload, _ in pattern.received] == [b"1", b"3"]
    assert [payload for _, payload, _ in exact.received] == [b"2"]


def test_an_exact_subscription_is_active_at_once_and_says_so() -> None:
    here = Node(1)
    one = here.subscribe("zone:1")
    assert {want.feed.topic: want.state for want in one.matched.values()} == {"zone:1": WantState.ACTIVE}
    here.unsubscribe(one)
    assert one.matched == {}


def test_wanted_topics_are_those_named_and_those_met() -> None:
    here, there = Node(1), Node(2)
    here.subscribe("zone:1")
    here.subscribe("zone:*")
    here.hear(there.publish("zone:2"), there.publish("room:1"))
    here.publish("zone:3")
    assert here.machine.wanted == {"zone:1": 2, "zone:2": 1, "zone:3": 1}


def test_a_mesh_of_endless_topics_is_remembered_within_bounds() -> None:
    here, there = Node(1, feeds_max=10), Node(2)
    one = here.subscribe("*")
    for number in range(100):
        here.hear(there.publish(f"job:{number}"))
        here.publish(f"answer:{number}")
        assert len(here.exchange.feeds) <= 10
    assert len(one.received) == 200


def test_a_subscription_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansa.topics.open_mesh.NODE_SUBSCRIPTIONS_MAX", 2)
    assert limits.NODE_SUBSCRIPTIONS_MAX > 2
    here = Node(1)
    here.subscribe("a")
    here.subscribe("b")
    with pytest.raises(BadArgument, match="2 subscriptions, which is the most"):
        here.subscribe("c")
    assert len(here.machine.interests) == 2
