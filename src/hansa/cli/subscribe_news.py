"""What happens to subscriptions, as lines beside the messages themselves."""

from __future__ import annotations

from collections.abc import Container, Iterable

from hansa.cli.log_lines import LogLines
from hansa.ids import format_id
from hansa.messaging.spot import (
    MessagesDropped,
    MessagesMissed,
    SpotEvent,
    Subscription,
    SubscriptionActivated,
    SubscriptionSuspended,
)


def tell_start(log: LogLines, subscriptions: Iterable[Subscription], owned: Container[str]) -> None:
    """Those that wait for an owner; the others are told by their events. `owned` are the known topics."""
    for subscription in subscriptions:
        if not any(topic in owned for topic in subscription.topics):
            what = "no topic matches yet" if subscription.is_pattern else "nobody owns it yet"
            log.tell("pending", f"{subscription.text}: pending, {what}", subscription=subscription.text)


def tell_event(log: LogLines, event: SpotEvent) -> None:
    """One event of a spot; those that do not concern subscriptions are passed over."""
    match event:
        case SubscriptionActivated(subscription=text, topic=topic, owner=owner):
            sentence = f"{_name(text, topic)}: active, owned by {format_id(owner)}"
            log.tell("active", sentence, subscription=text, topic=topic, owner=format_id(owner))
        case SubscriptionSuspended(subscription=text, topic=topic, owner=owner):
            sentence = f"{_name(text, topic)}: pending, {format_id(owner)} owns it no more"
            log.tell("pending", sentence, subscription=text, topic=topic, owner=format_id(owner))
        case MessagesMissed(subscription=text, topic=topic, count=count):
            sentence = f"{_name(text, topic)}: {count} missed on their way from the owner"
            log.tell("missed", sentence, subscription=text, topic=topic, count=count)
        case MessagesDropped(subscription=text, count=count):
            sentence = f"{text}: {count} dropped, because whoever reads the lines was too slow"
            log.tell("dropped", sentence, subscription=text, count=count)


def tell_end(log: LogLines, shown_count: int, subscriptions: Iterable[Subscription]) -> None:
    """What was shown, and what was not."""
    subscriptions = tuple(subscriptions)
    missed_count = sum(subscription.missed_count for subscription in subscriptions)
    dropped_count = sum(subscription.dropped_count for subscription in subscriptions)
    log.tell(
        "ended",
        f"{shown_count} messages, {missed_count} missed, {dropped_count} dropped",
        messages_count=shown_count,
        missed_count=missed_count,
        dropped_count=dropped_count,
    )


def _name(text: str, topic: str) -> str:
    return topic if text == topic else f"{topic} ({text})"
