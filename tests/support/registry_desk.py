"""A catalogue with a clock beside it, so that a test reads as a story."""

from hansa.limits import PROVIDER_ENTRIES_MAX
from hansa.services.registry.announcer import Announcer
from hansa.services.registry.catalogue import Catalogue, ProviderAnswer
from hansa.wire.listing import ProviderEntry, RegistrySync, Tombstone
from hansa.wire.registry import AckStatus, Heartbeat, Register, RegisterAck, Unregister, UpdateWeight

HERE = "tcp://10.0.0.1:5000"
THERE = "tcp://10.0.0.2:5000"
PAY = "payment"
ANN = b"\x01\x00\x00\x00\x0a"
BOB = b"\x01\x00\x00\x00\x0b"
WALL_MS = 1_700_000_000_000
FIRST_EPOCH = WALL_MS << 16


class Desk:
    """A registry's machine: heartbeats every 5 s, expiry after 15 s, broadcasts every 30 s."""

    def __init__(
        self, registry_id: int = 1, *, wall_skew_ms: int = 0, provider_entries_max: int = PROVIDER_ENTRIES_MAX
    ) -> None:
        self.now = 100.0
        self.wall_skew_ms = wall_skew_ms
        self.catalogue = Catalogue(
            registry_id,
            heartbeat_interval_s=5.0,
            heartbeat_timeout_s=15.0,
            broadcast_interval_s=30.0,
            provider_entries_max=provider_entries_max,
        )
        self.announcer = Announcer(self.catalogue, interval_s=30.0, list_seq=1000 * registry_id, now=self.now)
        self.told: list[ProviderAnswer] = []
        self._list_seq = 0

    @property
    def wall_ms(self) -> int:
        return WALL_MS + int((self.now - 100.0) * 1000) + self.wall_skew_ms

    # What providers say. Each gives back the answer to that provider, if there is one.

    def register(
        self,
        peer: bytes,
        endpoint: str = HERE,
        *,
        service: str = PAY,
        weight: int = 1,
        stamp: int | None = None,
    ) -> RegisterAck:
        ack = self._say(
            peer, Register(service=service, endpoint=endpoint, weight=weight, token=7, stamp=stamp)
        )
        assert ack is not None
        return ack

    def unregister(
        self, peer: bytes, endpoint: str = HERE, *, service: str = PAY, stamp: int | None = None
    ) -> AckStatus:
        return self.leave(peer, endpoint, service=service, stamp=stamp).status

    def leave(
        self, peer: bytes, endpoint: str = HERE, *, service: str = PAY, stamp: int | None = None
    ) -> RegisterAck:
        """As `unregister`, with the whole answer."""
        ack = self._say(peer, Unregister(service=service, endpoint=endpoint, token=8, stamp=stamp))
        assert ack is not None
        return ack

    def beat(self, peer: bytes, endpoint: str = HERE, *, service: str = PAY) -> RegisterAck | None:
        return self._say(peer, Heartbeat(service=service, endpoint=endpoint))

    def reweigh(
        self, peer: bytes, weight: int, endpoint: str = HERE, *, service: str = PAY, stamp: int | None = None
    ) -> RegisterAck:
        ack = self._say(
            peer, UpdateWeight(service=service, endpoint=endpoint, weight=weight, token=9, stamp=stamp)
        )
        assert ack is not None
        return ack

    def hang_up(self, peer: bytes) -> None:
        self.told += self.catalogue.provider_gone(peer, now=self.now)

    def _say(
        self, peer: bytes, message: Register | Unregister | Heartbeat | UpdateWeight
    ) -> RegisterAck | None:
        answers = self.catalogue.hear(peer, message, now=self.now, wall_ms=self.wall_ms)
        own = [answer.ack for answer in answers if answer.peer == peer]
        self.told += answers
        return own[-1] if own else None

    # What peers say.

    def hear(
        self,
        registry_id: int,
        *entries: ProviderEntry,
        seq: int | None = None,
        connection: bytes = b"",
        tombstones: tuple[Tombstone, ...] = (),
        service: str = PAY,
        settling: bool = False,
    ) -> list[ProviderAnswer]:
        """The whole list of another registry."""
        self._list_seq += 1
        message = RegistrySync(
            registry_id=registry_id,
            list_seq=self._list_seq if seq is None else seq,
            services={service: entries} if entries else {},
            tombstones=tombstones,
            is_settling=settling,
        )
        answers = self.catalogue.sync(message, connection or _connection(registry_id), now=self.now)
        self.told += answers
        return answers

    def lose(self, registry_id: int) -> None:
        """The connection to another registry breaks."""
        self.told += self.catalogue.registry_gone(_connection(registry_id), now=self.now)

    def own_list(self) -> RegistrySync:
        """What this registry tells its peers."""
        self._list_seq += 1
        own = self.catalogue.own
        return RegistrySync(
            registry_id=self.catalogue.registry_id,
            list_seq=self._list_seq,
            services={service: own.providers(service) for service in own.services},
            tombstones=tuple(self.catalogue.tombstones.own()),
        )

    def follow(self, other: "Desk") -> None:
        """Hear the newest list of another desk."""
        message = other.own_list()
        connection = _connection(message.registry_id)
        self.told += self.catalogue.sync(message, connection, now=self.now)

    # Time, and what there is.

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.told += self.catalogue.expire(now=self.now)

    def listed(self) -> dict[str, tuple[ProviderEntry, ...]]:
        merged = self.catalogue.merged
        return {service: merged.providers(service) for service in merged.services}

    def who(self, endpoint: str = HERE, *, service: str = PAY) -> bytes | None:
        """Who is listed under a key."""
        entry = self.catalogue.merged.get(service, endpoint)
        return None if entry is None else entry.routing_id

    def entry(self, endpoint: str = HERE, *, service: str = PAY) -> ProviderEntry:
        found = self.catalogue.merged.get(service, endpoint)
        assert found is not None
        return found


def claim(
    routing_id: bytes, epoch: int, *, endpoint: str = HERE, weight: int = 1, orphaned: bool = False
) -> ProviderEntry:
    return ProviderEntry(
        endpoint=endpoint, routing_id=routing_id, weight=weight, epoch=epoch, orphaned=orphaned
    )


def grave(epoch: int, *, endpoint: str = HERE, service: str = PAY) -> Tombstone:
    return Tombstone(service=service, endpoint=endpoint, epoch=epoch)


def _connection(registry_id: int) -> bytes:
    return b"connection %d" % registry_id
