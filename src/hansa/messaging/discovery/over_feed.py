"""A discovery's events, for a task that reads them when it gets to it."""

from __future__ import annotations

from hansa.messaging.discovery.events import DiscoveryEvent
from hansa.transport.over_events import EventStream


class DiscoveryEvents(EventStream[DiscoveryEvent]):
    """An async iterator over a discovery's events, from the call that made it on.

    It ends after `close`, or when the discovery closes, once what it kept is read. Cancelling a step takes
    nothing out. One that is thrown away costs nothing more.
    """
