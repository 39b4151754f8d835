"""The directory: which providers offer which service, according to several registries. Pure.

Theory of operation. Every registry sends its whole list again and again, numbered. A *voice* is one registry
whose list counts now; it is *heard* while at least one connection (*source*) speaks for it. The known
providers are the union of the voices' lists. If several lists have the same provider (service and endpoint),
the claim with the highest epoch counts, then that of the lower registry id. A tombstone in any list hides
claims up to its epoch.

- A voice whose last source is lost keeps counting for a *grace*: a provider that registered there moments ago
  may be known to no other registry yet, and is on its way to the next one. If the registry speaks again
  within the grace, its voice goes on.
- A voice ends with its grace or when it is silent for too long, whichever is sooner, and its list goes with
  it. Its tombstones stay for a while (`Buried`): the other registries may not have heard of them yet, and
  would bring back what the program has seen removed.
- While no voice is heard, what is known stays as it is, whichever grace ends: silence is no news. The next
  list of any registry replaces it (beside those in their grace). A registry that says that it is settling
  only adds to it, until it or another one speaks as settled.
- A registry is settling when it has just started, or woken from a long stop, and its providers are on their
  way back. Until it has settled, its lists only add to its own earlier ones, too; what it removes meanwhile
  has a tombstone.
- The number of an ended voice is remembered for a while, and no list with a lower number is believed from a
  registry that returns under that id. A list with the same number is believed: a registry gives a newcomer
  the list that it last gave to all.
- After that while any number is believed, so that a registry whose clock was set back is heard again.
- A list with the same number as before brings nothing new, except that its registry is alive.

The tuples of a registry's list are the same objects while a service does not change (`ListReader`). So one
change among ten thousand providers costs one comparison per service, and only the changed service is merged.

Subscriptions are a local filter: all services are known, only subscribed ones are shown and reported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hansa.errors import BadArgument
from hansa.limits import (
    REGISTRIES_MAX,
    REGISTRIES_REMEMBERED_MAX,
    REGISTRY_GRACE_S,
    SERVICE_NAME_BYTES_MAX,
    SERVICES_MAX,
    TOMBSTONES_MAX,
)
from hansa.presence.provider_info import ProviderInfo
from hansa.presence.statements import carried, epoch_wall_s
from hansa.services.discovery.events import (
    DiscoveryEvent,
    ServiceAvailable,
    ServiceState,
    ServiceUnavailable,
    events_between,
)
from hansa.wire.fields import encode_text
from hansa.wire.listing import ProviderEntry, ServiceList, Tombstone


class Directory:
    """Merges lists and returns what changed. Times are the caller's, in seconds, and never go back."""

    def __init__(self, *, silence_s: float) -> None:
        if not silence_s > 0:
            raise BadArgument(
                f"silence_s is {silence_s}; a registry must be allowed to be silent for a while"
            )
        self._silence_s = silence_s
        self._voices: dict[int, _Voice] = {}
        self._speaks_for: dict[bytes, int] = {}
        self._ended: dict[int, _Ended] = {}
        self._buried = Buried(keep_s=silence_s)
        # The known claims, as the registries told them and as they are shown.
        self._claims: dict[str, tuple[ProviderEntry, ...]] = {}
        self._known: dict[str, tuple[ProviderInfo, ...]] = {}
        # The claims when the last voice was lost; kept while the voices that came after it are settling.
        self._memory: dict[str, tuple[ProviderEntry, ...]] = {}
        # Services that may have changed, to be merged when a voice is heard again.
        self._unmerged: set[str] = set()
        self._wanted: set[str] = set()
        self._wants_all = False
        self._unwanted: set[str] = set()
        self._unavailable: dict[str, None] = {}
        self.lists_count = 0
        self.older_count = 0
        self.repeated_count = 0

    # -- what happens

    def hear(self, told: ServiceList, *, source: bytes, now: float) -> list[DiscoveryEvent]:
        """Take in a list from the connection `source`; returns the changes of subscribed services."""
        changed, registry_id = self._end_overdue(now), told.registry_id
        if told.list_seq < self._least_seq(registry_id, now):
            self.older_count += 1
            return self._settle(changed)
        if self._speaks_for.get(source) != registry_id:
            changed |= self._leave(source, now)
        self._speaks_for[source] = registry_id
        if not told.is_settling:
            # Claims that were kept because nothing newer was known are replaced.
            changed.update(self._memory)
            self._memory = {}
        voice = self._voices.get(registry_id)
        if voice is not None and told.list_seq == voice.list_seq:
            self.repeated_count += 1
            voice.heard_at = now
            voice.sources.add(source)
            return self._settle(changed)
        self.lists_count += 1
        if voice is None:
            self._ended.pop(registry_id, None)
            voice = _Voice(list_seq=0, heard_at=now, services={}, tombstones=(), buried={}, sources=set())
            self._voices[registry_id] = voice
        services = carried(voice.services, told) if told.is_settling else told.services
        changed |= _differences(voice.services, services)
        if voice.tombstones != told.tombstones:
            former, present = set(voice.tombstones), set(told.tombstones)
            changed.update(stone.service for stone in former ^ present)
            changed |= self._buried.remember((s for s in voice.tombstones if s not in present), now=now)
            voice.tombstones, voice.buried = told.tombstones, _by_service(told.tombstones)
        voice.list_seq, voice.heard_at, voice.services = told.list_seq, now, services
        voice.sources.add(source)
        return self._settle(changed)

    def lost(self, source: bytes, *, now: float) -> list[DiscoveryEvent]:
        """A connection broke; one that never told a list changes nothing."""
        return self._settle(self._end_overdue(now) | self._leave(source, now))

    def tick(self, *, now: float) -> list[DiscoveryEvent]:
        """Time passed: call it at `deadline()`."""
        return self._settle(self._end_overdue(now))

    def deadline(self) -> float | None:
        """When the next voice will end, of silence or with its grace; None while there is no voice."""
        return min(map(self._ends_at, self._voices.values()), default=None)

    # -- the filter

    def subscribe(self, service: str) -> list[DiscoveryEvent]:
        """Show this service from now on; its providers known already are told at once.

        Not counted: one `unsubscribe` ends any number of them. Raises BadArgument for an impossible name.
        """
        encode_text(service, "service name", bytes_min=1, bytes_max=SERVICE_NAME_BYTES_MAX)
        is_new = not self.follows(service)
        self._wanted.add(service)
        self._unwanted.discard(service)
        return self._shown(service, (), self._known.get(service, ())) if is_new else []

    def unsubscribe(self, service: str) -> list[DiscoveryEvent]:
        """Stop showing it, also under `subscribe_all`; the providers that were shown are told as removed."""
        if not self.follows(service):
            return []
        self._wanted.discard(service)
        if self._wants_all:
            self._unwanted.add(service)
        events = self._shown(service, self._known.get(service, ()), ())
        self._unavailable.pop(service, None)
        return events

    def subscribe_all(self) -> list[DiscoveryEvent]:
        """Show every service, also later ones and those unsubscribed before."""
        new = [service for service in sorted(self._known) if not self.follows(service)]
        self._wants_all = True
        self._unwanted.clear()
        return [event for service in new for event in self._shown(service, (), self._known[service])]

    def follows(self, service: str) -> bool:
        """True when the service is subscribed, by name or with all."""
        return service in self._wanted or (self._wants_all and service not in self._unwanted)

    # -- what is known of subscribed services

    def providers(self, service: str) -> tuple[ProviderInfo, ...]:
        """The service's providers, in the order of their endpoints; none if it is not subscribed."""
        return self._known.get(service, ()) if self.follows(service) else ()

    def state(self, service: str) -> ServiceState:
        if self.providers(service):
            return ServiceState.AVAILABLE
        return ServiceState.UNAVAILABLE if service in self._unavailable else ServiceState.EMPTY

    @property
    def services(self) -> dict[str, tuple[ProviderInfo, ...]]:
        """All subscribed services that have providers, in the order of their names."""
        candidates: Iterable[str] = self._known if self._wants_all else self._wanted & self._known.keys()
        return {service: self._known[service] for service in sorted(candidates) if self.follows(service)}

    @property
    def registries_heard(self) -> tuple[int, ...]:
        """Ids of the registries that are heard now, ascending; without those in their grace."""
        return tuple(sorted(registry_id for registry_id, voice in self._voices.items() if voice.sources))

    @property
    def lists_heard(self) -> dict[int, int]:
        """The number of the newest list of each registry that is heard, by registry id."""
        return {registry_id: self._voices[registry_id].list_seq for registry_id in self.registries_heard}

    @property
    def services_count(self) -> int:
        return len(self._known)

    @property
    def providers_count(self) -> int:
        return sum(map(len, self._known.values()))

    # -- voices

    def _least_seq(self, registry_id: int, now: float) -> int:
        """The lowest number that is believed from this registry."""
        if (voice := self._voices.get(registry_id)) is not None:
            return voice.list_seq
        ended = self._ended.get(registry_id)
        return ended.list_seq if ended is not None and now < ended.at + self._silence_s else 0

    def _ends_at(self, voice: _Voice) -> float:
        silent_at = voice.heard_at + self._silence_s
        return silent_at if voice.sources else min(silent_at, voice.lost_at + REGISTRY_GRACE_S)

    def _leave(self, source: bytes, now: float) -> set[str]:
        """A source no longer speaks for its registry; returns the services that this may change."""
        registry_id = self._speaks_for.pop(source, None)
        if registry_id is None:
            return set()
        voice = self._voices[registry_id]
        voice.sources.discard(source)
        if voice.sources:
            return set()
        voice.lost_at = now
        self._remember()
        # One connection under ever new ids must not fill the memory with lists: the longest waiting voice
        # goes.
        waiting = [i for i, other in self._voices.items() if not other.sources]
        if len(waiting) <= REGISTRIES_MAX:
            return set()
        return self._end(min(waiting, key=lambda i: self._voices[i].lost_at), now)

    def _end_overdue(self, now: float) -> set[str]:
        """End voices that were silent for too long or whose grace is over; returns the affected services."""
        overdue = [i for i, voice in self._voices.items() if now >= self._ends_at(voice)]
        changed = self._buried.expire(now=now)
        for registry_id in overdue:
            changed |= self._end(registry_id, now)
        return changed

    def _end(self, registry_id: int, now: float) -> set[str]:
        """A voice no longer counts; returns the services that this may change."""
        voice = self._voices.pop(registry_id)
        for source in voice.sources:
            del self._speaks_for[source]
        self._ended[registry_id] = _Ended(list_seq=voice.list_seq, at=now)
        evicted = self._buried.remember(voice.tombstones, now=now)
        self._remember()
        if len(self._ended) > REGISTRIES_REMEMBERED_MAX:
            del self._ended[next(iter(self._ended))]
        return {*voice.services, *voice.buried, *evicted}

    def _remember(self) -> None:
        """Keep the known claims, as they were told, if no voice is heard any longer."""
        if not self._speaks_for:
            self._memory = dict(self._claims)

    # -- merging

    def _settle(self, changed: set[str]) -> list[DiscoveryEvent]:
        """Bring the known claims up to date with the voices; returns the changes of subscribed services."""
        self._unmerged |= changed
        if not self._speaks_for:
            return []
        changed, self._unmerged = self._unmerged, set()
        # Lower registry ids first: the first of equal claims is kept.
        voices = [self._voices[registry_id] for registry_id in sorted(self._voices)]
        events: list[DiscoveryEvent] = []
        # Sorted, so that one seed always yields one history.
        for service in sorted(changed):
            before = self._known.get(service, ())
            claims = _merged(service, voices, self._memory.get(service, ()), self._buried)
            after = _shown_as(service, claims, before)
            if after:
                self._claims[service], self._known[service] = claims, after
            else:
                self._claims.pop(service, None)
                self._known.pop(service, None)
            if self.follows(service):
                events += self._shown(service, before, after)
        return events

    def _shown(
        self, service: str, before: tuple[ProviderInfo, ...], after: tuple[ProviderInfo, ...]
    ) -> list[DiscoveryEvent]:
        events = events_between(service, before, after)
        match events[-1] if events else None:
            case ServiceAvailable():
                self._unavailable.pop(service, None)
            case ServiceUnavailable():
                self._unavailable[service] = None
                # Under subscribe_all the registries choose the names, so the names are not kept for ever.
                if len(self._unavailable) > SERVICES_MAX:
                    del self._unavailable[next(iter(self._unavailable))]
        return events


