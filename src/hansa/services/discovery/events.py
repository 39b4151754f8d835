"""The events of a discovery: how they follow from two lists, and how listeners are told. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import TypeAlias

from hansa.presence.provider_info import ProviderInfo


class ServiceState(StrEnum):
    """The state of a subscribed service. A service that is not subscribed is EMPTY."""

    EMPTY = "empty"
    """No provider was seen since it was subscribed."""
    AVAILABLE = "available"
    """At least one provider is listed."""
    UNAVAILABLE = "unavailable"
    """There were providers, and none is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAdded:
    """A provider of a subscribed service is listed."""

    provider: ProviderInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRemoved:
    """A provider is no longer listed, or its service no longer subscribed. It is as it was last shown."""

    provider: ProviderInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightChanged:
    """A provider stays, with another weight."""

    provider: ProviderInfo
    weight_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAvailable:
    """A service has a provider; it had none."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUnavailable:
    """The last provider of a service is gone."""

    service: str


DiscoveryEvent: TypeAlias = (
    ProviderAdded | ProviderRemoved | WeightChanged | ServiceAvailable | ServiceUnavailable
)


def events_between(
    service: str, before: tuple[ProviderInfo, ...], after: tuple[ProviderInfo, ...]
) -> list[DiscoveryEvent]:
    """The events that lead from one list of a service's providers to the next.

    In order: removals, additions, weights, availability. A provider whose routing id changed is another
    process at the same endpoint: it is removed and added.
    """
    old = {provider.endpoint: provider for provider in before}
    new = {provider.endpoint: provider for provider in after}
    removed: list[DiscoveryEvent] = []
    for provider in before:
        now = new.get(provider.endpoint)
        if now is None or now.routing_id != provider.routing_id:
            removed.append(ProviderRemoved(provider=provider))
    added: list[DiscoveryEvent] = []
    weighed: list[DiscoveryEvent] = []
    for provider in after:
        was = old.get(provider.endpoint)
        if was is None or was.routing_id != provider.routing_id:
            added.append(ProviderAdded(provider=provider))
        elif was.weight != provider.weight:
            weighed.append(WeightChanged(provider=provider, weight_before=was.weight))
    availability: list[DiscoveryEvent] = []
    if after and not before:
        availability.append(ServiceAvailable(service=service))
    elif before and not after:
        availability.append(ServiceUnavailable(service=service))
    return [*removed, *added, *weighed, *availability]


Listener = Callable[[DiscoveryEvent], None]


class Listeners:
    """Any number of callbacks, called at once and in the order in which they were added.

    A callback may add and remove listeners, or cause more events: these wait until all have heard the event
    before. A listener that was added after something happened does not hear of it, and a removed one hears
    nothing more. A callback that fails is reported to `on_failure`, and all others are called nevertheless.
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
        """Call it from now on; calling the result ends that."""
        number = next(self._numbers)
        self._listeners[number] = listener

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop

    def tell(self, events: list[DiscoveryEvent]) -> None:
        """Tell all listeners these events, in order."""
        if not events or not self._listeners:
            return
        self._untold.append((events, tuple(self._listeners)))
        if self._telling:
            return  # A callback caused these events; the call that is telling already continues with them.
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
                except Exception as error:  # The callback is the user's code.
                    self.failures_count += 1
                    self._on_failure(error)
