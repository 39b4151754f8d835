"""`hansa subscribe`: the messages of topics as lines, in a shell, and the events of subscriptions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Container, Iterable
from contextlib import suppress
from typing import Annotated, Any

from hansa.cli.arguments import Number, Parameter
from hansa.cli.log_lines import LogLines, visible
from hansa.cli.mesh_options import ANY_MESH, MeshOptions
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions, Whole
from hansa.cli.standard_streams import Output, parts_object
from hansa.cli.stop_signals import until_stopped
from hansa.ids import format_id
from hansa.runtime.loops import run
from hansa.topics import (
    MessagesDropped,
    MessagesMissed,
    Spot,
    SpotEvent,
    Subscription,
    SubscriptionActivated,
    SubscriptionSuspended,
    TopicMessage,
)
from hansa.topics.names import check_pattern, check_topic, is_pattern
from hansa.transport import Environment


def message_line(message: TopicMessage, *, for_terminal: bool) -> bytes:
    """The topic, a tab, the payload.

    The payload is as it is, but for what would make it several lines: a line end at its end is left out,
    others are written `\\n`. A terminal gets nothing that it would obey, and escapes for what is no text.
    """
    payload = message.payload.removesuffix(b"\n")
    if for_terminal:
        payload = visible(payload.decode(errors="backslashreplace")).encode()
    else:
        payload = payload.replace(b"\n", b"\\n")
    topic = visible(message.topic) if for_terminal else message.topic
    return topic.encode() + b"\t" + payload + b"\n"


def message_object(message: TopicMessage) -> dict[str, Any]:
    """As JSON: the payload as text if it is text, else as base64."""
    shown = parts_object([message.payload])
    return {
        "topic": message.topic,
        "encoding": shown["encoding"],
        "payload": shown["parts"][0],
        "sequence": message.sequence or None,
    }


def tell_start(log: LogLines, subscriptions: Iterable[Subscription], owned: Container[str]) -> None:
    """Report subscriptions that wait for an owner; the others have events. `owned` are the known topics."""
    for subscription in subscriptions:
        if not any(topic in owned for topic in subscription.topics):
            what = "no topic matches yet" if subscription.is_pattern else "nobody owns it yet"
            log.tell("pending", f"{subscription.text}: pending, {what}", subscription=subscription.text)


def tell_event(log: LogLines, event: SpotEvent) -> None:
    """Report one event of a spot; events that are not about subscriptions are ignored."""
    match event:
        case SubscriptionActivated(subscription=text, topic=topic, owner=owner):
            sentence = f"{_name(text, topic)}: active, owned by {format_id(owner)}"
            log.tell("active", sentence, subscription=text, topic=topic, owner=format_id(owner))
        case SubscriptionSuspended(subscription=text, topic=topic, owner=owner):
            sentence = f"{_name(text, topic)}: pending, {format_id(owner)} no longer owns it"
            log.tell("pending", sentence, subscription=text, topic=topic, owner=format_id(owner))
        case MessagesMissed(subscription=text, topic=topic, count=count):
            sentence = f"{_name(text, topic)}: {count} missed on their way from the owner"
            log.tell("missed", sentence, subscription=text, topic=topic, count=count)
        case MessagesDropped(subscription=text, count=count):
            sentence = f"{text}: {count} dropped, because the reader of the lines was too slow"
            log.tell("dropped", sentence, subscription=text, count=count)


def tell_end(log: LogLines, shown_count: int, subscriptions: Iterable[Subscription]) -> None:
    """Report how many messages were shown, and how many were not."""
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


def subscribe(
    topic_or_pattern: str,
    /,
    *more: str,
    count: Annotated[Whole | None, Parameter(validator=Number(gte=1))] = None,
    mesh: MeshOptions = ANY_MESH,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Print the messages of topics, a line each: the topic, a tab, the payload.

    A pattern has one `*`, at its end, and stands for all topics that begin so, also later ones. Line ends
    inside a payload are written `\\n`, and a terminal gets escapes for what is no text.

    On stderr it says when a subscription becomes active or waits for an owner, and how many messages were
    missed (lost between nodes) or dropped (nobody read the lines, and 10,000 waited already). Ctrl-C or
    SIGTERM ends it in order.

    Examples:

        hansa subscribe chat:room1
        hansa subscribe 'zone:12:*' 'zone:13:*' --json
        hansa subscribe config:flags --count 1 | cut -f 2-

    Parameters
    ----------
    topic_or_pattern
        A topic's name, or a pattern such as `'chat:*'`; quote it, or the shell may take the `*` for itself.
    more
        Further ones. A message that several of them match is printed once.
    count
        End after so many messages.
    as_json
        An object for each message, with its payload exactly, as text or base64; and for each line on stderr.
    """
    wanted = tuple(dict.fromkeys((topic_or_pattern, *more)))
    for text in wanted:
        (check_pattern if is_pattern(text) else check_topic)(text)
    run(follow(wanted, mesh, tls.environment(), count_max=count, as_json=as_json))


async def follow(
    wanted: tuple[str, ...],
    mesh: MeshOptions,
    environment: Environment,
    *,
    count_max: int | None,
    as_json: bool,
) -> None:
    """Subscribe and print, until there were enough, a signal comes, or the reader of the lines has left.

    Raises TimedOut when no registry answers.
    """
    printer = Printer(count_max=count_max, as_json=as_json)
    subscriptions: list[Subscription] = []
    with LogLines(as_json=as_json, descriptor=2) as log:
        async with until_stopped(), mesh.joined("subscribe", environment) as node, node.spot() as spot:
            # Before the subscriptions, so that their first events are among these.
            events = spot.events()
            for text in wanted:
                subscriptions.append(await spot.subscribe(text))
            if node.has_owners:
                tell_start(log, subscriptions, node.topics)
            async with asyncio.TaskGroup() as group:
                telling = group.create_task(_tell_events(log, events), name="telling events")
                await printer.print_all(spot)
                telling.cancel()
        printer.output.flush()
        tell_end(log, printer.printed_count, subscriptions)


async def _tell_events(log: LogLines, events: AsyncIterator[SpotEvent]) -> None:
    async for event in events:
        tell_event(log, event)


class Printer:
    """Prints messages, up to a number of them."""

    def __init__(self, *, count_max: int | None, as_json: bool) -> None:
        self.output = Output()
        self._count_max = count_max
        self._as_json = as_json
        self._to_terminal = sys.stdout.isatty()

    @property
    def printed_count(self) -> int:
        """Messages written, a line each; also those of a write that was cancelled and went on."""
        return self.output.lines_count

    async def print_all(self, spot: Spot) -> None:
        """Print until the last wanted message, or until the reader of the lines has left.

        All waiting messages are written at once. While that stalls nothing is received: messages wait in the
        subscriptions, where they are bounded and counted.
        """
        with suppress(BrokenPipeError):
            while self._count_max is None or self.printed_count < self._count_max:
                messages = await spot.recv_all()
                if self._count_max is not None:
                    del messages[self._count_max - self.printed_count :]
                await self.output.write(b"".join(map(self._line, messages)))

    def _line(self, message: TopicMessage) -> bytes:
        if self._as_json:
            return json.dumps(message_object(message)).encode() + b"\n"
        return message_line(message, for_terminal=self._to_terminal)