@dataclass(slots=True, kw_only=True)
class _Voice:
    list_seq: int
    heard_at: float
    services: Mapping[str, tuple[ProviderEntry, ...]]
    tombstones: tuple[Tombstone, ...]
    buried: dict[str, dict[str, int]]
    sources: set[bytes]
    # When the last source was lost; without meaning while there is one.
    lost_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    list_seq: int
    at: float


class Buried:
    """Tombstones: the highest epoch by service and endpoint.

    Each is kept for `keep_s`; too many push out the oldest.
    """

    def __init__(self, *, keep_s: float, count_max: int = TOMBSTONES_MAX) -> None:
        self._keep_s = keep_s
        self._count_max = count_max
        # All are kept equally long, so they are in the order of their ends.
        self._stones: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def remember(self, stones: Iterable[Tombstone], *, now: float) -> set[str]:
        """Remember tombstones that are no longer told; returns the services of older ones that had to go."""
        for stone in stones:
            key = (stone.service, stone.endpoint)
            epoch, _ = self._stones.pop(key, (stone.epoch, now))
            self._stones[key] = max(epoch, stone.epoch), now + self._keep_s
        return {self._stones.popitem(last=False)[0][0] for _ in range(len(self._stones) - self._count_max)}

    def expire(self, *, now: float) -> set[str]:
        """Forget tombstones that were kept long enough; returns their services."""
        gone: set[str] = set()
        while self._stones and next(iter(self._stones.values()))[1] <= now:
            gone.add(self._stones.popitem(last=False)[0][0])
        return gone

    def hides(self, service: str, entry: ProviderEntry) -> bool:
        stone = self._stones.get((service, entry.endpoint))
        return stone is not None and stone[0] >= entry.epoch


