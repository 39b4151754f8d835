"""Nodes and leaders of entries that are placed, and moved by hand-overs: each stands still where it is told.

The entries are called by the steps that are written last of their hand-overs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar, cast

from hansa.coordination import (
    Election,
    Members,
    NodeInfo,
    PlacedClaim,
    PlacedClaims,
    PlacedMoves,
    Placement,
    Placer,
    Session,
    SessionKeeper,
)
from hansa.coordination.handover import Handover, HandoverStep
from hansa.errors import HansaError, Unavailable
from hansa.store import Store, open_store
from hansa.store.values import Put
from tests.support.held_store import HeldStore, Tell

T = TypeVar("T")

KIND: Final = "entry"
OFFICE: Final = "placer"
STEPS: Final = tuple(step for step in HandoverStep if step is not HandoverStep.WITHDRAWN)
ENTRIES: Final = tuple(HandoverStep)
LOOK_S: Final = 0.05
# Of whom each step of an entry is held, and which: the one after the step by which the entry is called.
HELD: Final[Mapping[str, Mapping[str, HandoverStep]]] = {
    "old": {"prepared": HandoverStep.SEALED},
    "new": {"offered": HandoverStep.PREPARED, "taken": HandoverStep.DONE},
    "leader": {"sealed": HandoverStep.TAKEN},
}


def prefix_of(cluster: str) -> bytes:
    """Where the entries of a cluster are."""
    return f"entries/{cluster}/".encode()


class PlacedNode:
    """A node, which acts for what is placed on it and seals what it is asked for. `new` refuses one entry."""

    def __init__(self, store: HeldStore, cluster: str, name: str, lease_s: float, tell: Tell) -> None:
        self._store = store
        self._cluster = cluster
        self._name = name
        self._lease_s = lease_s
        self._tell = tell
        self._tasks = asyncio.TaskGroup()
        # All that it ever had.
        self._had: list[PlacedClaim] = []

    async def run(self) -> None:
        """Live, until cancelled."""
        store = cast(Store, self._store)
        keeper = SessionKeeper(store, cluster=self._cluster, node=self._name, ttl=self._lease_s)
        members = Members(
            store,
            NodeInfo(id=self._name),
            cluster=self._cluster,
            heartbeat_interval=self._lease_s / 6,
            heartbeat_timeout=self._lease_s / 2,
            session=keeper,
        )
        claims = PlacedClaims(keeper, self._name, prefix_of(self._cluster), on_claim=self._begin)
        moves = self._moves = PlacedMoves(
            keeper, self._name, claims, kind=KIND, on_wanted=self._wanted, refuse=self._refuse
        )
        async with keeper, members, self._tasks:
            self._tasks.create_task(claims.run(), name="following entries")
            self._tasks.create_task(moves.run(), name="following hand-overs")
            self._tell("ready")

    def open(self) -> None:
        self._store.open()

    async def write(self) -> None:
        """Try to write under each claim that it ever had; tell which of them are held and which could."""
        could = [self._named(claim) for claim in self._had if await self._act(claim)]
        held = [self._named(claim) for claim in self._had if claim.is_standing]
        self._tell("wrote", could=could, held=held)

    def _begin(self, claim: PlacedClaim) -> None:
        self._had.append(claim)
        self._tasks.create_task(self._own(claim), name=f"owns {claim.key!r}")

    async def _own(self, claim: PlacedClaim) -> None:
        entry, epoch = self._named(claim)
        try:
            state = await self._moves.handed_state(claim)
            await self._moves.finish(claim)
        except HansaError as error:
            self._tell("lost", entry, error=error.code)
            return
        before = await again(partial(self._store.get, self._key(claim)))
        if await self._act(claim):
            written = "" if before is None else before.value.decode()
            self._tell("owns", entry, epoch=epoch, state=state.decode(), before=written)

    async def _act(self, claim: PlacedClaim) -> bool:
        """Write for the entry, as its owner."""
        puts = [Put(self._key(claim), self._name.encode())]
        return (await again(partial(self._store.commit, claim.guards, puts))).is_success

    def _wanted(self, claim: PlacedClaim, record: Handover) -> None:
        self._tasks.create_task(self._give(claim), name=f"gives {claim.key!r}")

    async def _give(self, claim: PlacedClaim) -> None:
        entry, _ = self._named(claim)
        try:
            await self._moves.seal(claim, f"state of {entry}".encode())
        except HansaError as error:
            self._tell("kept", entry, error=error.code, is_held=claim.is_standing)
        else:
            self._tell("gave", entry, is_held=claim.is_standing)

    def _refuse(self, record: Handover) -> str:
        return "it is not willing" if record.name == HandoverStep.WITHDRAWN.value else ""

    def _named(self, claim: PlacedClaim) -> tuple[str, int]:
        return claim.key.removeprefix(prefix_of(self._cluster)).decode(), claim.epoch

    def _key(self, claim: PlacedClaim) -> bytes:
        return b"acts/" + claim.key


class PlacedLeader:
    """Leads: gives all entries to `old`, drives what is under way, and gives `heir` what is nobody's."""

    def __init__(self, store: HeldStore, cluster: str, name: str, lease_s: float, tell: Tell) -> None:
        self._store = store
        self._cluster = cluster
        self._name = name
        self._lease_s = lease_s
        self._tell = tell

    async def run(self) -> None:
        """Wait to lead, and lead until that is lost."""
        store = cast(Store, self._store)
        try:
            async with Session(store, self._lease_s, cluster=self._cluster, node=self._name) as session:
                self._tell("ready")
                async with Election(session, OFFICE).campaign() as leadership:
                    self._tell("leads")
                    placer = Placer(
                        store,
                        prefix_of(self._cluster),
                        kind=KIND,
                        guard=leadership.guard,
                        node=self._name,
                        cluster=self._cluster,
                    )
                    while True:
                        await again(partial(self._look, placer))
                        await asyncio.sleep(LOOK_S)
        except HansaError as error:
            self._tell("over", error=error.code)

    def open(self) -> None:
        self._store.open()

    async def write(self) -> None:
        raise NotImplementedError("a leader owns no entry")

    async def _look(self, placer: Placer) -> None:
        nodes = await placer.nodes()
        await placer.drive(lambda _: "heir" if "heir" in nodes else None)
        prefix = prefix_of(self._cluster)
        found = {item.key: Placement.decode(item.value) for item in (await self._store.scan(prefix)).items}
        for entry in ENTRIES:
            key = prefix + entry.value.encode()
            if key not in found:
                await placer.place(key, "old")
            elif nodes.get(found[key].node) != found[key].lease:
                await placer.place(key, "heir")


async def again(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the store until it answers."""
    while True:
        try:
            return await ask()
        except Unavailable:
            await asyncio.sleep(LOOK_S)


async def play(
    address: str, cluster: str, name: str, lease_s: float, tell: Tell, orders: asyncio.Queue[str]
) -> None:
    """Take part, and do what is ordered: `open`, `write`. A `leader` leads; any other name is a node's."""
    async with open_store(address) as store, asyncio.TaskGroup() as tasks:
        kind = PlacedLeader if name in ("leader", "successor") else PlacedNode
        player = kind(HeldStore(store, HELD.get(name, {}), tell), cluster, name, lease_s, tell)
        tasks.create_task(player.run(), name=name)
        while True:
            match await orders.get():
                case "open":
                    player.open()
                case "write":
                    await player.write()
