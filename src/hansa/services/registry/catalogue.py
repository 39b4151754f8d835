"""The catalogue: what a registry knows, and how it answers. Pure.

Theory of operation. Three sources say which provider offers which service: providers that registered here
(`own`), the lists of other registries (`Synced`), and the record of what was removed (`Tombstones`). Each
change of a source names the keys that it touches, and only these are merged again (`entries` has the rule).
The result is the list that discoveries see (`merged`). Nothing is ever rebuilt from scratch, and a heartbeat
touches one entry.

    REGISTER ------> own ------+
    REGISTRY_SYNC -> Synced ---+--> merged --> SERVICE_LIST
    UNREGISTER, ---> Tombstones+
    silence          own, own tombstones ----> REGISTRY_SYNC

Own entries are kept in the order in which they were last heard, so the first is the next to expire. Every
call first lets overdue entries expire: after a stop of the process, a heartbeat that waited in a buffer must
not count as a sign of life.

A registry gives up its own entry if another registry says that the provider has moved, that the entry was
removed, or that another provider holds the key. If that is wrong, the provider is told, or learns it from the
answer to its next heartbeat, and registers again with a higher epoch.

A provider's message carries a stamp, which becomes the entry's epoch. A registry that was stopped, or cut
off, may read a message long after its provider has said something newer elsewhere. Then the message is
*behind* what is known, or is hidden as soon as the newer one is heard. If a connected provider is behind,
because another clock is ahead, it is told the highest epoch and goes beyond it. The registry makes an epoch
itself only for peers that give no stamp.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from hansa.endpoint import Endpoint
from hansa.errors import BadEndpoint
from hansa.ids import format_id
from hansa.limits import BROADCASTS_MISSED_MAX, EPOCH_AHEAD_S_MAX, PROVIDER_ENTRIES_MAX
from hansa.presence.provider_info import ProviderInfo
from hansa.presence.statements import EPOCH_MAX, epoch_wall_s, first_epoch
from hansa.services.registry.entries import (
    NEVER,
    Entries,
    EntryClaim,
    Key,
    Tombstones,
    newest_by_id,
    prevailing,
)
from hansa.services.registry.synced import Synced
from hansa.wire.listing import ProviderEntry, RegistrySync
from hansa.wire.registry import AckStatus, Heartbeat, Register, RegisterAck, Unregister, UpdateWeight

ProviderMessage: TypeAlias = Register | Unregister | Heartbeat | UpdateWeight

# A provider that missed half a beat may be slow; one that is later than that has lost its right to the key.
_ALIVE_BEATS: Final = 1.5
_NEVER: Final = float("inf")
_UINT32_MAX: Final = 0xFFFF_FFFF


class ProviderAnswer(NamedTuple):
    """An answer for the provider that is connected as `peer`."""

    peer: bytes
    ack: RegisterAck


@dataclass(slots=True, kw_only=True)
class CatalogueTally:
    """The running counts of the catalogue."""

    registered_count: int = 0
    unregistered_count: int = 0
    expired_count: int = 0
    duplicates_count: int = 0
    refused_count: int = 0
    beyond_share_count: int = 0
    behind_count: int = 0
    heartbeats_count: int = 0
    unknown_heartbeats_count: int = 0
    unknown_entries_count: int = 0
    weight_updates_count: int = 0
    conceded_count: int = 0
    left_out_count: int = 0
    echoed_lists_count: int = 0


class Catalogue:
    """The entries of one registry. The caller passes the time: `now` monotonic, `wall_ms` for epochs."""

    def __init__(
        self,
        registry_id: int,
        *,
        heartbeat_interval_s: float,
        heartbeat_timeout_s: float,
        broadcast_interval_s: float,
        provider_entries_max: int = PROVIDER_ENTRIES_MAX,
    ) -> None:
        self.registry_id = registry_id
        self.tally = CatalogueTally()
        self.merged = Entries()
        self._holdings = Holdings(timeout_s=heartbeat_timeout_s)
        self.own = self._holdings.entries
        silence_s = BROADCASTS_MISSED_MAX * broadcast_interval_s
        self.synced = Synced(silence_s=silence_s)
        # No registry claims a removed entry for longer than this: a peer that has not heard of the removal
        # tells the entry for one heartbeat timeout more, and is forgotten when it has then been silent for
        # three intervals.
        keep_s = max(BROADCASTS_MISSED_MAX * heartbeat_timeout_s, silence_s + heartbeat_timeout_s)
        self._provider_entries_max = provider_entries_max
        self.tombstones = Tombstones(keep_s=keep_s, share_max=provider_entries_max)
        # A registration with an older stamp is refused. Tombstones are kept three intervals longer than this;
        # by that much a provider's clock may be ahead of ours before it could bring back what was removed.
        self._late_ms = int(heartbeat_timeout_s * 1000)
        self._told_timeout_ms = max(1, min(self._late_ms, _UINT32_MAX))
        self._alive_s = _ALIVE_BEATS * heartbeat_interval_s
        self._left_out: dict[Key, None] = {}
        self._answers: list[ProviderAnswer] = []
        # Nothing is overdue before this; often later, because heartbeats do not move it.
        self._due_at = _NEVER

    # -- what there is

    @property
    def is_changed(self) -> bool:
        """Whether something has changed since the lists were last requested."""
        return self.merged.is_changed or self.own.is_changed or self.tombstones.is_changed

    @property
    def direct_count(self) -> int:
        return len(self._holdings)

    def services(self) -> dict[str, tuple[ProviderInfo, ...]]:
        """The merged list, for the program."""
        return {
            service: tuple(
                ProviderInfo(
                    service=service,
                    endpoint=entry.endpoint,
                    routing_id=entry.routing_id,
                    weight=entry.weight,
                    registered_at=epoch_wall_s(entry.epoch),
                )
                for entry in self.merged.providers(service)
            )
            for service in self.merged.services
        }

    # -- what providers say

    def hear(
        self, peer: bytes, message: ProviderMessage, *, now: float, wall_ms: int
    ) -> list[ProviderAnswer]:
        """Take in a provider's message; returns the answers, to it and perhaps to others."""
        self._expire(now)
        match message:
            case Heartbeat():
                self._heartbeat(peer, message, now)
            case Register():
                self._register(peer, message, now, wall_ms)
            case Unregister():
                self._unregister(peer, message, now, wall_ms)
            case UpdateWeight():
                self._update_weight(peer, message, now, wall_ms)
        return self._take_answers()

    def provider_gone(self, peer: bytes, *, now: float) -> list[ProviderAnswer]:
        """A provider's connection has ended: its entries stay, orphaned, for as long as it may return."""
        self._expire(now)
        for key in self._holdings.keys_of(peer):
            # Merging one key may have given up another.
            if (holding := self._holdings.get(key)) is not None and not holding.entry.orphaned:
                self._holdings.set_orphaned(key, orphaned=True)
                self._merge((key,))
        return self._take_answers()

    # -- what peers say

    def sync(self, message: RegistrySync, connection: bytes, *, now: float) -> list[ProviderAnswer]:
        """Another registry's list has come over one of our connections."""
        self._expire(now)
        if message.registry_id == self.registry_id:
            self.tally.echoed_lists_count += 1
            return self._take_answers()
        changed = self.synced.apply(message, connection, now)
        if changed is not None:
            self._merge(changed)
            for tombstone in message.tombstones:
                self._merge(self.tombstones.hear(tombstone, now, connection=connection))
        self._must_look_at(self.synced.deadline())
        self._must_look_at(self.tombstones.deadline())
        return self._take_answers()

    def registry_gone(self, connection: bytes, *, now: float) -> list[ProviderAnswer]:
        """A connection to another registry has ended."""
        self._expire(now)
        self._merge(self.synced.disconnected(connection))
        return self._take_answers()

    # -- time

    def deadline(self) -> float | None:
        """When to call `expire`; it may turn out that nothing is overdue yet."""
        return None if self._due_at == _NEVER else self._due_at

    def expire(self, *, now: float) -> list[ProviderAnswer]:
        """Remove what is overdue: entries, silent peers, tombstones."""
        self._expire(now)
        return self._take_answers()

    def overslept(self, *, now: float) -> list[ProviderAnswer]:
        """The process was stopped. Entries that seem overdue may only not have been heard.

        They are removed without a tombstone, as with a new start: living providers register again.
        """
        while (key := self._holdings.overdue(now)) is not None:
            self.tally.expired_count += 1
            self._holdings.remove(key)
            self._merge((key,))
        return self._take_answers()

    def _expire(self, now: float) -> None:
        if now < self._due_at:
            return
        while (key := self._holdings.overdue(now)) is not None:
            self.tally.expired_count += 1
            entry = self._holdings.remove(key)
            self._bury(key, entry.epoch, now, provider=entry.routing_id)
        # In this order: a tombstone outlives the claims it hides.
        self._merge(self.synced.expire(now))
        self._merge(self.tombstones.expire(now))
        self._due_at = _NEVER
        self._must_look_at(self._holdings.deadline())
        self._must_look_at(self.synced.deadline())
        self._must_look_at(self.tombstones.deadline())

    def _must_look_at(self, at: float | None) -> None:
        if at is not None and at < self._due_at:
            self._due_at = at

    # -- the messages of providers

    def _heartbeat(self, peer: bytes, message: Heartbeat, now: float) -> None:
        self.tally.heartbeats_count += 1
        held = self._held_by(peer, message.service, message.endpoint)
        if held is None:
            self.tally.unknown_heartbeats_count += 1
            self._answer_not_registered(peer, message)
            return
        self._heard(*held, now)

    def _register(self, peer: bytes, message: Register, now: float, wall_ms: int) -> None:
        try:
            endpoint = _dialable(message.endpoint)
        except BadEndpoint as error:
            self._refuse(peer, message, AckStatus.BAD_ENDPOINT, message.endpoint, str(error))
            return
        service = message.service
        key = (service, endpoint)
        claims = self._claims(key)
        dead_epoch = self.tombstones.epoch(key)
        holder = self._living_holder(key, newest_by_id(claims, dead_epoch), peer, now)
        if holder is not None:
            self.tally.duplicates_count += 1
            error_text = (
                f"{endpoint} of service {service} belongs to provider {format_id(holder)}, which is alive: "
                f"stop that one, or advertise another endpoint"
            )
            self._answer(peer, AckStatus.DUPLICATE, endpoint, error_text, message.token)
            return
        if self._is_dated_wrongly(peer, message, wall_ms):
            return
        known_epoch = max((dead_epoch, *(claim.entry.epoch for claim in claims)))
        epoch = message.stamp
        if epoch is None:
            epoch = max(first_epoch(wall_ms), known_epoch + 1)
        elif known_epoch >= first_epoch(wall_ms + EPOCH_AHEAD_S_MAX * 1000):
            epoch = EPOCH_MAX + 1  # Higher than any epoch that is accepted, so it is refused below.
        elif epoch < first_epoch(wall_ms - self._late_ms):
            # It may have been taken back since, so long ago that nobody remembers. A living one repeats it.
            self._answer_behind(peer, message, max(known_epoch, first_epoch(wall_ms)))
            return
        elif epoch <= known_epoch:
            self._answer_behind(peer, message, known_epoch)
            return
        held = self._holdings.get(key)
        is_new = held is None or held.entry.routing_id != peer
        if is_new and self._holdings.count_of(peer) >= self._provider_entries_max:
            self._refuse_beyond_share(peer, message, "entries")
            return
        if self.merged.get(service, endpoint) is None and not self.merged.has_room(service):
            text = f"the registry is full: it lists {self.merged.providers_count} providers of "
            text += f"{self.merged.services_count} services"
            self._refuse(peer, message, AckStatus.OTHER, endpoint, text)
            return
        if epoch > EPOCH_MAX:
            text = f"{endpoint} of service {service} is claimed or buried for a far future: set the clock of "
            text += "the registry or provider that did so"
            self._refuse(peer, message, AckStatus.OTHER, endpoint, text)
            return
        self.tally.registered_count += 1
        entry = ProviderEntry(
            endpoint=endpoint, routing_id=peer, weight=message.weight or 1, epoch=epoch, orphaned=False
        )
        self._holdings.put(key, entry, now)
        self._must_look_at(self._holdings.deadline())
        self._merge((key,))
        # A provider that gives no token knows no extensions: it gets what the specification says.
        timeout_ms = None if message.token is None else self._told_timeout_ms
        ack = RegisterAck(
            status=AckStatus.OK, endpoint=endpoint, heartbeat_timeout_ms=timeout_ms, token=message.token
        )
        self._answers.append(ProviderAnswer(peer, ack))

    def _unregister(self, peer: bytes, message: Unregister, now: float, wall_ms: int) -> None:
        key = (message.service, _canonical(message.endpoint))
        holding = self._holdings.get(key)
        entry = self.merged.get(*key) if holding is None else holding.entry
        stamp = message.stamp
        if (entry is None and stamp is None) or (entry is not None and entry.routing_id != peer):
            self.tally.unknown_entries_count += 1
            if message.token is not None:
                self._answer_not_registered(peer, message)
            return
        if self._is_dated_wrongly(peer, message, wall_ms):
            return
        known_epoch = NEVER if entry is None else entry.epoch
        epoch = known_epoch if stamp is None else stamp
        if epoch < known_epoch:
            # Read late: the provider has registered again since.
            self._answer_behind(peer, message, known_epoch)
            return
        if entry is None:
            # No registry has told this entry here yet; a registry that tells it later tells an older state.
            self.tally.unknown_entries_count += 1
            if not self.tombstones.has_room(peer):
                self._refuse_beyond_share(peer, message, "removed entries that are remembered for it")
                return
        else:
            self.tally.unregistered_count += 1
        # Its older claims at other registries are dead with it; this registry knows of no newer one.
        if holding is not None:
            self._holdings.remove(key)
        self._bury(key, epoch, now, provider=peer)
        if message.token is not None:
            self._answer(peer, AckStatus.OK, key[1], "", message.token)

    def _update_weight(self, peer: bytes, message: UpdateWeight, now: float, wall_ms: int) -> None:
        held = self._held_by(peer, message.service, message.endpoint)
        if held is None:
            self.tally.unknown_entries_count += 1
            self._answer_not_registered(peer, message)
            return
        if self._is_dated_wrongly(peer, message, wall_ms):
            return
        key, holding = held
        known_epoch = holding.entry.epoch
        # A new epoch, so that a discovery of several registries believes the one that knows the new weight.
        epoch = min(known_epoch + 1, EPOCH_MAX) if message.stamp is None else message.stamp
        if message.stamp is not None and epoch <= known_epoch:
            self._answer_behind(peer, message, known_epoch)
            return
        self._heard(key, holding, now)
        weight = message.weight or 1
        if weight != holding.entry.weight:
            self._holdings.reweigh(key, weight, epoch)
            self._merge((key,))
        self.tally.weight_updates_count += 1
        if message.token is not None:
            self._answer(peer, AckStatus.OK, key[1], "", message.token)

    def _is_dated_wrongly(
        self, peer: bytes, message: Register | Unregister | UpdateWeight, wall_ms: int
    ) -> bool:
        """Whether its stamp is so far in the future that it would prevail over everything; then refused."""
        ahead_s = 0.0 if message.stamp is None else epoch_wall_s(message.stamp) - wall_ms / 1000
        if ahead_s <= EPOCH_AHEAD_S_MAX:
            return False
        text = (
            f"the clock of this provider is {ahead_s:.0f} s ahead of the registry's: set the clocks of both, "
            f"then register {message.service} again"
        )
        self._refuse(peer, message, AckStatus.OTHER, message.endpoint, text)
        return True

    def _living_holder(
        self, key: Key, newest: dict[bytes, EntryClaim], peer: bytes, now: float
    ) -> bytes | None:
        """Another provider that holds the key and is alive, as far as can be known."""
        for routing_id, claim in newest.items():
            if routing_id == peer or not claim.is_alive:
                continue
            own = self._holdings.get(key) if claim.registry_id == self.registry_id else None
            if own is None or now < own.heard_at + self._alive_s:
                return routing_id
        return None

    def _held_by(self, peer: bytes, service: str, endpoint: str) -> tuple[Key, Holding] | None:
        """The entry that this provider has registered here."""
        key = (service, endpoint)
        holding = self._holdings.get(key)
        if holding is None:
            # Rare: our providers spell the endpoint as the answer to REGISTER spelled it.
            key = (service, _canonical(endpoint))
            holding = self._holdings.get(key)
        return None if holding is None or holding.entry.routing_id != peer else (key, holding)

    def _heard(self, key: Key, holding: Holding, now: float) -> None:
        self._holdings.heard(key, now)
        if holding.entry.orphaned:
            self._holdings.set_orphaned(key, orphaned=False)
            self._merge((key,))

    # -- the merged list

    def _bury(self, key: Key, epoch: int, now: float, *, provider: bytes) -> None:
        evicted = self.tombstones.bury(key, epoch, now, provider=provider)
        self._must_look_at(self.tombstones.deadline())
        self._merge((key, *evicted))

    def _claims(self, key: Key) -> list[EntryClaim]:
        claims = self.synced.claims(key)
        holding = self._holdings.get(key)
        if holding is not None:
            claims.append(EntryClaim(holding.entry, self.registry_id, not holding.entry.orphaned))
        return claims

    def _merge(self, keys: Iterable[Key]) -> None:
        for key in keys:
            newest = newest_by_id(self._claims(key), self.tombstones.epoch(key))
            winner = prevailing(newest)
            holding = self._holdings.get(key)
            if holding is not None and (winner is None or winner.registry_id != self.registry_id):
                self._concede(key, holding.entry, newest, winner)
            self._show(key, None if winner is None else winner.entry)

    def _concede(
        self, key: Key, entry: ProviderEntry, newest: dict[bytes, EntryClaim], winner: EntryClaim | None
    ) -> None:
        """Our own claim does not prevail: give it up, unless the one that does is orphaned as well."""
        service, endpoint = key
        status, text = AckStatus.OTHER, ""
        best = newest.get(entry.routing_id)
        if best is None:
            text = f"not registered: another registry says that {service} at {endpoint} was removed"
        elif best.registry_id != self.registry_id:
            # The provider has moved to a registry that is in touch with it, and so knows. Else that
            # registry's claim is an old one, from a clock that was ahead.
            if not best.is_alive:
                text = f"not registered: {service} at {endpoint} was last seen at another registry"
        elif winner is not None and winner.is_alive:
            status = AckStatus.DUPLICATE
            text = (
                f"{endpoint} of service {service} belongs to provider {format_id(winner.entry.routing_id)}, "
                f"which came first, to registry {winner.registry_id}"
            )
        else:
            return
        self.tally.conceded_count += 1
        self._holdings.remove(key)
        if text and not entry.orphaned:
            self._answer(entry.routing_id, status, endpoint, text, None)

    def _show(self, key: Key, entry: ProviderEntry | None) -> None:
        """Put the prevailing entry into the merged list, or take the key out."""
        service, endpoint = key
        shown = self.merged.get(service, endpoint)
        if entry == shown:
            if entry is None:
                self._left_out.pop(key, None)
            return
        if entry is None:
            self.merged.remove(service, endpoint)
            if self._left_out:
                waiting = next(iter(self._left_out))
                del self._left_out[waiting]
                self._merge((waiting,))
        elif shown is not None or self.merged.has_room(service):
            self._left_out.pop(key, None)
            self.merged.put(service, entry)
        else:
            # Together the registries hold more than one list can.
            self.tally.left_out_count += key not in self._left_out
            self._left_out[key] = None

    # -- answers

    def _answer(self, peer: bytes, status: AckStatus, endpoint: str, error: str, token: int | None) -> None:
        ack = RegisterAck(status=status, endpoint=endpoint, error=error, token=token)
        self._answers.append(ProviderAnswer(peer, ack))

    def _answer_not_registered(self, peer: bytes, message: Heartbeat | Unregister | UpdateWeight) -> None:
        text = f"not registered: {message.service} at {message.endpoint} is no entry of yours here"
        self._answer(peer, AckStatus.OTHER, message.endpoint, text, message.token)

    def _answer_behind(
        self, peer: bytes, message: Register | Unregister | UpdateWeight, known_epoch: int
    ) -> None:
        self.tally.behind_count += 1
        text = f"behind: of {message.service} at {message.endpoint} a later word is known"
        ack = RegisterAck(
            status=AckStatus.OTHER,
            endpoint=message.endpoint,
            error=text,
            token=message.token,
            stamp=known_epoch,
        )
        self._answers.append(ProviderAnswer(peer, ack))

    def _refuse(
        self,
        peer: bytes,
        message: Register | Unregister | UpdateWeight,
        status: AckStatus,
        endpoint: str,
        text: str,
    ) -> None:
        self.tally.refused_count += 1
        self._answer(peer, status, endpoint, text, message.token)

    def _refuse_beyond_share(self, peer: bytes, message: Register | Unregister, what: str) -> None:
        """Refuse for this provider alone. Not a strike: a refused provider may be honest, and asks again."""
        self.tally.beyond_share_count += 1
        text = (
            f"this provider has {self._provider_entries_max} {what}, which is the most that one may have: "
            f"{message.service} at {message.endpoint} is one too many; spread the services over several "
            "providers, or raise the registry's provider_entries_max"
        )
        self._refuse(peer, message, AckStatus.OTHER, message.endpoint, text)

    def _take_answers(self) -> list[ProviderAnswer]:
        answers, self._answers = self._answers, []
        return answers