def _differences(
    before: Mapping[str, tuple[ProviderEntry, ...]], after: Mapping[str, tuple[ProviderEntry, ...]]
) -> set[str]:
    """Services that are not the same object in both: all that changed, and maybe others."""
    changed = {service for service, entries in after.items() if before.get(service) is not entries}
    return changed | (before.keys() - after.keys())


def _by_service(tombstones: tuple[Tombstone, ...]) -> dict[str, dict[str, int]]:
    """For each service the highest epoch of a tombstone per endpoint."""
    buried: dict[str, dict[str, int]] = {}
    for stone in tombstones:
        epochs = buried.setdefault(stone.service, {})
        epochs[stone.endpoint] = max(stone.epoch, epochs.get(stone.endpoint, 0))
    return buried


def _merged(
    service: str, voices: list[_Voice], memory: tuple[ProviderEntry, ...], buried: Buried
) -> tuple[ProviderEntry, ...]:
    """The claims that count for one service, by endpoint. The memory counts where no voice speaks."""
    claims: dict[str, ProviderEntry] = {}
    for voice in voices:
        for entry in voice.services.get(service, ()):
            best = claims.get(entry.endpoint)
            if best is None or entry.epoch > best.epoch:
                claims[entry.endpoint] = entry
    for entry in memory:
        claims.setdefault(entry.endpoint, entry)
    for voice in voices:
        for endpoint, epoch in voice.buried.get(service, {}).items():
            if endpoint in claims and epoch >= claims[endpoint].epoch:
                del claims[endpoint]
    shown = (claims[endpoint] for endpoint in sorted(claims))
    return tuple(entry for entry in shown if not buried.hides(service, entry))


def _shown_as(
    service: str, claims: tuple[ProviderEntry, ...], before: tuple[ProviderInfo, ...]
) -> tuple[ProviderInfo, ...]:
    """Claims as they are shown; a provider that did not change is the same object as before."""
    known = {provider.endpoint: provider for provider in before}
    return tuple(_info(service, entry, known.get(entry.endpoint)) for entry in claims)


def _info(service: str, entry: ProviderEntry, known: ProviderInfo | None) -> ProviderInfo:
    registered_at = epoch_wall_s(entry.epoch)
    if (
        known is not None
        and known.routing_id == entry.routing_id
        and known.weight == entry.weight
        and known.registered_at == registered_at
    ):
        return known
    return ProviderInfo(
        service=service,
        endpoint=entry.endpoint,
        routing_id=entry.routing_id,
        weight=entry.weight,
        registered_at=registered_at,
    )
