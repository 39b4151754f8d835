"""The books of a line in which something is handed over: its owner, what was sealed, and who has read it.

Everything is computed from the store's keys, at each revision, by rules of its own; the code that is judged
has no part in it. A claim that a program believes in must be true at that instant, and nobody owns a thing
that is sealed until it is taken or withdrawn.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.line import decode_signed
from hansa.keys import Keys
from hansa.store.values import Compare, Event, EventKind, KeyValue, WatchBatch
from hansa.testing.host import Host
from hansa.testing.life import Life, LifeState
from hansa.testing.store_host import StoreHost

__all__ = ["FOLLOWERS", "LineTruth", "OwnerBelief"]

KEYS: Final = Keys()
SHOWN_BYTES: Final = 60

FOLLOWERS: Final[Mapping[HandoverStep, frozenset[HandoverStep]]] = {
    HandoverStep.OFFERED: frozenset({HandoverStep.PREPARED, HandoverStep.WITHDRAWN}),
    HandoverStep.PREPARED: frozenset({HandoverStep.SEALED, HandoverStep.WITHDRAWN}),
    HandoverStep.SEALED: frozenset({HandoverStep.TAKEN, HandoverStep.WITHDRAWN}),
    HandoverStep.TAKEN: frozenset({HandoverStep.TAKEN, HandoverStep.DONE}),
}
"""Which step may follow which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerBelief:
    """A claim that one life was given."""

    life: Life
    key: bytes
    epoch: int
    guard: Compare
    is_held: Callable[[], bool]

    @property
    def is_believed(self) -> bool:
        return self.life.state is not LifeState.DEAD and self.is_held()

    def __str__(self) -> str:
        return f"{self.key.decode()} {self.epoch} of {self.life}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sealed:
    """The state that a seal handed on, in the record or as a blob."""

    number: int
    state: bytes
    blob: str

    @classmethod
    def of(cls, record: Handover) -> _Sealed:
        return cls(number=record.number, state=record.state, blob=record.blob)

    def is_this(self, state: bytes) -> bool:
        """Whether this is the state that was handed on. The name of a blob says what is in it."""
        if not self.blob:
            return state == self.state
        return self.blob.startswith(f"{sha256(state).hexdigest()}-{len(state)}-")


