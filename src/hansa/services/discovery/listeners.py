"""Gives each event to every listener, in the order in which the events happened. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count

from hansa.services.discovery.events import DiscoveryEvent

Listener = Callable[[DiscoveryEvent], None]


class Listeners:
    """Any number of callbacks, called at once and in the order in which they were added.

    A callback may change what is listened to, or cause more events: these wait until all have heard the event
    before. Who was added after something happened does not hear of it, and who was removed hears nothing
    more. A callback that fails is told to `on_failure` and keeps nobody else from hearing.
    """

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._numbers = count()
        self._listeners: dict[int, Listener] = {}
        self._untold: deque[tuple[list[DiscoveryEvent], tuple[int, ...]]] = deque()
        self._telling = False
        self.failures_count = 0

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call it from now on; what is returned ends that."""
        number = next(self._numbers)
        self._listeners[number] = listener

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop

    def tell(self, events: list[DiscoveryEvent]) -> None:
        """These have happened."""
        if not events or not self._listeners:
            return
        self._untold.append((events, tuple(self._listeners)))
        if self._telling:
            return  # A callback caused these; whoever is telling goes on with them.
        self._telling = True
        try:
            while self._untold:
                self._tell(*self._untold.popleft())
        finally:
            self._telling = False

    def _tell(self, events: list[DiscoveryEvent], numbers: tuple[int, ...]) -> None:
        for event in events:
            for number in numbers:
                listener = self._listeners.get(number)
                if listener is None:
                    continue
                try:
                    listener(event)
                except Exception as error:  # The user's code.
                    self.failures_count += 1
                    self._on_failure(error)
