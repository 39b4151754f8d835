"""Words for the numbers of messages: what a subscription missed, what it got, and an owner that returns."""

from hansa.topics.events import MessagesMissed, SpotEvent
from tests.support.spot_mesh import EPOCH, FakeSubscriber, MeshBench, X, told


def missed(one: FakeSubscriber, count: int, topic: str = "t") -> SpotEvent:
    """What a subscription is told."""
    return MessagesMissed(subscription=one.text, topic=topic, count=count)


def missed_by(events: list[SpotEvent]) -> int:
    """All that these events say was missed."""
    return sum(event.count for event in events if isinstance(event, MessagesMissed))


def numbers(one: FakeSubscriber) -> list[int]:
    """Of what it has received since this was asked last."""
    return [sequence for _, _, sequence in one.received]


def active(sequence: int = 0, *, retain: bool = False, text: str = "t") -> tuple[MeshBench, FakeSubscriber]:
    """A subscription that X has confirmed."""
    bench = MeshBench()
    one = bench.subscribe(text)
    bench.join(X, "t")
    bench.confirm(X, "t", sequence, retain=retain)
    return bench, one


def returned(bench: MeshBench, sequence: int, *, epoch: int = EPOCH, retain: bool = False) -> list[SpotEvent]:
    """X comes back and confirms again."""
    bench.join(X, "t")
    return told(bench.confirm(X, "t", sequence, epoch=epoch, retain=retain))