class LineTruth:
    """One line and its record. Fails the world at once when something is wrong."""

    def __init__(self, store: StoreHost, kind: str, name: str) -> None:
        self.prefix = KEYS.line(kind, name)
        self.head_key = self.prefix + b"handover"
        self.record_key = KEYS.handover(kind, name)
        self.record: Handover | None = None
        self.steps: Counter[HandoverStep] = Counter()
        """How often each step was taken."""
        self.owner: tuple[bytes, int] | None = None
        """The current owner, by the store: the key and its epoch."""
        self.beginnings_count = 0
        """How often a process came to own it that was handed nothing."""
        self.owners_count = 0
        self._store = store
        self._world = store.world
        self._standing: dict[bytes, KeyValue] = {}
        self._head: KeyValue | None = None
        self._epoch_max = 0
        self.deletes_count = 0
        """How often the record was deleted: then nobody can read in it how a hand-over ended."""
        self._sealed: _Sealed | None = None
        # The state that each owner was handed, by its key.
        self._handed: dict[bytes, _Sealed] = {}
        self._read: set[bytes] = set()
        # The hand-overs that were taken, by the old owner's key and the number.
        self._taken: set[tuple[str, int]] = set()
        self._open: list[OwnerBelief] = []

    # Called by programs.

    def begin(self, host: Host, belief: OwnerBelief, state: bytes) -> None:
        """A program owns, and was handed this state. It may have lost it already, and know it."""
        host.record(f"owns {belief.key.decode()} {belief.epoch} with {state[:SHOWN_BYTES]!r}")
        self._open.append(belief)
        self.owners_count += 1
        self._check_true(belief)
        expected = self._handed.get(belief.key)
        if (expected is not None and not expected.is_this(state)) or (expected is None and state):
            self._world.fail(
                "who owns next reads what was sealed",
                f"{belief}: {state[:SHOWN_BYTES]!r}, not {expected}",
            )
        if state and state in self._read:
            self._world.fail("no state is read twice", f"{belief}: {state[:SHOWN_BYTES]!r}")
        self._read.add(state)

    def believed(self) -> list[OwnerBelief]:
        """The claims that their owners believe in at this instant."""
        return [belief for belief in self._open if belief.is_believed]

    def waiting(self) -> list[str]:
        """The hosts that stand in the line and do not own."""
        owner = self.owner[0] if self.owner is not None else b""
        return [self._store.lease_hosts[item.lease] for key, item in self._standing.items() if key != owner]

    def was_taken(self, record: Handover) -> bool:
        """Whether somebody has taken it by this hand-over."""
        return (record.owner_key, record.number) in self._taken

    def was_taken_from(self, key: bytes) -> bool:
        """Whether somebody has taken it from the owner with this key, by a hand-over."""
        return any(owner_key.encode() == key for owner_key, _ in self._taken)

    def host_of(self, key: str) -> str:
        """The host to which a key belongs or belonged."""
        return self._store.lease_hosts[int(key.removeprefix(self.prefix.decode()).partition("-")[0], 16)]

    # Called by the store.

    def follow(self, batch: WatchBatch, origin: str) -> None:
        """The store has changed."""
        written: KeyValue | None = None
        is_deleted = False
        for event in batch.events:
            if event.item.key == self.record_key:
                is_deleted = event.kind is EventKind.DELETE
                written = None if is_deleted else event.item
            elif event.item.key.startswith(self.prefix):
                self._move(event)
        if is_deleted:
            self._record_deleted()
        before = self.record
        if written is not None:
            self.record = Handover.decode(written.value, revision=written.mod_revision)
        self._follow_owner(is_taken=written is not None and self._is_step(HandoverStep.TAKEN))
        if written is not None:
            self._check_step(before, origin)
        for belief in self._open:
            self._check_true(belief)
        self._open = [belief for belief in self._open if self._is_open(belief)]

    def _move(self, event: Event) -> None:
        key = event.item.key
        if key == self.head_key:
            self._head = event.item if event.kind is EventKind.PUT else None
        elif event.kind is EventKind.PUT:
            self._standing[key] = event.item
        else:
            self._standing.pop(key, None)

    def _is_step(self, step: HandoverStep) -> bool:
        return self.record is not None and self.record.step is step

    def _is_open(self, belief: OwnerBelief) -> bool:
        """Whether a claim may be believed in from now on."""
        if belief.life.state is LifeState.DEAD:
            return False
        if belief.key in self._standing:
            return True
        if belief.life.state is LifeState.PAUSED:
            self._world.history.record(belief.life.name, f"has lost {belief}, and is paused")
        return False

    # The owner.

    def _owner_now(self) -> tuple[bytes, int] | None:
        if not self._standing:
            return None
        oldest = min(self._standing.values(), key=lambda item: item.create_revision)
        if self._head is None:
            return oldest.key, oldest.create_revision
        told = json.loads(self._head.value)
        first = told["first"].encode()
        if first in self._standing:
            return first, told["epoch"] or self._head.mod_revision
        if told["open"] or oldest.create_revision < self._head.mod_revision:
            # A waiter must take it first.
            return None
        return oldest.key, oldest.create_revision

    def _follow_owner(self, *, is_taken: bool) -> None:
        owner = self._owner_now()
        before, self.owner = self.owner, owner
        if owner is None or owner == before:
            return
        key, epoch = owner
        if before is not None and before[0] in self._standing:
            self._world.fail("nobody owns what another does", f"{owner}, and {before} stands there")
        if epoch <= self._epoch_max:
            self._world.fail("epochs grow", f"{owner} after {self._epoch_max}")
        self._epoch_max = epoch
        self.beginnings_count += not is_taken
        if self._sealed is not None and not is_taken:
            self._world.fail("no sealed state is lost", f"{owner} owns without {self._sealed}")
        ahead = [
            item.key
            for item in self._standing.values()
            if item.create_revision < self._standing[key].create_revision
        ]
        if ahead and not (is_taken and self._is_named(key)):
            self._world.fail("who came first owns first", f"{owner}, before {ahead}")

    def _is_named(self, key: bytes) -> bool:
        """Whether the hand-over names its node."""
        node = decode_signed(self._standing[key].value).node
        return self.record is not None and self.record.target == node

    # The record.

    def _record_deleted(self) -> None:
        if self.record is not None and self.record.is_open:
            self._world.fail("no open record is deleted", str(self.record))
        self.record = None
        self.deletes_count += 1

    def _check_step(self, before: Handover | None, origin: str) -> None:
        now = self.record
        assert now is not None
        self.steps[now.step] += 1
        if before is None or before.number != now.number:
            self._check_offer(before, now)
        elif now.step not in FOLLOWERS.get(before.step, ()):
            self._world.fail("steps follow each other", f"{now.step} after {before.step}: {now}")
        match now.step:
            case HandoverStep.PREPARED:
                self._check_writer(now, now.target_key, origin)
            case HandoverStep.SEALED:
                self._check_writer(now, now.owner_key, origin)
                self._check_owner(now, now.owner_key, now.epoch)
                self._sealed = _Sealed.of(now)
            case HandoverStep.TAKEN:
                self._check_writer(now, now.target_key, origin)
                self._check_taken(before, now)
            case HandoverStep.DONE:
                self._check_writer(now, now.target_key, origin)
                self._check_owner(now, now.target_key, now.next_epoch)
                self._sealed = None
            case HandoverStep.WITHDRAWN if self._sealed is not None:
                self._check_writer(now, now.owner_key, origin)
                self._check_owner(now, now.owner_key, now.epoch)
                self._sealed = None

    def _check_offer(self, before: Handover | None, now: Handover) -> None:
        # An outside asker that gave up writes its offer as withdrawn, in case the offer is still on its way.
        is_forestalled = now.step is HandoverStep.WITHDRAWN and bool(now.asked_by)
        is_first = now.step is HandoverStep.OFFERED or is_forestalled
        if not is_first or now.number != (before.number if before else 0) + 1:
            self._world.fail("steps follow each other", f"{now} after {before}")
        if not is_forestalled:
            self._check_owner(now, now.owner_key, now.epoch)
        if before is None:
            return
        ended = HandoverStep.WITHDRAWN if before.is_open else before.step
        if not now.past or (now.past[0].number, now.past[0].step) != (before.number, ended):
            self._world.fail("the record says what happened", f"{now.past[:1]} of {before}")

    def _check_taken(self, before: Handover | None, now: Handover) -> None:
        named = before.target_key if before is not None and before.step is HandoverStep.SEALED else ""
        if named != now.target_key and named.encode() in self._standing:
            self._world.fail("who came first owns first", f"{now}, before {named}, who was named")
        if self._sealed != _Sealed.of(now):
            self._world.fail("no sealed state is lost", f"{now}, and {self._sealed} was sealed")
        self._check_owner(now, now.target_key, now.revision)
        self._handed[now.target_key.encode()] = _Sealed.of(now)
        self._taken.add((now.owner_key, now.number))

    def _check_owner(self, record: Handover, key: str, epoch: int) -> None:
        if self.owner != (key.encode(), epoch):
            self._world.fail("the record says what happened", f"{record}, and {self.owner} owns")

    def _check_writer(self, record: Handover, key: str, origin: str) -> None:
        if not key or self.host_of(key) != origin:
            self._world.fail("each step is written by whose it is", f"{origin} wrote {record}")

    # The claims.

    def _check_true(self, belief: OwnerBelief) -> None:
        if not belief.is_believed:
            return
        if self._is_step(HandoverStep.SEALED):
            self._world.fail(
                "an owner that has sealed no longer acts", f"{belief} is believed in: {self.record}"
            )
        if self.owner != (belief.key, belief.epoch) or not belief.guard.holds(
            self._store.item(belief.guard.key)
        ):
            self._world.fail("who believes to own does own", f"{belief}: {self.owner} owns in the store")
        if len(believed := self.believed()) > 1:
            self._world.fail(
                "nobody owns what another does", f"{', '.join(map(str, believed))} at one instant"
            )
