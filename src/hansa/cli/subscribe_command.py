"""`hansa subscribe`: the messages of topics as lines, in a shell."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from hansa.cli.exit_status import OK, complain
from hansa.cli.fast_loop import run
from hansa.cli.log_lines import LogLines
from hansa.cli.mesh_options import ANY_MESH, Mesh
from hansa.cli.message_line import message_line, message_object
from hansa.cli.registry_options import NO_TLS, AsJson, TlsFiles, Whole
from hansa.cli.standard_streams import Output
from hansa.cli.stop_signals import until_stopped
from hansa.cli.subscribe_news import tell_end, tell_event, tell_start
from hansa.errors import HansaError
from hansa.messaging.spot import Spot, SpotEvent, Subscription, TopicMessage
from hansa.messaging.spot.names import check_pattern, check_topic, is_pattern
from hansa.transport import Tls


def subscribe(
    topic_or_pattern: str,
    /,
    *more: str,
    count: Annotated[Whole | None, Parameter(validator=Number(gte=1))] = None,
    mesh: Mesh = ANY_MESH,
    as_json: AsJson = False,
    tls: TlsFiles = NO_TLS,
) -> int:
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
        Further ones. Who is matched by several gets a message once.
    count
        End after so many messages.
    as_json
        An object for each message, with its payload exactly, as text or base64; and for each line on stderr.
    """
    wanted = tuple(dict.fromkeys((topic_or_pattern, *more)))
    try:
        for text in wanted:
            (check_pattern if is_pattern(text) else check_topic)(text)
        run(follow(wanted, mesh, tls.credentials(), count_max=count, as_json=as_json))
    except HansaError as error:
        return complain("subscribe", error, as_json=as_json)
    return OK


async def follow(
    wanted: tuple[str, ...], mesh: Mesh, tls: Tls | None, *, count_max: int | None, as_json: bool
) -> None:
    """Subscribe and print, until there were enough, a signal comes, or the reader of the lines has left.

    Raises TimedOut when no registry answers.
    """
    printer = Printer(count_max=count_max, as_json=as_json)
    subscriptions: list[Subscription] = []
    with LogLines(as_json=as_json, descriptor=2) as log:
        async with until_stopped(), mesh.joined("subscribe", tls) as node, node.spot() as spot:
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
    """Prints messages, up to so many."""

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
        """Returns after the last message that is wanted, and when the reader of the lines has left.

        All that wait are written at once. While that stalls nothing is received: messages wait in the
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
