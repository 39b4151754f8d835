"""What registries must agree about: claims of one key, the entries of a list, and tombstones. Pure.

A claim says that a provider offers a service at an endpoint. One key (service, endpoint) may have several
claims: the provider has moved from one registry to another, a restarted provider has a new routing id, or two
processes took the same endpoint while their registries could not hear each other. Every registry decides by
the same rule, so that registries which know the same claims show the same entry:

- a claim up to the key's tombstone is dead;
- of one provider (one routing id) the highest epoch counts: it has moved;
- of several providers a living one beats an orphaned one; of living ones the first to come stays (the lowest
  epoch), of orphaned ones the last to come is the likeliest to return (the highest epoch);
- then the lower registry id decides.

Tombstones keep a registry which has not heard of a removal from bringing the entry back. No peer can push out
the tombstones of others. Of one provider as many are kept as it may have entries; beyond that its own oldest
go. So removing an entry always works, and a provider that uses up many names loses only its own. In all
`count_max` are kept: own tombstones and those of other registries have at least half of that each. Of the
others', the registry that told the most loses its oldest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from hansa.limits import PROVIDER_ENTRIES_MAX, PROVIDERS_MAX, SERVICES_MAX, TOMBSTONES_MAX
from hansa.wire.listing import LIST_FRAMES_MAX, ProviderEntry, Tombstone

Key: TypeAlias = tuple[str, str]
"""Service name and advertised endpoint, in its canonical spelling."""

_HEAD_FRAMES = 4
_SERVICE_FRAMES = 2
_PROVIDER_FRAMES = 3


class EntryClaim(NamedTuple):
    """A provider's entry and the registry that claims it. It is alive when neither of the two is away."""

    entry: ProviderEntry
    registry_id: int
    is_alive: bool


def newest_by_id(claims: Iterable[EntryClaim], dead_epoch: int) -> dict[bytes, EntryClaim]:
    """For each provider the claim that counts, by its routing id."""
    newest: dict[bytes, EntryClaim] = {}
    for claim in claims:
        if claim.entry.epoch <= dead_epoch:
            continue
        known = newest.get(claim.entry.routing_id)
        if known is None or _novelty(claim) > _novelty(known):
            newest[claim.entry.routing_id] = claim
    return newest


def prevailing(newest: Mapping[bytes, EntryClaim]) -> EntryClaim | None:
    """The claim that every registry shows, of the result of `newest_by_id`."""
    return min(newest.values(), key=_rank, default=None)


def _novelty(claim: EntryClaim) -> tuple[int, bool, int]:
    return claim.entry.epoch, claim.is_alive, -claim.registry_id


def _rank(claim: EntryClaim) -> tuple[bool, int, int]:
    epoch = claim.entry.epoch
    return not claim.is_alive, epoch if claim.is_alive else -epoch, claim.registry_id