class Holdings:
    """Own entries by key and by provider.

    A heartbeat moves an entry to the end: the first is the next to expire.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self.entries = Entries()
        self._timeout_s = timeout_s
        self._by_key: OrderedDict[Key, Holding] = OrderedDict()
        self._keys_by_id: dict[bytes, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Key) -> Holding | None:
        return self._by_key.get(key)

    def keys_of(self, routing_id: bytes) -> list[Key]:
        return list(self._keys_by_id.get(routing_id, ()))

    def count_of(self, routing_id: bytes) -> int:
        return len(self._keys_by_id.get(routing_id, ()))

    def put(self, key: Key, entry: ProviderEntry, now: float) -> None:
        """Add an entry as just heard, in place of any other under this key."""
        if key in self._by_key:
            self.remove(key)
        self._by_key[key] = Holding(entry, now)
        self._keys_by_id.setdefault(entry.routing_id, {})[key] = None
        self.entries.put(key[0], entry)

    def heard(self, key: Key, now: float) -> None:
        self._by_key[key].heard_at = now
        self._by_key.move_to_end(key)

    def reweigh(self, key: Key, weight: int, epoch: int) -> None:
        holding = self._by_key[key]
        holding.entry = replace(holding.entry, weight=weight, epoch=epoch)
        self.entries.put(key[0], holding.entry)

    def set_orphaned(self, key: Key, *, orphaned: bool) -> None:
        holding = self._by_key[key]
        holding.entry = replace(holding.entry, orphaned=orphaned)
        self.entries.put(key[0], holding.entry)

    def remove(self, key: Key) -> ProviderEntry:
        entry = self._by_key.pop(key).entry
        keys = self._keys_by_id[entry.routing_id]
        del keys[key]
        if not keys:
            del self._keys_by_id[entry.routing_id]
        self.entries.remove(*key)
        return entry

    def overdue(self, now: float) -> Key | None:
        """The entry that has been silent for longest, if that is too long."""
        for key, holding in self._by_key.items():
            return key if holding.heard_at + self._timeout_s <= now else None
        return None

    def deadline(self) -> float | None:
        """When the next entry is overdue."""
        for holding in self._by_key.values():
            return holding.heard_at + self._timeout_s
        return None


class Holding:
    """An entry and when its provider last confirmed it."""

    __slots__ = ("entry", "heard_at")

    def __init__(self, entry: ProviderEntry, heard_at: float) -> None:
        self.entry = entry
        self.heard_at = heard_at


def _dialable(text: str) -> str:
    """The canonical spelling of an endpoint that callers can reach. Raises `BadEndpoint` with advice."""
    if not text:
        raise BadEndpoint(
            "the endpoint is empty: a registry cannot see on which port a provider listens; a provider of "
            "hansa's finds its own address, any other says tcp://host:port"
        )
    endpoint = Endpoint.parse(text)
    if not endpoint.is_dialable:
        raise BadEndpoint(f"{endpoint} cannot be dialled: advertise the host and port that callers reach")
    return str(endpoint)


def _canonical(text: str) -> str:
    try:
        return str(Endpoint.parse(text))
    except BadEndpoint:
        return text
