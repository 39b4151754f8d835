"""Everyone hears everything once, in order, whatever the callbacks do."""

import gc

import pytest

from hansa.runtime.mailboxes import EventFeed
from hansa.services.discovery.client import DiscoveryEvents
from hansa.services.discovery.events import DiscoveryEvent, Listeners, ServiceAvailable, ServiceUnavailable

ONE, TWO, THREE = (ServiceAvailable(service=name) for name in ("one", "two", "three"))


def unexpected(error: Exception) -> None:
    raise AssertionError("no listener was meant to fail") from error


@pytest.mark.spec("DIS-16")
def test_each_event_goes_to_all_in_the_order_in_which_they_came() -> None:
    listeners, told = Listeners(unexpected), list[tuple[str, DiscoveryEvent]]()
    for name in "abc":
        listeners.add(lambda event, name=name: told.append((name, event)))  # type: ignore[misc]
    listeners.tell([ONE, TWO])
    assert told == [(name, event) for event in (ONE, TWO) for name in "abc"]


@pytest.mark.spec("DIS-16")
def test_a_listener_that_fails_is_reported_and_hurts_nobody_else() -> None:
    failures: list[Exception] = []
    listeners, told = Listeners(failures.append), list[DiscoveryEvent]()

    def fail(event: DiscoveryEvent) -> None:
        raise ValueError(f"cannot bear {event}")

    listeners.add(fail)
    listeners.add(told.append)
    listeners.tell([ONE, TWO])
    assert told == [ONE, TWO]
    assert [type(failure) for failure in failures] == [ValueError, ValueError]
    assert listeners.failures_count == 2


def test_who_stopped_hears_nothing_more_even_of_what_is_being_told() -> None:
    listeners, told = Listeners(unexpected), list[DiscoveryEvent]()
    stop_second = None

    def first(event: DiscoveryEvent) -> None:
        assert stop_second is not None
        if event is TWO:
            stop_second()

    listeners.add(first)
    stop_second = listeners.add(told.append)
    listeners.tell([ONE, TWO, THREE])
    stop_second()
    assert told == [ONE]
    assert len(listeners) == 1


def test_who_comes_while_something_is_told_hears_what_happens_after_that() -> None:
    listeners, told = Listeners(unexpected), list[DiscoveryEvent]()

    def first(event: DiscoveryEvent) -> None:
        if event is ONE:
            listeners.add(told.append)

    listeners.add(first)
    listeners.tell([ONE, TWO])
    assert told == []
    listeners.tell([THREE])
    assert told == [THREE]


def test_what_a_listener_causes_is_told_to_all_behind_what_came_before() -> None:
    listeners, told = Listeners(unexpected), list[DiscoveryEvent]()
    late: list[DiscoveryEvent] = []

    def first(event: DiscoveryEvent) -> None:
        if event is ONE:
            listeners.tell([THREE])
            # Added when THREE had happened already.
            listeners.add(late.append)

    listeners.add(first)
    listeners.add(told.append)
    listeners.tell([ONE, TWO])
    assert told == [ONE, TWO, THREE]
    assert late == []


def test_an_interrupt_in_a_listener_passes_and_the_next_events_are_told() -> None:
    listeners, told = Listeners(unexpected), list[DiscoveryEvent]()

    def interrupt(event: DiscoveryEvent) -> None:
        if event is ONE:
            raise KeyboardInterrupt

    listeners.add(interrupt)
    listeners.add(told.append)
    with pytest.raises(KeyboardInterrupt):
        listeners.tell([ONE])
    listeners.tell([TWO])
    assert told == [TWO]


async def test_a_full_feed_loses_its_oldest_events_counted() -> None:
    drops: list[None] = []
    feed: EventFeed[DiscoveryEvent] = EventFeed("a feed", count_max=2, on_drop=lambda: drops.append(None))
    events = DiscoveryEvents(feed, lambda: None)
    for event in (ONE, TWO, THREE, ServiceUnavailable(service="one")):
        feed.put(event)
    assert (events.dropped_count, len(drops)) == (2, 2)
    events.close()
    assert [event async for event in events] == [THREE, ServiceUnavailable(service="one")]


async def test_an_iterator_that_nobody_holds_is_not_fed_any_more() -> None:
    listeners = Listeners(unexpected)
    feed: EventFeed[DiscoveryEvent] = EventFeed("a feed", count_max=2, on_drop=lambda: None)
    events = DiscoveryEvents(feed, listeners.add(feed.put))
    listeners.tell([ONE])
    assert await anext(events) is ONE
    del events
    gc.collect()
    assert len(listeners) == 0