class Entries:
    """The entries of one list. Entries of a service are returned in the order of their endpoints."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, ProviderEntry]] = {}
        self._changed: dict[str, None] = {}
        self.providers_count = 0

    @property
    def services(self) -> list[str]:
        return sorted(self._services)

    @property
    def services_count(self) -> int:
        return len(self._services)

    @property
    def is_changed(self) -> bool:
        return bool(self._changed)

    def get(self, service: str, endpoint: str) -> ProviderEntry | None:
        providers = self._services.get(service)
        return None if providers is None else providers.get(endpoint)

    def providers(self, service: str) -> tuple[ProviderEntry, ...]:
        providers = self._services.get(service, {})
        return tuple(providers[endpoint] for endpoint in sorted(providers))

    def has_room(self, service: str) -> bool:
        """Whether one more provider of this service fits into a list that every reader accepts."""
        is_new = service not in self._services
        services_count = len(self._services) + is_new
        providers_count = self.providers_count + 1
        frames_count = _HEAD_FRAMES + _SERVICE_FRAMES * services_count + _PROVIDER_FRAMES * providers_count
        return (
            services_count <= SERVICES_MAX
            and providers_count <= PROVIDERS_MAX
            and frames_count <= LIST_FRAMES_MAX
        )

    def put(self, service: str, entry: ProviderEntry) -> None:
        providers = self._services.setdefault(service, {})
        if entry.endpoint not in providers:
            self.providers_count += 1
        providers[entry.endpoint] = entry
        self._changed[service] = None

    def remove(self, service: str, endpoint: str) -> None:
        providers = self._services[service]
        del providers[endpoint]
        if not providers:
            del self._services[service]
        self.providers_count -= 1
        self._changed[service] = None

    def take_changed(self) -> list[str]:
        """The services that changed since the last call, in order."""
        changed = sorted(self._changed)
        self._changed.clear()
        return changed


NEVER = -1
"""Below every epoch."""


class Tombstones:
    """Own tombstones, which are told to the peers, and those heard from peers. The oldest go first.

    Each is kept for `keep_s` from when it was first known. Methods that drop some return their keys: the
    claims that these hid may have to be shown again.
    """

    def __init__(
        self, *, keep_s: float, count_max: int = TOMBSTONES_MAX, share_max: int = PROVIDER_ENTRIES_MAX
    ) -> None:
        self._keep_s = keep_s
        self._count_max = count_max
        self._share_max = share_max
        self._own = _Stones()
        self._heard = _Stones()
        self.evicted_count = 0
        self.is_changed = False
        """Whether there is a tombstone that was not there when they were last told."""

    def __len__(self) -> int:
        return len(self._own.by_key) + len(self._heard.by_key)

    def epoch(self, key: Key) -> int:
        """Claims of this key up to this epoch are dead; NEVER when none are."""
        own, heard = self._own.by_key.get(key), self._heard.by_key.get(key)
        return max(own.epoch if own else NEVER, heard.epoch if heard else NEVER)

    def has_room(self, provider: bytes) -> bool:
        """Whether one more tombstone of this provider pushes out no other of its own."""
        return self._own.count_of(provider) < self._share_max

    def bury(self, key: Key, epoch: int, now: float, *, provider: bytes) -> list[Key]:
        """An entry of this provider was removed here."""
        self.is_changed = True
        gone = self._put(self._own, key, epoch, now, provider)
        if self._own.count_of(provider) > self._share_max:
            gone.append(self._evict(self._own, self._own.oldest_of(provider)))
        return gone

    def hear(self, tombstone: Tombstone, now: float, *, connection: bytes) -> list[Key]:
        """A peer says that an entry was removed; its key is among those returned if that is news."""
        key = (tombstone.service, tombstone.endpoint)
        if tombstone.epoch <= self.epoch(key):
            return []
        return [key, *self._put(self._heard, key, tombstone.epoch, now, connection)]

    def expire(self, now: float) -> list[Key]:
        """Drop the tombstones that were kept long enough."""
        gone = []
        for stones in (self._own, self._heard):
            while (key := stones.oldest()) is not None and stones.by_key[key].end_at <= now:
                stones.remove(key)
                gone.append(key)
        return gone

    def deadline(self) -> float | None:
        """When the first one goes."""
        ends = [
            stones.by_key[key].end_at
            for stones in (self._own, self._heard)
            if (key := stones.oldest()) is not None
        ]
        return min(ends, default=None)

    def told(self) -> None:
        """All current tombstones have been told."""
        self.is_changed = False

    def own(self) -> list[Tombstone]:
        """The removals by this registry itself, for its peers."""
        return [Tombstone(service=s, endpoint=e, epoch=at.epoch) for (s, e), at in self._own.by_key.items()]

    def all(self) -> list[Tombstone]:
        """All known removals, each key once, for discoveries."""
        if not self._heard.by_key:
            return self.own()
        keys = dict.fromkeys((*self._own.by_key, *self._heard.by_key))
        return [Tombstone(service=key[0], endpoint=key[1], epoch=self.epoch(key)) for key in keys]

    def _put(self, stones: _Stones, key: Key, epoch: int, now: float, source: bytes) -> list[Key]:
        former = stones.remove(key) if key in stones.by_key else None
        if former is not None:
            epoch = max(epoch, former.epoch)
        stones.put(key, _Stone(epoch, now + self._keep_s, source))
        if len(self) <= self._count_max:
            return []
        if len(self._heard.by_key) > self._count_max // 2:
            return [self._evict(self._heard, self._heard.oldest_of(self._heard.largest_source()))]
        return [self._evict(self._own, next(iter(self._own.by_key)))]

    def _evict(self, stones: _Stones, key: Key) -> Key:
        self.evicted_count += 1
        stones.remove(key)
        return key


class _Stone(NamedTuple):
    epoch: int
    end_at: float
    source: bytes


class _Stones:
    """Tombstones by key and by source. All are kept equally long, so both are in the order of their ends.

    An OrderedDict finds its first item at once, where a dict would skip all that were removed before it.
    """

    def __init__(self) -> None:
        self.by_key: OrderedDict[Key, _Stone] = OrderedDict()
        self._keys_by_source: dict[bytes, OrderedDict[Key, None]] = {}

    def put(self, key: Key, stone: _Stone) -> None:
        self.by_key[key] = stone
        self._keys_by_source.setdefault(stone.source, OrderedDict())[key] = None

    def remove(self, key: Key) -> _Stone:
        stone = self.by_key.pop(key)
        keys = self._keys_by_source[stone.source]
        del keys[key]
        if not keys:
            del self._keys_by_source[stone.source]
        return stone

    def oldest(self) -> Key | None:
        return next(iter(self.by_key), None)

    def oldest_of(self, source: bytes) -> Key:
        return next(iter(self._keys_by_source[source]))

    def count_of(self, source: bytes) -> int:
        return len(self._keys_by_source.get(source, ()))

    def largest_source(self) -> bytes:
        return max(self._keys_by_source, key=self.count_of)
