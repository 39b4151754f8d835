"""The lists of the other registries of the cluster. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from hansa.limits import REGISTRIES_MAX
from hansa.presence.statements import carried
from hansa.services.registry.entries import EntryClaim, Key
from hansa.wire.listing import ProviderEntry, RegistrySync


class _Peer:
    """One other registry: its newest list, when it was last heard, over which connection (None: it broke)."""

    __slots__ = ("connection", "heard_at", "list_seq", "services")

    def __init__(self) -> None:
        self.list_seq = -1
        self.heard_at = 0.0
        self.connection: bytes | None = None
        self.services: Mapping[str, tuple[ProviderEntry, ...]] = {}


class Synced:
    """The newest list of every peer, as claims by key.

    Methods that change claims return their keys. A peer whose connection broke keeps its claims until it has
    been silent for `silence_s`, but they no longer prevail over a provider that is here: its own registry
    cannot be asked whether it lives.
    """

    def __init__(self, *, silence_s: float, peers_max: int = REGISTRIES_MAX) -> None:
        self._silence_s = silence_s
        self._peers_max = peers_max
        self._peers: dict[int, _Peer] = {}
        self._claims: dict[Key, dict[int, ProviderEntry]] = {}
        self.count = 0
        self.lists_count = 0
        self.stale_count = 0
        self.evicted_count = 0

    @property
    def heard(self) -> tuple[int, ...]:
        """The ids of the registries whose claims count."""
        return tuple(sorted(self._peers))

    def claims(self, key: Key) -> list[EntryClaim]:
        """The peers' claims of a key."""
        said = self._claims.get(key)
        if said is None:
            return []
        return [
            EntryClaim(
                entry, registry_id, not entry.orphaned and self._peers[registry_id].connection is not None
            )
            for registry_id, entry in said.items()
        ]

    def apply(self, message: RegistrySync, connection: bytes, now: float) -> list[Key] | None:
        """Take in a peer's list; returns None if it is not newer than the one before."""
        peer = self._peers.get(message.registry_id)
        if peer is not None and message.list_seq <= peer.list_seq:
            self.stale_count += 1
            if message.list_seq < peer.list_seq:
                return None
            # The same list again: a registry sends it to a peer that comes back. It is a sign of life.
            return self._heard(peer, connection, now)
        changed: list[Key] = []
        if peer is None:
            changed += self._make_room()
            peer = self._peers[message.registry_id] = _Peer()
        changed += self._heard(peer, connection, now)
        peer.list_seq = message.list_seq
        former = peer.services
        peer.services = carried(former, message) if message.is_settling else message.services
        changed += self._replace(message.registry_id, former, peer.services)
        self.lists_count += 1
        return changed

    def disconnected(self, connection: bytes) -> list[Key]:
        """The connection over which a peer was heard has broken."""
        changed: list[Key] = []
        for peer in self._peers.values():
            if peer.connection == connection:
                peer.connection = None
                changed += self._keys(peer.services)
        return changed

    def expire(self, now: float) -> list[Key]:
        """Forget the peers that have been silent for too long."""
        silent = [i for i, peer in self._peers.items() if peer.heard_at + self._silence_s <= now]
        return [key for registry_id in silent for key in self._forget(registry_id)]

    def deadline(self) -> float | None:
        """When the first peer has been silent for too long."""
        heard = min((peer.heard_at for peer in self._peers.values()), default=None)
        return None if heard is None else heard + self._silence_s

    def _heard(self, peer: _Peer, connection: bytes, now: float) -> list[Key]:
        was_away = peer.connection is None
        peer.heard_at = now
        peer.connection = connection
        return self._keys(peer.services) if was_away else []

    def _make_room(self) -> list[Key]:
        if len(self._peers) < self._peers_max:
            return []
        self.evicted_count += 1
        ids_count = Counter(peer.connection for peer in self._peers.values())

        def least_missed(registry_id: int) -> tuple[bool, int, float]:
            # A registry that tells lists under many ids, over one connection or one after the other, loses
            # only its own.
            peer = self._peers[registry_id]
            is_away = peer.connection is None
            return is_away, 0 if is_away else ids_count[peer.connection], -peer.heard_at

        return self._forget(max(self._peers, key=least_missed))

    def _forget(self, registry_id: int) -> list[Key]:
        return self._replace(registry_id, self._peers.pop(registry_id).services, {})

    def _replace(
        self,
        registry_id: int,
        former: Mapping[str, tuple[ProviderEntry, ...]],
        services: Mapping[str, tuple[ProviderEntry, ...]],
    ) -> list[Key]:
        changed: list[Key] = []
        for service, entries in services.items():
            before = former.get(service, ())
            # A service that did not change is the same tuple: the reader of lists ensures that.
            if entries is before:
                continue
            left = {entry.endpoint: entry for entry in before}
            for entry in entries:
                if left.pop(entry.endpoint, None) != entry:
                    self._put((service, entry.endpoint), registry_id, entry)
                    changed.append((service, entry.endpoint))
            changed += self._drop(registry_id, service, left)
        for service, entries in former.items():
            if service not in services:
                changed += self._drop(registry_id, service, (entry.endpoint for entry in entries))
        return changed

    def _put(self, key: Key, registry_id: int, entry: ProviderEntry) -> None:
        said = self._claims.setdefault(key, {})
        self.count += registry_id not in said
        said[registry_id] = entry

    def _drop(self, registry_id: int, service: str, endpoints: Iterable[str]) -> list[Key]:
        dropped: list[Key] = []
        for endpoint in endpoints:
            key = (service, endpoint)
            said = self._claims.get(key)
            # A list may name an endpoint twice; it is one claim.
            if said is None or said.pop(registry_id, None) is None:
                continue
            self.count -= 1
            if not said:
                del self._claims[key]
            dropped.append(key)
        return dropped

    @staticmethod
    def _keys(services: Mapping[str, tuple[ProviderEntry, ...]]) -> list[Key]:
        return [(service, entry.endpoint) for service, entries in services.items() for entry in entries]
