"""The books of claims: which program believes to own what, at every instant. And faults that pause owners.

Locks, semaphores and leaderships are judged by these books. The pauses are aimed at owners: at random they
would hardly ever meet the one that matters.

A claim is what a program was given: a token, whether it still holds it, and the guard that it may put into a
transaction. Whenever the store changes, each claim that a program believes in must be true in the store at
that instant. A paused program goes on believing, by its clock; a dead one believes nothing.

A store that went back in time has forgotten who owns what, and gives it to others. Until the former owners
have heard of that they are wrong, and cannot know: claims from before it are no longer judged. They must end,
as all else must, before all is well; and tokens grow over it, so that storage that is guarded with them is
not deceived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hansa.chance import Chance
from hansa.store.values import Compare, EventKind, KeyValue, WatchBatch
from hansa.testing.faults import FaultPlan
from hansa.testing.host import Host
from hansa.testing.life import Life, LifeState
from hansa.testing.store_host import StoreHost
from hansa.testing.world import World

__all__ = ["Belief", "Claims", "OwnerPause", "draw_owner_pauses", "owners_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """One right that one life was given."""

    prefix: bytes
    life: Life
    token: int
    guard: Compare
    is_held: Callable[[], bool]

    @property
    def is_believed(self) -> bool:
        return self.life.state is not LifeState.DEAD and self.is_held()

    def __str__(self) -> str:
        return f"{self.prefix.decode()} {self.token} of {self.life}"


@dataclass(slots=True)
class _Line:
    """All that stand below one prefix, by the revision at which they came, as the store has it."""

    limit: int
    standing: dict[int, bytes] = field(default_factory=dict)
    token_max: int = 0


def owners_of(world: World, prefix: bytes) -> list[str]:
    """The hosts that were given something, the latest first, by the history.

    For faults, which are values: they are played again in another world, with other claims.
    """
    given = f"owns {prefix.decode()} "
    return list(
        dict.fromkeys(fact.node for fact in reversed(world.history.facts) if fact.what.startswith(given))
    )


class Claims:
    """All claims of a run. Fails the world at once when two exclude each other, or one is not true."""

    def __init__(self, store: StoreHost) -> None:
        self._store = store
        self._world = store.world
        self._lines: dict[bytes, _Line] = {}
        self._open: list[Belief] = []
        # Older claims were given by a store that has forgotten them.
        self._rewound_revision = 0
        self.count = 0

    def add_line(self, prefix: bytes, *, limit: int = 1) -> None:
        """Below this prefix at most `limit` own at one time: those who came first."""
        self._lines[prefix] = _Line(limit)

    def standing(self, prefix: bytes) -> list[int]:
        """The tokens of owners and waiters, in order."""
        return sorted(self._lines[prefix].standing)

    def believed(self, prefix: bytes) -> list[Belief]:
        """The claims of those that believe to own at this instant."""
        return [claim for claim in self._open if claim.prefix == prefix and claim.is_believed]

    def begin(
        self, host: Host, prefix: bytes, *, token: int, guard: Compare, is_held: Callable[[], bool]
    ) -> Belief:
        """A program was given a right. It may have lost it already, and know it."""
        claim = Belief(prefix=prefix, life=host.life, token=token, guard=guard, is_held=is_held)
        host.record(f"owns {prefix.decode()} {token}{'' if claim.is_believed else ', and has lost it'}")
        self._open.append(claim)
        self.count += 1
        self._check_true(claim)
        if claim.is_believed:
            self._check_turn(claim)
        return claim

    def follow(self, batch: WatchBatch, origin: str) -> None:
        """The store has changed: check all claims that are believed."""
        for event in batch.events:
            for prefix, line in self._lines.items():
                if not event.item.key.startswith(prefix):
                    continue
                if event.kind is EventKind.DELETE:
                    if event.before is not None:
                        line.standing.pop(event.before.create_revision, None)
                        self._check_deleted(event.before.key, event.before.lease, origin)
                elif event.item.lease:
                    line.standing[event.item.create_revision] = event.item.key
        for claim in self._open:
            self._check_true(claim)
        self._open = [claim for claim in self._open if self._is_open(claim)]

    def rewound(self, items: Iterable[KeyValue], revision: int) -> None:
        """The store went back: it has these keys now, and continues from this revision."""
        self._rewound_revision = revision
        found = [item for item in items if item.lease]
        for prefix, line in self._lines.items():
            line.standing = {item.create_revision: item.key for item in found if item.key.startswith(prefix)}

    def _is_forgotten(self, claim: Belief) -> bool:
        return claim.token < self._rewound_revision

    def _is_open(self, claim: Belief) -> bool:
        """Whether a program may believe in the claim from now on, even if it does not at this instant."""
        if claim.life.state is LifeState.DEAD:
            return False
        if claim.token in self._lines[claim.prefix].standing:
            return True
        if self._is_forgotten(claim):
            return claim.is_believed
        if claim.life.state is LifeState.PAUSED:
            self._world.history.record(claim.life.name, f"has lost {claim}, and is paused")
        return False

    def _check_true(self, claim: Belief) -> None:
        if self._is_forgotten(claim):
            return
        if claim.is_believed and not claim.guard.holds(self._store.item(claim.guard.key)):
            self._world.fail("who believes to own does own", f"{claim} is not so in the store")

    def _check_turn(self, claim: Belief) -> None:
        if self._is_forgotten(claim):
            return
        line = self._lines[claim.prefix]
        believed = [one for one in self.believed(claim.prefix) if not self._is_forgotten(one)]
        if len(believed) > line.limit:
            self._world.fail(
                "not more own than may", f"at one instant: {', '.join(str(one) for one in believed)}"
            )
        before = [token for token in line.standing if token < claim.token]
        if len(before) >= line.limit:
            self._world.fail("who came first owns first", f"{claim}, before {sorted(before)}")
        if line.limit == 1 and claim.token <= line.token_max:
            self._world.fail("tokens grow", f"{claim}, after {line.token_max}")
        line.token_max = max(line.token_max, claim.token)

    def _check_deleted(self, key: bytes, lease: int, origin: str) -> None:
        owner = self._store.lease_hosts.get(lease, "")
        if origin not in ("", owner):
            self._world.fail("only its owner releases", f"{origin} deleted {key.decode()} of {owner}")


PAUSES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPause:
    """An owner then stops for a while, and does not notice."""

    at_s: float
    lasting_s: float
    prefix: bytes

    def begin(self, world: World) -> bool:
        owners = owners_of(world, self.prefix)
        return bool(owners) and world.pause(owners[0])

    def end(self, world: World) -> None:
        # Resume all of them: those that are not paused are not affected.
        for name in owners_of(world, self.prefix):
            world.resume(name)


def draw_owner_pauses(
    chance: Chance, prefixes: Sequence[bytes], *, chaos_s: float, ttl_s: float
) -> FaultPlan:
    """Draw some, in every other seed: for about as long as a lease lasts, and for longer."""
    if chance.flip(0.5):
        return ()
    return tuple(
        OwnerPause(
            at_s=chance.uniform(0.0, chaos_s),
            lasting_s=chance.uniform(0.5, 3.0) * ttl_s,
            prefix=chance.choose(prefixes),
        )
        for _ in range(1 + chance.below(PAUSES_MAX))
    )
